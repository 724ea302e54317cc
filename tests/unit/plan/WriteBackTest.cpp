// SPDX-License-Identifier: Apache-2.0
//
// Plans whose tails are written back by copies, that go round in cycles, or that have no block of a cache at home on
// the device: what the verifier accepts, and one plan wrong in one way at a time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
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
using test::orderSteps;
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
Tails cycle(int64_t resident, WriteBack how) { return {resident, 3, 2, how == WriteBack::Mirror, test::rotating(how)}; }

TEST(WriteBack, IsAccepted) {
  for (const WriteBack how : kHow)
    for (const int64_t resident : {0, 1, 2}) {
      const std::string what = std::string(name(how)) + ", " + std::to_string(resident) + " resident";
      for (const uint32_t slots : {1u, 2u, 3u, 4u})
        expectAccepted(makePlan(4, {turns(resident, how, slots)}), what + ", slots " + std::to_string(slots));
      expectAccepted(makePlan(3, {cycle(resident, how)}), what + ", a cycle");
    }
}

TEST(WriteBack, NeedsNoMoreThanThePlansMemory) {
  for (const WriteBack how : kHow)
    for (const uint32_t slots : {1u, 2u, 3u, 4u}) {
      const Plan plan = makePlan(4, {turns(0, how, slots)});
      EXPECT_LE(largestLiveBytes(plan, 0), deviceBytes(plan, 0).peak) << name(how) << ", slots " << slots;
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

// --- refusals --------------------------------------------------------------------------------------------------------

// One block of three of each of three layers on the device: bytes [0, 2048), tails of 4096 bytes from 4096 l on in the
// slab. Schedules of a plan in turns: 0 the iteration; of a cycle: 0 and 1 the phases, then transitions: 2 brings state
// 1, 3 writes it back (all), then the same of state 2.
Plan turnsPlan(WriteBack how = WriteBack::All) { return makePlan(3, {turns(1, how, 2, 3)}); }
Plan cyclePlan(WriteBack how = WriteBack::All) { return makePlan(3, {cycle(1, how)}); }
Plan wholePlan() { return makePlan(3, {turns(0, WriteBack::All, 2, 3)}); }

// The n-th copy of a schedule to the host, or to the device.
uint32_t copyOf(const Plan &p, uint32_t schedule, bool out, int n) {
  const std::vector<Step> &steps = p.schedules[schedule].steps;
  for (uint32_t i = 0; i < steps.size(); ++i)
    if (steps[i].kind == StepKind::Copy && (steps[i].lane == Lane::D2H) == out && n-- == 0)
      return i;
  std::abort();
}
Step &back(Plan &p, int n, uint32_t schedule = 0) { return p.schedules[schedule].steps[copyOf(p, schedule, true, n)]; }
Operand &source(Plan &p, const Step &step, uint32_t schedule = 0) {
  return p.schedules[schedule].operands[step.firstOperand];
}
Operand &destination(Plan &p, const Step &step, uint32_t schedule = 0) {
  return p.schedules[schedule].operands[step.firstOperand + 1];
}
Step &compute(Plan &p, Op op, int32_t layer, uint32_t schedule = 0) {
  for (Step &step : p.schedules[schedule].steps)
    if (step.kind == StepKind::Compute && step.op == op && step.layer == layer)
      return step;
  std::abort();
}
Operand &operand(Plan &p, const Step &step, Arg arg, uint32_t schedule = 0) {
  for (uint32_t i = step.firstOperand; i < step.firstOperand + step.operandCount; ++i)
    if (p.schedules[schedule].operands[i].arg == arg)
      return p.schedules[schedule].operands[i];
  std::abort();
}
void dropEdges(Plan &p, uint32_t schedule, uint32_t from, uint32_t to) {
  std::erase_if(p.schedules[schedule].edges, [&](const Edge &edge) { return edge.from == from && edge.to == to; });
}
// The plan with other phases.
Plan withPhases(WriteBack how, const std::function<void(std::vector<test::Phase> &)> &change) {
  Tails tails = cycle(1, how);
  change(tails.phases);
  return makePlan(3, {tails});
}
void expectRefusedAsItIs(const Plan &plan, const char *name, Rule rule, const char *message) {
  expectRefused(plan, {name, rule, message, [](Plan &) {}});
}

TEST(WriteBack, RefusesStructuresOfCopies) {
  for (const Broken &broken : std::vector<Broken>{
           {"rows only of a copy of one size", Rule::Structure, "schedules[0].steps[",
            [](Plan &p) { back(p, 0).dirtyOnly = true, back(p, 0).resizable = false; }},
           {"rows only of a copy to the device", Rule::Structure,
            "].dirty_only is set, expected only of resizable copies of an iteration in lane d2h",
            [](Plan &p) { p.schedules[0].steps[copyOf(p, 0, false, 1)].dirtyOnly = true; }},
           {"rows only of a compute step", Rule::Structure,
            "].dirty_only is set, expected only of resizable copies of an iteration in lane d2h",
            [](Plan &p) { compute(p, Op::Attention, 0).dirtyOnly = true; }},
           {"a copy of any size that begins inside a block", Rule::Structure,
            ".resizable is set, but it begins at byte 2304, expected a multiple of a block's 2048", [](Plan &p) {
              for (Operand *o : {&source(p, back(p, 0)), &destination(p, back(p, 0))})
                o->bufferOffset += 256, o->address += 256, o->bytes -= 256;
            }}})
    expectRefused(turnsPlan(), broken);
  expectRefused(cyclePlan(), {"rows only in a transition", Rule::Structure,
                              "schedules[3].steps[0].dirty_only is set, expected only of resizable copies of an "
                              "iteration in lane d2h",
                              [](Plan &p) { p.schedules[3].steps[0].dirtyOnly = true; }});
}

TEST(WriteBack, RefusesStructuresOfCycles) {
  for (const Broken &broken :
       std::vector<Broken>{{"no phase", Rule::Structure, "schedules[0].period is 0, expected 1 to 32",
                            [](Plan &p) { p.schedules[0].period = 0; }},
                           {"too many phases", Rule::Structure, "schedules[0].period is 33, expected 1 to 32",
                            [](Plan &p) { p.schedules[0].period = 33; }},
                           {"a phase beyond the last", Rule::Structure, "schedules[1].phase is 2, expected less than 2",
                            [](Plan &p) { p.schedules[1].phase = 2; }},
                           {"a phase of no cycle", Rule::Structure, "schedules[1].phase is 1, expected less than 1",
                            [](Plan &p) { p.schedules[1].period = 1; }},
                           {"a transition in a cycle", Rule::Structure, "schedules[2].period is 2, expected 1 to 1",
                            [](Plan &p) { p.schedules[2].period = 2; }},
                           {"a phase twice", Rule::Structure, "schedules[1] is phase 0 of 2, as schedules[0] is",
                            [](Plan &p) { p.schedules[1].phase = 0; }},
                           {"a phase that is not there", Rule::Structure,
                            "schedules[0] is of a cycle of 2, in which no schedule is phase 1",
                            [](Plan &p) { p.schedules[1].period = 3; }},
                           {"a phase of another size", Rule::Structure,
                            "schedules[1] is of a cycle of 2, in which no schedule is phase 0",
                            [](Plan &p) { p.schedules[1].maxTokens -= 1; }},
                           {"phases out of order", Rule::Structure, "variants[1] is out of order, or there twice",
                            [](Plan &p) { std::swap(p.variants[0], p.variants[1]); }},
                           {"a phase's variant twice", Rule::Structure, "variants[1] is out of order, or there twice",
                            [](Plan &p) { p.variants[1] = p.variants[0]; }}})
    expectRefused(cyclePlan(), broken);
}

TEST(WriteBack, RefusesStructuresOfCachesOnTheHost) {
  const auto cacheOf = [](Plan &p, int64_t layer) -> Extent & {
    for (Extent &extent : p.placements[0].extents)
      if (extent.buffer == p.kvBuffer(layer))
        return extent;
    std::abort();
  };
  for (const Broken &broken : std::vector<Broken>{
           {"a home not marked direct", Rule::Structure,
            " has bytes [0, 6144) of a cache that is split, expected all up to 6144 on the host, direct and not "
            "interleaved",
            [&](Plan &p) { cacheOf(p, 1).direct = false; }},
           {"a home that ends early", Rule::Structure, " has bytes [0, 4096) of a cache that is split, expected all",
            [&](Plan &p) { cacheOf(p, 1).bytes = 4096; }},
           {"a layer on the device", Rule::Structure,
            ".bytes is 6144, another cache of the placement has 0 on the device",
            [&](Plan &p) {
              cacheOf(p, 1).space = Space::Device, cacheOf(p, 1).interleaved = true, cacheOf(p, 1).direct = false;
            }},
           {"a layer on the device as one run", Rule::Structure,
            " begins a cache, expected it to be interleaved on the device, or on the host",
            [&](Plan &p) { cacheOf(p, 2).space = Space::Device, cacheOf(p, 2).direct = false; }},
           {"a schedule for none of the tail", Rule::Structure, "schedules[0].kv_blocks is 1, expected 0",
            [](Plan &p) { p.schedules[0].kvBlocks = 1; }},
           {"a block at home on the device", Rule::Structure,
            ".interleaved is set of bytes [0, 6144) of kv.0, of which [0, 0) are",
            [](Plan &p) { operand(p, compute(p, Op::Attention, 0), Arg::KvTail).interleaved = true; }},
           {"a cache at home on the device", Rule::Structure, "attention: operand kv tail is missing",
            [](Plan &p) { operand(p, compute(p, Op::Attention, 0), Arg::KvTail).arg = Arg::Kv; }},
           {"a tail without the scratch block", Rule::Structure,
            "attention: operand kv tail is kv.0 [2048, 6144) in space 0, expected kv.0 [0, 6144) as one run in space 0",
            [](Plan &p) {
              Operand &o = operand(p, compute(p, Op::Attention, 0), Arg::KvTail);
              o.bufferOffset += 2048, o.address += 2048, o.bytes -= 2048;
            }}})
    expectRefused(wholePlan(), broken);
  expectRefused(turnsPlan(),
                {"a layer on the host", Rule::Structure,
                 ".bytes is 6144 on the host, another cache of the placement has 2048 on the device", [&](Plan &p) {
                   Extent &on = cacheOf(p, 1);
                   on = (&on)[1];
                   on.address -= on.bufferOffset, on.bytes += on.bufferOffset, on.bufferOffset = 0;
                   p.placements[0].extents.erase(p.placements[0].extents.begin() +
                                                 (&on - p.placements[0].extents.data()) + 1);
                 }});
}

// Two blocks are resident, one of these is in the tail of the other placement.
TEST(WriteBack, RefusesHomesThatAreNotTheBlocks) {
  const Plan plan = makePlan(3, {turns(2, WriteBack::All, 2, 3), turns(1, WriteBack::Mirror, 2, 3)});
  const auto home = [](Plan &p) -> Operand & { return operand(p, compute(p, Op::RopeAppend, 0), Arg::KvHome); };
  expectAccepted(plan, "two placements");
  for (const Broken &broken : std::vector<Broken>{
           {"rows that the home lacks", Rule::Structure,
            "rope_append: operand kv home is kv.0 [2048, 3072) in space 1, expected kv.0 [2048, 6144) as one run in",
            [&](Plan &p) { home(p).bytes -= 1024; }},
           {"no home", Rule::Structure, "rope_append: operand kv home is missing",
            [&](Plan &p) { home(p).arg = Arg::Table; }}})
    expectRefused(plan, broken);
  // Where all that is resident is at home nowhere else, there is no such operand, or it is of all.
  Plan other = turnsPlan(WriteBack::Mirror);
  home(other).bytes = 2048;
  expectRefusedAsItIs(other, "part of the tail", Rule::Structure,
                      "rope_append: operand kv home is kv.0 [2048, 4096) in space 1, expected kv.0 [2048, 6144)");
}

TEST(WriteBack, RefusesPlacesOfCopies) {
  for (const Broken &broken : std::vector<Broken>{
           {"a lane of the other direction", Rule::CopyOrder, "a copy from device to host in lane h2d",
            [](Plan &p) { back(p, 2).lane = Lane::H2D; }},
           {"another layer's home", Rule::HostRange,
            "destination kv.1 [2048, 6144) is not at 8192 in the host slab as one run",
            [](Plan &p) { destination(p, back(p, 1)).address = 8192; }},
           {"bytes beside the slots", Rule::SlotTooSmall, "source kv.1 [2048, 6144) begins at 24576, in no slot",
            [](Plan &p) { source(p, back(p, 1)).address = 24576; }}})
    expectRefused(turnsPlan(), broken);
  // Of "2 of 3" block 1 is at home on the device and, for "1 of 3", in the slab: its rows are written there, no copy
  // is.
  const Plan plan = makePlan(3, {turns(2, WriteBack::All, 2, 3), turns(1, WriteBack::All, 2, 3)});
  expectRefused(plan, {"resident blocks", Rule::HostRange,
                       "destination kv.0 [2048, 4096) is not at 0 in the host slab as one run", [](Plan &p) {
                         Operand &from = source(p, back(p, 0)), &to = destination(p, back(p, 0));
                         from.bufferOffset = to.bufferOffset = 2048;
                         from.address = p.kvStride(), from.interleaved = true;
                         to.address = 0;
                       }});
  // From "1 of 3" to "2 of 3" block 1 of each layer moves in; what is in a slot of the new placement is nobody's.
  EXPECT_EQ(plan.schedules[2].name, "1 of 3 to 2 of 3");
  expectRefused(plan, {"a change of placement", Rule::HostRange,
                       "destination kv.0 [4096, 6144) is written to the host by a change of placement", [](Plan &p) {
                         Operand &from = p.schedules[2].operands[0], &to = p.schedules[2].operands[1];
                         from.bufferOffset = to.bufferOffset = 4096;
                         from.space = Space::Device, from.address = p.placements[0].slots[0].address;
                         to.space = Space::Host, to.address = 2048, to.interleaved = false;
                         p.schedules[2].steps[0].lane = Lane::D2H;
                       }});
}

// In turns: layer 0's and layer 2's tail through slot 0. Each is brought, appended to, written back.
TEST(WriteBack, OrdersReadsAndWritesOfSlots) {
  const Plan plan = turnsPlan();
  const uint64_t slot = plan.placements[0].slots[0].address;
  const uint32_t out = copyOf(plan, 0, true, 0), in = copyOf(plan, 0, false, 2);
  Plan copy = plan;
  const auto append = static_cast<uint32_t>(&compute(copy, Op::RopeAppend, 0) - copy.schedules[0].steps.data());
  expectRefused(plan, {"written back before the append", Rule::ReadBeforeReady,
                       absl::StrCat("reads kv.0 [2048, 6144) at ", slot, ", and may start before step ", append,
                                    " of lane compute has written it")
                           .c_str(),
                       [&](Plan &p) { dropEdges(p, 0, append, out); }});
  expectRefused(plan, {"brought before the other is written back", Rule::OverwriteLive,
                       absl::StrCat("writes kv.2 [2048, 6144) at ", slot, ", and may start before step ", out,
                                    " of lane d2h has read kv.0 [2048, 6144) there")
                           .c_str(),
                       [&](Plan &p) { dropEdges(p, 0, out, in); }});
}

// Two layers. Layer 0's tail is in slots 0 and 1 in turns, each time written back and brought for the next iteration.
Plan alternatingPlan() {
  const auto phase = [](uint32_t now, uint32_t next) {
    return test::Phase{{{0, now}},
                       {{-1, false, 1, 2}, {0, true, 0, now, true}, {1, true, 1, 2, true}, {1, false, 0, next}}};
  };
  return makePlan(2, {{1, 3, 3, false, {phase(0, 1), phase(1, 0)}}});
}

TEST(WriteBack, OrdersReadsAndWritesOfTheHome) {
  const Plan plan = alternatingPlan();
  expectAccepted(plan, "alternating");
  const uint32_t out = copyOf(plan, 0, true, 0), in = copyOf(plan, 0, false, 1);
  expectRefused(plan, {"brought before it is written back", Rule::ReadBeforeReady,
                       absl::StrCat("reads kv.0 [2048, 6144) at 0 in the host slab, and may start before step ", out,
                                    " of lane d2h has written it")
                           .c_str(),
                       [&](Plan &p) { dropEdges(p, 0, out, in); }});
  // A second copy of layer 0's tail, which nobody uses, beside that in slot 0: it reads the home before that is
  // written.
  const auto secondCopy = [](Plan &p) {
    const uint64_t address = p.placements[0].slots[0].address;
    for (const Op op : {Op::RopeAppend, Op::Attention})
      operand(p, compute(p, op, 0), Arg::KvTail).address = address;
    orderSteps(p.schedules[0]);
  };
  Plan second = makePlan(
      2, {{1, 3, 3, false, {{{{0, 0}}, {{-1, false, 1, 2}, {-1, false, 0, 1}, {0, true, 0, 0}, {1, true, 1, 2}}}}}});
  secondCopy(second);
  expectAccepted(second, "a second copy");
  const uint32_t back0 = copyOf(second, 0, true, 0);
  expectRefused(second, {"written back while the home is read", Rule::OverwriteLive,
                         "writes kv.0 [2048, 6144) at 0 in the host slab, and may start before step 1 of lane h2d has "
                         "read kv.0 [2048, 6144) there",
                         [&](Plan &p) { dropEdges(p, 0, 1, back0); }});
}

TEST(WriteBack, RefusesWhatIsNotWrittenBack) {
  const auto turnsWith = [](const std::function<void(std::vector<test::TailMove> &)> &change) {
    Tails tails = turns(1, WriteBack::All, 2, 3);
    change(tails.phases[0].moves);
    return makePlan(3, {tails});
  };
  expectRefusedAsItIs(turnsWith([](auto &moves) { moves.pop_back(); }), "nothing of the last", Rule::StaleCopy,
                      "leaves kv.2 [2048, 6144) at 8192 in the host slab, which step ");
  expectRefusedAsItIs(turnsWith([](auto &moves) { moves.back().after = 1; }), "before the append", Rule::StaleCopy,
                      "leaves kv.2 [2048, 6144) at 8192 in the host slab, which step ");
  expectRefused(turnsPlan(), {"part of it", Rule::StaleCopy,
                              "leaves kv.1 [4096, 6144) at 6144 in the host slab, which step ", [](Plan &p) {
                                Step &step = back(p, 1);
                                source(p, step).bytes -= 2048, destination(p, step).bytes -= 2048;
                                step.linkBytes -= 2048;
                              }});
  expectRefused(
      turnsPlan(WriteBack::Mirror),
      {"rows that only the slot gets", Rule::StaleCopy, "leaves kv.0 [2048, 6144) at 0 in the host slab", [](Plan &p) {
         Step &append = compute(p, Op::RopeAppend, 0);
         ASSERT_EQ(operand(p, append, Arg::KvHome).arg,
                   p.schedules[0].operands[append.firstOperand + append.operandCount - 1].arg);
         --append.operandCount; // the home's
       }});
  // Layer 0's tail is brought to slot 1 though it is in slot 0: rows go there, and what is in slot 0 goes back.
  expectRefusedAsItIs(
      makePlan(2, {{1, 3, 3, false, {{{{0, 0}}, {{-1, false, 0, 1}, {-1, false, 1, 2}, {0, true, 0, 0}}}}}}),
      "another copy", Rule::StaleCopy, "reads kv.0 [2048, 6144) at ");
}

// All: layer 1's tail never goes home, layer 2's at the start of the second phase.
TEST(WriteBack, RefusesWhatIsLostOverAnEdge) {
  const char *left = "leaves kv.1 [2048, 6144) at 4096 in the host slab, which is behind what was in a slot on entry";
  expectRefused(cyclePlan(), {"what is not said to be ahead", Rule::StaleCopy, left,
                              [](Plan &p) { p.states[2].contents[1].dirty = false; }});
  expectRefusedAsItIs(withPhases(WriteBack::All,
                                 [](auto &phases) {
                                   phases[1].entry.pop_back();
                                   phases[1].moves.insert(phases[1].moves.begin(), {-1, false, 1, 1});
                                 }),
                      "what is not carried", Rule::StaleCopy, left);
  const char *behind = "reads kv.2 [2048, 6144) at 8192 in the host slab, which is behind what was in a slot on entry";
  expectRefusedAsItIs(withPhases(WriteBack::All, [](auto &phases) { phases[1].moves.erase(phases[1].moves.begin()); }),
                      "what is given up", Rule::StaleCopy, behind);
  expectRefusedAsItIs(withPhases(WriteBack::All, [](auto &phases) { phases[1].moves[0].dirtyOnly = true; }),
                      "the rows of the iteration before", Rule::StaleCopy, behind);
  // What was behind on entry and is written back without that is behind at the end, whatever was added.
  expectRefusedAsItIs(withPhases(WriteBack::All,
                                 [](auto &phases) {
                                   phases[0].entry[1].dirty = false;
                                   phases[1].moves.push_back({2, true, 1, 1, true});
                                 }),
                      "rows of this iteration only", Rule::StaleCopy, left);
  // The same written back whole: layer 1's tail is carried clean into the first phase.
  expectAccepted(withPhases(WriteBack::All,
                            [](auto &phases) {
                              phases[0].entry[1].dirty = false;
                              phases[1].moves.push_back({2, true, 1, 1});
                            }),
                 "written back whole");
  // What is ahead of its home is what was written last.
  expectRefusedAsItIs(
      makePlan(2, {{1,
                    3,
                    3,
                    false,
                    {{{{0, 0, true}}, {{-1, true, 0, 0}, {-1, false, 0, 1}, {-1, false, 1, 2}, {1, true, 1, 2}}}}}}),
      "a copy that was left behind", Rule::StaleCopy, "its exit state has kv.0 [2048, 6144) at ");
}

TEST(WriteBack, RefusesStates) {
  test::PlacementOptions placement;
  placement.layers = {1};
  placement.limits.front().cutUnits = 1;
  expectRefused(test::makePlan({test::tinyLlama(2), {placement}}),
                {"a weight ahead of its home", Rule::EntryExit,
                 "state 1: layers.1.qkv [0, 8448) is dirty, expected of the blocks of a cache at home on the host only",
                 [](Plan &p) { p.states[1].contents[0].dirty = true; }});
  const Plan plan = cyclePlan();
  ASSERT_EQ(plan.transitions.size(), 4u); // 0 to 1, 1 to 0, 0 to 2, 2 to 0
  for (const Broken &broken : std::vector<Broken>{
           {"a state that cannot be left", Rule::EntryExit,
            "leaves state 2, of which a home on the host may be behind, and no transition leads from there to state 0",
            [](Plan &p) { p.transitions.pop_back(); }},
           {"a state that cannot be reached", Rule::EntryExit,
            "placement 1 of 3: a variant needs state 2, and no transition leads there from state 0",
            [](Plan &p) { p.transitions.erase(p.transitions.begin() + 2); }},
           {"another state written back", Rule::EntryExit,
            "transitions[3] starts from state 1, its schedule enters with 2, which is another",
            [](Plan &p) { p.transitions[3].fromState = 1; }},
           {"another state reached", Rule::EntryExit,
            "transitions[2] leads to state 1, which is another than state 2, with which its schedule ends",
            [](Plan &p) { p.transitions[2].toState = 1; }},
           {"the same contents, but all at home", Rule::EntryExit,
            "transitions[0] leads to state 1, which is another than state 3, with which its schedule ends",
            [](Plan &p) {
              p.states.push_back(p.states[1]);
              p.states[3].contents[1].dirty = false;
              p.schedules[p.transitions[0].schedule].exitState = 3;
            }},
           {"part of what is written back", Rule::StaleCopy,
            "leaves kv.1 [2048, 6144) at 4096 in the host slab, which is behind what was in a slot on entry",
            [](Plan &p) {
              p.schedules[p.transitions[3].schedule].steps.pop_back();
              p.transitions[3].durationsNs.pop_back();
            }}})
    expectRefused(plan, broken);
  expectRefused(cyclePlan(WriteBack::Dirty),
                {"phases that do not meet", Rule::EntryExit,
                 "phase 0 of 2 leaves state 3, the next, schedule 1, is entered with 2", [](Plan &p) {
                   p.states.push_back(p.states[2]);
                   p.schedules[0].exitState = 3;
                 }});
}

// From a cycle with what is ahead of its home to a placement with all on the device, which reads the homes.
TEST(WriteBack, RefusesChangesFromWhatIsAheadOfItsHome) {
  const Plan plan = makePlan(3, {cycle(1, WriteBack::All), {3, 3, 0, true, {}}});
  expectAccepted(plan, "two placements");
  const uint32_t change = plan.transitions.back().schedule;
  ASSERT_EQ(plan.schedules[change].name, "1 of 3 to 3 of 3");
  Plan from = plan;
  from.transitions.back().fromState = 1;
  expectRefusedAsItIs(from, "from such a state", Rule::EntryExit, "starts from state 1, its schedule enters with 0");
  from.schedules[change].entryState = 1;
  std::vector<std::string> messages;
  for (const Violation &v : findViolations(from))
    messages.push_back(v.message);
  EXPECT_THAT(messages, testing::ElementsAre("reads kv.1 [2048, 6144) at 4096 in the host slab, which is behind what "
                                             "was in a slot on entry",
                                             "leaves kv.1 [2048, 6144) at home, which is behind what was in a slot on "
                                             "entry",
                                             "leaves kv.1 [2048, 6144) at 4096 in the host slab, which is behind what "
                                             "was in a slot on entry",
                                             "a change of placement is entered with state 1, of which a home on the "
                                             "host may be behind"));
}

} // namespace
} // namespace headrace::plan
