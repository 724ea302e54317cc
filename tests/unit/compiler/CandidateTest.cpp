// SPDX-License-Identifier: Apache-2.0
#include "compiler/choice/Candidate.h"

#include <random>

#include "compiler/evaluate/Placements.h"
#include "compiler/lower/LowerModel.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using ::testing::HasSubstr;

TEST(Candidate, IsDescribedByWhatIsAway) {
  const model::ModelSpec spec = tinyLlama(6);
  const Candidate some = placementOfUnits({9, 1, 2}, 1 << 20); // qkv and out of layer 0, qkv of layer 2
  EXPECT_EQ(some.residency.weightsAway(), (std::vector<int32_t>{1, 2, 9}));
  const Away away = awayOf(some.residency, spec);
  EXPECT_EQ(away.layers, 2);
  EXPECT_EQ(away.units, 3u);
  EXPECT_FALSE(away.wholeLayers || away.head || away.embedding);
  EXPECT_EQ(describe(some, spec), "3 units of 2 layers, a ring of 1.00 MiB");
  EXPECT_FALSE(some.offloadsNothing());
  EXPECT_EQ(describe(placementOfUnits({1, 25}, 1 << 20), spec), "2 units of 1 layer, the head, a ring of 1.00 MiB");
  // All four units of layers 0 and 2; tied, the embedding is the head.
  EXPECT_EQ(describe(placementOfUnits({0, 1, 2, 3, 4, 9, 10, 11, 12}, 1 << 20), tinyOpt(6)),
            "2 layers, the embedding, the head, a ring of 1.00 MiB");
}

TEST(Candidate, IsTheSamePlacementWhateverItsName) {
  const Candidate a = placementOfUnits({1, 2}, 1 << 20);
  Candidate b = a;
  b.name = "other";
  EXPECT_TRUE(a.samePlacement(b));
  b.residency.wrap.decode = algorithms::Cut{1, 0};
  EXPECT_FALSE(a.samePlacement(b));
  EXPECT_FALSE(a.samePlacement(placementOfUnits({1, 3}, 1 << 20)));
  EXPECT_FALSE(a.samePlacement(placementOfUnits({1, 2}, 1 << 21)));
}

struct Refusal {
  std::string what;
  std::function<void(Candidate &)> change;
};

TEST(CheckCandidate, RefusesWhatCannotBeCompiled) {
  CompileRequest r = request(tinyLlama(6));
  const model::WeightLayout layout = model::layoutWeights(r.model);
  const Candidate good = placementOfUnits({1, 2, 3, 25}, 1 << 20);
  ASSERT_TRUE(checkCandidate(good, r.model, layout).ok());
  r.placements = {good};
  ASSERT_TRUE(compile(r).ok());
  const std::vector<Refusal> refusals = {
      {"from 0 to 25, got 26 behind 3",
       [](Candidate &c) {
         c.residency.setWeightsAway({3, 26});
       }},
      {"from 0 to 25, got -1 behind -1", [](Candidate &c) { c.residency.setWeightsAway({-1}); }},
      {"from 0 to 25, got 1 behind 1", [](Candidate &c) { c.residency.away[1].of.index = 1; }},
      {"from 0 to 25, got 1 behind 2", [](Candidate &c) { std::swap(c.residency.away[0], c.residency.away[1]); }},
      {"only whole weights", [](Candidate &c) { c.residency.away[0].end = 256; }},
      {"only whole weights", [](Candidate &c) { c.residency.away[0].space = algorithms::Space::Device; }},
      {"caches are split in all 6 layers or in none",
       [](Candidate &c) { c.residency.away[0].of.kind = algorithms::MovableKind::Kv; }},
      {"a ring of 4096 bytes cannot hold a unit of", [](Candidate &c) { c.residency.weights().setRing(4096); }},
      {"needs slots or a ring", [](Candidate &c) { c.residency.weights().setSlots(0); }},
      {"item-sized slots under the rule paper, not a ring",
       [](Candidate &c) {
         c.residency.start = algorithms::kPaper;
         c.residency.wrap = {};
       }},
      {"states no cut under the rule paper: nothing wraps around",
       [](Candidate &c) {
         c.residency.start = algorithms::kPaper;
         c.residency.weights().setSlots(2);
       }},
      {"states no cut under the rule ahead-1, which says itself",
       [](Candidate &c) {
         c.residency.start = algorithms::ahead(1);
         c.residency.weights().setSlots(1);
       }},
      {"slots for weights that is not negative", [](Candidate &c) { c.residency.weights().setSlots(-1); }},
      {"has interval -1", [](Candidate &c) { c.interval = -1; }},
  };
  for (const Refusal &refusal : refusals) {
    SCOPED_TRACE(refusal.what);
    Candidate bad = good;
    refusal.change(bad);
    const absl::Status status = checkCandidate(bad, r.model, layout);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(refusal.what));
    EXPECT_THAT(std::string(status.message()), HasSubstr("placement 'units 4'"));
    r.placements = {good, bad};
    EXPECT_EQ(compile(r).status(), status);
  }
}

