// SPDX-License-Identifier: Apache-2.0
//
// Plans as the compiler makes them, on every device: a model of a few kilobytes for each interval and start rule. What
// a row holds must not depend on where the weights live, on the pace of the link, or on what lies in unused bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "compiler/Compile.h"
#include "runtime/core/Runtime.h"
#include "runtime/host/HostDevice.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/proof/PlanVerifier.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "runtime/sim/SimDevice.h"
#include "tests/support/ShuffleBuffers.h"
#include "tests/support/StatedPlacements.h"
#include "tests/support/TinyPlan.h"

namespace headrace {
namespace {

struct Case {
  const char *name;
  model::ModelSpec spec;
  model::StartRule rule;
};

class CompiledPlans : public testing::TestWithParam<Case> {
protected:
  static constexpr int64_t kLayers = 6;

  // interval 0: nothing is offloaded.
  plan::Plan compile(int64_t interval, model::AutoOnOff embedding = model::AutoOnOff::Off) {
    compiler::CompileRequest request = this->request(embedding);
    if (interval == 0)
      request.policy.none = true;
    else
      request.policy.interval = interval;
    return compiled(request);
  }

  // Nothing offloaded, these intervals beside it in both rules, and single units: with a few placements every pair has
  // its transition, with more than eight most changes take several hops.
  plan::Plan compileSeveral(const std::vector<int64_t> &intervals) {
    compiler::CompileRequest request = this->request(model::AutoOnOff::Off);
    model::Policy none = request.policy;
    none.none = true;
    std::vector<model::Policy> policies{none};
    for (const int64_t interval : intervals)
      for (const model::StartRule rule : {model::StartRule::Eager, model::StartRule::Paper}) {
        policies.push_back(request.policy);
        policies.back().interval = interval;
        policies.back().startRule = rule;
      }
    request.placements = compiler::stated(request.model, policies);
    return compiled(request);
  }

  // One unit in two: the odd ones (qkv and up), and in a ring of so many of the largest.
  plan::Plan compileUnits(double largest) {
    compiler::CompileRequest request = this->request(model::AutoOnOff::Off);
    const model::WeightLayout layout = model::layoutWeights(request.model);
    std::vector<int32_t> units;
    uint64_t bytes = 0;
    for (int32_t unit = 1; unit < layout.headUnit(); unit += 2) {
      units.push_back(unit);
      bytes = std::max(bytes, layout.units[static_cast<size_t>(unit)].bytes);
    }
    compiler::Candidate placement =
        compiler::placementOfUnits(units, static_cast<uint64_t>(largest * static_cast<double>(bytes)));
    if (GetParam().rule == model::StartRule::Paper) {
      placement.residency.start = algorithms::kPaper;
      placement.residency.weights().setSlots(2);
      placement.residency.wrap = {};
    }
    request.placements = {placement};
    return compiled(request);
  }

  compiler::CompileRequest request(model::AutoOnOff embedding) {
    compiler::CompileRequest request;
    request.model = GetParam().spec;
    request.hardware = core::tinyPlan({.spec = core::tinyLlama(1)}).hardware;
    request.hardware.flopsF32 = request.hardware.flopsF16 = 1e10;
    request.hardware.memoryBandwidth = 1e10;
    request.hardware.launchOverhead = 1e-6;
    request.hardware.flopsEfficiency = request.hardware.memoryEfficiency = 0.5;
    request.goal.batch = 3;
    request.goal.context = 40;
    request.goal.blockTokens = 4;
    request.policy.startRule = GetParam().rule;
    request.policy.offloadEmbedding = embedding;
    // With tied embeddings the head goes where the embedding goes.
    request.policy.offloadHead = request.model->tiedEmbeddings ? model::AutoOnOff::Auto : model::AutoOnOff::Off;
    request.buckets = {.newTokens = {1, 3, 8}, .sequences = {1, 3}, .contexts = {16, 40}};
    return request;
  }

  static plan::Plan compiled(const compiler::CompileRequest &request) {
    auto plan = compiler::compile(request);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? *std::move(plan) : plan::Plan{};
  }

  // What happens between iterations.
  using Between = std::function<void(core::Runtime &)>;

  serve::GenerateResult run(const plan::Plan &plan, std::unique_ptr<core::Device> device, bool keepLogits,
                            const Between &between = {}) {
    const auto weights = model::syntheticWeights(1);
    auto runtime = core::Runtime::load(plan, *device, {}, weights.get(), {});
    EXPECT_TRUE(runtime.ok()) << runtime.status();
    if (!runtime.ok())
      return {};
    serve::GenerateRequest request;
    request.prompts = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}, {42}, {7, 7, 149}};
    request.maxNewTokens = 9;
    request.keepLogits = keepLogits;
    if (between)
      request.onIteration = [&](const serve::IterationSeen &) { between(**runtime); };
    auto result = serve::generate(**runtime, request);
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_EQ((*runtime)->missingVariants(), 0u);
    return result.ok() ? *std::move(result) : serve::GenerateResult{};
  }
};

