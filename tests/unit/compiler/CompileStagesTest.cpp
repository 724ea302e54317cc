// SPDX-License-Identifier: Apache-2.0
//
// Where a model is cut: by brute force over all cuts of small models, what does not fit, and how many devices will do.
#include "compiler/CompileStages.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/Compile.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/StagesFile.h"
#include "runtime/plan/value/PlanBytes.h"
#include "runtime/sim/StagedTime.h"
#include "tests/unit/compiler/Requests.h"

namespace headrace::compiler {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

absl::Status all(const plan::Plan &) { return absl::OkStatus(); }

uint64_t decodeNs(const plan::Plan &plan) {
  const plan::Variant *largest = nullptr;
  for (const plan::Variant &v : plan.variants)
    if (plan.schedules[v.schedule].iterationClass == plan::IterationClass::Decode && v.placement == 0 &&
        (largest == nullptr || std::tuple(v.newTokens, v.sequences, v.context) >
                                   std::tuple(largest->newTokens, largest->sequences, largest->context)))
      largest = &v;
  return largest->predictedNs;
}

std::vector<int64_t> layersOf(const StagedPlans &made) {
  std::vector<int64_t> layers;
  for (const plan::Plan &plan : made.plans)
    layers.push_back(plan.model->layers);
  return layers;
}
uint64_t longestOf(const std::vector<plan::Plan> &plans) {
  uint64_t longest = 0;
  for (const plan::Plan &plan : plans)
    longest = std::max(longest, decodeNs(plan));
  return longest;
}

// The least longest stage of all cuts into so many.
uint64_t bestCut(const CompileRequest &request, int64_t first, int64_t stages) {
  const int64_t left = request.model->layers - first;
  uint64_t best = UINT64_MAX;
  for (int64_t layers = stages == 1 ? left : 1; layers <= left - (stages - 1); ++layers) {
    CompileRequest of = request;
    of.model = model::stageOf(*request.model, first, layers);
    const auto plan = compile(of);
    if (!plan.ok())
      continue;
    const uint64_t rest = stages == 1 ? 0 : bestCut(request, first + layers, stages - 1);
    best = std::min(best, std::max(decodeNs(*plan), rest));
  }
  return best;
}

TEST(CompileStages, CutsByTimeAsWellAsAnyCut) {
  for (model::ModelSpec spec : {tinyLlama(7), tinyQwen(6, true), tinyOpt(7)})
    for (const int64_t vocab : {256, 6000}) { // the head of the last takes as long as layers
      spec.vocab = vocab;
      const CompileRequest asked = request(spec);
      for (const int64_t stages : {2, 3}) {
        const auto made = compileStages(asked, stages, all);
        ASSERT_TRUE(made.ok()) << made.status();
        ASSERT_EQ(made->plans.size(), static_cast<size_t>(stages));
        std::vector<const plan::Plan *> plans;
        for (const plan::Plan &plan : made->plans)
          plans.push_back(&plan);
        EXPECT_TRUE(plan::checkStages(plans).ok()) << plan::checkStages(plans);
        EXPECT_EQ(longestOf(made->plans), bestCut(asked, 0, stages)) << spec.name << ' ' << vocab << ' ' << stages;
      }
    }
}

TEST(CompileStages, SaysWhereAndWhy) {
  model::ModelSpec spec = tinyLlama(8);
  const auto equal = compileStages(request(spec), 4, all);
  ASSERT_TRUE(equal.ok()) << equal.status();
  EXPECT_THAT(equal->reason, HasSubstr("Cut by predicted time into "));
  spec.vocab = 20'000;
  const auto uneven = compileStages(request(spec), 2, all);
  ASSERT_TRUE(uneven.ok()) << uneven.status();
  EXPECT_GT(layersOf(*uneven).front(), 4);
  EXPECT_THAT(uneven->reason, HasSubstr("; as many each would be "));
}

// Where nothing may be away a device holds half of the layers, not all.
TEST(CompileStages, AutoTakesTheFewestThatHoldIt) {
  CompileRequest asked = request(tinyLlama(8));
  asked.policy.name = "none";
  const auto whole = compile(asked);
  ASSERT_TRUE(whole.ok()) << whole.status();
  const auto one = compileStages(asked, 0, all);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->plans.size(), 1u);
  EXPECT_FALSE(one->plans.front().model->isStage());
  asked.goal.deviceMemory = whole->arenaBytes * 3 / 4;
  const auto two = compileStages(asked, 0, all);
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ(two->plans.size(), 2u);
  for (const plan::Plan &plan : two->plans)
    EXPECT_LE(plan.arenaBytes, *asked.goal.deviceMemory);
  const absl::Status refused = compileStages(asked, 1, all).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("stage 0 of 1, layers 0 to 7: "));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("; 2 stages would do"));
  // Objectives: the third try holds.
  int tries = 0;
  const auto third = compileStages(request(tinyLlama(8)), 0, [&](const plan::Plan &plan) {
    return plan.model->layers > 3 && ++tries > 0 ? absl::ResourceExhaustedError("too long") : absl::OkStatus();
  });
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(third->plans.size(), 3u);
  EXPECT_GE(tries, 2);
}

