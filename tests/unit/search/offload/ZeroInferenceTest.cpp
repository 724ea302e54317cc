// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/Plan.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using ::testing::StartsWith;

CompileRequest zeroInference(uint64_t memory) {
  CompileRequest r = shipped("opt-30b", "a100-40", 16, 256);
  r.policy.name = "zero-inference";
  r.goal.deviceMemory = memory;
  return r;
}

// OPT-30B is 60 GB in 16 bits and 17 in 4: in 24 GB all of it stays, in 12 every layer is brought.
TEST(ZeroInference, WeightsStayInFourBitsOrAllLayersAreBrought) {
  const absl::StatusOr<plan::Plan> stays = compile(zeroInference(24'000'000'000)),
                                   leaves = compile(zeroInference(12'000'000'000));
  ASSERT_TRUE(stays.ok() && leaves.ok()) << stays.status() << leaves.status();
  EXPECT_EQ(plan::offloadedWeights(*stays, stays->placements.front()).layers, 0);
  EXPECT_EQ(plan::offloadedWeights(*leaves, leaves->placements.front()).layers, 48);
  for (const auto *plan : {&stays, &leaves}) {
    const plan::Plan &of = **plan;
    EXPECT_EQ(of.policy.name, "zero-inference");
    EXPECT_EQ(of.model->encodings[model::UnitRole::Up], model::Encoding::groups(4));
    EXPECT_EQ(of.goal.kvDeviceMemory, uint64_t{0});
    EXPECT_EQ(of.policy.attention, model::Attention::Cpu);
    EXPECT_TRUE(of.attendsOnCpu());
    EXPECT_EQ(of.miniBatches, 1U);
  }
}

TEST(ZeroInference, KeepsAnEncodingThatIsStated) {
  CompileRequest r = zeroInference(39'000'000'000);
  r.model->encodings = model::ofModel(model::packedIn(8, r.model), r.model);
  const absl::StatusOr<plan::Plan> plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->model->encodings[model::UnitRole::Up], model::Encoding::groups(8));
}

TEST(ZeroInference, RefusesWhatItDecidesByName) {
  const auto refused = [](const CompileRequest &r, const std::string &expected) {
    const absl::Status status = compile(r).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), StartsWith(expected));
  };
  CompileRequest r = zeroInference(24'000'000'000);
  r.goal.miniBatches = 4;
  refused(r, "goal.mini_batches = 4: expected 1 beside policy.name \"zero-inference\"");
  r.goal.miniBatches = 1;
  r.goal.autoMiniBatches = true;
  refused(r, "goal.mini_batches = \"auto\": expected 1 beside policy.name \"zero-inference\"");
  r = zeroInference(24'000'000'000);
  r.goal.allowQuantized = model::AllowQuantized::Kv;
  refused(r, "goal.allow_quantized = \"kv\": expected none beside policy.name \"zero-inference\"");
  r = zeroInference(24'000'000'000);
  r.goal.kvDeviceMemory = 1'000'000'000;
  refused(r, "goal.kv_device_memory = 1000000000: expected 0B or none beside policy.name \"zero-inference\"");
  r = zeroInference(24'000'000'000);
  r.policy.attentionStated = true; // "device"
  refused(r, "policy.attention = \"device\": expected \"cpu\" or none beside policy.name \"zero-inference\"");
  r = zeroInference(24'000'000'000);
  r.hardware.cpu = {};
  refused(r, "policy.attention = \"cpu\": expected hardware.cpu_cores, ");
}

} // namespace
} // namespace headrace::compiler
