// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/CopyEngines.h"

#include <algorithm>
#include <utility>

namespace headrace::host {
namespace {

// How much later than it could have been something is done before another thread than the transfer thread does it: more
// than a wake-up takes on an idle machine. And the time between two looks, which cost a wake-up each.
constexpr int64_t kLateNs = 50'000, kLookNs = 100'000;

} // namespace

CopyEngines::CopyEngines(size_t devices, const core::PathLimits &bus)
    : bus_(bus), engines_(devices), devices_(devices, nullptr) {
  for (size_t d = 0; d < devices; ++d)
    bus_.addLink({});
}

void CopyEngines::attach(size_t device, Shared &shared, const LinkSpeed *speed) {
  const std::lock_guard lock(stepping_);
  const auto link = static_cast<uint32_t>(device);
  if (speed != nullptr)
    bus_.setLink(link, *speed);
  Bus *const pacing = speed != nullptr ? &bus_ : nullptr;
  engines_[device].emplace(Engines{{CopyEngine(shared, Direction::HostToDevice, pacing, link),
                                    CopyEngine(shared, Direction::DeviceToHost, pacing, link)},
                                   {BesideEngine(shared, Direction::HostToDevice, pacing, link),
                                    BesideEngine(shared, Direction::DeviceToHost, pacing, link)}});
  devices_[device] = &shared;
}

void CopyEngines::detach(size_t device) {
  const std::lock_guard lock(stepping_);
  engines_[device].reset();
  devices_[device] = nullptr;
}

void CopyEngines::setBusBandwidth(double bytesPerSecond) {
  const std::lock_guard lock(stepping_);
  bus_.setH2d(bytesPerSecond, threads::monotonicNs());
}

double CopyEngines::sampleBusBandwidth() {
  const std::lock_guard lock(sampling_);
  const Bus::Slowed last = std::exchange(sampled_, slowed_);
  return slowed_.ns > last.ns ? (slowed_.bytes - last.bytes) / (slowed_.ns - last.ns) * 1e9 : 0;
}

bool CopyEngines::stepAll() {
  bool acted = false;
  for (auto &engines : engines_)
    if (engines.has_value()) {
      for (CopyEngine &engine : engines->launches)
        acted |= engine.advance();
      for (BesideEngine &engine : engines->beside)
        acted |= engine.advance();
    }
  publish();
  return acted;
}

void CopyEngines::publish() {
  if (bus_.slowed().ns == published_)
    return;
  const std::lock_guard lock(sampling_);
  slowed_ = bus_.slowed();
  published_ = slowed_.ns;
}

CopyEngines::Waits CopyEngines::waits(size_t device) const {
  Waits waits;
  waits.wanted.fill(threads::kNever);
  if (engines_[device].has_value()) {
    for (const CopyEngine &engine : engines_[device]->launches)
      engine.addWaits(waits.wanted, waits.deadlineNs);
    for (const BesideEngine &engine : engines_[device]->beside)
      engine.addWaits(waits.wanted, waits.deadlineNs);
  }
  return waits;
}

bool CopyEngines::step(std::vector<Signals::WantOf> &wants, int64_t &deadlineNs) {
  const std::lock_guard lock(stepping_);
  if (stepAll())
    return true;
  deadlineNs = threads::kNever;
  for (size_t d = 0; d < engines_.size(); ++d) {
    const Waits waits = this->waits(d);
    deadlineNs = std::min(deadlineNs, waits.deadlineNs);
    for (size_t c = 0; c < kCounters; ++c)
      if (waits.wanted[c] != threads::kNever)
        wants.push_back({&devices_[d]->signals, {static_cast<Counter>(c), waits.wanted[c]}});
  }
  return false;
}

// Had the transfer thread its core, it would have done by now what could be done when the wait began, and what has come
// due since but for a wake-up.
int64_t CopyEngines::takeOver(int64_t sinceNs) {
  const int64_t now = threads::monotonicNs();
  const std::unique_lock lock(stepping_, std::try_to_lock);
  if (!lock.owns_lock())
    return now + kLookNs; // the transfer thread, or another lane, is at it
  int64_t dueNs = threads::kNever - kLateNs;
  for (size_t d = 0; d < engines_.size(); ++d) {
    const Waits waits = this->waits(d);
    dueNs = std::min(dueNs, waits.deadlineNs);
    for (size_t c = 0; c < kCounters; ++c)
      if (waits.wanted[c] != threads::kNever && devices_[d]->signals.value(static_cast<Counter>(c)) >= waits.wanted[c])
        dueNs = std::min(dueNs, sinceNs);
  }
  if (dueNs + kLateNs > now)
    return std::max(dueNs + kLateNs, now + kLookNs);
  return stepAll() ? now : now + kLookNs;
}

} // namespace headrace::host
