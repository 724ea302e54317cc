// SPDX-License-Identifier: Apache-2.0
//
// Pie: layers' caches that are swapped whole, as asked for: what the plan has, what its reason says, what is refused.
//
// Nine layers of tinyLlama at batch 2 and context 512 have 65 blocks of 4 KiB each: a layer's cache, and a place, is
// 260 KiB, 266,240 ns on a link of 1 GB/s.
#include <algorithm>
#include <set>
#include <string>

#include "compiler/Compile.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr uint64_t kPlace = 65 * 4096;

CompileRequest pie(int64_t layers) {
  CompileRequest r = request(tinyLlama(layers));
  r.goal.context = 512;
  r.buckets = {.newTokens = {1, 2, 8}, .sequences = {1, 2}, .contexts = {256, 512}};
  r.policy.name = "pie";
  return r;
}

uint32_t periodOf(const plan::Plan &plan) {
  uint32_t period = 1;
  for (const plan::Schedule &schedule : plan.schedules)
    period = std::max(period, schedule.period);
  return period;
}

TEST(SwappedCaches, NothingIsSwappedWhereAllFits) {
  const auto plan = compile(pie(9));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(periodOf(*plan), 1u);
  EXPECT_THAT(plan->reason, HasSubstr("everything fits"));
  EXPECT_EQ(plan->policy.name, "pie");
}

// The fastest link there is: a swap takes less than a layer's compute. Of seven places, n - m, one is empty or on its
// way.
CompileRequest fast(CompileRequest r) {
  r.hardware.h2dBandwidth = r.hardware.d2hBandwidth = 1e15;
  r.hardware.duplexBandwidth = 2e15;
  return r;
}

TEST(SwappedCaches, StatedPlacesInACycle) {
  CompileRequest r = fast(pie(9));
  r.policy.kvPlaces = 7;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->placements[0].slots.size(), 7u);
  for (const plan::Slot &slot : plan->placements[0].slots)
    EXPECT_EQ(slot.bytes, kPlace);
  EXPECT_EQ(periodOf(*plan), 7u);
  EXPECT_THAT(
      plan->reason,
      HasSubstr("Caches of 2 of 9 layers are away at a time, 7 places of 260.00 KiB on the device hold the others "
                "and what is under way: expansion 1.29 (printed: (n + 4) / (n - m + 2) = 1.44). A swap takes 1 "
                "layer's compute in and 1 out ("));
  EXPECT_THAT(
      plan->reason,
      HasSubstr("the protocol never waits, 1 x (2 + 2) <= 8; the link alone would do for 9.0 away; with no swap "
                "over an iteration's edge, as planned, compute never waits"));
  for (const plan::Variant &variant : plan->variants)
    EXPECT_EQ(variant.predictedNs, variant.computeAloneNs); // nobody waits
  // As many go out as come in, each whole; what an iteration leaves in places is dirty.
  plan::LinkBytes bytes;
  int64_t dirty = 0;
  for (const plan::Schedule &schedule : plan->schedules) {
    if (schedule.iterationClass != plan::IterationClass::Decode)
      continue;
    bytes.h2d += plan::linkBytes(schedule).h2d;
    bytes.d2h += plan::linkBytes(schedule).d2h;
    for (const plan::Content &content : plan->states[schedule.entryState].contents) {
      EXPECT_EQ(content.bytes, kPlace);
      dirty += content.dirty;
    }
  }
  EXPECT_EQ(bytes.h2d, bytes.d2h);
  EXPECT_EQ(bytes.h2d % kPlace, 0u);
  EXPECT_GT(dirty, 0);
}

// 0.266 ms a swap, each way at once, are 7 layers of 0.040 ms: by the protocol compute waits, the reason says so, and
// four layers take turns in two places instead.
TEST(SwappedCaches, WhereComputeWaitsBothDirectionsAreAtWorkAtOnce) {
  CompileRequest r = pie(9);
  r.policy.kvPlaces = 7;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->reason, HasSubstr("the protocol waits, "));
  EXPECT_THAT(plan->reason, HasSubstr("7 x (2 + 2) > 8; the link alone would do for 1.4 away; as planned 4 layers take "
                                      "turns in 2 places, one goes while another comes, and 5 stay"));
  EXPECT_EQ(plan->limitingResource, "link h2d");
  for (const plan::Variant &variant : plan->variants) {
    const plan::LinkBytes bytes = plan::linkBytes(plan->schedules[variant.schedule]);
    if (bytes.h2d == 0)
      continue;
    EXPECT_EQ(bytes.h2d, 4 * kPlace);
    EXPECT_EQ(bytes.d2h, 4 * kPlace);
    // A nanosecond a byte each way: an iteration takes what either direction does, not both one after the other.
    EXPECT_GE(variant.predictedNs, bytes.h2d);
    EXPECT_LE(static_cast<double>(variant.predictedNs), 1.03 * static_cast<double>(4 * kPlace));
  }
}

