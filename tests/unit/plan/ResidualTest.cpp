// SPDX-License-Identifier: Apache-2.0
//
// Residual streams that leave the device between layers: what the verifier accepts, and one plan wrong in one way at a
// time.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/proof/PlanVerifier.h"
#include "runtime/plan/structure/PlanStructure.h"
#include "tests/support/LongRun.h"
#include "tests/support/ShuffleBuffers.h"
#include "tests/unit/plan/BrokenPlan.h"
#include "tests/unit/plan/MakePlan.h"
#include "tests/unit/plan/Oracle.h"
#include "tests/unit/plan/PlanText.h"

namespace headrace::plan {
namespace {

using kernels::Op;
using test::Broken;

// Three layers, 32 wide, of four tokens: a residual is 4 x 32 x 4 = 512 bytes. All weights are on the device.
test::PlanOptions options(uint32_t miniBatches, int slots) {
  test::PlacementOptions placement;
  placement.residualSlots = slots;
  test::PlanOptions out{test::tinyLlama(3), {placement}};
  out.miniBatches = miniBatches;
  out.residualsLeave = true;
  return out;
}
// Two mini-batches take turns in one slot:
//
//   compute  | layer 0 of 0 |          | layer 0 of 1 |          | layer 1 of 0 | ...
//   d2h                     | 0 |                     | 1 |                     | 0
//   h2d                                                   | 0 |                     | 1 |
Plan somePlan() { return test::makePlan(options(2, 1)); }

Schedule &schedule(Plan &p) { return p.schedules[0]; }
// The n-th copy of a lane.
uint32_t copyStep(Plan &p, Lane lane, int n) {
  for (uint32_t i = 0;; ++i)
    if (schedule(p).steps[i].lane == lane && n-- == 0)
      return i;
}
Operand &source(Plan &p, Lane lane, int n) {
  return schedule(p).operands[schedule(p).steps[copyStep(p, lane, n)].firstOperand];
}
Operand &destination(Plan &p, Lane lane, int n) { return (&source(p, lane, n))[1]; }
Operand &operand(Plan &p, Op op, int32_t layer, Arg arg, uint32_t miniBatch = 0) {
  for (const Step &step : schedule(p).steps)
    if (step.kind == StepKind::Compute && step.op == op && step.layer == layer && step.miniBatch == miniBatch)
      for (uint32_t k = step.firstOperand; k < step.firstOperand + step.operandCount; ++k)
        if (schedule(p).operands[k].arg == arg)
          return schedule(p).operands[k];
  std::abort();
}
uint32_t buffer(const Plan &p, uint32_t miniBatch) {
  for (uint32_t i = 0;; ++i)
    if (p.buffers[i].kind == BufferKind::Residual && p.buffers[i].index == miniBatch)
      return i;
}
Extent &home(Plan &p, uint32_t miniBatch, size_t placement = 0) {
  std::vector<Extent> &extents = p.placements[placement].extents;
  return *std::find_if(extents.begin(), extents.end(),
                       [&](const Extent &e) { return e.buffer == buffer(p, miniBatch); });
}
void erase(Plan &p, uint32_t step) {
  schedule(p).steps.erase(schedule(p).steps.begin() + step);
  std::erase_if(schedule(p).edges, [&](const Edge &e) { return e.from == step || e.to == step; });
  for (Edge &edge : schedule(p).edges)
    for (uint32_t *end : {&edge.from, &edge.to})
      *end -= *end > step ? 1 : 0;
  for (Variant &v : p.variants)
    v.durationsNs.erase(v.durationsNs.begin() + step);
}
void dropEdges(Plan &p, Lane from, uint32_t to) {
  std::erase_if(schedule(p).edges, [&](const Edge &e) { return e.to == to && schedule(p).steps[e.from].lane == from; });
}

TEST(Residuals, PlansInWhichTheyLeaveAreAccepted) {
  std::vector<test::NamedOptions> plans = test::residualPlans();
  for (int seed = 0; seed < casesOf(5, 100); ++seed)
    plans.push_back(test::randomResidualPlan(seed));
  std::set<std::string> parts;
  for (const test::NamedOptions &named : plans) {
    const Plan plan = test::makePlan(named.options);
    test::expectAccepted(plan, named.name);
    test::expectAccepted(test::withShuffledBuffers(plan, 1), named.name + ", shuffled");
    EXPECT_TRUE(parse(test::bytesOf(serialize(plan)), "a.plan").ok()) << named.name;
    EXPECT_TRUE(test::brokenRules(plan).empty()) << named.name;
    for (uint32_t i = 0; i < plan.schedules.size(); ++i)
      EXPECT_EQ(largestLiveBytes(plan, i), test::liveBytesByBruteForce(plan, i))
          << named.name << ", schedule " << plan.schedules[i].name;
    parts.insert(std::to_string(plan.miniBatches) + " mini-batches");
    for (const Schedule &s : plan.schedules) {
      bool tails = false, weights = false, residuals = false;
      for (const Step &step : s.steps) {
        if (step.kind != StepKind::Copy)
          continue;
        const BufferKind kind = plan.buffers[s.operands[step.firstOperand].buffer].kind;
        tails |= kind == BufferKind::Kv;
        weights |= kind == BufferKind::Weight;
        if (kind != BufferKind::Residual)
          continue;
        residuals = true;
        parts.insert(step.lane == Lane::H2D ? "prefetches" : "evicts");
        parts.insert(step.resizable ? "of the rows in use" : "of all rows");
      }
      if (s.iterationClass != IterationClass::Transition)
        parts.insert(residuals ? "leaves" : "stays");
      if (residuals)
        parts.insert({tails ? "with tails" : "without tails", weights ? "with weights" : "without weights"});
    }
    if (plan.placements.size() > 1)
      parts.insert("several placements");
  }
  EXPECT_EQ(parts.size(), 15u);
}

// While the transients are four, one of each mini-batch from the first embedding on, there is one slot, or two.
TEST(Residuals, TakeTheBytesOfTheirSlots) {
  test::PlanOptions stay = options(4, 1);
  stay.residualsLeave = false;
  const uint64_t all = largestLiveBytes(test::makePlan(stay), 0);
  for (const int slots : {1, 2, 3})
    EXPECT_EQ(all - largestLiveBytes(test::makePlan(options(4, slots)), 0), static_cast<uint64_t>(4 - slots) * 512)
        << slots;
}

TEST(Residuals, WithoutTheirStructureAreRefused) {
  test::PlanOptions two = options(2, 1); // placements
  two.placements.push_back(two.placements.front());
  two.placements.back().name = "other";
  two.placements.back().layers = {1};
  const auto refused = [&](const std::string &message, auto make) {
    Plan plan = test::makePlan(two);
    ASSERT_FALSE(findStructureFault(plan).has_value());
    make(plan);
    const absl::Status status = parse(test::bytesOf(serialize(plan)), "a.plan").status();
    EXPECT_NE(status.message().find(message), std::string::npos) << message << "\n  was " << status.message();
    ASSERT_FALSE(findViolations(plan).empty()) << message;
    EXPECT_NE(findViolations(plan)[0].message.find(message), std::string::npos) << message;
  };
  refused("buffers has no residual of mini-batch 1, but of another", [](Plan &p) {
    p.buffers[buffer(p, 1)].layer = 0;
    p.buffers[buffer(p, 1)].kind = BufferKind::Act;
  });
  refused("].layer is 0, expected -1 to -1", [](Plan &p) { p.buffers[buffer(p, 1)].layer = 0; });
  refused("].index is 2, expected at most 1", [](Plan &p) { p.buffers[buffer(p, 1)].index = 2; });
  refused("is residual 0, as buffers[", [](Plan &p) { p.buffers[buffer(p, 1)].index = 0; });
  refused(" has residual.0 in space 0, expected it on the host, not direct",
          [](Plan &p) { home(p, 0).space = Space::Device; });
  refused(" has residual.1 in space 1, direct, expected it on the host, not direct",
          [](Plan &p) { home(p, 1, 1).direct = true; });
  refused(".bytes is 256, expected all 512 of residual.0", [](Plan &p) { home(p, 0).bytes = 256; });
  Plan good = test::makePlan(two);
  refused(", expected " + std::to_string(home(good, 1).address) + " as in the first placement",
          [](Plan &p) { home(p, 1, 1).address += 512; });
  refused(".mini_batch is 1, expected 0, whose residual.0 is",
          [](Plan &p) { schedule(p).steps[copyStep(p, Lane::D2H, 0)].miniBatch = 1; });
  refused(" copies bytes [0, 256) of residual.0, expected all 512",
          [](Plan &p) { source(p, Lane::D2H, 0).bytes = destination(p, Lane::D2H, 0).bytes = 256; });
  refused(".dirty_only is set, but it copies residual.0, expected blocks of a cache",
          [](Plan &p) { schedule(p).steps[copyStep(p, Lane::D2H, 0)].dirtyOnly = true; });
}

TEST(Residuals, OperandsThatAreNotTheOpsAreRefused) {
  for (const Broken &broken : std::vector<Broken>{
           {"another size", Rule::Structure, "(residual.0) is 768, expected 512",
            [](Plan &p) {
              p.buffers[buffer(p, 0)].bytes = home(p, 0).bytes = 768;
              for (Operand &o : schedule(p).operands)
                if (o.buffer == buffer(p, 0))
                  o.bytes = 768;
            }},
           {"another name", Rule::Structure, " is residual of layer -1, expected residual.1 of layer -1",
            [](Plan &p) { p.buffers[buffer(p, 1)].name = "residual"; }},
           {"another's embedding", Rule::Structure,
            "embed: operand x is residual.1 [0, 512), expected all of residual.0",
            [](Plan &p) { operand(p, Op::Embed, -1, Arg::X).buffer = buffer(p, 1); }},
           {"a transient", Rule::Structure, "norm: operand x is h [0, 512), expected all of residual.0",
            [](Plan &p) {
              const Operand h = operand(p, Op::Norm, 0, Arg::Y);
              operand(p, Op::Norm, 0, Arg::X).buffer = h.buffer;
              operand(p, Op::Norm, 0, Arg::X).address = h.address;
            }},
           {"a part", Rule::Structure, "gather_rows: operand x is residual.0 [0, 448), expected all of residual.0",
            [](Plan &p) { operand(p, Op::GatherRows, -1, Arg::X).bytes -= 64; }},
           {"a sum on the host", Rule::Structure, "linear: operand y is residual.0 in space 1, expected on the device",
            [](Plan &p) {
              for (Operand &o : schedule(p).operands)
                if (o.arg == Arg::Y && o.buffer == buffer(p, 0)) {
                  o.space = Space::Host;
                  o.address = home(p, 0).address;
                  return;
                }
            }}})
    test::expectRefused(somePlan(), broken);
}

TEST(Residuals, OutOfPlaceAreRefused) {
  for (const Broken &broken : std::vector<Broken>{
           {"an embedding in no slot", Rule::SlotTooSmall, "x residual.0 [0, 512) begins at 0, in no slot",
            [](Plan &p) { operand(p, Op::Embed, -1, Arg::X).address = 0; }},
           {"a prefetch before the slot", Rule::SlotTooSmall, ", in no slot",
            [](Plan &p) { destination(p, Lane::H2D, 0).address -= 256; }},
           {"a home elsewhere", Rule::HostRange,
            "destination residual.0 [0, 512) is not at 0 in the host slab as one run",
            [](Plan &p) { destination(p, Lane::D2H, 0).address = 0; }},
           {"two homes in one", Rule::HostRange, "in the host slab shares bytes with another buffer",
            [](Plan &p) { home(p, 1).address = home(p, 0).address; }}})
    test::expectRefused(somePlan(), broken);
}

TEST(Residuals, ThatAreNotThereAreRefused) {
  for (const Broken &broken : std::vector<Broken>{
           {"a first evict left out", Rule::UseAfterRelease, " in the host slab, but finds nothing",
            [](Plan &p) { erase(p, copyStep(p, Lane::D2H, 0)); }},
           {"a second evict left out", Rule::StaleCopy, " has since written elsewhere",
            [](Plan &p) {
              const uint32_t evict = copyStep(p, Lane::D2H, 2);
              erase(p, evict); // what is brought there now waits for the sum itself
              schedule(p).edges.push_back({evict - 1, evict, EdgeKind::War});
              std::sort(schedule(p).edges.begin(), schedule(p).edges.end(),
                        [](const Edge &a, const Edge &b) { return std::pair(a.to, a.from) < std::pair(b.to, b.from); });
            }},
           {"a prefetch left out", Rule::UseAfterRelease, ", but finds residual.1 [0, 512), written by step ",
            [](Plan &p) { erase(p, copyStep(p, Lane::H2D, 0)); }},
           {"a layer that another's has not reached", Rule::EntryExit, ", but finds nothing",
            [](Plan &p) { erase(p, 0); }},
           {"a prefetch that does not wait", Rule::ReadBeforeReady, ", and may start before step ",
            [](Plan &p) {
              // Without all of them, a prefetch knows of the evict through nothing else.
              for (int n = 0; n < 4; ++n)
                dropEdges(p, Lane::D2H, copyStep(p, Lane::H2D, n));
            }},
           {"a layer before its prefetch", Rule::ReadBeforeReady, " of lane h2d has written it",
            [](Plan &p) {
              std::erase_if(schedule(p).edges,
                            [&](const Edge &e) { return schedule(p).steps[e.from].lane == Lane::H2D; });
            }},
           {"an embedding over what is on its way home", Rule::OverwriteLive,
            " of lane d2h has read residual.0 [0, 512)", [](Plan &p) {
              for (uint32_t i = 0; i < schedule(p).steps.size(); ++i)
                if (schedule(p).steps[i].lane == Lane::Compute && schedule(p).steps[i].op == Op::Embed)
                  dropEdges(p, Lane::D2H, i);
            }}})
    test::expectRefused(somePlan(), broken);
}

// Nothing of a residual is there at the edge of an iteration, nor in a transition.
TEST(Residuals, BetweenIterationsAreRefused) {
  test::PlanOptions moving = options(2, 1);
  moving.placements[0].layers = {1};
  moving.placements[0].limits[0].cutUnits = 1;
  const Plan plan = test::makePlan(moving); // schedule 1 leads to its entry state
  test::expectAccepted(plan, "with a layer's weights away");
  test::expectRefused(plan,
                      {"a content", Rule::EntryExit,
                       "residual.0 [0, 512) is a residual, of which nothing is kept between iterations", [](Plan &p) {
                         const Slot slot = p.placements[0].slots.back();
                         p.states[1].contents.push_back({buffer(p, 0), 0, 512, slot.address});
                       }});
  test::expectRefused(plan, {"a copy", Rule::HostRange,
                             "residual.0 [0, 512) is copied by a transition, expected in iterations only", [](Plan &p) {
                               Schedule &s = p.schedules[1];
                               Step step = schedule(p).steps[copyStep(p, Lane::D2H, 0)];
                               const Operand from = source(p, Lane::D2H, 0), to = destination(p, Lane::D2H, 0);
                               step.firstOperand = static_cast<uint32_t>(s.operands.size());
                               s.operands.insert(s.operands.end(), {from, to});
                               s.steps.push_back(step);
                               p.transitions[0].durationsNs.push_back(1);
                             }});
}

} // namespace
} // namespace headrace::plan
