// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/engine/BatchEngine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "runtime/host/HostDevice.h"
#include "runtime/sim/SimDevice.h"
#include "tests/support/TinyPlan.h"
#include "tests/unit/kernels/SampleRows.h"

namespace headrace::serve {
namespace {

using core::TinyPlanOptions;
using testing::HasSubstr;
using Tokens = std::vector<std::vector<int32_t>>;

// A plan on a device, ready to generate.
class Host {
public:
  Host(const TinyPlanOptions &planOptions, const host::HostOptions &options = {})
      : Host(planOptions, host::makeHostDevice(options)) {}
  Host(const TinyPlanOptions &planOptions, std::unique_ptr<core::Device> device)
      : plan_(core::tinyPlan(planOptions)), device_(std::move(device)) {
    const std::unique_ptr<model::WeightSource> weights = model::syntheticWeights(1);
    auto runtime = core::Runtime::load(plan_, *device_, {}, weights.get(), {});
    EXPECT_TRUE(runtime.ok()) << runtime.status();
    if (runtime.ok())
      runtime_ = *std::move(runtime);
  }
  GenerateResult run(const GenerateRequest &request) {
    auto result = generate(*runtime_, request);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : GenerateResult{};
  }
  core::Runtime &runtime() { return *runtime_; }
  const plan::Plan &plan() const { return plan_; }

private:
  const plan::Plan plan_;
  const std::unique_ptr<core::Device> device_;
  std::unique_ptr<core::Runtime> runtime_;
};

GenerateRequest smallRequest() {
  GenerateRequest request;
  request.prompts = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {42}, {7, 7, 149}};
  request.maxNewTokens = 8;
  return request;
}

bool sameBits(const std::vector<std::vector<float>> &a, const std::vector<std::vector<float>> &b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto &x, const auto &y) {
    return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
  });
}

TEST(BatchEngine, EveryPlacementGivesTheTokensAndLogitsOfTheResidentOne) {
  GenerateRequest request = smallRequest();
  request.keepLogits = true;
  for (const model::ModelSpec &spec : {core::tinyLlama(5), core::tinyOpt(5)}) {
    const GenerateResult resident = Host({.spec = spec}, {.unpaced = true}).run(request);
    std::set<int32_t> distinct;
    for (const auto &tokens : resident.tokens)
      distinct.insert(tokens.begin(), tokens.end());
    EXPECT_GT(distinct.size(), 3u); // the weights do something
    for (const std::vector<int64_t> &offloaded :
         std::vector<std::vector<int64_t>>{{0}, {4}, {1, 3}, {0, 2, 4}, {0, 1, 2, 3, 4}})
      for (bool wrap : {false, true})
        for (const host::HostOptions &options :
             {host::HostOptions{}, host::HostOptions{.unpaced = true}, host::HostOptions{.poison = true}}) {
          const GenerateResult other = Host({.spec = spec, .offloaded = offloaded, .wrap = wrap}, options).run(request);
          EXPECT_EQ(other.tokens, resident.tokens);
          EXPECT_TRUE(sameBits(other.logits, resident.logits))
              << spec.name << ", " << offloaded.size() << " layers off, wrap " << wrap << ", unpaced "
              << options.unpaced << ", poison " << options.poison;
        }
  }
}

TEST(BatchEngine, AnEmbeddingReadFromHostMemoryGivesTheSameTokens) {
  const GenerateResult resident = Host({}, {.unpaced = true}).run(smallRequest());
  Host direct({.offloadEmbedding = true}, {.unpaced = true});
  const GenerateResult result = direct.run(smallRequest());
  EXPECT_EQ(result.tokens, resident.tokens);
  // Rows over the link: the prompts' 14 and 7 more a sequence, of 64 floats.
  EXPECT_EQ(result.counters.h2dBytes, (14 + 3 * 7) * 64 * 4u);
}