// Where both directions have a link of 1 GB/s between them, a swap takes as long in turns as one after the other: three
// layers go through one place, fewer than through two.
TEST(SwappedCaches, WhereDirectionsShareTheLinkFewerMove) {
  CompileRequest r = pie(9);
  r.policy.kvPlaces = 7;
  r.hardware.duplexBandwidth = 1e9;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->reason, HasSubstr("as planned 3 layers take turns in 1 place, one comes once another is home, and "
                                      "6 stay"));
  for (const plan::Variant &variant : plan->variants)
    EXPECT_LE(static_cast<double>(variant.predictedNs), 1.05 * static_cast<double>(6 * kPlace));
}

// The most places that fit, no weights away, whether the device or KV's share of it is what is short.
TEST(SwappedCaches, AsManyPlacesAsFit) {
  const auto all = compile(pie(9));
  ASSERT_TRUE(all.ok()) << all.status();
  CompileRequest r = pie(9);
  r.goal.deviceMemory = all->arenaBytes - 2 * kPlace;
  const auto two = compile(r);
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_LE(two->arenaBytes, *r.goal.deviceMemory);
  EXPECT_EQ(two->placements[0].slots.size(), 7u);
  EXPECT_EQ(plan::offloadedWeights(*two, two->placements[0]).layers, 0);
  CompileRequest share = pie(9);
  share.goal.kvDeviceMemory = 5 * kPlace + kPlace / 2;
  const auto five = compile(share);
  ASSERT_TRUE(five.ok()) << five.status();
  EXPECT_EQ(five->placements[0].slots.size(), 5u);
  share.goal.kvDeviceMemory = 9 * kPlace; // all of it
  const auto nine = compile(share);
  ASSERT_TRUE(nine.ok()) << nine.status();
  EXPECT_EQ(nine->placements[0].slots.size(), 0u);
}

// 39 places of 40 layers come back after 39 iterations at the soonest, by the protocol: in turns at once.
TEST(SwappedCaches, InTurnsWhereTheCycleWouldBeTooLong) {
  CompileRequest r = fast(pie(40));
  r.policy.kvPlaces = 39;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_LE(periodOf(*plan), 4u);
  EXPECT_THAT(plan->reason, HasSubstr("the protocol never waits, 1 x (1 + 2) <= 39; "));
  EXPECT_THAT(plan->reason, HasSubstr("; as planned "));
}

// As few as there may be: one for the layer that runs, one for the next.
TEST(SwappedCaches, TwoPlacesAreEnough) {
  CompileRequest r = fast(pie(9));
  r.goal.kvDeviceMemory = 2 * kPlace;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->placements[0].slots.size(), 2u);
  r.goal.kvDeviceMemory = 9 * kPlace - 1; // a byte short of all of them
  const auto eight = compile(r);
  ASSERT_TRUE(eight.ok()) << eight.status();
  EXPECT_EQ(eight->placements[0].slots.size(), 8u);
}

TEST(SwappedCaches, WeightsAreOffloadedAsStated) {
  CompileRequest r = pie(8);
  r.policy.kvPlaces = 4;
  r.policy.interval = 4;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan::offloadedWeights(*plan, plan->placements[0]).layers, 2);
  EXPECT_GT(plan->placements[0].slots.size(), 4u);
}

