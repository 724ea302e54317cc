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

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

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
      std::string name = step.copiesDown()          ? absl::StrCat("stage ", whose)
                         : !step.op                 ? "publish"
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

  static CompileRequest onCpu(const model::ModelSpec &spec, int64_t miniBatches) {
    CompileRequest r = request(spec);
    r.goal.batch = 2 * miniBatches;
    r.goal.miniBatches = miniBatches;
    r.goal.kvDeviceMemory = 0;
    r.policy.attention = model::Attention::Cpu;
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

// Of a model's stages the last one has the ids of all rows, though none is embedded there.
TEST_F(StepsOf, AStageThatSamplesAndDoesNotEmbedKeepsIds) {
  CompileRequest r = twoMiniBatches();
  r.model = model::stageOf(tinyLlama(6), 4, 2);
  of(r);
  EXPECT_THAT(names(true), ElementsAre("layer 0.0", "layer 0.1", "layer 1.0", "layer 1.1", "gather_rows 0", "norm 0",
                                       "linear 0", "keep_ids 0", "sample 0", "gather_rows 1", "norm 1", "linear 1",
                                       "keep_ids 1", "sample 1", "publish"));
  for (const int64_t first : {0, 2}) {
    r.model = model::stageOf(tinyLlama(6), first, 2);
    of(r);
    EXPECT_THAT(names(true), Not(Contains(HasSubstr("keep_ids"))));
  }
}

TEST_F(StepsOf, ActivationBlocksAreRebuiltFirstAndKeptBehindTheNorm) {
  CompileRequest r = request(tinyLlama(1));
  r.policy.actRatio = model::ActRatio{1, 2};
  of(r);
  EXPECT_THAT(names(false),
              ElementsAre("embed 0", "rebuild_kv 0.0", "norm 0.0", "act_append 0.0", "linear 0.0", "rope_append 0.0",
                          "attention 0.0", "linear 0.0", "norm 0.0", "linear 0.0", "activate 0.0", "linear 0.0",
                          "gather_rows 0", "norm 0", "linear 0", "sample 0", "publish"));
  const Step &rebuild = steps_.steps[1];
  EXPECT_TRUE(steps_.buffer(rebuild.act).is(algorithms::MovableKind::Act));
  EXPECT_EQ(steps_.steps[5].rebuilt, rebuild.y);
  EXPECT_EQ(steps_.steps[6].rebuilt, rebuild.y);
}

// The device rotates, the CPU appends and attends to what came down, the device fetches what it made.
TEST_F(StepsOf, AttentionOnTheCpuIsBetweenTheHalvesOfALayer) {
  of(onCpu(tinyLlama(1), 1));
  EXPECT_THAT(names(false),
              ElementsAre("stage -1.0", "embed 0", "norm 0.0", "linear 0.0", "rotate 0.0", "stage 0.0", "append 0.0",
                          "attention 0.0", "fetch_rows 0.0", "linear 0.0", "norm 0.0", "linear 0.0", "activate 0.0",
                          "linear 0.0", "gather_rows 0", "norm 0", "linear 0", "sample 0", "publish"));
  const Step &append = steps_.steps[6], &attention = steps_.steps[7], &fetch = steps_.steps[8];
  EXPECT_TRUE(append.onCpu() && attention.onCpu() && !fetch.onCpu());
  EXPECT_EQ(attention.y, fetch.x);
  EXPECT_EQ(append.x, steps_.steps[5].y);
  // Two rows of q of 4 heads of 16, F32: 2 x 64 x 4 bytes over the link.
  EXPECT_EQ(fetch.linkBytes, 512u);
  // What nothing rotates goes down as its product left it.
  model::ModelSpec opt = tinyOpt(1);
  of(onCpu(opt, 1));
  EXPECT_EQ(std::count_if(steps_.steps.begin(), steps_.steps.end(),
                          [](const Step &step) { return step.op == kernels::Op::Rotate; }),
            0);
}

// First halves of up to two mini-batches stand before a second one, so that the device has work while the CPU attends.
TEST_F(StepsOf, FirstHalvesOfTheNextMiniBatchesStandBeforeASecondHalf) {
  const auto halves = [&](int64_t miniBatches) {
    of(onCpu(tinyLlama(2), miniBatches));
    std::vector<std::string> found;
    for (const Step &step : steps_.steps)
      if (step.layer >= 0 && (step.op == kernels::Op::Rotate || step.op == kernels::Op::FetchRows))
        found.push_back(
            absl::StrCat(step.op == kernels::Op::Rotate ? "first " : "second ", step.layer, ".", step.miniBatch));
    return found;
  };
  EXPECT_THAT(halves(1), ElementsAre("first 0.0", "second 0.0", "first 1.0", "second 1.0"));
  EXPECT_THAT(halves(2), ElementsAre("first 0.0", "first 0.1", "second 0.0", "first 1.0", "second 0.1", "first 1.1",
                                     "second 1.0", "second 1.1"));
  EXPECT_THAT(halves(3), ElementsAre("first 0.0", "first 0.1", "first 0.2", "second 0.0", "first 1.0", "second 0.1",
                                     "first 1.1", "second 0.2", "first 1.2", "second 1.0", "second 1.1", "second 1.2"));
  // A layer's weights are needed by few mini-batches' halves at a time: no more than two ahead.
  EXPECT_THAT(halves(4), ElementsAre("first 0.0", "first 0.1", "first 0.2", "second 0.0", "first 0.3", "second 0.1",
                                     "first 1.0", "second 0.2", "first 1.1", "second 0.3", "first 1.2", "second 1.0",
                                     "first 1.3", "second 1.1", "second 1.2", "second 1.3"));
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
               {step.unit, step.x, step.kv, step.rebuilt, step.act, step.inPlace ? step.y : kNoBuffer})
            EXPECT_TRUE(used == kNoBuffer || made.contains(used)) << used;
          if (step.y != kNoBuffer && !step.inPlace) {
            EXPECT_TRUE(made.insert(step.y).second) << step.y;
          }
        }
        EXPECT_EQ(made.size(), steps_.buffers.size()); // and nothing is there that nobody makes
      }
  for (const model::ModelSpec &spec : {tinyLlama(3), tinyOpt(3), tinyQwen3(3)}) {
    of(onCpu(spec, 3));
    std::set<BufferIndex> made, staged;
    for (size_t i = 0; i < steps_.buffers.size(); ++i)
      if (!steps_.buffers[i].isTransient())
        made.insert(static_cast<BufferIndex>(i));
    for (const Step &step : steps_.steps) {
      for (const BufferIndex used : {step.unit, step.x, step.kv}) {
        EXPECT_TRUE(used == kNoBuffer || made.contains(used)) << used;
        if (used != kNoBuffer && steps_.buffer(used).kind == StepBuffer::Kind::Staging) {
          EXPECT_TRUE(staged.contains(used)) << used;
        }
      }
      if (step.y != kNoBuffer)
        (steps_.buffer(step.y).kind == StepBuffer::Kind::Staging ? staged : made).insert(step.y);
    }
    EXPECT_EQ(made.size(), steps_.buffers.size());
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
