// SPDX-License-Identifier: Apache-2.0
//
// Adaptive expansion in virtual time, on plans of large models on Pie's device: tokens/s, once the cache has filled,
// against those of every fixed number of blocks; and that what is brought is hardly more than the blocks in use.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/Compile.h"
#include "runtime/job/JobFile.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/CacheMap.h"
#include "runtime/serve/traffic/Lengths.h"
#include "runtime/serve/traffic/Traffic.h"
#include "runtime/sim/SimDevice.h"
#include "tests/support/LongRun.h"

namespace headrace::serve {
namespace {

struct Case {
  std::string name, model, lengths;
  uint64_t kvBytes = 0; // of the device
  int64_t requests = 0; // enough for all of the time
  std::string policy = "interval";
  std::optional<uint64_t> deviceMemory = std::nullopt; // what weights have to leave for
  double least = 0.94; // of the best placement: levels that are a few percent apart cannot be told apart for long
};

constexpr int64_t kFilledNs = 20'000'000'000, kEndNs = 50'000'000'000;

plan::Plan planOf(const Case &one) {
  compiler::CompileRequest request;
  const auto model = model::openModel(one.model);
  const auto hardware = model::openHardware("gh200");
  EXPECT_TRUE(model.ok() && hardware.ok());
  request.model = model->spec;
  request.modelHash = "0";
  request.hardware = *hardware;
  request.goal.batch = 256;
  request.goal.context = 2048;
  request.goal.kvDeviceMemory = one.kvBytes;
  request.goal.expansion = model::kAutoExpansion;
  request.policy.none = !one.deviceMemory;
  request.goal.deviceMemory = one.deviceMemory;
  request.policy.name = one.policy;
  auto plan = compiler::compile(request);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : plan::Plan();
}

struct Found {
  double tokensPerS = 0;
  TrafficResult traffic;
};

// All requests at once. `fixed`: so many blocks, in this placement; else the engine finds them.
struct Fixed {
  int64_t blocks = 0;
  uint32_t placement = 0;
};
Found play(const plan::Plan &plan, const Case &one, std::optional<Fixed> fixed) {
  const auto device = sim::makeSimDevice();
  auto runtime = core::Runtime::load(plan, *device, {.pricing = core::Pricing::Rows}, nullptr, {});
  EXPECT_TRUE(runtime.ok()) << runtime.status();
  const auto lengths = fittedLengths(*findLengthFit(one.lengths), plan.maxContext, one.requests, 0);
  EXPECT_TRUE(lengths.ok());
  const std::vector<int64_t> arrivals(static_cast<size_t>(one.requests), 0);
  int64_t tokens = 0, later = 0;
  TrafficOptions options{.engine = {.adaptsExpansion = !fixed}};
  const int64_t startNs = device->nowNs();
  options.onToken = [&](size_t, const EngineToken &token) {
    const int64_t ns = token.visibleNs - startNs;
    tokens += ns >= kFilledNs && ns < kEndNs;
    later += ns >= kEndNs;
  };
  if (fixed) {
    (*runtime)->kvBlocks().setOffered(fixed->blocks);
    options.engine.placementOf = [fixed](const ComposedIteration &) { return fixed->placement; };
  }
  auto traffic = runTraffic(**runtime, makeRequests(arrivals, *lengths), options);
  EXPECT_TRUE(traffic.ok()) << traffic.status();
  EXPECT_EQ((*runtime)->kvBlocks().used(), 0);
  EXPECT_GT(later, 0) << "too few requests";
  return {static_cast<double>(tokens) / (static_cast<double>(kEndNs - kFilledNs) / 1e9), *std::move(traffic)};
}

class AdaptiveExpansion : public testing::TestWithParam<Case> {};

TEST_P(AdaptiveExpansion, ServesAsTheBestFixedExpansionDoes) {
  const plan::Plan plan = planOf(GetParam());
  const int64_t resident = plan::CacheMap(plan, plan.placements[0]).resident(), most = plan.kvBlocks - 1;
  ASSERT_LT(resident, most);
  const Found adaptive = play(plan, GetParam(), std::nullopt);
  double best = 0, alone = 0; // the latter: with the blocks at home on the device
  const int64_t steps = longRun() ? 100 : 5;
  for (int64_t step = 0; step <= steps; ++step) {
    const double rate = play(plan, GetParam(), Fixed{resident + (most - resident) * step / steps}).tokensPerS;
    best = std::max(best, rate);
    alone = step == 0 ? rate : alone;
  }
  EXPECT_GE(adaptive.tokensPerS, 0.98 * best);
  EXPECT_GT(adaptive.tokensPerS, 1.1 * alone); // it was worth the while
  // What is brought: of each layer the blocks in use, and 2% beside.
  const EngineCounters &engine = adaptive.traffic.engine;
  const auto least = static_cast<double>(engine.leastBroughtBytes),
             brought = static_cast<double>(adaptive.traffic.device.h2dBytes + engine.compactionBytes);
  EXPECT_LE(brought, 1.02 * least);
  std::printf("%s: %.0f tokens/s, the best fixed %.0f, the device's alone %.0f; brought %.4f of the least\n",
              GetParam().name.c_str(), adaptive.tokensPerS, best, alone, brought / least);
}

// Of these the first ones without HEADRACE_LONG: thousands of requests of a larger model take their time.
std::vector<Case> firstOrAll(std::vector<Case> cases) {
  if (!longRun())
    cases.pop_back();
  return cases;
}

INSTANTIATE_TEST_SUITE_P(
    Models, AdaptiveExpansion,
    testing::ValuesIn(firstOrAll({Case{"Opt13bSharegpt3", "opt-13b", "sharegpt", 3'000'000'000, 500},
                                  Case{"Opt13bSharegpt7", "opt-13b", "sharegpt", 7'000'000'000, 900},
                                  Case{"Opt30bAlpaca3", "opt-30b", "alpaca", 3'000'000'000, 4000},
                                  Case{"Llama13bAlpaca3", "llama-13b", "alpaca", 3'000'000'000, 8000}})),
    [](const auto &info) { return info.param.name; });

// Of 30 GB OPT-13B's weights take 25.7. With 3.4 GB for KV all of them stay; with more of it weights leave for it, and
// are brought in every iteration, while a block is only where it is in use.
TEST(AdaptiveExpansion, KvLeavesTheDeviceBeforeWeightsDo) {
  std::vector<double> rates;
  std::vector<int32_t> offloaded;
  for (const uint64_t kvBytes : {3'400'000'000, 6'000'000'000, 10'000'000'000}) {
    Case one{"Opt13bSharegpt", "opt-13b", "sharegpt", kvBytes, 1000};
    one.deviceMemory = 30'000'000'000;
    const plan::Plan plan = planOf(one);
    offloaded.push_back(plan::offloadedWeights(plan, plan.placements[0]).layers);
    rates.push_back(play(plan, one, std::nullopt).tokensPerS);
  }
  EXPECT_EQ(offloaded[0], 0);
  EXPECT_GT(offloaded[1], 0);
  EXPECT_GT(offloaded[2], offloaded[1]);
  EXPECT_GT(rates[0], rates[1]);
  EXPECT_GT(rates[0], rates[2]);
  std::printf("3.4, 6 and 10 GB of 30 GB for KV: %.0f, %.0f, %.0f tokens/s; %d, %d, %d layers away\n", rates[0],
              rates[1], rates[2], offloaded[0], offloaded[1], offloaded[2]);
}

// Pie's layers swapped whole: each placement has an expansion of its own, and the engine goes from one to the next.
class AdaptivePlaces : public testing::TestWithParam<Case> {};

TEST_P(AdaptivePlaces, ServeAsTheBestOfThemDoes) {
  const plan::Plan plan = planOf(GetParam());
  ASSERT_GT(plan.placements.size(), 3u);
  const Found adaptive = play(plan, GetParam(), std::nullopt);
  double best = 0, alone = 0; // the latter: with all of fewer blocks on the device
  for (uint32_t p = 0; p < plan.placements.size(); ++p) {
    const double rate = play(plan, GetParam(), Fixed{plan.placements[p].kvBlocks - 1, p}).tokensPerS;
    best = std::max(best, rate);
    alone = p == 0 ? rate : alone;
  }
  EXPECT_GE(adaptive.tokensPerS, GetParam().least * best);
  EXPECT_GT(adaptive.tokensPerS, 1.1 * alone);
  std::printf("%s: %.0f tokens/s, the best placement %.0f, all on the device %.0f\n", GetParam().name.c_str(),
              adaptive.tokensPerS, best, alone);
}

INSTANTIATE_TEST_SUITE_P(
    Models, AdaptivePlaces,
    testing::ValuesIn(
        firstOrAll({Case{"Opt13bSharegpt3", "opt-13b", "sharegpt", 3'000'000'000, 500, "pie"},
                    Case{"Opt30bSharegpt3", "opt-30b", "sharegpt", 3'000'000'000, 300, "pie"},
                    // Larger placements gain by what prompts hide, which iterations that only decode do not tell.
                    Case{"Opt30bAlpaca3", "opt-30b", "alpaca", 3'000'000'000, 3000, "pie", std::nullopt, 0.87},
                    Case{"Llama13bAlpaca3", "llama-13b", "alpaca", 3'000'000'000, 6000, "pie"}})),
    [](const auto &info) { return info.param.name; });

} // namespace
} // namespace headrace::serve
