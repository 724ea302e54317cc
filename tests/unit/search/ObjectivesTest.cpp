// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "compiler/search/Limits.h"
#include "compiler/search/Search.h"
#include "runtime/base/Units.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/proof/PlanVerifier.h"
#include "runtime/sim/BucketTime.h"
#include "tests/support/LongRun.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using plan::IterationClass;
using std::chrono::nanoseconds;
using ::testing::HasSubstr;

TEST(Limits, ATpotIsOfTheLargestDecode) {
  CompileRequest r = longRequest();
  r.goal.tpot = nanoseconds(7);
  const std::vector<Limit> limits = limitsOf(r.goal, *resolve(r));
  ASSERT_EQ(limits.size(), 1u);
  ASSERT_EQ(limits[0].points.size(), 1u);
  EXPECT_TRUE(limits[0].decode);
  EXPECT_EQ(limits[0].points[0].at.bucket.sequences, 2);
  EXPECT_EQ(limits[0].points[0].at.context, 4096);
  EXPECT_EQ(limitNs(r.goal, limits[0]), 7u);
}

// 3,000 tokens in chunks of 2,048: one chunk at 2,048, one of 952 at 3,000, one after the other.
TEST(Limits, ATtftIsOfTheWholePrompt) {
  CompileRequest r = longRequest();
  r.goal.ttft = nanoseconds(9);
  r.goal.inputLen = 3000;
  const std::vector<Limit> limits = limitsOf(r.goal, *resolve(r));
  ASSERT_EQ(limits.size(), 1u);
  EXPECT_FALSE(limits[0].decode);
  ASSERT_EQ(limits[0].points.size(), 2u);
  EXPECT_EQ(limits[0].points[0].at.bucket.tokens, 2048);
  EXPECT_EQ(limits[0].points[0].at.context, 2048);
  EXPECT_EQ(limits[0].points[1].at.bucket.tokens, 1024);
  EXPECT_EQ(limits[0].points[1].at.context, 3000);
  EXPECT_EQ(limits[0].points[0].weight + limits[0].points[1].weight, 2);
  EXPECT_EQ(limitNs(r.goal, limits[0]), 9u);
}

// 1.5 times 1,000,001 ns, rounded down; a decimal factor is not missed by its rounding: 1.1 x 10 is 11.
TEST(Limits, AFactorIsOfTheTimeWithNothingOnTheHost) {
  CompileRequest r = longRequest();
  r.goal.sloFactor = 1.5;
  const std::vector<Limit> limits = limitsOf(r.goal, *resolve(r));
  EXPECT_GE(limits.size(), 4u); // both ends of both classes
  Limit limit = limits[0];
  limit.residentNs = 1'000'001;
  EXPECT_EQ(limitNs(r.goal, limit), 1'500'001u);
  r.goal.sloFactor = 1.1;
  limit.residentNs = 10;
  EXPECT_EQ(limitNs(r.goal, limit), 11u);
}

class Objectives : public ::testing::Test {
protected:
  int below(int n) { return static_cast<int>(generator_() % static_cast<uint32_t>(n)); }

  // A small model of which memory holds a part.
  CompileRequest draw() {
    const int64_t layers = 2 + below(5);
    const model::ModelSpec specs[] = {tinyLlama(layers), tinyOpt(layers), tinyQwen(layers, below(2) == 0)};
    CompileRequest r = request(specs[below(3)]);
    r.goal.batch = int64_t{1} << below(4);
    r.goal.context = 64 << below(3);
    r.hardware.h2dBandwidth = r.hardware.d2hBandwidth = 1e9 * (1 + below(8));
    r.hardware.duplexBandwidth = 2 * r.hardware.h2dBandwidth;
    const absl::StatusOr<plan::Plan> all = compile(r);
    if (all.ok())
      r.goal.deviceMemory = all->arenaBytes * static_cast<uint64_t>(50 + below(60)) / 100;
    return r;
  }

  static std::string traceOf(const CompileRequest &r) {
    return absl::StrCat(r.model->name, ", batch ", *r.goal.batch, ", context ", *r.goal.context, ", memory ",
                        *r.goal.deviceMemory, ", link ", r.hardware.h2dBandwidth);
  }

  // "the minimum TPOT is 1.234567ms at this memory": what stands behind `before`.
  static std::string after(const absl::Status &refused, const std::string &before) {
    const std::string text(refused.message());
    const size_t at = text.find(before);
    return at == std::string::npos
               ? ""
               : text.substr(at + before.size(), text.find(' ', at + before.size()) - at - before.size());
  }

  std::mt19937 generator_{17};
};

