// SPDX-License-Identifier: Apache-2.0
//
// KV blocks in memory that offloaded weights leave: tokens do not depend on which memory a block is in, blocks keep
// what they hold while placements change, and no change takes memory from a block in use.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "compiler/Compile.h"
#include "runtime/core/Runtime.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "runtime/sim/SimDevice.h"
#include "tests/conformance/DevicesUnderTest.h"
#include "tests/support/StatedPlacements.h"
#include "tests/support/TinyPlan.h"

namespace headrace {
namespace {

using testing::HasSubstr;

class ElasticKv : public testing::TestWithParam<std::tuple<core::DeviceUnderTest, bool>> {
protected:
  static const core::DeviceUnderTest &under() { return std::get<0>(GetParam()); }
  // Interval none, 6, 3, 2 and 1 of six layers. The batch has use for 3 x 10 blocks of 4 tokens and the scratch block;
  // the goal asks for 10 and that one.
  static plan::Plan compile(model::AutoOnOff elastic, std::optional<int64_t> kvTokens = 40) {
    compiler::CompileRequest request;
    request.model = std::get<1>(GetParam()) ? core::tinyLlama(6) : core::tinyOpt(6);
    request.hardware = core::tinyPlan({.spec = core::tinyLlama(1), .kind = under().plansFor}).hardware;
    request.hardware.flopsF32 = request.hardware.flopsF16 = 1e10;
    request.hardware.memoryBandwidth = 1e10;
    request.hardware.flopsEfficiency = request.hardware.memoryEfficiency = 0.5;
    request.goal.batch = 3;
    request.goal.context = 40;
    request.goal.blockTokens = 4;
    request.goal.kvTokens = kvTokens;
    request.goal.elasticKv = elastic;
    std::vector<model::Policy> policies{compiler::none()};
    for (const int64_t interval : {6, 3, 2, 1}) {
      policies.push_back(compiler::interval(interval));
      policies.back().startRule = model::StartRule::Paper; // one slot, where layers are not neighbours
    }
    request.placements = compiler::stated(request.model, policies);
    request.buckets = {.newTokens = {1, 3, 8}, .sequences = {1, 3}, .contexts = {16, 40}};
    auto plan = compiler::compile(request);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? *std::move(plan) : plan::Plan{};
  }

  // 13, 1 and 3 tokens and 20 more: 9, 6 and 6 blocks.
  static constexpr int64_t kBlocks = 21;
  static serve::GenerateRequest request(bool keepLogits) {
    serve::GenerateRequest request;
    request.prompts = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}, {42}, {7, 7, 149}};
    request.maxNewTokens = 20;
    request.keepLogits = keepLogits;
    return request;
  }
  static std::unique_ptr<core::Runtime> load(const plan::Plan &plan, core::Device &device, uint32_t placement) {
    const auto weights = model::syntheticWeights(1);
    auto runtime = core::Runtime::load(plan, device, {}, weights.get(), {.placement = placement});
    EXPECT_TRUE(runtime.ok()) << runtime.status();
    return runtime.ok() ? *std::move(runtime) : nullptr;
  }
};

