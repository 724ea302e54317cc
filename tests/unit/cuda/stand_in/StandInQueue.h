// SPDX-License-Identifier: Apache-2.0
//
// What streams have been given to do: in order on each, and drawn anew, step by step, among them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

namespace headrace::stand_in {

class Queue {
public:
  // Does the next part of it; whether that was the last one.
  using Work = std::function<bool()>;
  struct Given {
    const void *stream = nullptr;
    int device = 0;
    Work work;
    bool graph = false;
    uint64_t after = 0; // an entry that ends before; 0: none
  };

  static Queue &get();
  ~Queue();

  // Returns the entry's number, from 1.
  uint64_t add(Given given);
  bool ended(uint64_t entry);
  void wait(uint64_t entry); // 0: returns at once
  void waitForDevice(int device);
  void waitForAll();
  void hold(bool graphsOnly);
  void release();
  void discard(int device); // all of it that has not run; -1: of all of them

private:
  Queue() : thread_([this] { work(); }) {}
  void work();

  struct Entry {
    Given given;
    uint64_t number = 0;
    bool begun = false;
  };
  bool mayGoOn(const Entry &entry) const;
  std::shared_ptr<Entry> draw();
  void waitWhile(const std::function<bool()> &pending);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<const void *, std::deque<std::shared_ptr<Entry>>> streams_; // of each what has not ended; none is empty
  std::map<uint64_t, int> pending_;                                    // entries that have not ended, and their devices
  uint64_t given_ = 0;
  uint64_t heldFrom_ = 0;   // entries from this one on are not begun; 0: none is held
  bool heldGraphs_ = false; // graphs are not begun
  bool running_ = false;    // a step, at the moment
  bool over_ = false;
  std::mt19937_64 random_{1};
  std::thread thread_;
};

} // namespace headrace::stand_in
