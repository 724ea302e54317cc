// SPDX-License-Identifier: Apache-2.0
//
// Rounds of cells as the benchmark of a GPU plays them, planned for one and played in virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "bench/iterations/Player.h"
#include "bench/iterations/Predicted.h"
#include "bench/iterations/RecordVariant.h"
#include "bench/iterations/RoundPlan.h"
#include "bench/iterations/StepTimes.h"
#include "runtime/job/JobFile.h"
#include "runtime/sim/SimDevice.h"
#include "tests/support/SourceDir.h"

namespace headrace::bench {
namespace {

constexpr uint64_t gib(uint64_t n) { return n << 30; }

class PlayedRound : public testing::Test {
protected:
  void make(const std::string &model, uint64_t memory, std::vector<int64_t> of, bool trace = false) {
    const auto opened = model::openModel(sourceDir() + "/examples/models/" + model + ".toml");
    const auto hardware = model::openHardware(sourceDir() + "/examples/hardware/h200.toml");
    ASSERT_TRUE(opened.ok() && hardware.ok());
    runtime.reset(); // before what it refers to
    device.reset();
    intervals = std::move(of);
    cells = fitted(cellsOf(opened->spec), opened->spec, memory, gib(3), 16);
    absl::StatusOr<plan::Plan> made = planRound({opened->spec, *hardware, memory, cells, intervals});
    ASSERT_TRUE(made.ok()) << made.status();
    plan = *std::move(made);
    device = sim::makeSimDevice();
    auto loaded = core::Runtime::load(plan, *device, {.trace = trace}, nullptr, {});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    runtime = *std::move(loaded);
  }

  // One cell of a model within 60 GiB, its cache split by what `request` says.
  void makeSplit(const std::string &model, const Cell &cell, RoundRequest request) {
    const auto opened = model::openModel(sourceDir() + "/examples/models/" + model + ".toml");
    const auto hardware = model::openHardware(sourceDir() + "/examples/hardware/h200.toml");
    ASSERT_TRUE(opened.ok() && hardware.ok());
    request.spec = opened->spec;
    request.hardware = *hardware;
    request.deviceMemory = gib(60);
    request.cells = {cell};
    absl::StatusOr<plan::Plan> made = planRound(request);
    ASSERT_TRUE(made.ok()) << made.status();
    runtime.reset(); // before what it refers to
    device.reset();
    plan = *std::move(made);
    device = sim::makeSimDevice();
    auto loaded = core::Runtime::load(plan, *device, {}, nullptr, {});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    runtime = *std::move(loaded);
  }

