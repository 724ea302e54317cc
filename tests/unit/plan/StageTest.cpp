// SPDX-License-Identifier: Apache-2.0
//
// Plans of stages: what the verifier accepts, and one plan wrong in one way at a time.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/proof/PlanVerifier.h"
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

// Layers [first, first + 2) of six, 32 wide, of four tokens: a residual is 4 x 32 x 4 = 512 bytes. Two mini-batches,
// whose streams stay in a slot each:
//
//   h2d      | 0 | 1 |
//   compute      | layer 0 of 0 | layer 0 of 1 | layer 1 of 0 | layer 1 of 1 |   | publish |
//   d2h                                                       | 0 |          | 1 |
Plan stage(int64_t first) {
  test::PlacementOptions placement;
  placement.residualSlots = 2;
  placement.residualsStay = true;
  test::PlanOptions options{model::stageOf(test::tinyLlama(6), first, 2), {placement}};
  options.miniBatches = 2;
  return test::makePlan(options);
}
Plan firstStage() { return stage(0); }
Plan middleStage() { return stage(2); }
Plan lastStage() { return stage(4); }

Schedule &schedule(Plan &p) { return p.schedules[0]; }
std::vector<uint32_t> copies(const Plan &p, Lane lane) {
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < p.schedules[0].steps.size(); ++i)
    if (p.schedules[0].steps[i].lane == lane)
      out.push_back(i);
  return out;
}
uint32_t stepOf(const Plan &p, StepKind kind) {
  for (uint32_t i = 0;; ++i)
    if (p.schedules[0].steps[i].kind == kind)
      return i;
}
// The n-th of a publish.
Operand &published(Plan &p, uint32_t n) {
  const Step &publish = schedule(p).steps[stepOf(p, StepKind::Publish)];
  for (uint32_t k = publish.firstOperand;; ++k)
    if (schedule(p).operands[k].arg == Arg::Residual && n-- == 0)
      return schedule(p).operands[k];
}
std::set<Op> opsOf(const Plan &p) {
  std::set<Op> out;
  for (const Step &step : p.schedules[0].steps)
    if (step.kind == StepKind::Compute)
      out.insert(step.op);
  return out;
}
std::vector<std::string> weightsBesideLayers(const Plan &p) {
  std::vector<std::string> out;
  for (const Buffer &b : p.buffers)
    if (b.kind == BufferKind::Weight && b.layer < 0)
      out.push_back(b.name);
  return out;
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

TEST(Stages, HaveWhatIsTheirs) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(weightsBesideLayers(firstStage()), Names{"embedding"});
  EXPECT_EQ(weightsBesideLayers(middleStage()), Names{});
  EXPECT_EQ(weightsBesideLayers(lastStage()), Names{"head"});
  const std::set<Op> layer = {Op::Norm, Op::Linear, Op::RopeAppend, Op::Attention, Op::Activate};
  std::set<Op> first = layer, last = layer;
  first.insert(Op::Embed);
  last.insert({Op::KeepIds, Op::GatherRows, Op::Sample});
  EXPECT_EQ(opsOf(firstStage()), first);
  EXPECT_EQ(opsOf(middleStage()), layer);
  EXPECT_EQ(opsOf(lastStage()), last);
  // A copy of each mini-batch's 512 bytes, and no other.
  for (const auto &[first, h2d, d2h] : {std::tuple(0, 0u, 2u), {2, 2u, 2u}, {4, 2u, 0u}}) {
    const Plan plan = stage(first);
    EXPECT_EQ(copies(plan, Lane::H2D).size(), h2d) << first;
    EXPECT_EQ(copies(plan, Lane::D2H).size(), d2h) << first;
    const LinkBytes bytes = linkBytes(plan.schedules[0]);
    EXPECT_EQ(bytes.h2d, h2d * 512) << first;
    EXPECT_EQ(bytes.d2h, d2h * 512) << first;
  }
}

