// SPDX-License-Identifier: Apache-2.0
//
// Rows that are appended to KV blocks on the host get home with the step that appends them, or are written back behind
// it: what the schedules do, what they take, and which is chosen.
//
// Six layers of tinyLlama at batch 2 and context 512, blocks of 16 tokens: 65 blocks, the scratch block included, each
// of 4 KiB a layer. With 20 of them on the device a tail is 45 x 4 KiB = 180 KiB; links of 1 GB/s.
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/CacheMap.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using model::KvWriteBack;
using plan::IterationClass;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kLayers = 6, kBlocks = 65, kResident = 20;
constexpr uint64_t kLayerBlock = 4096, kBlock = kLayers * kLayerBlock;

CompileRequest asked(KvWriteBack writeBack, int64_t resident = kResident) {
  CompileRequest r = request(tinyLlama(kLayers));
  r.goal.context = 512;
  r.goal.kvDeviceMemory = // the blocks that stay, and two slots for the others of a layer
      resident == 0 ? 0 : static_cast<uint64_t>(kLayers * resident + 2 * (kBlocks - resident)) * kLayerBlock;
  r.policy.none = true;
  r.policy.kvWriteBack = writeBack;
  r.buckets = {.newTokens = {1, 2, 64}, .sequences = {2}, .contexts = {512}};
  return r;
}

plan::Plan compiled(const CompileRequest &r) {
  auto plan = compile(r);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : plan::Plan();
}

// Of the largest bucket of a class.
uint64_t largestNs(const plan::Plan &plan, IterationClass iterationClass) {
  uint64_t ns = 0;
  for (const plan::Variant &variant : plan.variants) // ascending
    if (const plan::Schedule &s = plan.schedules[variant.schedule];
        s.iterationClass == iterationClass && s.kvBlocks == 0)
      ns = variant.predictedNs;
  return ns;
}

// The schedule of a class that brings tails.
const plan::Schedule &scheduleOf(const plan::Plan &plan, IterationClass iterationClass) {
  return *std::find_if(plan.schedules.begin(), plan.schedules.end(),
                       [&](const plan::Schedule &s) { return s.iterationClass == iterationClass && s.kvBlocks == 0; });
}
std::vector<plan::Step> copiesHome(const plan::Schedule &schedule) {
  std::vector<plan::Step> copies;
  std::copy_if(schedule.steps.begin(), schedule.steps.end(), std::back_inserter(copies),
               [](const plan::Step &step) { return plan::toHost(step.lane); });
  return copies;
}
const plan::Operand *operandOf(const plan::Schedule &schedule, kernels::Op op, plan::Arg arg) {
  for (const plan::Step &step : schedule.steps)
    if (step.kind == plan::StepKind::Compute && step.op == op)
      for (uint32_t i = 0; i < step.operandCount; ++i)
        if (schedule.operands[step.firstOperand + i].arg == arg)
          return &schedule.operands[step.firstOperand + i];
  return nullptr;
}

TEST(WriteBack, ATailIsCopiedHomeWhole) {
  const plan::Plan plan = compiled(asked(KvWriteBack::All));
  for (const IterationClass iterationClass : {IterationClass::Decode, IterationClass::Mixed}) {
    const plan::Schedule &schedule = scheduleOf(plan, iterationClass);
    const std::vector<plan::Step> copies = copiesHome(schedule);
    ASSERT_EQ(copies.size(), 6u); // one a layer
    for (int32_t layer = 0; layer < kLayers; ++layer) {
      const plan::Step &copy = copies[static_cast<size_t>(layer)];
      EXPECT_EQ(copy.layer, layer);
      EXPECT_TRUE(copy.resizable);
      EXPECT_FALSE(copy.dirtyOnly);
      EXPECT_EQ(copy.linkBytes, 45 * kLayerBlock);
      const plan::Operand &from = schedule.operands[copy.firstOperand], &to = schedule.operands[copy.firstOperand + 1];
      EXPECT_EQ(from.space, plan::Space::Device);
      EXPECT_EQ(to.space, plan::Space::Host);
      EXPECT_EQ(from.bufferOffset, kResident * kLayerBlock);
      EXPECT_EQ(to.bufferOffset, from.bufferOffset);
      EXPECT_EQ(plan.buffers[to.buffer].layer, layer);
    }
    EXPECT_EQ(operandOf(schedule, kernels::Op::RopeAppend, plan::Arg::KvHome), nullptr);
    EXPECT_EQ(plan::linkBytes(schedule).d2h, 6 * 45 * kLayerBlock);
  }
  EXPECT_EQ(plan.placements[0].slots.size(), 2u);
  EXPECT_EQ(plan.policy.kvWriteBack, KvWriteBack::All);
  EXPECT_THAT(plan.reason, HasSubstr("Rows of KV on the host: decode writes back all that is in use"));
}

TEST(WriteBack, OrTheRunThatALaunchWrites) {
  const plan::Plan plan = compiled(asked(KvWriteBack::Dirty));
  const std::vector<plan::Step> copies = copiesHome(scheduleOf(plan, IterationClass::Decode));
  ASSERT_EQ(copies.size(), 6u);
  for (const plan::Step &copy : copies) {
    EXPECT_TRUE(copy.resizable);
    EXPECT_TRUE(copy.dirtyOnly);
  }
}

