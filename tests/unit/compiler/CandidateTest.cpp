// SPDX-License-Identifier: Apache-2.0
#include "compiler/lower/Candidate.h"

#include <random>

#include "compiler/lower/LowerModel.h"
#include "compiler/lower/Placements.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using ::testing::HasSubstr;

TEST(Candidate, OfUnitsIsDescribedByUnitsAndTheirLayers) {
  const model::WeightLayout layout = model::layoutWeights(tinyLlama(6));
  const Candidate some = placementOfUnits(layout, {9, 1, 2}, 1 << 20); // qkv and out of layer 0, qkv of layer 2
  EXPECT_EQ(some.units, (std::vector<int32_t>{1, 2, 9}));
  EXPECT_EQ(some.layers, 2);
  EXPECT_FALSE(some.head);
  EXPECT_EQ(some.describe(), "3 units of 2 layers, a ring of 1.00 MiB");
  EXPECT_FALSE(some.offloadsNothing());
  EXPECT_EQ(placementOfUnits(layout, {1, 25}, 1 << 20).describe(), "2 units of 1 layer, the head, a ring of 1.00 MiB");
}

TEST(Candidate, IsTheSamePlacementWhateverItsName) {
  const model::WeightLayout layout = model::layoutWeights(tinyLlama(6));
  const Candidate a = placementOfUnits(layout, {1, 2}, 1 << 20);
  Candidate b = a;
  b.name = "other";
  EXPECT_TRUE(a.samePlacement(b));
  b.decodeCut = algorithms::Cut{1, 0};
  EXPECT_FALSE(a.samePlacement(b));
  EXPECT_FALSE(a.samePlacement(placementOfUnits(layout, {1, 3}, 1 << 20)));
  EXPECT_FALSE(a.samePlacement(placementOfUnits(layout, {1, 2}, 1 << 21)));
}

struct Refusal {
  std::string what;
  std::function<void(Candidate &)> change;
};

