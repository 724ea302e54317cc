// SPDX-License-Identifier: Apache-2.0
//
// What the matrix is good for: faults put into a plan that was compiled and proved are found by the cells that can see
// them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/plan/proof/PlanVerifier.h"
#include "tests/choices/Cell.h"

namespace headrace::choices {
namespace {

using plan::Lane;
using plan::Plan;
using plan::Schedule;
using plan::Step;

bool isCopyIn(const Step &step) { return step.kind == plan::StepKind::Copy && step.lane == Lane::H2D; }

// In all iterations: compute waits for the nth of the copies that it waits for, counted from 0, no more.
bool leaveOutWait(Plan &plan, size_t nth) {
  bool done = false;
  for (Schedule &schedule : plan.schedules) {
    size_t seen = 0;
    done |=
        std::erase_if(schedule.edges, [&](const plan::Edge &edge) {
          return isCopyIn(schedule.steps[edge.from]) && schedule.steps[edge.to].lane == Lane::Compute && seen++ == nth;
        }) > 0;
  }
  return done;
}

// In all iterations: of the first copy to the device the last block, of 256 bytes where it is of weights, stays behind.
bool shortenCopy(Plan &plan) {
  bool done = false;
  for (Schedule &schedule : plan.schedules) {
    const auto copy = std::find_if(schedule.steps.begin(), schedule.steps.end(), isCopyIn);
    if (copy == schedule.steps.end())
      continue;
    const plan::Buffer &buffer = plan.buffers[schedule.operands[copy->firstOperand].buffer];
    const uint64_t block = buffer.kind == plan::BufferKind::Kv ? plan.kvBlockBytes() : 256;
    for (uint32_t o = copy->firstOperand; o < copy->firstOperand + 2; ++o)
      schedule.operands[o].bytes -= block;
    copy->linkBytes -= block;
    done = true;
  }
  return done;
}

// All that is in the lowest of a placement's slots lies 256 bytes higher, and its end in the next.
bool shiftSlot(Plan &plan) {
  if (plan.placements[0].slots.size() < 2)
    return false;
  const plan::Slot slot = *std::min_element(plan.placements[0].slots.begin(), plan.placements[0].slots.end(),
                                            [](const auto &a, const auto &b) { return a.address < b.address; });
  const auto shift = [&](auto &range) {
    if (range.address >= slot.address && range.address < slot.address + slot.bytes)
      range.address += 256;
  };
  for (plan::State &state : plan.states)
    std::for_each(state.contents.begin(), state.contents.end(), shift);
  for (Schedule &schedule : plan.schedules)
    for (plan::Operand &operand : schedule.operands)
      if (operand.space == plan::Space::Device && operand.buffer < plan.buffers.size())
        shift(operand);
  return true;
}

// Of one sequence of 20 tokens, 13 of the prompt and 7 new ones: all five blocks are in use in the end.
constexpr Row kFull = {"full", "kv", "rows", "kv=0-4@2", {.batch = 1, .context = 20}};
constexpr Row kWeights = {"weights", "weights", "", "weights=1-20 slots=2"};

constexpr Row kTails = {"tails", "kv", "rows", "kv=0-4"};

// Where it does not hang on when a thread happens to run.
const std::vector<On> kAll = {On::HostPoisoned, On::Sim, On::EmulatedCuda},
                      kUnlessOneByOne = {On::Sim, On::EmulatedCuda};

struct Fault {
  const char *name;
  const Row *row;
  bool (*put)(Plan &);
  const std::vector<On> &seenBy;
};
// Steps that run one by one in the plan's order find what they need whether they wait for it or not.
const Fault kFaults[] = {
    {"weights_not_waited_for", &kWeights, [](Plan &plan) { return leaveOutWait(plan, 2); }, kUnlessOneByOne},
    {"tail_not_waited_for", &kTails, [](Plan &plan) { return leaveOutWait(plan, 0); }, kUnlessOneByOne},
    {"weights_shortened", &kWeights, shortenCopy, kAll},
    {"tail_shortened", &kFull, shortenCopy, kAll},
    {"slots_overlap", &kWeights, shiftSlot, kAll},
    {"slots_of_tails_overlap", &kFull, shiftSlot, kAll},
};

class Faults : public testing::TestWithParam<Fault> {};

TEST_P(Faults, AreFoundWhereTheyShow) {
  const Fault &fault = GetParam();
  for (const On on : kAll) {
    const Cell cell{fault.row, Model::Llama, on};
    SCOPED_TRACE(nameOf(cell));
    bool put = false;
    absl::Status proof;
    const std::vector<std::string> found = findingsIn(cell, [&](Plan &plan) {
      put = fault.put(plan);
      proof = plan::verifyPlan(plan, "plan");
    });
    EXPECT_TRUE(put);
    EXPECT_FALSE(proof.ok());
    if (!found.empty()) // to be read
      RecordProperty(nameOf(cell), found.front());
    EXPECT_EQ(!found.empty(), std::count(fault.seenBy.begin(), fault.seenBy.end(), on) > 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, Faults, testing::ValuesIn(kFaults),
                         [](const auto &info) { return std::string(info.param.name); });

// Rows that are wrong themselves.
TEST(WrongRows, AreFindings) {
  const auto findings = [](const Row &row) { return findingsIn({&row, Model::Llama, On::Sim}); };
  const auto only = [](const char *what) { return testing::ElementsAre(testing::HasSubstr(what)); };
  EXPECT_THAT(findings({"no_choice", "", "", "weights=one"}), only("refused: INVALID_ARGUMENT: 'weights=one' has"));
  EXPECT_THAT(findings({"no_such_unit", "", "", "weights=99 slots=1"}),
              only("units are ascending numbers from 0 to 21"));
  EXPECT_THAT(findings({"apart", "", "", "kv=0-4@3 kv-places=2 residual-slots=3"}), only("keeps residual streams"));
  EXPECT_THAT(findings({"acts_in_places", "", "", "act-ratio=1/2 act=1 kv=0-4@2 kv-places=4"}),
              only("is fixed for the whole plan"));
  EXPECT_THAT(findings({"acts_by_item", "", "", "act-ratio=1/2 act=1 weights=1-4 slots=1 start=paper"}),
              only("under the rule eager only, not under paper"));
  EXPECT_THAT(findings({"no_such_block", "", "", "kv=0-4@40"}), only("expected one of the 31 that there are"));
  EXPECT_THAT(findings({"not_alike", "", "", "mini-batches=3 | mini-batches=1"}), only("differs from the first"));
  EXPECT_THAT(findings({"moves_more", "", "", "weights=1-20 slots=2"}),
              only("what is brought is 'weights', expected ''"));
  EXPECT_THAT(findings({"moves_less", "kv", "rows", "kv=0-4@30"}),
              testing::ElementsAre("what is brought is '', expected 'kv'", "what goes back is '', expected 'rows'"));
}

} // namespace
} // namespace headrace::choices
