// SPDX-License-Identifier: Apache-2.0
//
// What all streams have been given to do, one behind the other.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace headrace::stand_in {

class Queue {
public:
  static Queue &get();
  ~Queue();

  // Returns the entry's number, from 1.
  uint64_t add(std::function<void()> work, bool graph = false);
  bool ended(uint64_t entry);
  void wait(uint64_t entry); // 0: returns at once
  void hold(bool graphsOnly);
  void release();
  uint64_t given();

private:
  Queue() : thread_([this] { work(); }) {}
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  struct Entry {
    std::function<void()> work;
    bool graph = false;
  };
  bool mayBegin() const;

  std::deque<Entry> waiting_;
  uint64_t given_ = 0, ended_ = 0;
  uint64_t heldFrom_ = 0;   // entries from this one on are not begun; 0: none is held
  bool heldGraphs_ = false; // graphs are not begun
  bool over_ = false;
  std::thread thread_;
};

} // namespace headrace::stand_in
