// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/TransferThread.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/host/LowLatency.h"

namespace headrace::host {

TransferThread::TransferThread(size_t devices, const BusSpeed &bus)
    : control_({nullptr, &bell_, nullptr}), bus_(bus), engines_(devices), devices_(devices, nullptr) {
  for (size_t d = 0; d < devices; ++d)
    bus_.addLink({});
  wants_.reserve(devices * kCounters + 1);
}

TransferThread::~TransferThread() {
  for (size_t d = 0; d < devices_.size(); ++d)
    if (devices_[d] != nullptr)
      detach(d);
}

// The thread looks at what is asked of it between two steps, and whenever it waits.
template <typename Change> void TransferThread::whilePaused(Change &&change) {
  if (!thread_.joinable()) {
    change();
    return;
  }
  control_.advance(Counter::Launched, ++pauses_);
  control_.wait(Thread::Caller, {Counter::Published, pauses_});
  change();
  control_.advance(Counter::Launched, ++pauses_);
}

void TransferThread::attach(size_t device, Shared &shared, const LinkSpeed *speed, bool urgent) {
  whilePaused([&] {
    const auto link = static_cast<uint32_t>(device);
    if (speed != nullptr)
      bus_.setLink(link, *speed);
    Bus *const pacing = speed != nullptr ? &bus_ : nullptr;
    engines_[device].emplace(std::array<CopyEngine, 2>{CopyEngine(shared, Direction::HostToDevice, pacing, link),
                                                       CopyEngine(shared, Direction::DeviceToHost, pacing, link)});
    devices_[device] = &shared;
  });
  if (++attached_ == 1)
    thread_ = std::thread([this, urgent] {
      if (urgent)
        (void)makeThreadUrgent(); // as the caller was before
      run();
    });
}

void TransferThread::detach(size_t device) {
  if (--attached_ == 0) {
    control_.advance(Counter::Launched, kStop + pauses_);
    thread_.join();
    control_.advance(Counter::Launched, pauses_); // for the thread that the next device brings
  }
  whilePaused([&] {
    engines_[device].reset();
    devices_[device] = nullptr;
  });
}

absl::Status TransferThread::pin(int core) { return pinThread(thread_, core, "transfer"); }

void TransferThread::setBusBandwidth(double bytesPerSecond) {
  whilePaused([&] { bus_.setH2d(bytesPerSecond, monotonicNs()); });
}

double TransferThread::sampleBusBandwidth() {
  const std::lock_guard lock(mutex_);
  const Bus::Slowed last = std::exchange(sampled_, slowed_);
  return slowed_.ns > last.ns ? (slowed_.bytes - last.bytes) / (slowed_.ns - last.ns) * 1e9 : 0;
}

void TransferThread::run() {
  // Deadlines are in microseconds; the default slack of timers is 50.
  (void)prctl(PR_SET_TIMERSLACK, 1);
  for (;;) {
    const uint64_t asked = control_.value(Counter::Launched);
    if (asked >= kStop)
      return;
    if (asked % 2 == 1) {
      control_.advance(Counter::Published, asked);
      control_.wait(Thread::Transfer, {Counter::Launched, asked + 1});
      continue;
    }
    bool acted = false;
    for (auto &engines : engines_)
      if (engines.has_value())
        for (CopyEngine &engine : *engines)
          acted |= engine.advance();
    publish();
    if (!acted)
      wait(asked + 1);
  }
}

void TransferThread::wait(uint64_t nextPause) {
  wants_.clear();
  wants_.push_back({&control_, {Counter::Launched, nextPause}});
  int64_t deadlineNs = kNever;
  for (size_t d = 0; d < engines_.size(); ++d) {
    if (!engines_[d].has_value())
      continue;
    std::array<uint64_t, kCounters> wanted;
    wanted.fill(kNever);
    for (const CopyEngine &engine : *engines_[d])
      engine.addWaits(wanted, deadlineNs);
    for (size_t c = 0; c < kCounters; ++c)
      if (wanted[c] != kNever)
        wants_.push_back({&devices_[d]->signals, {static_cast<Counter>(c), wanted[c]}});
  }
  Signals::waitAny(Thread::Transfer, bell_, wants_, deadlineNs);
}

void TransferThread::publish() {
  if (bus_.slowed().ns == published_)
    return;
  const std::lock_guard lock(mutex_);
  slowed_ = bus_.slowed();
  published_ = slowed_.ns;
}

absl::Status pinThread(std::thread &thread, int core, const char *lane) {
  if (core < 0)
    return absl::OkStatus();
  cpu_set_t set;
  CPU_ZERO(&set);
  if (core < CPU_SETSIZE)
    CPU_SET(core, &set);
  if (const int error = pthread_setaffinity_np(thread.native_handle(), sizeof(set), &set); error != 0)
    return absl::InvalidArgumentError(
        absl::StrCat("pinning the ", lane, " lane to core ", core, ": ", std::strerror(error)));
  return absl::OkStatus();
}

} // namespace headrace::host
