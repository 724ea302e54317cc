// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/DirectBytes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/Kernels.h"
#include "tests/support/TinyPlan.h"

namespace headrace::core {
namespace {

// An iteration whose rows have these slots.
struct Meta {
  explicit Meta(const plan::Plan &plan, const std::vector<int32_t> &slots)
      : memory(kernels::metaBytes(plan.metaLayout) / sizeof(uint64_t)) {
    kernels::initMeta(plan.metaLayout, get());
    get()->numTokens = static_cast<int32_t>(slots.size());
    std::copy(slots.begin(), slots.end(), get()->array<int32_t>(get()->kvSlot));
  }
  kernels::IterationMeta *get() { return reinterpret_cast<kernels::IterationMeta *>(memory.data()); }
  std::vector<uint64_t> memory;
};

const plan::Step &stepOf(const plan::Schedule &schedule, kernels::Op op) {
  return *std::find_if(schedule.steps.begin(), schedule.steps.end(),
                       [&](const plan::Step &step) { return step.kind == plan::StepKind::Compute && step.op == op; });
}

// A row of the cache is 2 x 2 heads x 16 floats = 256 bytes, one of the table 64 floats = 256; blocks of 4 tokens.
TEST(DirectBytes, AreOfTheRowsReadAndOfTheRowsWithAHome) {
  const plan::Plan plan = tinyPlan({.spec = tinyLlama(2), .offloadEmbedding = true, .mirroredFrom = 3});
  const plan::Schedule &schedule = plan.schedules[1];
  Meta meta(plan, {0, 11, 12, 13, 40}); // blocks 0 (scratch), 2, 3, 3, 10
  const DirectBytes embed = directBytes(plan, schedule, stepOf(schedule, kernels::Op::Embed));
  EXPECT_EQ(embed.read(*meta.get()), 5u * 256);
  EXPECT_EQ(embed.written(*meta.get()), 0u);
  const DirectBytes append = directBytes(plan, schedule, stepOf(schedule, kernels::Op::RopeAppend));
  EXPECT_EQ(append.read(*meta.get()), 0u);
  EXPECT_EQ(append.firstSlot, 12u);
  EXPECT_EQ(append.written(*meta.get()), 3u * 256);
  EXPECT_FALSE(directBytes(plan, schedule, stepOf(schedule, kernels::Op::Attention)).any());

  const std::vector<DirectBytes> all = directBytes(plan, schedule);
  ASSERT_EQ(all.size(), 1u); // the layers' homes begin at one block
  EXPECT_EQ(all[0].read(*meta.get()), 5u * 256);
  EXPECT_EQ(all[0].written(*meta.get()), 2u * 3 * 256);
}

TEST(DirectBytes, HomesThatBeginAtOtherBlocksAreCountedApart) {
  plan::Plan plan = tinyPlan({.spec = tinyLlama(2), .mirroredFrom = 3});
  for (plan::Operand &operand : plan.schedules[1].operands)
    if (operand.arg == plan::Arg::KvHome && operand.buffer == plan.kvBuffer(1))
      operand.bufferOffset -= 2 * plan.kvBlockBytes(), operand.bytes += 2 * plan.kvBlockBytes(); // from block 1 on
  Meta meta(plan, {0, 11, 12, 13, 40});
  const std::vector<DirectBytes> all = directBytes(plan, plan.schedules[1]);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].written(*meta.get()), 3u * 256);
  EXPECT_EQ(all[1].written(*meta.get()), 4u * 256);
}

// Blocks 3 to 9 are written to the host as well: the tail, from 10 on, is copied back.
TEST(DirectBytes, HomesMayEndBeforeTheTail) {
  plan::Plan plan = tinyPlan({.spec = tinyLlama(2), .mirroredFrom = 3});
  for (plan::Operand &operand : plan.schedules[1].operands)
    if (operand.arg == plan::Arg::KvHome)
      operand.bytes = 7 * plan.kvBlockBytes();
  Meta meta(plan, {0, 11, 12, 39, 40}); // blocks 0 (scratch), 2, 3, 9, 10
  const std::vector<DirectBytes> all = directBytes(plan, plan.schedules[1]);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].firstSlot, 12u);
  EXPECT_EQ(all[0].endSlot, 40u);
  EXPECT_EQ(all[0].written(*meta.get()), 2u * 2 * 256);
}

TEST(DirectBytes, APlanWithoutDirectStepsHasNone) {
  const plan::Plan plan = tinyPlan({.spec = tinyLlama(2), .offloaded = {1}});
  EXPECT_TRUE(directBytes(plan, plan.schedules[0]).empty());
}

} // namespace
} // namespace headrace::core
