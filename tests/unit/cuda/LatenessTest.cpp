// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/Lateness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace::cuda {
namespace {

constexpr uint64_t kMs = 1'000'000;

// Iterations of 20 and 10 ms, a transition of 5 ms before the second.
TEST(Late, IsThirtyTimesWhatIsInFlight) {
  Lateness lateness;
  EXPECT_EQ(lateness.afterNs(1, false), 0); // nothing was predicted
  lateness.launched(1, 20 * kMs);
  EXPECT_EQ(lateness.afterNs(1, false), 600 * kMs);
  lateness.launchedTransition(5 * kMs);
  lateness.launched(2, 10 * kMs);
  EXPECT_EQ(lateness.afterNs(2, false), 450 * kMs);
  EXPECT_EQ(lateness.afterNs(2, true), 1050 * kMs);
  lateness.launched(3, 1 * kMs); // 30 ms may be the system's
  EXPECT_EQ(lateness.afterNs(3, false), 250 * kMs);
  lateness.launched(4, UINT64_MAX / 2);
  EXPECT_GT(lateness.afterNs(4, false), 0);
}

TEST(Late, IsSaidOnce) {
  Lateness lateness;
  lateness.launched(1, 20 * kMs);
  EXPECT_THAT(lateness.say(1, 600 * kMs),
              testing::HasSubstr("iteration 1 is waited for since 600 ms, more than 30 times"));
  EXPECT_EQ(lateness.afterNs(1, false), 0);
}

} // namespace
} // namespace headrace::cuda
