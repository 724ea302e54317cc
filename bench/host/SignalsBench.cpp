// SPDX-License-Identifier: Apache-2.0
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <thread>
#include <vector>

#include "bench/host/HostBench.h"
#include "runtime/host/Signals.h"

namespace headrace::host {
namespace {

int64_t threadCpuNs() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

void pinTo(int core) {
  if (core < 0)
    return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  (void)pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

// One thread wakes another that sleeps, every 200 us; `wait` and `wake` get the number of the round, from 1.
template <typename Wait, typename Wake>
std::vector<int64_t> measureWakes(const Settings &settings, Wait wait, Wake wake, int64_t &waiterCpuNs) {
  const int rounds = settings.iterations / 10;
  std::vector<int64_t> latency;
  std::atomic<int64_t> rungNs{0};
  std::thread waiter([&] {
    pinTo(settings.host.computeCore);
    const int64_t before = threadCpuNs();
    for (int i = 1; i <= rounds; ++i) {
      wait(i);
      latency.push_back(threads::monotonicNs() - rungNs.load(std::memory_order_relaxed));
    }
    waiterCpuNs = (threadCpuNs() - before) / rounds;
  });
  std::thread waker([&] {
    pinTo(settings.host.transferCore);
    for (int i = 1; i <= rounds; ++i) {
      for (const int64_t until = threads::monotonicNs() + 200'000; threads::monotonicNs() < until;) {
      }
      rungNs.store(threads::monotonicNs(), std::memory_order_relaxed);
      wake(i);
    }
  });
  waiter.join();
  waker.join();
  return latency;
}

} // namespace

void measureSignals(const Settings &settings) {
  int64_t cpuNs = 0;
  Signals signals;
  report("signal", "advance to return from wait, waiter asleep",
         measureWakes(
             settings,
             [&](int i) {
               signals.wait(Thread::Compute, {Counter::H2D, static_cast<uint64_t>(i)});
             },
             [&](int i) { signals.advance(Counter::H2D, static_cast<uint64_t>(i)); }, cpuNs));
  report("signal_cpu", "  processor time of such a wait", {cpuNs});
  std::atomic<uint32_t> word{0};
  const auto futex = [&](int op, uint32_t value) {
    syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), op, value, nullptr, nullptr, 0);
  };
  report("bare_futex", "a bare futex, waiter asleep: this machine's floor",
         measureWakes(
             settings,
             [&](int i) {
               while (word.load() < static_cast<uint32_t>(i))
                 futex(FUTEX_WAIT_PRIVATE, static_cast<uint32_t>(i) - 1);
             },
             [&](int) {
               word.fetch_add(1);
               futex(FUTEX_WAKE_PRIVATE, 1);
             },
             cpuNs));
}

} // namespace headrace::host
