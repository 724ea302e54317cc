// SPDX-License-Identifier: Apache-2.0
//
// Caches that are split between device and host: tokens and logits do not depend on how many blocks are on the device,
// on what else is away, or on changes between placements while requests run.
#include <gtest/gtest.h>

#include <tuple>

#include "compiler/Compile.h"
#include "runtime/core/Runtime.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "runtime/sim/SimDevice.h"
#include "tests/conformance/DevicesUnderTest.h"
#include "tests/support/LongRun.h"
#include "tests/support/StatedPlacements.h"
#include "tests/support/TinyPlan.h"

namespace headrace {
namespace {

// The batch has use for 3 x 10 blocks of 4 tokens and the scratch block.
constexpr int64_t kBlocks = 31, kLayers = 4;

class SplitKv : public testing::TestWithParam<std::tuple<core::DeviceUnderTest, bool>> {
protected:
  static const core::DeviceUnderTest &under() { return std::get<0>(GetParam()); }
  // An emulated row takes its time: less of everything.
  static bool emulated() { return under().plansFor != model::DeviceKind::Host; }
  static bool all() { return longRun(); }
  static bool few() { return emulated() && !all(); }
  static compiler::CompileRequest ask() {
    compiler::CompileRequest request;
    request.model = std::get<1>(GetParam()) ? core::tinyLlama(kLayers) : core::tinyOpt(kLayers);
    request.hardware = core::tinyPlan({.spec = core::tinyLlama(1), .kind = under().plansFor}).hardware;
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
    candidate.residency.kv().setSlots(kvSlots);
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
    request.maxNewTokens = few() ? 6 : 20;
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
    const auto device = under().make();
    const auto runtime = load(plan, *device);
    return serve::generate(*runtime, request());
  }
};

// 13, 1 and 3 tokens and 20 more, of which the last has no row: 8, 5 and 6 blocks; 6 more: 5, 2 and 2.
TEST_P(SplitKv, TokensDoNotDependOnHowManyBlocksAreOnTheDevice) {
  const auto resident = expected();
  ASSERT_TRUE(resident.ok()) << resident.status();
  const int64_t used = 1 + (few() ? 9 : 19);
  for (const int64_t blocks : few() ? std::vector<int64_t>{1, 4, 30} : std::vector<int64_t>{1, 2, 7, 16, 22, 30})
    for (const int64_t interval : {0, 2})
      for (const int64_t slots : few() ? std::vector<int64_t>{0} : std::vector<int64_t>{0, 1, 3})
        for (const bool wrap : few() ? std::vector<bool>{true} : std::vector<bool>{false, true}) {
          const plan::Plan plan = compile({placement(blocks, interval, slots, wrap)});
          ASSERT_FALSE(plan.placements.empty());
          const auto device = under().make();
          const auto runtime = load(plan, *device);
          ASSERT_NE(runtime, nullptr);
          const auto result = serve::generate(*runtime, request());
          ASSERT_TRUE(result.ok()) << result.status();
          EXPECT_EQ(result->tokens, resident->tokens) << blocks << " " << interval << " " << slots << " " << wrap;
          EXPECT_TRUE(result->logits == resident->logits) << blocks << " " << interval << " " << slots;
          // What is appended above is written to its home, and what is in use of it is brought.
          EXPECT_EQ(device->counters().d2hBytes > 0, blocks < used) << blocks;
          EXPECT_EQ(device->counters().h2dBytes > 0, blocks < used || interval > 0) << blocks;
        }
}

// What is in use is the same in virtual time, and so is what is brought of it.
TEST_P(SplitKv, VirtualTimeBringsTheSameBytes) {
  for (const int64_t blocks : few() ? std::vector<int64_t>{4} : std::vector<int64_t>{1, 4, 30})
    for (const int64_t interval : few() ? std::vector<int64_t>{2} : std::vector<int64_t>{0, 2}) {
      const plan::Plan plan = compile({placement(blocks, interval)});
      serve::GenerateRequest asked = request();
      asked.keepLogits = false;
      const auto device = under().make();
      const auto virtualDevice = sim::makeSimDevice();
      std::vector<serve::GenerateResult> results;
      for (core::Device *on : {device.get(), virtualDevice.get()}) {
        const auto runtime = load(plan, *on);
        ASSERT_NE(runtime, nullptr);
        auto result = serve::generate(*runtime, asked);
        ASSERT_TRUE(result.ok()) << result.status();
        results.push_back(*std::move(result));
      }
      EXPECT_EQ(results[1].iterations, results[0].iterations) << blocks << " " << interval;
      EXPECT_EQ(results[1].counters.launches, results[0].counters.launches) << blocks << " " << interval;
      EXPECT_EQ(results[1].counters.h2dBytes, results[0].counters.h2dBytes) << blocks << " " << interval;
      EXPECT_EQ(results[1].counters.d2hBytes, results[0].counters.d2hBytes) << blocks << " " << interval;
    }
}

// Placements with other splits, and other weights away, take turns at random: 10,000 iterations on the five host
// devices with two models, or with HEADRACE_LONG on each device.
TEST_P(SplitKv, ChangesAtRandomWhileRequestsRunKeepTokensAndLogits) {
  const auto resident = expected();
  ASSERT_TRUE(resident.ok()) << resident.status();
  const plan::Plan plan = compile({placement(kBlocks, 0), placement(12, 2), placement(4, 0), placement(1, 1),
                                   placement(20, 2, 3), placement(9, 0, 0, false)});
  ASSERT_EQ(plan.placements.size(), 6u);
  const int least = few() ? 60 : all() ? 5000 : 1000;
  uint64_t random = 7;
  const auto device = under().make();
  const auto runtime = load(plan, *device);
  ASSERT_NE(runtime, nullptr);
  int iterations = 0, taken = 0;
  while (iterations < least) {
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
    ASSERT_EQ(result->tokens, resident->tokens);
    ASSERT_TRUE(result->logits == resident->logits);
  }
  EXPECT_GT(taken, least / 5);
}

INSTANTIATE_TEST_SUITE_P(Devices, SplitKv,
                         testing::Combine(testing::ValuesIn(core::devicesWithData()), testing::Bool()),
                         [](const auto &info) {
                           return std::string(std::get<0>(info.param).name) +
                                  (std::get<1>(info.param) ? "_llama" : "_opt");
                         });

} // namespace
} // namespace headrace