// Two items ahead through one slot: the second would be there on entry, over the first.
TEST(CheckCandidate, WhatStartsTooEarlyForItsSlotsIsRefused) {
  CompileRequest r = request(tinyLlama(6));
  Candidate candidate;
  std::string error;
  candidate.name = "early";
  candidate.residency = *algorithms::residencyFromText("weights=5-20 slots=1 start=ahead-2", error);
  r.placements = {candidate};
  const absl::Status status = compile(r).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("placement 'early': the iteration 'weight 9' cannot be there on "
                                                       "entry: an earlier one lies in its range of slot 0"));
}

// Batch 2 at context 64: 2 x 4 blocks of 16 tokens and the scratch block.
TEST(CheckCandidate, BlocksAreThoseThatThereAre) {
  CompileRequest r = request(tinyLlama(2));
  Candidate candidate;
  candidate.name = "split";
  const auto refused = [&](int64_t first, int64_t blocks) {
    candidate.residency.setKvAway(2, first);
    candidate.kvBlocks = blocks;
    r.placements = {candidate};
    const absl::StatusOr<plan::Plan> plan = compile(r);
    EXPECT_TRUE(plan.ok() || plan.status().code() == absl::StatusCode::kInvalidArgument) << plan.status();
    return std::string(plan.status().message());
  };
  EXPECT_EQ(refused(8, 0), "");
  EXPECT_EQ(refused(9, 0), "placement 'split': caches are split at block 9, expected one of the 9 that there are");
  EXPECT_EQ(refused(8, 10), "placement 'split': has 10 blocks of each cache, expected at most the 9 that there are");
  EXPECT_EQ(refused(2, 8), "placements have at most 8 blocks of each cache, expected one that has all 9");
  r.policy.actRatio = model::ActRatio{1, 2}; // half of them
  EXPECT_EQ(refused(4, 0), "");
  EXPECT_EQ(refused(5, 0), "placement 'split': caches are split at block 5, expected one of the 5 that there are");
}

TEST(CheckCandidate, ARingIsAsLargeAsItsLargestUnitAtLeast) {
  const CompileRequest r = request(tinyLlama(6));
  const model::WeightLayout layout = model::layoutWeights(r.model);
  uint64_t largest = 0;
  for (const size_t unit : {1, 2, 3, 25})
    largest = std::max(largest, layout.units[unit].bytes);
  EXPECT_TRUE(checkCandidate(placementOfUnits({1, 2, 3, 25}, largest), r.model, layout).ok());
  EXPECT_THAT(std::string(checkCandidate(placementOfUnits({1, 2, 3, 25}, largest - 1), r.model, layout).message()),
              HasSubstr("cannot hold a unit of " + std::to_string(largest)));
}

TEST(CheckCandidate, TheTiedHeadIsTheEmbedding) {
  const model::ModelSpec spec = tinyOpt(6);
  const model::WeightLayout layout = model::layoutWeights(spec);
  EXPECT_TRUE(checkCandidate(placementOfUnits({1, 2}, 1 << 20), spec, layout).ok());
  EXPECT_TRUE(checkCandidate(placementOfUnits({0, 1, 2}, 1 << 20), spec, layout).ok());
  EXPECT_THAT(std::string(checkCandidate(placementOfUnits({1, 25}, 1 << 20), spec, layout).message()),
              HasSubstr("from 0 to 24, got 25"));
}

TEST(Candidate, IsDescribedWithAllThatIsNotOnTheDevice) {
  const model::ModelSpec spec = tinyLlama(6);
  Candidate candidate;
  EXPECT_EQ(describe(candidate, spec), "offload nothing");
  candidate.residency.setKvAway(6, 0);
  EXPECT_EQ(describe(candidate, spec), "all KV blocks");
  candidate.residency.kv().setSlots(3); // one more than they take anyway
  candidate.residency.setActAway({1, 4});
  candidate.residency.residuals().setSlots(3);
  EXPECT_EQ(describe(candidate, spec),
            "all KV blocks through 3 slots, activation blocks of 2 layers, residual streams through 3 slots");
  candidate = {};
  candidate.residency.setKvAway(6, 5);
  candidate.residency.kv().setPlaces(4, algorithms::SwapVisits{1, 1});
  candidate.residency.setWeightsAway({1, 2, 3, 4});
  candidate.residency.weights().setSlots(1);
  EXPECT_EQ(describe(candidate, spec), "1 layer, 1 slot, KV blocks from 5 on in 4 FIFO places");
}

