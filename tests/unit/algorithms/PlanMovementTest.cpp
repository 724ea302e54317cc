// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/PlanMovement.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "passes/algorithms/CyclePlaces.h"

namespace headrace::algorithms {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Embedding, so many layers of one step each, and a head: layer l is step l + 1. Of each of `away` its weight of 100
// bytes is moved, and of `tails` its cache of 200.
Movables layersOf(const Residency &residency, int32_t layers, const std::vector<int32_t> &away,
                  const std::vector<int32_t> &tails = {}) {
  Movables movables;
  movables.steps = static_cast<uint32_t>(layers) + 2;
  movables.layersBegin = 1;
  for (uint32_t step = 0; step < movables.steps; ++step)
    movables.awaitable.push_back(step + 1 == movables.steps ? step - 1 : step); // the last writes nothing
  for (int32_t layer = 0; layer < layers; ++layer) {
    const auto step = static_cast<uint32_t>(layer) + 1;
    const auto add = [&](MovableKind kind, const std::string &name, uint64_t bytes) {
      Moved moved;
      moved.kind = kind;
      moved.name = name + std::to_string(layer);
      moved.bytes = bytes;
      moved.item = static_cast<uint32_t>(movables.items.size());
      moved.firstUse = moved.lastUse = step;
      moved.writtenBack = kind == MovableKind::Kv && residency.kv().writesBack();
      movables.moved.push_back(moved);
      movables.items.push_back({layer, 1, step, step, kind});
    };
    if (std::find(away.begin(), away.end(), layer) != away.end())
      add(MovableKind::Weight, "w", 100);
    if (std::find(tails.begin(), tails.end(), layer) != tails.end())
      add(MovableKind::Kv, "kv", 200);
  }
  EXPECT_EQ(assignSlots(residency, movables), "");
  return movables;
}

Residency parsed(std::string_view text) {
  std::string error;
  const std::optional<Residency> residency = residencyFromText(text, error);
  EXPECT_TRUE(residency.has_value()) << text << ": " << error;
  return residency.value_or(Residency());
}

// "bring w1 behind 2", with bytes where they are not all of it; then what is carried out, and who waits for what.
std::vector<std::string> texts(const Movables &movables, const MovementPlan &plan) {
  EXPECT_EQ(plan.error, "");
  std::vector<std::string> found;
  for (const Movement &movement : plan.movements) {
    const Moved &of = movables.moved[movement.moved];
    std::string text;
    switch (movement.kind) {
    case Movement::Kind::Carry:
      text = "carry " + of.name + (movement.dirty ? " dirty" : "");
      break;
    case Movement::Kind::Claim:
      text = "claim " + of.name;
      break;
    case Movement::Kind::Pace:
      text = "pace by " + std::to_string(movement.after);
      break;
    case Movement::Kind::Bring:
      text = "bring " + of.name + " to " + std::to_string(movement.slot) + (movement.forNext ? " for the next" : "");
      if (movement.bytes < of.bytes)
        text += " [" + std::to_string(movement.from) + ", " + std::to_string(movement.from + movement.bytes) + ")";
      break;
    case Movement::Kind::GiveUp:
      text = std::string(movement.back ? "evict " : "release ") + of.name + (movement.keeping ? " keeping" : "");
      break;
    }
    found.push_back(text + " behind " + std::to_string(movement.behind));
  }
  for (const CarriedOut &out : plan.out)
    found.push_back("out " + movables.moved[out.moved].name + (out.dirty ? " dirty" : ""));
  for (size_t i = 0; i < plan.awaitedBefore.size(); ++i)
    if (plan.awaitedBefore[i] >= 0)
      found.push_back("step " + std::to_string(plan.awaitedBefore[i]) + " waits for " + movables.moved[i].name);
  return found;
}

std::vector<std::string> planned(std::string_view text, const std::vector<int32_t> &away,
                                 const std::vector<int32_t> &tails = {}) {
  const Residency residency = parsed(text);
  const Movables movables = layersOf(residency, 4, away, tails);
  return texts(movables, planMovement(movables, residency, carriedOnEntry(residency, movables, residency.wrap.decode),
                                      residency.kv().decodeBack.value_or(WriteBack::Mirror)));
}

// Interval 2: layers 1 and 3 are away. Copies of 1 when the first layer starts, of 3 when 2 does, behind 1's release.
TEST(PlanMovement, PaperBringsAnIntervalAhead) {
  EXPECT_THAT(planned("weights=1 start=paper slots=1", {1, 3}),
              ElementsAre("pace by 0 behind 0", "bring w1 to 0 behind 0", "release w1 behind 2", "pace by 2 behind 2",
                          "bring w3 to 0 behind 2", "release w3 behind 4", "step 2 waits for w1",
                          "step 4 waits for w3"));
}

// One ahead: 1 is there on entry, 3 comes when 1 has ended, and 1 again for the next iteration when 3 has.
TEST(PlanMovement, AheadKeepsSoManyItemsThere) {
  EXPECT_THAT(planned("weights=1 start=ahead-1 slots=1", {1, 3}),
              ElementsAre("carry w1 behind -1", "release w1 behind 2", "pace by 2 behind 2", "bring w3 to 0 behind 2",
                          "release w3 behind 4", "pace by 4 behind 4", "bring w1 to 0 for the next behind 4", "out w1",
                          "step 4 waits for w3"));
}

// Two slots, all four layers away: the first two from the start on, each other one where the second before it was.
TEST(PlanMovement, EagerBringsAsSoonAsARangeIsFree) {
  EXPECT_THAT(planned("weights=1 slots=2", {0, 1, 2, 3}),
              ElementsAre("bring w0 to 0 behind -1", "bring w1 to 1 behind -1", "release w0 behind 1",
                          "bring w2 to 0 behind 1", "release w1 behind 2", "bring w3 to 1 behind 2",
                          "release w2 behind 3", "release w3 behind 4", "step 1 waits for w0", "step 2 waits for w1",
                          "step 3 waits for w2", "step 4 waits for w3"));
}

// All of w0 and 40 bytes of w1 are there; what is left of w1 goes behind them, and the tail copies as much again.
TEST(PlanMovement, WhatIsCutIsCopiedByTheTail) {
  EXPECT_THAT(planned("weights=1 slots=2 decode-cut=1+40", {0, 1, 2, 3}),
              ElementsAre("carry w0 behind -1", "carry w1 behind -1", "bring w1 to 1 [40, 100) behind -1",
                          "release w0 behind 1", "bring w2 to 0 behind 1", "release w1 behind 2",
                          "bring w3 to 1 behind 2", "release w2 behind 3", "bring w0 to 0 for the next behind 3",
                          "release w3 behind 4", "bring w1 to 1 for the next [0, 40) behind 4", "out w0", "out w1",
                          "step 2 waits for w1", "step 3 waits for w2", "step 4 waits for w3"));
}

TEST(PlanMovement, TailsThatAreWrittenBackAreEvicted) {
  EXPECT_THAT(planned("kv=0-1@3 kv-slots=2 decode-write-back=all", {}, {0, 1}),
              ElementsAre("bring kv0 to 0 behind -1", "bring kv1 to 1 behind -1", "evict kv0 behind 1",
                          "evict kv1 behind 2", "step 1 waits for kv0", "step 2 waits for kv1"));
  EXPECT_THAT(planned("kv=0-1@3 kv-slots=2", {}, {0, 1}), // mirrored
              testing::Contains("release kv0 behind 1"));
}

TEST(PlanMovement, WhatCannotBeThereOnEntryIsNamed) {
  const Residency residency = parsed("weights=1 slots=2");
  const Movables movables = layersOf(residency, 4, {0, 1, 2, 3});
  const auto error = [&](const Cut &cut) { return planMovement(movables, residency, cut, WriteBack::Mirror).error; };
  EXPECT_EQ(error({5, 0}), "cannot wrap 5 movables and 0 bytes around: there are 4 that are moved");
  EXPECT_EQ(error({1, 100}), "cannot wrap 100 bytes of 'w1' around: it has 100, and part of it must be left");
  EXPECT_EQ(error({3, 0}), "'w2' cannot be there on entry: an earlier one lies in its range of slot 0");
  EXPECT_EQ(error({2, 0}), "");
  EXPECT_THAT(planMovement(layersOf(residency, 4, {}), residency, {}, WriteBack::Mirror).movements, IsEmpty());
}

TEST(PlanMovement, ARingHoldsItsLargest) {
  const Residency residency = parsed("weights=1 ring=255");
  Movables movables = layersOf(parsed("weights=1 slots=1"), 2, {0, 1});
  EXPECT_EQ(assignSlots(residency, movables), "'w0' brings 100 bytes, more than the ring of 255"); // 256, aligned
}

// Three tails in two places: 0 and 1 are there; behind 0's visit its place takes 2, behind 1's the next iteration's 0.
TEST(PlanCycle, TailsTakeTheirPlacesInTurn) {
  const Residency residency = parsed("kv=0-2@1 kv-places=2");
  const Movables movables = layersOf(residency, 3, {}, {0, 1, 2});
  const Cycle cycle = cyclePlaces(3, 2);
  EXPECT_THAT(texts(movables, planCycle(movables, cycle, 0, {}, WriteBack::Mirror)),
              ElementsAre("carry kv0 behind -1", "carry kv1 behind -1", "release kv0 behind 1",
                          "bring kv2 to 0 behind 1", "release kv1 behind 2", "bring kv0 to 1 for the next behind 2",
                          "release kv2 behind 3", "bring kv1 to 0 for the next behind 3", "out kv1", "out kv0",
                          "step 3 waits for kv2"));
  // Written back when they are given up; what stays was not yet used.
  EXPECT_THAT(texts(movables, planCycle(movables, cycle, 0, {}, WriteBack::All)),
              testing::IsSupersetOf({"evict kv0 behind 1", "evict kv1 behind 2", "evict kv2 behind 3"}));
  EXPECT_THAT(texts(movables, planCycle(movables, cycle, 0, {}, WriteBack::Dirty)),
              testing::IsSupersetOf({"evict kv0 keeping behind 1", "release kv0 behind 1"}));
}

} // namespace
} // namespace headrace::algorithms
