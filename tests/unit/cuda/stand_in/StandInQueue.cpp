// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/cuda/stand_in/StandInQueue.h"

#include <algorithm>
#include <utility>
#include <vector>

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

uint64_t Queue::add(Given given) {
  const std::lock_guard lock(mutex_);
  const auto entry = std::make_shared<Entry>(Entry{std::move(given), ++given_});
  streams_[entry->given.stream].push_back(entry);
  pending_[entry->number] = entry->given.device;
  changed_.notify_all();
  return given_;
}

bool Queue::ended(uint64_t entry) {
  const std::lock_guard lock(mutex_);
  return !pending_.contains(entry);
}

void Queue::waitWhile(const std::function<bool()> &pending) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !pending(); });
}

void Queue::wait(uint64_t entry) {
  waitWhile([&] { return pending_.contains(entry); });
}

void Queue::waitForDevice(int device) {
  waitWhile([&] {
    return std::any_of(pending_.begin(), pending_.end(), [&](const auto &one) { return one.second == device; });
  });
}

void Queue::waitForAll() {
  waitWhile([&] { return !pending_.empty(); });
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

void Queue::discard(int device) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !running_; });
  const auto its = [&](int of) { return device < 0 || of == device; };
  std::erase_if(streams_, [&](const auto &one) { return its(one.second.front()->given.device); });
  std::erase_if(pending_, [&](const auto &one) { return its(one.second); });
  changed_.notify_all();
}

bool Queue::mayGoOn(const Entry &entry) const {
  if (entry.begun)
    return true;
  return (heldFrom_ == 0 || entry.number < heldFrom_) && !(heldGraphs_ && entry.given.graph) &&
         !pending_.contains(entry.given.after);
}

// Null where none may go on.
std::shared_ptr<Queue::Entry> Queue::draw() {
  std::vector<std::shared_ptr<Entry>> ready;
  for (const auto &[stream, entries] : streams_)
    if (mayGoOn(*entries.front()))
      ready.push_back(entries.front());
  return ready.empty() ? nullptr : ready[random_() % ready.size()];
}

void Queue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    std::shared_ptr<Entry> next;
    changed_.wait(lock, [&] { return over_ || (next = draw()) != nullptr; });
    if (over_)
      return;
    next->begun = running_ = true;
    lock.unlock();
    const bool last = next->given.work();
    lock.lock();
    running_ = false;
    changed_.notify_all();
    const auto own = streams_.find(next->given.stream);
    if (!last || own == streams_.end() || own->second.front() != next)
      continue; // not yet ended, or discarded meanwhile
    own->second.pop_front();
    if (own->second.empty())
      streams_.erase(own);
    pending_.erase(next->number);
  }
}

} // namespace headrace::stand_in
