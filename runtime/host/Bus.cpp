// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/Bus.h"

#include <algorithm>
#include <cmath>

namespace headrace::host {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1 + 1e-12;

double limitOf(const LinkSpeed &speed, size_t direction) { return (direction == 0 ? speed.h2d : speed.d2h) * 1e-9; }

// Nanoseconds that `bytes` take, rounded up; 0 at an unlimited rate.
int64_t duration(double bytes, double rate) { return static_cast<int64_t>(std::ceil(bytes / rate)); }

} // namespace

Bus::Bus(const BusSpeed &speed) : speed_{speed.h2d * 1e-9, speed.d2h * 1e-9, speed.both * 1e-9} {}

uint32_t Bus::addLink(const LinkSpeed &speed) {
  links_.push_back({.speed = speed});
  return static_cast<uint32_t>(links_.size() - 1);
}

void Bus::setLink(uint32_t link, const LinkSpeed &speed) { links_[link] = {.speed = speed}; }

void Bus::setH2d(double bytesPerSecond, int64_t nowNs) {
  advance(nowNs);
  speed_.h2d = bytesPerSecond * 1e-9;
  share();
}

// Progressive filling: all rates rise together; whoever meets a limit stays there.
void Bus::share() {
  std::array<double, 2> open{}; // flows that still rise, by direction
  for (Link &link : links_)
    for (size_t d = 0; d < 2; ++d) {
      link.flows[d].rate = 0;
      link.fixed[d] = !flows(link.flows[d]);
      open[d] += !link.fixed[d];
    }
  slows_ = false;
  // How far the common level can rise until `used` is `limit`: the room by the flows that still rise under it.
  double level = 0;
  const auto reach = [&](double limit, double used, double rising) {
    return rising > 0 ? level + std::max(0.0, limit - used) / rising : kInfinity;
  };
  while (open[0] + open[1] > 0) {
    std::array<double, 2> used{};
    for (const Link &link : links_)
      for (size_t d = 0; d < 2; ++d)
        used[d] += link.flows[d].rate;
    const double both = reach(speed_.both, used[0] + used[1], open[0] + open[1]);
    const std::array<double, 2> busLevel = {std::min(both, reach(speed_.h2d, used[0], open[0])),
                                            std::min(both, reach(speed_.d2h, used[1], open[1]))};
    double next = std::min(busLevel[0], busLevel[1]);
    for (Link &link : links_) {
      const double rising = static_cast<double>(!link.fixed[0]) + static_cast<double>(!link.fixed[1]);
      link.level = reach(link.speed.both * 1e-9, link.flows[0].rate + link.flows[1].rate, rising);
      next = std::min(next, link.level);
      for (size_t d = 0; d < 2; ++d)
        if (!link.fixed[d])
          next = std::min(next, limitOf(link.speed, d));
    }
    for (Link &link : links_)
      for (size_t d = 0; d < 2; ++d)
        if (!link.fixed[d]) {
          link.flows[d].rate = next; // infinite if nothing limits what is left
          const bool byLink = next * kRounding >= std::min(link.level, limitOf(link.speed, d));
          link.fixed[d] = byLink || next >= busLevel[d];
          open[d] -= link.fixed[d];
          slows_ |= d == 0 && link.fixed[d] && !byLink;
        }
    level = next;
  }
  h2dBytesPerNs_ = 0;
  for (const Link &link : links_)
    h2dBytesPerNs_ += link.flows[0].rate;
}

// Lets the present rates run on.
void Bus::pass(int64_t toNs) {
  if (slows_) {
    const auto ns = static_cast<double>(toNs - clockNs_);
    slowed_.ns += ns;
    slowed_.bytes += h2dBytesPerNs_ * ns;
  }
  clockNs_ = toNs;
}

void Bus::start(uint32_t link, Direction direction, uint64_t bytes, int64_t atNs) {
  advance(atNs);
  Flow &flow = links_[link].flows[static_cast<size_t>(direction)];
  flow = {.bytes = bytes, .flowsFrom = std::max(atNs, clockNs_) + links_[link].speed.latencyNs, .active = true};
  share();
}

void Bus::takeEnd(uint32_t link, Direction direction) {
  Flow &flow = links_[link].flows[static_cast<size_t>(direction)];
  untaken_ -= !flow.taken;
  flow.taken = true;
}

void Bus::advance(int64_t nowNs) {
  while (untaken_ == 0) {
    // To the next change of the rates, or to now.
    int64_t next = std::max(nowNs, clockNs_);
    for (const Link &link : links_)
      for (const Flow &flow : link.flows) {
        if (!flow.active)
          continue;
        const int64_t event = flow.flowsFrom > clockNs_
                                  ? flow.flowsFrom
                                  : clockNs_ + duration(static_cast<double>(flow.bytes) - flow.arrived, flow.rate);
        next = std::min(next, event);
      }
    bool changed = false;
    for (Link &link : links_)
      for (Flow &flow : link.flows) {
        if (!flow.active)
          continue;
        if (flow.flowsFrom > clockNs_) {
          changed |= flow.flowsFrom <= next;
          continue;
        }
        if (clockNs_ + duration(static_cast<double>(flow.bytes) - flow.arrived, flow.rate) <= next) {
          flow.arrived = static_cast<double>(flow.bytes);
          flow.endNs = next;
          flow.active = flow.taken = false;
          ++untaken_;
          changed = true;
        } else {
          flow.arrived += flow.rate * static_cast<double>(next - clockNs_);
        }
      }
    pass(next);
    if (changed)
      share();
    else if (clockNs_ >= nowNs)
      return;
  }
}

uint64_t Bus::arrived(uint32_t link, Direction direction) const {
  const Flow &f = flow(link, direction);
  return f.active ? std::min(f.bytes, static_cast<uint64_t>(f.arrived)) : f.bytes;
}

int64_t Bus::arrivalNs(uint32_t link, Direction direction, uint64_t bytes) const {
  const Flow &f = flow(link, direction);
  if (!f.active)
    return f.endNs;
  const double missing = static_cast<double>(bytes) - f.arrived;
  if (f.flowsFrom > clockNs_) // at best
    return f.flowsFrom + duration(missing, limitOf(links_[link].speed, static_cast<size_t>(direction)));
  return missing <= 0 ? clockNs_ : clockNs_ + duration(missing, f.rate);
}

} // namespace headrace::host
