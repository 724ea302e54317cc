// SPDX-License-Identifier: Apache-2.0
//
// Requests that join, leave, are preempted and cancelled in several mini-batches, or while layers are swapped whole
// through now more, now fewer places, cost no allocation: this binary counts every call of the allocator.
#include <gtest/gtest.h>

#include "compiler/Compile.h"
#include "runtime/host/HostDevice.h"
#include "runtime/serve/engine/Engine.h"
#include "runtime/sim/SimDevice.h"
#include "tests/conformance/SteadyLoad.h"
#include "tests/support/CountAllocations.h"
#include "tests/support/StatedPlacements.h"
#include "tests/support/TinyPlan.h"

namespace headrace::serve {
namespace {

// How KV gets home; of places, whole and by the plan.
enum class Moves : uint8_t { Mirror, All, Dirty, Places };

// Three mini-batches of two seats and 9 blocks of 4 tokens each, one block of them on the device. Of places one of six
// seats, with as many blocks of each of six layers as a sequence takes, or up to 1.5 times as many in fewer places.
absl::StatusOr<plan::Plan> planOf(Moves moves) {
  compiler::CompileRequest request;
  request.model = core::tinyLlama(4);
  request.hardware = core::tinyPlan({}).hardware;
  request.hardware.flopsF32 = request.hardware.flopsF16 = request.hardware.memoryBandwidth = 1e10;
  request.hardware.flopsEfficiency = request.hardware.memoryEfficiency = 0.5;
  request.goal.miniBatches = 3;
  request.goal.batch = 6;
  request.goal.context = 28;
  request.goal.kvTokens = 3 * 36;
  request.goal.blockTokens = 4;
  request.goal.expansion = model::kAutoExpansion; // blocks are moved together, and the engine looks at waits
  request.buckets = {.newTokens = {2, 7}, .sequences = {2}, .contexts = {28}};
  if (moves == Moves::Places) {
    request.model = core::tinyLlama(6);
    request.goal.miniBatches = 1;
    request.goal.kvTokens.reset();
    request.goal.kvDeviceMemory = 6 * model::alignUp(8 * 2 * static_cast<uint64_t>(request.model->kvRows()) * 4 * 4);
    request.buckets = {.newTokens = {6, 12}, .sequences = {6}, .contexts = {28}};
    request.hardware.h2dBandwidth = request.hardware.d2hBandwidth = request.hardware.duplexBandwidth = 1e8; // it waits
    request.policy.name = "pie";
    request.policy.none = true;
    return compiler::compile(request);
  }
  const auto writeBack = static_cast<algorithms::WriteBack>(moves);
  compiler::Candidate candidate = compiler::stated(request.model, {compiler::interval(2)}).front();
  candidate.residency.setKvAway(4, 1);
  candidate.residency.kv().decodeBack = candidate.residency.kv().mixedBack = writeBack;
  if (writeBack == algorithms::WriteBack::All)
    request.policy.residuals = model::Residuals::Host;
  request.placements = {candidate};
  return compiler::compile(request);
}

class MiniBatchAllocations : public testing::TestWithParam<std::tuple<bool, Moves, Preemption>> {};

// 90 requests of 2 to 11 tokens, 15 new ones each, 20 at first and then nine known at a time; with every seventh
// another is cancelled, which the engine has to itself until its swap has ended. From the 20th on, when as many were
// known as ever will be, nothing is allocated.
TEST_P(MiniBatchAllocations, NoneWhileRequestsJoinAndLeave) {
  const auto [simulated, moves, preemption] = GetParam();
  const absl::StatusOr<plan::Plan> plan = planOf(moves);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::shared_ptr<core::Device> device =
      simulated ? std::shared_ptr<core::Device>(sim::makeSimDevice()) : host::makeHostDevice({.unpaced = true});
  const auto weights = model::syntheticWeights(1);
  const auto runtime = core::Runtime::load(*plan, *device, {}, weights.get(), {});
  ASSERT_TRUE(runtime.ok()) << runtime.status();

  uint64_t ended = 0, tokens = 0, cancelled = 0;
  EngineOptions options{.preemption = preemption, .swapBytes = uint64_t{1} << 20};
  if (moves == Moves::Places) // look often
    options.expansion = {.window = 2, .judgedWindows = 1, .lookAgain = 2};
  options.onToken = [&](const EngineToken &) { ++tokens; };
  options.onEnd = [&](const EngineEnd &end) {
    ++ended;
    cancelled += end.reason == EndReason::Cancelled;
  };
  const auto engine = Engine::create(**runtime, options);
  ASSERT_TRUE(engine.ok()) << engine.status();

  Steady steady;
  runSteadily(**engine, {.requests = 90, .first = 20, .more = 9}, ended, steady);
  EXPECT_EQ(steady.allocations, 0u);
  EXPECT_GT(steady.preemptions, 0u);
  EXPECT_EQ((*engine)->counters().swapsIn > 3, preemption == Preemption::Swap);
  EXPECT_GT((*engine)->counters().compactedBlocks, 0u);
  EXPECT_TRUE(moves != Moves::Places || (*engine)->counters().expansionsShrunk > 0);
  EXPECT_GT(cancelled, 3u);
  EXPECT_GT(tokens, 450u);
}

std::string nameOf(const testing::TestParamInfo<std::tuple<bool, Moves, Preemption>> &info) {
  const auto [simulated, moves, preemption] = info.param;
  const char *const ways[] = {"Mirror", "All", "Dirty", "Places"};
  return std::string(simulated ? "sim" : "host") + ways[static_cast<int>(moves)] +
         (preemption == Preemption::Swap ? "Swap" : "");
}

INSTANTIATE_TEST_SUITE_P(Devices, MiniBatchAllocations,
                         testing::Combine(testing::Bool(),
                                          testing::Values(Moves::Mirror, Moves::All, Moves::Dirty, Moves::Places),
                                          testing::Values(Preemption::Recompute, Preemption::Swap)),
                         nameOf);

} // namespace
} // namespace headrace::serve
