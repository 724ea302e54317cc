// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/Allowance.h"

#include <vector>

#include "compiler/Compile.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

// TinyLlama in 680 MiB behind a link of 4 GB/s; what it is told.
CompileRequest offloading() {
  CompileRequest r = shipped("tinyllama-1.1b", "host", 2, 16);
  r.hardware.h2dBandwidth = r.hardware.d2hBandwidth = r.hardware.duplexBandwidth = 0.5e9;
  r.goal.deviceMemory = uint64_t{680} << 20;
  return r;
}

std::vector<std::string> adviceOf(CompileRequest r) {
  std::vector<std::string> lines;
  r.advise = [&](std::string_view line) { lines.emplace_back(line); };
  const absl::StatusOr<plan::Plan> plan = compile(r);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return lines;
}

constexpr const char *kWeights = "packed weights would take [0-9.]+ ms an iteration instead of [0-9.]+ ms: "
                                 "--allow-quantized weights";

TEST(Allowance, SaysWhatPackedWeightsWouldBring) {
  for (const char *policy : {"auto", "lm-offload", "interval", "deepspeed"}) {
    SCOPED_TRACE(policy);
    CompileRequest r = offloading();
    r.policy.name = policy;
    if (r.policy.name == "deepspeed")
      r.goal.sloFactor = 1000;
    EXPECT_THAT(adviceOf(r), ElementsAre(MatchesRegex(kWeights)));
  }
}

TEST(Allowance, SaysWhatPackedCachesWouldBring) {
  CompileRequest r = shipped("llama-3.1-8b", "rtx4090", 1, 131072);
  r.goal.deviceMemory = 24'000'000'000;
  EXPECT_THAT(adviceOf(r), ElementsAre(MatchesRegex("packed KV would take [0-9.]+ ms an iteration instead of [0-9.]+ "
                                                    "ms: --allow-quantized kv")));
}

TEST(Allowance, SaysNothingWhereNothingMovesOrAllIsAllowed) {
  CompileRequest r = offloading();
  r.goal.deviceMemory = uint64_t{8} << 30;
  r.hardware.memoryBytes = uint64_t{8} << 30;
  EXPECT_THAT(adviceOf(r), IsEmpty());
  r = offloading();
  r.goal.allowQuantized = model::AllowQuantized::Both;
  EXPECT_THAT(adviceOf(r), IsEmpty());
  r.goal.allowQuantized = model::AllowQuantized::Weights; // KV does not move
  EXPECT_THAT(adviceOf(r), IsEmpty());
  r = offloading();
  r.model->encodings = model::packedIn(4, r.model);
  EXPECT_THAT(adviceOf(r), IsEmpty());
}

// What it says, --allow-quantized finds, or better.
TEST(Allowance, IsNoMoreThanWhatAllowanceFinds) {
  CompileRequest r = offloading();
  const std::vector<std::string> lines = adviceOf(r);
  ASSERT_EQ(lines.size(), 1U);
  const double promised = std::stod(lines.front().substr(std::string("packed weights would take ").size()));
  r.goal.allowQuantized = model::AllowQuantized::Weights;
  const absl::StatusOr<plan::Plan> plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const plan::Variant &variant : plan->variants)
    if (plan->schedules[variant.schedule].iterationClass == plan::IterationClass::Decode && variant.context == 16 &&
        variant.sequences == 2) {
      EXPECT_LE(static_cast<double>(variant.predictedNs) / 1e6, promised * 1.01);
    }
}

} // namespace
} // namespace headrace::compiler
