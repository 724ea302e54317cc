// SPDX-License-Identifier: Apache-2.0
//
// One plan, wrong in one way at a time: the rule that is broken, and the words that say so.
#include "runtime/plan/proof/PlanVerifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "tests/unit/plan/BrokenPlan.h"
#include "tests/unit/plan/MakePlan.h"

namespace headrace::plan {
namespace {

// Layers 1 and 3 of four in two slots of 31232 bytes (PlanTest.cpp has the arithmetic), cut 512 bytes into layer 1's
// `out`, the embedding read in place. Schedule 0 is the iteration, 1 the transition to its entry state.
Plan somePlan() {
  test::PlacementOptions placement;
  placement.layers = {1, 3};
  placement.offloadEmbedding = true;
  placement.limits.front().cutUnits = 1;
  placement.limits.front().cutBytes = 512;
  return test::makePlan({test::tinyLlama(4), {placement}});
}
Schedule &schedule(Plan &p) { return p.schedules[0]; }

// The n-th copy; below 0 from the end.
uint32_t copyStep(const Plan &p, int n) {
  std::vector<uint32_t> all;
  for (uint32_t i = 0; i < p.schedules[0].steps.size(); ++i)
    if (p.schedules[0].steps[i].kind == StepKind::Copy)
      all.push_back(i);
  return n < 0 ? all[all.size() - static_cast<size_t>(-n)] : all[static_cast<size_t>(n)];
}
Operand &source(Plan &p, int copy) { return schedule(p).operands[schedule(p).steps[copyStep(p, copy)].firstOperand]; }
Operand &destination(Plan &p, int copy) { return (&source(p, copy))[1]; }
// An operand of the first step of a layer with this op.
Operand &operand(Plan &p, kernels::Op op, int32_t layer, Arg arg) {
  for (const Step &step : schedule(p).steps)
    if (step.kind == StepKind::Compute && step.op == op && step.layer == layer)
      for (uint32_t k = step.firstOperand; k < step.firstOperand + step.operandCount; ++k)
        if (schedule(p).operands[k].arg == arg)
          return schedule(p).operands[k];
  std::abort();
}
Step &firstCompute(Plan &p) {
  return *std::find_if(schedule(p).steps.begin(), schedule(p).steps.end(),
                       [](const Step &step) { return step.lane == Lane::Compute; });
}
uint32_t nextInLane(const Plan &p, Lane lane, uint32_t after) {
  for (uint32_t i = after + 1;; ++i)
    if (p.schedules[0].steps[i].lane == lane)
      return i;
}
void addEdge(Plan &p, Edge edge) {
  schedule(p).edges.push_back(edge);
  std::sort(schedule(p).edges.begin(), schedule(p).edges.end(),
            [](const Edge &a, const Edge &b) { return std::pair(a.to, a.from) < std::pair(b.to, b.from); });
}
void moveLocal(Plan &p, uint32_t id, uint64_t address) {
  schedule(p).locals[id - p.buffers.size()].address = address;
  for (Operand &o : schedule(p).operands)
    if (o.buffer == id)
      o.address = address + o.bufferOffset;
}

using test::Broken;

void expectRefused(const Broken &broken) { test::expectRefused(somePlan(), broken); }

TEST(PlanVerifier, AcceptsPlansOfBothRules) {
  for (const test::NamedOptions &named : test::variedPlans()) {
    const Plan plan = test::makePlan(named.options);
    test::expectAccepted(plan, named.name);
    EXPECT_TRUE(verifyPlan(plan, "a.plan").ok());
  }
  EXPECT_TRUE(findViolations(somePlan()).empty());
}

TEST(PlanVerifier, RefusesOperandsThatAreNotTheOps) {
  using kernels::Op;
  for (const Broken &broken : std::vector<Broken>{
           {"a smaller result", Rule::Structure, "linear: operand y has 960 bytes, the op touches 1024",
            [](Plan &p) { operand(p, Op::Linear, 0, Arg::Y).bytes -= 64; }},
           {"a weight that ends early", Rule::Structure,
            "linear: operand weight is layers.0.qkv [256, 8384), expected bytes [256, 8448) of layers.0.qkv",
            [](Plan &p) { operand(p, Op::Linear, 0, Arg::Weight).bytes -= 64; }},
           {"another layer's weight", Rule::Structure, "norm: operand norm is layers.2.qkv, the step is of layer 0",
            [](Plan &p) { operand(p, Op::Norm, 0, Arg::NormWeights).buffer += 8; }},
           {"another layer's cache", Rule::Structure, "attention: operand kv is kv.1 [0, 6144), expected all of kv.0",
            [](Plan &p) {
              Operand &o = operand(p, Op::Attention, 0, Arg::Kv);
              o.buffer += 1;
              o.address += o.bytes;
            }},
           {"a result that is only read", Rule::Structure, "activate: operand y has access 0",
            [](Plan &p) { operand(p, Op::Activate, 0, Arg::Y).access = Access::Read; }},
           {"ids that are not kept", Rule::Structure, "embed: operand history has access 0",
            [](Plan &p) { operand(p, Op::Embed, -1, Arg::History).access = Access::Read; }},
           {"other ids than those kept", Rule::Structure, "sample: operand history is sampled [0, 256)",
            [](Plan &p) {
              Operand &history = operand(p, Op::Sample, -1, Arg::History);
              const Operand &sampled = operand(p, Op::Sample, -1, Arg::Sampled);
              history.buffer = sampled.buffer, history.address = sampled.address;
            }},
           {"an operand too few", Rule::Structure, "linear: operand meta is missing",
            [](Plan &p) { operand(p, Op::Linear, 0, Arg::Meta).arg = Arg::Table; }},
           {"an operand too many", Rule::Structure, "attention: operand positions is not one of the op's",
            [](Plan &p) {
              for (Step &step : schedule(p).steps)
                if (step.op == Op::Attention && step.layer == 0 && step.kind == StepKind::Compute)
                  step.operandCount += 1;
              Operand extra = operand(p, Op::Linear, 0, Arg::Meta);
              extra.arg = Arg::Positions;
              // Behind attention's operands; the steps after it find theirs one later.
              const auto at =
                  static_cast<size_t>(&operand(p, Op::Attention, 0, Arg::Meta) - schedule(p).operands.data()) + 1;
              schedule(p).operands.insert(schedule(p).operands.begin() + static_cast<std::ptrdiff_t>(at), extra);
              for (Step &step : schedule(p).steps)
                if (step.firstOperand >= at)
                  ++step.firstOperand;
            }},
           {"a buffer of the wrong size", Rule::Structure, "buffers[1].bytes (layers.0.qkv) is 8704, expected 8448",
            [](Plan &p) {
              p.buffers[1].bytes += 256;
              p.placements[0].extents[1].bytes += 256;
            }},
           {"a buffer of another name", Rule::Structure, "buffers[1] is q of layer 0, expected layers.0.qkv of layer 0",
            [](Plan &p) { p.buffers[1].name = "q"; }},
           {"a block table too narrow", Rule::Structure, "too few for max_context 17",
            [](Plan &p) { p.maxContext = 17; }},
           {"a compute step beside the compute lane", Rule::Structure, "a compute step in lane cpu",
            [](Plan &p) { firstCompute(p).lane = Lane::Cpu; }},
           {"a cache that is written elsewhere", Rule::Structure, "written at 256, not at its home",
            [](Plan &p) { operand(p, Op::RopeAppend, 0, Arg::Kv).address += 256; }},
       })
    expectRefused(broken);
}

TEST(PlanVerifier, NormsOfHeadsAreWholeAndOfTheStepsLayer) {
  using kernels::Op;
  const Plan plan = test::makePlan({test::tinyQwen3(2), {test::PlacementOptions{}}});
  EXPECT_TRUE(verifyPlan(plan, "a.plan").ok()) << verifyPlan(plan, "a.plan");
  const auto refusal = [&](auto change) {
    Plan broken = plan;
    change(operand(broken, Op::RopeAppend, 1, Arg::NormWeights));
    return std::string(verifyPlan(broken, "a.plan").message());
  };
  EXPECT_THAT(refusal([](Operand &o) { o.bytes -= 64; }),
              testing::HasSubstr("rope_append: operand norm is layers.1.qkv"));
  EXPECT_THAT(refusal([](Operand &o) { o.arg = Arg::Bias; }),
              testing::HasSubstr("rope_append: operand norm is missing"));
  EXPECT_THAT(refusal([](Operand &o) { o.buffer -= model::kUnitsPerLayer; }),
              testing::HasSubstr("rope_append: operand norm is layers.0.qkv, the step is of layer 1"));
}

TEST(PlanVerifier, RefusesAttentionBeforeItsRowsAreAppended) {
  expectRefused({"attention first", Rule::Structure,
                 "attention: no step before it appends the iteration's rows to the cache of layer 2", [](Plan &p) {
                   std::vector<Step> &steps = schedule(p).steps;
                   const auto append = std::find_if(steps.begin(), steps.end(), [](const Step &step) {
                     return step.kind == StepKind::Compute && step.op == kernels::Op::RopeAppend && step.layer == 2;
                   });
                   std::swap(*append, *std::next(append)); // layer 2 is on the device: nothing between
                 }});
}

TEST(PlanVerifier, RefusesOrderThatIsLeftToChance) {
  for (const Broken &broken : std::vector<Broken>{
           {"no wait for a prefetch", Rule::ReadBeforeReady, "and may start before step",
            [](Plan &p) { std::erase_if(schedule(p).edges, [](const Edge &e) { return e.kind == EdgeKind::Raw; }); }},
           {"no wait for a slot", Rule::OverwriteLive, "has read layers.1.qkv",
            [](Plan &p) { std::erase_if(schedule(p).edges, [](const Edge &e) { return e.kind == EdgeKind::War; }); }},
       })
    expectRefused(broken);
}

TEST(PlanVerifier, RefusesContentsThatAreNotThere) {
  using kernels::Op;
  for (const Broken &broken : std::vector<Broken>{
           {"a read of the other slot", Rule::UseAfterRelease, "but finds layers.3.qkv [0, 128), written by step ",
            [](Plan &p) { operand(p, Op::Norm, 1, Arg::NormWeights).address += 31232; }},
           {"an entry state that holds less", Rule::EntryExit, "reads layers.1.out [0, 512) at ",
            [](Plan &p) { p.states[1].contents.pop_back(); }},
           {"an exit state that says too much", Rule::EntryExit, ", where it leaves layers.1.out [0, 512)",
            [](Plan &p) {
              p.states.push_back(p.states[1]);
              p.states[2].contents[1].buffer += 8; // layers.3.out
              schedule(p).exitState = 2;
            }},
           {"a transient taken over too early", Rule::Overlap, "shares bytes with",
            [](Plan &p) {
              const uint32_t h = operand(p, Op::Norm, 0, Arg::Y).buffer;
              moveLocal(p, h, operand(p, Op::Embed, -1, Arg::X).address);
            }},
       })
    expectRefused(broken);
}

TEST(PlanVerifier, RefusesPlacesThatClash) {
  using kernels::Op;
  for (const Broken &broken : std::vector<Broken>{
           {"two homes", Rule::Overlap, "layers.0.out", [](Plan &p) { p.placements[0].extents[3].address -= 256; }},
           {"a slot over a home", Rule::Overlap, "share bytes",
            [](Plan &p) { p.placements[0].slots[0].address -= 256; }},
           {"a transient over a home", Rule::Overlap, "x [0, 512) shares bytes with kv.0 [0, 6144)",
            [](Plan &p) { moveLocal(p, operand(p, Op::Embed, -1, Arg::X).buffer, 0); }},
           {"an input under its result", Rule::Overlap, "act [29184, 29952) shares bytes with up [27904, 29440)",
            [](Plan &p) {
              const Operand &x = operand(p, Op::Activate, 0, Arg::X);
              moveLocal(p, operand(p, Op::Activate, 0, Arg::Y).buffer, x.address + x.bytes - 256);
            }},
           {"a weight under its result", Rule::Overlap, "norm layers.1.qkv [0, 128) and y h [0, 512) share bytes",
            [](Plan &p) {
              moveLocal(p, operand(p, Op::Norm, 1, Arg::Y).buffer, operand(p, Op::Norm, 1, Arg::NormWeights).address);
            }},
           {"an arena beyond the budget", Rule::OverBudget, ", device_memory is ",
            [](Plan &p) { p.deviceMemory -= 1; }},
           {"a slot beyond the arena", Rule::OverBudget, "ends beyond the arena of ",
            [](Plan &p) { p.placements[0].slots[1].bytes += 256; }},
           {"a slot too small", Rule::SlotTooSmall, "beyond slot 1",
            [](Plan &p) { p.placements[0].slots[1].bytes -= 256; }},
           {"a copy to nowhere", Rule::SlotTooSmall, "in no slot", [](Plan &p) { destination(p, 0).address = 0; }},
           {"a state that spills", Rule::SlotTooSmall, "state 1: layers.1.out [0, 512) begins at ",
            [](Plan &p) { p.states[1].contents[1].address = p.arenaBytes; }},
           {"a cache in a slot", Rule::EntryExit, "state 1: kv.0 [0, 512) is not a weight, only weights are in slots",
            [](Plan &p) { p.states[1].contents[1].buffer = p.kvBuffer(0); }},
           {"a cache that moves between placements", Rule::Structure, "kv.0 is at ",
            [](Plan &p) {
              p.placements.push_back(p.placements[0]);
              Extent &kv = p.placements[1].extents[p.kvBuffer(0)];
              kv.address = p.arenaBytes;
              p.deviceMemory = p.arenaBytes += kv.bytes;
            }},
       })
    expectRefused(broken);
}

TEST(PlanVerifier, RefusesCopiesFromTheWrongPlace) {
  for (const Broken &broken : std::vector<Broken>{
           {"a copy in the wrong lane", Rule::CopyOrder, "a copy from host to device in lane d2h",
            [](Plan &p) { schedule(p).steps[copyStep(p, -1)].lane = Lane::D2H; }},
           {"a copy within the device", Rule::CopyOrder, "a copy from device to device in lane h2d",
            [](Plan &p) { source(p, 0).space = Space::Device; }},
           {"a copy to the host", Rule::HostRange, "is written to the host, where only read-only weights have homes",
            [](Plan &p) {
              std::swap(source(p, 0).space, destination(p, 0).space);
              schedule(p).steps[copyStep(p, 0)].lane = Lane::D2H;
            }},
           {"a wrong offset", Rule::HostRange, "in the host slab as one run",
            [](Plan &p) { source(p, 0).address += 256; }},
           {"a resident unit", Rule::HostRange, "source layers.0.out [512, 4096) is not at ",
            [](Plan &p) { source(p, 0).buffer = destination(p, 0).buffer = 2; }},
           {"a home beyond the slab", Rule::HostRange, "ends beyond the host slab of ",
            [](Plan &p) { p.hostBytes -= 256; }},
           {"two homes on the host", Rule::HostRange, "shares bytes with another buffer",
            [](Plan &p) { p.placements[0].extents[6].address -= 256; }},
           {"a read in place that is not marked", Rule::WrongSpace, "is in host memory and the step is not direct",
            [](Plan &p) { firstCompute(p).direct = false; }},
           {"a read in place of what is not for it", Rule::WrongSpace, "its extent is not marked direct",
            [](Plan &p) { p.placements[0].extents[0].direct = false; }},
           {"a read in place at a wrong offset", Rule::HostRange, "table embedding [0, 12288) is not at 256",
            [](Plan &p) { operand(p, kernels::Op::Embed, -1, Arg::Table).address += 256; }},
       })
    expectRefused(broken);
}

TEST(PlanVerifier, RefusesEdgesThatNothingNeeds) {
  for (const Broken &broken : std::vector<Broken>{
           {"an edge that others imply", Rule::RedundantEdge, "is implied by lane order and other edges",
            [](Plan &p) {
              // The first edge once more, one step further on.
              const Edge edge = schedule(p).edges[0];
              addEdge(p, {edge.from, nextInLane(p, schedule(p).steps[edge.to].lane, edge.to), edge.kind});
            }},
           {"an edge between strangers", Rule::RedundantEdge, "orders no two accesses to a common byte",
            [](Plan &p) {
              // From a copy for the next iteration to a step of this one.
              const uint32_t copy = copyStep(p, -2);
              addEdge(p, {copy, nextInLane(p, Lane::Compute, copy), EdgeKind::Raw});
            }},
           {"an edge for another reason", Rule::RedundantEdge, "is needed, but for another kind of conflict",
            [](Plan &p) { schedule(p).edges[0].kind = EdgeKind::Waw; }},
       })
    expectRefused(broken);
}

TEST(PlanVerifier, LetsPacingBe) {
  Plan plan = somePlan();
  // From the first compute step to the last copy: implied, and no harm.
  addEdge(plan, {static_cast<uint32_t>(&firstCompute(plan) - schedule(plan).steps.data()), copyStep(plan, -1),
                 EdgeKind::Pacing});
  EXPECT_TRUE(verifyPlan(plan, "a.plan").ok()) << verifyPlan(plan, "a.plan");
}

TEST(PlanVerifier, RefusesTotalsThatDoNotAddUp) {
  for (const Broken &broken : std::vector<Broken>{
           {"arena", Rule::Accounting, "arena_bytes is ", [](Plan &p) { p.deviceMemory = p.arenaBytes += 256; }},
           {"host", Rule::Accounting, "host_bytes is ", [](Plan &p) { p.hostBytes += 256; }},
           {"link bytes", Rule::Accounting, "link_bytes is 3585, the copy moves 3584",
            [](Plan &p) { schedule(p).steps[copyStep(p, 0)].linkBytes += 1; }},
           {"compute", Rule::Accounting, "variants[0].compute_alone_ns is ",
            [](Plan &p) { p.variants[0].computeAloneNs -= 1; }},
           {"link", Rule::Accounting, "variants[0].link_alone_ns is ", [](Plan &p) { p.variants[0].linkAloneNs += 1; }},
           {"prediction", Rule::Accounting, "variants[0].predicted_ns is 1, its steps take at least ",
            [](Plan &p) { p.variants[0].predictedNs = 1; }},
           {"transition", Rule::Accounting, "transitions[0].predicted_ns is 1, its steps take at least ",
            [](Plan &p) { p.transitions[0].predictedNs = 1; }},
       })
    expectRefused(broken);
}

TEST(PlanVerifier, RefusesStatesThatCannotBeReached) {
  for (const Broken &broken : std::vector<Broken>{
           {"from nothing", Rule::EntryExit,
            "placement test: a variant needs state 1, and no transition leads there from state 0",
            [](Plan &p) { p.transitions.clear(); }},
           {"to another", Rule::EntryExit, "transitions[0] leads to state 1, which holds more than state 0",
            [](Plan &p) { p.schedules[1].exitState = 0; }},
           {"from more than there is", Rule::EntryExit,
            "transitions[0] starts from state 0, its schedule enters with 1",
            [](Plan &p) { p.schedules[1].entryState = 1; }},
       })
    expectRefused(broken);
}

// Placement 0 has everything at home on the device, placement 1 (layers 1 and 3 offloaded) and placement 2 (layer 0,
// too) have slots where it has homes.
Plan switchingPlan() {
  for (const test::NamedOptions &named : test::variedPlans())
    if (named.options.switches)
      return test::makePlan(named.options);
  return {};
}
// The schedule that leads from one placement to another.
Schedule &switchOf(Plan &plan, uint32_t from, uint32_t to) {
  for (Schedule &s : plan.schedules)
    if (s.fromPlacement == from && s.placement == to)
      return s;
  ADD_FAILURE() << "no transition from " << from << " to " << to;
  return plan.schedules[0];
}

TEST(PlanVerifier, RefusesChangesOfPlacementThatDoNotArrive) {
  const auto refusal = [](auto change) {
    Plan plan = switchingPlan();
    EXPECT_TRUE(verifyPlan(plan, "a.plan").ok()) << verifyPlan(plan, "a.plan");
    change(plan);
    return std::string(verifyPlan(plan, "a.plan").message());
  };
  using testing::HasSubstr;
  // 1 to 0 brings the four units of layer 1, then those of layer 3.
  const std::string forgotten = refusal([](Plan &p) {
    Schedule &s = switchOf(p, 1, 0);
    s.steps.pop_back();
    for (Transition &t : p.transitions)
      if (&p.schedules[t.schedule] == &s)
        t.durationsNs.pop_back();
  });
  EXPECT_THAT(forgotten, HasSubstr("(eager to none): placement none has layers.3.down [0, "));
  EXPECT_THAT(forgotten, HasSubstr("where the transition leaves nothing [entry and exit]"));
  // To another unit's home: two are missing then, and the copy is to no slot and no home of its own.
  EXPECT_THAT(refusal([](Plan &p) {
                Schedule &s = switchOf(p, 1, 0);
                s.operands[1].address = s.operands[3].address;
              }),
              HasSubstr("begins at "));
  // From a unit's place in the slab that neither placement knows.
  EXPECT_THAT(refusal([](Plan &p) { switchOf(p, 1, 0).operands[0].address += 256; }),
              HasSubstr("in the host slab as one run [host range]"));
  // As if placement 2 were left, in which layer 0 is not at home either.
  EXPECT_THAT(refusal([](Plan &p) { switchOf(p, 1, 0).fromPlacement = 2; }), HasSubstr("has layers.0.qkv [0, "));
  // Caches stay: a copy over one is to no home of a weight.
  EXPECT_THAT(refusal([](Plan &p) { switchOf(p, 1, 0).operands[1].address = 0; }),
              HasSubstr("begins at 0, in no slot [slot too small]"));
  // Within a placement nothing is copied to a home.
  EXPECT_THAT(refusal([](Plan &p) {
                Schedule &s = switchOf(p, 1, 0);
                s.fromPlacement = kNone;
              }),
              HasSubstr("[host range]"));
}

// Placement 2 alone has a fourth block, where layer 0 has its home in the others. They have room for none.
TEST(PlanVerifier, RefusesCachesThatGrowIntoWhatIsInUse) {
  const auto refusal = [](auto change) {
    Plan plan = test::makePlan(test::growingCaches());
    EXPECT_TRUE(verifyPlan(plan, "a.plan").ok()) << verifyPlan(plan, "a.plan");
    change(plan);
    std::string all;
    for (const Violation &violation : findViolations(plan, 100))
      all += violation.message + " [" + ruleName(violation.rule) + "]\n";
    return all;
  };
  const auto resize = [](Plan &p, uint32_t placement, int64_t blocks) {
    p.placements[placement].kvBlocks = blocks;
    for (Extent &e : p.placements[placement].extents)
      if (e.interleaved)
        e.bytes = static_cast<uint64_t>(blocks) * p.kvBlockBytes();
    for (Schedule &s : p.schedules)
      for (Operand &o : s.operands)
        if (s.placement == placement && o.interleaved)
          o.bytes = static_cast<uint64_t>(blocks) * p.kvBlockBytes();
  };
  using testing::HasSubstr;
  EXPECT_THAT(refusal([&](Plan &p) { resize(p, 0, 4); }), HasSubstr("layers.0.qkv"));
  EXPECT_THAT(refusal([&](Plan &p) { resize(p, 0, 4); }), HasSubstr("share bytes [overlap]"));
  EXPECT_THAT(refusal([&](Plan &p) { resize(p, 1, 4); }), HasSubstr("share bytes [overlap]"));
  // The most that any placement has.
  EXPECT_THAT(refusal([&](Plan &p) { resize(p, 2, 3); }), HasSubstr("kv_blocks is 4, the plan makes it 3"));
}

TEST(PlanVerifier, StopsAtTheLimit) {
  Plan plan = somePlan();
  plan.schedules[0].edges.clear();
  EXPECT_EQ(findViolations(plan, 3).size(), 3u);
  EXPECT_GT(findViolations(plan, 100).size(), 3u);
  EXPECT_TRUE(findViolations(plan, 0).empty());
}

TEST(PlanVerifier, NamesScheduleStepAndRule) {
  Plan plan = somePlan();
  source(plan, 0).address += 256;
  const absl::Status status = verifyPlan(plan, "a.plan");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::string prefix = "a.plan: schedule 0 (test decode) step " + std::to_string(copyStep(plan, 0)) +
                             ": source layers.1.out [512, 4096)";
  EXPECT_EQ(status.message().substr(0, prefix.size()), prefix);
  EXPECT_NE(status.message().find(" [host range]"), std::string::npos);
}

} // namespace
} // namespace headrace::plan
