// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/LiveRanges.h"

#include "kernels/Kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "runtime/model/ModelSpec.h"

namespace headrace::host {
namespace {

using Ranges = std::vector<std::pair<uint64_t, uint64_t>>;

Ranges sorted(const std::vector<ByteRange> &ranges) {
  Ranges result;
  for (const ByteRange &range : ranges)
    result.push_back({range.begin, range.end});
  std::sort(result.begin(), result.end());
  return result;
}

// An arena of 1000 bytes: a home in [0, 100), a slot in [100, 300), transients above. Buffer 0 lives on the device,
// buffers 1 and 2 in host memory; locals are buffers 3 and 4.
class LiveRanges : public testing::Test {
protected:
  LiveRanges() {
    plan_.arenaBytes = 1000;
    plan_.buffers.resize(3);
    plan_.placements.resize(1);
    plan_.placements[0].extents = {{.buffer = 0, .bytes = 100, .address = 0},
                                   {.buffer = 1, .space = plan::Space::Host, .bytes = 200},
                                   {.buffer = 2, .space = plan::Space::Host, .bytes = 200}};
    plan_.states.resize(2);
    plan_.states[1].contents = {{.buffer = 1, .bytes = 200, .address = 100}};
    schedule_.locals = {{{"a", plan::BufferKind::Activation, -1, 50}, 400},
                        {{"b", plan::BufferKind::Activation, -1, 100}, 425}};
  }
  // Adds a step with one operand.
  void step(plan::StepKind kind, plan::Operand operand) {
    plan::Step step;
    step.kind = kind;
    step.op = kernels::Op::Norm;
    step.firstOperand = static_cast<uint32_t>(schedule_.operands.size());
    step.operandCount = 1;
    schedule_.steps.push_back(step);
    schedule_.operands.push_back(operand);
  }
  void copy(uint32_t buffer, uint64_t address, uint64_t bytes) {
    step(plan::StepKind::Copy, {.buffer = buffer, .access = plan::Access::Write, .bytes = bytes, .address = address});
  }
  void read(uint32_t buffer, uint64_t address, uint64_t bytes) {
    step(plan::StepKind::Compute, {.buffer = buffer, .bytes = bytes, .address = address});
  }
  DeadRanges dead() { return deadRanges(plan_, schedule_); }