TEST_P(ElasticKv, PlacementsThatOffloadMoreHaveMoreBlocks) {
  const plan::Plan plan = compile(model::AutoOnOff::Auto), fixed = compile(model::AutoOnOff::Off);
  ASSERT_EQ(plan.placements.size(), 5u);
  for (const plan::Placement &placement : fixed.placements)
    EXPECT_EQ(placement.kvBlocks, 11);
  EXPECT_GE(plan.placements[0].kvBlocks, 11);
  EXPECT_LT(plan.placements[0].kvBlocks, kBlocks);
  for (size_t p = 1; p < plan.placements.size(); ++p)
    EXPECT_GE(plan.placements[p].kvBlocks, plan.placements[p - 1].kvBlocks) << p;
  EXPECT_GE(plan.placements[4].kvBlocks, 30); // nearly, or just, all that the batch has use for
  // No larger, but for the ids of the tokens of all blocks that any placement may come to have: of 11 blocks,
  // and of 1 + 3 x 10, of 4 tokens each, 4 bytes a token.
  const auto ids = [](const plan::Plan &of) { return of.buffers[of.ioBuffer(plan::Io::History)].bytes; };
  EXPECT_EQ(ids(fixed), model::alignUp(11 * 4 * 4));
  EXPECT_EQ(ids(plan), model::alignUp(31 * 4 * 4));
  EXPECT_LE(plan.arenaBytes - ids(plan), fixed.arenaBytes - ids(fixed));
  // A block is where it is in all placements.
  for (const plan::Placement &placement : plan.placements)
    for (int64_t layer = 0; layer < plan.model->layers; ++layer) {
      const plan::Extent &home = placement.extents[plan.kvBuffer(layer)];
      EXPECT_TRUE(home.interleaved);
      EXPECT_EQ(home.address, plan.placements[0].extents[plan.kvBuffer(layer)].address);
      EXPECT_EQ(home.bytes, static_cast<uint64_t>(placement.kvBlocks) * plan.kvBlockBytes());
    }
  // A cache that holds all that the batch has use for does not grow.
  const plan::Plan large = compile(model::AutoOnOff::On, std::nullopt);
  for (const plan::Placement &placement : large.placements)
    EXPECT_EQ(placement.kvBlocks, 31);
  EXPECT_FALSE(large.placements[4].extents[large.kvBuffer(0)].interleaved);
}

TEST_P(ElasticKv, TokensDoNotDependOnWhereTheirBlocksAre) {
  const plan::Plan plan = compile(model::AutoOnOff::On), large = compile(model::AutoOnOff::Off, std::nullopt);
  const auto reference = under().make();
  const auto resident = load(large, *reference, 0);
  ASSERT_NE(resident, nullptr);
  const auto expected = serve::generate(*resident, request(true));
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const bool oneByOne : {false, true}) { // else two are in flight
    const auto device = under().make();
    const auto runtime = load(plan, *device, 4);
    ASSERT_NE(runtime, nullptr);
    serve::GenerateRequest asked = request(oneByOne);
    int refused = 0, taken = 0;
    uint64_t random = 7;
    asked.onIteration = [&](const serve::IterationSeen &) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      const auto target = static_cast<uint32_t>((random >> 33) % plan.placements.size());
      const int64_t has = plan.placements[target].kvBlocks;
      const int64_t above = runtime->kvBlocks().blocksInUseAbove(has);
      const auto hop = runtime->takeHop(target);
      if (above > 0) {
        ++refused;
        EXPECT_EQ(hop.status().code(), absl::StatusCode::kFailedPrecondition);
        EXPECT_THAT(std::string(hop.status().message()), HasSubstr(std::to_string(above) + " of those that it has not "
                                                                                           "are in use"));
        return;
      }
      ASSERT_TRUE(hop.ok()) << hop.status();
      ++taken;
      EXPECT_EQ(runtime->kvBlocks().limit(), plan.placements[hop->placement].kvBlocks);
      if (has <= kBlocks) { // too few for what is to come
        ASSERT_TRUE(runtime->takeHop(4).ok());
      }
    };
    const auto result = serve::generate(*runtime, asked);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->tokens, expected->tokens);
    EXPECT_TRUE(!oneByOne || result->logits == expected->logits);
    EXPECT_GT(taken, 2);
    EXPECT_GT(refused, 0);
    EXPECT_EQ(runtime->kvBlocks().blocksInUseAbove(0), 0);
  }
}

// Asked for from 30 rows on, when 8 + 5 + 5 blocks are in use at least: the contexts of 30, 31 and 32.
TEST_P(ElasticKv, APlacementWithoutTheBlocksInUseIsNotTakenAndCounted) {
  const plan::Plan plan = compile(model::AutoOnOff::On);
  ASSERT_LE(plan.placements[0].kvBlocks, 18);
  const auto device = under().make();
  const auto runtime = load(plan, *device, 4);
  ASSERT_NE(runtime, nullptr);
  serve::GenerateRequest asked = request(false);
  asked.placementOf = [](const serve::ComposedIteration &next) { return next.context >= 30 ? 0u : 4u; };
  const auto result = serve::generate(*runtime, asked);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->placementsNotTaken, 3u);
  EXPECT_EQ(runtime->placement(), 4u);
}

