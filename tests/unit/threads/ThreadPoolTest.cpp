// SPDX-License-Identifier: Apache-2.0
//
// Units are run once each, phase after phase, whoever gets a core and whoever does not.
#include "runtime/threads/ThreadPool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>

namespace headrace::threads {
namespace {

using testing::HasSubstr;

constexpr int64_t kPhases = 3, kUnits = 50;

// Where each unit ran, and how often.
struct Seen {
  std::array<std::array<std::atomic<int>, kUnits>, kPhases> ran{};
  std::atomic<int> byHelpers{0}, early{0};
  void (*inUnit)(Seen &, bool helper, int64_t unit) = nullptr;
};

// Units of a phase are 50, 49, 48; of each it is seen whether all of the phase before have ended.
constexpr kernels::HostKernel kSeen = {
    [](const void *, const kernels::HostTeam &team) {
      kernels::HostWork work;
      work.team = team, work.phases = kPhases, work.ns = 1'000'000;
      return work;
    },
    [](const void *, const kernels::HostWork &, int64_t phase) { return kUnits - phase; },
    [](const void *args, const kernels::HostWork &, int64_t phase, int64_t unit, float *scratch) {
      Seen &seen = *static_cast<Seen *>(const_cast<void *>(args));
      const auto p = static_cast<size_t>(phase);
      for (int64_t before = 0; phase > 0 && before < kUnits - phase + 1; ++before)
        seen.early += seen.ran[p - 1][static_cast<size_t>(before)].load() == 0 ? 1 : 0;
      seen.byHelpers += scratch != nullptr ? 1 : 0;
      if (seen.inUnit != nullptr)
        seen.inUnit(seen, scratch != nullptr, unit);
      ++seen.ran[p][static_cast<size_t>(unit)];
    }};

void expectAllOnce(const Seen &seen) {
  for (int64_t phase = 0; phase < kPhases; ++phase)
    for (int64_t unit = 0; unit < kUnits; ++unit)
      EXPECT_EQ(seen.ran[static_cast<size_t>(phase)][static_cast<size_t>(unit)].load(), unit < kUnits - phase ? 1 : 0)
          << "phase " << phase << " unit " << unit;
  EXPECT_EQ(seen.early.load(), 0);
}

// The cores of this process while it lives.
class OnCores {
public:
  explicit OnCores(int most) {
    CPU_ZERO(&before_);
    EXPECT_EQ(::sched_getaffinity(0, sizeof(before_), &before_), 0);
    cpu_set_t few;
    CPU_ZERO(&few);
    for (int core = 0, taken = 0; core < CPU_SETSIZE && taken < most; ++core)
      if (CPU_ISSET(core, &before_)) {
        CPU_SET(core, &few);
        ++taken;
      }
    EXPECT_EQ(::sched_setaffinity(0, sizeof(few), &few), 0);
  }
  ~OnCores() { ::sched_setaffinity(0, sizeof(before_), &before_); }

private:
  cpu_set_t before_;
};

TEST(ThreadPool, EveryUnitRunsOnceAndPhasesFollowEachOtherOnOneCoreAndOnAll) {
  for (const int cores : {1, CPU_SETSIZE}) {
    const OnCores on(cores);
    for (const int threads : {1, 2, 3, 5, 8}) {
      SCOPED_TRACE(testing::Message() << threads << " threads");
      ThreadPool pool(1, threads);
      EXPECT_EQ(pool.threads(), threads);
      for (int again = 0; again < 2; ++again) { // helpers come and go
        ASSERT_TRUE(pool.attach(0, {.workspaceBytes = 100, .unitNs = 1}).ok());
        for (int i = 0; i < 50; ++i) {
          Seen seen;
          pool.run(0, kSeen, &seen);
          ASSERT_NO_FATAL_FAILURE(expectAllOnce(seen));
          std::atomic<int64_t> sum{0};
          pool.each(0, 101, [&](int64_t unit) { sum += unit; });
          ASSERT_EQ(sum.load(), 5050);
        }
        pool.detach(0);
      }
    }
  }
}

// As if another process had its core: the one unit that a helper has taken is all that is waited for.
TEST(ThreadPool, AHelperWithoutACoreHoldsUpItsOwnUnitAndNoOther) {
  ThreadPool pool(1, 2);
  ASSERT_TRUE(pool.attach(0, {.unitNs = 1}).ok());
  Seen seen;
  seen.inUnit = [](Seen &now, bool helper, int64_t) {
    const auto ended = [&] {
      int count = 0;
      for (const std::atomic<int> &unit : now.ran[0])
        count += unit.load();
      return count;
    };
    if (ended() == kUnits) // a later phase
      return;
    if (!helper) {
      while (now.byHelpers.load() == 0) // it will come
        std::this_thread::yield();
      return;
    }
    while (ended() < kUnits - 1)
      std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(100)); // by now the lane sleeps too
  };
  pool.run(0, kSeen, &seen);
  expectAllOnce(seen);
  EXPECT_GE(seen.byHelpers.load(), 1);
}

TEST(ThreadPool, WhatIsLittleTheLaneDoesAlone) {
  ThreadPool pool(1, 3);
  ASSERT_TRUE(pool.attach(0, {.unitNs = 1'000'000}).ok()); // kSeen says that it takes as long as one unit should
  Seen seen;
  pool.run(0, kSeen, &seen);
  expectAllOnce(seen);
  EXPECT_EQ(seen.byHelpers.load(), 0);
}

// Each has its own scratch, as much as was asked for.
TEST(ThreadPool, ScratchIsTheThreadsOwn) {
  struct Places {
    std::array<std::atomic<float *>, kUnits> of{};
  } places;
  constexpr kernels::HostKernel kernel = {
      [](const void *, const kernels::HostTeam &team) {
        kernels::HostWork work;
        work.team = team, work.units = kUnits, work.ns = 1'000'000;
        return work;
      },
      [](const void *, const kernels::HostWork &work, int64_t) { return work.units; },
      [](const void *args, const kernels::HostWork &, int64_t, int64_t unit, float *scratch) {
        Places &where = *static_cast<Places *>(const_cast<void *>(args));
        where.of[static_cast<size_t>(unit)] = scratch;
        if (scratch == nullptr)
          return;
        for (int i = 0; i < 1000; ++i)
          scratch[i] = static_cast<float>(unit);
        std::this_thread::yield();
        for (int i = 0; i < 1000; ++i)
          EXPECT_EQ(scratch[i], static_cast<float>(unit));
      }};
  ThreadPool pool(1, 4);
  ASSERT_TRUE(pool.attach(0, {.workspaceBytes = 4000, .unitNs = 1}).ok());
  std::set<float *> all;
  for (int i = 0; i < 100; ++i) {
    pool.run(0, kernel, &places);
    for (const std::atomic<float *> &place : places.of)
      all.insert(place.load());
  }
  EXPECT_LE(all.size(), 4u);
}

// Lanes of a pool run at the same time; one that leaves and comes back does not disturb the other.
TEST(ThreadPool, LanesShareItsHelpers) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(2, threads);
    EXPECT_EQ(pool.threads(), std::max(2, threads));
    ASSERT_TRUE(pool.attach(1, {.unitNs = 1}).ok());
    std::thread other([&] {
      for (int i = 0; i < 200; ++i) {
        Seen seen;
        pool.run(1, kSeen, &seen);
        expectAllOnce(seen);
      }
    });
    for (int i = 0; i < 10; ++i) {
      ASSERT_TRUE(pool.attach(0, {.workspaceBytes = 64, .unitNs = 1}).ok());
      std::thread([&] {
        for (int n = 0; n < 20; ++n) {
          Seen seen;
          pool.run(0, kSeen, &seen);
          expectAllOnce(seen);
        }
      }).join();
      pool.detach(0);
    }
    other.join();
  }
}

