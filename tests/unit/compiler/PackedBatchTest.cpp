// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/generators/PackedBatch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "compiler/search/generators/Generators.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/compiler/Requests.h"

namespace headrace::compiler {
namespace {

using testing::HasSubstr;
using testing::StrEq;

// tinyOpt of 64 hidden in F32: a token's keys and values are 512 bytes a layer, so a sequence of 256 has 128 KiB, and
// 256 KiB in two slots. A layer's weights are 202 KiB and two are held.
CompileRequest away(uint64_t room) {
  CompileRequest r = request(tinyOpt(3));
  r.goal.batch = 8;
  r.goal.context = 256;
  r.goal.kvDeviceMemory = 0;
  r.goal.deviceMemory = 2 * model::layoutWeights(r.model).layerBytes(0) + room;
  r.policy.interval = 1;
  return r;
}

TEST(PackedBatch, PackingFillsWhatTheDeviceHasRoomFor) {
  const auto packed = [](const CompileRequest &r) {
    const absl::StatusOr<const Generator *> policy = policyFor(r.policy, r.goal);
    EXPECT_TRUE(policy.ok()) << policy.status();
    const absl::StatusOr<int64_t> count = packedMiniBatches(r, **policy);
    EXPECT_TRUE(count.ok()) << count.status();
    return count.value_or(0);
  };
  const uint64_t sequence = 256 << 10;
  EXPECT_EQ(packed(away(8 * sequence)), 1);
  EXPECT_EQ(packed(away(8 * sequence - 1)), 2); // 7 and 1
  EXPECT_EQ(packed(away(3 * sequence)), 3);
  EXPECT_EQ(packed(away(sequence)), 8);
  // All activations, on the host: 64 KiB in each of two slots, and 128 KiB of keys and values made of them.
  CompileRequest kept = away(2 * sequence);
  kept.policy.actRatio = model::actRatioOf(1, 0);
  EXPECT_EQ(packed(kept), 4);
  CompileRequest held = away(100 * sequence);
  held.goal.kvDeviceMemory.reset();
  EXPECT_EQ(packed(held), 1);
  const CompileRequest small = away(sequence - 1);
  EXPECT_THAT(packedMiniBatches(small, **policyFor(small.policy, small.goal)).status().message(),
              StrEq("one sequence's blocks of a layer take 262144 bytes, beside two layers' weights the device has "
                    "262143"));
}

// 8 sequences of 256. All 2048 tokens at once: 1 mini-batch; 256 tokens of KV are one sequence's: 1; buckets of 4
// sequences: 2.
TEST(PackedBatch, WhatIsStatedMayLeaveFew) {
  const auto compiled = [](const model::Buckets &buckets, std::optional<int64_t> kvTokens) {
    CompileRequest r = away(uint64_t{6} << 20);
    r.buckets = buckets;
    r.goal.kvTokens = kvTokens;
    r.goal.autoMiniBatches = true;
    return compile(r);
  };
  const absl::StatusOr<plan::Plan> all = compiled({.newTokens = {2048}, .sequences = {}, .contexts = {256}}, {});
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->miniBatches, 1);
  EXPECT_THAT(all->reason, HasSubstr("what is stated rules out 2, 4, 8 (buckets.new_tokens = 2048: "));
  const absl::StatusOr<plan::Plan> kv = compiled({.newTokens = {16}, .sequences = {}, .contexts = {256}}, 256);
  ASSERT_TRUE(kv.ok()) << kv.status();
  EXPECT_EQ(kv->miniBatches, 1);
  EXPECT_THAT(kv->reason, HasSubstr("what is stated rules out 2, 4, 8 (goal.kv_tokens = 256: "));
  const absl::StatusOr<plan::Plan> two = compiled({.newTokens = {16}, .sequences = {4}, .contexts = {256}}, {});
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ(two->miniBatches, 2);
  EXPECT_THAT(two->reason, HasSubstr("the batch packs into 1; "));
  EXPECT_EQ(compiled({.newTokens = {4096}, .sequences = {}, .contexts = {256}}, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// The plan is the one that the count stated makes.
TEST(PackedBatch, TheCompilerFindsIt) {
  CompileRequest r = away(uint64_t{3} << 20);
  r.buckets = {.newTokens = {16}, .sequences = {}, .contexts = {256}};
  r.goal.autoMiniBatches = true;
  const absl::StatusOr<plan::Plan> chosen = compile(r);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_THAT(chosen->reason, HasSubstr(". Mini-batches: the batch packs into 1; of those tried (1 "));
  EXPECT_EQ(chosen->goal.miniBatches, chosen->miniBatches);
  r.goal.autoMiniBatches = false;
  uint64_t least = UINT64_MAX, ofChosen = 0;
  for (const int64_t count : {1, 2, 4, 8}) {
    r.goal.miniBatches = count;
    const absl::StatusOr<plan::Plan> plan = compile(r);
    if (!plan.ok())
      continue;
    uint64_t ns = 0;
    for (const plan::Variant &variant : plan->variants)
      if (const plan::Schedule &schedule = plan->schedules[variant.schedule];
          schedule.iterationClass == plan::IterationClass::Decode && schedule.kvBlocks == 0)
        ns = variant.predictedNs;
    if (count == chosen->goal.miniBatches) {
      const std::string kv = ". KV takes "; // behind all else
      EXPECT_EQ(plan->reason.substr(0, plan->reason.find(kv)),
                chosen->reason.substr(0, chosen->reason.find(". Mini-batches: ")));
      EXPECT_EQ(plan->reason.substr(plan->reason.find(kv)), chosen->reason.substr(chosen->reason.find(kv)));
      ofChosen = ns;
    }
    least = std::min(least, ns);
  }
  EXPECT_EQ(ofChosen, least);
  EXPECT_THAT(chosen->reason, HasSubstr(absl::StrCat(" ", chosen->miniBatches, " takes the least")));
}

} // namespace
} // namespace headrace::compiler
