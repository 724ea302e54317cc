// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/Bus.h"

#include <algorithm>
#include <cmath>

namespace headrace::host {
namespace {

double limitOf(const LinkSpeed &speed, size_t direction) { return (direction == 0 ? speed.h2d : speed.d2h) * 1e-9; }

// Nanoseconds that `bytes` take, rounded up; 0 at an unlimited rate.
int64_t duration(double bytes, double rate) { return static_cast<int64_t>(std::ceil(bytes / rate)); }

} // namespace

Bus::Bus(const core::PathLimits &limits) : limits_{limits.h2d * 1e-9, limits.d2h * 1e-9, limits.both * 1e-9} {}

uint32_t Bus::addLink(const LinkSpeed &speed) {
  links_.push_back({.speed = speed});
  shares_.emplace_back();
  return static_cast<uint32_t>(links_.size() - 1);
}

void Bus::setLink(uint32_t link, const LinkSpeed &speed) { links_[link] = {.speed = speed}; }

void Bus::setH2d(double bytesPerSecond, int64_t nowNs) {
  advance(nowNs);
  limits_.h2d = bytesPerSecond * 1e-9;
  share();
}

// Gives every copy that flows its fair rate.
void Bus::share() {
  for (size_t l = 0; l < links_.size(); ++l) {
    const Link &link = links_[l];
    const auto limit = [&](size_t d) {
      return flows(link.flows[d]) || flows(link.flows[d + 2]) ? limitOf(link.speed, d) : 0;
    };
    shares_[l].limits = {.h2d = limit(0), .d2h = limit(1), .both = link.speed.both * 1e-9};
  }
  core::shareBus(limits_, absl::MakeSpan(shares_));
  slows_ = false;
  h2dBytesPerNs_ = 0;
  for (size_t l = 0; l < links_.size(); ++l) {
    for (size_t d = 0; d < 2; ++d) {
      Flow &launches = links_[l].flows[d], &beside = links_[l].flows[d + 2];
      launches.rate = beside.rate = shares_[l].rates[d] / (flows(launches) && flows(beside) ? 2 : 1);
    }
    slows_ |= shares_[l].byBus[0];
    h2dBytesPerNs_ += shares_[l].rates[0];
  }
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

void Bus::start(uint32_t link, Direction direction, uint64_t bytes, int64_t atNs, CopyRow row) {
  advance(atNs);
  Flow &flow = links_[link].flows[index(direction, row)];
  flow = {.bytes = bytes, .flowsFrom = std::max(atNs, clockNs_) + links_[link].speed.latencyNs, .active = true};
  share();
}

void Bus::takeEnd(uint32_t link, Direction direction, CopyRow row) {
  Flow &flow = links_[link].flows[index(direction, row)];
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

uint64_t Bus::arrived(uint32_t link, Direction direction, CopyRow row) const {
  const Flow &f = flow(link, direction, row);
  return f.active ? std::min(f.bytes, static_cast<uint64_t>(f.arrived)) : f.bytes;
}

int64_t Bus::arrivalNs(uint32_t link, Direction direction, uint64_t bytes, CopyRow row) const {
  const Flow &f = flow(link, direction, row);
  if (!f.active)
    return f.endNs;
  const double missing = static_cast<double>(bytes) - f.arrived;
  if (f.flowsFrom > clockNs_) // at best
    return f.flowsFrom + duration(missing, limitOf(links_[link].speed, static_cast<size_t>(direction)));
  return missing <= 0 ? clockNs_ : clockNs_ + duration(missing, f.rate);
}

} // namespace headrace::host
