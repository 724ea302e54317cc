// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/Bus.h"

#include <algorithm>
#include <cmath>

namespace headrace::host {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double limitOf(const LinkSpeed &speed, size_t direction) { return (direction == 0 ? speed.h2d : speed.d2h) * 1e-9; }

// Nanoseconds that `bytes` take, rounded up; 0 at an unlimited rate.
int64_t duration(double bytes, double rate) { return static_cast<int64_t>(std::ceil(bytes / rate)); }

} // namespace

Bus::Bus(double bytesPerSecond) : bytesPerNs_(bytesPerSecond * 1e-9) {}

uint32_t Bus::addLink(const LinkSpeed &speed) {
  links_.push_back({.speed = speed});
  return static_cast<uint32_t>(links_.size() - 1);
}

// Progressive filling: all rates rise together; whoever meets a limit stays there.
void Bus::share() {
  size_t open = 0;
  for (Link &link : links_)
    for (size_t d = 0; d < 2; ++d) {
      link.flows[d].rate = 0;
      link.fixed[d] = !flows(link.flows[d]);
      open += !link.fixed[d];
    }
  double level = 0;
  while (open > 0) {
    double busUsed = 0;
    for (const Link &link : links_)
      busUsed += link.flows[0].rate + link.flows[1].rate;
    // How far the common level can rise: each limit's room by the flows that still rise under it.
    double next = level + std::max(0.0, bytesPerNs_ - busUsed) / static_cast<double>(open);
    const double busLevel = next;
    for (const Link &link : links_) {
      const double rising = static_cast<double>(!link.fixed[0]) + static_cast<double>(!link.fixed[1]);
      if (rising == 0)
        continue;
      const double room = link.speed.both * 1e-9 - link.flows[0].rate - link.flows[1].rate;
      next = std::min(next, level + std::max(0.0, room) / rising);
      for (size_t d = 0; d < 2; ++d)
        if (!link.fixed[d])
          next = std::min(next, limitOf(link.speed, d));
    }
    if (next == kInfinity) { // nothing limits what is left
      for (Link &link : links_)
        for (size_t d = 0; d < 2; ++d)
          if (!link.fixed[d])
            link.flows[d].rate = kInfinity;
      return;
    }
    for (Link &link : links_) {
      const double rising = static_cast<double>(!link.fixed[0]) + static_cast<double>(!link.fixed[1]);
      link.full =
          rising != 0 &&
          next >= level + std::max(0.0, link.speed.both * 1e-9 - link.flows[0].rate - link.flows[1].rate) / rising;
    }
    for (Link &link : links_)
      for (size_t d = 0; d < 2; ++d)
        if (!link.fixed[d]) {
          link.flows[d].rate = next;
          if (link.full || next >= limitOf(link.speed, d) || next >= busLevel) {
            link.fixed[d] = true;
            --open;
          }
        }
    level = next;
  }
}

void Bus::start(uint32_t link, Direction direction, uint64_t bytes, int64_t atNs) {
  advance(atNs);
  Flow &flow = links_[link].flows[static_cast<size_t>(direction)];
  flow = {.bytes = bytes, .flowsFrom = atNs + links_[link].speed.latencyNs, .active = true};
  share();
  if (flow.flowsFrom >= clockNs_ || flow.rate == 0)
    return;
  // Started in the past: it has run at this rate since.
  const int64_t since = clockNs_ - flow.flowsFrom;
  if (duration(static_cast<double>(bytes), flow.rate) <= since) {
    flow.endNs = flow.flowsFrom + duration(static_cast<double>(bytes), flow.rate);
    flow.arrived = static_cast<double>(bytes);
    flow.active = false;
    share();
  } else {
    flow.arrived = flow.rate * static_cast<double>(since);
  }
}

void Bus::advance(int64_t nowNs) {
  for (;;) {
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
          flow.active = false;
          changed = true;
        } else {
          flow.arrived += flow.rate * static_cast<double>(next - clockNs_);
        }
      }
    clockNs_ = next;
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
