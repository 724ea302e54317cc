// SPDX-License-Identifier: Apache-2.0
//
// Three runs of a layer's blocks, each in turn the lowest: blocks at home on the device, a tail, and activation blocks
// that were rebuilt. A block is 2 x 2 heads x 4 tokens x 16 x 4 bytes = 1024 bytes, 256 floats. 5 blocks are at
// home, 2048 bytes apart as of two layers: of them the last ends 4 x 512 + 256 = 2304 floats behind the first.
#include "runtime/core/BindCache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/TinyPlan.h"

namespace headrace::core {
namespace {

using plan::Arg;
using plan::Operand;
using testing::HasSubstr;

constexpr uint64_t kBlock = 1024, kHome = 5, kActs = 2;

struct Runs {
  Runs(uint64_t kvAt, uint64_t tailAt, uint64_t actAt) {
    plan.actBlocks = kActs;
    const uint64_t all = static_cast<uint64_t>(plan.kvBlocks);
    kv = {.arg = Arg::Kv, .bytes = kHome * kBlock, .address = kvAt, .interleaved = true};
    tail = {.arg = Arg::KvTail, .bufferOffset = kHome * kBlock, .bytes = (all - kHome) * kBlock, .address = tailAt};
    act = {.arg = Arg::KvRebuilt, .bytes = kActs * kBlock, .address = actAt};
  }
  absl::StatusOr<BoundCache> bind() const {
    return bindCache(plan, plan.schedules[1], {.kv = &kv, .tail = &tail, .rebuilt = &act});
  }
  // Floats from the lowest run to a block, and to where the blocks end.
  void expect(uint64_t lowest, int64_t first, int64_t behind, int64_t rebuilt, int64_t end) const {
    const absl::StatusOr<BoundCache> bound = bind();
    ASSERT_TRUE(bound.ok()) << bound.status();
    EXPECT_EQ(bound->address, lowest);
    const kernels::KvSegments &s = bound->segments;
    EXPECT_EQ(s.of(0), first);
    EXPECT_EQ(s.of(4), first + 4 * 512);
    EXPECT_EQ(s.of(5), behind);
    EXPECT_EQ(s.of(6), behind + 256);
    EXPECT_EQ(s.of(plan.kvBlocks), rebuilt);
    EXPECT_EQ(s.of(plan.kvBlocks + 1), rebuilt + 256);
    EXPECT_EQ(s.end, end);
  }

  plan::Plan plan = tinyPlan({.spec = tinyLlama(2)});
  Operand kv, tail, act;
};

TEST(BindCache, CountsFromTheLowestOfThreeRuns) {
  const int64_t ofTail = (Runs(0, 0, 0).plan.kvBlocks - 5) * 256;
  // At 8 KiB, 40 KiB and 100 KiB: the second 8,192 floats behind the first, the third 23,552.
  Runs(8192, 40960, 102400).expect(8192, 0, 8192, 23552, 23552 + 2 * 256);
  Runs(8192, 102400, 40960).expect(8192, 0, 23552, 8192, 23552 + ofTail);
  Runs(40960, 8192, 102400).expect(8192, 8192, 0, 23552, 23552 + 2 * 256);
  Runs(40960, 102400, 8192).expect(8192, 8192, 23552, 0, 23552 + ofTail);
  Runs(102400, 8192, 40960).expect(8192, 23552, 0, 8192, 23552 + 2304);
  Runs(102400, 40960, 8192).expect(8192, 23552, 8192, 0, 23552 + 2304);
}

TEST(BindCache, RefusesRunsThatAreNoWholeElementsApart) {
  EXPECT_THAT(std::string(Runs(8192, 40960, 102402).bind().status().message()),
              HasSubstr("is at 102402 and the cache at 8192, expected whole elements of 4 bytes between them"));
  EXPECT_THAT(std::string(Runs(8192, 40962, 102400).bind().status().message()),
              HasSubstr("is at 40962 and kv at 8192, expected whole elements of 4 bytes between them"));
}

} // namespace
} // namespace headrace::core
