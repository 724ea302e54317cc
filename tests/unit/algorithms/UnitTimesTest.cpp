// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/UnitTimes.h"

#include "tests/unit/algorithms/UnitProblems.h"
#include "gtest/gtest.h"
#include <rapidcheck/gtest.h>

namespace headrace::algorithms {
namespace {

TEST(UnitTimes, TwoUnitsInARingOfBoth) {
  // Units of 1024 B, steps of 600 ns: 4 x 600 = 2400 ns of compute, 2048 ns of copies. Each unit has a place of its
  // own, so its copy for the next iteration may start when it has been read: at 600 and at 1800. A cut behind the first
  // unit: the second is copied from 0 to 1024, in time for step 2 at 1200; the first again from 1024 to 2048. Nothing
  // waits.
  UnitProblem problem = unitProblem({1024, 1024}, {600, 600, 600, 600}, 2400);
  UnitTimes times(problem);
  EXPECT_EQ(times.copyNs(0), 1024u);
  EXPECT_EQ(times.computeNs(0, 0), 2400u);
  EXPECT_EQ(times.computeNs(0, 0, 2), 1200u);
  const RingAssignment both = assignRing({1024, 1024}, 1);
  const std::vector<uint32_t> units{0, 1};
  ASSERT_TRUE(times.meets(units, both));
  EXPECT_EQ(times.timing(units, both).ns[0][0], 2400u);
  // One place: the second unit may be copied from 600 on, to 1624; it is read from there to 2224, and the first comes
  // back from 2224 to 3248, or partly: cut at x bytes the first waits for 1024 - x, the second then starts at
  // 1024 - x + 600, ends at 2648 - x, compute 3848 - x; the tail begins at 3248 - x and ends at 3248. So 3248.
  const RingAssignment one = assignRing({1024, 1024}, 2);
  EXPECT_FALSE(times.meets(units, one));
  problem.schedules[0].buckets[0].sloNs = 3248;
  EXPECT_TRUE(times.meets(units, one));
  EXPECT_LE(times.timing(units, one).ns[0][0], 3248u);
  problem.schedules[0].buckets[0].sloNs = 3247;
  EXPECT_FALSE(times.meets(units, one));
}

TEST(UnitTimes, NothingOffloadedTakesTheComputeAlone) {
  UnitProblem problem = unitProblem({1024}, {600, 600}, 1200);
  UnitTimes times(problem);
  EXPECT_TRUE(times.meets({}, {}));
  EXPECT_EQ(times.timing({}, {}).ns[0][0], 1200u);
  problem.schedules[0].buckets[0].sloNs = 1199;
  EXPECT_FALSE(times.meets({}, {}));
}

struct AnyChoice {
  UnitProblem problem;
  std::vector<uint32_t> units;
  RingAssignment ring;
};

AnyChoice anyChoice() {
  const auto bytes = *rc::gen::nonEmpty(rc::gen::container<std::vector<uint64_t>>(rc::gen::inRange<uint64_t>(1, 40)));
  std::vector<uint64_t> sizes;
  for (const uint64_t n : bytes)
    sizes.push_back(256 * n);
  AnyChoice choice;
  const auto durations = [&] {
    return *rc::gen::container<std::vector<uint64_t>>(2 * sizes.size(), rc::gen::inRange<uint64_t>(0, 12'000));
  };
  choice.problem = unitProblem(sizes, durations(), 0);
  choice.problem.schedules[0].buckets.push_back({durations(), 0});
  choice.problem.schedules.push_back(choice.problem.schedules[0]);
  for (ScheduleTimes &schedule : choice.problem.schedules)
    for (ScheduleTimes::Bucket &bucket : schedule.buckets) {
      uint64_t all = 0;
      for (const uint64_t ns : bucket.computeNs)
        all += ns;
      bucket.sloNs = all * *rc::gen::inRange<uint64_t>(90, 300) / 100;
    }
  std::vector<uint64_t> picked;
  for (uint32_t unit = 0; unit < sizes.size(); ++unit)
    if (*rc::gen::inRange(0, 3) > 0 || (unit + 1 == sizes.size() && picked.empty())) {
      choice.units.push_back(unit);
      picked.push_back(sizes[unit]);
    }
  choice.ring = assignRing(picked, *rc::gen::inRange<size_t>(1, picked.size() + 1));
  return choice;
}

// The times are those of the step-by-step recurrence, whatever the set, the ring and the latency of a copy.
RC_GTEST_PROP(UnitTimes, AreThoseOfTheRecurrence, ()) {
  AnyChoice choice = anyChoice();
  const uint64_t latency = *rc::gen::inRange<uint64_t>(0, 500);
  choice.problem.copyNs = [latency](uint64_t n) { return n + latency; };
  UnitTimes times(choice.problem);
  if (!times.meets(choice.units, choice.ring))
    return;
  const UnitTiming timing = times.timing(choice.units, choice.ring);
  for (size_t schedule = 0; schedule < choice.problem.schedules.size(); ++schedule) {
    const CutProblem cut = cutProblem(choice.problem, schedule, choice.units, choice.ring);
    for (size_t bucket = 0; bucket < 2; ++bucket) {
      RC_ASSERT(timing.ns[schedule][bucket] == iterationNs(cut, bucket, timing.cuts[schedule]));
      RC_ASSERT(timing.ns[schedule][bucket] <= choice.problem.schedules[schedule].buckets[bucket].sloNs);
    }
  }
}

// Bisection over cuts finds one wherever there is one.
RC_GTEST_PROP(UnitTimes, AskedForAnyCutTheyMissNone, ()) {
  const AnyChoice choice = anyChoice();
  UnitTimes times(choice.problem);
  RC_ASSERT(times.meets(choice.units, choice.ring) == anyCutMeets(choice.problem, choice.units, choice.ring));
}

} // namespace
} // namespace headrace::algorithms
