// SPDX-License-Identifier: Apache-2.0
//
// Random batches of prompts on random splits of random small models: prefill in chunks beside decoding, or before it,
// sequences that end early and leave their blocks to others, changes between placements on the way. All is
// bit-identical to what the all-resident plan gives.
#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/Compile.h"
#include "runtime/core/Runtime.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "tests/conformance/DevicesUnderTest.h"
#include "tests/support/LongRun.h"
#include "tests/support/RandomSplits.h"
#include "tests/support/StatedPlacements.h"
#include "tests/support/TinyPlan.h"

namespace headrace {
namespace {

using core::Draw;

// Prompts, as many as the batch has room for, that end at once or later.
serve::GenerateRequest anyRequest(Draw &draw, const compiler::CompileRequest &compiled) {
  serve::GenerateRequest request;
  request.maxNewTokens = draw.between(1, 10);
  request.prompts.resize(static_cast<size_t>(draw.between(1, *compiled.goal.batch)));
  for (std::vector<int32_t> &prompt : request.prompts)
    for (int64_t left = draw.between(1, *compiled.goal.context - request.maxNewTokens); left > 0; --left)
      prompt.push_back(static_cast<int32_t>(draw.between(0, 149)));
  if (draw.oneIn(2)) // of 150 tokens 40 end a sequence
    for (int32_t token = 0; token < 40; ++token)
      request.stopTokens.push_back(token);
  request.separatePrefill = draw.oneIn(3);
  request.keepLogits = draw.oneIn(2); // else two are in flight
  if (draw.oneIn(2))
    request.sampling = {.temperature = 0.8f, .topP = 0.9f, .seed = static_cast<uint64_t>(draw.between(0, 999))};
  if (draw.oneIn(2))
    request.sampling.repetitionPenalty = 1.5f;
  return request;
}

// That the request needs where no sequence ends early, but for the scratch block.
int64_t blocksOf(const serve::GenerateRequest &request, int64_t blockTokens) {
  int64_t blocks = 0;
  for (const std::vector<int32_t> &prompt : request.prompts)
    blocks += (static_cast<int64_t>(prompt.size()) + request.maxNewTokens - 1 + blockTokens - 1) / blockTokens;
  return blocks;
}

class RandomSplitKv : public testing::TestWithParam<core::DeviceUnderTest> {
protected:
  struct Run {
    serve::GenerateResult result;
    int64_t changes = 0;
  };
  // `draw`: where to go between iterations; null: nowhere.
  static absl::StatusOr<Run> run(compiler::CompileRequest asked, std::vector<compiler::Candidate> placements,
                                 serve::GenerateRequest request, Draw *draw) {
    asked.placements = std::move(placements);
    const absl::StatusOr<plan::Plan> plan = compiler::compile(asked);
    if (!plan.ok())
      return plan.status();
    const auto device = GetParam().make();
    const auto weights = model::syntheticWeights(1);
    const auto runtime = core::Runtime::load(*plan, *device, {}, weights.get(), {});
    if (!runtime.ok())
      return runtime.status();
    Run out;
    if (draw != nullptr)
      request.onIteration = [&](const serve::IterationSeen &) {
        const auto target = static_cast<uint32_t>(draw->between(0, static_cast<int64_t>(plan->placements.size()) - 1));
        out.changes += target != (*runtime)->placement();
        const auto hop = (*runtime)->takeHop(target);
        ASSERT_TRUE(hop.ok()) << hop.status();
      };
    absl::StatusOr<serve::GenerateResult> result = serve::generate(**runtime, request);
    if (!result.ok())
      return result.status();
    EXPECT_EQ((*runtime)->missingVariants(), 0u);
    EXPECT_EQ((*runtime)->kvBlocks().endOfUse(), 1);
    out.result = *std::move(result);
    return out;
  }
};

TEST_P(RandomSplitKv, GivesTheBitsOfTheAllResidentPlan) {
  const bool all = longRun(), emulated = GetParam().plansFor != model::DeviceKind::Host;
  const std::vector<uint64_t> seeds = seedsOfCases(emulated ? (all ? 200 : 4) : (all ? 3000 : 60));
  uint64_t moved = 0, mixed = 0;
  int64_t changes = 0;
  for (const uint64_t seed : seeds) {
    SCOPED_TRACE(testing::Message() << "case " << seed);
    Draw draw(seed);
    const compiler::CompileRequest asked = core::anyModel(draw, GetParam().plansFor, GetParam().kvBits);
    const serve::GenerateRequest request = anyRequest(draw, asked);
    const int64_t used = blocksOf(request, asked.goal.blockTokens);
    std::vector<compiler::Candidate> splits;
    for (int64_t left = draw.between(1, 3); left > 0; --left) {
      splits.push_back(core::anySplit(draw, asked.model, used));
      splits.back().name += " " + std::to_string(left);
    }
    const auto resident = run(asked, compiler::stated(asked.model, {compiler::none()}), request, nullptr);
    ASSERT_TRUE(resident.ok()) << resident.status();
    const auto split = run(asked, splits, request, draw.oneIn(2) ? &draw : nullptr);
    ASSERT_TRUE(split.ok()) << split.status();
    EXPECT_EQ(split->result.tokens, resident->result.tokens);
    EXPECT_TRUE(split->result.logits == resident->result.logits);
    moved += split->result.counters.d2hBytes > 0;
    mixed += split->result.prefillIterations > 1;
    changes += split->changes;
  }
  // Of most cases some blocks in use were away, and of half prompts came in chunks.
  EXPECT_GE(moved, seeds.size() / 2);
  EXPECT_GE(mixed, seeds.size() / 3);
  EXPECT_GT(changes, static_cast<int64_t>(seeds.size()) / 4);
}

INSTANTIATE_TEST_SUITE_P(Devices, RandomSplitKv,
                         testing::ValuesIn(core::devicesOfPlans(core::devicesWithPackedKvToo())),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace
} // namespace headrace
