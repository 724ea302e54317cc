// SPDX-License-Identifier: Apache-2.0
//
// Plans whose tails are written back by copies, that go round in cycles, or that have no block of a cache at home on
// the device: what the verifier accepts, and one plan wrong in one way at a time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/PlacementTable.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/PlanVerifier.h"
#include "tests/unit/plan/BrokenPlan.h"
#include "tests/unit/plan/MakePlan.h"
#include "tests/unit/plan/PlanText.h"
#include "tests/unit/plan/WriteBackPlan.h"

namespace headrace::plan {
namespace {

using kernels::Op;
using test::Broken;
using test::expectAccepted;
using test::expectRefused;
using test::inTurns;
using test::Tails;
using test::WriteBack;

constexpr WriteBack kHow[] = {WriteBack::Mirror, WriteBack::All, WriteBack::Dirty};

const char *name(WriteBack how) {
  return how == WriteBack::Mirror ? "mirror" : how == WriteBack::All ? "all" : "dirty";
}

// Three blocks of 2048 bytes a layer.
Plan makePlan(int64_t layers, const std::vector<Tails> &tails, const std::vector<test::LimitOptions> &limits = {{}}) {
  std::vector<test::PlacementOptions> placements(tails.size());
  for (size_t p = 0; p < tails.size(); ++p) {
    placements[p].name = std::to_string(tails[p].resident) + " of " + std::to_string(tails[p].blocks);
    placements[p].limits = limits;
  }
  Plan plan = test::makePlan({test::tinyLlama(layers), placements});
  test::moveTails(plan, tails);
  return plan;
}
Tails turns(int64_t resident, WriteBack how, uint32_t slots = 2, int32_t layers = 4) {
  return {resident, 3, slots, how == WriteBack::Mirror, {inTurns(layers, slots, how)}};
}
Tails cycle(int64_t resident, WriteBack how) {
  return {resident, 3, 2, how == WriteBack::Mirror, test::rotating(how)};
}

TEST(WriteBack, IsAccepted) {
  for (const WriteBack how : kHow)
    for (const int64_t resident : {0, 1, 2}) {
      const std::string what = std::string(name(how)) + ", " + std::to_string(resident) + " resident";
      for (const uint32_t slots : {1u, 2u, 3u, 4u})
        expectAccepted(makePlan(4, {turns(resident, how, slots)}), what + ", slots " + std::to_string(slots));
      expectAccepted(makePlan(3, {cycle(resident, how)}), what + ", a cycle");
    }
}

// Each way of one placement beside each of another, with changes between them, and a third that has all on the device.
TEST(WriteBack, IsAcceptedInSeveralPlacements) {
  for (const WriteBack one : kHow)
    for (const WriteBack two : kHow)
      for (const auto &[few, many] : std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {0, 2}, {1, 2}, {2, 1}, {0, 0}})
        expectAccepted(makePlan(3, {cycle(few, one), turns(many, two, 2, 3), {3, 3, 0, true, {}}}),
                       std::string(name(one)) + " of " + std::to_string(few) + ", " + name(two) + " of " +
                           std::to_string(many));
}

// Decode and mixed iterations share the states of a cycle; a third schedule uses only what is on the device.
TEST(WriteBack, IsAcceptedInSeveralClasses) {
  std::vector<test::LimitOptions> limits(3);
  limits[0].buckets = {1, 2};
  limits[1].buckets = {4};
  limits[1].iterationClass = IterationClass::Mixed;
  limits[2].buckets = {2};
  for (const WriteBack how : kHow) {
    Tails tails = cycle(1, how);
    tails.withoutTail = {false, false, true};
    const Plan plan = makePlan(3, {tails}, limits);
    expectAccepted(plan, name(how));
    // Schedules: decode 0, mixed 0, without the tail, decode 1, mixed 1. Of a bucket first what is without the tail.
    ASSERT_EQ(plan.schedules[3].phase, 1u);
    EXPECT_EQ(plan.schedules[4].entryState, plan.schedules[3].entryState);
    std::vector<uint32_t> schedules;
    for (const Variant &v : plan.variants)
      schedules.push_back(v.schedule);
    EXPECT_EQ(schedules, (std::vector<uint32_t>{0, 3, 2, 0, 3, 1, 4}));
  }
}

// Four tails of two blocks, 4096 bytes, come in. What is written back is as much; of what is resident, one block in two
// where a placement with one has the other on the host, the appended rows (1024 bytes in these plans) of four layers.
TEST(WriteBack, IsCountedOnTheLink) {
  const auto back = [](WriteBack how, int64_t resident, int64_t other) {
    const Plan plan = makePlan(4, {turns(resident, how), turns(other, how)});
    EXPECT_EQ(linkBytes(plan.schedules[0]).h2d, 4 * 2048 * static_cast<uint64_t>(3 - resident));
    return linkBytes(plan.schedules[0]).d2h;
  };
  EXPECT_EQ(back(WriteBack::Mirror, 1, 1), 4 * 1024u);
  EXPECT_EQ(back(WriteBack::All, 1, 1), 4 * 4096u);
  EXPECT_EQ(back(WriteBack::Dirty, 1, 1), 4 * 4096u);
  EXPECT_EQ(back(WriteBack::All, 2, 1), 4 * 2048u + 4 * 1024u);
  EXPECT_EQ(back(WriteBack::All, 0, 0), 4 * 6144u);
}

// Three layers of three blocks. With none at home on the device, all are in the slab, one cache behind the other.
TEST(WriteBack, MayHaveNoBlockAtHomeOnTheDevice) {
  const Plan plan = makePlan(3, {turns(0, WriteBack::All, 2, 3)});
  const Placement &placement = plan.placements[0];
  EXPECT_EQ(residentBlocks(plan, placement), 0);
  EXPECT_EQ(deviceBytes(plan, 0).kv, 0u);
  EXPECT_EQ(deviceBytes(plan, 0).slots, 2 * 6144u);
  EXPECT_EQ(kvBytesByHome(plan, 0).host, 3 * 6144u);
  EXPECT_EQ(plan.hostBytes, 3 * 6144u);
  for (const Extent &extent : placement.extents)
    EXPECT_FALSE(extent.interleaved);
  for (const Operand &operand : plan.schedules[0].operands)
    EXPECT_TRUE(operand.arg != Arg::Kv && operand.arg != Arg::KvHome);
  // Two tails are live at once, instead of one block a layer and two tails of two.
  const Plan one = makePlan(3, {turns(1, WriteBack::All, 2, 3)});
  EXPECT_EQ(largestLiveBytes(plan, 0) - 2 * 6144, largestLiveBytes(one, 0) - 3 * 2048 - 2 * 4096);
}

TEST(WriteBack, IsWhatWasWritten) {
  for (const WriteBack how : kHow) {
    const Plan plan = makePlan(3, {cycle(1, how), turns(0, how, 2, 3)});
    const absl::StatusOr<Plan> read = parse(test::bytesOf(serialize(plan)), "a.plan");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(test::textOf(*read), test::textOf(plan));
  }
}

} // namespace
} // namespace headrace::plan
