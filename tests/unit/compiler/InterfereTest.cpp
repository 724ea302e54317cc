// SPDX-License-Identifier: Apache-2.0
#include "compiler/evaluate/Interfere.h"

#include <utility>

#include "compiler/Compile.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/PlacementTable.h"
#include "tests/unit/compiler/Requests.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using plan::Lane;

plan::Step step(Lane lane) {
  plan::Step step;
  step.lane = lane;
  step.kind = lane == Lane::Compute ? plan::StepKind::Compute : plan::StepKind::Copy;
  return step;
}

struct Played {
  bool changed = false;
  std::vector<uint64_t> durations;
  uint64_t iterationNs = 0;
};
Played played(const plan::Schedule &schedule, std::vector<uint64_t> durations, const cost::Interference &interference) {
  const sim::Simulator simulator(schedule);
  Played p;
  p.changed = interfere(schedule, interference, simulator.run(durations, cost::Sharing()), durations);
  p.iterationNs = simulator.run(durations, cost::Sharing()).iterationNs;
  p.durations = std::move(durations);
  return p;
}

// 0: 0-100; the copy waits for it: 100-250; 1: 100-200 beside the copy; 2 waits for the copy: 250-350.
plan::Schedule waitingCopy() {
  plan::Schedule schedule;
  schedule.steps = {step(Lane::Compute), step(Lane::H2D), step(Lane::Compute), step(Lane::Compute)};
  schedule.edges = {{0, 1, plan::EdgeKind::War}, {1, 3, plan::EdgeKind::Raw}};
  return schedule;
}

TEST(Interfere, StretchesComputeBesideCopiesAndDelaysCopiesThatWaited) {
  const Played p = played(waitingCopy(), {100, 150, 100, 100}, {.computeFactor = 1.5, .wakeNs = 7});
  EXPECT_TRUE(p.changed);
  EXPECT_EQ(p.durations, (std::vector<uint64_t>{100, 157, 150, 100}));
  EXPECT_EQ(p.iterationNs, 357u); // 100 + 157 + 100: the copy is what the last step waits for
}

// Half of step 2 (100-200) runs beside the copy (100-150): 100 + 50 x 0.5.
TEST(Interfere, StretchesOnlyWhatACopyCovers) {
  const Played p = played(waitingCopy(), {100, 50, 100, 100}, {.computeFactor = 1.5});
  EXPECT_EQ(p.durations, (std::vector<uint64_t>{100, 50, 125, 100}));
  EXPECT_EQ(p.iterationNs, 325u);
  // What is not whole is rounded up: 51 x 0.5 = 25.5.
  EXPECT_EQ(played(waitingCopy(), {100, 51, 100, 100}, {.computeFactor = 1.5}).durations,
            (std::vector<uint64_t>{100, 51, 126, 100}));
}

// The second copy's step (0-100) has long ended when the first copy (0-300) has: its lane is not idle, nobody sleeps.
TEST(Interfere, ACopyBehindAnotherStartsAtOnce) {
  plan::Schedule schedule;
  schedule.steps = {step(Lane::Compute), step(Lane::H2D), step(Lane::H2D)};
  schedule.edges = {{0, 2, plan::EdgeKind::War}};
  const Played p = played(schedule, {100, 300, 300}, {.computeFactor = 1, .wakeNs = 50});
  EXPECT_EQ(p.durations, (std::vector<uint64_t>{150, 300, 300})); // compute waited for the copies before it
}

// The compute lane ends at 350; the copy lane, which has a first copy from 0 to 50 here, waits for that: it wakes 7
// late.
TEST(Interfere, TheLaneThatEndsFirstWakesForTheNextIteration) {
  plan::Schedule schedule = waitingCopy();
  schedule.steps.insert(schedule.steps.begin(), step(Lane::H2D));
  schedule.edges = {{1, 2, plan::EdgeKind::War}, {2, 4, plan::EdgeKind::Raw}};
  const Played p = played(schedule, {50, 100, 150, 100, 100}, {.wakeNs = 7});
  EXPECT_EQ(p.durations, (std::vector<uint64_t>{57, 100, 157, 100, 100}));
  // Copies from 0 to 400 and compute that has ended at 200: the compute lane wakes.
  plan::Schedule linkBound;
  linkBound.steps = {step(Lane::Compute), step(Lane::H2D), step(Lane::Compute)};
  const Played q = played(linkBound, {100, 400, 100}, {.wakeNs = 7});
  EXPECT_EQ(q.durations, (std::vector<uint64_t>{107, 400, 100}));
}

TEST(Interfere, ChangesNothingWithoutCopiesOrInterference) {
  EXPECT_FALSE(played(waitingCopy(), {100, 150, 100, 100}, {}).changed);
  plan::Schedule resident;
  resident.steps = {step(Lane::Compute), step(Lane::Compute)};
  const Played p = played(resident, {100, 100}, {.computeFactor = 2, .wakeNs = 50});
  EXPECT_FALSE(p.changed);
  EXPECT_EQ(p.iterationNs, 200u);
}

TEST(Interfere, NoStepIsLongerThanTheLongest) {
  const Played p =
      played(waitingCopy(), {100, 150, 100, 100}, {.computeFactor = 1e15, .wakeNs = 2 * cost::kLongestStepNs});
  EXPECT_EQ(p.durations, (std::vector<uint64_t>{100, cost::kLongestStepNs, cost::kLongestStepNs, 100}));
}