  std::vector<int64_t> intervals;
  std::vector<Cell> cells;
  plan::Plan plan;
  std::unique_ptr<core::Device> device;
  std::unique_ptr<core::Runtime> runtime;
};

// Every cell in every placement, back and forth, with what the plan predicts and the bytes of the layers away.
TEST_F(PlayedRound, EveryCellRunsInEveryPlacementOfOnePlan) {
  make("opt-6.7b", gib(120), {0, 4, 2, 1, 8, 16, 3});
  EXPECT_EQ(plan.placements.size(), intervals.size());
  EXPECT_EQ(plan.variants.size(), intervals.size() * cells.size());
  EXPECT_LE(plan.arenaBytes, gib(120));
  const uint64_t layer = model::layoutWeights(plan.model).layerBytes(0);
  for (const Cell &cell : cells)
    for (uint32_t p = 0; p < intervals.size(); ++p) {
      const auto played = play(*runtime, p, cell, {});
      ASSERT_TRUE(played.ok()) << played.status();
      EXPECT_EQ(runtime->placement(), p);
      EXPECT_EQ(plan.placements[p].interval, intervals[p]);
      const plan::Variant &variant = plan.variants[played->variant];
      EXPECT_EQ(variant.newTokens, cell.sequences * cell.tokens) << cell.name;
      EXPECT_EQ(variant.context, cell.context) << cell.name;
      const uint64_t away = intervals[p] == 0 ? 0 : 32 / static_cast<uint64_t>(intervals[p]);
      EXPECT_EQ(played->h2dBytes, away * layer) << cell.name << " " << plan.placements[p].name;
      EXPECT_GE(played->ms.size(), 2u);
      EXPECT_LE(played->ms.size(), 20u);
      const double predicted = static_cast<double>(variant.predictedNs) * 1e-6;
      for (const double ms : played->ms)
        EXPECT_NEAR(ms, predicted, 0.01 * predicted) << cell.name << " " << plan.placements[p].name;
    }
  EXPECT_EQ(runtime->missingVariants(), 0u);
}

// Every round, as it is asked for on a GPU of 80 GB and one of 141: less what graphs and libraries take.
class OnGpu : public PlayedRound, public testing::WithParamInterface<uint64_t> {};
TEST_P(OnGpu, EveryRoundIsPlannedAndPlayed) {
  for (const bench::Round &round : rounds()) {
    SCOPED_TRACE(round.model);
    ASSERT_NO_FATAL_FAILURE(make(round.model, gib(GetParam()), round.intervals));
    EXPECT_LE(plan.arenaBytes, gib(GetParam()));
    for (const Cell &cell : cells)
      for (uint32_t p = 0; p < intervals.size(); ++p) {
        const auto played = play(*runtime, p, cell, {.warmUp = 2, .most = 2});
        ASSERT_TRUE(played.ok()) << cell.name << ": " << played.status();
      }
  }
}
INSTANTIATE_TEST_SUITE_P(Memory, OnGpu, testing::Values(74, 131));

// Two prompts of 2,048 run in the variant for the most sequences that decode: predicted as in a plan for them alone.
TEST_F(PlayedRound, TwoPromptsArePredictedAsTwo) {
  ASSERT_NO_FATAL_FAILURE(make("opt-6.7b", gib(120), {0}));
  const Cell two = cells[5];
  ASSERT_EQ(two.name, "prefill 4096 as 2 x 2048");
  const auto shared = play(*runtime, 0, two, {.warmUp = 0, .most = 2});
  ASSERT_TRUE(shared.ok()) << shared.status();
  EXPECT_GT(plan.variants[shared->variant].sequences, 100);
  const double ms = predictedMs(plan, shared->variant, two);
  ASSERT_NO_FATAL_FAILURE(makeSplit("opt-6.7b", two, {.intervals = {0}}));
  const double alone = static_cast<double>(plan.variants[0].predictedNs) * 1e-6;
  EXPECT_NEAR(ms, alone, 1e-3 * alone);
  EXPECT_NEAR(predictedMs(plan, 0, two), alone, 1e-9 * alone);
}

// Steps of an iteration of 32 layers, eight of them away: in virtual time as long as predicted.
TEST_F(PlayedRound, StepTimesAreThoseOfOneIteration) {
  ASSERT_NO_FATAL_FAILURE(make("opt-6.7b", gib(60), {0, 4}, true));
  const Cell &cell = cells[1]; // prefill of 1,024
  for (const uint32_t placement : {0, 1}) {
    const auto times = stepTimes(*runtime, placement, cell, 3);
    ASSERT_TRUE(times.ok()) << times.status();
    const plan::Variant &variant = plan.variants[times->variant];
    const plan::Schedule &schedule = plan.schedules[variant.schedule];
    EXPECT_EQ(variant.placement, placement);
    ASSERT_EQ(times->steps.size(), schedule.steps.size());
    const double predicted = static_cast<double>(variant.predictedNs) * 1e-6;
    EXPECT_NEAR(times->ms, predicted, 0.01 * predicted);
    const core::StepTime &last = times->steps.back();
    EXPECT_LE(static_cast<double>(last.endNs - last.startNs) * 1e-6, times->ms);
  }
  ASSERT_NO_FATAL_FAILURE(make("opt-6.7b", gib(60), {0}));
  EXPECT_EQ(stepTimes(*runtime, 0, cells[1], 3).status().code(), absl::StatusCode::kFailedPrecondition);
}

// What other parts plan, and the graphs that are made of it.
TEST_F(PlayedRound, GraphsOfRoundsKeepTheRules) {
  for (const int64_t interval : {0, 1, 4}) {
    ASSERT_NO_FATAL_FAILURE(make("llama-3.1-8b", gib(60), {interval}));
    const auto recorded = recordVariant(plan, 0);
    ASSERT_TRUE(recorded.ok()) << recorded.status();
    const auto copies =
        std::count_if(recorded->nodes.begin(), recorded->nodes.end(), [](const cuda::RecordedNode &node) {
          return node.kind == cuda::RecordedKind::Copy && node.copy.toDevice;
        });
    EXPECT_EQ(copies > 0, interval != 0);
  }
}

TEST_F(PlayedRound, TheLargestBatchThatFitsIsPlanned) {
  make("opt-6.7b", gib(70), {0, 8, 4, 2});
  EXPECT_LT(cells.back().sequences, 128);
  EXPECT_GT(cells.back().sequences, 50); // 70 - 12.4 - 3 GiB, 1 GiB a sequence
  EXPECT_TRUE(play(*runtime, 0, cells.back(), {}).ok());
}

// 20 iterations, or as many as the seconds hold, at least two; warm-up takes part of the time.
TEST_F(PlayedRound, ACellTakesSoManyIterationsOrSeconds) {
  make("opt-6.7b", gib(120), {0, 1});
  EXPECT_EQ(play(*runtime, 0, cells[0], {.warmUp = 3, .most = 20, .seconds = 100})->ms.size(), 20u);
  EXPECT_EQ(play(*runtime, 1, cells[0], {.warmUp = 3, .most = 20, .seconds = 0})->ms.size(), 2u);
  // About 0.24 s each: 3 for warm-up, 3 to 6 more in 1.5 s.
  const auto some = play(*runtime, 1, cells[0], {.warmUp = 3, .most = 20, .seconds = 1.5});
  ASSERT_TRUE(some.ok());
  EXPECT_GE(some->ms.size(), 2u);
  EXPECT_LE(some->ms.size(), 6u);
  EXPECT_EQ(some->launchUs.size(), some->ms.size());
}

// Of 128 blocks of 16 tokens half are on the host: 64 x 16 x 16 KiB = 16 MiB a layer, each way, and 8 layers of
// weights.
TEST_F(PlayedRound, CachesThatAreSplitAreCopiedBothWays) {
  const Cell cell{"prefill 2048", 1, 2048, 2048, 1, false};
  ASSERT_NO_FATAL_FAILURE(makeSplit("opt-6.7b", cell, {.intervals = {4}, .kvOnDevice = 0.5}));
  const auto played = play(*runtime, 0, cell, {});
  ASSERT_TRUE(played.ok()) << played.status();
  const uint64_t tails = 32 * (16 << 20), block = 32 * (256 << 10);
  EXPECT_NEAR(static_cast<double>(played->d2hBytes), tails, 2 * block);
  EXPECT_NEAR(static_cast<double>(played->h2dBytes), tails + 8 * model::layoutWeights(plan.model).layerBytes(0),
              2 * block);
  EXPECT_EQ(runtime->kvBlocks().used(), 0);
}

// 2 x 32,768 tokens of 128 KiB are 8 GiB of KV; half of it comes, and of what is appended a block a layer at most goes.
TEST_F(PlayedRound, HalfOfALongContextComesAndOnlyNewRowsGo) {
  const Cell cell{"decode 2 at 32768", 2, 1, 32768, 2, false};
  ASSERT_NO_FATAL_FAILURE(
      makeSplit("llama-3.1-8b", cell, {.intervals = {0}, .kvOnDevice = 0.5, .kvWriteBack = model::KvWriteBack::Auto}));
  const auto played = play(*runtime, 0, cell, {});
  ASSERT_TRUE(played.ok()) << played.status();
  EXPECT_NEAR(static_cast<double>(played->h2dBytes), 4.0 * gib(1), 0.01 * gib(1));
  EXPECT_LT(played->d2hBytes, gib(1) / 16);
}

// Of 32 layers' caches of 256 MiB and the scratch block 6 GiB hold 23: nine at least come in every iteration, and go.
TEST_F(PlayedRound, PieSwapsWholeLayersCaches) {
  const Cell cell{"decode 2 at 32768", 2, 1, 32768, 2, false};
  ASSERT_NO_FATAL_FAILURE(makeSplit("llama-3.1-8b", cell, {.intervals = {0}, .kvOnDevice = 0.75, .policy = "pie"}));
  const auto played = play(*runtime, 0, cell, {});
  ASSERT_TRUE(played.ok()) << played.status();
  EXPECT_GE(played->h2dBytes, 9 * (uint64_t{256} << 20));
  EXPECT_EQ(played->d2hBytes, played->h2dBytes);
}

// 32 sequences and one more at 256: 16 blocks each, held together; else of the larger cell only.
TEST_F(PlayedRound, CellsAtOnceHaveBlocksSideBySide) {
  const auto opened = model::openModel(sourceDir() + "/examples/models/tinyllama-1.1b.toml");
  const auto hardware = model::openHardware(sourceDir() + "/examples/hardware/h200.toml");
  ASSERT_TRUE(opened.ok() && hardware.ok());
  const Cell many{"decode 32 at 256", 32, 1, 256, 32, false}, single{"decode 1 at 256", 1, 1, 256, 1, false};
  for (const bool atOnce : {true, false}) {
    absl::StatusOr<plan::Plan> made = planRound({.spec = opened->spec,
                                                 .hardware = *hardware,
                                                 .deviceMemory = gib(20),
                                                 .cells = {many, single},
                                                 .intervals = {0, 2},
                                                 .cellsAtOnce = atOnce});
    ASSERT_TRUE(made.ok()) << made.status();
    plan = *std::move(made);
    device = sim::makeSimDevice();
    auto loaded = core::Runtime::load(plan, *device, {}, nullptr, {});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const auto first = CellRows::take(**loaded, many), second = CellRows::take(**loaded, single);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ(second.ok(), atOnce) << second.status();
  }
}

TEST_F(PlayedRound, ACellOfWhichNothingFitsIsRefused) {
  Cell none{"decode 128 at 2048", 0, 1, 2048, 128, false};
  const auto refused = planRound({.spec = {}, .cells = {none}, .intervals = {0}});
  EXPECT_THAT(std::string(refused.status().message()), testing::HasSubstr("no sequence of it fits"));
}

TEST(Profile, OfTheGpuAtHand) {
  EXPECT_EQ(profileOf("NVIDIA H100 80GB HBM3"), "h100");
  EXPECT_EQ(profileOf("NVIDIA H200"), "h200");
  EXPECT_EQ(profileOf("NVIDIA B200"), "h200");
}

} // namespace
} // namespace headrace::bench
