// SPDX-License-Identifier: Apache-2.0
//
// How the device's threads wait for each other: counters that only grow, and per thread the values it waits for.
//
//   advance(counter, value)   publishes value; for each thread that sleeps until this counter reaches at most value,
//   one
//                             futex wake. Nobody sleeping: a store and a few loads.
//   wait(thread, counter, n)  returns once counter >= n: at once, after a spin of at most kSpinNs, or after sleeping.
//   announce(counter, value)  wakes those that wait for value although it is not there yet: waking takes a machine some
//                             10 us, so who knows when it will advance says so that long before. The woken spin.
//
// No wake-up is lost: the waiter stores what it wants before it looks at the counter again, the advancer stores the
// counter before it looks at what is wanted, both sequentially consistent, so one of them sees the other.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>

#include "absl/types/span.h"
#include "runtime/threads/Futex.h"

namespace headrace::host {

inline constexpr int64_t kLongSpinNs = 20'000; // the longest any thread spins: after an announcement, before a deadline

// Deadlines of the calling thread's waits are met to the microsecond: the default slack of timers is 50.
void wakeOnTime();

enum class Counter : uint8_t {
  Compute, // steps of the lane that have ended, over all launches, and one for the end of each launch
  H2D,
  D2H,       // likewise
  Launched,  // launches in the ring
  Published, // the last iteration whose tokens can be read
  BesideH2D,
  BesideD2H, // copies beside launches asked for in that direction,
  BesideH2DEnded,
  BesideD2HEnded, // and those of them that have ended
};
inline constexpr int kCounters = 9;
inline constexpr int kHostLanes = 3; // compute, h2d and d2h: the first three of plan::Lane and of Counter
enum class Thread : uint8_t { Compute, Transfer, Caller };
inline constexpr int kThreads = 3;

struct Want {
  Counter counter;
  uint64_t threshold;
};

// What a thread that waits sleeps on. A thread that waits for the counters of several Signals has one bell in all of
// them.
struct alignas(64) Bell {
  std::atomic<uint32_t> rings{0}; // changes with each wake-up
};

class Signals {
public:
  // `bells`: what the threads sleep on; null: a bell of these Signals.
  explicit Signals(const std::array<Bell *, kThreads> &bells = {});
  Signals(const Signals &) = delete;
  Signals &operator=(const Signals &) = delete;

  uint64_t value(Counter counter) const {
    return counters_[static_cast<size_t>(counter)].value.load(std::memory_order_acquire);
  }
  bool reached(const Want &want) const { return value(want.counter) >= want.threshold; }

  // Makes everything written before visible to whoever sees the value. One thread advances a counter.
  void advance(Counter counter, uint64_t value);

  void announce(Counter counter, uint64_t value);
  // The store of advance() alone. announce() is to follow: until then who sleeps for it sleeps on.
  void store(Counter counter, uint64_t value) {
    counters_[static_cast<size_t>(counter)].value.store(value, std::memory_order_seq_cst);
  }

  // Returns the nanoseconds spent waiting (0 if there was no need).
  int64_t wait(Thread self, const Want &want);
  // Waits until one of `wants` (at most one a counter) is reached or the clock shows `deadlineNs` (kNever: no limit).
  // Spins for a deadline closer than kLongSpinNs, sleeps for others and is then some microseconds late.
  void waitAny(Thread self, absl::Span<const Want> wants, int64_t deadlineNs);

  struct WantOf {
    Signals *signals;
    Want want;
  };
  // The same over several Signals in which the thread has this bell (at most one want a counter of each). `spins`
  // false: sleeps at once, for a caller that has no core to itself.
  static void waitAny(Thread self, Bell &bell, absl::Span<const WantOf> wants, int64_t deadlineNs, bool spins = true);

private:
  static constexpr uint64_t kNotWaiting = std::numeric_limits<uint64_t>::max();
  struct alignas(64) Value {
    std::atomic<uint64_t> value{0};
  };
  struct alignas(64) Waiter {
    std::array<std::atomic<uint64_t>, kCounters> wanted; // thresholds; kNotWaiting
    Bell *bell = nullptr;
  };
  static bool anyReached(absl::Span<const WantOf> wants);
  static bool spin(absl::Span<const WantOf> wants, int64_t nowNs, int64_t endNs);
  static void sleep(Thread self, Bell &bell, absl::Span<const WantOf> wants, int64_t deadlineNs, int64_t spinNs);
  void ring(Counter counter, uint64_t value);
  void want(Thread self, Counter counter, uint64_t threshold) {
    waiters_[static_cast<size_t>(self)].wanted[static_cast<size_t>(counter)].store(threshold,
                                                                                   std::memory_order_seq_cst);
  }

  std::array<Value, kCounters> counters_;
  std::array<Waiter, kThreads> waiters_;
  std::array<Bell, kThreads> bells_;
};

} // namespace headrace::host
