// SPDX-License-Identifier: Apache-2.0
//
// Activation blocks at home on the host: what the verifier and the oracle accept, and one plan wrong in one way at a
// time, which both refuse for the same rule.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "kernels/Kernels.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/proof/PlanVerifier.h"
#include "tests/support/LongRun.h"
#include "tests/support/ShuffleBuffers.h"
#include "tests/unit/plan/BrokenPlan.h"
#include "tests/unit/plan/MakePlan.h"
#include "tests/unit/plan/Oracle.h"
#include "tests/unit/plan/PlanParts.h"
#include "tests/unit/plan/PlanText.h"

namespace headrace::plan {
namespace {

using kernels::Op;

// Three layers of two mini-batches, six turns in two slots: two sequences of four blocks of four tokens, of which every
// other one keeps activations. Four blocks of 4 x 32 x 4 = 512 bytes are 2048 a turn.
test::PlanOptions hostOptions() {
  test::PlanOptions out{test::tinyLlama(3), {{}}};
  out.blockTokens = 4;
  out.miniBatches = 2;
  out.acts.share = {1, 2};
  out.acts.rebuildsFirst = true;
  out.acts.onHost = {0, 1, 2};
  return out;
}

struct Turn {
  int32_t layer = 0;
  uint32_t miniBatch = 0;
};

// The only schedule of a plan, of which one thing is to be wrong.
class HostPlan {
public:
  Plan plan = test::makePlan(hostOptions());