TEST(WriteBack, OrTheStepThatAppendsWritesThere) {
  const plan::Plan plan = compiled(asked(KvWriteBack::Mirror));
  const plan::Schedule &schedule = scheduleOf(plan, IterationClass::Mixed);
  EXPECT_TRUE(copiesHome(schedule).empty());
  const plan::Operand *home = operandOf(schedule, kernels::Op::RopeAppend, plan::Arg::KvHome);
  ASSERT_NE(home, nullptr);
  EXPECT_EQ(home->bytes, 45 * kLayerBlock);
  EXPECT_EQ(plan.placements[0].slots.size(), 2u);
}

TEST(WriteBack, BlocksThatAnotherPlacementHasOnTheHostAreStillWrittenThere) {
  CompileRequest r = asked(KvWriteBack::All);
  r.policy.none = false;
  r.goal.kvDeviceMemory.reset();
  const auto all = compile([&] {
    CompileRequest resident = r;
    resident.policy.kvWriteBack = KvWriteBack::Auto;
    return resident;
  }());
  ASSERT_TRUE(all.ok()) << all.status();
  r.goal.deviceMemory = all->arenaBytes - 40 * kBlock;
  r.policy.placements = 2;
  const plan::Plan plan = compiled(r);
  ASSERT_EQ(plan.placements.size(), 2u);
  const int64_t least = plan::CacheMap(plan, plan.placements[0]).resident();
  const int64_t most = plan::CacheMap(plan, plan.placements[1]).resident();
  ASSERT_LT(least, most);
  for (const plan::Schedule &schedule : plan.schedules) {
    if (schedule.iterationClass != IterationClass::Decode || schedule.kvBlocks != 0)
      continue;
    const plan::Operand *home = operandOf(schedule, kernels::Op::RopeAppend, plan::Arg::KvHome);
    EXPECT_EQ(home != nullptr, schedule.placement == 1);
    if (home != nullptr) {
      EXPECT_EQ(home->bufferOffset, static_cast<uint64_t>(least) * kLayerBlock);
      EXPECT_EQ(home->bytes, static_cast<uint64_t>(most - least) * kLayerBlock);
    }
  }
}

TEST(WriteBack, NoBlockNeedBeAtHomeOnTheDevice) {
  for (const KvWriteBack writeBack : {KvWriteBack::Mirror, KvWriteBack::All, KvWriteBack::Dirty}) {
    const plan::Plan plan = compiled(asked(writeBack, 0));
    ASSERT_EQ(plan.placements.size(), 1u);
    EXPECT_EQ(plan::CacheMap(plan, plan.placements[0]).resident(), 0);
    EXPECT_EQ(plan::kvBytesByHome(plan, 0).device, 0u);
    for (const plan::Schedule &schedule : plan.schedules) {
      EXPECT_EQ(schedule.kvBlocks, 0); // no schedule is without tails
      for (const plan::Operand &operand : schedule.operands)
        EXPECT_NE(operand.arg, plan::Arg::Kv);
    }
    const plan::Operand *tail =
        operandOf(scheduleOf(plan, IterationClass::Decode), kernels::Op::Attention, plan::Arg::KvTail);
    ASSERT_NE(tail, nullptr);
    EXPECT_EQ(tail->bufferOffset, 0u);
    EXPECT_EQ(tail->bytes, kBlocks * kLayerBlock);
  }
}

TEST(WriteBack, BothDirectionsAreKeptBusy) {
  // Whatever the shape, a largest iteration takes at most a twentieth more than its compute, either direction alone, or
  // both where they share the link.
  for (const int64_t layers : {6, 9, 12})
    for (const double duplex : {1e9, 1.5e9, 2e9})
      for (const double flops : {1e9, 1e11}) {
        SCOPED_TRACE(testing::Message() << layers << " layers, duplex " << duplex << ", " << flops << " flop/s");
        CompileRequest r = asked(KvWriteBack::All, 1);
        r.model = tinyLlama(layers);
        // A block of each layer, and slots for the other 64: two, or three where the number of layers is odd.
        r.goal.kvDeviceMemory = static_cast<uint64_t>(layers + (2 + layers % 2) * (kBlocks - 1)) * kLayerBlock;
        r.hardware.duplexBandwidth = duplex;
        r.hardware.flopsF32 = r.hardware.flopsF16 = flops;
        const plan::Plan plan = compiled(r);
        for (const plan::Variant &variant : plan.variants) {
          const plan::Schedule &schedule = plan.schedules[variant.schedule];
          if (schedule.kvBlocks != 0)
            continue;
          uint64_t in = 0, out = 0;
          for (size_t i = 0; i < schedule.steps.size(); ++i) {
            in += plan::toDevice(schedule.steps[i].lane) ? variant.durationsNs[i] : 0;
            out += plan::toHost(schedule.steps[i].lane) ? variant.durationsNs[i] : 0;
          }
          const double bound = std::max({static_cast<double>(variant.computeAloneNs), static_cast<double>(in),
                                         static_cast<double>(out), static_cast<double>(in + out) / (duplex / 1e9)});
          EXPECT_LE(static_cast<double>(variant.predictedNs), 1.05 * bound)
              << schedule.name << ", bucket of " << variant.newTokens;
        }
      }
}