// A middle stage's place is in its name alone: what was compiled to time it is its plan wherever it is.
TEST(CompileStages, PlansAreThoseOfTheirLayers) {
  const CompileRequest asked = request(tinyLlama(7));
  const auto made = compileStages(asked, 4, all);
  ASSERT_TRUE(made.ok()) << made.status();
  int64_t first = 0;
  for (const plan::Plan &plan : made->plans) {
    CompileRequest of = asked;
    of.model = model::stageOf(*asked.model, first, plan.model->layers);
    const auto alone = compile(of);
    ASSERT_TRUE(alone.ok()) << alone.status();
    EXPECT_EQ(plan::encode(plan), plan::encode(*alone)) << first;
    first += plan.model->layers;
  }
}

// Seventeen devices, of which 11 do: 1, 2, 4, 8 do not, 16 do, then 12, 10, 11.
TEST(CompileStages, TheFewestAreSoughtByHalves) {
  std::vector<size_t> tried;
  const auto made = compileStages(request(tinyLlama(22)), 0, [&](const plan::Plan &plan) {
    if (plan.model->stage.first == 0) // the first of a cut
      tried.push_back(static_cast<size_t>(plan.model->layers));
    return plan.model->layers > 2 ? absl::ResourceExhaustedError("too long") : absl::OkStatus();
  });
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->plans.size(), 11u);
  EXPECT_EQ(tried.size(), 8u);
  tried.clear();
  const auto none = compileStages(request(tinyLlama(22)), 0, [&](const plan::Plan &plan) {
    if (plan.model->stage.first == 0)
      tried.push_back(static_cast<size_t>(plan.model->layers));
    return absl::ResourceExhaustedError("too long");
  });
  EXPECT_EQ(tried.size(), 5u); // 1, 2, 4, 8, 16
  EXPECT_EQ(none.status().message(),
            "stage 0 of 1: too long; stage 0 of 16: too long; no number of stages up to 16 would do");
}

sim::StagedDecode decodeOf(const StagedPlans &made) {
  std::vector<const plan::Plan *> plans;
  for (const plan::Plan &plan : made.plans)
    plans.push_back(&plan);
  return sim::predictDecode(plans);
}

// A card that reads 32 GB/s of its own memory, which holds all, beside a CPU that attends at 180 GB/s or at 22: either
// is faster for a stage by itself, as it attends while the card computes. Four stages have the slow one a quarter of
// the time each, and attend on their cards.
TEST(CompileStages, StagesWeighTheCpuThatTheyShare) {
  CompileRequest asked = shipped("opt-6.7b", "v100-16-power9", 64, 1024);
  asked.hardware.memoryBytes = uint64_t{64} << 30;
  asked.goal.deviceMemory.reset();
  asked.hardware.memoryBandwidth = 40e9;
  asked.goal.miniBatches = 2;
  for (const bool fast : {true, false}) {
    asked.hardware.cpu.coreBandwidth = fast ? 4.1e9 : 0.5e9;
    asked.policy.attention = model::Attention::Auto;
    const auto open = compileStages(asked, 4, all);
    asked.policy.attention = model::Attention::Device;
    const auto device = compileStages(asked, 4, all);
    ASSERT_TRUE(open.ok() && device.ok()) << open.status() << device.status();
    EXPECT_THAT(open->reason, HasSubstr(". Attention, a token of all micro-batches: on the CPU that stages share "));
    for (const plan::Plan &plan : open->plans)
      EXPECT_EQ(plan.attendsOnCpu(), fast);
    if (fast)
      EXPECT_LT(decodeOf(*open).tokenNs, decodeOf(*device).tokenNs);
    else
      EXPECT_EQ(decodeOf(*open).tokenNs, decodeOf(*device).tokenNs);
  }
}

