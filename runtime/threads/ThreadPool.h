// SPDX-License-Identifier: Apache-2.0
//
// The threads that share a lane's compute steps: the lane's own, and helpers. A step is units of work
// (kernels/HostKernel.h); whoever has a core takes the next one.
//
//   lane ------ step: 40 units ------ takes 0, 3, 4, 7 ... ------ all have ended: next step
//                     |  next = 5
//   helper 1 ---------'------------------- takes 1, 5, 8 ...
//   helper 2 --- (another process has its core) --- takes 20 ...
//
// How many units there are and which is the next one is one word, so a unit is taken by one compare-and-exchange, and a
// helper knows nothing of a step before it has a unit of it. So a thread that gets no core for a while, wherever it
// stands, holds up a step only by the unit that it has; all others are done without it, if need be by the lane alone,
// which never waits for a thread to come.
//
// A helper without work spins for kPoolSpinNs, then sleeps. No wake-up is lost: it says that it sleeps before it looks
// for units once more, the lane publishes units before it looks for sleepers, both sequentially consistent, so one of
// them sees the other. Likewise the lane, which spins for kSpinNs and sleeps until the last unit has ended.
//
// Lanes of several devices have one pool: each helps itself, and helpers help whoever has units, so that as many
// threads compute as the pool has, or as there are lanes if that is more.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/HostKernel.h"
#include "runtime/threads/Futex.h"
#include "runtime/threads/GuardedMemory.h"

namespace headrace::threads {

inline constexpr int64_t kPoolSpinNs = 50'000; // what lies between two steps that are shared is mostly less

// Of a device that joins a pool.
struct PoolMember {
  uint64_t workspaceBytes = 0; // the largest of its steps'
  uint64_t sharedBytes = 0;    // kernels::hostTeamBytes()
  int64_t unitNs = 0;          // HostTeam::unitNs
  bool urgent = false;         // the helpers, if it is this device that brings them (LowLatency.h)
  bool poison = false;         // its scratch is NaN at first
  absl::Span<const int> cores; // of the helpers that it brings, one each; those that are beyond are not pinned
};

class ThreadPool {
public:
  // For so many lanes, `threads` of them and helpers together.
  ThreadPool(size_t lanes, int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool &) = delete;
  ThreadPool &operator=(const ThreadPool &) = delete;

  // One thread attaches and detaches. Helpers are there while a lane is attached. ResourceExhausted naming the thread
  // that there is not, or the scratch; InvalidArgument naming a core. Then nothing is attached.
  absl::Status attach(size_t lane, const PoolMember &member);
  void detach(size_t lane); // between two of its run()

  // Runs a kernel: by the thread of this lane. Allocates nothing.
  void run(size_t lane, const kernels::HostKernel &kernel, const void *args);
  // Calls f(unit) for each unit below `units`, by this thread and helpers: for what is done for a lane while it is
  // idle.
  void each(size_t lane, int64_t units, absl::FunctionRef<void(int64_t)> f);

  int threads() const { return static_cast<int>(lanes_.size() + helpers_); }
  int threadsOfLane() const { return static_cast<int>(1 + helpers_); } // that may compute its steps

private:
  using Call = void (*)(const void *context, int64_t unit, float *scratch);

  struct alignas(64) Lane {
    std::atomic<uint64_t> open{0}; // units << 32 | the next one
    alignas(64) std::atomic<uint32_t> ended{0};
    std::atomic<uint32_t> sleeps{0}; // 1: until `ended` is all
    // Written while no unit is open, read by who has taken one.
    alignas(64) Call call = nullptr;
    const void *context = nullptr;
    std::byte *scratch = nullptr; // of helper i from i * stride on
    uint64_t stride = 0;
    kernels::HostTeam team;
    GuardedMemory memory;
    bool attached = false;
  };
  struct Step;

  absl::Status start(const PoolMember &member);
  void stop();
  void help(size_t self);
  void sleepOrSpin();
  bool anyOpen() const;
  bool take(Lane &lane, uint32_t &unit, uint32_t &units);
  void runUnit(Lane &lane, uint32_t unit, uint32_t units, float *scratch);
  void share(Lane &lane, int64_t units, Call call, const void *context);
  void wake(int most);

  std::vector<Lane> lanes_;
  const size_t helpers_;
  std::vector<std::thread> threads_;
  alignas(64) std::atomic<uint32_t> bell_{0};
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> stop_{false};
};

} // namespace headrace::threads
