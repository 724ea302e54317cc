// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/Search.h"
#include "compiler/search/generators/Generators.h"

#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/choice/Packing.h"
#include "compiler/search/Why.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/proof/PlanVerifier.h"
#include "tests/support/LongRun.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using ::testing::HasSubstr;

class Search : public ::testing::Test {
protected:
  int below(int n) { return static_cast<int>(generator_() % static_cast<uint32_t>(n)); }
  std::mt19937 generator_{45};
};

// Llama-3.1-8B's weights take 15.0 GiB; of 16 GiB of KV at a context of 131,072 the device has room for some 7.6 beside
// them, or for all beside a third of the layers.
CompileRequest longContext() {
  CompileRequest r = shipped("llama-3.1-8b", "rtx4090", 1, 131072);
  r.goal.deviceMemory = 24'000'000'000;
  return r;
}

TEST_F(Search, LongContextsMoveCachesAndNotWeights) {
  CompileRequest r = longContext();
  const cost::Roofline costs(r.model, r.hardware, r.model->dtype, r.model->dtype);
  Space space(r, costs);
  const std::optional<Searched> searched = search(space, searchedGenerators(space));
  ASSERT_TRUE(searched.has_value());
  EXPECT_EQ(searched->best.at.layers, 0);
  EXPECT_GT(searched->best.candidate.residency.firstKvBlockAway().value_or(0), 3000);
  EXPECT_LT(searched->evaluated, 2000u);
  // The fewest layers away with all of KV on the device, which is what `interval` has.
  Coordinates whole = space.origin();
  whole.embedding = true;
  const Scored *fewest = nullptr;
  for (whole.layers = 1; whole.layers <= 32 && fewest == nullptr; ++whole.layers)
    if (const Scored *const of = space.score(whole);
        of != nullptr && of->overBytes == 0 && !of->candidate.residency.firstKvBlockAway())
      fewest = of;
  ASSERT_NE(fewest, nullptr);
  EXPECT_GT(fewest->aimNs, 4 * searched->best.aimNs);
  const Bound bound = boundOf(space, *searched);
  EXPECT_LE(bound.aimNs, searched->best.aimNs);
  EXPECT_GE(bound.aimNs, 0.9 * searched->best.aimNs);
}

// A plan of it is one that is stated: it holds the plan's rules, and the same request gives the same bytes.
TEST_F(Search, CompilesToTheSamePlanEveryTime) {
  CompileRequest r = longContext();
  r.policy.name = "joint";
  const absl::StatusOr<plan::Plan> plan = compile(r), again = compile(r);
  ASSERT_TRUE(plan.ok() && again.ok()) << plan.status();
  EXPECT_TRUE(plan::verifyPlan(*plan, "plan").ok()) << plan::verifyPlan(*plan, "plan");
  EXPECT_EQ(plan::serialize(*plan), plan::serialize(*again));
  EXPECT_EQ(plan->policy.name, "joint");
  EXPECT_LE(plan->arenaBytes, plan->deviceMemory);
  EXPECT_THAT(plan->reason, HasSubstr("No choice takes less than"));
}

TEST_F(Search, WhatIsStatedStaysAsItIs) {
  CompileRequest r = longContext();
  r.policy.name = "joint";
  r.goal.kvDeviceMemory = uint64_t{3} << 30; // 1,092 blocks of 2 MiB, and two slots for the other 7,101 of a layer
  const absl::StatusOr<plan::Plan> plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan::kvBytesByHome(*plan, 0).device, 1092 * (uint64_t{2} << 20));
  EXPECT_EQ(plan::kvSlotBytes(*plan, 0), 2 * 7101 * (uint64_t{64} << 10));
  r.goal.kvDeviceMemory.reset();
  r.policy.offloadEmbedding = model::AutoOnOff::Off;
  r.policy.kvWriteBack = model::KvWriteBack::Dirty;
  const absl::StatusOr<plan::Plan> dirty = compile(r);
  ASSERT_TRUE(dirty.ok()) << dirty.status();
  EXPECT_FALSE(plan::offloadedWeights(*dirty, dirty->placements.front()).embedding);
  const plan::Schedule &schedule = dirty->schedules.front();
  EXPECT_TRUE(
      std::any_of(schedule.steps.begin(), schedule.steps.end(), [](const plan::Step &of) { return of.dirtyOnly; }));
}