  plan::Plan plan_;
  plan::Schedule schedule_;
};

TEST_F(LiveRanges, HomesAreNeverDead) {
  read(0, 0, 100);
  EXPECT_EQ(sorted(dead().before), (Ranges{{100, 1000}}));
  EXPECT_TRUE(dead().after[0].empty());
}

TEST_F(LiveRanges, ASlotIsDeadAfterItsLastReader) {
  copy(1, 100, 200);
  read(1, 100, 200);
  read(1, 100, 50); // the first 50 bytes once more
  const DeadRanges d = dead();
  EXPECT_EQ(sorted(d.before), (Ranges{{100, 1000}}));
  EXPECT_TRUE(d.after[0].empty());
  EXPECT_EQ(sorted(d.after[1]), (Ranges{{150, 300}}));
  EXPECT_EQ(sorted(d.after[2]), (Ranges{{100, 150}}));
}

// To the host goes what is in the slot: it lives until that copy, behind its last reader, and is dead then.
TEST_F(LiveRanges, ASlotThatIsCopiedBackIsDeadAfterThat) {
  copy(1, 100, 200);
  read(1, 100, 200);
  step(plan::StepKind::Copy, {.buffer = 1, .access = plan::Access::Read, .bytes = 200, .address = 100});
  schedule_.steps.back().lane = plan::Lane::D2H;
  schedule_.operands.push_back(
      {.buffer = 1, .space = plan::Space::Host, .access = plan::Access::Write, .bytes = 200, .address = 100});
  schedule_.steps.back().operandCount = 2;
  read(0, 0, 100);
  const DeadRanges d = dead();
  EXPECT_EQ(sorted(d.before), (Ranges{{100, 1000}}));
  EXPECT_TRUE(d.after[1].empty());
  EXPECT_EQ(sorted(d.after[2]), (Ranges{{100, 300}}));
  EXPECT_TRUE(d.after[3].empty()); // the host's side is no range of the arena
}

TEST_F(LiveRanges, WhatIsOverwrittenWithoutAReaderIsNotTakenFromItsSuccessor) {
  copy(1, 100, 200);
  copy(2, 200, 100); // over the second half
  read(2, 200, 100);
  const DeadRanges d = dead();
  EXPECT_EQ(sorted(d.after[0]), (Ranges{{100, 200}, {200, 300}})); // never read
  EXPECT_TRUE(d.after[1].empty());
  EXPECT_EQ(sorted(d.after[2]), (Ranges{{200, 300}}));
}

TEST_F(LiveRanges, EntryContentsLiveFromTheStartExitContentsToTheEnd) {
  schedule_.entryState = schedule_.exitState = 1;
  read(1, 100, 200);
  copy(2, 100, 200);
  read(2, 100, 200);
  copy(1, 100, 200);
  const DeadRanges d = dead();
  EXPECT_EQ(sorted(d.before), (Ranges{{300, 1000}}));
  EXPECT_EQ(sorted(d.after[0]), (Ranges{{100, 300}}));
  EXPECT_EQ(sorted(d.after[2]), (Ranges{{100, 300}}));
  EXPECT_TRUE(d.after[3].empty()); // buffer 1 is there for the next iteration
}

TEST_F(LiveRanges, TransientsThatFollowEachOtherInOneRangeAreKeptApart) {
  read(3, 400, 50); // a: steps 0 and 1
  read(3, 400, 50);
  read(4, 425, 100); // b, over a's second half: steps 2 and 3
  read(4, 425, 100);
  const DeadRanges d = dead();
  EXPECT_TRUE(d.after[0].empty());
  EXPECT_EQ(sorted(d.after[1]), (Ranges{{400, 450}}));
  EXPECT_EQ(sorted(d.after[3]), (Ranges{{425, 525}}));
}

TEST_F(LiveRanges, WhatStaysLiveIsCutOutOfWhatDies) {
  read(4, 425, 100);
  read(3, 400, 50); // both live at once: not a valid plan, but neither may lose bytes
  read(3, 400, 50);
  read(4, 425, 100);
  EXPECT_EQ(sorted(dead().after[2]), (Ranges{{400, 425}}));
}

// From a placement that has buffer 0 at home in [0, 100) and buffer 1 in [500, 700) to one that has 0 at [0, 100) and 2
// at [600, 800): what both have stays, what the other alone had is dead at once, the new home lives from its copy on.
TEST_F(LiveRanges, AChangeOfPlacementDropsOldHomesAndKeepsWhatItBrings) {
  plan_.placements.push_back(plan_.placements[0]);
  plan_.placements[0].extents[1] = {.buffer = 1, .bytes = 200, .address = 500};
  plan_.placements[1].extents[2] = {.buffer = 2, .bytes = 200, .address = 600};
  schedule_.locals.clear();
  schedule_.iterationClass = plan::IterationClass::Transition;
  schedule_.placement = 1;
  schedule_.fromPlacement = 0;
  copy(2, 600, 150);
  copy(2, 750, 50);
  const DeadRanges d = dead();
  EXPECT_EQ(sorted(d.before), (Ranges{{100, 1000}}));
  EXPECT_TRUE(d.after[0].empty());
  EXPECT_TRUE(d.after[1].empty());
}

TEST_F(LiveRanges, LogitsStayToTheEnd) {
  step(plan::StepKind::Compute, {.buffer = 3, .arg = plan::Arg::X, .bytes = 50, .address = 400});
  schedule_.steps[0].op = kernels::Op::Sample;
  read(0, 0, 100);
  const DeadRanges d = dead();
  EXPECT_TRUE(d.after[0].empty());
  EXPECT_TRUE(d.after[1].empty());
}

// Two layers' caches, of blocks of 2 x 5 rows x 5 tokens x 2 bytes = 100: block b of layer l at 200 b + 100 l.
class LiveBlocks : public LiveRanges {
protected:
  LiveBlocks() {
    plan_.model->layers = 2;
    plan_.model->kvHeads = 1, plan_.model->headDim = 5;
    plan_.blockTokens = 5;
    plan_.kvEncoding = model::DType::F16;
    plan_.states.resize(1);
    plan_.placements = {split(1), split(3)};
  }
  // Blocks [0, resident) of each layer on the device, the others at home on the host.
  static plan::Placement split(uint64_t resident) {
    plan::Placement placement;
    for (uint32_t layer = 0; layer < 2; ++layer) {
      placement.extents.push_back(
          {.buffer = layer, .bytes = 100 * resident, .address = 100 * layer, .interleaved = true});
      placement.extents.push_back({.buffer = layer,
                                   .space = plan::Space::Host,
                                   .bufferOffset = 100 * resident,
                                   .bytes = 1000 - 100 * resident});
    }
    return placement;
  }
};

TEST_F(LiveBlocks, AllLayersBlocksTogetherAreOneRange) {
  schedule_.placement = 1;
  step(plan::StepKind::Compute, {.buffer = 0, .bytes = 300, .address = 0, .interleaved = true});
  const DeadRanges d = dead();
  EXPECT_EQ(sorted(d.before), (Ranges{{600, 1000}}));
  EXPECT_TRUE(d.after[0].empty());
}

TEST_F(LiveBlocks, BlocksThatBecomeResidentLiveFromTheirCopyOn) {
  schedule_.fromPlacement = 0, schedule_.placement = 1;
  for (uint64_t layer : {0, 1}) // blocks 1 and 2
    step(plan::StepKind::Copy, {.buffer = static_cast<uint32_t>(layer),
                                .access = plan::Access::Write,
                                .bufferOffset = 100,
                                .bytes = 200,
                                .address = 200 + 100 * layer,
                                .interleaved = true});
  const DeadRanges d = dead();
  EXPECT_EQ(sorted(d.before), (Ranges{{200, 1000}}));
  EXPECT_TRUE(d.after[0].empty()); // the second layer's blocks lie between, and are not the first one's successors
  EXPECT_TRUE(d.after[1].empty());
}

TEST_F(LiveBlocks, BlocksThatAreResidentNoLongerAreDead) {
  schedule_.fromPlacement = 1, schedule_.placement = 0;
  step(plan::StepKind::Compute, {.buffer = 0, .bytes = 100, .address = 0, .interleaved = true});
  EXPECT_EQ(sorted(dead().before), (Ranges{{200, 1000}}));
}

} // namespace
} // namespace headrace::host
