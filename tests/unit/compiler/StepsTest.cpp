// SPDX-License-Identifier: Apache-2.0
#include "compiler/evaluate/Steps.h"

#include <gmock/gmock.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/evaluate/MemoryUse.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/compiler/Requests.h"

namespace headrace::compiler {
namespace {

using testing::ElementsAre;

class StepsOf : public testing::Test {
protected:
  // Two sequences, one token each.
  const Steps &of(const CompileRequest &r) {
    request_ = r;
    layout_ = model::layoutWeights(r.model);
    target_ = *resolve(request_);
    return steps_ = stepsOf({&*request_.model,
                             &layout_,
                             &target_,
                             r.hardware.kind,
                             plan::IterationClass::Decode,
                             {.tokens = 2, .sequences = 2, .context = 64}});
  }
  // "norm 0.1": of layer 0, mini-batch 1. Those of a layer from its first norm to its last product are "layer 0.1".
  std::vector<std::string> names(bool whole) const {
    std::vector<std::string> found;
    for (const Step &step : steps_.steps) {
      const std::string whose = absl::StrCat(step.layer, ".", step.miniBatch);
      std::string name = !step.op                   ? "publish"
                         : whole && step.layer >= 0 ? absl::StrCat("layer ", whose)
                         : step.layer >= 0          ? absl::StrCat(kernels::opName(*step.op), " ", whose)
                                                    : absl::StrCat(kernels::opName(*step.op), " ", step.miniBatch);
      if (found.empty() || found.back() != name)
        found.push_back(std::move(name));
    }
    return found;
  }
  static CompileRequest twoMiniBatches() {
    CompileRequest r = request(tinyLlama(2));
    r.goal.batch = 4;
    r.goal.miniBatches = 2;
    return r;
  }

