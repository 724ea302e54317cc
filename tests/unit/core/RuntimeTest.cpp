// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/Runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/TinyPlan.h"
#include "tests/unit/core/RecordingDevice.h"

namespace headrace::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(RuntimeLoad, BringsEveryUnitToItsHome) {
  const plan::Plan plan = tinyPlan({.spec = tinyLlama(3), .offloaded = {1}});
  RecordingDevice device;
  const auto runtime = mustLoad(plan, device);
  ASSERT_NE(runtime, nullptr);
  const size_t units = model::layoutWeights(plan.model).units.size();
  for (uint32_t u = 0; u < units; ++u) {
    const plan::Extent &home = plan.placements[0].extents[u];
    const std::vector<std::byte> &memory = home.space == plan::Space::Host ? device.slab : device.arena;
    EXPECT_EQ(home.space == plan::Space::Host, u >= 5 && u <= 8) << u; // layer 1's four
    for (uint64_t at : {home.address, home.address + home.bytes - 1})
      EXPECT_EQ(memory[at], static_cast<std::byte>(u + 1)) << plan.buffers[u].name;
  }
  const Manifest &manifest = runtime->manifest();
  EXPECT_EQ(manifest.loaded.host, plan.hostBytes);
  EXPECT_EQ(manifest.loaded.device + manifest.loaded.host, model::layoutWeights(plan.model).totalBytes());
  EXPECT_THAT(manifest.toString(), HasSubstr(std::to_string(manifest.loaded.device)));
}

// Has every unit in memory, and says how often it was filled.
class HeldWeights final : public model::WeightSource {
public:
  explicit HeldWeights(const model::ModelSpec &spec) : marked_(spec) {}
  absl::Status fill(const model::Unit &unit, model::MatrixOrder order, absl::Span<std::byte> out) const override {
    filled.push_back(unit.name);
    return marked_.fill(unit, order, out);
  }
  absl::Span<const std::byte> held(const model::Unit &unit, model::MatrixOrder order) const override {
    std::vector<std::byte> &kept = kept_[unit.name];
    if (kept.empty()) {
      kept.resize(unit.bytes);
      EXPECT_TRUE(marked_.fill(unit, order, absl::MakeSpan(kept)).ok());
    }
    return kept;
  }
  mutable std::vector<std::string> filled;

private:
  const MarkedWeights marked_;
  mutable std::map<std::string, std::vector<std::byte>> kept_;
};

TEST(RuntimeLoad, WhatASourceHoldsGoesToTheDeviceAsItIs) {
  const plan::Plan plan = tinyPlan({.spec = tinyLlama(2), .offloaded = {1}});
  RecordingDevice filled, device;
  const auto wanted = mustLoad(plan, filled);
  const HeldWeights weights(plan.model);
  const auto runtime = Runtime::load(plan, device, {}, &weights, {});
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  EXPECT_EQ(device.arena, filled.arena);
  EXPECT_EQ(device.slab, filled.slab);
  EXPECT_THAT(weights.filled, ElementsAre("layers.1.qkv", "layers.1.out", "layers.1.up", "layers.1.down"));
}

TEST(Manifest, SaysKvByHomeWhereSomeOfItIsOnTheHost) {
  Manifest manifest;
  manifest.planned = manifest.loaded = {1000, 200};
  manifest.kv = {512, 0};
  EXPECT_EQ(manifest.toString(), "weights by home      planned bytes       loaded bytes\n"
                                 "  device                      1000               1000\n"
                                 "  host                         200                200\n"
                                 "device arena 0 bytes, host slab 0 bytes\n");
  manifest.kv.host = 2048;
  EXPECT_THAT(manifest.toString(), HasSubstr("KV by home\n"
                                             "  device                       512\n"
                                             "  host                        2048\n"));
}

