// SPDX-License-Identifier: Apache-2.0
#include "compiler/Interfere.h"

#include <utility>

#include "compiler/Compile.h"
#include "runtime/plan/PlacementTable.h"
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
  p.changed = interfere(schedule, interference, simulator.run(durations), durations);
  p.iterationNs = simulator.run(durations).iterationNs;
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
  Disturbed(const CompileRequest &r, cost::Interference interference)
      : alone_(r.model, r.hardware, model::DType::F32, model::DType::F32), interference_(interference) {}
  uint64_t computeNs(const cost::OpSite &site, const cost::Shape &shape, bool direct) const override {
    return alone_.computeNs(site, shape, direct);
  }
  uint64_t copyNs(uint64_t bytes, bool hostToDevice) const override { return alone_.copyNs(bytes, hostToDevice); }
  double duplexShare() const override { return alone_.duplexShare(); }
  cost::Interference interference() const override { return interference_; }

private:
  cost::Roofline alone_;
  cost::Interference interference_;
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

} // namespace
} // namespace headrace::compiler