// Of each objective a stage has its part.
// There is one host: six layers of which each stage brings all have what the machine has between them.
TEST(CompileStages, HostMemoryIsTheMachines) {
  CompileRequest asked = request(tinyLlama(6));
  asked.policy.interval = 1;
  const auto free = compileStages(asked, 2, all);
  ASSERT_TRUE(free.ok()) << free.status();
  uint64_t most = 0; // of a layer
  for (const plan::Plan &plan : free->plans)
    most = std::max(most, plan.hostBytes / static_cast<uint64_t>(plan.model->layers) + 1);
  asked.hardware.hostMemoryBytes = 6 * most;
  const auto made = compileStages(asked, 2, all);
  ASSERT_TRUE(made.ok()) << made.status();
  uint64_t sum = 0;
  for (const plan::Plan &plan : made->plans) {
    sum += plan.hostBytes;
    EXPECT_EQ(plan.hardware.hostMemoryBytes, 6 * most);
  }
  EXPECT_LE(sum, 6 * most);
  asked.hardware.hostMemoryBytes = 3 * most; // either would have it
  const auto less = compileStages(asked, 2, all);
  EXPECT_EQ(less.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(less.status().message()),
              HasSubstr("layers 0 to 2, which has 3/6 of the machine's host memory: "));
}

TEST(CompileStages, ObjectivesAreSplit) {
  CompileRequest asked = request(tinyLlama(6));
  asked.goal.tpot = std::chrono::milliseconds(30);
  const auto made = compileStages(asked, 3, all);
  ASSERT_TRUE(made.ok()) << made.status();
  for (const plan::Plan &plan : made->plans)
    EXPECT_EQ(plan.goal.tpot, std::chrono::milliseconds(10));
}

TEST(CompileStages, RefusesByName) {
  const auto refusal = [](const CompileRequest &asked, int64_t stages) {
    const auto made = compileStages(asked, stages, all);
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(made.status().message());
  };
  EXPECT_EQ(refusal(request(tinyLlama(4)), 5), "stages: 5: expected 1 to 4, the layers of " + tinyLlama(4).name);
  EXPECT_EQ(refusal(request(tinyLlama(40)), 17), "stages: 17: expected 1 to 16, or auto");
  CompileRequest asked = request(tinyLlama(4));
  asked.goal.instances = model::Instances::Apart;
  EXPECT_EQ(refusal(asked, 2), "stage 0 of 2, layers 0 to 1: stages beside goal.instances = \"apart\": "
                               "expected instances \"together\": sequences are not handed "
                               "over among stages");
  for (const char *policy :
       {"hybridserve", "pie", "select-n", "deepspeed", "accelerate", "vllm-prefetch", "flexgen", "flexgen-nobus"}) {
    asked = request(tinyLlama(4));
    asked.policy.name = policy;
    asked.goal.tpot = std::chrono::milliseconds(100);
    EXPECT_THAT(refusal(asked, 2), HasSubstr("beside policy.name = \"" + std::string(policy) + "\": expected "));
  }
  asked = request(tinyLlama(4));
  asked.policy.startRule = model::StartRule::Paper;
  EXPECT_THAT(refusal(asked, 2), HasSubstr("beside policy.start_rule = \"paper\""));
  asked = request(tinyLlama(4));
  asked.policy.offloadEmbedding = model::AutoOnOff::On;
  asked.model = model::stageOf(tinyLlama(4), 2, 2);
  EXPECT_EQ(compile(asked).status().message(),
            "policy.offload_embedding = \"on\": expected \"auto\" or \"off\" of a stage without embedding");
}

} // namespace
} // namespace headrace::compiler