TEST_F(Search, WithoutRoomForAnythingTheLeastThatWouldDoIsSaid) {
  CompileRequest r = longContext();
  r.policy.name = "joint";
  r.goal.deviceMemory = 1'000'000;
  const absl::Status refused = compile(r).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("What would do: a device memory of "));
  r.goal.deviceMemory = 24'000'000'000;
  r.goal.tpot = std::chrono::milliseconds(100);
  EXPECT_THAT(std::string(compile(r).status().message()), HasSubstr("the minimum TPOT is 348."));
}

// At the least memory that a refusal names it compiles, and with one granule less it is refused: of the device, and of
// the host beside a device that is too small for all.
TEST_F(Search, MinimaAreMinimal) {
  Problems problems(20, 1000);
  const auto least = [](const absl::Status &refused, const std::string &before) {
    const std::string text(refused.message());
    const size_t at = text.find(before);
    return at == std::string::npos ? 0 : std::stoull(text.substr(at + before.size()));
  };
  for (int problem = 0; problem < problems.count(); ++problem) {
    problems.begin(problem, generator_);
    const int64_t layers = 1 + below(6);
    const model::ModelSpec specs[] = {tinyLlama(layers), tinyOpt(layers), tinyQwen(layers, below(2) == 0)};
    CompileRequest r = request(specs[below(3)]);
    r.goal.batch = int64_t{1} << below(4);
    r.goal.context = 32 << below(4);
    if (below(4) == 0)
      r.policy.slots = 1 + below(static_cast<int>(std::min<int64_t>(layers, 3)));
    if (below(4) == 0)
      r.policy.offloadHead = model::AutoOnOff::Off;
    if (below(4) == 0)
      r.goal.kvDeviceMemory = 0;
    const absl::StatusOr<plan::Plan> all = compile(r);
    ASSERT_TRUE(all.ok()) << all.status();
    const bool ofHost = below(3) == 0;
    SCOPED_TRACE(absl::StrCat(r.model->name, ", batch ", *r.goal.batch, ", context ", *r.goal.context, ", slots ",
                              r.policy.slots.value_or(0), r.goal.kvDeviceMemory ? ", no KV on the device" : "",
                              ofHost ? ", of the host" : ""));
    r.goal.deviceMemory = ofHost ? all->arenaBytes * 9 / 10 : 4096;
    if (ofHost) {
      if (!compile(r).ok())
        continue; // no host would do
      r.hardware.hostMemoryBytes = 1;
    }
    const absl::Status refused = compile(r).status();
    if (ofHost && refused.ok())
      continue; // the plan was larger than it has to be
    ASSERT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
    const uint64_t bytes = least(refused, ofHost ? "a host memory of " : "What would do: a device memory of ");
    ASSERT_GT(bytes, 0u) << refused;
    const auto with = [&](uint64_t memory) {
      (ofHost ? r.hardware.hostMemoryBytes : r.goal.deviceMemory.emplace()) = memory;
      return compile(r);
    };
    EXPECT_TRUE(with(bytes).ok()) << with(bytes).status();
    const absl::StatusOr<plan::Plan> less = with(bytes - 1);
    EXPECT_EQ(less.status().code(), absl::StatusCode::kResourceExhausted) << bytes << "\n"
                                                                          << (less.ok() ? less->reason : "") << "\n"
                                                                          << refused;
  }
}

// With all encodings allowed a search finds what is as good as with any of them stated; and it is one of them.
TEST_F(Search, IsAsGoodAsEachEncodingThatIsAllowed) {
  const int wanted = longRun() ? 200 : 6;
  for (int problem = 0; problem < wanted; ++problem) {
    CompileRequest r = request(tinyLlama(1 + below(6)));
    r.model->headDim = 32, r.model->heads = 2;
    r.model->tiedEmbeddings = below(2) == 0;
    r.goal.batch = int64_t{1} << below(4);
    r.goal.context = 64 << below(4);
    r.hardware.h2dBandwidth = r.hardware.d2hBandwidth = 1e9 / (1 + below(8));
    r.hardware.duplexBandwidth = 2 * r.hardware.h2dBandwidth;
    r.hardware.flopsF32 = 100e9 / (1 + below(50));
    r.goal.deviceMemory = model::layoutWeights(r.model).totalBytes() * static_cast<uint64_t>(6 + below(6)) / 10;
    SCOPED_TRACE(absl::StrCat(r.model->layers, " layers, batch ", *r.goal.batch, ", context ", *r.goal.context,
                              ", memory ", *r.goal.deviceMemory, ", link ", r.hardware.h2dBandwidth));
    const auto best = [](const CompileRequest &of) {
      const cost::Roofline costs(of.model, of.hardware, activationOf(of), kvEncodingOf(of));
      Space space(of, costs);
      return search(space, searchedGenerators(space));
    };
    CompileRequest allowing = r;
    allowing.goal.allowQuantized = model::AllowQuantized::Both;
    const std::optional<Searched> found = best(allowing);
    bool one = false;
    for (const model::WeightEncodings &weights : allowedWeights(allowing))
      for (const std::optional<model::Encoding> &kv : allowedKv(allowing)) {
        Choice chosen;
        chosen.encodings = {weights, kv};
        const std::optional<Searched> stated = best(asChosen(allowing, chosen));
        if (!stated)
          continue;
        ASSERT_TRUE(found.has_value());
        EXPECT_LE(found->best.aimNs, stated->best.aimNs * (1 + kTie));
        one |= found->best.candidate.encodings == Encodings{weights, kv} &&
               found->best.aimNs <= stated->best.aimNs * (1 + kTie);
      }
    EXPECT_EQ(one, found.has_value());
  }
}

