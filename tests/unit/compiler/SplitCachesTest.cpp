// SPDX-License-Identifier: Apache-2.0
//
// A KV cache that the device does not hold is split by itself: as many blocks stay as there is room for, objectives are
// kept, and what is refused says what would do.
//
// Six layers of tinyLlama at batch 2 and context 512, blocks of 16 tokens: 65 blocks, the scratch block included, each
// of 2 x 32 rows x 16 tokens x 4 bytes = 4 KiB a layer, 24 KiB in all, 1560 KiB of KV; weights take about 900 KiB.
#include <algorithm>
#include <string>
#include <vector>

#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/CacheMap.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kLayers = 6, kBlocks = 65;
constexpr uint64_t kKiB = 1024, kBlock = 24 * kKiB; // of all layers

CompileRequest longContexts() {
  CompileRequest r = request(tinyLlama(kLayers));
  r.goal.context = 512;
  r.buckets = {.newTokens = {1, 2, 8}, .sequences = {2}, .contexts = {512}};
  r.policy.name = "interval";
  return r;
}

uint64_t arenaOfAll() {
  const auto plan = compile(longContexts());
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? plan->arenaBytes : 0;
}

// What so many blocks of all layers take, and two slots for the others of a layer.
uint64_t besideSlots(int64_t resident) {
  return static_cast<uint64_t>(resident) * kBlock + 2 * static_cast<uint64_t>(kBlocks - resident) * kBlock / kLayers;
}

int64_t residentOf(const plan::Plan &plan, size_t placement = 0) {
  return plan::CacheMap(plan, plan.placements[placement]).resident();
}

// The number that follows `text` in a message, its decimals left out.
uint64_t numberAfter(const absl::Status &status, const std::string &text) {
  const std::string message(status.message());
  const size_t at = message.find(text);
  EXPECT_NE(at, std::string::npos) << message;
  return at == std::string::npos ? 0 : std::stoull(message.substr(at + text.size()));
}

TEST(SplitCaches, AsManyBlocksStayAsThereIsRoomFor) {
  CompileRequest r = longContexts();
  const uint64_t all = arenaOfAll();
  for (const uint64_t less : {34 * kBlock, 38 * kBlock, 42 * kBlock}) {
    r.goal.kvDeviceMemory.reset();
    r.goal.deviceMemory = all - less;
    const auto plan = compile(r);
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_EQ(plan->placements.size(), 1u);
    EXPECT_LE(plan->arenaBytes, all - less);
    const int64_t resident = residentOf(*plan);
    EXPECT_LT(resident, kBlocks);
    EXPECT_EQ(plan::weightBytesByHome(*plan, 0).host, 0u); // which are brought in every iteration
    EXPECT_THAT(plan->reason, HasSubstr("KV blocks: " + std::to_string(resident) + " of 65 on the device"));
    // The same by hand; and one block more has no room.
    r.policy.none = true;
    r.goal.kvDeviceMemory = besideSlots(resident);
    const auto stated = compile(r);
    ASSERT_TRUE(stated.ok()) << stated.status();
    EXPECT_EQ(residentOf(*stated), resident);
    EXPECT_EQ(stated->arenaBytes, plan->arenaBytes);
    r.goal.kvDeviceMemory = besideSlots(resident + 1);
    EXPECT_EQ(compile(r).status().code(), absl::StatusCode::kResourceExhausted) << resident;
    r.policy.none = false;
  }
}