// To a placement at random, in turns all the way or one hop of it. `changes` counts arrivals at another placement.
class RandomWalk {
public:
  RandomWalk(uint64_t seed, int &changes) : state_(seed), changes_(changes) {}
  void operator()(core::Runtime &runtime) {
    const uint32_t target = next() % static_cast<uint32_t>(runtime.plan().placements.size());
    const bool allTheWay = next() % 2 == 0;
    do {
      const uint32_t before = runtime.placement();
      const auto expected = runtime.nextHop(target);
      const auto hop = runtime.takeHop(target);
      ASSERT_TRUE(hop.ok()) << hop.status();
      EXPECT_EQ(hop->placement, expected->placement);
      EXPECT_EQ(runtime.placement(), hop->placement);
      changes_ += hop->placement != before;
    } while (allTheWay && runtime.placement() != target);
  }

private:
  uint32_t next() { // Knuth's MMIX generator
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 33);
  }
  uint64_t state_;
  int &changes_;
};

bool sameBits(const std::vector<std::vector<float>> &a, const std::vector<std::vector<float>> &b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto &x, const auto &y) {
    return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
  });
}

TEST_P(CompiledPlans, GiveTheBitsOfTheResidentModelOnTheHost) {
  const plan::Plan residentPlan = compile(0);
  const serve::GenerateResult resident = run(residentPlan, host::makeHostDevice({.unpaced = true}), true);
  for (int64_t interval = 1; interval <= kLayers; ++interval)
    for (model::AutoOnOff embedding : {model::AutoOnOff::Off, model::AutoOnOff::On}) {
      const plan::Plan plan = compile(interval, embedding);
      EXPECT_EQ(plan::offloadedWeights(plan, plan.placements[0]).layers, kLayers / interval);
      for (const host::HostOptions &options :
           {host::HostOptions{}, host::HostOptions{.unpaced = true}, host::HostOptions{.poison = true}}) {
        const bool oneByOne = options.unpaced || options.poison; // else two iterations are in flight
        const serve::GenerateResult other = run(plan, host::makeHostDevice(options), oneByOne);
        EXPECT_EQ(other.tokens, resident.tokens) << "interval " << interval << ", poison " << options.poison;
        EXPECT_TRUE(!oneByOne || sameBits(other.logits, resident.logits))
            << "interval " << interval << ", poison " << options.poison;
      }
    }
}

// A plan says what each of its buffers is: where it stands in the list decides nothing, here and in virtual time.
TEST_P(CompiledPlans, GiveTheBitsOfTheResidentModelWithTheirBuffersInAnyOrder) {
  const serve::GenerateResult resident = run(compile(0), host::makeHostDevice({.unpaced = true}), true);
  const plan::Plan plan = compileSeveral({1, 2});
  const serve::GenerateResult inSim = run(plan, sim::makeSimDevice(), false);
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const plan::Plan shuffled = plan::test::withShuffledBuffers(plan, seed);
    const std::string bytes = plan::serialize(shuffled);
    const absl::StatusOr<plan::Plan> read =
        plan::parse(absl::MakeConstSpan(reinterpret_cast<const std::byte *>(bytes.data()), bytes.size()), "shuffled");
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_TRUE(plan::verifyPlan(*read, "shuffled").ok()) << plan::verifyPlan(*read, "shuffled");
    int changes = 0;
    const serve::GenerateResult other =
        run(*read, host::makeHostDevice({.poison = true}), true, RandomWalk(seed, changes));
    EXPECT_GT(changes, 0);
    EXPECT_EQ(other.tokens, resident.tokens) << "seed " << seed;
    EXPECT_TRUE(sameBits(other.logits, resident.logits)) << "seed " << seed;
    EXPECT_EQ(run(*read, sim::makeSimDevice(), false).counters.h2dBytes, inSim.counters.h2dBytes);
  }
}

// Where the weights live may change between any two iterations.
TEST_P(CompiledPlans, GiveTheBitsOfTheResidentModelWhileTheyChangePlacement) {
  const serve::GenerateResult resident = run(compile(0), host::makeHostDevice({.unpaced = true}), true);
  for (const std::vector<int64_t> &intervals : {std::vector<int64_t>{3}, {1, 2, 3, 4, 6}}) {
    const plan::Plan plan = compileSeveral(intervals);
    ASSERT_EQ(plan.placements.size(), 1 + 2 * intervals.size());
    for (uint64_t seed = 1; seed <= 4; ++seed)
      for (const host::HostOptions &options :
           {host::HostOptions{}, host::HostOptions{.unpaced = true}, host::HostOptions{.poison = true}}) {
        const bool oneByOne = options.unpaced || options.poison; // else two iterations are in flight
        int changes = 0;
        const serve::GenerateResult walked =
            run(plan, host::makeHostDevice(options), oneByOne, RandomWalk(seed, changes));
        EXPECT_GT(changes, 4);
        EXPECT_EQ(walked.tokens, resident.tokens) << "seed " << seed << ", poison " << options.poison;
        EXPECT_TRUE(!oneByOne || sameBits(walked.logits, resident.logits))
            << "seed " << seed << ", poison " << options.poison;
      }
  }
}

