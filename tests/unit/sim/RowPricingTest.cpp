// SPDX-License-Identifier: Apache-2.0
//
// core::Pricing::Rows on the device of virtual time. By hand: one flop a nanosecond and memory for nothing, a model of
// width 1, so that pairs cost 4 ns, rows of qkv's product 6 ns, a sampled row 100 ns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/sim/RowPrices.h"
#include "runtime/sim/SimDevice.h"
#include "runtime/sim/SimGroup.h"
#include "tests/unit/sim/SmallPlan.h"

namespace headrace::sim {
namespace {

using testing::HasSubstr;

// Rows and context of a sequence.
struct Sequence {
  int32_t rows = 1, context = 1;
};

class RowPricingTest : public testing::Test {
protected:
  // A variant of 8 tokens, 4 sequences and context 10: one op, publish, and, if asked for, a tail copy of 40 ns.
  void plan(kernels::Op op, uint64_t ns, bool copies = false) {
    plan_ = smallPlan();
    plan_.model->layers = plan_.model->hidden = plan_.model->heads = plan_.model->kvHeads = plan_.model->headDim = 1;
    plan_.hardware.kind = model::DeviceKind::Host;
    plan_.hardware.flopsF32 = 1e9;
    plan_.hardware.memoryBandwidth = 1e30;
    plan_.hardware.flopsEfficiency = plan_.hardware.memoryEfficiency = plan_.hardware.linkEfficiency = 1;
    plan_.blockTokens = 1;
    plan::Schedule &schedule = plan_.schedules[0];
    plan::Variant &variant = plan_.variants[0];
    variant.context = 10;
    schedule.steps[0].op = op;
    variant.durationsNs[0] = ns;
    if (!copies) {
      schedule.steps.pop_back();
      schedule.edges.clear();
      variant.durationsNs.pop_back();
    }
  }
  void open(core::DeviceOptions options = {.pricing = core::Pricing::Rows}) {
    ASSERT_TRUE(device_->open(plan_, options).ok());
    auto graph = device_->build({});
    ASSERT_TRUE(graph.ok()) << graph.status();
    ASSERT_TRUE(device_->upload(**graph).ok());
    graph_ = *std::move(graph);
    iterations_ = 0;
  }
  void launch(std::vector<Sequence> sequences, int32_t sampled = 0) {
    kernels::IterationMeta *meta = device_->meta();
    meta->numTokens = 0;
    meta->numSequences = static_cast<int32_t>(sequences.size());
    meta->numSampled = sampled;
    for (size_t s = 0; s < sequences.size(); ++s) {
      meta->array<int32_t>(meta->queryStart)[s] = meta->numTokens;
      meta->array<int32_t>(meta->contextLength)[s] = sequences[s].context;
      meta->numTokens += sequences[s].rows;
    }
    meta->array<int32_t>(meta->queryStart)[sequences.size()] = meta->numTokens;
    const absl::Status status = device_->launch(*graph_);
    ASSERT_TRUE(status.ok()) << status;
    ++iterations_;
  }
  // Of one more iteration, from the end of the one before.
  struct Times {
    int64_t visibleNs, endNs;
  };
  Times timesOf(std::vector<Sequence> sequences, int32_t sampled = 0) {
    EXPECT_TRUE(device_->drain().ok());
    const int64_t start = device_->nowNs();
    launch(std::move(sequences), sampled);
    EXPECT_TRUE(device_->drain().ok());
    return {device_->tokensVisibleNs(iterations_) - start, device_->nowNs() - start};
  }
  int64_t nsOf(std::vector<Sequence> sequences, int32_t sampled = 0) {
    return timesOf(std::move(sequences), sampled).endNs;
  }