TEST(Stages, AreAccepted) {
  std::vector<test::NamedOptions> plans = test::stagePlans();
  for (int seed = 0; seed < casesOf(5, 100); ++seed)
    plans.push_back(test::randomStagePlan(seed));
  std::set<std::string> parts;
  for (const test::NamedOptions &named : plans) {
    const Plan plan = test::makePlan(named.options);
    test::expectAccepted(plan, named.name);
    test::expectAccepted(test::withShuffledBuffers(plan, 1), named.name + ", shuffled");
    const auto again = parse(test::bytesOf(serialize(plan)), "a.plan");
    ASSERT_TRUE(again.ok()) << named.name << ": " << again.status();
    EXPECT_EQ(again->model->stage, plan.model->stage) << named.name;
    for (uint32_t i = 0; i < plan.schedules.size(); ++i)
      EXPECT_EQ(largestLiveBytes(plan, i), test::liveBytesByBruteForce(plan, i))
          << named.name << ", schedule " << plan.schedules[i].name;
    parts.insert(std::to_string(plan.miniBatches) + " mini-batches");
    parts.insert(plan.receives() ? plan.sends() ? "middle" : "last" : "first");
    for (const Schedule &s : plan.schedules) {
      std::set<BufferKind> copied;
      uint32_t ofResiduals = 0;
      for (const Step &step : s.steps) {
        if (step.lane == Lane::Cpu)
          parts.insert("attention on the CPU");
        if (step.kind != StepKind::Copy || s.operands[step.firstOperand].buffer >= plan.buffers.size())
          continue;
        const BufferKind kind = plan.buffers[s.operands[step.firstOperand].buffer].kind;
        copied.insert(kind);
        ofResiduals += kind == BufferKind::Residual ? 1 : 0;
      }
      for (const BufferKind kind : {BufferKind::Weight, BufferKind::Kv, BufferKind::Act})
        if (copied.contains(kind) && s.iterationClass != IterationClass::Transition)
          parts.insert(std::string(bufferKindName(kind)) + " away");
      if (s.iterationClass == IterationClass::Transition)
        parts.insert("a transition");
      else
        parts.insert(ofResiduals == plan.miniBatches * ((plan.receives() ? 1 : 0) + (plan.sends() ? 1 : 0))
                         ? "the stream stays"
                         : "the stream leaves");
    }
    if (plan.placements.size() > 1)
      parts.insert("several placements");
  }
  EXPECT_EQ(parts.size(), 15u); // of one to four mini-batches
}

TEST(Stages, WithoutTheirStructureAreRefused) {
  for (const Broken &broken : std::vector<Broken>{
           {"the head of another", Rule::Structure, "is weight 9, the head, which another stage of the model has",
            [](Plan &p) { // of 2 layers: 1 + 2 x 4
              p.buffers.push_back({"head", BufferKind::Weight, -1, 256, 9});
            }},
           {"the embedding of another", Rule::Structure,
            "is weight 0, the embedding, which another stage of the model has",
            [](Plan &p) {
              p.buffers.push_back({"embedding", BufferKind::Weight, -1, 256, 0});
            }},
           {"a layer's weight", Rule::Structure, "buffers has no weight 1, a model of 2 layers has 10",
            [](Plan &p) { p.buffers.erase(p.buffers.begin()); }},
           {"no residuals", Rule::Structure, "buffers has no residual of mini-batch 1, a stage has one",
            [](Plan &p) { std::erase_if(p.buffers, [](const Buffer &b) { return b.kind == BufferKind::Residual; }); }},
           {"two outputs", Rule::Structure, "has two operands for output",
            [](Plan &p) { published(p, 1).arg = Arg::Output; }}})
    test::expectRefused(middleStage(), broken);
  test::expectRefused(lastStage(),
                      {"two residuals beside tokens", Rule::Structure, "has two operands for residual", [](Plan &p) {
                         Step &publish = schedule(p).steps[stepOf(p, StepKind::Publish)];
                         const Operand output = schedule(p).operands[publish.firstOperand];
                         Operand rows = output;
                         rows.arg = Arg::Residual;
                         publish.firstOperand = static_cast<uint32_t>(schedule(p).operands.size());
                         publish.operandCount = 3;
                         for (const Operand &o : {output, rows, rows})
                           schedule(p).operands.push_back(o);
                       }});
}

