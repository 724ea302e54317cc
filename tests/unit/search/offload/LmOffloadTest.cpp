// SPDX-License-Identifier: Apache-2.0
//
// Policy lm-offload against all settings that it contains: encodings of weights and of KV, layers away, mini-batches.
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/search/Search.h"
#include "compiler/search/generators/Generators.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/plan/PlanFile.h"
#include "tests/support/LongRun.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using ::testing::HasSubstr;

class LmOffload : public ::testing::Test {
protected:
  int below(int n) { return static_cast<int>(generator_() % static_cast<uint32_t>(n)); }

  // A small model whose heads can be packed, and a part of the memory that it takes.
  CompileRequest draw() {
    CompileRequest r = request(below(2) == 0 ? tinyLlama(2 + below(6)) : tinyOpt(2 + below(6)));
    r.model->headDim = 32, r.model->heads = 2, r.model->kvHeads = 2;
    r.policy.name = "lm-offload";
    r.policy.actRatio = model::ActRatio();
    r.goal.allowQuantized = model::AllowQuantized::Both;
    r.goal.batch = int64_t{1} << below(5);
    r.goal.context = 64 << below(4);
    r.goal.autoMiniBatches = below(3) == 0;
    r.hardware.h2dBandwidth = r.hardware.d2hBandwidth = 1e9 / (1 << below(6));
    r.hardware.duplexBandwidth = r.hardware.h2dBandwidth * (1 + 0.25 * below(5));
    r.hardware.flopsF32 = 100e9 / (1 << below(6));
    r.goal.deviceMemory = uint64_t{1} << 30;
    CompileRequest whole = r;
    whole.goal.allowQuantized = model::AllowQuantized::Nothing;
    whole.goal.autoMiniBatches = false;
    const absl::StatusOr<plan::Plan> all = compile(whole);
    EXPECT_TRUE(all.ok()) << all.status();
    r.goal.deviceMemory = all->arenaBytes * static_cast<uint64_t>(25 + below(75)) / 100;
    return r;
  }
  static std::string traceOf(const CompileRequest &r) {
    return absl::StrCat(r.model->name, ", batch ", *r.goal.batch, ", context ", *r.goal.context, ", memory ",
                        *r.goal.deviceMemory, ", link ", r.hardware.h2dBandwidth, ", flops ", r.hardware.flopsF32,
                        r.goal.autoMiniBatches ? ", mini-batches auto" : "");
  }
  static cost::Roofline costsOf(const CompileRequest &r) {
    return {r.model, r.hardware, model::DType::F32, model::DType::F32};
  }

  std::mt19937 generator_{49};
};

TEST_F(LmOffload, IsAsGoodAsAllSettingsThatItContains) {
  const int wanted = longRun() ? 300 : 30;
  int problems = 0;
  std::set<std::pair<int64_t, int64_t>> chosen;
  for (int draws = 0; problems < wanted; ++draws) {
    ASSERT_LT(draws, 10 * wanted);
    const CompileRequest r = draw();
    SCOPED_TRACE(traceOf(r));
    const cost::Roofline costs = costsOf(r);
    Space space(r, costs);
    const std::optional<Searched> searched = search(space, {findPolicy("lm-offload")});
    const Scored *best = nullptr;
    for (const Coordinates &origin : space.origins()) {
      Coordinates at = origin;
      for (int64_t before = 0; before != at.miniBatches;) {
        for (at.layers = 0; at.layers <= r.model->layers; ++at.layers)
          for (const bool embedding : {false, true}) {
            at.embedding = embedding;
            if (const Scored *const of = space.score(at);
                of != nullptr && of->overBytes == 0 && (best == nullptr || space.isBetter(*of, *best)))
              best = of;
          }
        before = at.miniBatches;
        if (space.free().miniBatches)
          at.miniBatches = space.nextMiniBatches(at.miniBatches, 1);
      }
    }
    if (best == nullptr)
      continue; // nothing fits
    ASSERT_TRUE(searched.has_value());
    ++problems;
    chosen.insert({searched->best.at.weightEncoding, searched->best.at.kvEncoding});
    EXPECT_LE(searched->best.comparedNs, 1.01 * best->comparedNs)
        << toText(searched->best.candidate) << " against " << toText(best->candidate);
  }
  EXPECT_GE(chosen.size(), 4U); // not always the same encodings
}

// Policy joint has its beginnings among its own.
TEST_F(LmOffload, JointIsNoSlower) {
  const int wanted = longRun() ? 300 : 20;
  int compared = 0;
  for (int draws = 0; compared < wanted; ++draws) {
    ASSERT_LT(draws, 10 * wanted);
    const CompileRequest r = draw();
    SCOPED_TRACE(traceOf(r));
    const cost::Roofline costs = costsOf(r);
    Space own(r, costs), all(r, costs);
    const std::optional<Searched> alone = search(own, {findPolicy("lm-offload")});
    const std::optional<Searched> joint = search(all, searchedGenerators(all));
    if (!alone)
      continue;
    ASSERT_TRUE(joint.has_value());
    ++compared;
    EXPECT_LE(joint->best.comparedNs, (1 + kTie) * alone->best.comparedNs) << toText(alone->best.candidate);
  }
}

// OPT-30B's block of 640 on one A100 of 40 GB: nothing may be packed, or all, and weights and KV then are.
TEST_F(LmOffload, PacksWhatItMay) {
  CompileRequest r = shipped("opt-30b", "a100-40", 64, 192);
  r.policy.name = "lm-offload";
  r.goal.inputLen = 64;
  r.goal.outputLen = 128;
  const absl::StatusOr<plan::Plan> plain = compile(r), again = compile(r);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plan::serialize(*plain), plan::serialize(*again));
  EXPECT_EQ(plain->policy.name, "lm-offload");
  EXPECT_FALSE(plain->model->encodings.any());
  EXPECT_THAT(plain->reason, HasSubstr("Of lm-offload alone: "));
  EXPECT_THAT(plain->reason, Not(HasSubstr("Of interval alone")));
  r.goal.allowQuantized = model::AllowQuantized::Weights;
  const absl::StatusOr<plan::Plan> packed = compile(r);
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_TRUE(packed->model->encodings.any());
  EXPECT_FALSE(packed->kvEncoding.packed());
}

TEST_F(LmOffload, KeepsNoActivations) {
  CompileRequest r = shipped("opt-30b", "a100-40", 256, 192);
  r.policy.name = "lm-offload";
  const absl::StatusOr<plan::Plan> plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->actBlocks, 0);
}

} // namespace
} // namespace headrace::compiler
