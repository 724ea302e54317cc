// SPDX-License-Identifier: Apache-2.0
//
// Tails of caches that cycle through fewer places than there are tails: cycles of one to eight schedules and longer
// ones. Tokens and logits are those of the all-resident plan, the device goes round the cycle without a transition, and
// brings what the cycle says.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

#include "compiler/Compile.h"
#include "passes/algorithms/CycleOf.h"
#include "runtime/core/Runtime.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "tests/conformance/DevicesUnderTest.h"
#include "tests/support/LongRun.h"
#include "tests/support/StatedPlacements.h"
#include "tests/support/TinyPlan.h"

namespace headrace {
namespace {

// The batch has use for 3 x 10 blocks of 4 tokens and the scratch block.
constexpr int64_t kBlocks = 31;

struct Cycle {
  int64_t layers, places;
  uint32_t period;
  std::optional<algorithms::SwapVisits> fifo = std::nullopt;
};
constexpr Cycle kCycles[] = {{4, 3, 1},  {5, 2, 2}, {8, 6, 3},  {6, 5, 4}, {12, 9, 5},
                             {10, 8, 6}, {9, 3, 7}, {10, 7, 8}, {5, 4, 12}};

// Whole layers swapped as Pie does, first in, first out; compute waits for swaps but in the first two, so that in the
// third five take turns in two places, and in the last four in one.
constexpr Cycle kFifoCycles[] = {
    {9, 7, 10, {{2, 2}}}, {5, 4, 4, {{1, 1}}}, {8, 5, 2, {{1, 2}}}, {6, 2, 1, {{1, 1}}}, {9, 6, 1, {{6, 6, 500}}}};

struct Case {
  Cycle cycle;
  int64_t resident = 4; // blocks on the device, the scratch block included
  int64_t interval = 0; // of the weights, 0 none away
  algorithms::WriteBack writeBack = algorithms::WriteBack::Mirror;
};
std::ostream &operator<<(std::ostream &out, const Case &r) {
  return out << r.cycle.layers << " layers, " << r.cycle.places << " places, " << r.resident << " blocks, interval "
             << r.interval << ", written back " << static_cast<int>(r.writeBack)
             << (r.cycle.fifo ? ", first in, first out" : "");
}

class KvPlaces : public testing::TestWithParam<core::DeviceUnderTest> {
protected:
  static bool all() { return longRun(); }
  static compiler::CompileRequest ask(int64_t layers) {
    compiler::CompileRequest request;
    request.model = layers % 2 == 0 ? core::tinyLlama(layers) : core::tinyOpt(layers);
    request.hardware = core::tinyPlan({.spec = core::tinyLlama(1), .kind = GetParam().plansFor}).hardware;
    request.hardware.flopsF32 = request.hardware.flopsF16 = 1e10;
    request.hardware.memoryBandwidth = 1e10;
    request.hardware.flopsEfficiency = request.hardware.memoryEfficiency = 0.5;
    request.goal.batch = 3;
    request.goal.context = 40;
    request.goal.blockTokens = 4;
    request.buckets = {.newTokens = {1, 3, 8}, .sequences = {1, 3}, .contexts = {40}};
    return request;
  }
  static compiler::Candidate placement(const Case &r) {
    compiler::Candidate candidate =
        compiler::stated(ask(r.cycle.layers).model,
                         {r.interval > 0 ? compiler::interval(r.interval) : compiler::none()})
            .front();
    candidate.residency.wrap.around = true;
    candidate.residency.setKvAway(r.cycle.layers, r.resident);
    candidate.residency.kv().setPlaces(r.cycle.places, r.cycle.fifo);
    candidate.residency.kv().decodeBack = candidate.residency.kv().mixedBack = r.writeBack;
    return candidate;
  }
  static plan::Plan compile(int64_t layers, const std::vector<compiler::Candidate> &placements) {
    compiler::CompileRequest request = ask(layers);
    request.placements = placements;
    auto plan = compiler::compile(request);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? *std::move(plan) : plan::Plan{};
  }
  static serve::GenerateRequest request() {
    serve::GenerateRequest request;
    request.prompts = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}, {42}, {7, 7, 149}};
    request.maxNewTokens = 24;
    request.keepLogits = true;
    return request;
  }
  static std::unique_ptr<core::Runtime> load(const plan::Plan &plan, core::Device &device) {
    const auto weights = model::syntheticWeights(1);
    auto runtime = core::Runtime::load(plan, device, {}, weights.get(), {});
    EXPECT_TRUE(runtime.ok()) << runtime.status();
    return runtime.ok() ? *std::move(runtime) : nullptr;
  }
  static absl::StatusOr<serve::GenerateResult> expected(int64_t layers) {
    const plan::Plan plan = compile(layers, compiler::stated(ask(layers).model, {compiler::none()}));
    const auto device = GetParam().make();
    const auto runtime = load(plan, *device);
    return serve::generate(*runtime, request());
  }
  static std::vector<Case> cases(const Cycle &cycle) {
    using algorithms::WriteBack;
    const auto drawn = static_cast<size_t>(cycle.period);
    std::vector<Case> out;
    if (cycle.fifo) {
      for (const WriteBack writeBack : {WriteBack::All, WriteBack::Mirror, WriteBack::Dirty})
        for (const int64_t interval : {0, 2})
          out.push_back({.cycle = cycle, .resident = 0, .interval = interval, .writeBack = writeBack});
      if (!all())
        out = {out[0], out[1 + drawn % 5]};
      return out;
    }
    for (const WriteBack writeBack : {WriteBack::Mirror, WriteBack::All, WriteBack::Dirty})
      for (const int64_t resident : {0, 1, 4, 12})
        for (const int64_t interval : {0, 2})
          out.push_back({.cycle = cycle, .resident = resident, .interval = interval, .writeBack = writeBack});
    if (!all()) // of each way to write back one
      out = {out[drawn % 8], out[8 + (drawn + 3) % 8], out[16 + (drawn + 6) % 8]};
    return out;
  }
};