TEST(Stages, StepsThatAreAnothersAreRefused) {
  const auto change = [](Op op) {
    return [op](Plan &p) {
      for (Step &step : schedule(p).steps)
        if (step.kind == StepKind::Compute && step.op == Op::Activate) {
          step.op = op;
          return;
        }
    };
  };
  for (const Broken &broken : std::vector<Broken>{
           {"an embedding", Rule::Structure, "embed: the stage's rows come from another, expected none that it embeds",
            change(Op::Embed)},
           {"gathered rows", Rule::Structure, "gather_rows: the stage has no head", change(Op::GatherRows)},
           {"a sample", Rule::Structure, "sample: the stage has no head", change(Op::Sample)},
           {"ids", Rule::Structure, "keep_ids: the stage has no head", change(Op::KeepIds)}})
    test::expectRefused(middleStage(), broken);
  for (const Plan &plan : {firstStage(), test::makePlan({test::tinyLlama(2), {{}}})})
    test::expectRefused(plan, {"ids beside those that embed keeps", Rule::Structure,
                               "keep_ids: the plan embeds, expected ids that embed keeps", change(Op::KeepIds)});
}

// The ids of all rows are where penalties find them, in the plan that samples.
TEST(Stages, IdsThatAreNotKeptAreRefused) {
  const auto keeps = [](const Plan &p, uint32_t miniBatch) {
    for (uint32_t i = 0;; ++i)
      if (const Step &step = p.schedules[0].steps[i];
          step.kind == StepKind::Compute && step.op == Op::KeepIds && step.miniBatch == miniBatch)
        return i;
  };
  const auto operand = [keeps](Plan &p, Arg arg) -> Operand & {
    const Step &step = schedule(p).steps[keeps(p, 1)];
    for (uint32_t k = step.firstOperand;; ++k)
      if (schedule(p).operands[k].arg == arg)
        return schedule(p).operands[k];
  };
  for (const Broken &broken : std::vector<Broken>{
           {"no step", Rule::Structure, "sample: no step before it keeps the ids of mini-batch 1",
            [&](Plan &p) { erase(p, keeps(p, 1)); }},
           {"those of another", Rule::Structure, "sample: no step before it keeps the ids of mini-batch 0",
            [&](Plan &p) {
              Step &step = schedule(p).steps[keeps(p, 0)];
              const Step &other = schedule(p).steps[keeps(p, 1)];
              step.miniBatch = 1, step.firstOperand = other.firstOperand, step.operandCount = other.operandCount;
            }},
           {"where another's are", Rule::Structure,
            "keep_ids: operand history is history [0, 256), expected history [256, 512) of mini-batch 1",
            [&](Plan &p) {
              Operand &history = operand(p, Arg::History);
              history.bufferOffset -= history.bytes, history.address -= history.bytes;
            }},
           {"by what another sampled", Rule::Structure,
            "keep_ids: operand sampled is sampled [0, 256), expected sampled [256, 512) of mini-batch 1",
            [&](Plan &p) {
              Operand &sampled = operand(p, Arg::Sampled);
              sampled.bufferOffset -= sampled.bytes, sampled.address -= sampled.bytes;
            }},
           {"nowhere", Rule::Structure, "keep_ids: operand history has access 0, which the op does not make",
            [&](Plan &p) { operand(p, Arg::History).access = Access::Read; }}})
    test::expectRefused(lastStage(), broken);
}