TEST(SplitCaches, WeightsGoWhereEvenOneBlockHasNoRoomBesideThem) {
  CompileRequest r = longContexts();
  r.goal.deviceMemory = 4096;
  const auto refused = compile(r);
  ASSERT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  const uint64_t least = numberAfter(refused.status(), "the minimum is ");
  r.goal.deviceMemory = least;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(residentOf(*plan), 1);
  EXPECT_GT(plan::weightBytesByHome(*plan, 0).host, 0u);
  r.goal.deviceMemory = least - 1;
  EXPECT_EQ(compile(r).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(SplitCaches, WhatWeightsLeaveBecomesBlocksFromPlacementToPlacement) {
  CompileRequest r = longContexts();
  r.goal.deviceMemory = arenaOfAll() - 40 * kBlock;
  r.policy.placements = 4;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->placements.size(), 4u);
  for (size_t p = 1; p < 4; ++p) {
    EXPECT_GT(residentOf(*plan, p), residentOf(*plan, p - 1));
    EXPECT_GT(plan::weightBytesByHome(*plan, static_cast<uint32_t>(p)).host,
              plan::weightBytesByHome(*plan, static_cast<uint32_t>(p - 1)).host);
  }
  EXPECT_FALSE(plan->transitions.empty());
  EXPECT_LE(plan->arenaBytes, *r.goal.deviceMemory);
}

// Fewer than there are: the first, the last, and those in between at even distances.
TEST(SplitCaches, PlacementsAreSpreadOverTheList) {
  CompileRequest r = longContexts();
  r.goal.deviceMemory = arenaOfAll() - 40 * kBlock;
  const auto names = [&](int64_t placements) {
    r.policy.placements = placements;
    const auto plan = compile(r);
    EXPECT_TRUE(plan.ok()) << plan.status();
    std::vector<std::string> names;
    for (size_t p = 0; plan.ok() && p < plan->placements.size(); ++p)
      names.push_back(plan->placements[p].name);
    return names;
  };
  const std::vector<std::string> five = names(5);
  ASSERT_EQ(five.size(), 5u);
  EXPECT_THAT(names(3), ::testing::ElementsAre(five[0], five[2], five[4]));
  EXPECT_THAT(names(2), ::testing::ElementsAre(five[0], five[4]));
  EXPECT_NE(five[1], five[2]);
}

TEST(SplitCaches, SeveralPlacementsKeepTheBlocksThatWereStated) {
  CompileRequest r = longContexts();
  r.goal.kvDeviceMemory = besideSlots(20);
  r.policy.placements = 3;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->placements.size(), 3u);
  for (size_t p = 0; p < 3; ++p)
    EXPECT_EQ(residentOf(*plan, p), 20);
}

TEST(SplitCaches, AnObjectiveIsKeptWithAllBlocksInUseOrRefusedWithTheLeastThatHolds) {
  CompileRequest r = longContexts();
  r.goal.deviceMemory = arenaOfAll() - 40 * kBlock;
  r.policy.name = "headrace";
  r.goal.instances = model::Instances::Apart;
  r.goal.tpot = std::chrono::nanoseconds(1'000);
  const auto refused = compile(r);
  ASSERT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("With all KV blocks on the device: "));
  const std::string message(refused.status().message()), before = "the minimum TPOT is ";
  const double us = std::stod(message.substr(message.find(before) + before.size())) * 1e3; // printed in ms
  for (const bool enough : {true, false}) {
    r.goal.tpot = std::chrono::nanoseconds(static_cast<int64_t>(us * 1e3 + 0.5) - (enough ? 0 : 1));
    const auto plan = compile(r);
    ASSERT_EQ(plan.ok(), enough) << plan.status();
    if (!enough)
      continue;
    for (const plan::BucketChoice &choice : plan->choices)
      if (choice.sloNs > 0) {
        EXPECT_LE(plan->variants[choice.variant].predictedNs, choice.sloNs);
        EXPECT_EQ(plan->schedules[plan->variants[choice.variant].schedule].kvBlocks, 0); // whatever is in use
      }
  }
}

