// SPDX-License-Identifier: Apache-2.0
//
// What the coordinator is told of a plan, against what the plan's variants take.
#include "runtime/serve/fleet/PlanLoads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/sim/SimDevice.h"
#include "runtime/sim/Simulator.h"
#include "runtime/sim/TimedSchedule.h"
#include "tests/conformance/FleetFixture.h"

namespace headrace::serve {
namespace {

using testing::HasSubstr;

constexpr double kLink = 1e9;

const plan::Plan &sharedPlan() {
  static const plan::Plan plan = fleetPlan({.linkBandwidth = kLink, .intervals = {2, 6}});
  return plan;
}

const plan::Variant &variantOf(uint32_t placement, int64_t tokens, int64_t sequences, int64_t context, bool decode) {
  for (const plan::Variant &v : sharedPlan().variants)
    if (v.placement == placement && v.newTokens == tokens && v.sequences == sequences && v.context == context &&
        (sharedPlan().schedules[v.schedule].iterationClass == plan::IterationClass::Decode) == decode)
      return v;
  ADD_FAILURE() << "no such variant";
  return sharedPlan().variants[0];
}

TEST(PlanLoads, DecodeIsAnIterationOfTheVariantsThatTheContextGoesThrough) {
  const PlanLoads loads(sharedPlan(), 0);
  EXPECT_EQ(loads.linkBandwidth(), kLink);
  EXPECT_EQ(PlanLoads(sharedPlan(), 2 * kLink).linkBandwidth(), kLink); // times are known up to the plan's link
  EXPECT_EQ(PlanLoads(sharedPlan(), kLink / 2).linkBandwidth(), kLink / 2);
  // Three prompts of up to 10 tokens, 4 new ones: contexts 11 to 13, one bucket.
  const BatchWork batch{{3, 10, 1}, 4, false};
  const auto placements = loads.placements(batch, Role::Decode, 0);
  ASSERT_TRUE(placements.ok()) << placements.status();
  ASSERT_EQ(placements->size(), 3u);
  for (uint32_t p = 0; p < 3; ++p) {
    const BusPlacement &one = (*placements)[p];
    const plan::Variant &variant = variantOf(p, 3, 3, 16, true);
    EXPECT_EQ(one.placement, p);
    EXPECT_EQ(one.linkBytes, plan::linkBytes(sharedPlan().schedules[variant.schedule]).h2d);
    EXPECT_EQ(one.exposedBytes, 0u); // always the same variant
    EXPECT_NEAR(timeAtRate(one, kLink), static_cast<double>(variant.predictedNs), 1);
    EXPECT_EQ(one.shortestNs, static_cast<double>(variant.computeAloneNs));
    EXPECT_EQ(one.freedBytes, loads.freedBytes(p));
  }
  EXPECT_EQ((*placements)[0].linkBytes, 0u);
  EXPECT_EQ(loads.freedBytes(0), 0u);
  EXPECT_GT(loads.freedBytes(1), loads.freedBytes(2)); // interval 2 more than interval 6
  // Through two buckets of context: the worse of both, and the tail of the one before it.
  const auto longer = loads.placements({{3, 10, 1}, 20, false}, Role::Decode, 0);
  ASSERT_TRUE(longer.ok());
  EXPECT_GE(timeAtRate((*longer)[1], kLink), static_cast<double>(variantOf(1, 3, 3, 48, true).predictedNs) - 1);
}

// Where the slowest iterations of what offloads take a quarter longer, times do, bytes and what frees memory do not;
// and a slower bus adds what it adds.
TEST(PlanLoads, TimesAreThoseOfTheSlowestIterations) {
  plan::Plan plan = sharedPlan();
  plan.slowestPermille = 1250;
  const PlanLoads plain(sharedPlan(), 0), slow(plan, 0);
  const auto a = plain.placements({{3, 10, 1}, 4, false}, Role::Decode, 0);
  const auto b = slow.placements({{3, 10, 1}, 4, false}, Role::Decode, 0);
  ASSERT_TRUE(a.ok() && b.ok());
  ASSERT_EQ(a->size(), b->size());
  EXPECT_EQ(timeAtRate((*b)[0], kLink), timeAtRate((*a)[0], kLink)); // offloads nothing
  for (size_t p = 1; p < a->size(); ++p) {
    EXPECT_NEAR(timeAtRate((*b)[p], kLink), 1.25 * timeAtRate((*a)[p], kLink), 2);
    const double added = static_cast<double>((*a)[p].linkBytes) * (1e9 / (kLink / 4) - 1e9 / kLink);
    EXPECT_NEAR(timeAtRate((*b)[p], kLink / 4), timeAtRate((*b)[p], kLink) + added, 2);
    EXPECT_EQ((*b)[p].linkBytes, (*a)[p].linkBytes);
    EXPECT_EQ((*b)[p].shortestNs, (*a)[p].shortestNs);
    EXPECT_EQ((*b)[p].freedBytes, (*a)[p].freedBytes);
  }
  const auto prompts = plain.placements({{3, 10, 1}, 1, false}, Role::Prefill, 0);
  const auto slowPrompts = slow.placements({{3, 10, 1}, 1, false}, Role::Prefill, 0);
  ASSERT_TRUE(prompts.ok() && slowPrompts.ok());
  EXPECT_GT((*slowPrompts)[1].computeNs, (*prompts)[1].computeNs);
  EXPECT_EQ((*slowPrompts)[1].shortestNs, (*prompts)[1].shortestNs);
}

TEST(PlanLoads, PrefillIsTheSumOfItsIterations) {
  const PlanLoads loads(sharedPlan(), 0);
  // 14 tokens in buckets of 8: 8 and 6 of them.
  const auto placements = loads.placements({{3, 10, 1}, 1, false}, Role::Prefill, 0);
  ASSERT_TRUE(placements.ok());
  const auto whole = loads.placements({{3, 10, 1}, 4, false}, Role::Both, 0);
  ASSERT_TRUE(whole.ok());
  const plan::Variant &chunk = variantOf(0, 8, 3, 16, false);
  EXPECT_NEAR(timeAtRate((*placements)[0], kLink), 2.0 * static_cast<double>(chunk.predictedNs), 1);
  // As the first stage of an instance that does both.
  EXPECT_EQ((*whole)[0].first.computeNs, (*placements)[0].computeNs);
  EXPECT_EQ((*whole)[1].first.linkBytes, (*placements)[1].linkBytes);
  EXPECT_GT((*whole)[1].first.linkBytes, (*whole)[1].linkBytes);
}

// 17 tokens in buckets of 8: 8 and 8, and in the end one token of the second prompt. By then no prompt has more left,
// so that the first one's sequence decodes beside it: an iteration of two, in the bucket of three. (A pair's prefill
// instance has nothing to decode.)
TEST(PlanLoads, TheLastTokensOfPromptsAreReadBesideDecoding) {
  const PlanLoads loads(sharedPlan(), 0);
  const auto both = loads.placements({{8, 9}, 4, false}, Role::Both, 0);
  const auto prompts = loads.placements({{8, 9}, 1, false}, Role::Prefill, 0);
  ASSERT_TRUE(both.ok() && prompts.ok());
  const auto ns = [](const plan::Variant &variant) { return static_cast<double>(variant.predictedNs); };
  const double chunks = 2 * ns(variantOf(0, 8, 1, 16, false));
  EXPECT_NEAR((*both)[0].first.computeNs, chunks + ns(variantOf(0, 3, 3, 16, true)), 1);
  EXPECT_NEAR((*prompts)[0].computeNs, chunks + ns(variantOf(0, 1, 1, 16, true)), 1);
}

TEST(PlanLoads, ChangesCopyWhatBecomesResident) {
  const PlanLoads loads(sharedPlan(), 0);
  uint64_t host[3];
  for (uint32_t p = 0; p < 3; ++p)
    host[p] = plan::weightBytesByHome(sharedPlan(), p).host;
  EXPECT_EQ(loads.change(1, 1).bytes, 0u);
  // All of its six layers come back; slots may hold the tail of an iteration meanwhile.
  EXPECT_TRUE(loads.change(1, 0).possible);
  EXPECT_GE(loads.change(1, 0).bytes, host[1]);
  EXPECT_LE(loads.change(1, 0).bytes, 2 * host[1]);
  EXPECT_GT(loads.change(1, 0).fixedNs, 0); // latencies of copies
  // Giving up copies nothing but what the first iteration enters with.
  EXPECT_LT(loads.change(0, 1).bytes, host[1] / 2);
  // The KV cache arrives after the change.
  const auto with = loads.placements({{4}, 3, false}, Role::Decode, 1, 1000);
  const auto without = loads.placements({{4}, 3, false}, Role::Decode, 1);
  ASSERT_TRUE(with.ok() && without.ok());
  EXPECT_EQ((*with)[0].first.exposedBytes, (*without)[0].first.exposedBytes + 1000);
  EXPECT_GE((*without)[0].first.exposedBytes, host[1]);
}

// All blocks but the scratch block are a request's to take, and not one more.
TEST(PlanLoads, ABatchMayTakeEveryBlock) {
  const PlanLoads loads(sharedPlan(), 0);
  plan::Plan plan = sharedPlan();
  const BatchWork batch{{7, 3}, 5, false}; // 12 and 8 tokens in blocks of 4: 3 + 2
  ASSERT_EQ(plan.blockTokens, 4);
  for (plan::Placement &placement : plan.placements)
    placement.kvBlocks = 6;
  EXPECT_TRUE(PlanLoads(plan, 0).placements(batch, Role::Both, 0).ok());
  plan.placements[1].kvBlocks = 5; // four of them
  const auto some = PlanLoads(plan, 0).placements(batch, Role::Both, 0);
  ASSERT_TRUE(some.ok());
  ASSERT_EQ(some->size(), 2u);
  EXPECT_EQ((*some)[0].placement, 0u);
  EXPECT_EQ((*some)[1].placement, 2u);
  // Of the prompts alone one token follows: 8 and 4 tokens, 2 + 1 blocks.
  for (plan::Placement &placement : plan.placements)
    placement.kvBlocks = 4;
  EXPECT_TRUE(PlanLoads(plan, 0).placements(batch, Role::Prefill, 0).ok());
  EXPECT_FALSE(PlanLoads(plan, 0).placements(batch, Role::Decode, 0).ok());
  for (plan::Placement &placement : plan.placements)
    placement.kvBlocks = 3;
  EXPECT_FALSE(PlanLoads(plan, 0).placements(batch, Role::Prefill, 0).ok());
}

// Alone on the bus a gap is what the device takes: here as the simulator plays it, iteration by iteration.
TEST(PlanLoads, AloneTheLongestGapIsThatOfTheSimulator) {
  const PlanLoads loads(sharedPlan(), 0);
  const auto both = loads.placements({{3, 2, 1}, 4, false}, Role::Both, 0);
  const auto alone = loads.placements({{3, 2, 1}, 4, false}, Role::Decode, 0); // no prompts before it
  ASSERT_TRUE(both.ok() && alone.ok());
  for (const BusPlacement &p : *both) {
    const plan::Variant &prompts = variantOf(p.placement, 8, 3, 16, false);
    const plan::Variant &decode = variantOf(p.placement, 3, 3, 16, true);
    const auto play = [&](const plan::Variant &v) {
      return sim::Simulator(sharedPlan().schedules[v.schedule]).run(v.durationsNs, cost::Sharing());
    };
    const plan::Schedule &from = sharedPlan().schedules[prompts.schedule],
                         &to = sharedPlan().schedules[decode.schedule];
    uint64_t way = 0;
    for (const plan::Transition &t : sharedPlan().transitions)
      if (t.fromState == from.exitState && t.toState == to.entryState && from.exitState != to.entryState)
        way = t.predictedNs;
    const sim::Timeline first = play(prompts), then = play(decode);
    const uint64_t gap = std::max(first.iterationNs - first.publishNs + way + then.publishNs, then.iterationNs);
    // A larger bucket may have run the prompts, with a longer tail.
    EXPECT_GE(timeAtRate(p, kLink) + 1, static_cast<double>(gap)) << p.placement;
    EXPECT_LE(timeAtRate(p, kLink), 1.01 * static_cast<double>(gap)) << p.placement;
    EXPECT_NEAR(timeAtRate((*alone)[p.placement], kLink), static_cast<double>(then.iterationNs), 1) << p.placement;
    EXPECT_GE(delayableNs(stageOf(p, Stage::Iteration), kLink) + 1, timeAtRate(p, kLink));
    EXPECT_EQ(p.soloRate, kLink);
  }
}

// 37 blocks of which 10 are on the device, the scratch block included.
plan::Plan splitPlan() {
  compiler::CompileRequest request = fleetPlanRequest({.linkBandwidth = kLink, .intervals = {2}});
  for (compiler::Candidate &candidate : request.placements)
    candidate.residency.setKvAway(request.model->layers, 10);
  auto plan = compiler::compile(request);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : plan::Plan{};
}

// Of caches that are split, what a request has in use at its end is all that it moves.
TEST(PlanLoads, TailsCountByWhatIsInUse) {
  const plan::Plan plan = splitPlan();
  const PlanLoads loads(plan, 0);
  // 7, 14 and 5 tokens in blocks of 4: 2 + 4 + 2, all on the device.
  const auto few = loads.placements({{3, 10, 1}, 4, false}, Role::Decode, 0);
  ASSERT_TRUE(few.ok()) << few.status();
  EXPECT_EQ((*few)[0].linkBytes, 0u);
  // 3 x 10, of which 21 are away; then 3 x 12: all.
  const auto many = loads.placements({{20, 20, 20}, 20, false}, Role::Decode, 0);
  const auto all = loads.placements({{28, 28, 28}, 20, false}, Role::Decode, 0);
  ASSERT_TRUE(many.ok() && all.ok());
  const sim::LinkRates link = sim::linkRates(plan.hardware, 0);
  for (uint32_t p = 0; p < 2; ++p) {
    const plan::Variant *variant = nullptr; // of all blocks
    for (const plan::Variant &v : plan.variants)
      if (v.placement == p && v.sequences == 3 && v.newTokens == 3 && v.context == 48 &&
          plan.schedules[v.schedule].kvBlocks == 0)
        variant = &v;
    ASSERT_NE(variant, nullptr);
    const plan::Schedule &schedule = plan.schedules[variant->schedule];
    const uint64_t whole = plan::linkBytes(schedule).h2d;
    EXPECT_EQ((*all)[p].linkBytes, whole);
    EXPECT_NEAR(timeAtRate((*all)[p], kLink), static_cast<double>(variant->predictedNs), 1);
    // As sim plays a launch with so much in use.
    const auto play = [&](int64_t kvBlocks, uint64_t &bytes) {
      std::vector<uint64_t> durations = variant->durationsNs;
      bytes = whole;
      const auto sized = sim::sizedTimes(plan, schedule, durations, variant->newTokens, link);
      EXPECT_TRUE(sized.ok()) << sized.status();
      for (const sim::SizedTime &copy : *sized) {
        const uint64_t copied = core::bytesInUse(copy.size, core::InUse{kvBlocks});
        durations[copy.step] = copy.nsOf(copied);
        bytes -= copy.size.bytes - copied;
      }
      return static_cast<double>(sim::Simulator(schedule).run(durations, cost::Sharing()).iterationNs);
    };
    uint64_t bytes = 0, bytesOfOneMore = 0;
    const double ns = play(31, bytes), nsOfOneMore = play(32, bytesOfOneMore);
    EXPECT_GE((*many)[p].linkBytes, bytes);
    EXPECT_LE((*many)[p].linkBytes, bytesOfOneMore); // in use is rounded up
    EXPECT_LT((*many)[p].linkBytes, whole);
    EXPECT_GE(timeAtRate((*many)[p], kLink) + 1, ns);
    EXPECT_LE(timeAtRate((*many)[p], kLink), nsOfOneMore + 50); // and so is each copy's time
  }
}

// Requests that begin with all of their blocks on the device and end with some away, or with the last one on it: each
// gap is as sim plays it, the one included in which tails begin to be brought.
TEST(PlanLoads, GapsHoldWhereARequestOutgrowsTheBlocksOnTheDevice) {
  size_t crossed = 0;
  for (const int64_t resident : {4, 7, 10, 13}) {
    compiler::CompileRequest request = fleetPlanRequest({.linkBandwidth = kLink, .intervals = {1, 4}});
    for (compiler::Candidate &candidate : request.placements)
      candidate.residency.setKvAway(request.model->layers, resident);
    const auto plan = compiler::compile(request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const PlanLoads loads(*plan, 0);
    const auto weights = model::syntheticWeights(1);
    for (const int64_t prompt : {2, 6, 12})
      for (const int64_t newTokens : {10, 20}) {
        GenerateRequest asked;
        asked.prompts.assign(3, std::vector<int32_t>(static_cast<size_t>(prompt), 1));
        asked.maxNewTokens = newTokens;
        asked.separatePrefill = true;
        const auto placements = loads.placements({{prompt, prompt, prompt}, newTokens, false}, Role::Both, 0);
        ASSERT_TRUE(placements.ok()) << placements.status();
        for (const BusPlacement &p : *placements) {
          const auto device = sim::makeSimDevice();
          const auto runtime = core::Runtime::load(*plan, *device, {}, weights.get(), {.placement = p.placement});
          ASSERT_TRUE(runtime.ok()) << runtime.status();
          int64_t longest = 0, least = plan->kvBlocks, most = 0;
          asked.onIteration = [&](const IterationSeen &seen) {
            if (seen.prefill)
              return;
            longest = std::max(longest, seen.gapNs);
            least = std::min(least, (*runtime)->launchedInUse().of(0).kvBlocks);
            most = std::max(most, (*runtime)->launchedInUse().of(0).kvBlocks);
          };
          asked.placementOf = [&](const plan::IterationSize &) { return p.placement; };
          const auto result = generate(**runtime, asked);
          ASSERT_TRUE(result.ok()) << result.status();
          crossed += least <= resident && most > resident;
          EXPECT_LE(static_cast<double>(longest), timeAtRate(p, kLink) + 2)
              << resident << " blocks on the device, " << prompt << " + " << newTokens << " tokens, placement "
              << p.placement;
        }
      }
  }
  EXPECT_GT(crossed, 20u);
}

TEST(PlanLoads, RefusesABatchThatNoPlacementHolds) {
  const PlanLoads loads(sharedPlan(), 0);
  const auto refused = loads.placements({{1, 1, 1, 1}, 3, false}, Role::Decode, 0);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("variants and KV blocks for 4 sequences up to context 3"));
}

} // namespace
} // namespace headrace::serve