TEST(Stages, RowsThatAreNotPublishedAreRefused) {
  for (const Broken &broken : std::vector<Broken>{
           {"one left out", Rule::Structure, "publish: the rows of mini-batch 1 are not published",
            [](Plan &p) { --schedule(p).steps[stepOf(p, StepKind::Publish)].operandCount; }},
           {"in another order", Rule::Structure,
            "publish: operand residual 0 is residual.1 [0, 512) in space 1, expected all of residual.0 to be read on "
            "the host",
            [](Plan &p) { std::swap(published(p, 0), published(p, 1)); }},
           {"a part", Rule::Structure, "publish: operand residual 0 is residual.0 [0, 448) in space 1",
            [](Plan &p) { published(p, 0).bytes -= 64; }},
           {"in a slot", Rule::Structure, "publish: operand residual 0 is residual.0 [0, 512) in space 0",
            [](Plan &p) { published(p, 0).space = Space::Device; }},
           {"at another home", Rule::HostRange, "residual residual.0 [0, 512) is not at ",
            [](Plan &p) { published(p, 0).address = published(p, 1).address; }},
           {"before the send has ended", Rule::ReadBeforeReady, " of lane d2h has written it",
            [](Plan &p) {
              const uint32_t publish = stepOf(p, StepKind::Publish);
              std::erase_if(schedule(p).edges, [&](const Edge &e) { return e.to == publish; });
            }},
           {"rows that came and were added to elsewhere", Rule::StaleCopy, " has since written elsewhere",
            [](Plan &p) { erase(p, copies(p, Lane::D2H)[0]); }}})
    test::expectRefused(middleStage(), broken);
  test::expectRefused(firstStage(), {"rows of no step", Rule::UseAfterRelease, " in the host slab, but finds nothing",
                                     [](Plan &p) { erase(p, copies(p, Lane::D2H)[0]); }});
}

TEST(Stages, RowsThatHaveNotComeAreRefused) {
  for (const Broken &broken : std::vector<Broken>{
           {"no copy", Rule::EntryExit, "reads residual.0 [0, 512) at ",
            [](Plan &p) { erase(p, copies(p, Lane::H2D)[0]); }},
           {"a layer that does not wait", Rule::ReadBeforeReady, " of lane h2d has written it", [](Plan &p) {
              std::erase_if(schedule(p).edges,
                            [&](const Edge &e) { return schedule(p).steps[e.from].lane == Lane::H2D; });
            }}})
    test::expectRefused(lastStage(), broken);
}

// A copy more, from a slot home: right in the order of the edge, but the caller may have put the next rows there.
TEST(Stages, AHomeThatIsWrittenBehindThePublishIsRefused) {
  for (const Plan &plan : {firstStage(), middleStage(), lastStage()})
    test::expectRefused(plan, {"a copy", Rule::OverwriteLive, " in the host slab, expected before step ", [](Plan &p) {
                                 Schedule &s = schedule(p);
                                 const uint32_t publish = stepOf(p, StepKind::Publish);
                                 const auto stream =
                                     std::find_if(s.operands.begin(), s.operands.end(), [&](const Operand &o) {
                                       return o.buffer < p.buffers.size() &&
                                              p.buffers[o.buffer].kind == BufferKind::Residual &&
                                              o.space == Space::Device;
                                     });
                                 Operand from = *stream, to = *stream;
                                 from.access = Access::Read;
                                 from.arg = Arg::Source;
                                 to.access = Access::Write;
                                 to.arg = Arg::Destination;
                                 to.space = Space::Host;
                                 for (const Extent &e : p.placements[0].extents)
                                   if (e.buffer == to.buffer)
                                     to.address = e.address;
                                 Step copy;
                                 copy.kind = StepKind::Copy;
                                 copy.lane = Lane::D2H;
                                 copy.part = Part::Movement;
                                 copy.miniBatch = static_cast<uint8_t>(p.buffers[to.buffer].index);
                                 copy.linkBytes = to.bytes;
                                 copy.firstOperand = static_cast<uint32_t>(s.operands.size());
                                 copy.operandCount = 2;
                                 s.operands.insert(s.operands.end(), {from, to});
                                 s.steps.push_back(copy);
                                 s.edges.push_back({publish, publish + 1, EdgeKind::War});
                                 for (Variant &v : p.variants)
                                   v.durationsNs.push_back(0);
                               }});
}

} // namespace
} // namespace headrace::plan