TEST(RuntimeLoad, HostHomesOfOtherPlacementsAreFilledToo) {
  plan::Plan plan = tinyPlan({.spec = tinyLlama(1)});
  plan.placements.push_back(plan.placements[0]); // another one, with layers.0.down at home in host memory
  plan.placements[1].extents[4].space = plan::Space::Host;
  plan.placements[1].extents[4].address = 0;
  plan.hostBytes = plan.buffers[4].bytes;
  RecordingDevice device;
  const auto runtime = mustLoad(plan, device);
  ASSERT_NE(runtime, nullptr);
  EXPECT_EQ(device.slab[0], std::byte{5});
  EXPECT_EQ(device.arena[plan.placements[0].extents[4].address], std::byte{5});
  EXPECT_EQ(runtime->manifest().loaded.host, 0u); // of placement 0
}

TEST(RuntimeLoad, BuildsAndUploadsAllVariantsAndTransitions) {
  const plan::Plan plan = tinyPlan({.spec = tinyLlama(2), .offloaded = {0, 1}, .wrap = true});
  RecordingDevice device;
  ASSERT_NE(mustLoad(plan, device), nullptr);
  EXPECT_THAT(device.built, ElementsAre("transition 0", "variant 0", "variant 1"));
}

TEST(RuntimeLoad, ReportsProgressInBytes) {
  const plan::Plan plan = tinyPlan({.spec = tinyLlama(1)});
  RecordingDevice device;
  const MarkedWeights weights(plan.model);
  std::vector<std::pair<uint64_t, uint64_t>> seen;
  LoadOptions options{.progress = [&](uint64_t done, uint64_t total) { seen.push_back({done, total}); }};
  ASSERT_TRUE(Runtime::load(plan, device, {}, &weights, options).ok());
  ASSERT_EQ(seen.size(), 7u); // zero, then one a unit
  EXPECT_EQ(seen.front().first, 0u);
  EXPECT_EQ(seen.back().first, seen.back().second);
}

std::string loadError(const plan::Plan &plan, Device &device, const model::WeightSource *weights,
                      const LoadOptions &options = {}) {
  return std::string(Runtime::load(plan, device, {}, weights, options).status().message());
}

TEST(RuntimeLoadRefuses, ByName) {
  plan::Plan plan = tinyPlan({.spec = tinyLlama(1), .offloaded = {0}});
  RecordingDevice device;
  MarkedWeights weights(plan.model);
  EXPECT_THAT(loadError(plan, device, nullptr), HasSubstr("device 'recording' holds data and was given no weights"));
  EXPECT_THAT(loadError(plan, device, &weights, {.placement = 3}), HasSubstr("placement 3 asked for, the plan has 1"));
  device.extraArena = 4096;
  EXPECT_THAT(loadError(plan, device, &weights), HasSubstr("bytes of device arena loaded, the plan says"));
  device.extraArena = 0;
  weights.failAt = "layers.0.up";
  EXPECT_THAT(loadError(plan, device, &weights), HasSubstr("unit layers.0.up is truncated"));
  weights.failAt = "";
  plan::Plan lying = plan;
  lying.buffers[2].bytes += 256;
  EXPECT_THAT(loadError(lying, device, &weights), HasSubstr("plan: buffer layers.0.out has"));
  lying = plan;
  lying.placements[0].extents[1].address = plan.hostBytes;
  EXPECT_THAT(loadError(lying, device, &weights), HasSubstr("are outside the slab of"));
}

// ---- Choosing

TEST(RuntimeChoose, TakesTheCheapestVariantThatHoldsTheSize) {
  plan::Plan plan = tinyPlan({.spec = tinyLlama(1)}); // decode: 3 of 3; mixed: 7 of 3; both at context 40
  plan.variants[0].predictedNs = 100;
  plan.variants[1].predictedNs = 200;
  plan.variants.push_back(plan.variants[0]);
  plan.variants[2].sequences = plan.variants[2].newTokens = 1;
  plan.variants[2].predictedNs = 50;
  RecordingDevice device;
  const auto runtime = mustLoad(plan, device);
  EXPECT_EQ(*runtime->choose(1, 1, 40), 2u);
  EXPECT_EQ(*runtime->choose(2, 2, 40), 0u);
  EXPECT_EQ(*runtime->choose(3, 2, 10), 1u); // more rows than sequences: not what decode is for
  EXPECT_EQ(*runtime->choose(7, 3, 10), 1u);
}

