// SPDX-License-Identifier: Apache-2.0
//
// Policy flexgen-throughput: what is where by FlexGen's percents, stated or found by its linear programme.
#include "absl/strings/str_cat.h"
#include "compiler/Compile.h"
#include "compiler/search/generators/Generators.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/plan/PlanFile.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using ::testing::HasSubstr;

// OPT of 4 layers: q, k, v, out of 512 x 512 and two matrices of 512 x 2048, beside which biases and norms are little.
CompileRequest shared(const model::Percent &percent) {
  CompileRequest r = request(tinyOpt(4));
  r.model->hidden = 512, r.model->headDim = 128, r.model->intermediate = 2048;
  r.policy.name = "flexgen-throughput";
  r.policy.percent = percent;
  return r;
}

// Shares of layers' weights, and of KV, that a plan has on the device; whether hidden states stay there.
struct Homes {
  double weights = 0, kv = 0;
  bool hidden = true;
};
Homes homesOf(const plan::Plan &plan) {
  uint64_t device = 0, all = 0;
  for (const plan::Extent &extent : plan.placements.front().extents)
    if (plan.buffers[extent.buffer].kind == plan::BufferKind::Weight && plan.buffers[extent.buffer].layer >= 0) {
      all += extent.bytes;
      device += extent.space == plan::Space::Device ? extent.bytes : 0;
    }
  const plan::HomeBytes kv = plan::kvBytesByHome(plan, 0);
  return {100 * static_cast<double>(device) / static_cast<double>(all),
          100 * static_cast<double>(kv.device) / static_cast<double>(kv.device + kv.host), !plan.residualsLeave()};
}

// At 55% v, out and down are on the device, 50% of the layer; a third of qkv is less than a half, so out and down are:
// 5 of 12 parts. Of 9 blocks of each cache one is the scratch block: a half of 8, and that.
TEST(FlexGenThroughput, PlacesTheNearestUnitsAndBlocks) {
  const absl::StatusOr<plan::Plan> plan = compile(shared({55, 45, 50, 50, 100, 0}));
  ASSERT_TRUE(plan.ok()) << plan.status();
  const Homes homes = homesOf(*plan);
  EXPECT_NEAR(homes.weights, 100.0 * 5 / 12, 0.2);
  EXPECT_NEAR(homes.kv, 100.0 * 5 / 9, 1e-9);
  EXPECT_TRUE(homes.hidden);
  EXPECT_EQ(plan->placements.front().name, "qkv+up of every layer");
  EXPECT_EQ(plan::offloadedWeights(*plan, plan->placements.front()).layers, 4);
  EXPECT_FALSE(plan::offloadedWeights(*plan, plan->placements.front()).embedding);
  EXPECT_EQ(plan->placements.front().startRule, model::StartRule::Eager);
  EXPECT_THAT(plan->reason, HasSubstr("weights 55%, 50.1% by whole tensors, 41.6% by units; KV 50%, 50.0% by blocks; "
                                      "hidden states 100%. Attention is on the device"));
  EXPECT_THAT(plan->reason, HasSubstr("By the closed form with these shares, of 32 + 32 tokens: "));
}

TEST(FlexGenThroughput, HasTheEndsOfEachShare) {
  const auto homes = [](const model::Percent &percent) {
    const absl::StatusOr<plan::Plan> plan = compile(shared(percent));
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? homesOf(*plan) : Homes();
  };
  const Homes host = homes({0, 100, 0, 100, 0, 100});
  EXPECT_EQ(host.weights, 0);
  EXPECT_EQ(host.kv, 0);
  EXPECT_FALSE(host.hidden);
  const Homes device = homes({100, 0, 100, 0, 100, 0});
  EXPECT_EQ(device.weights, 100);
  EXPECT_EQ(device.kv, 100);
  EXPECT_TRUE(device.hidden);
}

// The plan says its shares: stated again beside all that it states they make the same plan.
TEST(FlexGenThroughput, FindsSharesThatMemoryHolds) {
  CompileRequest r = request(tinyOpt(4));
  r.policy.name = "flexgen-throughput";
  r.goal.miniBatches = 2;
  r.goal.inputLen = 32;
  r.goal.outputLen = 32;
  const absl::StatusOr<plan::Plan> all = compile(r);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(homesOf(*all).weights, 100);
  EXPECT_EQ(homesOf(*all).kv, 100);
  r.goal.deviceMemory = all->arenaBytes * 7 / 10;
  const absl::StatusOr<plan::Plan> plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_LE(plan->arenaBytes, *r.goal.deviceMemory);
  ASSERT_TRUE(plan->policy.percent.has_value());
  EXPECT_LT(plan->policy.percent->wg + plan->policy.percent->cg, 200);
  CompileRequest again = r;
  again.policy = plan->policy;
  again.goal = plan->goal;
  const absl::StatusOr<plan::Plan> stated = compile(again);
  ASSERT_TRUE(stated.ok()) << stated.status();
  EXPECT_EQ(plan::serialize(*plan), plan::serialize(*stated));
}

