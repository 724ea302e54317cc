// SPDX-License-Identifier: Apache-2.0
//
// Schedulers against each other in virtual time: 200 requests of ShareGPT's lengths on OPT-13B, resident on h100, each
// time in the same KV blocks.
#include <gtest/gtest.h>

#include <limits>

#include "compiler/Compile.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/serve/traffic/Arrivals.h"
#include "runtime/serve/traffic/Lengths.h"
#include "runtime/serve/traffic/Metrics.h"
#include "runtime/sim/SimDevice.h"

namespace headrace::serve {
namespace {

class Batching200 : public testing::Test {
protected:
  static constexpr int64_t kRequests = 200;

  void SetUp() override {
    const auto model = model::openModel("opt-13b");
    const auto hardware = model::openHardware("h100");
    ASSERT_TRUE(model.ok() && hardware.ok());
    compiler::CompileRequest request;
    request.model = model->spec;
    request.modelHash = "0";
    request.hardware = *hardware;
    request.goal.batch = 64;
    request.goal.context = 2048;
    request.goal.kvTokens = 20000;
    request.policy.name = "none";
    auto plan = compiler::compile(request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    plan_ = *std::move(plan);
  }

  struct Ran {
    TrafficMetrics metrics;
    EngineCounters engine;
  };
  Ran run(double rate, const EngineOptions &engine) const {
    const auto lengths = fittedLengths(*findLengthFit("sharegpt"), plan_.maxContext, kRequests, 1);
    const auto arrivals = arrivalTimes({.requestRate = rate}, kRequests, 1);
    const auto device = sim::makeSimDevice();
    const auto runtime = core::Runtime::load(plan_, *device, {.pricing = core::Pricing::Rows}, nullptr, {});
    EXPECT_TRUE(lengths.ok() && arrivals.ok() && runtime.ok()) << runtime.status();
    TrafficOptions options;
    options.engine = engine;
    options.keepTokenTimes = true;
    const auto result = runTraffic(**runtime, makeRequests(*arrivals, *lengths), options);
    EXPECT_TRUE(result.ok()) << result.status();
    Ran ran{summarize(*result, {}), result->engine};
    EXPECT_EQ(ran.metrics.completed, static_cast<uint64_t>(kRequests));
    return ran;
  }

  plan::Plan plan_;
};

// A static batch keeps blocks for its longest prompt and output in each seat, and seats until its last has ended.
TEST_F(Batching200, ContinuousServesSeveralTimesTheTokensOfStatic) {
  constexpr double kAtOnce = std::numeric_limits<double>::infinity();
  const Ran continuous = run(kAtOnce, {}), inBatches = run(kAtOnce, {.batching = Batching::Static});
  EXPECT_EQ(continuous.metrics.outputTokens, inBatches.metrics.outputTokens);
  EXPECT_GT(continuous.metrics.outputThroughput, 3 * inBatches.metrics.outputThroughput);
  EXPECT_EQ(continuous.engine.paddedRows, 0u);
  // Most of what a batch computes is thrown away.
  EXPECT_GT(inBatches.engine.thrownAwayRows, static_cast<uint64_t>(inBatches.metrics.outputTokens));
  EXPECT_GT(inBatches.engine.paddedRows, static_cast<uint64_t>(inBatches.metrics.inputTokens));
  EXPECT_EQ(inBatches.engine.preemptions, 0u);
}

// Decodes wait for whole prompts; beside chunks of them they go on.
TEST_F(Batching200, ChunksOfPromptsShortenTheLongestGaps) {
  const auto p99 = [&](Prefill prefill, int64_t tokens) {
    return run(5, {.maxNumBatchedTokens = tokens, .prefill = prefill}).metrics.itl.percentilesMs[1];
  };
  const double whole = p99(Prefill::Whole, 2048), chunked = p99(Prefill::Chunked, 256);
  EXPECT_LT(chunked, whole / 1.5);
}

} // namespace
} // namespace headrace::serve