// Every graph takes 100 bytes here. Of three decode buckets the largest is built whatever it takes, then the middle
// one.
TEST(RuntimeLoad, LeavesOutSmallBucketsWhereGraphsMayTakeNoMore) {
  plan::Plan plan = tinyPlan({.spec = tinyLlama(1)}); // decode: 3 of 3; mixed: 7 of 3
  for (const int64_t sequences : {2, 1}) {
    plan.variants.insert(plan.variants.begin(), plan.variants[0]);
    plan.variants[0].sequences = plan.variants[0].newTokens = sequences;
  }
  const auto leftOut = [&](uint64_t graphBytes) {
    RecordingDevice device;
    LoadOptions options;
    options.graphBytes = graphBytes;
    const MarkedWeights weights(plan.model);
    auto runtime = Runtime::load(plan, device, {}, &weights, options);
    EXPECT_TRUE(runtime.ok()) << runtime.status();
    EXPECT_EQ(*(*runtime)->choose(3, 3, 40), 2u);
    EXPECT_EQ(*(*runtime)->choose(7, 3, 40), 3u);
    const uint32_t two = graphBytes == 0 || graphBytes > 200 ? 1 : 2,
                   one = graphBytes == 0 || graphBytes > 300 ? 0 : two;
    EXPECT_EQ(*(*runtime)->choose(2, 2, 40), two) << graphBytes;
    EXPECT_EQ(*(*runtime)->choose(1, 1, 40), one) << graphBytes;
    EXPECT_EQ((*runtime)->launch(0).ok(), one == 0) << graphBytes;
    return (*runtime)->leftOutVariants();
  };
  EXPECT_EQ(leftOut(0), 0u);
  EXPECT_EQ(leftOut(1), 2u);
  EXPECT_EQ(leftOut(200), 2u);
  EXPECT_EQ(leftOut(201), 1u);
  EXPECT_EQ(leftOut(301), 0u);
}

TEST(RuntimeChoose, CountsWhatNoVariantHolds) {
  const plan::Plan plan = tinyPlan({.spec = tinyLlama(1)});
  RecordingDevice device;
  const auto runtime = mustLoad(plan, device);
  const auto none = runtime->choose(8, 3, 40);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(none.status().message()),
              HasSubstr("no variant of placement 'none' holds 8 new tokens of 3 sequences at context 40; its largest "
                        "buckets are 7 new tokens, 3 sequences, context 40"));
  EXPECT_FALSE(runtime->choose(1, 1, 41).ok());
  EXPECT_EQ(runtime->missingVariants(), 2u);
  EXPECT_EQ(device.built.size(), 2u); // nothing was built for them
}

// ---- Launching

TEST(RuntimeLaunch, RunsTheTransitionThatTheEntryStateNeedsOnce) {
  const plan::Plan plan = tinyPlan({.spec = tinyLlama(2), .offloaded = {0, 1}, .wrap = true});
  RecordingDevice device;
  const auto runtime = mustLoad(plan, device);
  ASSERT_TRUE(runtime->launch(1).ok());
  ASSERT_TRUE(runtime->launch(0).ok());
  EXPECT_THAT(device.launched, ElementsAre("transition 0", "variant 1", "variant 0"));
  EXPECT_EQ(runtime->transitionsRun(), 1u);
  EXPECT_EQ(runtime->launched(), 2u);
}

TEST(RuntimeLaunch, EachIsToldWhatIsInUseOfKv) {
  const plan::Plan plan = tinyPlan({.spec = tinyLlama(2), .offloaded = {0, 1}, .wrap = true});
  RecordingDevice device;
  const auto runtime = mustLoad(plan, device);
  EXPECT_EQ(runtime->launchedInUse().of(0).kvBlocks, InUse{}.kvBlocks);
  std::vector<int32_t> table;
  ASSERT_TRUE(runtime->kvBlocks().grow(table, 2 * plan.blockTokens).ok()); // blocks 1 and 2
  ASSERT_TRUE(runtime->launch(1).ok());
  runtime->kvBlocks().release(table);
  EXPECT_EQ(runtime->launchedInUse().of(0).kvBlocks, 3); // what it was told, whatever is in use since
  ASSERT_TRUE(runtime->launch(0).ok());
  EXPECT_EQ(runtime->launchedInUse().of(0).kvBlocks, 1); // the scratch block
  EXPECT_THAT(device.told, ElementsAre(3, 3, 1));        // a transition, the two variants
}