// The same walk in virtual time launches and copies the same; from each placement to each other it takes as long as the
// plan says.
TEST_P(CompiledPlans, ChangePlacementInVirtualTimeAsPredicted) {
  const plan::Plan plan = compileSeveral({1, 2, 3, 4, 6});
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    int onHost = 0, inSim = 0;
    const auto host = run(plan, host::makeHostDevice({.unpaced = true}), false, RandomWalk(seed, onHost));
    const auto sim = run(plan, sim::makeSimDevice(), false, RandomWalk(seed, inSim));
    EXPECT_EQ(onHost, inSim);
    EXPECT_EQ(sim.counters.launches, host.counters.launches);
    EXPECT_EQ(sim.counters.h2dBytes, host.counters.h2dBytes);
  }
  const auto device = sim::makeSimDevice();
  auto runtime = core::Runtime::load(plan, *device, {}, nullptr, {});
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  for (uint32_t from = 0; from < plan.placements.size(); ++from)
    for (uint32_t to = 0; to < plan.placements.size(); ++to) {
      while ((*runtime)->placement() != from)
        ASSERT_TRUE((*runtime)->takeHop(from).ok());
      uint64_t left = 0;
      for (bool first = true; (*runtime)->placement() != to; first = false) {
        ASSERT_TRUE(device->drain().ok());
        const int64_t before = device->nowNs();
        const auto hop = (*runtime)->takeHop(to);
        ASSERT_TRUE(hop.ok()) << hop.status();
        ASSERT_TRUE(device->drain().ok());
        EXPECT_EQ(device->nowNs() - before, static_cast<int64_t>(hop->predictedNs));
        EXPECT_TRUE(first || hop->predictedNs + hop->leftNs == left);
        left = hop->leftNs;
      }
      EXPECT_EQ(left, 0u);
    }
}

TEST_P(CompiledPlans, SingleUnitsGiveTheBitsOfTheResidentModelOnTheHost) {
  const plan::Plan residentPlan = compile(0);
  const serve::GenerateResult resident = run(residentPlan, host::makeHostDevice({.unpaced = true}), true);
  for (const double largest : {1.0, 1.5, 2.0, 3.7}) {
    const plan::Plan plan = compileUnits(largest);
    ASSERT_EQ(plan.placements.size(), 1u);
    EXPECT_EQ(plan::offloadedWeights(plan, plan.placements[0]).layers, kLayers);
    EXPECT_EQ(plan.placements[0].slots.size(), GetParam().rule == model::StartRule::Paper ? 2u : 1u);
    for (const host::HostOptions &options :
         {host::HostOptions{}, host::HostOptions{.unpaced = true}, host::HostOptions{.poison = true}}) {
      const bool oneByOne = options.unpaced || options.poison;
      const serve::GenerateResult other = run(plan, host::makeHostDevice(options), oneByOne);
      EXPECT_EQ(other.tokens, resident.tokens) << "ring of " << largest << " units, poison " << options.poison;
      EXPECT_TRUE(!oneByOne || sameBits(other.logits, resident.logits)) << "ring of " << largest << " units";
    }
    EXPECT_GT(run(plan, sim::makeSimDevice(), false).counters.h2dBytes, 0u);
  }
}

TEST_P(CompiledPlans, RunInVirtualTimeWithTheSameIterations) {
  for (int64_t interval : {0, 1, 4}) {
    const plan::Plan plan = compile(interval);
    const serve::GenerateResult host = run(plan, host::makeHostDevice({.unpaced = true}), false);
    const serve::GenerateResult sim = run(plan, sim::makeSimDevice(), false);
    EXPECT_EQ(sim.iterations, host.iterations);
    EXPECT_EQ(sim.prefillIterations, host.prefillIterations);
    EXPECT_EQ(sim.counters.launches, host.counters.launches);
    EXPECT_EQ(sim.counters.h2dBytes, host.counters.h2dBytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CompiledPlans,
                         testing::Values(Case{"llamaEager", core::tinyLlama(6), model::StartRule::Eager},
                                         Case{"llamaPaper", core::tinyLlama(6), model::StartRule::Paper},
                                         Case{"optEager", core::tinyOpt(6), model::StartRule::Eager},
                                         Case{"optPaper", core::tinyOpt(6), model::StartRule::Paper}),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace
} // namespace headrace