// The arithmetic that chooses a placement against the arena of its plan: never below it, and near it.
TEST(PlacementFamily, KnowsWhatUnitsAndRingsNeed) {
  for (const model::ModelSpec &spec : {tinyLlama(6), tinyOpt(7)}) {
    CompileRequest r = request(spec);
    r.buckets = {.newTokens = {2, 16}, .sequences = {2}, .contexts = {64}};
    const Target target = *resolve(r);
    const model::WeightLayout layout = model::layoutWeights(spec);
    std::vector<MemoryUse> uses;
    for (const auto &[iterationClass, buckets] : {std::pair(plan::IterationClass::Decode, &target.decode),
                                                  std::pair(plan::IterationClass::Mixed, &target.mixed)})
      uses.push_back(memoryUseOf(
          stepsOf({&*r.model, &layout, &target, r.hardware.kind, iterationClass, Target::limits(*buckets)})));
    uint64_t arena = 0;
    const PlacementFamily family(r.model, layout, target, uses, [&](const Candidate &) { return arena; });

    std::mt19937 generator(3);
    for (int i = 0; i < 24; ++i) {
      std::vector<int32_t> units;
      uint64_t all = 0, largest = 0;
      for (int32_t unit = 1; unit < layout.headUnit(); ++unit)
        if (generator() % 3 == 0) {
          units.push_back(unit);
          all += layout.units[static_cast<size_t>(unit)].bytes;
          largest = std::max(largest, layout.units[static_cast<size_t>(unit)].bytes);
        }
      ASSERT_FALSE(units.empty());
      Candidate candidate = placementOfUnits(units, largest + generator() % (all - largest + 1));
      candidate.residency.wrap.around = i % 3 != 0;
      SCOPED_TRACE(describe(candidate, spec));
      const MemoryNeed need = family.need(candidate);
      // Whatever was asked before of the same weights: with another ring, with or without wrap-around.
      Candidate other = candidate;
      other.residency.weights().setRing(all);
      other.residency.wrap.around = !candidate.residency.wrap.around;
      EXPECT_EQ(family.need(other).bytes, PlacementFamily(r.model, layout, target, uses, nullptr).need(other).bytes);
      EXPECT_EQ(need.weights, layout.totalBytes() - all);
      EXPECT_LE(need.slots, candidate.residency.weights().ringBytes());
      r.placements = {candidate};
      const absl::StatusOr<plan::Plan> plan = compile(r);
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_EQ(plan->placements[0].slots[0].bytes, need.slots);
      EXPECT_LE(plan->arenaBytes, need.bytes);
      EXPECT_GE(static_cast<double>(plan->arenaBytes), 0.95 * static_cast<double>(need.bytes));
      arena = plan->arenaBytes;
      EXPECT_TRUE(family.fits(candidate, arena));
      EXPECT_FALSE(family.fits(candidate, arena - 1));
    }
  }
}

TEST(Compile, StatedPlacementsStandInsteadOfThePolicys) {
  CompileRequest r = request(tinyLlama(6));
  const model::WeightLayout layout = model::layoutWeights(r.model);
  // Rings: 128 KiB in laps of at most that; 49408 is the largest unit (up).
  const Candidate large = placementOfUnits({1, 2, 3, 4, 9, 10, 11, 12}, 128 << 10);
  const Candidate small = placementOfUnits({1, 2, 3, 4, 9, 10, 11, 12}, 49408);
  r.placements = {large, small};
  const absl::StatusOr<plan::Plan> plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->placements.size(), 2u);
  for (const plan::Placement &placement : plan->placements) {
    EXPECT_EQ(placement.name, "units 8");
    EXPECT_EQ(placement.interval, 0);
    EXPECT_EQ(plan::offloadedWeights(*plan, placement).layers, 2);
    EXPECT_FALSE(plan::offloadedWeights(*plan, placement).head);
    ASSERT_EQ(placement.slots.size(), 1u);
  }
  EXPECT_LE(plan->placements[0].slots[0].bytes, 128u << 10);
  EXPECT_EQ(plan->placements[1].slots[0].bytes, 49408u);
  // What is copied in an iteration is what is offloaded, around the end as well: 2 layers.
  for (const plan::Schedule &schedule : plan->schedules)
    if (schedule.iterationClass == plan::IterationClass::Decode) {
      EXPECT_EQ(plan::linkBytes(schedule).h2d, layout.layerBytes(0) + layout.layerBytes(2));
    }
}

} // namespace
} // namespace headrace::compiler