TEST(RuntimeLaunch, AStateThatHoldsMoreThanTheEntryNeedsNoTransition) {
  plan::Plan plan = tinyPlan({.spec = tinyLlama(2), .offloaded = {0, 1}, .wrap = true});
  // State 2: the first half of what state 1 holds; decode enters and leaves with it.
  plan::State half = plan.states[1];
  half.contents.resize(2);
  plan.states.push_back(half);
  plan.schedules[0].entryState = plan.schedules[0].exitState = 2;
  plan.transitions.push_back(plan.transitions[0]);
  plan.transitions[1].fromState = 2;
  plan.transitions[1].predictedNs /= 2;
  plan.transitions.push_back(plan.transitions[0]);
  plan.transitions[2].toState = 2;
  RecordingDevice device;
  const auto runtime = mustLoad(plan, device);
  for (uint32_t variant : {0, 1, 0, 0, 1})
    ASSERT_TRUE(runtime->launch(variant).ok());
  EXPECT_THAT(device.launched, ElementsAre("transition 2", "variant 0", // from empty to the half
                                           "transition 1", "variant 1", // the cheaper one to the whole
                                           "variant 0",                 // the whole holds the half
                                           "variant 0", "transition 1", "variant 1"));
}

// Decode (100 ns) enters with state 1, prompts (104 ns) with state 2; 10 ns from any state to any other. After prompts
// the prompts' variant saves the path and loses 4 ns, until 8 are owed: 100 + 10 - 8 < 104. The path pays all of it
// off, so that the same takes as long the next time.
TEST(RuntimeLaunch, ATransitionPaysOffWhatWasLostWithoutIt) {
  plan::Plan plan =
      tinyPlan({.spec = tinyLlama(2), .offloaded = {0, 1}, .wrap = true}); // decode: 3 of 3; mixed: 7 of 3
  plan.states.push_back(plan.states[1]);
  plan.states[2].contents[1].bufferOffset += 256; // other bytes
  plan.schedules[1].entryState = plan.schedules[1].exitState = 2;
  plan.variants[0].predictedNs = 100;
  plan.variants[1].predictedNs = 104;
  plan.transitions[0].predictedNs = 10;            // 0 -> 1
  plan.transitions.push_back(plan.transitions[0]); // 0 -> 2; each may start from any state, as all hold nothing
  plan.transitions[1].toState = 2;
  RecordingDevice device;
  const auto runtime = mustLoad(plan, device);
  const auto run = [&](int64_t tokens) {
    const auto variant = runtime->choose(tokens, 3, 40);
    ASSERT_TRUE(variant.ok());
    ASSERT_TRUE(runtime->launch(*variant).ok());
  };
  for (const int64_t tokens : {7, 3, 3, 3, 7, 3, 3, 3})
    run(tokens);
  EXPECT_THAT(device.launched,
              ElementsAre("transition 1", "variant 1", "variant 1", "variant 1", "transition 0", "variant 0",
                          "transition 1", "variant 1", "variant 1", "variant 1", "transition 0", "variant 0"));
}

