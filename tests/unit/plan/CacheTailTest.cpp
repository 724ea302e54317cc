// SPDX-License-Identifier: Apache-2.0
//
// Plans whose caches have a tail at home on the host: what the verifier accepts, and one plan wrong in one way at a
// time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/proof/PlanVerifier.h"
#include "tests/unit/plan/BrokenPlan.h"
#include "tests/unit/plan/MakePlan.h"
#include "tests/unit/plan/SplitCachePlan.h"

namespace headrace::plan {
namespace {

using kernels::Op;

// Four layers, 3 blocks of 2048 bytes each, bytes [0, 2048 r) on the device. Placement "one": r = 1, two slots of 4096
// bytes; "two": r = 2, slots of 2048; "all": nothing on the host. Mirrored: blocks 1 and 2, bytes [2048, 6144), of
// layer l from 4096 l on in the slab. Schedules 0, 1, 2 are their iterations, then come those from one placement to
// another.
Plan splitPlan(bool carry = false) {
  std::vector<test::PlacementOptions> placements(3);
  placements[0].name = "one";
  placements[1].name = "two";
  placements[2].name = "all";
  Plan plan = test::makePlan({test::tinyLlama(4), placements});
  test::split(plan, {{1, 2, 3}, {3, 3, 3}, carry});
  return plan;
}
Plan carriedPlan() { return splitPlan(true); }

Schedule &schedule(Plan &p) { return p.schedules[0]; }
uint32_t number(Plan &p, Op op, int32_t layer) {
  const auto &steps = schedule(p).steps;
  return static_cast<uint32_t>(std::find_if(steps.begin(), steps.end(),
                                            [&](const Step &step) {
                                              return step.kind == StepKind::Compute && step.op == op &&
                                                     step.layer == layer;
                                            }) -
                               steps.begin());
}
// Of a step of schedule 0.
Operand &operand(Plan &p, uint32_t step, Arg arg) {
  const Step &s = schedule(p).steps[step];
  for (uint32_t k = s.firstOperand; k < s.firstOperand + s.operandCount; ++k)
    if (schedule(p).operands[k].arg == arg)
      return schedule(p).operands[k];
  std::abort();
}
Operand &append(Plan &p, Arg arg, int32_t layer = 0) { return operand(p, number(p, Op::RopeAppend, layer), arg); }
Operand &attention(Plan &p, Arg arg, int32_t layer = 0) { return operand(p, number(p, Op::Attention, layer), arg); }
uint32_t lastCopy(Plan &p) {
  auto step = static_cast<uint32_t>(schedule(p).steps.size());
  while (schedule(p).steps[--step].kind != StepKind::Copy) {
  }
  return step;
}
void dropEdge(Plan &p, uint32_t from) {
  std::erase_if(schedule(p).edges, [&](const Edge &edge) { return edge.from == from; });
}
Extent &tail(Plan &p, uint32_t placement, int64_t layer) {
  for (Extent &extent : p.placements[placement].extents)
    if (extent.buffer == p.kvBuffer(layer) && extent.space == Space::Host)
      return extent;
  std::abort();
}

// A third slot of 4096 bytes, and layer 0's tail copied there, as step `at`. `ordered`: it is ordered with append.
Content copyToThirdSlot(Plan &p, uint32_t at, bool ordered) {
  Schedule &s = schedule(p);
  const Slot slot{p.arenaBytes, 4096};
  p.placements[0].slots.push_back(slot);
  p.arenaBytes += slot.bytes;
  p.deviceMemory += slot.bytes;
  Step step = s.steps[lastCopy(p)];
  step.firstOperand = static_cast<uint32_t>(s.operands.size());
  step.layer = 0;
  const Extent home = tail(p, 0, 0);
  const Operand from = {home.buffer,       Space::Host, Access::Read, Arg::Source,
                        home.bufferOffset, home.bytes,  home.address};
  Operand to = from;
  to.space = Space::Device;
  to.access = Access::Write;
  to.arg = Arg::Destination;
  to.address = slot.address;
  s.operands.push_back(from);
  s.operands.push_back(to);
  s.steps.insert(s.steps.begin() + at, step);
  for (Edge &edge : s.edges) {
    edge.from += edge.from >= at;
    edge.to += edge.to >= at;
  }
  if (const uint32_t append = number(p, Op::RopeAppend, 0); ordered)
    s.edges.push_back(at < append ? Edge{at, append, EdgeKind::War} : Edge{append, at, EdgeKind::Raw});
  std::sort(s.edges.begin(), s.edges.end(),
            [](const Edge &a, const Edge &b) { return std::pair(a.to, a.from) < std::pair(b.to, b.from); });
  for (Variant &v : p.variants)
    if (v.schedule == 0) {
      v.durationsNs.insert(v.durationsNs.begin() + at, 612); // 100 + 4096 / 8
      v.linkAloneNs += 612;
    }
  return {to.buffer, to.bufferOffset, to.bytes, to.address};
}

using test::Broken;
using test::expectAccepted;
using test::expectRefused;

TEST(CacheTail, IsAccepted) {
  expectAccepted(splitPlan(), "split");
  expectAccepted(carriedPlan(), "carried");
  // Placements whose caches have different numbers of blocks: of those with a tail or of that without the most.
  for (const auto &[resident, blocks] : std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>>{
           {{1, 2, 2}, {3, 3, 2}}, {{2, 1, 3}, {3, 2, 3}}, {{1, 2, 3}, {2, 2, 3}}, {{1, 1, 1}, {3, 2, 3}}}) {
    std::vector<test::PlacementOptions> placements(3);
    for (size_t p = 0; p < 3; ++p)
      placements[p].name = std::to_string(resident[p]) + " of " + std::to_string(blocks[p]);
    Plan plan = test::makePlan({test::tinyQwen3(3), placements});
    test::split(plan, {resident, blocks});
    expectAccepted(plan, placements[0].name + ", " + placements[1].name + ", " + placements[2].name);
  }
}

// Where nothing above the resident blocks is in use, nothing is brought; what is resident is written to the mirror
// where another placement has it on the host.
TEST(CacheTail, MayBeLeftWhereItIs) {
  std::vector<test::PlacementOptions> placements(2);
  for (test::PlacementOptions &placement : placements) {
    placement.limits.push_back(placement.limits.front());
    placement.limits.back().context = 8;
  }
  Plan plan = test::makePlan({test::tinyLlama(4), placements});
  plan.schedules[1].kvBlocks = 1;
  plan.schedules[3].kvBlocks = 2;
  test::split(plan, {{1, 2}, {3, 3}});
  expectAccepted(plan, "left");
  EXPECT_EQ(linkBytes(plan.schedules[1]).h2d, 0u);
  EXPECT_EQ(linkBytes(plan.schedules[1]).d2h, 0u);
  EXPECT_EQ(linkBytes(plan.schedules[3]).h2d, 0u);
  EXPECT_EQ(linkBytes(plan.schedules[3]).d2h, 4 * 1024u);
}

// Each way: four tails of two blocks, four times the rows (1024 bytes in these plans).
TEST(CacheTail, IsCountedOnTheLink) {
  const Plan plan = splitPlan();
  EXPECT_EQ(linkBytes(plan.schedules[0]).h2d, 4 * 4096u);
  EXPECT_EQ(linkBytes(plan.schedules[0]).d2h, 4 * 1024u);
  EXPECT_EQ(plan.hostBytes, 4 * 4096u);
  EXPECT_EQ(offloadedWeights(plan, plan.placements[0]).layers, 0);
}

// Of four layers' blocks of 2048 bytes all are at home on the device, one less, or two less; the most is live when
// there are tails in both slots: two of one block each, or two of two.
TEST(CacheTail, TakesItsPlaceInSlots) {
  const Plan plan = splitPlan();
  const uint64_t all = largestLiveBytes(plan, 2);
  EXPECT_EQ(largestLiveBytes(plan, 1), all - 4 * 2048 + 2 * 2048);
  EXPECT_EQ(largestLiveBytes(plan, 0), all - 4 * 4096 + 2 * 4096);
  EXPECT_EQ(deviceBytes(plan, 0).kv, 4 * 2048u);
  EXPECT_EQ(deviceBytes(plan, 0).slots, 2 * 4096u);
}

TEST(CacheTail, RefusesStructures) {
  for (const Broken &broken : std::vector<Broken>{
           {"a home not marked direct", Rule::Structure,
            "of a cache that is split, expected all up to 6144 on the host, direct and not interleaved",
            [](Plan &p) { tail(p, 0, 1).direct = false; }},
           {"a home that ends early", Rule::Structure, "has bytes [2048, 4096) of a cache that is split",
            [](Plan &p) { tail(p, 0, 1).bytes = 2048; }},
           {"a schedule for part of the tail", Rule::Structure,
            "schedules[0].kv_blocks is 2, expected 0 or the 1 that are on the device",
            [](Plan &p) { p.schedules[0].kvBlocks = 2; }},
           {"a schedule for none of no tail", Rule::Structure, "schedules[2].kv_blocks is 3, expected 0",
            [](Plan &p) { p.schedules[2].kvBlocks = 3; }},
           {"a transition for some blocks", Rule::Structure, "schedules[3].kv_blocks is 1, expected 0",
            [](Plan &p) { p.schedules[3].kvBlocks = 1; }},
           {"a compute step of any size", Rule::Structure, ".resizable is set, expected only of copies",
            [](Plan &p) { schedule(p).steps[number(p, Op::Attention, 0)].resizable = true; }},
           {"a copy of any size that begins inside a block", Rule::Structure,
            ".resizable is set, but it begins at byte 2304, expected a multiple of a block's 2048", [](Plan &p) {
              for (const Arg arg : {Arg::Source, Arg::Destination}) {
                Operand &o = operand(p, lastCopy(p), arg);
                o.bufferOffset += 256, o.address += 256, o.bytes -= 256;
              }
            }}})
    expectRefused(splitPlan(), broken);
  test::PlacementOptions offloaded;
  offloaded.layers = {1};
  expectRefused(test::makePlan({test::tinyLlama(4), {offloaded}}),
                {"a weight of any size", Rule::Structure,
                 ".resizable is set, but it copies layers.1.qkv, expected blocks at home on the host", [](Plan &p) {
                   for (Step &step : schedule(p).steps)
                     step.resizable = step.kind == StepKind::Copy;
                 }});
}

TEST(CacheTail, RefusesOperandsThatAreNotTheBlocks) {
  for (const Broken &broken : std::vector<Broken>{
           {"a block less to append to", Rule::Structure,
            "rope_append: operand kv tail is kv.0 [2048, 4096) in space 0, expected kv.0 [2048, 6144) as one run in "
            "space 0",
            [](Plan &p) { append(p, Arg::KvTail).bytes -= 2048; }},
           {"a block less to attend to", Rule::Structure, "attention: operand kv tail is kv.1 [2048, 4096) in space 0",
            [](Plan &p) { attention(p, Arg::KvTail, 1).bytes -= 2048; }},
           {"a tail that is only written", Rule::Structure, "rope_append: operand kv tail has access 1",
            [](Plan &p) { append(p, Arg::KvTail).access = Access::Write; }},
           {"a tail that is not aligned", Rule::Structure, "operand kv tail is at ",
            [](Plan &p) { append(p, Arg::KvTail).address += 16; }},
           {"no tail", Rule::Structure, "attention: operand kv tail is missing",
            [](Plan &p) { attention(p, Arg::KvTail).arg = Arg::Table; }},
           {"rows that the home lacks", Rule::Structure,
            "rope_append: operand kv home is kv.0 [2048, 4096) in space 1, expected kv.0 [2048, 6144) as one run in "
            "space 1",
            [](Plan &p) { append(p, Arg::KvHome).bytes -= 2048; }},
           {"a home on the device", Rule::Structure, "operand kv home is kv.0 [2048, 6144) in space 0",
            [](Plan &p) { append(p, Arg::KvHome).space = Space::Device; }},
           {"a home that is only read", Rule::Structure, "rope_append: operand kv home has access 0",
            [](Plan &p) { append(p, Arg::KvHome).access = Access::Read; }},
           {"a tail where none is brought", Rule::Structure, "operand kv tail is not one of the op's",
            [](Plan &p) { schedule(p).kvBlocks = 1; }}})
    expectRefused(splitPlan(), broken);
}

TEST(CacheTail, RefusesPlaces) {
  for (const Broken &broken : std::vector<Broken>{
           {"homes that are not the same", Rule::Structure,
            "placements[1] has kv.1 from byte 4096 on at 6400 in the host slab, expected 6144 as in another placement",
            [](Plan &p) { tail(p, 1, 1).address += 256; }},
           {"homes that share bytes", Rule::HostRange,
            "mirrored caches: kv.2 [7936, 12032) in the host slab shares bytes with another buffer",
            [](Plan &p) { tail(p, 0, 2).address -= 256, tail(p, 1, 2).address -= 256; }},
           {"a slab that is too small", Rule::HostRange,
            "mirrored caches: kv.3 [12288, 16384) ends beyond the host slab of 16128 bytes",
            [](Plan &p) { p.hostBytes -= 256; }},
           {"a slab that is too large", Rule::Accounting, "host_bytes is 16640, the plan makes it 16384",
            [](Plan &p) { p.hostBytes += 256; }},
           {"homes that are not aligned", Rule::Structure,
            "the first address of kv.0 in the host slab is 16, expected a multiple of 256",
            [](Plan &p) { tail(p, 0, 0).address += 16, tail(p, 1, 0).address += 16; }},
           {"a home of another layer", Rule::HostRange, "kv home kv.0 [2048, 6144) is not at 4096 in the host slab",
            [](Plan &p) { append(p, Arg::KvHome).address = 4096; }},
           {"an append that is not direct", Rule::WrongSpace, "is in host memory and the step is not direct",
            [](Plan &p) { schedule(p).steps[number(p, Op::RopeAppend, 0)].direct = false; }},
           {"rows beside the slots", Rule::SlotTooSmall, "kv tail kv.0 [2048, 6144) begins at ",
            [](Plan &p) { append(p, Arg::KvTail).address = 24576; }},
           {"a copy of what is elsewhere", Rule::HostRange, "source kv.3 [2048, 6144) is not at 8192 in the host slab",
            [](Plan &p) { operand(p, lastCopy(p), Arg::Source).address = 8192; }},
           {"a copy to the home on the device", Rule::SlotTooSmall, "destination kv.3 [2048, 6144) begins at 14336",
            [](Plan &p) { operand(p, lastCopy(p), Arg::Destination).address = 14336; }}})
    expectRefused(splitPlan(), broken);
}

// Four layers with one block of 2048 bytes each on the device. Of the steps then nothing more is said.
TEST(CacheTail, RefusesWhatIsWrittenAmongTheBlocks) {
  Plan plan = splitPlan();
  operand(plan, lastCopy(plan), Arg::Destination).address = 2048;
  const std::vector<Violation> violations = findViolations(plan);
  ASSERT_EQ(violations.size(), 2u);
  EXPECT_EQ(violations[0].message, "destination kv.3 [2048, 6144) begins at 2048, in no slot");
  EXPECT_EQ(violations[1].rule, Rule::Overlap);
  EXPECT_EQ(violations[1].message, "kv.3 [2048, 6144) at 2048 shares bytes with the range of the caches [0, 8192)");
}

// Content in slots, in order.
TEST(CacheTail, RefusesMovement) {
  for (const Broken &broken : std::vector<Broken>{
           {"an append before the copy", Rule::ReadBeforeReady, "reads kv.1 [2048, 6144) at ",
            [](Plan &p) { dropEdge(p, 1); }},
           {"a copy before the last reader", Rule::OverwriteLive, "has read kv.1 [2048, 6144) there",
            [](Plan &p) { dropEdge(p, number(p, Op::Attention, 1)); }},
           {"attention to another layer's tail", Rule::UseAfterRelease, "reads kv.0 [2048, 6144) at ",
            [](Plan &p) { attention(p, Arg::KvTail).address = attention(p, Arg::KvTail, 1).address; }},
           {"an edge too many", Rule::RedundantEdge, "is implied by lane order and other edges", [](Plan &p) {
              schedule(p).edges.push_back({number(p, Op::RopeAppend, 0), lastCopy(p), EdgeKind::Raw});
              std::sort(schedule(p).edges.begin(), schedule(p).edges.end(),
                        [](const Edge &a, const Edge &b) { return std::pair(a.to, a.from) < std::pair(b.to, b.from); });
            }}})
    expectRefused(splitPlan(), broken);
  for (const Broken &broken : std::vector<Broken>{
           {"a tail that is not carried", Rule::EntryExit, "reads kv.0 [2048, 6144) at ",
            [](Plan &p) { schedule(p).entryState = 0; }},
           {"a state with what is resident", Rule::EntryExit,
            "kv.0 [0, 4096) is not of the bytes at home on the host, [2048, 6144)",
            [](Plan &p) { p.states[1].contents[0].bufferOffset = 0, p.states[1].contents[0].bytes = 4096; }},
           {"a state outside the slots", Rule::SlotTooSmall, "kv.0 [2048, 6144) begins at 0, in no slot",
            [](Plan &p) { p.states[1].contents[0].address = 0; }}})
    expectRefused(carriedPlan(), broken);
}

TEST(CacheTail, OrdersReadsAndWritesOfTheHome) {
  for (const bool before : {true, false}) {
    Plan ordered = carriedPlan();
    copyToThirdSlot(ordered, before ? 0 : number(ordered, Op::RopeAppend, 0) + 1, true);
    expectAccepted(ordered, before ? "before" : "after");
  }
  expectRefused(carriedPlan(),
                {"an append while the home is read", Rule::OverwriteLive,
                 "writes kv.0 [2048, 6144) at 0 in the host slab, and may start before step 0 of lane h2d "
                 "has read kv.0 [2048, 6144) there",
                 [](Plan &p) { copyToThirdSlot(p, 0, false); }});
  expectRefused(
      carriedPlan(),
      {"a copy before the append has written the home", Rule::ReadBeforeReady,
       "reads kv.0 [2048, 6144) at 0 in the host slab, and may start before step 4 of lane compute has written it",
       [](Plan &p) { copyToThirdSlot(p, number(p, Op::RopeAppend, 0) + 1, false); }});
}

TEST(CacheTail, RefusesStaleCopies) {
  for (const Broken &broken : std::vector<Broken>{
           {"attention to a copy without the new rows", Rule::StaleCopy, "which step 5 has since written elsewhere",
            [](Plan &p) {
              const Content copy = copyToThirdSlot(p, 0, true);
              attention(p, Arg::KvTail).address = copy.address;
            }},
           {"a carry without the new rows", Rule::StaleCopy, "its exit state has kv.0 [2048, 6144) at ", [](Plan &p) {
              p.states[1].contents = {copyToThirdSlot(p, 0, true)};
              p.states.push_back({0, {{p.kvBuffer(0), 2048, 4096, p.placements[0].slots[0].address}}});
              schedule(p).entryState = 2;
            }}})
    expectRefused(carriedPlan(), broken);
  // A home that an append leaves out is reported with the operand that is missing.
  Plan plan = splitPlan();
  append(plan, Arg::KvHome).access = Access::Read;
  const std::vector<Violation> violations = findViolations(plan);
  EXPECT_TRUE(std::any_of(violations.begin(), violations.end(), [](const Violation &v) {
    return v.rule == Rule::StaleCopy &&
           v.message.find("leaves kv.0 [2048, 6144) at 0 in the host slab, which step ") == 0;
  }));
}

// From "one" to "two", schedule 3, layer l's block 1 goes to its place on the device.
TEST(CacheTail, RefusesTransitions) {
  const Plan plan = splitPlan();
  EXPECT_EQ(plan.schedules[3].name, "one to two");
  for (const Broken &broken :
       std::vector<Broken>{{"a layer left behind", Rule::EntryExit,
                            "placement two has kv.3 [2048, 4096) at home, where the transition leaves nothing",
                            [](Plan &p) {
                              p.schedules[3].steps.pop_back();
                              p.transitions[0].durationsNs.pop_back();
                            }},
                           {"a block in another's place", Rule::Structure,
                            "schedules[3].operands[1] is kv.0 at 10240, its home is at 8192",
                            [](Plan &p) { p.schedules[3].operands[1].address += 2048; }},
                           {"a block as one run", Rule::Structure,
                            "schedules[3].operands[1] is kv.0 from byte 2048 on, not interleaved, expected",
                            [](Plan &p) { p.schedules[3].operands[1].interleaved = false; }}})
    expectRefused(plan, broken);
}

} // namespace
} // namespace headrace::plan