  Schedule &schedule() { return plan.schedules[0]; }
  uint32_t buffer(Turn turn) const { return test::actBuffer(plan, turn.layer, turn.miniBatch); }
  uint32_t copyOf(Turn turn) {
    return find([&](const Step &step) {
      return step.kind == StepKind::Copy && schedule().operands[step.firstOperand].buffer == buffer(turn);
    });
  }
  uint32_t stepOf(Op op, Turn turn) {
    return find([&](const Step &step) {
      return step.kind == StepKind::Compute && step.op == op && step.layer == turn.layer &&
             step.miniBatch == turn.miniBatch;
    });
  }
  Operand &operand(uint32_t step, Arg arg) {
    const Step &s = schedule().steps[step];
    for (uint32_t k = s.firstOperand; k < s.firstOperand + s.operandCount; ++k)
      if (schedule().operands[k].arg == arg)
        return schedule().operands[k];
    std::abort();
  }
  Operand &from(Turn turn) { return operand(copyOf(turn), Arg::Source); }
  Operand &to(Turn turn) { return operand(copyOf(turn), Arg::Destination); }
  Operand &read(Turn turn) { return operand(stepOf(Op::RebuildKv, turn), Arg::Act); }
  Operand &kept(Turn turn) { return operand(stepOf(Op::ActAppend, turn), Arg::Act); }
  Extent &home(Turn turn) {
    for (Extent &e : plan.placements[0].extents)
      if (e.buffer == buffer(turn))
        return e;
    std::abort();
  }
  void connect() { test::connect(plan, schedule()); }
  // A step stands elsewhere; edges are made anew.
  void move(uint32_t from, uint32_t to) {
    const auto at = [&](uint32_t i) { return schedule().steps.begin() + i; };
    if (from < to)
      std::rotate(at(from), at(from + 1), at(to + 1));
    else
      std::rotate(at(to), at(from), at(from + 1));
    connect();
  }
  size_t dropEdges(uint32_t from, uint32_t to) {
    return std::erase_if(schedule().edges, [&](const Edge &e) { return e.from == from && e.to == to; });
  }

private:
  template <typename F> uint32_t find(F is) {
    const std::vector<Step> &steps = schedule().steps;
    const auto it = std::find_if(steps.begin(), steps.end(), is);
    if (it == steps.end())
      std::abort();
    return static_cast<uint32_t>(it - steps.begin());
  }
};

struct WrongHome {
  const char *name;
  Rule rule;
  const char *message; // part of it
  void (*make)(HostPlan &);
};
// The verifier's first word; the oracle says so, too.
void expectRefusedByBoth(const std::vector<WrongHome> &all) {
  for (const WrongHome &wrong : all) {
    HostPlan p;
    wrong.make(p);
    test::expectRefused(p.plan, {wrong.name, wrong.rule, wrong.message, [](Plan &) {}});
    EXPECT_TRUE(test::brokenRules(p.plan).contains(wrong.rule)) << wrong.name;
  }
}

TEST(ActBlocksOnHost, PlansThatHaveThemAreAccepted) {
  std::vector<test::NamedOptions> plans = test::hostActPlans();
  for (int seed = 0; seed < casesOf(20, 400); ++seed)
    plans.push_back(test::randomHostActPlan(seed));
  std::set<std::string> parts;
  for (const test::NamedOptions &named : plans) {
    const Plan plan = test::makePlan(named.options);
    const Plan shuffled = test::withShuffledBuffers(plan, 1);
    for (const Plan &p : {plan, shuffled}) {
      test::expectAccepted(p, named.name);
      EXPECT_TRUE(test::brokenRules(p).empty()) << named.name;
      const absl::StatusOr<Plan> back = parse(test::bytesOf(serialize(p)), "a.plan");
      ASSERT_TRUE(back.ok()) << named.name << ": " << back.status();
      EXPECT_EQ(test::textOf(*back), test::textOf(p)) << named.name;
    }
    for (uint32_t i = 0; i < plan.schedules.size(); ++i)
      EXPECT_EQ(largestLiveBytes(plan, i), test::liveBytesByBruteForce(plan, i))
          << named.name << ", schedule " << plan.schedules[i].name;
    parts.merge(test::partsOfHostActs(plan));
  }
  EXPECT_EQ(parts.size(), 18u); // all that partsOfHostActs() names
}

// Of six turns four wait for a slot, those of both mini-batches for what the other layer's have left.
TEST(ActBlocksOnHost, AreBroughtOnceASlotIsFree) {
  HostPlan p;
  EXPECT_EQ(p.home({2, 1}).space, Space::Host);
  EXPECT_EQ(p.home({2, 1}).bytes, 2048u);
  EXPECT_EQ(p.to({0, 0}).address, p.to({2, 0}).address);
  EXPECT_NE(p.to({0, 0}).address, p.to({0, 1}).address);
  EXPECT_TRUE(p.schedule().steps[p.copyOf({1, 0})].resizable);
  EXPECT_EQ(p.schedule().steps[p.copyOf({1, 0})].linkBytes, 2048u);
  // 4 new rows of 32 x 4 bytes go to the host.
  EXPECT_EQ(p.schedule().steps[p.stepOf(Op::ActAppend, {1, 0})].linkBytes, 512u);
  EXPECT_TRUE(directToHost(p.schedule(), p.schedule().steps[p.stepOf(Op::ActAppend, {1, 0})]));
  int waits = 0;
  for (const Edge &e : p.schedule().edges)
    waits += e.kind == EdgeKind::War ? 1 : 0;
  EXPECT_EQ(waits, 4);
}

TEST(ActBlocksOnHost, ReadBeforeTheyAreBroughtAreRefused) {
  expectRefusedByBoth(
      {{"no wait for the copy", Rule::ReadBeforeReady, "and may start before step",
        [](HostPlan &p) {
          const Turn turn{1, 0};
          EXPECT_EQ(p.dropEdges(p.copyOf(turn), p.stepOf(Op::RebuildKv, turn)), 1u);
        }},
       {"rebuilt before the copy", Rule::UseAfterRelease, "but finds act.0.0",
        [](HostPlan &p) {
          p.move(p.copyOf({1, 0}), p.stepOf(Op::RebuildKv, {1, 0}));
        }},
       {"nothing there yet", Rule::EntryExit, "but finds nothing",
        [](HostPlan &p) {
          p.move(p.copyOf({0, 0}), p.stepOf(Op::RebuildKv, {0, 0}));
        }},
       {"the other slot", Rule::UseAfterRelease, "reads act.1.0 [0, 2048) at ",
        [](HostPlan &p) {
          p.read({1, 0}).address = p.to({0, 1}).address;
          p.connect();
        }},
       {"another layer's blocks", Rule::UseAfterRelease, "but finds act.2.0",
        [](HostPlan &p) {
          const Operand other = p.from({2, 0});
          const Turn turn{1, 0};
          const uint32_t copy = p.copyOf(turn);
          p.operand(copy, Arg::Source).address = other.address;
          p.operand(copy, Arg::Source).buffer = p.operand(copy, Arg::Destination).buffer = other.buffer;
          p.schedule().steps[copy].layer = 2;
          p.connect();
        }},
       {"another mini-batch's blocks", Rule::HostRange, "source act.1.0 [0, 2048) is not at ",
        [](HostPlan &p) {
          p.from({1, 0}).address = p.from({1, 1}).address;
          p.connect();
        }},
       {"from the home", Rule::Structure, "rebuild_kv: operand act is in space 1, expected on the device",
        [](HostPlan &p) {
          p.read({1, 0}).space = Space::Host;
          p.read({1, 0}).address = p.home({1, 0}).address;
          p.schedule().steps[p.stepOf(Op::RebuildKv, {1, 0})].direct = true;
          p.connect();
        }},
       {"a slot as keys and values", Rule::Structure, "attention: operand kv is act.1.0 [0, 2048), expected all of",
        [](HostPlan &p) {
          const Operand slot = p.to({1, 0});
          Operand &kv = p.operand(p.stepOf(Op::Attention, {1, 0}), Arg::Kv);
          kv.buffer = slot.buffer;
          kv.bytes = slot.bytes;
          kv.address = slot.address;
        }}});
}

TEST(ActBlocksOnHost, SlotsThatAreTakenTooSoonAreRefused) {
  expectRefusedByBoth(
      {{"no wait for the reader", Rule::OverwriteLive, "and may start before step",
        [](HostPlan &p) {
          EXPECT_EQ(p.dropEdges(p.stepOf(Op::RebuildKv, {0, 0}), p.copyOf({1, 0})), 1u);
        }},
       {"two turns in each other's slots", Rule::UseAfterRelease, "but finds act.0.1",
        [](HostPlan &p) {
          p.read({0, 0}).address = p.to({0, 0}).address = p.plan.placements[0].slots[1].address;
          p.read({0, 1}).address = p.plan.placements[0].slots[0].address;
          p.connect();
        }},
       {"overwritten before it is read", Rule::UseAfterRelease, "but finds act.1.0",
        [](HostPlan &p) {
          p.move(p.copyOf({1, 0}), p.stepOf(Op::RebuildKv, {0, 0}));
        }},
       {"beyond the slot", Rule::SlotTooSmall, "beyond slot 0",
        [](HostPlan &p) {
          for (const Turn turn : {Turn{0, 0}, {1, 0}, {2, 0}}) {
            p.to(turn).address += 256;
            p.read(turn).address += 256;
          }
        }},
       {"in a state", Rule::EntryExit, "act.0.0 [0, 2048) is not a weight, only weights are in slots", [](HostPlan &p) {
          p.plan.states.push_back({0, {{p.buffer({0, 0}), 0, 2048, p.to({0, 0}).address}}});
        }}});
}

// A copy of a block less, from byte `first` on.
void shorten(HostPlan &p, uint64_t first) {
  const uint32_t copy = p.copyOf({1, 0});
  for (const Arg arg : {Arg::Source, Arg::Destination}) {
    Operand &o = p.operand(copy, arg);
    o.bytes -= 512;
    o.bufferOffset += first;
    o.address += first;
  }
  p.schedule().steps[copy].linkBytes -= 512;
}

TEST(ActBlocksOnHost, CopiesOfLessThanAllAreRefused) {
  expectRefusedByBoth({{"the last block is left out", Rule::Structure,
                        "copies bytes [0, 1536) of act.1.0, expected all 2048", [](HostPlan &p) { shorten(p, 0); }},
                       {"the first block is left out", Rule::Structure,
                        "copies bytes [512, 2048) of act.1.0, expected all 2048", [](HostPlan &p) { shorten(p, 512); }},
                       {"what is written only", Rule::Structure, "dirty_only is set",
                        [](HostPlan &p) {
                          p.schedule().steps[p.copyOf({1, 0})].dirtyOnly = true;
                        }},
                       {"one side", Rule::Structure, "expected the same",
                        [](HostPlan &p) {
                          p.to({1, 0}).bytes -= 512;
                        }},
                       {"of another mini-batch", Rule::Structure, "mini_batch is 1, expected 0", [](HostPlan &p) {
                          p.schedule().steps[p.copyOf({1, 0})].miniBatch = 1;
                        }}});
}

TEST(ActBlocksOnHost, RowsThatDoNotReachTheHomeInTimeAreRefused) {
  expectRefusedByBoth({{"kept in the slot", Rule::Structure, "act.1.0 [0, 2048) is written at ",
                        [](HostPlan &p) {
                          p.kept({1, 0}).space = Space::Device;
                          p.kept({1, 0}).address = p.to({1, 0}).address;
                          p.connect();
                        }},
                       {"kept at another's home", Rule::Structure, "act.1.0 [0, 2048) is written at ",
                        [](HostPlan &p) {
                          p.kept({1, 0}).address = p.home({1, 1}).address;
                          p.connect();
                        }},
                       {"kept indirectly", Rule::WrongSpace, "is in host memory and the step is not direct",
                        [](HostPlan &p) {
                          p.schedule().steps[p.stepOf(Op::ActAppend, {1, 0})].direct = false;
                        }},
                       {"a home that is not direct", Rule::Structure, "act.1.0 is not one run of bytes on the device",
                        [](HostPlan &p) {
                          p.home({1, 0}).direct = false;
                        }},
                       {"between the copy and rebuild_kv", Rule::StaleCopy, "has since written elsewhere",
                        [](HostPlan &p) { // of the last turn, whose slot no other has then
                          p.move(p.stepOf(Op::RebuildKv, {2, 1}), p.stepOf(Op::ActAppend, {2, 1}));
                        }},
                       {"copied back", Rule::HostRange, "is written to the host",
                        [](HostPlan &p) {
                          const uint32_t copy = p.copyOf({2, 1});
                          std::swap(p.operand(copy, Arg::Source).space, p.operand(copy, Arg::Destination).space);
                          std::swap(p.operand(copy, Arg::Source).address, p.operand(copy, Arg::Destination).address);
                          p.schedule().steps[copy].lane = Lane::D2H;
                          p.connect();
                        }},
                       {"two homes in one range", Rule::HostRange, "in the host slab shares bytes with another buffer",
                        [](HostPlan &p) {
                          const uint64_t onto = p.home({0, 0}).address;
                          p.home({1, 0}).address = p.from({1, 0}).address = p.kept({1, 0}).address = onto;
                        }}});
}

// What is kept in one placement is read in the next.
TEST(ActBlocksOnHost, AnotherHomeInAnotherPlacementIsRefused) {
  HostPlan p;
  test::PlanOptions options = hostOptions();
  options.placements = {{.name = "first"}, {.name = "second", .layers = {1}}};
  p.plan = test::makePlan(options);
  test::expectAccepted(p.plan, "two placements");
  const uint64_t to = p.plan.hostBytes;
  p.plan.hostBytes += 2048;
  for (Extent &e : p.plan.placements[1].extents)
    e.address = e.buffer == p.buffer({1, 0}) ? to : e.address;
  for (Schedule &s : p.plan.schedules)
    for (Operand &o : s.operands)
      o.address = s.placement == 1 && o.buffer == p.buffer({1, 0}) && o.space == Space::Host ? to : o.address;
  test::expectRefused(p.plan, {"two homes", Rule::Structure, "in an earlier placement it is at ", [](Plan &) {}});
  EXPECT_EQ(test::brokenRules(p.plan), std::set<Rule>{Rule::Structure});
}

// Where rows are kept before rebuild_kv reads them: the copy waits for them.
TEST(ActBlocksOnHost, CopiesThatRaceWithTheirRowsAreRefused) {
  HostPlan p;
  test::PlanOptions options = hostOptions();
  options.acts.rebuildsFirst = false;
  p.plan = test::makePlan(options);
  const Turn turn{1, 0};
  ASSERT_LT(p.stepOf(Op::ActAppend, turn), p.copyOf(turn));
  test::expectAccepted(p.plan, "rows kept before the copy");
  ASSERT_EQ(p.dropEdges(p.stepOf(Op::ActAppend, turn), p.copyOf(turn)), 1u);
  test::expectRefused(p.plan, {"no wait for the rows", Rule::ReadBeforeReady,
                               "in the host slab, and may start before step", [](Plan &) {}});
  EXPECT_EQ(test::brokenRules(p.plan), std::set<Rule>{Rule::ReadBeforeReady});
}

// Beside tails at home on the host: one layer's keys and values are not its activation blocks.
TEST(ActBlocksOnHost, ATailIsNoActivationBlock) {
  HostPlan p;
  test::PlanOptions options = hostOptions();
  options.interleaved = true;
  options.placements[0].blocksOnDevice = 2;
  p.plan = test::makePlan(options);
  test::expectAccepted(p.plan, "beside tails");
  EXPECT_TRUE(test::partsOfHostActs(p.plan).contains("tails"));
  const Operand tail = p.operand(p.stepOf(Op::Attention, {1, 0}), Arg::KvTail);
  p.read({1, 0}) = {tail.buffer, Space::Device, Access::Read, Arg::Act, tail.bufferOffset, tail.bytes, tail.address};
  test::expectRefused(p.plan, {"a tail", Rule::Structure,
                               "rebuild_kv: operand act is kv.1.0 [1024, 2560), expected all", [](Plan &) {}});
  EXPECT_TRUE(test::brokenRules(p.plan).contains(Rule::Structure));
}

} // namespace
} // namespace headrace::plan