// As above; what is launched without having been chosen loses nothing.
TEST(RuntimeLaunch, OnlyWhatWasChosenToSaveATransitionLosesByIt) {
  plan::Plan plan = tinyPlan({.spec = tinyLlama(2), .offloaded = {0, 1}, .wrap = true});
  plan.states.push_back(plan.states[1]);
  plan.states[2].contents[1].bufferOffset += 256;
  plan.schedules[1].entryState = plan.schedules[1].exitState = 2;
  plan.variants.push_back(plan.variants[1]);
  plan.variants[0].predictedNs = 100;
  plan.variants[1].predictedNs = 104;
  plan.variants[2].predictedNs = 150;
  plan.transitions[0].predictedNs = 10;
  plan.transitions.push_back(plan.transitions[0]);
  plan.transitions[1].toState = 2;
  RecordingDevice device;
  const auto runtime = mustLoad(plan, device);
  ASSERT_TRUE(runtime->launch(2).ok());
  EXPECT_EQ(*runtime->choose(3, 3, 40), 1u); // 4 ns would be lost
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(runtime->launch(2).ok());
  EXPECT_EQ(*runtime->choose(3, 3, 40), 1u); // nothing is owed: 104 < 100 + 10
}

TEST(RuntimeLaunch, ContentsInPiecesCountAsTheWhole) {
  plan::Plan plan = tinyPlan({.spec = tinyLlama(2), .offloaded = {0, 1}, .wrap = true});
  // Decode leaves the same bytes, the first unit in two pieces.
  plan::State pieces = plan.states[1];
  plan::Content second = pieces.contents[0];
  pieces.contents[0].bytes = 512;
  second.bufferOffset = 512;
  second.address += 512;
  second.bytes -= 512;
  pieces.contents.insert(pieces.contents.begin() + 1, second);
  plan.states.push_back(pieces);
  plan.schedules[0].exitState = 2;
  plan.states.push_back(pieces);
  plan.states[3].contents[1].bufferOffset += 256; // other bytes
  plan.schedules[1].exitState = 3;
  RecordingDevice device;
  const auto runtime = mustLoad(plan, device);
  for (uint32_t variant : {0, 1, 0})
    ASSERT_TRUE(runtime->launch(variant).ok());
  EXPECT_THAT(device.launched, ElementsAre("transition 0", "variant 0", "variant 1", "transition 0", "variant 0"));
}

TEST(RuntimeLaunch, RefusesWhatNoTransitionLeadsTo) {
  plan::Plan plan = tinyPlan({.spec = tinyLlama(2), .offloaded = {0, 1}, .wrap = true});
  plan.transitions.clear();
  RecordingDevice device;
  const auto runtime = mustLoad(plan, device);
  EXPECT_THAT(std::string(runtime->launch(0).message()),
              HasSubstr("no transition leads from placement 'layers 2' to state 1 of schedule 'decode'"));
  EXPECT_FALSE(runtime->choose(1, 1, 1).ok());
  EXPECT_THAT(std::string(runtime->launch(9).message()), HasSubstr("variant 9 launched, the plan has 2"));
  EXPECT_TRUE(device.launched.empty());
}

// ---- Placements

// Three placements of two layers: "both" has both at home, "one" the first, "none" none of them. One variant each, of
// 1000 ns. Transitions one -> both (30 ns), none -> one (20), none -> both (60): dropping is free.
plan::Plan switchingPlan() {
  plan::Plan plan = tinyPlan({.spec = tinyLlama(2), .offloaded = {0, 1}});
  plan.variants.resize(1);
  plan.variants[0].predictedNs = 1000;
  const plan::Placement away = plan.placements[0]; // units 1 to 4 are layer 0's, 5 to 8 layer 1's
  plan.placements.assign(3, away);
  uint64_t address = plan.arenaBytes;
  for (uint32_t unit = 1; unit <= 8; ++unit) {
    for (uint32_t p = 0; p < (unit <= 4 ? 2u : 1u); ++p)
      plan.placements[p].extents[unit] = {.buffer = unit, .bytes = plan.buffers[unit].bytes, .address = address};
    address += plan.buffers[unit].bytes;
  }
  plan.arenaBytes = address;
  const char *const names[] = {"both", "one", "none"};
  for (uint32_t p = 0; p < 3; ++p) {
    plan.placements[p].name = names[p];
    if (p > 0) {
      plan.schedules.push_back(plan.schedules[0]);
      plan.schedules.back().placement = p;
      plan.variants.push_back(plan.variants[0]);
      plan.variants.back().placement = p;
      plan.variants.back().schedule = static_cast<uint32_t>(plan.schedules.size() - 1);
    }
  }
  const auto change = [&](uint32_t from, uint32_t to, uint64_t ns) {
    plan::Schedule schedule{.name = "change", .placement = to, .iterationClass = plan::IterationClass::Transition};
    schedule.fromPlacement = from;
    plan.schedules.push_back(schedule);
    plan.transitions.push_back(
        {.schedule = static_cast<uint32_t>(plan.schedules.size() - 1), .durationsNs = {}, .predictedNs = ns});
  };
  change(1, 0, 30);
  change(2, 1, 20);
  change(2, 0, 60);
  return plan;
}