// Bytes in a block that only some placements have stay through changes between these.
TEST_P(ElasticKv, BlocksInGrownMemoryKeepTheirBytes) {
  const plan::Plan plan = compile(model::AutoOnOff::On);
  const auto device = under().make();
  const auto runtime = load(plan, *device, 4);
  ASSERT_NE(runtime, nullptr);
  const int64_t grown = plan.placements[0].kvBlocks; // the first block that placement 0 does not have
  std::vector<uint32_t> roomy;
  for (uint32_t p = 0; p < plan.placements.size(); ++p)
    if (plan.placements[p].kvBlocks > grown)
      roomy.push_back(p);
  ASSERT_GE(roomy.size(), 2u);
  const uint64_t block = plan.kvBlockBytes(), offset = static_cast<uint64_t>(grown) * plan.kvStride();
  std::vector<std::byte> written(block), read(block);
  const auto address = [&](int64_t layer) { return plan.placements[0].extents[plan.kvBuffer(layer)].address + offset; };
  for (int64_t layer = 0; layer < plan.model->layers; ++layer) {
    std::fill(written.begin(), written.end(), static_cast<std::byte>(layer + 1));
    ASSERT_TRUE(device->writeDevice(address(layer), written).ok());
  }
  std::vector<int32_t> table;
  ASSERT_TRUE(runtime->kvBlocks().grow(table, 4 * grown).ok()); // blocks 1 to `grown`
  for (const uint32_t target : {roomy[0], roomy[1], roomy[0]}) {
    while (runtime->placement() != target)
      ASSERT_TRUE(runtime->takeHop(target).ok());
    for (int64_t layer = 0; layer < plan.model->layers; ++layer) {
      ASSERT_TRUE(device->readDevice(address(layer), absl::MakeSpan(read)).ok());
      EXPECT_EQ(std::count(read.begin(), read.end(), static_cast<std::byte>(layer + 1)), static_cast<int64_t>(block));
    }
  }
  EXPECT_FALSE(runtime->takeHop(0).ok());
  // A variant of a placement without room is not launched either.
  ASSERT_EQ(plan.variants[0].placement, 0u);
  const uint64_t launches = device->counters().launches;
  EXPECT_EQ(runtime->launch(0).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(device->counters().launches, launches);
  runtime->kvBlocks().release(table);
  EXPECT_TRUE(runtime->takeHop(0).ok());
}

TEST_P(ElasticKv, RunsInVirtualTime) {
  const plan::Plan plan = compile(model::AutoOnOff::On);
  const auto device = sim::makeSimDevice();
  const auto runtime = load(plan, *device, 4);
  ASSERT_NE(runtime, nullptr);
  const auto result = serve::generate(*runtime, request(false));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(device->counters().peakDeviceBytes, plan.arenaBytes);
}

// What does not fit the present placement at once waits, or is preempted; a prompt that does not fit it alone is
// refused by the number that is there.
TEST_P(ElasticKv, TooFewBlocksForAllMakeThemWait) {
  plan::Plan plan = compile(model::AutoOnOff::On);
  const auto device = under().make();
  const auto runtime = load(plan, *device, 0);
  ASSERT_NE(runtime, nullptr);
  const auto waited = serve::generate(*runtime, request(false));
  ASSERT_TRUE(waited.ok()) << waited.status();
  EXPECT_GT(waited->preemptions, 0u);
  const plan::Plan large = compile(model::AutoOnOff::Off, std::nullopt);
  const auto reference = under().make();
  const auto all = serve::generate(*load(large, *reference, 0), request(false));
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(waited->tokens, all->tokens);
  plan.placements[0].kvBlocks = 9; // one of them is the scratch block
  EXPECT_THAT(std::string(serve::generate(*runtime, request(false)).status().message()),
              HasSubstr("prompt 0 and its new tokens need 9 KV blocks of 4 tokens, placement 'none' has 8"));
}

INSTANTIATE_TEST_SUITE_P(Devices, ElasticKv,
                         testing::Combine(testing::ValuesIn(core::devicesWithData()), testing::Bool()),
                         [](const auto &info) {
                           return std::string(std::get<0>(info.param).name) +
                                  (std::get<1>(info.param) ? "_llama" : "_opt");
                         });

} // namespace
} // namespace headrace
