// SPDX-License-Identifier: Apache-2.0
#include "runtime/profile/AnalyzerGrid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/model/ModelSpec.h"
#include "tests/unit/profile/Profiles.h"

namespace headrace::profile {
namespace {

using core::tinyLlama;
using cost::Phase;
using testing::ElementsAre;
using testing::HasSubstr;

int64_t most(const Grid &grid, Phase phase) { return grid.mostTokens[static_cast<size_t>(phase)]; }

Grid gridOf(const GridRequest &request) {
  absl::StatusOr<Grid> grid = chooseGrid(request);
  EXPECT_TRUE(grid.ok()) << grid.status();
  return grid.ok() ? *std::move(grid) : Grid{};
}

TEST(AnalyzerGrid, TakesPowersOfTwoUpToTheModelsPositions) {
  model::ModelSpec model = tinyLlama(2);
  model.maxPositions = 300;
  const Grid grid = gridOf(gridRequest(model, roundDevice()));
  EXPECT_THAT(grid.sequences, ElementsAre(64, 128, 256));
  EXPECT_THAT(grid.batches, ElementsAre(1, 2, 4, 8, 16, 32, 64, 128));
  model.maxPositions = 40;
  EXPECT_THAT(gridOf(gridRequest(model, roundDevice())).sequences, ElementsAre(32));
}

TEST(AnalyzerGrid, HasAtMostAHundredPairs) {
  model::ModelSpec model = tinyLlama(2);
  model::Hardware slow = roundDevice();
  slow.flopsF32 = 1e6; // so that the first pair settles all others and the plan stays small
  for (const int64_t positions : {1 << 17, 1 << 20}) {
    model.maxPositions = positions;
    const Grid grid = gridOf(gridRequest(model, slow));
    EXPECT_EQ(grid.sequences.back(), positions);
    EXPECT_LE(grid.batches.size() * grid.sequences.size(), kMostPairs);
    EXPECT_GT(grid.batches.size() * grid.sequences.size(), kMostPairs - grid.sequences.size());
  }
}

TEST(AnalyzerGrid, GivesNoMemoryToPairsThatAreNeverReached) {
  GridRequest request = gridRequest(tinyLlama(2), roundDevice());
  request.batches = {1, 2, 4, 8};
  request.sequences = {4, 8, 16};
  // A row of a layer is about 0.1 Mflop: at 1 TFLOP/s all pairs compute less than the 126 us that a layer is copied.
  EXPECT_EQ(most(gridOf(request), Phase::Prefill), 128);
  EXPECT_EQ(most(gridOf(request), Phase::Decode), 128);
  // At 1 GFLOP/s four rows take 0.3 ms, eight 0.6 ms: more than 4 copies, so that only pairs not above one of 8 rows
  // might be reached: 1 x 8, 2 x 4 settle all others.
  request.hardware.flopsF32 = 1e9;
  request.plans = tinyPlans(request.hardware);
  const Grid grid = gridOf(request);
  EXPECT_EQ(most(grid, Phase::Prefill), 8);
  EXPECT_FALSE(grid.memoryBound[0]);
  EXPECT_GE(most(grid, Phase::Decode), 64); // a row a sequence: 1 to 8
}

TEST(AnalyzerGrid, LeavesOutWhatDoesNotFit) {
  GridRequest request = gridRequest(tinyLlama(2), roundDevice());
  request.batches = {1, 2, 4, 8};
  request.sequences = {4, 8, 16};
  const Grid roomy = gridOf(request);
  const uint64_t copies = 2 * roomy.copyBytes;
  request.deviceMemory = copies + roomy.plan.arenaBytes;
  EXPECT_FALSE(gridOf(request).memoryBound[1]);
  EXPECT_EQ(most(gridOf(request), Phase::Decode), 128);
  request.deviceMemory -= 1;
  const Grid less = gridOf(request);
  EXPECT_TRUE(less.memoryBound[0]);
  EXPECT_TRUE(less.memoryBound[1]);
  EXPECT_EQ(most(less, Phase::Decode), 64);
  EXPECT_LE(less.plan.arenaBytes + copies, request.deviceMemory);
}

TEST(AnalyzerGrid, RefusesWhatCannotBeMeasured) {
  GridRequest request = gridRequest(tinyLlama(2), roundDevice());
  request.batches = {2};
  request.sequences = {4};
  request.deviceMemory = 1000;
  const absl::Status copies = chooseGrid(request).status();
  EXPECT_EQ(copies.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(copies.message()), HasSubstr("device memory of 1000 bytes: copies of a layer of tiny-llama"));
  request.deviceMemory = 2 * model::layoutWeights(request.model).layerBytes(0) + 1000;
  const absl::Status pair = chooseGrid(request).status();
  EXPECT_EQ(pair.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(pair.message()), HasSubstr("not even batch 2 sequence 4 with 2 of the 2 layers fits"));
  EXPECT_THAT(std::string(pair.message()), HasSubstr("needs ")); // and what the plan's maker says
  request.deviceMemory = uint64_t{1} << 30;
  request.sequences = {256};
  const absl::Status positions = chooseGrid(request).status();
  EXPECT_EQ(positions.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(positions.message(), "sequence 256: expected at most the 128 positions of tiny-llama");
  request.sequences = {4};
  request.plans = [](const PlanSizes &) -> absl::StatusOr<plan::Plan> { return absl::InternalError("broken"); };
  EXPECT_EQ(chooseGrid(request).status(), absl::InternalError("broken"));
}

} // namespace
} // namespace headrace::profile
