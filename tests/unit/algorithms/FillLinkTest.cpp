// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/FillLink.h"

#include <algorithm>
#include <random>

#include "tests/unit/algorithms/UnitProblems.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::algorithms {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Eight units of 1024 B, 1024 ns to copy, each read for 100 ns in 512: 4096 ns of compute. Unit i is needed at 512 i.
UnitProblem eight() {
  std::vector<uint64_t> ns;
  for (int i = 0; i < 8; ++i)
    ns.insert(ns.end(), {100, 412});
  return unitProblem(std::vector<uint64_t>(8, 1024), ns, 4096);
}

LinkFill fillOf(const UnitProblem &problem, uint64_t timeNs, uint64_t ringBytes) {
  LinkFill fill;
  fill.timeNs = timeNs;
  fill.ringBytes = ringBytes;
  fill.may.assign(problem.units.size(), true);
  fill.must.assign(problem.units.size(), false);
  return fill;
}

std::vector<uint32_t> filled(const UnitProblem &problem, const LinkFill &fill) {
  return fillLink(problem, UnitTimes(problem), fill);
}

TEST(FillLink, TakesWhatTheLinkBringsByTheTimeItIsNeeded) {
  const UnitProblem problem = eight();
  // Copies end at 1024, 2048, 3072: as units 2, 4 and 6 are needed.
  EXPECT_THAT(filled(problem, fillOf(problem, 4096, 8192)), ElementsAre(2, 4, 6));
  // Compute stretched to twice as long: unit i is needed at 1024 i.
  EXPECT_THAT(filled(problem, fillOf(problem, 8192, 8192)), ElementsAre(1, 2, 3, 4, 5, 6, 7));
  // 1 ns less, and each comes too late; unit 3 is needed at 1535.6, when half of the second copy is done.
  EXPECT_THAT(filled(problem, fillOf(problem, 4095, 8192)), ElementsAre(3, 5, 7));
}

TEST(FillLink, CopiesWaitForTheirPlaceInTheRing) {
  const UnitProblem problem = eight();
  // One place: unit 2 is read from 1024 to 1124, so the next copy ends at 2148: too late for unit 4 at 2048, in time
  // for unit 5 at 2560. Read until 2660; the next ends at 3684, after 3584.
  EXPECT_THAT(filled(problem, fillOf(problem, 4096, 1024)), ElementsAre(2, 5));
  // Two places, and two and a half, which are no more: the third copy waits for the first unit alone.
  EXPECT_THAT(filled(problem, fillOf(problem, 4096, 2048)), ElementsAre(2, 4, 6));
  EXPECT_THAT(filled(problem, fillOf(problem, 4096, 2560)), ElementsAre(2, 4, 6));
}

TEST(FillLink, TheIterationBeforeCopiesTheLead) {
  const UnitProblem problem = eight();
  LinkFill fill = fillOf(problem, 4096, 8192);
  // All of unit 0 at the start; the last copy, of unit 6, has to end 1024 ns before the end, and does.
  fill.leadBytes = 1024;
  EXPECT_THAT(filled(problem, fill), ElementsAre(0, 2, 4, 6));
  // Half of the first: unit 1 at 512, unit 7 at 3584, 512 before the end.
  fill.leadBytes = 512;
  EXPECT_THAT(filled(problem, fill), ElementsAre(1, 3, 5, 7));
  // Units 0 and 1 by the start. The tail has 2048 ns: unit 6 at 3072 would be too late for it.
  fill.leadBytes = 2048;
  EXPECT_THAT(filled(problem, fill), ElementsAre(0, 1, 2, 4));
}

TEST(FillLink, WhatMustBeTakenMakesComputeWait) {
  const UnitProblem problem = eight();
  // Unit 0 comes at 1024, when compute has waited that long and reads it until 1124. One place: the next copy ends at
  // 2148, in time for unit 5 at 2560 only, which is then read until 3684.
  LinkFill fill = fillOf(problem, 4096, 1024);
  fill.must[0] = true;
  EXPECT_THAT(filled(problem, fill), ElementsAre(0, 5));
  fill.may.assign(8, false);
  EXPECT_THAT(filled(problem, fill), ElementsAre(0));
  fill.must[0] = false;
  EXPECT_THAT(filled(problem, fill), IsEmpty());
}

TEST(FillLink, KeepsToItsBytes) {
  UnitProblem problem = eight();
  LinkFill fill = fillOf(problem, 4096, 8192);
  fill.mostBytes = 2048;
  EXPECT_THAT(filled(problem, fill), ElementsAre(2, 4));
  fill.mostBytes = 2047;
  EXPECT_THAT(filled(problem, fill), ElementsAre(2));
  // What must be taken is taken, and counted.
  fill.must[7] = true;
  EXPECT_THAT(filled(problem, fill), ElementsAre(2, 7));
  fill.mostBytes = 0;
  EXPECT_THAT(filled(problem, fill), ElementsAre(7));
}

