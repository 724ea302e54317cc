// SPDX-License-Identifier: Apache-2.0
//
// The runtime with states whose contents are ahead of their homes, and with copies of what a launch has written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "runtime/core/DirtyStates.h"
#include "runtime/core/MetaWriter.h"
#include "tests/support/TinyPlan.h"
#include "tests/unit/core/RecordingDevice.h"

namespace headrace::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

// Decode (variant 0) and prompts (1) are both entered with state 1 and leave state 2, which is dirty; decode is also
// variant 2, entered with state 2, which it leaves as it was. 0 -> 1 takes 40 ns (transition 0), the flush 2 -> 0 takes
// 30 (transition 1). Blocks below 3 of the caches are at home on the device.
plan::Plan dirtyPlan() {
  plan::Plan plan = tinyPlan({.spec = tinyLlama(2), .offloaded = {0, 1}, .wrap = true});
  plan.states.push_back(plan.states[1]);
  plan.states[2].contents[0].dirty = true;
  for (uint32_t s : {0, 1})
    plan.schedules[s].exitState = 2;
  plan.schedules.push_back(plan.schedules[0]);
  plan.schedules.back().entryState = 2;
  plan.variants.push_back(plan.variants[0]);
  plan.variants.back().schedule = static_cast<uint32_t>(plan.schedules.size() - 1);
  plan.transitions[0].predictedNs = 40;
  plan::Schedule flush{.name = "flush", .iterationClass = plan::IterationClass::Transition, .entryState = 2};
  plan.schedules.push_back(flush);
  plan.transitions.push_back({2, 0, static_cast<uint32_t>(plan.schedules.size() - 1), {}, 30});
  for (plan::Extent &extent : plan.placements[0].extents)
    if (plan.buffers[extent.buffer].kind == plan::BufferKind::Kv)
      extent.bytes = 3 * plan.kvBlockBytes(), extent.interleaved = true;
  return plan;
}

TEST(RuntimeDirty, AStateIsLeftByWhatHasItAsItsEntryOrByItsFlush) {
  const plan::Plan plan = dirtyPlan();
  RecordingDevice device;
  const auto runtime = mustLoad(plan, device);
  // State 1 is all that state 2 has, but is not held by it.
  for (uint32_t variant : {0, 2, 2, 1, 2})
    ASSERT_TRUE(runtime->launch(variant).ok());
  EXPECT_THAT(device.launched, ElementsAre("transition 0", "variant 0", "variant 2", "variant 2", "transition 1",
                                           "transition 0", "variant 1", "variant 2"));
}

// A search for wrong numbers stops at the first, and what slots hold then counts as lost; but not where homes would
// stay behind: it runs to its end, and leaves what the schedule leaves.
TEST(RuntimeDirty, ASearchLeavesWhatIsDirty) {
  plan::Plan plan = dirtyPlan();
  RecordingDevice device;
  device.wrong = WrongNumber{};
  const auto runtime = mustLoad(plan, device);
  for (const uint32_t variant : {0, 2}) { // prompts' rows leave the dirty state, which decode carries on
    const auto found = runtime->findWrongNumber(variant);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_TRUE(found->has_value());
  }
  ASSERT_TRUE(runtime->launch(2).ok());
  ASSERT_TRUE(runtime->launch(0).ok());
  EXPECT_THAT(device.launched, ElementsAre("transition 0", "search of variant 0", "search of variant 2", "variant 2",
                                           "transition 1", "transition 0", "variant 0"));
  // Nothing is dirty, and nothing is copied to the host: after a search that found something state 1 is brought anew.
  for (uint32_t s : {0, 1})
    plan.schedules[s].exitState = 1;
  RecordingDevice clean;
  const auto other = mustLoad(plan, clean);
  for (const bool finds : {false, true}) {
    clean.wrong = finds ? std::optional(WrongNumber{}) : std::nullopt;
    ASSERT_TRUE(other->findWrongNumber(0).ok());
    ASSERT_TRUE(other->launch(0).ok());
  }
  EXPECT_THAT(clean.launched, ElementsAre("transition 0", "search of variant 0", "variant 0", "search of variant 0",
                                          "transition 0", "variant 0"));
}

// Homes of keys and values are kept current by copies of them to the host, and are behind what is dirty; copies to the
// device, and of weights, have no part in it.
TEST(RuntimeDirty, WhatWritesBack) {
  plan::Plan plan = dirtyPlan();
  plan::Schedule &schedule = plan.schedules[0];
  EXPECT_TRUE(writesBack(plan, schedule)); // leaves state 2
  schedule.exitState = 1;
  EXPECT_FALSE(writesBack(plan, schedule));
  const auto copy = std::find_if(schedule.steps.begin(), schedule.steps.end(),
                                 [](const plan::Step &step) { return step.kind == plan::StepKind::Copy; });
  ASSERT_NE(copy, schedule.steps.end());
  copy->lane = plan::Lane::D2H; // of weights
  EXPECT_FALSE(writesBack(plan, schedule));
  const auto kv = std::find_if(plan.buffers.begin(), plan.buffers.end(),
                               [](const plan::Buffer &buffer) { return buffer.kind == plan::BufferKind::Kv; });
  schedule.operands[copy->firstOperand].buffer = static_cast<uint32_t>(kv - plan.buffers.begin());
  EXPECT_TRUE(writesBack(plan, schedule));
  copy->lane = plan::Lane::H2D;
  EXPECT_FALSE(writesBack(plan, schedule));
}

TEST(RuntimeDirty, NoStateStandsInForADirtyOne) {
  const plan::Plan plan = dirtyPlan();
  RecordingDevice device;
  const auto runtime = mustLoad(plan, device);
  EXPECT_THAT(std::string(runtime->launch(2).message()), HasSubstr("no transition leads from placement 'layers 2' to "
                                                                   "state 2"));
  EXPECT_TRUE(device.launched.empty());
}