TEST_P(KvPlaces, TokensAreThoseOfTheResidentPlanAllTheWayRoundTheCycle) {
  std::vector<Cycle> cycles(std::begin(kCycles), std::end(kCycles));
  cycles.insert(cycles.end(), std::begin(kFifoCycles), std::end(kFifoCycles));
  for (const Cycle &cycle : cycles) {
    const auto resident = expected(cycle.layers);
    ASSERT_TRUE(resident.ok()) << resident.status();
    for (const Case &r : cases(cycle)) {
      SCOPED_TRACE(testing::Message() << r);
      const plan::Plan plan = compile(cycle.layers, {placement(r)});
      ASSERT_FALSE(plan.placements.empty());
      std::set<uint32_t> phases;
      for (const plan::Schedule &schedule : plan.schedules) {
        EXPECT_TRUE(schedule.period == 1 || schedule.period == cycle.period) << schedule.name;
        if (schedule.iterationClass == plan::IterationClass::Decode && schedule.kvBlocks == 0)
          phases.insert(schedule.phase);
      }
      EXPECT_EQ(phases.size(), cycle.period);
      const auto device = GetParam().make();
      const auto runtime = load(plan, *device);
      ASSERT_NE(runtime, nullptr);
      // Once tails are in use the device stays on the cycle: one transition leads there, and from then on each launch
      // has the phase behind that of the one before.
      serve::GenerateRequest asked = request();
      std::vector<uint32_t> seen;
      std::vector<uint64_t> transitions;
      asked.onIteration = [&](const serve::IterationSeen &iteration) {
        const plan::Schedule &schedule = plan.schedules[plan.variants[iteration.variant].schedule];
        if (schedule.kvBlocks > 0)
          return;
        seen.push_back(schedule.phase);
        transitions.push_back(runtime->transitionsRun());
      };
      const auto result = serve::generate(*runtime, asked);
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->tokens, resident->tokens);
      EXPECT_TRUE(result->logits == resident->logits);
      ASSERT_FALSE(seen.empty());
      // Weights that iterations without tails begin with. Where each iteration is the next one's like, as with slots,
      // blocks are moved together once a sequence has ended, and what is carried over the edge is brought anew then; in
      // a longer cycle never.
      const uint64_t first = r.interval > 0 ? 2 : 1, anew = cycle.period > 1 ? 0 : asked.prompts.size();
      EXPECT_LE(transitions.back() - transitions.front(), anew);
      EXPECT_LE(transitions.back(), first + anew);
      for (size_t i = 1; i < seen.size(); ++i)
        ASSERT_EQ(seen[i], (seen[i - 1] + 1) % cycle.period) << i;
      // Two in flight, over what the first call has left.
      asked.keepLogits = false;
      const auto inFlight = serve::generate(*runtime, asked);
      ASSERT_TRUE(inFlight.ok()) << inFlight.status();
      EXPECT_EQ(inFlight->tokens, resident->tokens);
    }
  }
}

