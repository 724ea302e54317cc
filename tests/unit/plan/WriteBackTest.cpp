// SPDX-License-Identifier: Apache-2.0
//
// Plans whose tails are written back by copies, or that have no block of a cache at home on the device: what the
// verifier accepts, and one plan wrong in one way at a time.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/value/CacheMap.h"
#include "tests/unit/plan/PlanText.h"
#include "tests/unit/plan/WriteBackCases.h"

namespace headrace::plan::test {
namespace {

using kernels::Op;

TEST(WriteBack, IsAccepted) {
  for (const WriteBack how : kWriteBacks)
    for (const int64_t resident : {0, 1, 2}) {
      const std::string what = std::string(name(how)) + ", " + std::to_string(resident) + " resident";
      for (const uint32_t slots : {1u, 2u, 3u, 4u})
        expectAccepted(tailPlan(4, {turns(resident, how, slots)}), what + ", slots " + std::to_string(slots));
      expectAccepted(tailPlan(3, {cycle(resident, how)}), what + ", a cycle");
    }
}

TEST(WriteBack, NeedsNoMoreThanThePlansMemory) {
  for (const WriteBack how : kWriteBacks)
    for (const uint32_t slots : {1u, 2u, 3u, 4u}) {
      const Plan plan = tailPlan(4, {turns(0, how, slots)});
      EXPECT_LE(largestLiveBytes(plan, 0), deviceBytes(plan, 0).peak) << name(how) << ", slots " << slots;
    }
}

// Each way of one placement beside each of another, with changes between them, and a third that has all on the device.
TEST(WriteBack, IsAcceptedInSeveralPlacements) {
  for (const WriteBack one : kWriteBacks)
    for (const WriteBack two : kWriteBacks)
      for (const auto &[few, many] : std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {0, 2}, {1, 2}, {2, 1}, {0, 0}})
        expectAccepted(tailPlan(3, {cycle(few, one), turns(many, two, 2, 3), {3, 3, 0, true, {}}}),
                       std::string(name(one)) + " of " + std::to_string(few) + ", " + name(two) + " of " +
                           std::to_string(many));
}

// Four tails of two blocks, 4096 bytes, come in. What is written back is as much; of what is resident, one block in two
// where a placement with one has the other on the host, the appended rows (1024 bytes in these plans) of four layers.
TEST(WriteBack, IsCountedOnTheLink) {
  const auto back = [](WriteBack how, int64_t resident, int64_t other) {
    const Plan plan = tailPlan(4, {turns(resident, how), turns(other, how)});
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
  const Plan plan = tailPlan(3, {turns(0, WriteBack::All, 2, 3)});
  const Placement &placement = plan.placements[0];
  EXPECT_EQ(CacheMap(plan, placement).resident(), 0);
  EXPECT_EQ(deviceBytes(plan, 0).kv, 0u);
  EXPECT_EQ(deviceBytes(plan, 0).slots, 2 * 6144u);
  EXPECT_EQ(kvBytesByHome(plan, 0).host, 3 * 6144u);
  EXPECT_EQ(plan.hostBytes, 3 * 6144u);
  for (const Extent &extent : placement.extents)
    EXPECT_FALSE(extent.interleaved);
  for (const Operand &operand : plan.schedules[0].operands)
    EXPECT_TRUE(operand.arg != Arg::Kv && operand.arg != Arg::KvHome);
  // Two tails are live at once, instead of one block a layer and two tails of two.
  const Plan one = tailPlan(3, {turns(1, WriteBack::All, 2, 3)});
  EXPECT_EQ(largestLiveBytes(plan, 0) - 2 * 6144, largestLiveBytes(one, 0) - 3 * 2048 - 2 * 4096);
}

TEST(WriteBack, IsWhatWasWritten) {
  for (const WriteBack how : kWriteBacks) {
    const Plan plan = tailPlan(3, {cycle(1, how), turns(0, how, 2, 3)});
    const absl::StatusOr<Plan> read = parse(bytesOf(serialize(plan)), "a.plan");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(textOf(*read), textOf(plan));
  }
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
  const Plan plan = tailPlan(3, {turns(2, WriteBack::All, 2, 3), turns(1, WriteBack::Mirror, 2, 3)});
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
  const Plan plan = tailPlan(3, {turns(2, WriteBack::All, 2, 3), turns(1, WriteBack::All, 2, 3)});
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
    return Phase{{{0, now}}, {{-1, false, 1, 2}, {0, true, 0, now, true}, {1, true, 1, 2, true}, {1, false, 0, next}}};
  };
  return tailPlan(2, {{1, 3, 3, false, {phase(0, 1), phase(1, 0)}}});
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
  Plan second = tailPlan(
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
  const auto turnsWith = [](const std::function<void(std::vector<TailMove> &)> &change) {
    Tails tails = turns(1, WriteBack::All, 2, 3);
    change(tails.phases[0].moves);
    return tailPlan(3, {tails});
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
      tailPlan(2, {{1, 3, 3, false, {{{{0, 0}}, {{-1, false, 0, 1}, {-1, false, 1, 2}, {0, true, 0, 0}}}}}}),
      "another copy", Rule::StaleCopy, "reads kv.0 [2048, 6144) at ");
}

} // namespace
} // namespace headrace::plan::test
