// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/Signals.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace headrace::host {
namespace {

constexpr uint64_t kUnreached = 1000;

// Long enough for a waiter to have gone to sleep.
void letSleep() { std::this_thread::sleep_for(std::chrono::nanoseconds(20 * threads::kSpinNs)); }

TEST(Signals, AReachedThresholdIsNotWaitedFor) {
  Signals signals;
  signals.advance(Counter::Compute, 3);
  EXPECT_EQ(signals.wait(Thread::Transfer, {Counter::Compute, 3}), 0);
  EXPECT_EQ(signals.value(Counter::Compute), 3u);
  EXPECT_EQ(signals.value(Counter::H2D), 0u);
}

TEST(Signals, ASleeperWakesAtItsThresholdAndSeesWhatWasWritten) {
  Signals signals;
  int written = 0;
  std::thread waiter([&] {
    signals.wait(Thread::Compute, {Counter::H2D, 2}); // how long it took is the scheduler's affair
    EXPECT_EQ(written, 2);
  });
  for (int i = 1; i <= 2; ++i) {
    letSleep();
    written = i;
    signals.advance(Counter::H2D, static_cast<uint64_t>(i));
  }
  waiter.join();
}

TEST(Signals, AnyOfSeveralCountersWakes) {
  for (Counter counter : {Counter::Compute, Counter::Launched}) {
    Signals signals;
    std::thread waiter([&] {
      const Want wants[] = {{Counter::Compute, 5}, {Counter::Launched, 1}};
      signals.waitAny(Thread::Transfer, wants, threads::kNever);
    });
    letSleep();
    signals.advance(Counter::Compute, 4); // not enough
    signals.advance(counter, 5);
    waiter.join();
    EXPECT_EQ(signals.value(counter), 5u);
  }
}

TEST(Signals, ADeadlineEndsTheWait) {
  Signals signals;
  const Want never{Counter::Compute, 1};
  for (int64_t ns : {int64_t{0}, threads::kSpinNs / 2, 20 * threads::kSpinNs}) {
    const int64_t deadline = threads::monotonicNs() + ns;
    signals.waitAny(Thread::Transfer, {&never, 1}, deadline);
    EXPECT_GE(threads::monotonicNs(), deadline);
  }
  signals.waitAny(Thread::Transfer, {}, threads::monotonicNs() + 20 * threads::kSpinNs); // nothing but the deadline
}

TEST(Signals, AnAnnouncementWakesButIsNotTheThing) {
  Signals signals;
  std::atomic<bool> advanced{false};
  std::thread waiter([&] {
    signals.wait(Thread::Compute, {Counter::H2D, 1});
    EXPECT_TRUE(advanced);
  });
  for (int i = 0; i < 3; ++i) { // early ones too: it goes back to sleep
    letSleep();
    signals.announce(Counter::H2D, 1);
    EXPECT_EQ(signals.value(Counter::H2D), 0u);
  }
  letSleep();
  advanced = true;
  signals.advance(Counter::H2D, 1);
  waiter.join();
}

TEST(Signals, OneBellWakesForTheCountersOfSeveral) {
  Bell bell;
  Signals first({nullptr, nullptr, &bell}), second({nullptr, nullptr, &bell});
  for (Signals *advanced : {&first, &second})
    for (bool spins : {true, false}) {
      const uint64_t next = advanced->value(Counter::Published) + 1;
      std::thread waiter([&] {
        const Signals::WantOf wants[] = {{&first, {Counter::Published, advanced == &first ? next : kUnreached}},
                                         {&second, {Counter::Published, advanced == &second ? next : kUnreached}}};
        Signals::waitAny(Thread::Caller, bell, wants, threads::kNever, spins);
        EXPECT_EQ(advanced->value(Counter::Published), next);
      });
      letSleep();
      advanced->advance(Counter::Published, next);
      waiter.join();
    }
  const Signals::WantOf never{&first, {Counter::Published, kUnreached}};
  const int64_t deadline = threads::monotonicNs() + 20 * threads::kSpinNs;
  Signals::waitAny(Thread::Caller, bell, {&never, 1}, deadline, false);
  EXPECT_GE(threads::monotonicNs(), deadline);
}

TEST(Signals, NoWakeUpIsLost) {
  // Two threads hand a number back and forth, sometimes at once, sometimes after the other has gone to sleep. A lost
  // wake-up would hang.
  Signals signals;
  constexpr uint64_t kRounds = 3000;
  const auto play = [&](Thread self, Counter mine, Counter theirs, uint64_t lead) {
    uint64_t random = lead + 1;
    for (uint64_t i = 1; i <= kRounds; ++i) {
      signals.wait(self, {theirs, i - lead});
      random = random * 6364136223846793005u + 1442695040888963407u;
      const uint64_t delay = (random >> 33) % 8 == 0 ? (random >> 40) % (3 * threads::kSpinNs) : 0;
      for (const int64_t end = threads::monotonicNs() + static_cast<int64_t>(delay); threads::monotonicNs() < end;) {
      }
      signals.advance(mine, i);
    }
  };
  std::thread other([&] { play(Thread::Transfer, Counter::H2D, Counter::Compute, 0); });
  play(Thread::Compute, Counter::Compute, Counter::H2D, 1);
  other.join();
  EXPECT_EQ(signals.value(Counter::H2D), kRounds);
}

} // namespace
} // namespace headrace::host