TEST(BatchEngine, IterationsInFlightGiveTheTokensOfIterationsOneByOne) {
  const GenerateResult overlapped = Host({.offloaded = {1, 2}, .wrap = true}).run(smallRequest());
  GenerateRequest request = smallRequest();
  request.keepLogits = true; // reads each iteration's tokens before the next launch
  const GenerateResult oneByOne = Host({.offloaded = {1, 2}, .wrap = true}).run(request);
  EXPECT_EQ(overlapped.tokens, oneByOne.tokens);
  EXPECT_EQ(overlapped.iterations, oneByOne.iterations);
}

TEST(BatchEngine, ComposesDecodeRowsFirstThenPromptsUpToTheBucket) {
  // Buckets of 7 tokens: the first prompt's 10 rows take two iterations; the second runs [1, 3 of the third's 3], ...
  Host host({}, {.unpaced = true});
  std::vector<uint32_t> variants;
  GenerateRequest request = smallRequest();
  request.onIteration = [&](const IterationSeen &seen) {
    variants.push_back(seen.variant);
    EXPECT_GT(seen.ns, 0);
  };
  const GenerateResult result = host.run(request);
  // Rows: 7 | 3 + 1 + 3 | 3 decode rows, seven times.
  EXPECT_EQ(result.iterations, 9u);
  EXPECT_EQ(result.prefillIterations, 2u);
  ASSERT_EQ(variants.size(), 9u);
  EXPECT_EQ(host.plan().schedules[host.plan().variants[variants[0]].schedule].iterationClass,
            plan::IterationClass::Mixed);
  EXPECT_EQ(host.plan().schedules[host.plan().variants[variants[8]].schedule].iterationClass,
            plan::IterationClass::Decode);
  for (const auto &tokens : result.tokens)
    EXPECT_EQ(tokens.size(), 8u);
}

TEST(BatchEngine, SeparatePrefillHoldsDecodingBackAndChangesNoToken) {
  GenerateRequest request = smallRequest();
  request.prompts = {{3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}};
  const GenerateResult mixed = Host({}, {.unpaced = true}).run(request);
  request.separatePrefill = true;
  const GenerateResult separate = Host({}, {.unpaced = true}).run(request);
  EXPECT_EQ(separate.tokens, mixed.tokens);
  // Mixed: 1 + 6 | 1 + 6 | then 2 decode rows; the first has had its second token by then.
  EXPECT_EQ(mixed.iterations, 9u);
  EXPECT_EQ(separate.iterations, 9u);
  EXPECT_EQ(separate.prefillIterations, 2u);
}

// 7 prompts for 3 seats, under every scheduler.
TEST(BatchEngine, PromptsThatFindNoSeatWait) {
  GenerateRequest request;
  Tokens expected;
  for (int32_t p = 0; p < 7; ++p) {
    request.prompts.emplace_back(1 + p * 5 % 7, p);
    GenerateRequest alone;
    alone.prompts = {request.prompts.back()};
    alone.maxNewTokens = request.maxNewTokens = 9;
    expected.push_back(Host({}, {.unpaced = true}).run(alone).tokens[0]);
  }
  EXPECT_EQ(Host({}, {.unpaced = true}).run(request).tokens, expected);
  request.maxNumSeqs = 2;
  request.maxNumBatchedTokens = 5;
  EXPECT_EQ(Host({}, {.unpaced = true}).run(request).tokens, expected);
  request.batching = Batching::Static;
  EXPECT_EQ(Host({}, {.unpaced = true}).run(request).tokens, expected);
  request.maxNumBatchedTokens = 0;
  request.chunkedPrefill = false;
  EXPECT_EQ(Host({}, {.unpaced = true}).run(request).tokens, expected);
  request.maxNumSeqs = 4;
  Host host({}, {.unpaced = true});
  EXPECT_EQ(generate(host.runtime(), request).status().message(),
            "max_num_seqs = 4, expected 1 to the plan's batch of 3");
}