// Chunks vary where the goal says what is prompted and nothing what buckets there are, up to one that holds all
// prompts.
TEST_F(Search, ChunksVaryWherePromptsAreStated) {
  CompileRequest r = request(tinyLlama(2));
  r.goal.batch = 64;
  r.goal.context = 144;
  const cost::Roofline costs(r.model, r.hardware, model::DType::F32, model::DType::F32);
  EXPECT_FALSE(Space(r, costs).free().chunk);
  r.goal.ttft = std::chrono::seconds(1);
  EXPECT_TRUE(Space(r, costs).free().chunk);
  r.goal.ttft.reset();
  r.goal.inputLen = 100; // 6,400 rows
  {
    Space space(r, costs);
    EXPECT_TRUE(space.free().chunk);
    Coordinates at = space.origin();
    EXPECT_EQ(at.chunk, 2048);
    at.chunk = 8192;
    ASSERT_TRUE(space.exists(at));
    EXPECT_EQ(space.target(at).mixed.back().tokens, 8192);
    EXPECT_EQ(space.commonOf(at).largestChunk, 8192);
    at.chunk = 16384;
    EXPECT_FALSE(space.exists(at));
  }
  r.buckets.newTokens = {16, 128};
  EXPECT_FALSE(Space(r, costs).free().chunk);
}

// Of 64 prompts of 128 tokens: in iterations of 2,048, 4,096 or all 8,192, with weights on the host and KV, too.
TEST_F(Search, IsAsGoodAsTryingAllChunks) {
  const int wanted = longRun() ? 300 : 10;
  int problems = 0;
  std::set<int64_t> chosen;
  for (int draws = 0; problems < wanted; ++draws) {
    ASSERT_LT(draws, 20 * wanted);
    const int64_t layers = 3 + below(2);
    CompileRequest r = request(below(2) == 0 ? tinyLlama(layers) : tinyOpt(layers));
    r.goal.batch = 64;
    r.goal.context = 144;
    r.goal.inputLen = 128;
    r.goal.outputLen = 1 + below(16);
    r.policy.actRatio = model::ActRatio();
    r.hardware.h2dBandwidth = r.hardware.d2hBandwidth = r.hardware.duplexBandwidth = 1e9 / (1 << below(12));
    const absl::StatusOr<Target> target = resolve(r);
    ASSERT_TRUE(target.ok());
    const cost::Roofline costs(r.model, r.hardware, target->activation, target->kv);
    uint64_t all = 0;
    {
      CompileRequest whole = r;
      whole.goal.deviceMemory = uint64_t{1} << 30;
      Space space(whole, costs);
      all = space.score(space.origin())->deviceBytes;
    }
    r.goal.deviceMemory = all * static_cast<uint64_t>(30 + below(170)) / 100;
    if (below(2) == 0)
      r.goal.kvDeviceMemory = 0;
    SCOPED_TRACE(absl::StrCat(r.model->name, ", output ", *r.goal.outputLen, ", ", *r.goal.deviceMemory, " of ", all,
                              " bytes, link ", r.hardware.h2dBandwidth));
    Space space(r, costs);
    const std::optional<Searched> searched = search(space, searchedGenerators(space));
    const size_t evaluated = space.evaluated();
    const Scored *best = nullptr;
    Coordinates at = space.origin();
    const auto flag = [](bool may) { return may ? 2 : 1; };
    for (at.chunk = kLargestChunk; space.exists(at); at.chunk *= 2)
      for (at.layers = 0; at.layers <= layers; ++at.layers)
        for (int e = 0; e < flag(space.free().embedding); ++e)
          for (int h = 0; h < flag(space.free().head); ++h)
            for (at.slots = 1; at.slots <= 3; ++at.slots)
              for (int dirty = 0; dirty < 4; ++dirty) {
                at.embedding = e == 1;
                at.head = h == 1;
                at.decodeDirty = dirty % 2 == 1;
                at.mixedDirty = dirty / 2 == 1;
                if (const Scored *const of = space.score(at);
                    of != nullptr && of->overBytes == 0 && (best == nullptr || space.isBetter(*of, *best)))
                  best = of;
              }
    EXPECT_EQ(at.chunk, 16384);
    if (best == nullptr)
      continue; // nothing of these fits
    ASSERT_TRUE(searched.has_value());
    ++problems;
    chosen.insert(searched->best.at.chunk);
    EXPECT_LE(searched->best.comparedNs, 1.01 * best->comparedNs)
        << toText(searched->best.candidate) << " against " << toText(best->candidate);
    EXPECT_LE(evaluated, 2000u);
    EXPECT_LE(boundOf(space, *searched).aimNs, best->aimNs);
  }
  EXPECT_EQ(chosen, (std::set<int64_t>{2048, 4096, 8192}));
}