TEST(RuntimePlacement, LaunchingAVariantOfAnotherFollowsTheCheapestPath) {
  const plan::Plan plan = switchingPlan();
  RecordingDevice device;
  const auto runtime = mustLoad(plan, device);
  ASSERT_TRUE(runtime->launch(*runtime->chooseIn(2, 1, 1, 1)).ok()); // only drops
  EXPECT_EQ(runtime->placement(), 2u);
  ASSERT_TRUE(runtime->launch(*runtime->chooseIn(0, 1, 1, 1)).ok()); // 20 + 30 < 60
  EXPECT_EQ(runtime->placement(), 0u);
  ASSERT_TRUE(runtime->launch(*runtime->choose(1, 1, 1)).ok());
  EXPECT_THAT(device.launched, ElementsAre("variant 2", "transition 1", "transition 0", "variant 0", "variant 0"));
  EXPECT_EQ(runtime->transitionsRun(), 2u);
  EXPECT_EQ(runtime->launched(), 3u);
}

TEST(RuntimePlacement, OfEquallyCheapPathsTheShorterIsTaken) {
  plan::Plan plan = switchingPlan();
  plan.transitions[2].predictedNs = 50;
  RecordingDevice device;
  const auto runtime = mustLoad(plan, device);
  ASSERT_TRUE(runtime->launch(2).ok());
  ASSERT_TRUE(runtime->launch(0).ok());
  EXPECT_THAT(device.launched, ElementsAre("variant 2", "transition 2", "variant 0"));
}

TEST(RuntimePlacement, ThePathCanBeTakenHopByHop) {
  const plan::Plan plan = switchingPlan();
  RecordingDevice device;
  const auto runtime = mustLoad(plan, device);
  const auto is = [](const absl::StatusOr<Hop> &hop, uint32_t placement, uint64_t ns, uint64_t left) {
    ASSERT_TRUE(hop.ok()) << hop.status();
    EXPECT_EQ(hop->placement, placement);
    EXPECT_EQ(hop->predictedNs, ns);
    EXPECT_EQ(hop->leftNs, left);
  };
  is(runtime->nextHop(0), 0, 0, 0); // there already
  is(runtime->takeHop(2), 2, 0, 0); // dropping takes no time and no launch
  EXPECT_EQ(runtime->placement(), 2u);
  is(runtime->nextHop(0), 1, 20, 30);
  EXPECT_EQ(runtime->placement(), 2u);
  is(runtime->takeHop(0), 1, 20, 30);
  EXPECT_EQ(runtime->placement(), 1u);
  ASSERT_TRUE(runtime->launch(*runtime->choose(1, 1, 1)).ok()); // an iteration on the way
  is(runtime->takeHop(0), 0, 30, 0);
  is(runtime->takeHop(0), 0, 0, 0);
  EXPECT_THAT(device.launched, ElementsAre("transition 1", "variant 1", "transition 0"));
  EXPECT_THAT(std::string(runtime->nextHop(3).status().message()), HasSubstr("placement 3 asked for, the plan has 3"));
}