TEST(BatchEngine, AStopTokenEndsItsSequenceAlone) {
  const GenerateResult free = Host({}, {.unpaced = true}).run(smallRequest());
  GenerateRequest request = smallRequest();
  request.stopTokens = {free.tokens[0][3]};
  const GenerateResult stopped = Host({}, {.unpaced = true}).run(request);
  for (size_t s = 0; s < 3; ++s) {
    std::vector<int32_t> expected = free.tokens[s];
    const auto at = std::find(expected.begin(), expected.end(), request.stopTokens[0]);
    if (at != expected.end())
      expected.erase(at + 1, expected.end()); // the stop token itself is kept
    EXPECT_EQ(stopped.tokens[s], expected);
  }
  EXPECT_LE(stopped.tokens[0].size(), 4u);
}

// The reply's text may be complete only once nothing more comes.
TEST(BatchEngine, WhatTurnsOutToHaveEndedByItselfIsStopped) {
  GenerateRequest request = smallRequest();
  request.onEnd = [](size_t prompt) { return prompt == 1; };
  const std::vector<EndReason> ends = {EndReason::Length, EndReason::Stop, EndReason::Length};
  EXPECT_EQ(Host({}, {.unpaced = true}).run(request).ends, ends);
}

// Two seats: when the first has its third token, the third prompt has not begun.
TEST(BatchEngine, AnInterruptLeavesWhatIsThereByThen) {
  const GenerateResult whole = Host({}, {.unpaced = true}).run(smallRequest());
  GenerateRequest request = smallRequest();
  request.maxNumSeqs = 2;
  size_t told = 0;
  request.onToken = [&](size_t prompt, int32_t) {
    told += prompt == 0;
    return prompt == 0 || told < 2; // the second ends by itself
  };
  request.isInterrupted = [&] { return told >= 3; };
  Host host({}, {.unpaced = true});
  const GenerateResult cut = host.run(request);
  EXPECT_EQ(cut.tokens[0], std::vector<int32_t>(whole.tokens[0].begin(), whole.tokens[0].begin() + 3));
  EXPECT_FALSE(cut.tokens[1].empty());
  const std::vector<EndReason> ends = {EndReason::Cancelled, EndReason::Stop, EndReason::Cancelled};
  EXPECT_EQ(cut.ends, ends);
  EXPECT_EQ(host.run(smallRequest()).tokens, whole.tokens); // and every block is free again
}

TEST(BatchEngine, ASampledRequestGetsItsTokensWhateverTheBatch) {
  GenerateRequest request = smallRequest();
  request.sampling = {.temperature = 1.0f, .topP = 0.95f, .seed = 100};
  const GenerateResult together = Host({}, {.unpaced = true}).run(request);
  EXPECT_NE(together.tokens, Host({}, {.unpaced = true}).run(smallRequest()).tokens); // not greedy
  for (size_t r = 0; r < request.prompts.size(); ++r) {
    GenerateRequest alone = request;
    alone.prompts = {request.prompts[r]};
    alone.sampling.seed = 100 + r;
    EXPECT_EQ(Host({}, {.unpaced = true}).run(alone).tokens[0], together.tokens[r]);
  }
}

// The logits that are kept are the model's, before penalties: from them and the ids the tokens follow.
TEST(BatchEngine, TokensUnderPenaltiesFollowFromTheLogitsThatAreKept) {
  for (const float temperature : {0.0f, 1.0f}) {
    GenerateRequest request = smallRequest();
    request.maxNewTokens = 20;
    request.keepLogits = true;
    request.sampling = {.temperature = temperature,
                        .topP = 0.95f,
                        .seed = 100,
                        .topK = 50,
                        .minP = 0.01f,
                        .repetitionPenalty = 2,
                        .presencePenalty = 0.5f,
                        .frequencyPenalty = 0.25f};
    const GenerateResult result = Host({.offloaded = {1}, .promptTokens = 4}, {.unpaced = true}).run(request);
    for (size_t r = 0; r < request.prompts.size(); ++r) {
      const auto vocab = static_cast<ptrdiff_t>(result.logits[r].size() / result.tokens[r].size());
      kernels::SampleRequest row{.temperature = temperature,
                                 .topP = 0.95f,
                                 .seed = 100 + r,
                                 .topK = 50,
                                 .minP = 0.01f,
                                 .repetition = 2,
                                 .presence = 0.5f,
                                 .frequency = 0.25f,
                                 .history = request.prompts[r],
                                 .promptTokens = static_cast<int32_t>(request.prompts[r].size())};
      ptrdiff_t at = 0;
      for (const int32_t token : result.tokens[r]) {
        const auto logits = result.logits[r].begin() + at * vocab;
        EXPECT_TRUE(kernels::reference::mayTake(token, {logits, logits + vocab}, row)) << r << ", token " << at;
        row.history.push_back(token);
        ++at;
      }
    }
    request.sampling.repetitionPenalty = 1, request.sampling.presencePenalty = request.sampling.frequencyPenalty = 0;
    EXPECT_NE(Host({}, {.unpaced = true}).run(request).tokens, result.tokens);
  }
}

