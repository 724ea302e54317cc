// SPDX-License-Identifier: Apache-2.0
//
// The figures that are printed about a plan, with the arithmetic beside them. Of tinyLlama (32 wide, 2 heads of 16, 1
// key head, 48 inside the MLP, 96 tokens, F32; vectors padded to 16 elements, units to 256 bytes):
//
//   qkv    norm 32 x 4 -> 256, matrix 64 x 32 x 4 = 8192                        8448
//   out    32 x 32 x 4                                                          4096
//   up     norm 256, gate and up 96 x 32 x 4 = 12288                           12544
//   down   32 x 48 x 4                                                          6144
//   layer                                                                      31232
//   embedding 96 x 32 x 4 = 12288;  head norm 256 + 12288 = 12544
#include "runtime/plan/value/Plan.h"

#include <gtest/gtest.h>

#include "runtime/model/ModelSpec.h"
#include "runtime/plan/proof/PlanVerifier.h"
#include "tests/unit/plan/MakePlan.h"

namespace headrace::plan {
namespace {

constexpr uint64_t kLayer = 31232, kEmbedding = 12288, kHead = 12544;
constexpr uint64_t kQkv = 8448, kOut = 4096;
// 1 + 2 x 1 blocks of 16 tokens, keys and values of one head of 16, 4 bytes: 3 x 2 x 16 x 16 x 4.
constexpr uint64_t kKv = 6144;

Plan made(std::vector<int64_t> layers, int cutUnits, uint64_t cutBytes, int64_t of) {
  test::PlacementOptions placement;
  placement.layers = std::move(layers);
  placement.limits.front().cutUnits = cutUnits;
  placement.limits.front().cutBytes = cutBytes;
  return test::makePlan({test::tinyLlama(of), {placement}});
}

// Of 4 tokens, 2 sequences: x and h 4 x 32 x 4 = 512 each; qkv 4 x 64 x 4 = 1024; attn 512; up 4 x 96 x 4 = 1536; act
// 4 x 48 x 4 = 768; rows 2 x 32 x 4 = 256, twice; logits 2 x 96 x 4 = 768.
constexpr uint64_t kX = 512, kH = 512, kUpRows = 1536;

TEST(Plan, FindsItsBuffers) {
  const Plan plan = made({}, 0, 0, 3);
  // embedding, 3 x 4 units, head; then caches and io
  EXPECT_EQ(plan.kvBuffer(0), 14u);
  EXPECT_EQ(plan.kvBuffer(2), 16u);
  EXPECT_EQ(plan.ioBuffer(plan::Io::Meta), 17u);
  EXPECT_EQ(plan.ioBuffer(plan::Io::Sampled), 18u);
  EXPECT_EQ(plan.ioBuffer(plan::Io::Output), 19u);
  EXPECT_EQ(plan.buffers[plan.ioBuffer(plan::Io::Output)].name, "output");
  EXPECT_EQ(plan.ioBuffer(plan::Io::History), 20u);
  EXPECT_EQ(plan.buffer(plan.schedules[0], 16).name, "kv.2");
  EXPECT_EQ(plan.buffer(plan.schedules[0], 21).name, "x");
}

TEST(Plan, CountsDeviceBytesByUse) {
  const Plan plan = made({0, 1, 3}, 2, 1024, 4);
  const DeviceBytes bytes = deviceBytes(plan, 0);
  EXPECT_EQ(bytes.weights, kEmbedding + kLayer + kHead); // layer 2 is resident
  EXPECT_EQ(bytes.slots, 3 * kLayer);                    // three layers do not go round in two
  EXPECT_EQ(bytes.kv, 4 * kKv);
  EXPECT_EQ(bytes.io, plan.buffers[plan.ioBuffer(plan::Io::Meta)].bytes + 256 + 256 + 256);
  // up and act lie where qkv and attn lay: 512 + 512 + max(1024 + 512, 1536 + 768) + 2 x 256 + 768
  EXPECT_EQ(bytes.activations, 4608u);
  EXPECT_EQ(bytes.workspace, plan.schedules[0].locals.back().buffer.bytes);
  EXPECT_EQ(bytes.peak, plan.arenaBytes);
  EXPECT_EQ(plan.arenaBytes, bytes.weights + bytes.slots + bytes.kv + bytes.io + bytes.activations + bytes.workspace);
}

TEST(Plan, CountsLinkBytesByDirection) {
  // An iteration moves every offloaded byte once, wherever it is cut.
  EXPECT_EQ(linkBytes(made({0, 1, 3}, 2, 1024, 4).schedules[0]).h2d, 3 * kLayer);
  EXPECT_EQ(linkBytes(made({0, 1, 3}, 0, 0, 4).schedules[0]).h2d, 3 * kLayer);
  Schedule schedule = made({1}, 0, 0, 2).schedules[0];
  for (Step &step : schedule.steps)
    if (step.lane == Lane::H2D) {
      step.lane = Lane::D2H;
      break;
    }
  EXPECT_EQ(linkBytes(schedule).d2h, kQkv);
  EXPECT_EQ(linkBytes(schedule).h2d, kLayer - kQkv);
}

TEST(Plan, CountsDirectReadsAsHostToDevice) {
  test::PlacementOptions placement;
  placement.offloadEmbedding = true;
  const Plan plan = test::makePlan({test::tinyLlama(1), {placement}});
  EXPECT_EQ(linkBytes(plan.schedules[0]).h2d, plan.schedules[0].steps[0].linkBytes);
  EXPECT_GT(linkBytes(plan.schedules[0]).h2d, 0u);
}

TEST(Plan, CountsWeightsByHome) {
  const HomeBytes homes = weightBytesByHome(made({0, 1, 3}, 2, 1024, 4), 0);
  EXPECT_EQ(homes.device, kEmbedding + kLayer + kHead);
  EXPECT_EQ(homes.host, 3 * kLayer);
}

TEST(Plan, NamesLanesAndArgs) {
  EXPECT_STREQ(laneName(Lane::Compute), "compute");
  EXPECT_STREQ(laneName(Lane::H2D), "h2d");
  EXPECT_STREQ(laneName(Lane::Cpu), "cpu");
  EXPECT_STREQ(argName(Arg::Source), "source");
  EXPECT_STREQ(argName(Arg::NormWeights), "norm");
  EXPECT_STREQ(argName(Arg::Workspace), "workspace");
}

// --- largestLiveBytes ------------------------------------------------------------------------------------------------

uint64_t homesOf(const Plan &plan) {
  const DeviceBytes bytes = deviceBytes(plan, 0);
  return bytes.weights + bytes.kv + bytes.io;
}

// The widest compute step: `up` reads h and writes its rows, with x waiting and a workspace. (Activate has the rows and
// what it makes of them, 768 instead of 512, but no workspace.)
uint64_t widestStep(const Plan &plan) {
  const uint64_t workspace = plan.schedules[0].locals.back().buffer.bytes;
  return kX + kH + kUpRows + workspace;
}

TEST(LargestLiveBytes, OfAResidentModelAreHomesAndTheWidestStep) {
  const Plan plan = made({}, 0, 0, 2);
  EXPECT_EQ(largestLiveBytes(plan, 0), homesOf(plan) + widestStep(plan));
}

TEST(LargestLiveBytes, HoldAllOfALayerThatMayBeCopiedEarly) {
  // One layer, one slot, nothing on entry: the copies may run from the start, beside layer 0.
  const Plan plan = made({1}, 0, 0, 2);
  EXPECT_EQ(largestLiveBytes(plan, 0), homesOf(plan) + kLayer + widestStep(plan));
}

TEST(LargestLiveBytes, DropWhatHasBeenReadBeforeTheNextComes) {
  // Paper rule, layers 1 and 3 in one slot: the second's copies wait for the first's last step, so that never more than
  // one layer is live.
  test::PlacementOptions placement;
  placement.layers = {1, 3};
  placement.rule = model::StartRule::Paper;
  const Plan plan = test::makePlan({test::tinyLlama(4), {placement}});
  EXPECT_EQ(largestLiveBytes(plan, 0), homesOf(plan) + kLayer + widestStep(plan));
}

TEST(LargestLiveBytes, CountTwoLayersWhereTwoMayBeThere) {
  // Eager, layers 0 and 1 in two slots: both may be there until layer 0's qkv has been read, by a step that reads h and
  // writes 4 x 64 x 4 bytes.
  const Plan plan = made({0, 1}, 0, 0, 3);
  const uint64_t workspace = plan.schedules[0].locals.back().buffer.bytes;
  EXPECT_EQ(largestLiveBytes(plan, 0), homesOf(plan) + 2 * kLayer + kX + kH + 1024 + workspace);
}

TEST(LargestLiveBytes, AreWithinTheArenaAndCloseToIt) {
  for (const test::NamedOptions &named : test::variedPlans()) {
    const Plan plan = test::makePlan(named.options);
    for (uint32_t i = 0; i < plan.schedules.size(); ++i)
      EXPECT_LE(largestLiveBytes(plan, i), deviceBytes(plan, i).peak) << named.name;
  }
}

TEST(LargestLiveBytes, OfATransitionAreHomesAndWhatItBrings) {
  const Plan plan = made({1, 3}, 2, 256, 4);
  ASSERT_EQ(plan.schedules[1].iterationClass, IterationClass::Transition);
  EXPECT_EQ(largestLiveBytes(plan, 1), homesOf(plan) + kQkv + kOut + 256);
}

} // namespace
} // namespace headrace::plan