TEST(RuntimePlacement, WithoutTransitionsThereIsNoWay) {
  plan::Plan plan = switchingPlan();
  plan.transitions.clear();
  RecordingDevice device;
  const auto runtime = mustLoad(plan, device);
  ASSERT_TRUE(runtime->takeHop(2).ok());
  EXPECT_EQ(runtime->takeHop(0).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(runtime->takeHop(0).status().message()),
              HasSubstr("no transition leads from placement 'none' to 'both'"));
  EXPECT_FALSE(runtime->chooseIn(0, 1, 1, 1).ok());
  EXPECT_EQ(runtime->launch(0).code(), absl::StatusCode::kFailedPrecondition);
}

// "none" has 10 blocks, "one" 6 and "both" 4: a change waits for blocks that are in use, and launches nothing.
TEST(RuntimePlacement, MemoryIsNotTakenFromBlocksInUse) {
  plan::Plan plan = switchingPlan();
  const int64_t blocks[] = {4, 6, 10};
  plan.kvBlocks = 10;
  for (uint32_t p = 0; p < 3; ++p)
    plan.placements[p].kvBlocks = blocks[p];
  RecordingDevice device;
  const auto runtime = mustLoad(plan, device);
  KvBlocks &pool = runtime->kvBlocks();
  EXPECT_EQ(pool.limit(), 4);
  ASSERT_TRUE(runtime->takeHop(2).ok());
  EXPECT_EQ(pool.limit(), 10);
  std::vector<int32_t> first, second;
  ASSERT_TRUE(pool.grow(first, 3 * plan.blockTokens).ok());  // blocks 1 to 3
  ASSERT_TRUE(pool.grow(second, 2 * plan.blockTokens).ok()); // and 4, 5
  EXPECT_THAT(std::string(runtime->launch(*runtime->chooseIn(0, 1, 1, 1)).message()),
              HasSubstr("placement 'both' has 4 KV blocks of 10, and 2 of those that it has not are in use"));
  EXPECT_EQ(runtime->placement(), 2u);
  EXPECT_TRUE(device.launched.empty());
  ASSERT_TRUE(runtime->takeHop(0).ok()); // to "one", which has them all
  EXPECT_EQ(runtime->placement(), 1u);
  EXPECT_EQ(pool.limit(), 6);
  EXPECT_EQ(runtime->takeHop(0).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(device.launched, ElementsAre("transition 1"));
  pool.release(second);
  ASSERT_TRUE(runtime->takeHop(0).ok());
  EXPECT_EQ(pool.limit(), 4);
  EXPECT_EQ(pool.freeBlocks(), 0);
}

// Homes at other addresses are no homes: what one placement has elsewhere must be copied.
TEST(RuntimePlacement, HomesThatMoveAreNotFree) {
  plan::Plan plan = switchingPlan();
  plan.placements[2].extents[9] = plan.placements[0].extents[1]; // the head in place of a unit of layer 0
  plan.placements[2].extents[9].buffer = 9;
  RecordingDevice device;
  const auto runtime = mustLoad(plan, device);
  EXPECT_TRUE(runtime->nextHop(1).ok());
  EXPECT_FALSE(runtime->nextHop(2).ok());
}

TEST(RuntimeLaunch, AFailureOfTheDeviceLeavesTheCountAlone) {
  const plan::Plan plan = tinyPlan({.spec = tinyLlama(1)});
  RecordingDevice device;
  const auto runtime = mustLoad(plan, device);
  device.launchStatus = absl::UnavailableError("gone");
  EXPECT_EQ(runtime->launch(0).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(runtime->launched(), 0u);
}

TEST(RuntimeAwait, ReadsLaunchesInOrder) {
  const plan::Plan plan = tinyPlan({.spec = tinyLlama(1)});
  RecordingDevice device;
  const auto runtime = mustLoad(plan, device);
  EXPECT_THAT(std::string(runtime->awaitTokens().status().message()), HasSubstr("no launched iteration is left"));
  ASSERT_TRUE(runtime->launch(0).ok());
  ASSERT_TRUE(runtime->launch(0).ok());
  EXPECT_THAT(*runtime->awaitTokens(), ElementsAre(1));
  EXPECT_THAT(*runtime->awaitTokens(), ElementsAre(2));
  EXPECT_FALSE(runtime->awaitTokens().ok());
}

} // namespace
} // namespace headrace::core
