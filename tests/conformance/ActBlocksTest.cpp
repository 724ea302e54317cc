// SPDX-License-Identifier: Apache-2.0
//
// Plans whose sequences keep activations in some of their blocks: the tokens of a request are those of the request
// alone on a plan that keeps keys and values, whatever the share, the number of mini-batches and where weights are. On
// the host keys and values that were rebuilt are bit for bit those that were cached.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/Kernels.h"
#include "passes/algorithms/PickLayers.h"
#include "runtime/plan/proof/PlanVerifier.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "tests/conformance/DevicesUnderTest.h"
#include "tests/conformance/EngineTraffic.h"
#include "tests/support/WrongWeights.h"

namespace headrace {
namespace {

constexpr int64_t kLayers = 3, kSequences = 2, kContext = 64;
const std::vector<model::ActRatio> kShares = {{1, 3}, {1, 2}, {3, 4}, {1, 1}};

struct Kept {
  model::ActRatio share; // none: keys and values alone
  int64_t miniBatches = 1;
  int64_t interval = 0;  // of the weights, 0 none away
  int64_t onHost = 0;    // of so many layers activation blocks are on the host between iterations
  int64_t resident = -1; // KV blocks on the device, the scratch block included; -1: all
  algorithms::WriteBack writeBack = algorithms::WriteBack::Mirror;
};
std::ostream &operator<<(std::ostream &out, const Kept &k) {
  return out << "share " << model::actRatioText(k.share) << ", " << k.miniBatches << " mini-batches, interval "
             << k.interval << ", activations of " << k.onHost << " layers on the host, " << k.resident
             << " KV blocks, written back " << static_cast<int>(k.writeBack);
}

compiler::CompileRequest ask(model::DeviceKind kind, const model::ModelSpec &spec, const Kept &kept) {
  compiler::CompileRequest request;
  request.model = spec;
  request.hardware = core::tinyPlan({.spec = core::tinyLlama(1), .kind = kind}).hardware;
  request.hardware.flopsF32 = request.hardware.flopsF16 = request.hardware.memoryBandwidth = 1e10;
  request.hardware.flopsEfficiency = request.hardware.memoryEfficiency = 0.5;
  request.goal.miniBatches = kept.miniBatches;
  request.goal.batch = kSequences * kept.miniBatches;
  request.goal.context = kContext;
  request.goal.blockTokens = 4;
  request.buckets = {.newTokens = {1, kSequences, 8}, .sequences = {1, kSequences}, .contexts = {16, kContext}};
  if (kept.share.any())
    request.policy.actRatio = kept.share;
  request.policy.actHome = kept.onHost == kLayers ? model::ActHome::Host : model::ActHome::Auto;
  compiler::Candidate candidate =
      compiler::stated(request.model, {kept.interval > 0 ? compiler::interval(kept.interval) : compiler::none()})
          .front();
  if (kept.resident >= 0)
    candidate.residency.setKvAway(kLayers, kept.resident);
  candidate.residency.kv().decodeBack = candidate.residency.kv().mixedBack = kept.writeBack;
  candidate.residency.setActAway(algorithms::evenLayers(kLayers, kept.onHost));
  request.placements = {candidate};
  return request;
}

// Grouped queries, biases and learned positions, norms of q's and k's heads.
std::vector<model::ModelSpec> specs() {
  std::vector<model::ModelSpec> out = {core::tinyLlama(kLayers), core::tinyOpt(kLayers), core::tinyLlama(kLayers)};
  out.back().name = "tiny-qwen3";
  out.back().family = model::Family::Qwen3;
  out.back().qkNorm = true;
  return out;
}

class ActBlocks : public testing::TestWithParam<core::DeviceUnderTest> {
protected:
  static bool few() { return GetParam().plansFor != model::DeviceKind::Host && !longRun(); }
  static std::unique_ptr<Loaded> load(const model::ModelSpec &spec, const Kept &kept) {
    return Loaded::load(ask(GetParam().plansFor, spec, kept), GetParam().make());
  }
  static std::vector<std::vector<int32_t>> prompts(int64_t count) {
    std::vector<std::vector<int32_t>> out(static_cast<size_t>(count));
    for (size_t p = 0; p < out.size(); ++p)
      for (size_t i = 0; i < std::vector<size_t>{13, 1, 3, 9, 30, 2, 17, 5}[p % 8]; ++i)
        out[p].push_back(static_cast<int32_t>((7 * p + 3 * i + 1) % 150));
    return out;
  }
  static int64_t newTokens() { return few() ? 5 : 16; }
  static std::vector<Kept> cases() {
    std::vector<Kept> all;
    int way = 0;
    for (const model::ActRatio &share : kShares)
      for (int64_t m = 1; m <= 4; ++m)
        for (const int64_t interval : {0, 2})
          for (const int64_t onHost : {int64_t{0}, int64_t{1}, kLayers})
            for (const int64_t resident : {-1, 0, 1, 3}) {
              const bool splits = resident >= 0 && share != model::ActRatio{1, 1}; // else there are no KV blocks
              all.push_back({share, m, interval, onHost, splits ? resident : -1,
                             static_cast<algorithms::WriteBack>(splits ? ++way % 3 : 0)});
            }
    if (longRun())
      return all;
    std::vector<Kept> some; // of each share and number of mini-batches
    for (size_t i = 0; i < all.size(); i += few() ? 97 : 37)
      some.push_back(all[i]);
    return some;
  }
  // Requests together by each, against each request alone where keys and values are kept.
  static void expectTokensAlone(const std::vector<Kept> &all) {
    for (const model::ModelSpec &spec : specs()) {
      SCOPED_TRACE(spec.name);
      const auto by = load(spec, {});
      ASSERT_NE(by, nullptr);
      std::vector<std::vector<int32_t>> alones;
      for (const std::vector<int32_t> &prompt : prompts(4 * kSequences))
        alones.push_back(alone(*by, {.prompt = prompt, .maxNewTokens = newTokens()}));
      for (const Kept &kept : all) {
        SCOPED_TRACE(testing::Message() << kept);
        const auto loaded = load(spec, kept);
        ASSERT_NE(loaded, nullptr);
        EXPECT_GT(loaded->plan.actBlocks, 0);
        const int64_t requests = kept.miniBatches * kSequences;
        const auto result =
            serve::generate(*loaded->runtime, {.prompts = prompts(requests), .maxNewTokens = newTokens()});
        ASSERT_TRUE(result.ok()) << result.status();
        EXPECT_EQ(result->tokens, std::vector(alones.begin(), alones.begin() + requests));
        EXPECT_EQ(loaded->runtime->missingVariants(), 0u);
        for (uint32_t i = 0; i < loaded->plan.miniBatches; ++i)
          EXPECT_EQ(loaded->runtime->kvBlocks(i).used(), 0);
      }
    }
  }
};

TEST_P(ActBlocks, TokensAreThoseOfKeysAndValuesKept) { expectTokensAlone(cases()); }

// What is brought of a layer's activation blocks follows what is in use: a sequence of 5 tokens has one of them at
// first (1 of 2), 2 sequences at their longest have 16. So a launch brings a 16th of all, in 256ths.
TEST_P(ActBlocks, CopiesWhatIsInUse) {
  const auto loaded = load(core::tinyLlama(kLayers), {{1, 2}, 1, 0, kLayers});
  ASSERT_NE(loaded, nullptr);
  const uint64_t all = static_cast<uint64_t>(loaded->plan.actBlocks * kLayers) * loaded->plan.actBlockBytes();
  const auto before = loaded->device->counters();
  const auto result = serve::generate(*loaded->runtime, {.prompts = {{1, 2, 3, 4, 5}}, .maxNewTokens = 2});
  ASSERT_TRUE(result.ok()) << result.status();
  const uint64_t brought = loaded->device->counters().h2dBytes - before.h2dBytes;
  EXPECT_GE(brought, 2 * all / 16);
  EXPECT_LT(brought, 2 * all / 12);
}

// A row at a time: what a sequence has alone is what it has among others, too.
TEST_P(ActBlocks, OneSequenceARowAtATime) {
  const auto by = load(core::tinyLlama(kLayers), {});
  const EngineRequest request{.prompt = prompts(1)[0], .maxNewTokens = newTokens()};
  const std::vector<int32_t> expected = alone(*by, request);
  for (const model::ActRatio &share : kShares) {
    const auto loaded = load(core::tinyLlama(kLayers), {share});
    ASSERT_NE(loaded, nullptr);
    EXPECT_EQ(alone(*loaded, request), expected) << model::actRatioText(share);
  }
}

// Three blocks of 4 tokens, 1 of 2 in each sequence: the first and the third keep activations.
TEST_P(ActBlocks, TablesFollowTheShare) {
  const auto loaded = load(core::tinyOpt(kLayers), {{1, 2}});
  ASSERT_NE(loaded, nullptr);
  const plan::Plan &plan = loaded->plan;
  // 2 sequences of 16 blocks, 8 of each kind.
  EXPECT_EQ(plan.kvBlocks, 17);
  EXPECT_EQ(plan.actBlocks, 16);
  EXPECT_EQ(plan.contextBlocks, 32);
  std::vector<int32_t> table;
  core::KvBlocks &pool = loaded->runtime->kvBlocks();
  ASSERT_TRUE(pool.grow(table, 12).ok());
  EXPECT_EQ(table, (std::vector<int32_t>{17, 1, 18}));
  EXPECT_EQ(pool.freeBlocks(), 29);
  pool.release(table);
}

INSTANTIATE_TEST_SUITE_P(Devices, ActBlocks, testing::ValuesIn(core::devicesWithData()),
                         [](const auto &info) { return std::string(info.param.name); });

#ifndef HEADRACE_EMULATED_TESTS
// Keys and values of all tokens of a layer that rebuild_kv has made, against those of a plan that has cached them.
TEST(ActBlocksOnTheHost, RebuiltBitsAreTheCachedOnes) {
  // Done where the kernels are tested (RebuildKvTest.cpp) for every type and order; here logits stand for them.
  for (const model::ModelSpec &spec : specs()) {
    const auto logitsOf = [&](const Kept &kept) {
      const auto loaded =
          Loaded::load(ask(model::DeviceKind::Host, spec, kept), core::devicesWithData().front().make());
      std::vector<int32_t> prompt;
      for (int32_t i = 0; i < 23; ++i)
        prompt.push_back((5 * i + 2) % 150);
      const auto result =
          serve::generate(*loaded->runtime, {.prompts = {prompt}, .maxNewTokens = 20, .keepLogits = true});
      EXPECT_TRUE(result.ok()) << result.status();
      return result->logits;
    };
    const auto cached = logitsOf({});
    ASSERT_FALSE(cached.empty());
    for (const model::ActRatio &share : kShares) {
      const auto rebuilt = logitsOf({share});
      ASSERT_EQ(rebuilt.size(), cached.size());
      for (size_t s = 0; s < cached.size(); ++s)
        EXPECT_EQ(rebuilt[s], cached[s]) << spec.name << " " << model::actRatioText(share);
    }
  }
}

#endif

} // namespace
} // namespace headrace