TEST(BatchEngine, SeveralRequestsOneAfterTheOtherDoNotDisturbEachOther) {
  Host host({.offloaded = {0, 3}, .wrap = true});
  const GenerateResult first = host.run(smallRequest());
  GenerateRequest other = smallRequest();
  other.prompts = {{100, 101, 102}};
  (void)host.run(other);
  EXPECT_EQ(host.run(smallRequest()).tokens, first.tokens);
  EXPECT_EQ(host.runtime().transitionsRun(), 1u); // into the wrap-around's state, once
}

TEST(BatchEngine, CountsTheBytesThatItsIterationsMove) {
  Host host({.offloaded = {1, 3}}, {.unpaced = true});
  for (int i = 0; i < 2; ++i) { // of this call, not since open()
    const GenerateResult result = host.run(smallRequest());
    EXPECT_EQ(result.counters.launches, result.iterations);
    EXPECT_EQ(result.counters.h2dBytes, result.iterations * plan::linkBytes(host.plan().schedules[0]).h2d);
    EXPECT_EQ(result.counters.d2hBytes, 0u);
    EXPECT_EQ(result.counters.peakDeviceBytes, host.plan().arenaBytes);
  }
}

TEST(BatchEngine, ReportsTimesOnTheDevicesClock) {
  GenerateRequest request = smallRequest();
  int64_t total = 0;
  request.onIteration = [&](const IterationSeen &seen) { total += seen.ns; };
  const GenerateResult result = Host({.offloaded = {1}}).run(request);
  for (int64_t ns : result.firstTokenNs)
    EXPECT_GT(ns, 0);
  EXPECT_LE(result.firstTokenNs[1], total); // prompts 1 and 2 end in the same iteration
  EXPECT_EQ(result.firstTokenNs[1], result.firstTokenNs[2]);
  EXPECT_GT(result.ttftMs, 0);
  EXPECT_GT(result.tpotMs, 0);
}

// Tokens of a row do not depend on what else is in the batch, on how prompts are cut into chunks, or on the placement.
void rowsAreIndependentOfTheirCompany() {
  const int64_t layers = 3;
  GenerateRequest request;
  const auto count = *rc::gen::inRange<size_t>(1, 4);
  for (size_t p = 0; p < count; ++p)
    request.prompts.push_back(
        *rc::gen::container<std::vector<int32_t>>(*rc::gen::inRange<size_t>(1, 20), rc::gen::inRange<int32_t>(0, 150)));
  request.maxNewTokens = *rc::gen::inRange<int64_t>(1, 12);
  request.keepLogits = *rc::gen::arbitrary<bool>();
  request.separatePrefill = *rc::gen::arbitrary<bool>();
  request.sampling = {
      .temperature = *rc::gen::element(0.0f, 0.8f), .topP = 0.9f, .seed = *rc::gen::inRange<uint64_t>(0, 1000)};
  request.sampling.topK = *rc::gen::element(0, 5);
  request.sampling.minP = *rc::gen::element(0.0f, 0.1f);
  request.sampling.repetitionPenalty = *rc::gen::element(1.0f, 1.5f);
  request.sampling.presencePenalty = *rc::gen::element(0.0f, 0.5f);
  TinyPlanOptions options{.spec = *rc::gen::element(core::tinyLlama(layers), core::tinyOpt(layers)),
                          .offloaded = *rc::gen::element(std::vector<int64_t>{}, std::vector<int64_t>{1},
                                                         std::vector<int64_t>{0, 2}, std::vector<int64_t>{0, 1, 2}),
                          .wrap = *rc::gen::arbitrary<bool>(),
                          .promptTokens = *rc::gen::inRange<int64_t>(3, 25),
                          .blockTokens = *rc::gen::element<int64_t>(1, 4, 16)};
  const GenerateResult batch = Host(options, {.unpaced = true, .poison = *rc::gen::arbitrary<bool>()}).run(request);
  const auto p = *rc::gen::inRange<size_t>(0, count);
  GenerateRequest alone = request;
  alone.prompts = {request.prompts[p]};
  alone.sampling.seed += p;
  const GenerateResult one = Host({.spec = options.spec}, {.unpaced = true}).run(alone);
  RC_ASSERT(one.tokens[0] == batch.tokens[p]);
  if (request.keepLogits)
    RC_ASSERT(sameBits({one.logits[0]}, {batch.logits[p]}));
}

