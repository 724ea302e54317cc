// SPDX-License-Identifier: Apache-2.0
#include "runtime/profile/AnalyzerLines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "compiler/Compile.h"
#include "kernels/Kernels.h"
#include "runtime/host/HostDevice.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/profile/Profiles.h"

namespace headrace::profile {
namespace {

using cost::LineKind;
using cost::Timing;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kBlock = 4;

absl::StatusOr<plan::Plan> compiled(const PlanSizes &sizes) {
  compiler::CompileRequest request;
  request.model = sizes.model;
  request.modelHash = "hash";
  request.hardware = roundDevice();
  request.goal.deviceMemory = sizes.deviceMemory;
  request.goal.batch = sizes.batch;
  request.goal.context = sizes.context;
  request.goal.kvTokens = sizes.kvTokens;
  request.goal.blockTokens = kBlock;
  request.policy.none = true;
  if (sizes.activations)
    request.policy.actRatio = model::ActRatio{1, 1};
  request.buckets = {.newTokens = {sizes.newTokens}, .sequences = {sizes.batch}, .contexts = {sizes.context}};
  return compiler::compile(request);
}

GridRequest requestOf(const model::ModelSpec &model, std::vector<int64_t> batches, std::vector<int64_t> sequences) {
  GridRequest request = gridRequest(model, roundDevice());
  request.batches = std::move(batches);
  request.sequences = std::move(sequences);
  request.plans = compiled;
  return request;
}

absl::StatusOr<LinesPlan> linesOf(const GridRequest &request, double seconds = 2) {
  const absl::StatusOr<Grid> grid = chooseGrid(request);
  EXPECT_TRUE(grid.ok()) << grid.status();
  return chooseLinesPlan(request, *grid, seconds);
}

// (sequences, context) of each count.
std::vector<std::pair<int64_t, int64_t>> pairsOf(const std::vector<cost::CellKey> &cells) {
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (const cost::CellKey &cell : cells)
    pairs.emplace_back(cell.batch, cell.sequence);
  return pairs;
}

TEST(AnalyzerLines, CountsAreEvenlySpreadInWholeBlocks) {
  using Pair = std::pair<int64_t, int64_t>;
  // 14 blocks of 16 tokens: 2, 4, ... 14 of one sequence.
  EXPECT_THAT(pairsOf(lineCells(1, 224, 16)), ElementsAre(Pair{1, 32}, Pair{1, 64}, Pair{1, 96}, Pair{1, 128},
                                                          Pair{1, 160}, Pair{1, 192}, Pair{1, 224}));
  // 2 x 7 blocks: as many sequences as there are.
  EXPECT_THAT(pairsOf(lineCells(2, 112, 16)),
              ElementsAre(Pair{2, 16}, Pair{2, 32}, Pair{2, 48}, Pair{2, 64}, Pair{2, 80}, Pair{2, 96}, Pair{2, 112}));
  // 2 x 4 blocks, sevenths of 8: 1.1, 2.3, 3.4, 4.6, 5.7, 6.9, 8. There are 1, 2, 3, 4 and twice 1, 2, 3, 4.
  EXPECT_THAT(pairsOf(lineCells(2, 64, 16)),
              ElementsAre(Pair{1, 16}, Pair{2, 16}, Pair{1, 48}, Pair{2, 32}, Pair{2, 48}, Pair{2, 64}));
  // Sequences shorter than a block: a block each, and no context beyond the sequence.
  EXPECT_THAT(pairsOf(lineCells(7, 8, 16)),
              ElementsAre(Pair{1, 8}, Pair{2, 8}, Pair{3, 8}, Pair{4, 8}, Pair{5, 8}, Pair{6, 8}, Pair{7, 8}));
}

TEST(AnalyzerLines, FindsInVirtualTimeWhatTheCostModelPutIn) {
  const model::ModelSpec model = core::tinyOpt(3);
  const absl::StatusOr<LinesPlan> lines = linesOf(requestOf(model, {1, 2, 4}, {16, 32, 64}));
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_EQ(lines->cells.size(), 7u);
  EXPECT_EQ(lines->plan.model->layers, 3);
  const auto device = sim::makeSimDevice();
  const absl::StatusOr<cost::MeasuredLines> measured = measureLines(*lines, *device, {});
  ASSERT_TRUE(measured.ok()) << measured.status();
  const cost::Roofline truth(model, roundDevice(), model::DType::F32, model::DType::F32);
  for (const auto &sample : measured->at(LineKind::RebuildKv)) {
    const uint64_t ns =
        truth.computeNs({kernels::Op::RebuildKv, model::UnitRole::Qkv}, {.actRows = sample.tokens}, false);
    EXPECT_EQ(sample.timing, (Timing{ns, ns, ns})) << sample.tokens;
  }
  EXPECT_EQ(measured->at(LineKind::RebuildKv).back().tokens, 256); // 4 x 64, whole blocks
  // 64 columns of activations and 2 x 64 of keys and values, F32, at 1 GB/s behind 1 us.
  for (const auto &[kind, bytes] : {std::pair(LineKind::LoadKv, 512), std::pair(LineKind::LoadAct, 256)})
    for (const auto &sample : measured->at(kind)) {
      const auto ns = static_cast<uint64_t>(1000 + bytes * sample.tokens);
      EXPECT_EQ(sample.timing, (Timing{ns, ns, ns})) << sample.tokens;
    }
  // 2 x 64 x 128 flops a token at 1 TFLOP/s: 16.384 ns, to whole nanoseconds.
  const auto line = cost::fitLine(measured->at(LineKind::RebuildKv), "");
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_NEAR(line->slopeNsPerToken, 16.384, 0.02);
  EXPECT_NEAR(line->interceptNs, 1000, 2);
  EXPECT_GT(line->r2, 0.9999);
  // And a record holds them.
  const GridRequest request = requestOf(model, {1, 2, 4}, {16, 32, 64});
  cost::Record record = emptyRecord(chooseGrid(request).value(), identityOf(model), model);
  record.lines = *measured;
  EXPECT_TRUE(cost::checkRecord(record, "r").ok()) << cost::checkRecord(record, "r");
}

// Slower by far than they are, where they would take more than 3 us: no line.
int64_t bent(int64_t ns) { return ns > 3000 ? 50 * ns : ns; }

TEST(AnalyzerLines, WhatWasDisturbedIsMeasuredAgain) {
  const absl::StatusOr<LinesPlan> lines = linesOf(requestOf(core::tinyOpt(3), {1, 2, 4}, {16, 32, 64}));
  ASSERT_TRUE(lines.ok()) << lines.status();
  const auto clean = sim::makeSimDevice();
  const absl::StatusOr<cost::MeasuredLines> expected = measureLines(*lines, *clean, {});
  ASSERT_TRUE(expected.ok()) << expected.status();
  // A look is five turns of seven counts, each launched eight times, the first of them cold: 280 launches.
  ChangedTimes device([](int32_t, int64_t ns, uint64_t launch) { return launch < 280 ? bent(ns) : ns; });
  const absl::StatusOr<cost::MeasuredLines> measured = measureLines(*lines, device, {});
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_EQ(measured->samples, expected->samples);
  EXPECT_EQ(device.counters().launches, clean->counters().launches + 280);
}

TEST(AnalyzerLines, WhatIsNoLineInThreeLooksIsRefused) {
  const absl::StatusOr<LinesPlan> lines = linesOf(requestOf(core::tinyOpt(3), {1, 2, 4}, {16, 32, 64}));
  ASSERT_TRUE(lines.ok()) << lines.status();
  uint64_t launches = 0;
  ChangedTimes device([&](int32_t, int64_t ns, uint64_t launch) {
    launches = launch + 1;
    return bent(ns);
  });
  const absl::StatusOr<cost::MeasuredLines> measured = measureLines(*lines, device, {});
  EXPECT_EQ(measured.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(measured.status().message()),
              testing::AllOf(HasSubstr("regression.rebuild_kv: R^2 = 0."),
                             HasSubstr(" of 4 samples: expected at least 0.98, times that are linear in tokens; after "
                                       "3 looks of 5 turns")));
  EXPECT_EQ(launches, 3u * 280);
}

TEST(AnalyzerLines, RunsFewerLayersThenFewerTokensForAsLongAsAsked) {
  const GridRequest request = requestOf(core::tinyOpt(6), {1, 2, 4}, {16, 32, 64});
  const auto sizes = [&](double seconds) {
    const absl::StatusOr<LinesPlan> lines = linesOf(request, seconds);
    EXPECT_TRUE(lines.ok()) << lines.status();
    return std::pair(lines->plan.model->layers, lines->cells.back().batch * lines->cells.back().sequence);
  };
  // 256 tokens are 1000 + 16.384 x 256 = 5194 ns of a layer.
  EXPECT_EQ(sizes(1), std::pair(int64_t{6}, int64_t{256}));
  EXPECT_EQ(sizes(22e-6), std::pair(int64_t{4}, int64_t{256})); // 4 x 5.2 us, not 5
  EXPECT_EQ(sizes(10e-6), std::pair(int64_t{3}, int64_t{128})); // not even 2; of 128 tokens 3 x 3.1 us
  EXPECT_EQ(sizes(1e-9), std::pair(int64_t{2}, int64_t{32}));   // of 16 tokens there are but 4 counts
}

TEST(AnalyzerLines, SaysWhatTheGridHasNoRoomFor) {
  const absl::StatusOr<LinesPlan> few = linesOf(requestOf(core::tinyOpt(3), {1}, {16}));
  EXPECT_EQ(few.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(few.status().message()),
      HasSubstr("--activations: up to 1 sequences of up to 16 tokens make 4 counts of whole blocks of 4 tokens: "
                "expected at least 5"));
  GridRequest request = requestOf(core::tinyOpt(3), {1, 2, 4}, {16, 32, 64});
  const absl::StatusOr<Grid> grid = chooseGrid(request);
  ASSERT_TRUE(grid.ok()) << grid.status();
  request.plans = [](const PlanSizes &sizes) -> absl::StatusOr<plan::Plan> {
    return sizes.kvTokens > 100 ? absl::ResourceExhaustedError("too much") : compiled(sizes);
  };
  const absl::StatusOr<LinesPlan> fits = chooseLinesPlan(request, *grid, 2);
  ASSERT_TRUE(fits.ok()) << fits.status();
  EXPECT_EQ(fits->cells.back().batch * fits->cells.back().sequence, 64);
  request.plans = [](const PlanSizes &) -> absl::StatusOr<plan::Plan> { return absl::ResourceExhaustedError("none"); };
  EXPECT_EQ(chooseLinesPlan(request, *grid, 2).status(), absl::ResourceExhaustedError("none"));
}

// Real data in wall time, on whatever machine this is: lines, or a refusal that says which is none.
TEST(AnalyzerLines, MeasuresRealDataOnTheHost) {
  const model::ModelSpec model = core::tinyOpt(2);
  const absl::StatusOr<LinesPlan> lines = linesOf(requestOf(model, {1, 2, 4}, {16, 32, 64}));
  ASSERT_TRUE(lines.ok()) << lines.status();
  const auto device = host::makeHostDevice();
  const auto weights = model::syntheticWeights(1);
  AnalyzerOptions options;
  options.secondsPerPair = 0.05;
  EXPECT_EQ(measureLines(*lines, *device, options).status().code(), absl::StatusCode::kInvalidArgument); // no weights
  options.weights = weights.get();
  const absl::StatusOr<cost::MeasuredLines> measured = measureLines(*lines, *device, options);
  if (!measured.ok()) {
    EXPECT_EQ(measured.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(measured.status().message()),
                testing::AllOf(testing::StartsWith("regression."), HasSubstr("expected at least 0")));
    return;
  }
  for (const auto &samples : measured->samples) {
    ASSERT_EQ(samples.size(), 7u);
    EXPECT_TRUE(cost::fitLine(samples, "").ok());
    for (const auto &sample : samples)
      EXPECT_GT(sample.timing.medianNs, 0u);
  }
}

} // namespace
} // namespace headrace::profile
