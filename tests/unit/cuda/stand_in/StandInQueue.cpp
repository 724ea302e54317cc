// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/cuda/stand_in/StandInQueue.h"

#include <utility>

namespace headrace::stand_in {

Queue &Queue::get() {
  static Queue queue;
  return queue;
}

Queue::~Queue() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

uint64_t Queue::add(std::function<void()> work, bool graph) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back({std::move(work), graph});
  changed_.notify_all();
  return ++given_;
}

bool Queue::ended(uint64_t entry) {
  const std::lock_guard lock(mutex_);
  return entry <= ended_;
}

void Queue::wait(uint64_t entry) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return entry <= ended_; });
}

void Queue::hold(bool graphsOnly) {
  const std::lock_guard lock(mutex_);
  heldFrom_ = graphsOnly ? 0 : given_ + 1;
  heldGraphs_ = graphsOnly;
}

void Queue::release() {
  const std::lock_guard lock(mutex_);
  heldFrom_ = 0;
  heldGraphs_ = false;
  changed_.notify_all();
}

bool Queue::mayBegin() const {
  return !waiting_.empty() && (heldFrom_ == 0 || ended_ + 1 < heldFrom_) && !(heldGraphs_ && waiting_.front().graph);
}

uint64_t Queue::given() {
  const std::lock_guard lock(mutex_);
  return given_;
}

void Queue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return over_ || mayBegin(); });
    if (over_)
      return;
    const std::function<void()> next = std::move(waiting_.front().work);
    waiting_.pop_front();
    lock.unlock();
    next();
    lock.lock();
    ++ended_;
    changed_.notify_all();
  }
}

} // namespace headrace::stand_in
