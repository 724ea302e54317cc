// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/SleepUntil.h"

#include <chrono>
#include <thread>

namespace headrace::core {

void sleepUntil(int64_t ns) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::microseconds kSpin{80};
  const Clock::time_point end{std::chrono::duration_cast<Clock::duration>(std::chrono::nanoseconds(ns))};
  if (end - Clock::now() > kSpin)
    std::this_thread::sleep_until(end - kSpin);
  while (Clock::now() < end)
    ;
}

} // namespace headrace::core