TEST(BatchEngineProperty, ARowAloneEqualsTheRowInEveryBatchAndPlacement) {
  EXPECT_TRUE(rc::check(rowsAreIndependentOfTheirCompany));
}

TEST(BatchEngine, RunsOnTheDeviceWithoutData) {
  Host sim({.offloaded = {1, 3}, .wrap = true}, sim::makeSimDevice());
  const GenerateResult result = sim.run(smallRequest());
  for (const auto &tokens : result.tokens) {
    EXPECT_EQ(tokens.size(), 8u);
    for (int32_t token : tokens)
      EXPECT_TRUE(token >= 0 && token < 150);
  }
  EXPECT_GT(result.tpotMs, 0);
  GenerateRequest request = smallRequest();
  request.keepLogits = true;
  EXPECT_THAT(std::string(generate(sim.runtime(), request).status().message()),
              HasSubstr("device 'sim' holds no data, there are no logits to keep"));
}

TEST(BatchEngine, AnIterationThatNoVariantHoldsFailsByNameAndLeavesNothingInFlight) {
  plan::Plan plan = core::tinyPlan({});
  plan.variants.pop_back();
  plan.variants[0].context = 6; // the sequence outgrows it
  const auto device = host::makeHostDevice({.unpaced = true});
  const auto weights = model::syntheticWeights(1);
  auto runtime = core::Runtime::load(plan, *device, {}, weights.get(), {});
  ASSERT_TRUE(runtime.ok());
  GenerateRequest request;
  request.prompts = {{1, 2}}; // no mixed variant: a row at a time
  const auto result = generate(**runtime, request);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("1 new tokens of 1 sequences at context 7"));
  request.maxNewTokens = 4;
  EXPECT_TRUE(generate(**runtime, request).ok());
}

TEST(BatchEngine, LogitsThatACopyOverwritesCannotBeKept) {
  plan::Plan plan = core::tinyPlan({.offloaded = {0, 1}, .wrap = true});
  for (plan::Schedule &schedule : plan.schedules) // the tail's copies go where the logits are
    for (const plan::Step &step : schedule.steps)
      if (step.kind == plan::StepKind::Copy)
        for (const plan::Local &local : schedule.locals)
          if (local.buffer.name == "logits") {
            plan::Operand &destination = schedule.operands[step.firstOperand + 1];
            schedule.operands[step.firstOperand].bytes = destination.bytes = 256;
            destination.address = local.address;
          }
  const auto device = host::makeHostDevice({.unpaced = true});
  const auto weights = model::syntheticWeights(1);
  auto runtime = core::Runtime::load(plan, *device, {}, weights.get(), {});
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  GenerateRequest request = smallRequest();
  request.keepLogits = true;
  EXPECT_THAT(std::string(generate(**runtime, request).status().message()), HasSubstr("overwrites the logits"));
}

} // namespace
} // namespace headrace::serve
