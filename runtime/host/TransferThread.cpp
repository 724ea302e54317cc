// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/TransferThread.h"

#include <algorithm>

#include "runtime/threads/LowLatency.h"
#include "runtime/threads/Threads.h"

namespace headrace::host {

TransferThread::TransferThread(size_t devices, const core::PathLimits &bus)
    : control_({nullptr, &bell_, nullptr}), engines_(devices, bus), attached_(devices, false) {
  wants_.reserve(devices * kCounters + 1);
}

TransferThread::~TransferThread() {
  for (size_t d = 0; d < attached_.size(); ++d)
    if (attached_[d])
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

absl::Status TransferThread::attach(size_t device, Shared &shared, const LinkSpeed *speed, bool urgent) {
  whilePaused([&] { engines_.attach(device, shared, speed); });
  attached_[device] = true;
  if (thread_.joinable())
    return absl::OkStatus();
  absl::Status started = threads::startThread(thread_, "transfer lane", [this, urgent] {
    if (urgent)
      (void)threads::makeThreadUrgent(); // as the caller was before
    run();
  });
  if (!started.ok()) {
    attached_[device] = false;
    engines_.detach(device);
  }
  return started;
}

void TransferThread::detach(size_t device) {
  attached_[device] = false;
  if (std::none_of(attached_.begin(), attached_.end(), [](bool attached) { return attached; })) {
    control_.advance(Counter::Launched, kStop + pauses_);
    thread_.join();
    control_.advance(Counter::Launched, pauses_); // for the thread that the next device brings
  }
  whilePaused([&] { engines_.detach(device); });
}

absl::Status TransferThread::pin(int core) { return threads::pinThread(thread_, core, "transfer lane"); }

void TransferThread::setBusBandwidth(double bytesPerSecond) {
  whilePaused([&] { engines_.setBusBandwidth(bytesPerSecond); });
}

void TransferThread::run() {
  wakeOnTime();
  for (;;) {
    const uint64_t asked = control_.value(Counter::Launched);
    if (asked >= kStop)
      return;
    if (asked % 2 == 1) {
      control_.advance(Counter::Published, asked);
      control_.wait(Thread::Transfer, {Counter::Launched, asked + 1});
      continue;
    }
    wants_.clear();
    int64_t deadlineNs = threads::kNever;
    if (engines_.step(wants_, deadlineNs))
      continue;
    wants_.push_back({&control_, {Counter::Launched, asked + 1}});
    Signals::waitAny(Thread::Transfer, bell_, wants_, deadlineNs);
  }
}

} // namespace headrace::host