// At the least objective that a refusal names it compiles, and a ten-thousandth below it is refused.
TEST_F(Objectives, MinimaOfTimesAreMinimal) {
  const int wanted = longRun() ? 300 : 8;
  int refusals = 0;
  for (int problem = 0; problem < wanted; ++problem) {
    CompileRequest r = draw();
    if (!compile(r).ok())
      continue;
    const int kind = problem % 3;
    SCOPED_TRACE(absl::StrCat(traceOf(r), kind == 0 ? ", tpot" : kind == 1 ? ", ttft" : ", slo_factor"));
    const auto asking = [&](double value) { // nanoseconds, or a factor
      if (kind == 2)
        r.goal.sloFactor = value;
      else
        (kind == 0 ? r.goal.tpot : r.goal.ttft) = nanoseconds(static_cast<int64_t>(value));
      return compile(r).status();
    };
    const absl::Status refused = asking(1);
    if (kind == 2 && refused.ok())
      continue; // nothing has to be on the host
    ASSERT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
    const std::string text = after(refused, kind == 0   ? "the minimum TPOT is "
                                            : kind == 1 ? "the minimum TTFT is "
                                                        : "the minimum slo_factor is ");
    ASSERT_NE(text, "") << refused;
    const double least = kind == 2 ? std::stod(text) : std::stod(text) * 1e6; // it says ms
    ++refusals;
    EXPECT_TRUE(asking(kind == 2 ? least : std::ceil(least)).ok()) << refused << "\n" << asking(std::ceil(least));
    if (kind != 2 || least > 1.0001) {
      EXPECT_EQ(asking(least * (1 - 1e-4)).code(), absl::StatusCode::kResourceExhausted) << refused;
    }
  }
  EXPECT_GT(refusals, wanted / 2);
}

// So does the least memory that it names for an objective.
TEST_F(Objectives, TheLeastMemoryAtAnObjectiveIsMinimal) {
  const int wanted = longRun() ? 300 : 8;
  int refusals = 0;
  for (int problem = 0; problem < wanted; ++problem) {
    CompileRequest r = draw();
    SCOPED_TRACE(traceOf(r));
    CompileRequest whole = r;
    whole.goal.deviceMemory = uint64_t{1} << 30;
    const absl::StatusOr<plan::Plan> all = compile(whole);
    ASSERT_TRUE(all.ok()) << all.status();
    uint64_t longest = 0;
    for (const plan::Variant &variant : all->variants)
      if (all->schedules[variant.schedule].iterationClass == IterationClass::Decode)
        longest = std::max(longest, variant.predictedNs);
    r.goal.tpot = nanoseconds(static_cast<int64_t>(longest + longest * static_cast<uint64_t>(below(6)) / 10));
    r.goal.deviceMemory = all->arenaBytes * static_cast<uint64_t>(50 + below(45)) / 100;
    const absl::Status refused = compile(r).status();
    if (refused.ok())
      continue;
    const std::string text = after(refused, "the minimum memory is ");
    if (text.empty()) {
      EXPECT_THAT(std::string(refused.message()), HasSubstr("cannot hold")); // at any latency
      continue;
    }
    ++refusals;
    r.goal.deviceMemory = std::stoull(text);
    EXPECT_TRUE(compile(r).ok()) << refused << "\n" << compile(r).status();
    r.goal.deviceMemory = std::stoull(text) - 1;
    EXPECT_EQ(compile(r).status().code(), absl::StatusCode::kResourceExhausted) << refused;
  }
  EXPECT_GT(refusals, wanted / 3);
}

// What is compiled holds its objectives in every bucket, as one that verifies and no slower than `headrace`'s, whose
// aim is memory.
TEST_F(Objectives, HoldInEveryBucket) {
  const int wanted = longRun() ? 300 : 8;
  int held = 0;
  for (int problem = 0; problem < wanted; ++problem) {
    CompileRequest r = draw();
    r.goal.sloFactor = 1 + 0.25 * below(12);
    r.policy.name = "headrace";
    const absl::StatusOr<plan::Plan> headrace = compile(r);
    r.policy.name = "joint";
    const absl::StatusOr<plan::Plan> plan = compile(r);
    SCOPED_TRACE(absl::StrCat(traceOf(r), ", factor ", *r.goal.sloFactor));
    if (headrace.ok()) {
      EXPECT_TRUE(plan.ok()) << plan.status();
    }
    if (!plan.ok())
      continue;
    ++held;
    EXPECT_TRUE(plan::verifyPlan(*plan, "plan").ok()) << plan::verifyPlan(*plan, "plan");
    EXPECT_FALSE(plan->choices.empty());
    for (const plan::BucketChoice &choice : plan->choices) {
      EXPECT_LE(sim::bucketNs(*plan, choice.variant), choice.sloNs);
      EXPECT_LE(sim::bucketNs(*plan, choice.variant), plan->variants[choice.variant].predictedNs);
    }
  }
  EXPECT_GT(held, wanted / 4);
}

// Memory first: not a hundredth more of it than the policy takes that frees the most of it within the same objective.
TEST_F(Objectives, PreferringMemoryTakesNoMoreThanHeadrace) {
  const int wanted = longRun() ? 300 : 10;
  int compared = 0;
  for (int problem = 0; problem < wanted; ++problem) {
    CompileRequest r = draw();
    r.goal.tpot = nanoseconds(20'000 << below(6));
    r.policy.name = "headrace";
    const absl::StatusOr<plan::Plan> headrace = compile(r);
    if (!headrace.ok())
      continue;
    r.policy.name = "joint";
    r.policy.prefer = model::Prefer::Memory;
    const absl::StatusOr<plan::Plan> plan = compile(r);
    SCOPED_TRACE(absl::StrCat(traceOf(r), ", tpot ", r.goal.tpot->count()));
    ASSERT_TRUE(plan.ok()) << plan.status();
    ++compared;
    EXPECT_LE(plan->arenaBytes * 100, headrace->arenaBytes * 101) << plan->reason << "\n" << headrace->reason;
  }
  EXPECT_GT(compared, wanted / 4);
}

} // namespace
} // namespace headrace::compiler
