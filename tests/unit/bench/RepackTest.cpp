// SPDX-License-Identifier: Apache-2.0
//
// What is lost by leaving blocks where they are, against packing mini-batches anew in each iteration: measured on the
// device of virtual time, so the same everywhere (bench/run/RepackLoss.h). And what a plan's device memory is made of.
#include <gtest/gtest.h>

#include <algorithm>

#include "bench/run/DevicePeak.h"
#include "bench/run/RepackLoss.h"
#include "bench/run/SpreadRows.h"
#include "runtime/model/ModelSpec.h"
#include "tests/support/LongRun.h"

namespace headrace::bench {
namespace {

constexpr uint64_t kLayers = 4, kMiniBatches = 4;

// OPT-6.7B's layers, 4 of its 32: what an iteration loses is lost in each.
plan::Plan hybrid(std::optional<model::ActRatio> share, int64_t batch, int64_t context) {
  const auto opened = model::openModel("opt-6.7b");
  EXPECT_TRUE(opened.ok()) << opened.status();
  model::ModelSpec spec = opened->spec;
  spec.layers = kLayers;
  auto plan = repackPlan(spec, batch, context, share);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

// A prompt of 32 and 17 tokens, alone: a prefill that needs no block, then 16 decodes, the first with 2 blocks of
// earlier tokens, the others with 3. Half of them, rounded up, keep activations: 1 + 15 x 2, and 1 + 15 x 1 do not.
TEST(Repack, BlocksNeededAreThoseOfEarlierTokens) {
  const plan::Plan plan = hybrid(model::ActRatio{1, 2}, 4, 64);
  RepackedDevice device;
  const auto runtime = core::Runtime::load(plan, device, {}, nullptr, {});
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  const auto engine = serve::Engine::create(**runtime, {});
  ASSERT_TRUE(engine.ok()) << engine.status();
  ASSERT_TRUE((*engine)->submit({.prompt = std::vector<int32_t>(32, 1), .maxNewTokens = 17}).ok());
  for (bool more = true; more;) {
    const auto stepped = (*engine)->step();
    ASSERT_TRUE(stepped.ok()) << stepped.status();
    more = *stepped;
  }
  const RepackSums &sums = device.sums();
  EXPECT_EQ(sums.iterations, 17u);
  EXPECT_EQ(sums.neededBytes, kLayers * (31 * plan.actBlockBytes() + 16 * plan.kvBlockBytes()));
  EXPECT_GT(sums.launchedBytes, sums.neededBytes); // with the scratch block, and a 256th of mini-batches that are empty
}

// Two sequences of 2 blocks in mini-batch 0, and a launch that is told that all blocks may be in use.
TEST(Repack, WhatIsBroughtForNothingIsLost) {
  const plan::Plan plan = hybrid(model::ActRatio{1, 2}, 8, 64);
  RepackedDevice device;
  ASSERT_TRUE(device.open(plan, {}).ok());
  const Grouping rows = {{{.before = 32, .rows = 1, .samples = true, .kv = 1, .act = 1},
                          {.before = 32, .rows = 1, .samples = true, .kv = 1, .act = 1}},
                         {},
                         {},
                         {}};
  const SpreadRows spread(plan);
  const auto chosen = spread.choose(rows);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  const auto graph = device.build({.index = chosen->variant});
  ASSERT_TRUE(graph.ok()) << graph.status();
  ASSERT_TRUE(device.upload(**graph).ok());
  ASSERT_TRUE(spread.writeTo(chosen->groups, device.meta()).ok());
  ASSERT_TRUE(device.launch(**graph, {}).ok());
  const RepackSums &sums = device.sums();
  const uint64_t all = static_cast<uint64_t>(plan.kvBlocks) * plan.kvBlockBytes() +
                       static_cast<uint64_t>(plan.actBlocks) * plan.actBlockBytes();
  EXPECT_EQ(sums.launchedBytes, kLayers * kMiniBatches * all);
  EXPECT_EQ(sums.neededBytes, kLayers * 2 * (plan.kvBlockBytes() + plan.actBlockBytes()));
  EXPECT_GT(sums.launchedNs, sums.packedNs);
  EXPECT_LE(sums.leastNs, sums.packedNs);
}

// The most that is lost of the time over all loads, of one seed, or of three with HEADRACE_LONG.
double worstLoss(const model::ActRatio &share) {
  const plan::Plan plan = hybrid(share, 64, 1024);
  double served = 0, worst = 0; // requests/s, where all come at once
  for (const RepackLoad &load : repackLoads())
    for (uint64_t seed = 1; seed <= static_cast<uint64_t>(casesOf(1, 3)); ++seed) {
      const auto run = playRepack(plan, load, served, seed);
      EXPECT_TRUE(run.ok()) << run.status();
      if (!run.ok())
        return 1;
      served = served > 0 ? served : static_cast<double>(load.requests) / run->seconds;
      EXPECT_GT(run->sums.iterations, 300u);
      EXPECT_GE(run->loss(), 0) << load.name << ", seed " << seed;
      worst = std::max(worst, run->loss());
    }
  return worst;
}

// Blocks of keys and values are moved together as requests end.
TEST(Repack, KeysAndValuesAloneLoseAtMost3Percent) { EXPECT_LE(worstLoss({0, 1}), kMostRepackLoss); }

// So are those that keep activations, each among its kind.
TEST(Repack, WithActivationsAtMost3Percent) { EXPECT_LE(worstLoss({13, 16}), kMostRepackLoss); }

// Keys and values alone, activations alone, and both.
TEST(DevicePeak, IsWhatIsResidentAndTheSlots) {
  for (const model::ActRatio share : {model::ActRatio{0, 1}, model::ActRatio{1, 2}, model::ActRatio{1, 1}}) {
    const plan::Plan plan = hybrid(share, 8, 64);
    const DevicePeak peak = devicePeak(plan, 0);
    EXPECT_EQ(peak.total(), plan.arenaBytes) << model::actRatioText(share);
    EXPECT_GT(peak.slots, 0u);
  }
}

} // namespace
} // namespace headrace::bench
