// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/BusShare.h"

#include <algorithm>

namespace headrace::core {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1 + 1e-12;
constexpr double kRising = -1; // in place of a rate that has not stopped yet

double limitOf(const PathLimits &limits, size_t direction) { return direction == 0 ? limits.h2d : limits.d2h; }

// A limit on the sum of some rates: what those that have stopped leave of it to those that rise.
struct Room {
  double left;
  size_t rising = 0;

  void add(double rate) {
    if (rate == kRising)
      ++rising;
    else
      left -= rate;
  }
  // How far those that rise get under this limit alone. Where more of them stop at less than that, the others get
  // further: it is a bound from below. No limit is none either once an infinite rate was taken off it (left is no
  // number then).
  double level() const {
    return rising != 0 && left < kUnlimited ? std::max(0.0, left) / static_cast<double>(rising) : kUnlimited;
  }
};

struct BusRoom {
  std::array<Room, 2> each;
  Room both;
  // How far the copies of each direction get.
  std::array<double, 2> levels() const {
    return {std::min(each[0].level(), both.level()), std::min(each[1].level(), both.level())};
  }
};

// How far the link's copies get by what it has for both directions.
double levelOf(const LinkShare &link) {
  if (link.limits.both == kUnlimited)
    return kUnlimited;
  Room both{link.limits.both};
  for (const double rate : link.rates)
    both.add(rate);
  return both.level();
}

// Takes off what the rates that have stopped have of the bus.
BusRoom roomOf(const PathLimits &bus, absl::Span<const LinkShare> links) {
  BusRoom room = {.each = {Room{bus.h2d}, Room{bus.d2h}}, .both = {bus.both}};
  for (size_t d = 0; d < 2; ++d)
    for (const LinkShare &link : links) {
      room.each[d].add(link.rates[d]);
      room.both.add(link.rates[d]);
    }
  return room;
}

} // namespace

void shareBus(const PathLimits &bus, absl::Span<LinkShare> links) {
  BusRoom room = {.each = {Room{bus.h2d}, Room{bus.d2h}}, .both = {bus.both}};
  for (LinkShare &link : links)
    for (size_t d = 0; d < 2; ++d) {
      const bool copies = limitOf(link.limits, d) > 0;
      link.rates[d] = copies ? kRising : 0;
      link.byBus[d] = false;
      room.each[d].rising += copies;
      room.both.rising += copies;
    }
  for (size_t rising = room.both.rising; rising != 0; room = roomOf(bus, links)) {
    const std::array<double, 2> busLevels = room.levels();
    // Those get all they may have who may have no more than every limit they are under lets them have.
    bool stopped = false;
    double least = kUnlimited; // of the levels that stop somebody short
    for (size_t d = 0; d < 2; ++d) {
      if (room.each[d].rising == 0)
        continue;
      for (LinkShare &link : links) {
        if (link.rates[d] != kRising)
          continue;
        const double level = std::min(busLevels[d], levelOf(link)), own = limitOf(link.limits, d);
        if (own <= level) {
          link.rates[d] = own;
          stopped = true;
          --rising;
        } else {
          least = std::min(least, level);
        }
      }
    }
    // Where all that still rise may have more than their limits let them, the tightest one stops those under it.
    for (size_t d = 0; d < 2 && !stopped; ++d) {
      if (room.each[d].rising == 0)
        continue;
      for (LinkShare &link : links) {
        if (link.rates[d] != kRising)
          continue;
        const double linkLevel = levelOf(link), level = std::min(busLevels[d], linkLevel);
        if (level > least * kRounding)
          continue;
        const double own = limitOf(link.limits, d);
        const bool all = own <= level * kRounding; // it may have
        link.rates[d] = all ? own : level;
        link.byBus[d] = !all && linkLevel > least * kRounding;
        --rising;
      }
    }
    if (rising == 0)
      return;
  }
}

double memoryLevel(double bandwidth, absl::Span<const double> asked) {
  // Those who ask for no more than an equal part get it, which leaves the others a larger one.
  double level = 0;
  for (size_t rising = asked.size() + 1;;) {
    double left = bandwidth;
    size_t more = 0;
    for (const double ask : asked)
      if (ask > level)
        ++more;
      else
        left -= ask;
    if (more == 0)
      return kUnlimited;
    if (more == rising)
      return level;
    rising = more;
    level = left / static_cast<double>(more);
  }
}

} // namespace headrace::core