class Disturbed final : public cost::CostModel {
public:
  Disturbed(const CompileRequest &r, cost::Interference interference, double slowestFactor = 1)
      : alone_(r.model, r.hardware, model::DType::F32, model::DType::F32), interference_(interference),
        slowestFactor_(slowestFactor) {}
  uint64_t computeNs(const cost::OpSite &site, const cost::Bucket &bucket, bool direct) const override {
    return alone_.computeNs(site, bucket, direct);
  }
  uint64_t copyNs(uint64_t bytes, bool hostToDevice) const override { return alone_.copyNs(bytes, hostToDevice); }
  double duplexShare() const override { return alone_.duplexShare(); }
  cost::Interference interference() const override { return interference_; }
  double slowestFactor() const override { return slowestFactor_; }

private:
  cost::Roofline alone_;
  cost::Interference interference_;
  double slowestFactor_;
};

// The same objective admits what still holds it where compute and copies disturb each other, and that frees less.
TEST(Interfere, TheChoiceHoldsTheObjectiveDisturbed) {
  for (const char *policy : {"select-n", "headrace"})
    for (const double factor : {1.02, 2.0, 6.0}) {
      CompileRequest r = request(tinyLlama(12));
      r.buckets = {.newTokens = {2}, .sequences = {2}, .contexts = {64}};
      r.policy.name = policy;
      r.goal.sloFactor = factor;
      const auto quiet = compile(r);
      const Disturbed costs(r, {.computeFactor = 1.2, .wakeNs = 20'000});
      r.costs = &costs;
      const auto disturbed = compile(r);
      ASSERT_TRUE(quiet.ok()) << quiet.status();
      ASSERT_TRUE(disturbed.ok()) << disturbed.status();
      ASSERT_FALSE(disturbed->choices.empty());
      const plan::BucketChoice &choice = disturbed->choices.front();
      EXPECT_EQ(choice.residentNs, quiet->choices.front().residentNs); // nothing disturbs what copies nothing
      EXPECT_LE(disturbed->variants[choice.variant].predictedNs, choice.sloNs) << policy << " " << factor;
      EXPECT_LE(plan::freedBytes(*disturbed, 0), plan::freedBytes(*quiet, 0)) << policy << " " << factor;
      if (factor > 5) {
        EXPECT_GT(plan::freedBytes(*disturbed, 0), 0) << policy;
      }
    }
}

// Where the slowest iterations take a quarter longer than predicted, what offloads is predicted within four fifths of
// the objective; what offloads nothing is within all of it, and its time is no objective's concern.
TEST(Interfere, TheChoiceLeavesRoomForTheSlowestIterations) {
  for (const char *policy : {"select-n", "headrace"})
    for (const double factor : {1.02, 1.2, 1.3, 2.0, 6.0}) {
      CompileRequest r = request(tinyLlama(12));
      r.buckets = {.newTokens = {2}, .sequences = {2}, .contexts = {64}};
      r.policy.name = policy;
      r.goal.sloFactor = factor;
      const Disturbed costs(r, {}, 1.25);
      r.costs = &costs;
      const auto plan = compile(r);
      ASSERT_TRUE(plan.ok()) << plan.status();
      const plan::BucketChoice &choice = plan->choices.front();
      const plan::Variant &variant = plan->variants[choice.variant];
      if (plan::weightBytesByHome(*plan, variant.placement).host == 0) {
        EXPECT_LE(variant.predictedNs, choice.sloNs);
        EXPECT_LT(factor, 2) << policy;
      } else {
        EXPECT_LE(static_cast<double>(variant.predictedNs) * 1.25, static_cast<double>(choice.sloNs)) << policy;
        EXPECT_GE(factor, 1.25) << policy;
      }
      // 1 - 1 / 1.25
      EXPECT_EQ(plan->reason.find("20.0% of it kept free for the slowest iterations") != std::string::npos, true)
          << plan->reason;
    }
}

TEST(Interfere, ASlowestFactorBeyondAllObjectivesOffloadsNothing) {
  CompileRequest r = request(tinyLlama(12));
  r.policy.name = "headrace";
  r.goal.sloFactor = 6;
  const Disturbed costs(r, {}, 1e15); // of a record may be as large
  r.costs = &costs;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan::weightBytesByHome(*plan, 0).host, 0u);
}

// The minima that a refusal names have the same room in them: they are met exactly.
TEST(Interfere, MinimaHaveRoomForTheSlowestIterations) {
  CompileRequest r = request(tinyLlama(12));
  r.buckets = {.newTokens = {}, .sequences = {2}, .contexts = {64}};
  r.policy.name = "headrace";
  r.goal.tpot = std::chrono::nanoseconds(1'000'000'000);
  const auto freest = compile(r);
  ASSERT_TRUE(freest.ok()) << freest.status();
  r.goal.deviceMemory = freest->arenaBytes; // nothing but offloading fits
  const auto leastTpot = [&](const cost::CostModel *costs) -> uint64_t {
    r.costs = costs;
    uint64_t misses = 0, holds = 1'000'000'000;
    while (holds - misses > 1) {
      r.goal.tpot = std::chrono::nanoseconds(misses + (holds - misses) / 2);
      (compile(r).ok() ? holds : misses) = static_cast<uint64_t>(r.goal.tpot->count());
    }
    return holds;
  };
  const Disturbed none(r, {}), quarter(r, {}, 1.25);
  const uint64_t alone = leastTpot(&none), roomy = leastTpot(&quarter);
  EXPECT_EQ(roomy, (alone * 5 + 3) / 4);
  r.goal.tpot = std::chrono::nanoseconds(roomy - 1);
  const auto refused = compile(r);
  EXPECT_NE(refused.status().message().find("the minimum TPOT is " + model::durationText(roomy)), std::string::npos)
      << refused.status();
}

} // namespace
} // namespace headrace::compiler