// What the largest decode iteration of 12 layers takes in so many slots, in units of the longest of compute and either
// direction, compute being `compute` times as long as either.
double ratioWith(int64_t slots, double compute) {
  CompileRequest r = request(tinyLlama(12));
  r.goal.context = 512;
  r.buckets = {.newTokens = {2}, .sequences = {2}, .contexts = {512}};
  r.hardware.duplexBandwidth = 2e9;
  Candidate candidate;
  candidate.name = "tails";
  candidate.residency.setKvAway(12, 1);
  candidate.residency.wrap.around = true;
  candidate.residency.kv().decodeBack = candidate.residency.kv().mixedBack = algorithms::WriteBack::All;
  candidate.residency.kv().setSlots(slots);
  r.placements = {candidate};
  double ratio = 0;
  for (double flops = 1e9; ratio == 0; flops /= 1.02) { // slower until compute is as long as asked
    r.hardware.flopsF32 = r.hardware.flopsF16 = flops;
    const plan::Plan plan = compiled(r);
    const plan::Variant &decode = plan.variants.back();
    const auto link = static_cast<double>(decode.linkAloneNs), alone = static_cast<double>(decode.computeAloneNs);
    if (alone >= compute * link)
      ratio = static_cast<double>(decode.predictedNs) / std::max(link, alone);
  }
  return ratio;
}

TEST(WriteBack, TwoSlotsKeepBothDirectionsBusy) {
  // One is filled while what was used of the other goes home: more slots gain nothing, whether copies take longer than
  // compute, as long, or less long.
  for (const double compute : {0.25, 0.5, 1.0, 1.5}) {
    const double two = ratioWith(2, compute), three = ratioWith(3, compute), four = ratioWith(4, compute);
    SCOPED_TRACE(testing::Message() << "compute " << compute << ": " << two << ", " << three << ", " << four);
    EXPECT_LE(two, 1.05);
    EXPECT_LE(two, 1.01 * three);
    EXPECT_LE(two, 1.01 * four);
  }
}

TEST(WriteBack, ThePolicyKeepsItToItselfWhereCachesStay) {
  CompileRequest r = request(tinyLlama(kLayers));
  r.policy.name = "accelerate";
  r.policy.kvWriteBack = KvWriteBack::Dirty;
  const absl::Status refused = compile(r).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(refused.message()),
      HasSubstr("policy.kv_write_back = \"dirty\" beside policy.name = \"accelerate\": expected policy interval, "));
}

TEST(WriteBack, TheClassesChooseByWhatTheirIterationsTake) {
  const plan::Plan mirrored = compiled(asked(KvWriteBack::Mirror)), dirty = compiled(asked(KvWriteBack::Dirty)),
                   chosen = compiled(asked(KvWriteBack::Auto));
  for (const IterationClass iterationClass : {IterationClass::Decode, IterationClass::Mixed}) {
    const bool back = largestNs(dirty, iterationClass) < largestNs(mirrored, iterationClass);
    EXPECT_EQ(!copiesHome(scheduleOf(chosen, iterationClass)).empty(), back);
  }
  EXPECT_THAT(chosen.reason, HasSubstr("Rows of KV on the host: decode "));
  EXPECT_THAT(chosen.reason, HasSubstr("; prefill "));
  EXPECT_EQ(chosen.policy.kvWriteBack, KvWriteBack::Auto);
}

// At 1 GFLOP/s a layer's 64 rows take about 4 ms, beside which a tail's 180 KiB / 0.1 GB/s = 1.8 ms home are hidden; to
// mirror them takes 64 x 256 bytes / 0.1 GB/s = 0.16 ms a layer. Decode's 2 rows take 5 us home, and a layer of them
// less than a tail does.
TEST(WriteBack, PrefillMayWriteBackWhereDecodeMirrors) {
  CompileRequest r = asked(KvWriteBack::Auto);
  r.hardware.flopsF32 = r.hardware.flopsF16 = 1e9;
  r.hardware.d2hBandwidth = 1e8;
  r.hardware.duplexBandwidth = 1.1e9;
  const plan::Plan plan = compiled(r);
  EXPECT_TRUE(copiesHome(scheduleOf(plan, IterationClass::Decode)).empty());
  const std::vector<plan::Step> prefill = copiesHome(scheduleOf(plan, IterationClass::Mixed));
  ASSERT_EQ(prefill.size(), 6u);
  EXPECT_TRUE(prefill.front().dirtyOnly);
  EXPECT_EQ(plan.placements[0].slots.size(), 2u);
  EXPECT_THAT(plan.reason, HasSubstr("Rows of KV on the host: decode mirrors: "));
  EXPECT_THAT(plan.reason, HasSubstr("; prefill writes back what was written: "));
}

} // namespace
} // namespace headrace::compiler