TEST(CheckCandidate, RefusesWhatCannotBeCompiled) {
  CompileRequest r = request(tinyLlama(6));
  const model::WeightLayout layout = model::layoutWeights(r.model);
  const Candidate good = placementOfUnits(layout, {1, 2, 3, 25}, 1 << 20);
  ASSERT_TRUE(checkCandidate(good, r.model, layout).ok());
  r.placements = {good};
  ASSERT_TRUE(compile(r).ok());
  const std::vector<Refusal> refusals = {
      {"from 1 to 25, got 26 behind 3",
       [](Candidate &c) {
         c.units = {3, 26};
       }},
      {"from 1 to 25, got 0 behind 0", [](Candidate &c) { c.units = {0}; }},
      {"from 1 to 25, got 3 behind 3",
       [](Candidate &c) {
         c.units = {3, 3};
       }},
      {"from 1 to 25, got 2 behind 3",
       [](Candidate &c) {
         c.units = {3, 2};
       }},
      {"a ring of 4096 bytes cannot hold a unit of", [](Candidate &c) { c.ringBytes = 4096; }},
      {"needs slots or a ring", [](Candidate &c) { c.ringBytes = 0; }},
      {"a ring stands instead of layer-sized slots", [](Candidate &c) { c.slots = 2; }},
      {"a ring stands instead of layer-sized slots",
       [](Candidate &c) {
         c.startRule = model::StartRule::Paper;
         c.wrap = false;
       }},
      {"nothing wraps around under the rule paper",
       [](Candidate &c) {
         c.startRule = model::StartRule::Paper;
         c.ringBytes = 0;
         c.slots = 2;
       }},
      {"slots that are not negative", [](Candidate &c) { c.slots = -1; }},
      {"offloads 7 layers", [](Candidate &c) { c.layers = 7; }},
      {"a ring of 4096 bytes cannot hold a unit of",
       [](Candidate &c) {
         c.units.clear();
         c.ringBytes = 4096;
       }},
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

TEST(CheckCandidate, TheTiedHeadIsTheEmbedding) {
  const model::ModelSpec spec = tinyOpt(6);
  const model::WeightLayout layout = model::layoutWeights(spec);
  Candidate candidate = placementOfUnits(layout, {1, 2}, 1 << 20);
  EXPECT_TRUE(checkCandidate(candidate, spec, layout).ok());
  candidate.head = true;
  EXPECT_THAT(std::string(checkCandidate(candidate, spec, layout).message()),
              HasSubstr("the tied head is the embedding"));
  candidate.embedding = true;
  EXPECT_TRUE(checkCandidate(candidate, spec, layout).ok());
  candidate.units.push_back(25);
  EXPECT_THAT(std::string(checkCandidate(candidate, spec, layout).message()), HasSubstr("from 1 to 24, got 25"));
}

// The arithmetic that chooses a placement against the arena of its plan: never below it, and near it.
TEST(PlacementFamily, KnowsWhatUnitsAndRingsNeed) {
  for (const model::ModelSpec &spec : {tinyLlama(6), tinyOpt(7)}) {
    CompileRequest r = request(spec);
    r.buckets = {.newTokens = {2, 16}, .sequences = {2}, .contexts = {64}};
    const Target target = *resolveGoal(r);
    const model::WeightLayout layout = model::layoutWeights(spec);
    mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
    context.loadDialect<ir::HeadraceDialect>();
    mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(mlir::UnknownLoc::get(&context));
    std::vector<MemoryUse> uses;
    for (const auto &[shape, shapes] :
         {std::pair(ir::Shape::Decode, &target.decode), std::pair(ir::Shape::Mixed, &target.mixed)})
      uses.push_back(memoryUseOf(lowerModel(
          *module, stringifyShape(shape),
          {&*r.model, &layout, &target, r.hardware.kind, model::StartRule::Eager, shape, Target::limits(*shapes)})));
    const PlacementFamily family(r.model, layout, target, std::move(uses));

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
      Candidate candidate = placementOfUnits(layout, units, largest + generator() % (all - largest + 1));
      candidate.wrap = i % 3 != 0;
      SCOPED_TRACE(candidate.describe());
      const MemoryNeed need = family.need(candidate);
      EXPECT_EQ(family.layersOf(candidate).size(), 0u);
      EXPECT_EQ(family.unitsOf(candidate), units);
      EXPECT_EQ(need.weights, layout.totalBytes() - all);
      EXPECT_LE(need.slots, candidate.ringBytes);
      r.placements = {candidate};
      const absl::StatusOr<plan::Plan> plan = compile(r);
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_EQ(plan->placements[0].slots[0].bytes, need.slots);
      EXPECT_LE(plan->arenaBytes, need.bytes);
      EXPECT_GE(static_cast<double>(plan->arenaBytes), 0.95 * static_cast<double>(need.bytes));
      EXPECT_TRUE(family.fits(candidate, need.bytes));
      EXPECT_FALSE(family.fits(candidate, need.bytes - 1));
    }
  }
}

TEST(Compile, StatedPlacementsStandInsteadOfThePolicys) {
  CompileRequest r = request(tinyLlama(6));
  const model::WeightLayout layout = model::layoutWeights(r.model);
  // Rings: 128 KiB in laps of at most that; 49408 is the largest unit (up).
  const Candidate large = placementOfUnits(layout, {1, 2, 3, 4, 9, 10, 11, 12}, 128 << 10);
  const Candidate small = placementOfUnits(layout, {1, 2, 3, 4, 9, 10, 11, 12}, 49408);
  r.placements = {large, small};
  const absl::StatusOr<plan::Plan> plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->placements.size(), 2u);
  for (const plan::Placement &placement : plan->placements) {
    EXPECT_EQ(placement.name, "units 8");
    EXPECT_EQ(placement.interval, 0);
    EXPECT_EQ(placement.offloadedLayers, 2);
    EXPECT_FALSE(placement.offloadsHead);
    ASSERT_EQ(placement.slots.size(), 1u);
  }
  EXPECT_LE(plan->placements[0].slots[0].bytes, 128u << 10);
  EXPECT_EQ(plan->placements[1].slots[0].bytes, 49408u);
  // What is copied in an iteration is what is offloaded, around the end as well: 2 layers.
  for (const plan::Schedule &schedule : plan->schedules)
    if (schedule.shape == plan::ShapeClass::Decode) {
      EXPECT_EQ(plan::linkBytes(schedule).h2d, layout.layerBytes(0) + layout.layerBytes(2));
    }
}

} // namespace
} // namespace headrace::compiler