TEST(RuntimeDirty, AFlushIsLaunchedOnceAndOnlyWhereSomethingIsBehind) {
  const plan::Plan plan = dirtyPlan();
  RecordingDevice device;
  const auto runtime = mustLoad(plan, device);
  ASSERT_TRUE(runtime->flushKv().ok());
  EXPECT_TRUE(device.launched.empty());
  ASSERT_TRUE(runtime->launch(0).ok());
  ASSERT_TRUE(runtime->flushKv().ok());
  ASSERT_TRUE(runtime->flushKv().ok());
  runtime->kvWritten();
  ASSERT_TRUE(runtime->launch(0).ok());
  EXPECT_THAT(device.launched, ElementsAre("transition 0", "variant 0", "transition 1", "transition 0", "variant 0"));
}

TEST(RuntimeDirty, WithoutATransitionThereIsNoFlush) {
  plan::Plan plan = dirtyPlan();
  plan.transitions.pop_back();
  RecordingDevice device;
  const auto runtime = mustLoad(plan, device);
  ASSERT_TRUE(runtime->launch(0).ok());
  EXPECT_EQ(runtime->flushKv().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(runtime->flushKv().message()), HasSubstr("no transition of placement 'layers 2'"));
}

// What slots have of others' rows is not lost in silence.
TEST(RuntimeDirty, BlocksThatAreWrittenBeforeAFlushEndEverything) {
  const plan::Plan plan = dirtyPlan();
  RecordingDevice device;
  const auto runtime = mustLoad(plan, device);
  ASSERT_TRUE(runtime->launch(0).ok());
  runtime->kvWritten();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(runtime->launch(0).code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(runtime->launch(0).message()), HasSubstr("flushKv() comes first"));
  }
  EXPECT_EQ(device.launched.size(), 2u);
}

// To a placement with nothing in its slots, from the dirty state of the first: 30 ns for the flush, then 5 for the
// change, as one hop.
TEST(RuntimeDirty, AChangeOfPlacementGoesByTheFlush) {
  plan::Plan plan = dirtyPlan();
  plan.placements.push_back(plan.placements[0]);
  plan.placements[1].name = "other";
  for (plan::Extent &extent : plan.placements[1].extents)
    if (plan.buffers[extent.buffer].kind == plan::BufferKind::Kv)
      extent.bytes = 4 * plan.kvBlockBytes(); // one more to bring
  plan::Schedule change{.name = "change", .placement = 1, .iterationClass = plan::IterationClass::Transition};
  change.fromPlacement = 0;
  plan.schedules.push_back(change);
  plan.transitions.push_back({0, 0, static_cast<uint32_t>(plan.schedules.size() - 1), {}, 5});
  RecordingDevice device;
  const auto runtime = mustLoad(plan, device);
  EXPECT_EQ(runtime->nextHop(1)->predictedNs, 5u);
  ASSERT_TRUE(runtime->launch(0).ok());
  EXPECT_EQ(runtime->nextHop(1)->predictedNs, 35u);
  ASSERT_TRUE(runtime->takeHop(1).ok());
  EXPECT_EQ(runtime->placement(), 1u);
  EXPECT_THAT(device.launched, ElementsAre("transition 0", "variant 0", "transition 1", "transition 2"));
}

// Blocks of 4 tokens; only where a copy asks for it.
TEST(RuntimeDirty, EachLaunchIsToldWhichBlocksItsRowsAreIn) {
  for (const bool asks : {false, true}) {
    plan::Plan plan = tinyPlan({.spec = tinyLlama(2)});
    plan.schedules[0].steps[0].dirtyOnly = asks;
    RecordingDevice device;
    const auto runtime = mustLoad(plan, device);
    kernels::initMeta(plan.metaLayout, device.meta());
    const int32_t tokens[] = {1, 2, 3}, first[] = {7, 5, 2}, second[] = {9};
    const auto launch = [&](std::initializer_list<SequenceRows> sequences) {
      ASSERT_TRUE(
          writeMeta(plan.metaLayout, plan.blockTokens, {sequences.begin(), sequences.size()}, device.meta()).ok());
      ASSERT_TRUE(runtime->launch(1).ok());
    };
    // Position 4 is in the second block of the first table, 5; positions 3 to 5 are in 7 and 5; 0 is in 9.
    launch({{.tokens = {tokens, 1}, .firstPosition = 4, .blocks = first, .sample = true}});
    launch({{.tokens = {tokens, 3}, .firstPosition = 3, .blocks = first, .sample = true}});
    launch({{.tokens = {tokens, 3}, .firstPosition = 3, .blocks = first, .sample = true},
            {.tokens = {tokens, 1}, .blocks = second, .sample = true}});
    ASSERT_TRUE(runtime->launch(0).ok()); // over the same buffer
    for (int32_t row = 0; row < 4; ++row)
      device.meta()->array<int32_t>(device.meta()->kvSlot)[row] = 3; // all in the scratch block
    ASSERT_TRUE(runtime->launch(1).ok());
    constexpr int64_t kAll = InUse{}.writtenEnd;
    if (asks)
      EXPECT_THAT(device.written, ElementsAre(Pair(5, 6), Pair(5, 8), Pair(5, 10), Pair(5, 10), Pair(0, 0)));
    else
      EXPECT_THAT(device.written,
                  ElementsAre(Pair(0, kAll), Pair(0, kAll), Pair(0, kAll), Pair(0, kAll), Pair(0, kAll)));
  }
}

} // namespace
} // namespace headrace::core