// All choices of a small model, shares in quarters: the search's is within a hundredth of the best.
TEST_F(Search, IsAsGoodAsTryingAll) {
  const int wanted = longRun() ? 300 : 10;
  int problems = 0;
  double worst = 1;
  for (int draws = 0; problems < wanted; ++draws) {
    ASSERT_LT(draws, 20 * wanted);
    const int64_t layers = 3 + below(2);
    CompileRequest r = request(below(2) == 0 ? tinyLlama(layers) : tinyOpt(layers));
    r.goal.batch = int64_t{4} << below(2);
    r.goal.context = 128 << below(2);
    r.hardware.h2dBandwidth = r.hardware.d2hBandwidth = 1e9 / (1 << below(4));
    r.hardware.duplexBandwidth = r.hardware.h2dBandwidth * (1 + 0.25 * below(5));
    const absl::StatusOr<plan::Plan> all = [&] {
      CompileRequest whole = r;
      whole.goal.deviceMemory = uint64_t{1} << 30;
      return compile(whole);
    }();
    ASSERT_TRUE(all.ok()) << all.status();
    r.goal.deviceMemory = all->arenaBytes * static_cast<uint64_t>(30 + below(65)) / 100;
    SCOPED_TRACE(absl::StrCat(r.model->name, ", batch ", *r.goal.batch, ", context ", *r.goal.context, ", ",
                              *r.goal.deviceMemory, " of ", all->arenaBytes, " bytes"));
    const absl::StatusOr<Target> target = resolve(r);
    ASSERT_TRUE(target.ok());
    const cost::Roofline costs(r.model, r.hardware, target->activation, target->kv);
    Space space(r, costs);
    const std::optional<Searched> searched = search(space, searchedGenerators(space));
    const size_t evaluated = space.evaluated();
    const Scored *best = nullptr;
    Coordinates at = space.origin();
    const auto flag = [](bool may) { return may ? 2 : 1; };
    for (at.layers = 0; at.layers <= layers; ++at.layers)
      for (int e = 0; e < flag(space.free().embedding); ++e)
        for (int h = 0; h < flag(space.free().head); ++h)
          for (at.slots = 1; at.slots <= 3; ++at.slots)
            for (at.kvSlots = 2; at.kvSlots <= 4; ++at.kvSlots)
              for (int dirty = 0; dirty < 4; ++dirty)
                for (at.actParts = 0; at.actParts <= (space.free().act ? kActParts : 0); at.actParts += kActParts / 4) {
                  at.embedding = e == 1;
                  at.head = h == 1;
                  at.decodeDirty = dirty % 2 == 1;
                  at.mixedDirty = dirty / 2 == 1;
                  if (const Scored *const of = space.score(at);
                      of != nullptr && of->overBytes == 0 && (best == nullptr || space.isBetter(*of, *best)))
                    best = of;
                }
    if (best == nullptr)
      continue; // nothing of these fits
    ASSERT_TRUE(searched.has_value());
    ++problems;
    EXPECT_LE(searched->best.aimNs, 1.01 * best->aimNs)
        << toText(searched->best.candidate) << " against " << toText(best->candidate);
    EXPECT_LE(evaluated, 2000u);
    worst = std::max(worst, searched->best.aimNs / best->aimNs);
  }
  RecordProperty("worst", absl::StrCat(worst));
}

} // namespace
} // namespace headrace::compiler