// OPT-30B on a card of 40 GB, FlexGen's machine of LM-Offload: weights of 58 GB cannot all stay.
TEST(FlexGenThroughput, SharesAModelThatDoesNotFit) {
  CompileRequest r = shipped("opt-30b", "a100-40", 64, 192);
  r.policy.name = "flexgen-throughput";
  r.goal.miniBatches = 4;
  r.goal.inputLen = 64;
  r.goal.outputLen = 128;
  const absl::StatusOr<plan::Plan> plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const Homes homes = homesOf(*plan);
  EXPECT_GT(homes.weights, 20);
  EXPECT_LT(homes.weights, 70);
}

TEST(FlexGenThroughput, RefusesWhatContradictsItsShares) {
  const auto refusal = [](auto &&change, std::optional<model::Percent> percent = model::Percent{}) {
    CompileRequest r = request(tinyOpt(4));
    r.model->headDim = 32, r.model->heads = r.model->kvHeads = 2;
    r.policy.name = "flexgen-throughput";
    r.policy.percent = percent;
    change(r);
    const absl::Status status = compile(r).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(
      refusal([](CompileRequest &r) { r.goal.kvDeviceMemory = 12345; }),
      HasSubstr("goal.kv_device_memory = 12345: expected none beside policy.name \"flexgen-throughput\", or the 0 "
                "bytes that cg = 0 makes of policy.percent = \"0 100 0 100 0 100\""));
  EXPECT_THAT(refusal([](CompileRequest &r) { r.policy.residuals = model::Residuals::Host; },
                      model::Percent{0, 100, 0, 100, 100, 0}),
              HasSubstr("policy.residuals = \"host\": expected \"device\" beside hg = 100"));
  EXPECT_THAT(refusal([](CompileRequest &r) { r.goal.autoMiniBatches = true; }),
              HasSubstr("goal.mini_batches = \"auto\": expected a number beside policy.name \"flexgen-throughput\""));
  EXPECT_THAT(refusal([](CompileRequest &r) { r.goal.allowQuantized = model::AllowQuantized::Kv; }),
              HasSubstr("goal.allow_quantized = \"kv\": expected none beside policy.name \"flexgen-throughput\""));
  EXPECT_THAT(refusal([](CompileRequest &r) { r.goal.expansion = 1.5; }),
              HasSubstr("goal.expansion = 1.5: expected none beside"));
  EXPECT_THAT(
      refusal([](CompileRequest &r) { r.policy.name = "interval"; }),
      HasSubstr("policy.percent = \"0 100 0 100 0 100\": expected policy.name \"flexgen-throughput\" beside it"));
}

// With what a refusal names it compiles, with a byte less not.
TEST(FlexGenThroughput, TheMinimumThatItNamesIsOne) {
  CompileRequest r = shared({55, 45, 50, 50, 100, 0});
  r.goal.deviceMemory = 100'000;
  const std::string refused(compile(r).status().message()), before = "What would do: a device memory of ";
  const size_t at = refused.find(before);
  ASSERT_NE(at, std::string::npos) << refused;
  r.goal.deviceMemory = std::stoull(refused.substr(at + before.size()));
  EXPECT_TRUE(compile(r).ok()) << compile(r).status();
  --*r.goal.deviceMemory;
  EXPECT_EQ(compile(r).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(FlexGenThroughput, SaysTheBytesWhereItsSharesDoNotFit) {
  CompileRequest r = shared({100, 0, 100, 0, 100, 0});
  r.goal.deviceMemory = 100'000;
  const absl::Status refused = compile(r).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("What would do: a device memory of "));
  r = shipped("opt-30b", "a100-40", 64, 192); // weights of 58 GB, 40 of which the device has
  r.policy.name = "flexgen-throughput";
  r.hardware.hostMemoryBytes = 1'000'000'000;
  const absl::Status programme = compile(r).status();
  EXPECT_EQ(programme.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(programme.message()), HasSubstr("no shares fit: with everything on the host "));
}

} // namespace
} // namespace headrace::compiler