  CompileRequest request_;
  model::WeightLayout layout_;
  Target target_;
  Steps steps_;
};

TEST_F(StepsOf, EachPartStandsOnceAMiniBatch) {
  of(twoMiniBatches());
  EXPECT_THAT(names(true), ElementsAre("embed 0", "embed 1", "layer 0.0", "layer 0.1", "layer 1.0", "layer 1.1",
                                       "gather_rows 0", "norm 0", "linear 0", "sample 0", "gather_rows 1", "norm 1",
                                       "linear 1", "sample 1", "publish"));
}

// Each layer of a mini-batch has a stream that comes for it: of an F32 row of 64 for each of the most tokens.
TEST_F(StepsOf, StreamsThatLeaveComeForEachLayer) {
  CompileRequest r = twoMiniBatches();
  r.policy.residuals = model::Residuals::Host;
  of(r);
  EXPECT_THAT(names(true), ElementsAre("embed 0", "layer 0.0", "embed 1", "layer 0.1", "layer 1.0", "gather_rows 0",
                                       "layer 1.1", "gather_rows 1", "norm 0", "linear 0", "sample 0", "norm 1",
                                       "linear 1", "sample 1", "publish"));
  std::vector<std::string> come;
  for (const Step &step : steps_.steps)
    if (step.comes != kNoBuffer) {
      const StepBuffer &stream = steps_.buffer(step.comes);
      EXPECT_TRUE(stream.is(algorithms::MovableKind::Residual));
      EXPECT_EQ(stream.bytes, target_.residualBytes(64));
      EXPECT_EQ(step.op == kernels::Op::Embed ? step.y : step.x, step.comes);
      come.push_back(absl::StrCat(stream.layer, ".", stream.miniBatch));
    }
  EXPECT_THAT(come, ElementsAre("0.0", "0.1", "1.0", "1.1"));
}

TEST_F(StepsOf, ActivationBlocksAreRecomputedFirstAndKeptBehindTheNorm) {
  CompileRequest r = request(tinyLlama(1));
  r.policy.actRatio = model::ActRatio{1, 2};
  of(r);
  EXPECT_THAT(names(false),
              ElementsAre("embed 0", "recompute_kv 0.0", "norm 0.0", "act_append 0.0", "linear 0.0", "rope_append 0.0",
                          "attention 0.0", "linear 0.0", "norm 0.0", "linear 0.0", "activate 0.0", "linear 0.0",
                          "gather_rows 0", "norm 0", "linear 0", "sample 0", "publish"));
  const Step &recompute = steps_.steps[1];
  EXPECT_TRUE(steps_.buffer(recompute.act).is(algorithms::MovableKind::Act));
  EXPECT_EQ(steps_.steps[5].recomputed, recompute.y);
  EXPECT_EQ(steps_.steps[6].recomputed, recompute.y);
}

// What a step uses was made before it, and nothing is made twice but in place.
TEST_F(StepsOf, WhatAStepUsesWasMadeBefore) {
  for (const model::ModelSpec &spec : {tinyLlama(3), tinyOpt(3), tinyQwen(3, true), tinyQwen3(3)})
    for (const bool leaves : {false, true})
      for (const int64_t acts : {0, 1}) {
        CompileRequest r = request(spec);
        r.goal.batch = 4;
        r.goal.miniBatches = 2;
        r.policy.residuals = leaves ? model::Residuals::Host : model::Residuals::Device;
        if (acts > 0)
          r.policy.actRatio = model::ActRatio{acts, 2};
        of(r);
        std::set<BufferIndex> made;
        for (size_t i = 0; i < steps_.buffers.size(); ++i)
          if (!steps_.buffers[i].isTransient() && !steps_.buffers[i].is(algorithms::MovableKind::Residual))
            made.insert(static_cast<BufferIndex>(i));
        for (const Step &step : steps_.steps) {
          if (step.comes != kNoBuffer) {
            EXPECT_TRUE(made.insert(step.comes).second);
          }
          for (const BufferIndex used :
               {step.unit, step.x, step.kv, step.recomputed, step.act, step.inPlace ? step.y : kNoBuffer})
            EXPECT_TRUE(used == kNoBuffer || made.contains(used)) << used;
          if (step.y != kNoBuffer && !step.inPlace) {
            EXPECT_TRUE(made.insert(step.y).second) << step.y;
          }
        }
        EXPECT_EQ(made.size(), steps_.buffers.size()); // and nothing is there that nobody makes
      }
}

// Of one layer, two rows of F32: x 512 bytes from step 0 to 10, qkv 2 x 128 x 4 = 1024 from its product to attention.
TEST_F(StepsOf, TellHowLongMemoryIsInUse) {
  const MemoryUse use = memoryUseOf(of(request(tinyLlama(1))));
  // embed 0, norm 1, qkv 2, rope 3, attention 4, out 5, norm 6, up 7, activate 8, down 9, gather 10, norm 11, head 12
  const auto lives = [&](int32_t unit) {
    const MemoryUse::Unit &of = use.units[static_cast<size_t>(unit)];
    return std::pair(of.firstUse, of.lastUse);
  };
  EXPECT_EQ(lives(0), std::pair(int64_t{-1}, int64_t{-1})); // the table is read where it is
  EXPECT_EQ(lives(1), std::pair(int64_t{1}, int64_t{2}));   // norm and matrix
  EXPECT_EQ(lives(2), std::pair(int64_t{5}, int64_t{5}));
  EXPECT_EQ(lives(3), std::pair(int64_t{6}, int64_t{7}));
  EXPECT_EQ(lives(4), std::pair(int64_t{9}, int64_t{9}));
  EXPECT_EQ(lives(5), std::pair(int64_t{11}, int64_t{12}));
  const algorithms::LiveRange &x = use.transients.front();
  EXPECT_EQ(std::tuple(x.bytes, x.first, x.last), std::tuple(uint64_t{512}, int64_t{0}, int64_t{10}));
  const bool qkv = std::any_of(use.transients.begin(), use.transients.end(), [](const algorithms::LiveRange &of) {
    return of.bytes == 1024 && of.first == 2 && of.last == 4;
  });
  EXPECT_TRUE(qkv);
}

} // namespace
} // namespace headrace::compiler
