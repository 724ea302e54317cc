// SPDX-License-Identifier: Apache-2.0
//
// Residual streams that leave the device between layers: what schedules copy, what memory they take, what is refused.
//
// Six layers of tinyLlama (hidden 64), batch 8 in mini-batches: decode iterations of 8 / M rows, mixed ones of up to
// 64, so that a stream has a home of 64 x 64 x 4 = 16 KiB; links of 1 GB/s.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "compiler/lower/LowerModel.h"
#include "kernels/Kernels.h"
#include "passes/algorithms/Residency.h"
#include "runtime/core/InUse.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/sim/TimedSchedule.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kLayers = 6, kBatch = 8, kMostRows = 64;

CompileRequest asked(int64_t miniBatches, model::Residuals residuals = model::Residuals::Host) {
  CompileRequest r = request(tinyLlama(kLayers));
  r.goal.batch = kBatch;
  r.goal.miniBatches = miniBatches;
  r.goal.context = 64;
  r.policy.name = "interval";
  r.policy.interval = 2;
  r.policy.residuals = residuals;
  const int64_t ofOne = kBatch / miniBatches;
  r.buckets = {.newTokens = {ofOne, kMostRows}, .sequences = {ofOne}, .contexts = {64}};
  return r;
}

plan::Plan compiled(const CompileRequest &r) {
  auto plan = compile(r);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : plan::Plan();
}

struct Copies {
  std::map<uint32_t, int> home, back; // by mini-batch
};
Copies copiesOf(const plan::Plan &plan, const plan::Schedule &schedule) {
  Copies out;
  for (const plan::Step &step : schedule.steps) {
    if (step.kind != plan::StepKind::Copy)
      continue;
    const uint32_t buffer = schedule.operands[step.firstOperand].buffer;
    if (plan.buffer(schedule, buffer).kind != plan::BufferKind::Residual)
      continue;
    EXPECT_EQ(plan.buffers[buffer].index, step.miniBatch);
    EXPECT_TRUE(step.resizable);
    ++(plan::toHost(step.lane) ? out.home : out.back)[step.miniBatch];
  }
  return out;
}

TEST(Residuals, LeaveBehindEveryLayerButTheLast) {
  for (const int64_t miniBatches : {1, 2, 4}) {
    const plan::Plan plan = compiled(asked(miniBatches));
    ASSERT_TRUE(plan.residualsLeave());
    const auto bytes = static_cast<uint64_t>(kMostRows * plan.model->hidden) * sizeof(float);
    for (uint32_t i = 0; i < plan.miniBatches; ++i) {
      const auto at = std::find_if(plan.buffers.begin(), plan.buffers.end(), [&](const plan::Buffer &b) {
        return b.name == plan::residualName(i, plan.miniBatches);
      });
      ASSERT_NE(at, plan.buffers.end());
      EXPECT_EQ(at->bytes, bytes);
    }
    for (const plan::Schedule &schedule : plan.schedules) {
      if (schedule.iterationClass == plan::IterationClass::Transition)
        continue;
      const Copies copies = copiesOf(plan, schedule);
      for (uint32_t i = 0; i < plan.miniBatches; ++i) {
        EXPECT_EQ(copies.home.at(i), kLayers - 1) << schedule.name;
        EXPECT_EQ(copies.back.at(i), kLayers - 1) << schedule.name;
      }
    }
    // Three layers are away, whatever the number of mini-batches; so much more is pinned.
    EXPECT_EQ(plan.hostBytes, compiled(asked(miniBatches, model::Residuals::Device)).hostBytes +
                                  static_cast<uint64_t>(miniBatches) * bytes);
  }
}

// A copy of the bucket's rows, not of all that there is room for: decode of 2 rows takes the fewest 256ths that hold
// them, four of which are one row of the 64; at 1 GB/s 512 ns of 256 bytes a row.
TEST(Residuals, CopiesArePricedByTheirRows) {
  const plan::Plan plan = compiled(asked(4));
  for (const plan::Variant &variant : plan.variants) {
    const plan::Schedule &schedule = plan.schedules[variant.schedule];
    for (size_t i = 0; i < schedule.steps.size(); ++i) {
      const plan::Step &step = schedule.steps[i];
      if (step.kind != plan::StepKind::Copy ||
          plan.buffer(schedule, schedule.operands[step.firstOperand].buffer).kind != plan::BufferKind::Residual)
        continue;
      const auto rowBytes = static_cast<uint64_t>(plan.model->hidden) * sizeof(float);
      EXPECT_EQ(step.linkBytes, static_cast<uint64_t>(kMostRows) * rowBytes);
      const double ns = static_cast<double>(variant.newTokens) * static_cast<double>(rowBytes) /
                        (plan.hardware.h2dBandwidth * plan.hardware.linkEfficiency) * 1e9;
      const double latency = plan.hardware.copyLatency * 1e9;
      EXPECT_NEAR(static_cast<double>(variant.durationsNs[i]), ns + latency, 2) << variant.newTokens << " rows";
    }
  }
}