// With all blocks above the first in use a cycle brings n m / (n - 2) tails an iteration.
TEST_P(KvPlaces, ACycleBringsTheFewestBytes) {
  for (const Cycle &cycle : kCycles) {
    const plan::Plan plan = compile(cycle.layers, {placement({.cycle = cycle, .resident = 1})});
    ASSERT_FALSE(plan.placements.empty());
    uint64_t bytes = 0;
    for (const plan::Schedule &schedule : plan.schedules)
      if (schedule.iterationClass == plan::IterationClass::Decode && schedule.kvBlocks == 0)
        for (const plan::Step &step : schedule.steps)
          if (step.lane == plan::Lane::H2D)
            bytes += step.linkBytes;
    const uint64_t tail = (kBlocks - 1) * plan.kvBlockBytes();
    EXPECT_EQ(bytes * static_cast<uint64_t>(cycle.layers - 2),
              cycle.period * static_cast<uint64_t>(cycle.layers * (cycle.layers - cycle.places)) * tail)
        << cycle.layers << " " << cycle.places;
  }
}

// Requests come and go in a batch of three, prompts in chunks beside decoding: the classes alternate, the cycle is left
// where few blocks are in use and entered again, two iterations are in flight.
TEST_P(KvPlaces, TokensAreThoseOfTheResidentPlanWhileRequestsComeAndGo) {
  const uint64_t least = all() ? 10'000 : 500;
  using algorithms::WriteBack;
  const Cycle cycle{5, 4, 12}, &swapped = kFifoCycles[1];
  const plan::Plan whole = compile(cycle.layers, compiler::stated(ask(cycle.layers).model, {compiler::none()}));
  for (const Case &r :
       {Case{.cycle = cycle, .writeBack = WriteBack::Mirror}, Case{.cycle = cycle, .writeBack = WriteBack::All},
        Case{.cycle = cycle, .writeBack = WriteBack::Dirty},
        Case{.cycle = swapped, .resident = 0, .writeBack = WriteBack::All}}) {
    SCOPED_TRACE(testing::Message() << r);
    const plan::Plan plan = compile(cycle.layers, {placement(r)});
    ASSERT_FALSE(plan.placements.empty());
    const auto device = GetParam().make(), wholeDevice = GetParam().make();
    const auto runtime = load(plan, *device), resident = load(whole, *wholeDevice);
    ASSERT_NE(runtime, nullptr);
    ASSERT_NE(resident, nullptr);
    uint64_t random = 11, iterations = 0, inCycle = 0;
    const auto draw = [&](uint64_t below) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      return (random >> 33) % below;
    };
    while (iterations < least) {
      serve::GenerateRequest asked;
      asked.prompts.resize(60);
      for (std::vector<int32_t> &prompt : asked.prompts)
        for (uint64_t left = 1 + draw(16); left > 0; --left)
          prompt.push_back(static_cast<int32_t>(draw(150)));
      asked.maxNewTokens = 24;
      for (int32_t token = 0; token < 8; ++token) // of 150
        asked.stopTokens.push_back(token);
      const auto expected = serve::generate(*resident, asked);
      ASSERT_TRUE(expected.ok()) << expected.status();
      asked.onIteration = [&](const serve::IterationSeen &seen) {
        inCycle += plan.schedules[plan.variants[seen.variant].schedule].period > 1;
      };
      const auto result = serve::generate(*runtime, asked);
      ASSERT_TRUE(result.ok()) << result.status();
      ASSERT_EQ(result->tokens, expected->tokens) << iterations;
      iterations += result->iterations;
    }
    EXPECT_GT(inCycle, iterations / 2);
    EXPECT_LT(runtime->transitionsRun(), iterations / 4); // mostly it goes round
    EXPECT_EQ(runtime->missingVariants(), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, KvPlaces, testing::ValuesIn(core::devicesOfPlans(core::devicesWithData())),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace
} // namespace headrace