// A head of 32768 x 64 x 4 bytes takes 0.8 ms. A layer's cache takes 0.27 ms, 65 blocks of 4 KiB at 1 GB/s: in two
// slots the link would be idle once two are ahead.
TEST(SplitCaches, TailsHaveAsManySlotsAsTheLinkNeedsToBeBusy) {
  model::ModelSpec spec = tinyLlama(4);
  spec.vocab = 16384;
  CompileRequest r = request(spec);
  r.goal.context = 256;
  r.buckets = {.newTokens = {1, 2, 8}, .sequences = {2}, .contexts = {256}};
  r.goal.kvDeviceMemory = 0;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GT(plan->placements[0].slots.size(), 2u);
  const plan::Variant *decode = nullptr;
  for (const plan::Variant &variant : plan->variants)
    if (plan->schedules[variant.schedule].iterationClass == plan::IterationClass::Decode &&
        plan->schedules[variant.schedule].kvBlocks == 0)
      decode = &variant;
  ASSERT_NE(decode, nullptr);
  EXPECT_LE(decode->predictedNs, std::max(decode->computeAloneNs, decode->linkAloneNs) * 101 / 100);
  // In two: by hand.
  Candidate two;
  two.name = "two";
  two.residency.wrap.around = true;
  two.residency.setKvAway(4, 0);
  r.goal.kvDeviceMemory.reset();
  r.placements = {two};
  const auto fewer = compile(r);
  ASSERT_TRUE(fewer.ok()) << fewer.status();
  EXPECT_EQ(fewer->placements[0].slots.size(), 2u);
  EXPECT_GT(fewer->variants[static_cast<size_t>(decode - plan->variants.data())].predictedNs,
            decode->predictedNs + decode->predictedNs / 100);
}

TEST(SplitCaches, WhatIsStatedStays) {
  CompileRequest r = longContexts();
  r.goal.deviceMemory = arenaOfAll() - 2 * kBlock;
  r.policy.none = true;
  EXPECT_EQ(compile(r).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(SplitCaches, TheHostsShareBinds) {
  CompileRequest r = longContexts();
  r.goal.deviceMemory = arenaOfAll() - 40 * kBlock;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const uint64_t away = plan::kvBytesByHome(*plan, 0).host;
  r.goal.kvHostMemory = away;
  EXPECT_TRUE(compile(r).ok());
  // A byte less: what weights leave becomes blocks instead.
  r.goal.kvHostMemory = away - 1;
  const auto fewer = compile(r);
  ASSERT_TRUE(fewer.ok()) << fewer.status();
  EXPECT_GT(residentOf(*fewer), residentOf(*plan));
  EXPECT_GT(plan::weightBytesByHome(*fewer, 0).host, 0u);
  r.goal.kvHostMemory = 0;
  r.goal.deviceMemory = kKiB * 1560;
  const auto none = compile(r);
  ASSERT_EQ(none.status().code(), absl::StatusCode::kResourceExhausted);
  r.goal.deviceMemory = numberAfter(none.status(), "the minimum is ");
  EXPECT_TRUE(compile(r).ok());
  // Stated, with too little for the rest.
  r.goal.deviceMemory.reset();
  r.goal.kvDeviceMemory = besideSlots(5);
  r.goal.kvHostMemory = 60 * kBlock - 1;
  const auto stated = compile(r);
  ASSERT_EQ(stated.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(numberAfter(stated.status(), "the minimum is "), 60 * kBlock);
  r.goal.kvHostMemory = 60 * kBlock;
  EXPECT_TRUE(compile(r).ok());
}

TEST(SplitCaches, PoliciesThatKeepCachesOnTheDeviceSaySo) {
  CompileRequest r = longContexts();
  r.goal.kvDeviceMemory = 5 * kBlock;
  for (const char *name : {"none", "deepspeed", "accelerate", "vllm-prefetch", "flexgen", "select-n"}) {
    r.policy.name = name;
    r.goal.tpot = std::chrono::nanoseconds(1'000'000'000);
    const auto refused = compile(r);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(refused.status().message()),
                HasSubstr(std::string(" beside policy.name = \"") + name +
                          "\": expected policy interval, pie, hybridserve, flexgen-throughput, lm-offload, "
                          "zero-inference, headrace or "
                          "joint: the policy moves weights alone"));
  }
  r.policy.name = "interval";
  r.policy.startRule = model::StartRule::Paper;
  EXPECT_EQ(compile(r).status().code(), absl::StatusCode::kInvalidArgument);
  r.policy.startRule = model::StartRule::Eager;
  r.goal.kvDeviceMemory = besideSlots(1) - 1; // 6 blocks of 4 KiB, and twice 64
  EXPECT_THAT(std::string(compile(r).status().message()),
              HasSubstr("goal.kv_device_memory = 548863: expected at least 548864 bytes, one block of all caches and "
                        "slots for the others (6 layers), or 0 for no block"));
}

} // namespace
} // namespace headrace::compiler
