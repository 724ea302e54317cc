// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/lm_offload/PoolThreads.h"

#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace::cost {
namespace {

using testing::HasSubstr;

// 1.02 x 100 = 102: 8 threads are within it, and with no more than 4 cores 4 are the best.
TEST(PoolThreads, AreTheFewestWithinTwoPercentOfTheBest) {
  const std::vector<ThreadTime> record = {{1, 400}, {2, 210}, {4, 130}, {8, 102}, {16, 100}, {32, 101}};
  EXPECT_EQ(*poolThreads(record, 64), 8);
  EXPECT_EQ(*poolThreads(record, 8), 8);
  EXPECT_EQ(*poolThreads(record, 7), 4);
  EXPECT_EQ(*poolThreads(record, 1), 1);
  EXPECT_EQ(*poolThreads(std::vector<ThreadTime>{{1, 400}, {8, 102.1}, {16, 100}}, 64), 16);
  EXPECT_EQ(*poolThreads(std::vector<ThreadTime>{{1, 100}, {2, 100}}, 2), 1); // more do not help
}

TEST(PoolThreads, AreAllCoresWithoutARecord) {
  EXPECT_EQ(*poolThreads({}, 12), 12);
  EXPECT_EQ(*poolThreads(std::vector<ThreadTime>{{16, 100}}, 12), 12); // of more than there are
}

TEST(PoolThreads, RefuseWhatIsNoRecord) {
  const auto refused = [](const std::vector<ThreadTime> &record, int64_t cores) {
    return std::string(poolThreads(record, cores).status().message());
  };
  EXPECT_EQ(refused({}, 0), "0 cores: expected at least 1");
  EXPECT_EQ(refused({{0, 100}}, 4), "a record of 0 threads behind 0: expected ascending numbers");
  EXPECT_EQ(refused({{2, 100}, {2, 90}}, 4), "a record of 2 threads behind 2: expected ascending numbers");
  EXPECT_EQ(refused({{2, 0}}, 4), "0 ns of 2 threads: expected a positive time");
  EXPECT_THAT(refused({{2, std::numeric_limits<double>::quiet_NaN()}}, 4), HasSubstr("expected a positive time"));
}

} // namespace
} // namespace headrace::cost