// Two helpers and one core for them: the first is pinned to it, the second runs where the process may. A
// unit ends once each of the three has one.
TEST(ThreadPool, HelpersArePinnedAsFarAsThereAreCores) {
  const auto own = [] {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    EXPECT_EQ(::sched_getaffinity(0, sizeof(cores), &cores), 0);
    return cores;
  };
  const cpu_set_t all = own();
  int first = 0;
  while (!CPU_ISSET(first, &all))
    ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ThreadPool pool(1, 3);
  ASSERT_TRUE(pool.attach(0, {.cores = {&first, 1}}).ok());
  std::mutex mutex;
  std::map<std::thread::id, cpu_set_t> seen;
  pool.each(0, 3, [&](int64_t) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      seen[std::this_thread::get_id()] = own();
    }
    for (size_t threads = 0; threads < 3; std::this_thread::yield()) {
      const std::lock_guard<std::mutex> lock(mutex);
      threads = seen.size();
    }
  });
  EXPECT_TRUE(CPU_EQUAL(&seen[std::this_thread::get_id()], &all));
  seen.erase(std::this_thread::get_id());
  const int pinned = static_cast<int>(
      std::count_if(seen.begin(), seen.end(), [&](const auto &helper) { return CPU_EQUAL(&helper.second, &one); }));
  EXPECT_EQ(pinned, CPU_EQUAL(&one, &all) ? 2 : 1);
  pool.detach(0);
}

TEST(ThreadPool, ACoreThatIsNotThereIsRefusedByName) {
  ThreadPool pool(1, 3);
  const int cores[] = {0, 1 << 20};
  EXPECT_THAT(std::string(pool.attach(0, {.cores = cores}).message()),
              HasSubstr("pinning the compute thread 3 of 3 to core 1048576"));
  EXPECT_TRUE(pool.attach(0, {}).ok()); // nothing is left of it
}

#ifndef HEADRACE_TSAN
// In a process of its own, which may start no thread (root may always: it becomes nobody).
TEST(ThreadPool, ThreadsThatTheSystemDoesNotGrantAreRefusedByName) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit none{0, 0};
    if ((::geteuid() == 0 && ::setuid(65534) != 0) || ::setrlimit(RLIMIT_NPROC, &none) != 0)
      ::_exit(2);
    ThreadPool pool(1, 3);
    const std::string message(pool.attach(0, {}).message());
    const bool written = ::write(ends[1], message.data(), message.size()) == static_cast<ssize_t>(message.size());
    ::_exit(written ? 0 : 3);
  }
  ::close(ends[1]);
  std::string message(1000, '\0');
  const ssize_t got = ::read(ends[0], message.data(), message.size());
  message.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
  ::close(ends[0]);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
    GTEST_SKIP() << "this process may not become one with fewer rights";
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_THAT(message, HasSubstr("no thread for the compute thread 2 of 3: Resource temporarily"));
  EXPECT_THAT(message, HasSubstr("ulimit -u"));
}
#endif

} // namespace
} // namespace headrace::threads