TEST(FillLink, GoesBesideTheBucketThatWasAskedFor) {
  // A second bucket computes twice as long; in a second schedule unit i is read in step 0 or 1.
  UnitProblem problem = eight();
  std::vector<uint64_t> slow;
  for (int i = 0; i < 8; ++i)
    slow.insert(slow.end(), {200, 824});
  problem.schedules[0].buckets.push_back({slow, 8192});
  problem.schedules.push_back(problem.schedules[0]);
  for (ScheduleTimes::Use &use : problem.schedules[1].uses)
    use = {0, 1};
  LinkFill fill = fillOf(problem, 8192, 8192);
  fill.bucket = 1;
  EXPECT_THAT(filled(problem, fill), ElementsAre(1, 2, 3, 4, 5, 6, 7));
  fill.schedule = 1;
  EXPECT_THAT(filled(problem, fill), IsEmpty());
}

// The same rule with the ring as blocks of 256 B, each in use until some time.
std::vector<uint32_t> filledBlockByBlock(const UnitProblem &problem, const LinkFill &fill) {
  const std::vector<uint64_t> &ns = problem.schedules[fill.schedule].buckets[fill.bucket].computeNs;
  std::vector<double> sums{0}, usedUntil(fill.ringBytes / 256, -1e18);
  for (const uint64_t step : ns)
    sums.push_back(sums.back() + static_cast<double>(step));
  const auto time = static_cast<double>(fill.timeNs);
  std::vector<uint32_t> taken;
  uint64_t bytes = 0;
  size_t at = 0;
  double link = 0, lead = 0, late = 0;
  for (uint32_t unit = 0; unit < problem.units.size(); ++unit) {
    const uint64_t size = problem.units[unit].bytes;
    const ScheduleTimes::Use &use = problem.schedules[fill.schedule].uses[unit];
    if (!fill.may[unit] && !fill.must[unit])
      continue;
    if (taken.empty()) {
      lead =
          static_cast<double>(problem.copyNs(size)) * static_cast<double>(fill.leadBytes) / static_cast<double>(size);
      link = -lead;
    }
    const size_t blocks = size / 256, begin = at + blocks <= usedUntil.size() ? at : 0;
    const auto range = usedUntil.begin() + static_cast<std::ptrdiff_t>(begin);
    const double free = *std::max_element(range, range + static_cast<std::ptrdiff_t>(blocks));
    const double done = std::max(link, free) + static_cast<double>(problem.copyNs(size));
    const double needed = sums[use.first];
    const bool inTime = done <= needed * (time / sums.back()) && done <= time - lead;
    if (!fill.must[unit] && (!inTime || bytes + size > fill.mostBytes))
      continue;
    late = std::max(late, done - needed);
    std::fill(range, range + static_cast<std::ptrdiff_t>(blocks), sums[use.last + 1] + late);
    at = begin + blocks;
    link = done;
    bytes += size;
    taken.push_back(unit);
  }
  return taken;
}

TEST(FillLink, IsTheSameBlockByBlock) {
  std::mt19937_64 generator(3);
  const auto between = [&](uint64_t low, uint64_t high) {
    return std::uniform_int_distribution<uint64_t>(low, high)(generator);
  };
  size_t taken = 0, left = 0;
  for (int i = 0; i < 500; ++i) {
    std::vector<uint64_t> bytes, ns;
    for (uint64_t unit = between(1, 24); unit > 0; --unit) {
      bytes.push_back(256 * between(1, 12));
      ns.insert(ns.end(), {between(1, 500), between(1, 3000)});
    }
    const UnitProblem problem = unitProblem(bytes, ns, 0);
    uint64_t compute = 0;
    for (const uint64_t step : ns)
      compute += step;
    LinkFill fill = fillOf(problem, compute * between(100, 200) / 100, 256 * between(12, 48));
    fill.leadBytes = 256 * between(0, 24);
    fill.mostBytes = 256 * between(0, 200);
    for (size_t unit = 0; unit < bytes.size(); ++unit) {
      fill.may[unit] = between(0, 5) > 0;
      fill.must[unit] = between(0, 9) == 0;
    }
    const std::vector<uint32_t> units = filled(problem, fill);
    EXPECT_EQ(units, filledBlockByBlock(problem, fill)) << "problem " << i;
    taken += units.size();
    left += bytes.size() - units.size();
  }
  EXPECT_GT(taken, 1000u);
  EXPECT_GT(left, 1000u);
}

} // namespace
} // namespace headrace::algorithms