// The device has 9 x 33 = 297 blocks for 9 layers of 65: 33 of each with all of them there, and in p places 297 / p: 37
// in 8, 42 in 7, 49, 59, and all 65 in 4.
TEST(SwappedCaches, APlacementForEachExpansion) {
  CompileRequest r = fast(pie(9));
  r.goal.kvDeviceMemory = 9 * 33 * 4096;
  r.goal.expansion = model::kAutoExpansion;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<int64_t> blocks;
  std::vector<size_t> places;
  for (const plan::Placement &placement : plan->placements) {
    blocks.push_back(placement.kvBlocks);
    places.push_back(placement.slots.size());
    for (const plan::Slot &slot : placement.slots)
      EXPECT_EQ(slot.bytes, static_cast<uint64_t>(placement.kvBlocks) * 4096);
    EXPECT_LE(placement.slots.size() * static_cast<size_t>(placement.kvBlocks), 297u);
  }
  EXPECT_THAT(blocks, testing::ElementsAre(33, 37, 42, 49, 59, 65));
  EXPECT_THAT(places, testing::ElementsAre(0u, 8u, 7u, 6u, 5u, 4u));
  EXPECT_EQ(plan->kvBlocks, 65);
  EXPECT_THAT(plan->reason,
              HasSubstr("Expansion is found while the plan runs, among 1.00 (all on the device, 33 blocks "
                        "a layer), 1.12 (8 places, 37), 1.29 (7 places, 42), 1.50 (6 places, 49), 1.80 (5 "
                        "places, 59), 2.25 (4 places, 65)"));
  // A home on the host is a layer's own in all of them.
  for (const plan::Placement &placement : plan->placements)
    for (const plan::Extent &e : placement.extents)
      if (plan->buffers[e.buffer].kind == plan::BufferKind::Kv && e.space == plan::Space::Host) {
        EXPECT_EQ(e.address - e.bufferOffset, plan->placements.back().extents[e.buffer].address);
      }
}

TEST(SwappedCaches, WhatIsRefused) {
  const auto refusal = [](CompileRequest r) { return std::string(compile(r).status().message()); };
  CompileRequest r = pie(9);
  r.goal.kvDeviceMemory = 2 * kPlace - 1;
  EXPECT_EQ(
      refusal(r),
      "goal.kv_device_memory = 532479: expected at least 532480 bytes, two places of a layer's cache, or 0 for no "
      "more than these: policy pie swaps layers whole");
  r = pie(9);
  r.policy.kvPlaces = 9;
  EXPECT_THAT(refusal(r), StartsWith("policy.kv_places = 9: expected at least 2, and less than the 9 layers of "));
  r = pie(9);
  r.policy.kvPlaces = 1;
  EXPECT_THAT(refusal(r), StartsWith("policy.kv_places = 1: expected at least 2"));
  r = pie(9);
  r.policy.startRule = model::StartRule::Paper;
  EXPECT_EQ(refusal(r), "policy.name = \"pie\" beside policy.start_rule = \"paper\": expected start rule eager: caches "
                        "are swapped while other layers compute, under the rule eager");
  r = pie(9);
  r.policy.kvWriteBack = model::KvWriteBack::Dirty;
  EXPECT_THAT(refusal(r),
              StartsWith("policy.name = \"pie\" beside policy.kv_write_back = \"dirty\": expected one of them"));
  r = pie(9);
  r.goal.expansion = model::kAutoExpansion;
  r.goal.kvDeviceMemory = 9 * 20 * 4096; // a sequence takes 32 blocks
  EXPECT_EQ(refusal(r), "goal.kv_device_memory = 737280: expected at least 1216512 bytes where policy pie finds the "
                        "expansion: 9 layers' caches of one sequence of context 512"); // 9 x 33 x 4096
  r = pie(9);
  r.policy.kvPlaces = 6;
  r.goal.kvDeviceMemory = 5 * kPlace;
  EXPECT_THAT(refusal(r), StartsWith("policy.kv_places = 6: expected at most 5, what a kv_device_memory of "));
  r = pie(9);
  r.goal.deviceMemory = 600 * 1024; // not even two places
  const absl::Status least = compile(r).status();
  EXPECT_TRUE(absl::IsResourceExhausted(least)) << least;
  EXPECT_THAT(std::string(least.message()), HasSubstr("What would do: a device memory of "));
  // One or two layers have no fewer places than layers: nothing is swapped, and what would do is said.
  for (const int64_t layers : {1, 2}) {
    r = pie(layers);
    r.goal.deviceMemory = 200 * 1024;
    const absl::Status few = compile(r).status();
    EXPECT_TRUE(absl::IsResourceExhausted(few)) << few;
    EXPECT_THAT(std::string(few.message()), HasSubstr("What would do: a device memory of "));
  }
}

} // namespace
} // namespace headrace::compiler