  plan::Plan plan_;
  std::unique_ptr<core::Device> device_ = makeSimDevice();
  std::unique_ptr<core::Graph> graph_;
  uint64_t iterations_ = 0;
};

// The bucket: two rows of each of four sequences at context 10, 4 x (9 + 10) = 76 pairs.
TEST_F(RowPricingTest, AttentionTakesItsSequencesContexts) {
  plan(kernels::Op::Attention, 304);
  open();
  EXPECT_EQ(nsOf({{2, 10}, {2, 10}, {2, 10}, {2, 10}}), 304);
  EXPECT_EQ(nsOf({{1, 3}, {1, 7}}), 40);
  EXPECT_EQ(nsOf({{3, 5}}), 4 * (3 + 4 + 5)); // the last three rows of a context of 5
  EXPECT_EQ(nsOf({{1, 1}}), 4);
  EXPECT_EQ(nsOf({{1, 3}, {1, 7}}), 40);
}

TEST_F(RowPricingTest, AMeasuredPriceIsScaledByTheShape) {
  plan(kernels::Op::Attention, 608); // twice the roofline
  open();
  EXPECT_EQ(nsOf({{1, 3}, {1, 7}}), 80);
}

TEST_F(RowPricingTest, TheLaunchIsNotScaled) {
  plan(kernels::Op::Attention, 404);
  plan_.hardware.launchOverhead = 100e-9;
  open();
  EXPECT_EQ(nsOf({{1, 3}, {1, 7}}), 140);
}

TEST_F(RowPricingTest, ByTheBucketNothingDependsOnWhatRuns) {
  plan(kernels::Op::Attention, 304);
  open({});
  EXPECT_EQ(nsOf({{1, 3}, {1, 7}}), 304);
  EXPECT_EQ(nsOf({{1, 1}}), 304);
}

TEST_F(RowPricingTest, MatrixProductsTakeTheRowsOnTheHostAndTheBucketOnCuda) {
  plan(kernels::Op::Linear, 48); // qkv, 1 x 3: 6 flops a row
  open();
  EXPECT_EQ(nsOf({{1, 10}, {2, 4}}), 18);
  plan_.hardware.kind = model::DeviceKind::Cuda;
  open();
  EXPECT_EQ(nsOf({{1, 10}, {2, 4}}), 48);
  plan_.schedules[0].steps[0].op = kernels::Op::Norm; // 4 flops a row; kernels read how many there are
  plan_.variants[0].durationsNs[0] = 32;
  open();
  EXPECT_EQ(nsOf({{1, 10}, {2, 4}}), 12);
}

TEST_F(RowPricingTest, TheHeadTakesTheSampledRows) {
  plan(kernels::Op::Sample, 400); // of a vocabulary of 100
  open();
  EXPECT_EQ(nsOf({{1, 10}, {3, 4}}, 2), 200);
  EXPECT_EQ(nsOf({{1, 10}, {3, 4}}, 0), 0);
}

// A link of 1 byte/ns. A row is 2 x 1 x 4 = 8 bytes; slots 5 to 9, or 5 alone, have a home.
TEST_F(RowPricingTest, AnAppendToTheHostTakesTheRowsThatHaveAHome) {
  plan(kernels::Op::RopeAppend, 64);
  plan::Schedule &schedule = plan_.schedules[0];
  schedule.steps[0].direct = true;
  schedule.steps[0].linkBytes = 64;
  schedule.steps[0].operandCount = 1;
  plan::Operand home{.space = plan::Space::Host, .access = plan::Access::ReadWrite, .arg = plan::Arg::KvHome};
  home.bufferOffset = home.bytes = 40;
  schedule.operands = {home};
  const auto slots = [&] { // of three rows: 4, 5, 6
    kernels::IterationMeta *meta = device_->meta();
    for (int32_t row = 0; row < 3; ++row)
      meta->array<int32_t>(meta->kvSlot)[row] = 4 + row;
  };
  open();
  slots();
  EXPECT_EQ(nsOf({{3, 10}}), 16);
  open({.linkBandwidth = 0.5e9, .pricing = core::Pricing::Rows});
  slots();
  EXPECT_EQ(nsOf({{3, 10}}), 32);
  schedule.operands[0].bytes = 8;
  open();
  slots();
  EXPECT_EQ(nsOf({{3, 10}}), 8);
}

TEST_F(RowPricingTest, CopiesAreBesideAsTheyAre) {
  plan(kernels::Op::Attention, 304, /*copies=*/true);
  open();
  for (int twice = 0; twice < 2; ++twice) {
    const Times times = timesOf({{1, 3}, {1, 7}});
    EXPECT_EQ(times.visibleNs, 40);
    EXPECT_EQ(times.endNs, 80);
  }
  EXPECT_EQ(nsOf({{1, 1}}), 44);
  EXPECT_EQ(nsOf({{1, 3}, {1, 7}}), 80);
}

TEST_F(RowPricingTest, WhatFollowsTheTokensIsPricedToo) {
  plan(kernels::Op::Attention, 304);
  plan::Schedule &schedule = plan_.schedules[0];
  schedule.steps.push_back(schedule.steps[0]); // behind the publish
  plan_.variants[0].durationsNs.push_back(304);
  open();
  const Times times = timesOf({{1, 3}, {1, 7}});
  EXPECT_EQ(times.visibleNs, 40);
  EXPECT_EQ(times.endNs, 80);
}

TEST_F(RowPricingTest, TwoInFlightEachTakeWhatIsTheirs) {
  plan(kernels::Op::Attention, 304);
  open();
  launch({{1, 3}, {1, 7}});
  launch({{1, 1}});
  ASSERT_TRUE(device_->awaitTokens(2).ok());
  EXPECT_EQ(device_->tokensVisibleNs(1), 40);
  EXPECT_EQ(device_->tokensVisibleNs(2), 44);
}

TEST_F(RowPricingTest, StepsAreTracedAsTheyWere) {
  plan(kernels::Op::Attention, 304);
  open({.trace = true, .pricing = core::Pricing::Rows});
  EXPECT_EQ(nsOf({{1, 3}, {1, 7}}), 40);
  const auto times = device_->lastTimes();
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[0].startNs, 0);
  EXPECT_EQ(times[0].endNs, 40);
}

// Rows beyond a context, which no caller has, count as those that it holds: 3 pairs, and 1 + 2.
TEST_F(RowPricingTest, RowsOfTheIterationBuffer) {
  plan(kernels::Op::Attention, 304);
  open();
  launch({{1, 3}, {4, 2}}, 1);
  launch({{1, 1}});
  const cost::Rows rows = rowsOf(*device_->meta(), {});
  EXPECT_EQ(rows.tokens, 5u);
  EXPECT_EQ(rows.sampled, 1u);
  EXPECT_EQ(rows.contexts, 5u);
  EXPECT_EQ(rows.pairs, 3u + 3);
  EXPECT_EQ(rows.homeRows, 0u);
}

TEST_F(RowPricingTest, AGroupRefusesItByName) {
  plan(kernels::Op::Attention, 304);
  const auto group = *makeSimGroup(1, {1e9});
  const absl::Status status = group->device(0).open(plan_, {.pricing = core::Pricing::Rows});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("a device of a group takes what its plan says of the bucket"));
  EXPECT_TRUE(group->device(0).open(plan_, {}).ok());
}

} // namespace
} // namespace headrace::sim
