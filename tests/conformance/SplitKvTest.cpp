// SPDX-License-Identifier: Apache-2.0
//
// Caches that are split between device and host: tokens and logits do not depend on how many blocks are on the device,
// on what else is away, or on changes between placements while requests run.
#include <gtest/gtest.h>

#include "compiler/Compile.h"
#include "runtime/core/Runtime.h"
#include "runtime/host/HostDevice.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "tests/support/StatedPlacements.h"
#include "tests/support/TinyPlan.h"

namespace headrace {
namespace {

// The batch has use for 3 x 10 blocks of 4 tokens and the scratch block.
constexpr int64_t kBlocks = 31, kLayers = 4;

class SplitKv : public testing::TestWithParam<bool> {
protected:
  static compiler::CompileRequest ask() {
    compiler::CompileRequest request;
    request.model = GetParam() ? core::tinyLlama(kLayers) : core::tinyOpt(kLayers);
    request.hardware = core::tinyPlan({.spec = core::tinyLlama(1)}).hardware;
    request.hardware.flopsF32 = request.hardware.flopsF16 = 1e10;
    request.hardware.memoryBandwidth = 1e10;
    request.hardware.flopsEfficiency = request.hardware.memoryEfficiency = 0.5;
    request.goal.batch = 3;
    request.goal.context = 40;
    request.goal.blockTokens = 4;
    request.buckets = {.newTokens = {1, 3, 8}, .sequences = {1, 3}, .contexts = {16, 40}};
    return request;
  }
  // `resident`: blocks on the device, the scratch block included; `interval`: of the weights, 0 none away.
  static compiler::Candidate placement(int64_t resident, int64_t interval, int64_t kvSlots = 0, bool wrap = true) {
    compiler::Candidate candidate =
        compiler::stated(ask().model, {interval > 0 ? compiler::interval(interval) : compiler::none()}).front();
    candidate.name += " kv " + std::to_string(resident);
    candidate.residency.wrap.around = wrap;
    if (resident < kBlocks)
      candidate.residency.setKvAway(kLayers, resident);
    candidate.residency.kvSlots = kvSlots;
    return candidate;
  }
  static plan::Plan compile(const std::vector<compiler::Candidate> &placements) {
    compiler::CompileRequest request = ask();
    request.placements = placements;
    auto plan = compiler::compile(request);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? *std::move(plan) : plan::Plan{};
  }
  static serve::GenerateRequest request() {
    serve::GenerateRequest request;
    request.prompts = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}, {42}, {7, 7, 149}};
    request.maxNewTokens = 20;
    request.keepLogits = true;
    return request;
  }
  static std::unique_ptr<core::Runtime> load(const plan::Plan &plan, core::Device &device, uint32_t placement = 0) {
    const auto weights = model::syntheticWeights(1);
    auto runtime = core::Runtime::load(plan, device, {}, weights.get(), {.placement = placement});
    EXPECT_TRUE(runtime.ok()) << runtime.status();
    return runtime.ok() ? *std::move(runtime) : nullptr;
  }
  static absl::StatusOr<serve::GenerateResult> expected() {
    const plan::Plan plan = compile({placement(kBlocks, 0)});
    const auto device = host::makeHostDevice({.unpaced = true});
    const auto runtime = load(plan, *device);
    return serve::generate(*runtime, request());
  }
};

TEST_P(SplitKv, TokensDoNotDependOnHowManyBlocksAreOnTheDevice) {
  const auto resident = expected();
  ASSERT_TRUE(resident.ok()) << resident.status();
  for (const int64_t blocks : {1, 2, 7, 16, 22, 30})
    for (const int64_t interval : {0, 2})
      for (const int64_t slots : {0, 1, 3})
        for (const bool wrap : {false, true}) {
          const plan::Plan plan = compile({placement(blocks, interval, slots, wrap)});
          ASSERT_FALSE(plan.placements.empty());
          for (const host::HostOptions &options :
               {host::HostOptions{.unpaced = true}, host::HostOptions{.poison = true}}) {
            const auto device = host::makeHostDevice(options);
            const auto runtime = load(plan, *device);
            ASSERT_NE(runtime, nullptr);
            const auto result = serve::generate(*runtime, request());
            ASSERT_TRUE(result.ok()) << result.status();
            EXPECT_EQ(result->tokens, resident->tokens) << blocks << " " << interval << " " << slots << " " << wrap;
            EXPECT_TRUE(result->logits == resident->logits) << blocks << " " << interval << " " << slots;
            // What is appended above is written to its home, and what is in use of it is brought.
            EXPECT_EQ(device->counters().d2hBytes > 0, blocks < 22) << blocks;
            EXPECT_EQ(device->counters().h2dBytes > 0, blocks < 22 || interval > 0) << blocks;
          }
        }
}

// 10,000 iterations on one device while placements with other splits, and other weights away, take turns at random.
TEST_P(SplitKv, ChangesAtRandomWhileRequestsRunKeepTokensAndLogits) {
  const auto resident = expected();
  ASSERT_TRUE(resident.ok()) << resident.status();
  const plan::Plan plan = compile({placement(kBlocks, 0), placement(12, 2), placement(4, 0), placement(1, 1),
                                   placement(20, 2, 3), placement(9, 0, 0, false)});
  ASSERT_EQ(plan.placements.size(), 6u);
  uint64_t random = 7;
  for (const host::HostOptions &options : {host::HostOptions{.unpaced = true}, host::HostOptions{.poison = true}}) {
    const auto device = host::makeHostDevice(options);
    const auto runtime = load(plan, *device);
    ASSERT_NE(runtime, nullptr);
    int iterations = 0, taken = 0;
    while (iterations < 5000) {
      serve::GenerateRequest asked = request();
      asked.onIteration = [&](const serve::IterationSeen &) {
        ++iterations;
        random = random * 6364136223846793005u + 1442695040888963407u;
        const auto target = static_cast<uint32_t>((random >> 33) % plan.placements.size());
        if ((random >> 61) < 4)
          return;
        taken += target != runtime->placement();
        const auto hop = runtime->takeHop(target);
        ASSERT_TRUE(hop.ok()) << hop.status();
      };
      const auto result = serve::generate(*runtime, asked);
      ASSERT_TRUE(result.ok()) << result.status();
      ASSERT_EQ(result->tokens, resident->tokens) << "poison " << options.poison;
      ASSERT_TRUE(result->logits == resident->logits) << "poison " << options.poison;
    }
    EXPECT_GT(taken, 1000);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SplitKv, testing::Bool(),
                         [](const auto &info) { return info.param ? "llama" : "opt"; });

} // namespace
} // namespace headrace