// So a launch of as many rows takes what the variant says, and one of more or fewer as much as it copies: a row is 256
// bytes, 256 ns at 1 GB/s.
TEST(Residuals, LaunchesTakeAsLongAsTheirRows) {
  const plan::Plan plan = compiled(asked(4));
  const sim::LinkRates link = sim::linkRates(plan.hardware, 0);
  for (const plan::Variant &variant : plan.variants) {
    const plan::Schedule &schedule = plan.schedules[variant.schedule];
    const auto sized = sim::sizedTimes(plan, schedule, variant.durationsNs, variant.newTokens, link);
    ASSERT_TRUE(sized.ok()) << sized.status();
    ASSERT_FALSE(sized->empty());
    for (const sim::SizedTime &copy : *sized) {
      const auto ns = [&](int64_t rows) { return copy.nsOf(core::bytesInUse(copy.size, core::InUse{.rows = rows})); };
      EXPECT_EQ(ns(variant.newTokens), variant.durationsNs[copy.step]);
      EXPECT_NEAR(static_cast<double>(ns(kMostRows) - ns(1)), (kMostRows - 1) * 256.0, kMostRows);
    }
  }
}

// With many mini-batches of many rows the streams are most of what is transient: of 16 of them 3 slots are left.
TEST(Residuals, TakeThreeSlotsOfTheDevice) {
  CompileRequest r = asked(8);
  r.goal.batch = 64;
  r.buckets = {.newTokens = {8, kMostRows}, .sequences = {8}, .contexts = {64}};
  const plan::Plan leave = compiled(r);
  r.policy.residuals = model::Residuals::Device;
  const plan::Plan stay = compiled(r);
  const auto bytes = static_cast<uint64_t>(kMostRows * leave.model->hidden) * sizeof(float);
  EXPECT_LE(leave.arenaBytes, stay.arenaBytes - (8 - 4) * bytes);
  const auto slots = std::count_if(leave.placements[0].slots.begin(), leave.placements[0].slots.end(),
                                   [&](const plan::Slot &slot) { return slot.bytes == bytes; });
  EXPECT_EQ(slots, algorithms::kResidualSlots);
}

// Each layer's weights are brought once, whatever leaves between.
TEST(Residuals, WeightsAreBroughtOnce) {
  const plan::Plan plan = compiled(asked(4));
  for (const plan::Schedule &schedule : plan.schedules) {
    uint64_t weights = 0, away = 0;
    for (const plan::Step &step : schedule.steps)
      if (step.kind == plan::StepKind::Copy &&
          plan.buffer(schedule, schedule.operands[step.firstOperand].buffer).kind == plan::BufferKind::Weight)
        weights += step.linkBytes;
    for (const plan::Extent &extent : plan.placements[schedule.placement].extents)
      if (extent.space == plan::Space::Host && !extent.direct &&
          plan.buffers[extent.buffer].kind == plan::BufferKind::Weight)
        away += extent.bytes;
    if (schedule.iterationClass != plan::IterationClass::Transition) {
      EXPECT_EQ(weights, away) << schedule.name;
    }
  }
}

TEST(Residuals, RefusesWhatKeepsThemOnTheDevice) {
  const auto refused = [](const CompileRequest &r, const std::string &message) {
    const auto plan = compile(r);
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(plan.status().message()), HasSubstr(message));
  };
  CompileRequest paper = asked(2);
  paper.policy.startRule = model::StartRule::Paper;
  refused(paper, "policy.residuals = \"host\" beside policy.start_rule = \"paper\": expected start rule eager: ");
  CompileRequest places = asked(1);
  places.policy.interval.reset();
  places.policy.none = true;
  places.goal.kvDeviceMemory = 0;
  places.policy.kvPlaces = 4;
  refused(places,
          "policy.kv_places = 4 beside policy.residuals = \"host\": expected one of them: residual streams stay");
  CompileRequest pie = asked(1);
  pie.policy.interval.reset();
  pie.policy.name = "pie";
  refused(pie, "policy.name = \"pie\" beside policy.residuals = \"host\": expected one of them: residual streams stay");
}

} // namespace
} // namespace headrace::compiler
