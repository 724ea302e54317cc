// SPDX-License-Identifier: Apache-2.0
//
// Activation blocks (HybridServe): what the verifier accepts, and one plan wrong in one way at a time.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <vector>

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
#include "tests/unit/plan/PlanParts.h"
#include "tests/unit/plan/PlanText.h"

namespace headrace::plan {
namespace {

using kernels::Op;
using test::Broken;

// Three layers of two mini-batches; layer 1 is away. Two sequences of four blocks of four tokens, of which every other
// one keeps activations: 1 + 4 KV blocks and 4 activation blocks. In a layer, these have 4 x 4 x 32 x 4 = 2048 bytes,
// and the keys and values that are made from them 4 x 2 x 16 x 4 x 4 = 2048. The ids of 9 blocks, 144 bytes, have 256.
test::PlanOptions options(model::ModelSpec model = test::tinyLlama(3)) {
  test::PlacementOptions placement;
  placement.layers = {1};
  test::PlanOptions out{std::move(model), {placement}};
  out.blockTokens = 4;
  out.miniBatches = 2;
  out.acts.share = {1, 2};
  out.acts.rebuildsFirst = true;
  out.acts.ranges = 3;
  return out;
}
Plan somePlan() { return test::makePlan(options()); }

Schedule &schedule(Plan &p) { return p.schedules[0]; }
uint32_t stepOf(const Plan &p, Op op, int32_t layer, uint32_t miniBatch = 0) {
  for (uint32_t i = 0;; ++i)
    if (const Step &step = p.schedules[0].steps[i];
        step.kind == StepKind::Compute && step.op == op && step.layer == layer && step.miniBatch == miniBatch)
      return i;
}
Operand &operand(Plan &p, Op op, int32_t layer, Arg arg, uint32_t miniBatch = 0) {
  const Step &step = schedule(p).steps[stepOf(p, op, layer, miniBatch)];
  for (uint32_t k = step.firstOperand; k < step.firstOperand + step.operandCount; ++k)
    if (schedule(p).operands[k].arg == arg)
      return schedule(p).operands[k];
  std::abort();
}
uint32_t acts(const Plan &p, int64_t layer, uint32_t miniBatch = 0) { return test::actBuffer(p, layer, miniBatch); }
Extent &home(Plan &p, uint32_t buffer) {
  return *std::find_if(p.placements[0].extents.begin(), p.placements[0].extents.end(),
                       [&](const Extent &e) { return e.buffer == buffer; });
}
void use(Plan &p, Operand &o, uint32_t buffer) {
  o.buffer = buffer;
  o.address =
      buffer < p.buffers.size() ? home(p, buffer).address : schedule(p).locals[buffer - p.buffers.size()].address;
}
// To stand behind what is now a later step, or before an earlier one.
void move(Plan &p, uint32_t from, uint32_t to) {
  std::vector<Step> &steps = schedule(p).steps;
  const Step step = steps[from];
  steps.erase(steps.begin() + from);
  steps.insert(steps.begin() + to, step);
  test::connect(p, schedule(p));
}
// One operand more.
void add(Plan &p, uint32_t step, Operand operand) {
  Schedule &s = schedule(p);
  const auto first = s.operands.begin() + s.steps[step].firstOperand;
  std::vector<Operand> all(first, first + s.steps[step].operandCount);
  all.push_back(operand);
  s.steps[step].firstOperand = static_cast<uint32_t>(s.operands.size());
  s.steps[step].operandCount = static_cast<uint32_t>(all.size());
  s.operands.insert(s.operands.end(), all.begin(), all.end());
}
void resize(Plan &p, uint32_t buffer, uint64_t bytes) {
  p.buffers[buffer].bytes = home(p, buffer).bytes = bytes;
  for (Operand &o : schedule(p).operands)
    if (o.buffer == buffer)
      o.bytes = bytes;
}

TEST(ActBlocks, PlansThatHaveThemAreAccepted) {
  std::vector<test::NamedOptions> plans = test::actPlans();
  for (int seed = 0; seed < casesOf(20, 400); ++seed)
    plans.push_back(test::randomActPlan(seed));
  std::set<std::string> parts;
  for (const test::NamedOptions &named : plans) {
    const Plan plan = test::makePlan(named.options);
    test::expectAccepted(plan, named.name);
    const Plan shuffled = test::withShuffledBuffers(plan, 1);
    test::expectAccepted(shuffled, named.name + ", shuffled");
    for (const Plan &p : {plan, shuffled}) {
      const absl::StatusOr<Plan> back = parse(test::bytesOf(serialize(p)), "a.plan");
      ASSERT_TRUE(back.ok()) << named.name << ": " << back.status();
      EXPECT_EQ(test::textOf(*back), test::textOf(p)) << named.name;
      EXPECT_TRUE(test::brokenRules(p).empty()) << named.name;
    }
    for (uint32_t i = 0; i < plan.schedules.size(); ++i)
      EXPECT_EQ(largestLiveBytes(plan, i), test::liveBytesByBruteForce(plan, i))
          << named.name << ", schedule " << plan.schedules[i].name;
    parts.merge(test::partsOfActs(plan));
  }
  EXPECT_EQ(parts.size(), 18u); // all that partsOfActs() names
}

// Two sequences of a variant's context, 9 to 12 tokens, have two activation blocks each.
TEST(ActBlocks, AreCountedWithKeysAndValues) {
  const Plan plan = somePlan();
  EXPECT_EQ(plan.actBlockBytes(), 4u * 32 * 4);
  EXPECT_EQ(plan.mostContextBlocks(), 8);
  const DeviceBytes bytes = deviceBytes(plan, 0);
  EXPECT_EQ(bytes.kv, 6 * (5 * 512 + 4 * 512u)); // by layer and mini-batch: 5 KV blocks, 4 others
  Variant variant = plan.variants[0];
  for (const auto &[sequences, context, rows] : {std::tuple(1, 1, 4), {1, 4, 4}, {1, 9, 8}, {2, 12, 16}, {2, 16, 16}}) {
    variant.sequences = sequences;
    variant.context = context;
    EXPECT_EQ(actRows(plan, variant), rows) << sequences << " of " << context;
  }
}

// All lengths that up to three sequences may have, one by one.
TEST(ActBlocks, SufficeForAnySequences) {
  for (const model::ActRatio share : {model::ActRatio{1, 2}, {1, 3}, {2, 3}, {3, 4}, {5, 7}, {1, 1}})
    for (int64_t longest = 1; longest <= 7; ++longest)
      for (int64_t all = 1; all <= 3 * longest; ++all) {
        const model::BlocksOfKinds kinds = model::blocksOfKinds(share, all, 3, longest);
        int64_t act = 0, kv = 0; // the most that any have
        for (int64_t a = 0; a <= longest; ++a)
          for (int64_t b = 0; b <= a; ++b)
            for (int64_t c = 0; c <= b && a + b + c <= all; ++c) {
              int64_t kept = 0;
              for (const int64_t blocks : {a, b, c})
                for (int64_t block = 0; block < blocks; ++block)
                  kept += share.isAct(block) ? 1 : 0;
              act = std::max(act, kept);
              kv = std::max(kv, a + b + c - kept);
            }
        EXPECT_GE(kinds.act, act) << share.num << "/" << share.den << " of " << all << ", at most " << longest;
        EXPECT_GE(kinds.kv, kv) << share.num << "/" << share.den << " of " << all << ", at most " << longest;
      }
}

TEST(ActBlocks, WithoutTheirStructureAreRefused) {
  const auto refusedOf = [&](const Plan &good, const std::string &message, auto make) {
    ASSERT_FALSE(findStructureFault(good).has_value());
    Plan plan = good;
    make(plan);
    ASSERT_FALSE(findViolations(plan).empty()) << message;
    EXPECT_NE(findViolations(plan)[0].message.find(message), std::string::npos)
        << message << "\n  was " << findViolations(plan)[0].message;
    EXPECT_EQ(test::brokenRules(plan), std::set<Rule>{Rule::Structure}) << message;
  };
  const auto refused = [&](const std::string &message, auto make) {
    refusedOf(somePlan(), message, make);
    // The meta's limits are not in a file: what it says of them follows from the rest.
    Plan plan = somePlan();
    make(plan);
    const absl::Status status = parse(test::bytesOf(serialize(plan)), "a.plan").status();
    EXPECT_NE(status.message().find(message), std::string::npos) << message << "\n  was " << status.message();
  };
  // A file has the share among its inputs.
  const auto refusedShare = [&](const std::string &found, const std::string &read, const model::ActRatio &share) {
    refusedOf(somePlan(), found, [&](Plan &p) { p.actRatio = share; });
    Plan plan = somePlan();
    plan.actRatio = share;
    const absl::Status status = parse(test::bytesOf(serialize(plan)), "a.plan").status();
    EXPECT_NE(status.message().find(read), std::string::npos) << status;
  };
  refusedShare("act_den is 0, expected 1 to 1000000", "inputs: expected goal.device_memory", {1, 0}); // "auto"
  refusedShare("act_den is 1000001, expected 1 to 1000000", "policy.act_ratio = \"1/1000001\": expected",
               {1, 1'000'001});
  refusedShare("act_num is 3, expected 0 to 2", "policy.act_ratio = \"3/2\": expected", {3, 2});
  refusedShare("act_num is -1, expected 0 to 2", "policy.act_ratio = \"-1/2\": expected", {-1, 2});
  refusedShare("act_num is 2 of 4, expected lowest terms", "inputs: not as headrace writes them", {2, 4});
  refused("act_blocks is -1, expected 0 to ", [](Plan &p) { p.actBlocks = p.metaLayout.maxActBlocks = -1; });
  refused("act_blocks is 2147483643, expected 0 to 2147483642",
          [](Plan &p) { p.actBlocks = p.metaLayout.maxActBlocks = 2147483643; });
  refused("context_blocks is 0, expected 1 to ", [](Plan &p) { p.contextBlocks = 0; });
  refused("kv_blocks is 5 and act_blocks 3, expected at least 5 and 4 for context_blocks 8 of which 1 of 2 keep "
          "activations",
          [](Plan &p) { p.actBlocks = p.metaLayout.maxActBlocks = 3; });
  refused("kv_blocks is 4 and act_blocks 4, expected at least 5 and 4",
          [](Plan &p) { p.kvBlocks = p.placements[0].kvBlocks = p.metaLayout.firstActBlock = 4; });
  refused("kv_blocks is 5 and act_blocks 4, expected at least 3 and 6", [](Plan &p) { p.actRatio = {3, 4}; });
  refused("buffers has no act of layer 2 and mini-batch 1", [](Plan &p) { p.buffers[acts(p, 2, 1)].index = 7; });
  refused("is act 0 of layer 0, as buffers[", [](Plan &p) { p.buffers[acts(p, 1)].layer = 0; });
  refused("].layer is -1, expected 0 to 2", [](Plan &p) { p.buffers[acts(p, 1)].layer = -1; });
  refusedOf(somePlan(), "the meta buffer is for 5 activation blocks from number 5 on, the plan has 4 from 5 on",
            [](Plan &p) { p.metaLayout.maxActBlocks = 5; });
  refusedOf(somePlan(), "the meta buffer is for 4 activation blocks from number 6 on, the plan has 4 from 5 on",
            [](Plan &p) { p.metaLayout.firstActBlock = 6; });
  // Where there are none.
  test::PlanOptions without = options();
  without.acts = {};
  const Plan none = test::makePlan(without);
  refusedOf(none, "act_num is 1 of 2 and context_blocks 0, expected 0 of 1 and 0: there are no activation blocks",
            [](Plan &p) {
              p.actRatio = {1, 2};
            });
  refusedOf(none, "act_num is 0 of 1 and context_blocks 1, expected 0 of 1 and 0: there are no activation blocks",
            [](Plan &p) { p.contextBlocks = 1; });
  refusedOf(none, "the meta buffer is for 1 activation blocks from number 2147483647 on, the plan has 0 from 9 on",
            [](Plan &p) { p.metaLayout.maxActBlocks = 1; });
}

TEST(ActBlocks, OfAnotherSizeAreRefused) {
  for (const Broken &broken :
       std::vector<Broken>{{"a block short", Rule::Structure, "(act.1.0) is 1536, expected 2048",
                            [](Plan &p) { resize(p, acts(p, 1), 1536); }},
                           {"a block too many", Rule::Structure, "(act.1.0) is 2560, expected 2048",
                            [](Plan &p) {
                              resize(p, acts(p, 1), 2560);
                              for (const Extent &e : std::vector<Extent>(p.placements[0].extents))
                                if (e.space == Space::Device && e.address > home(p, acts(p, 1)).address)
                                  home(p, e.buffer).address += 512;
                            }},
                           {"another name", Rule::Structure, " is act.1 of layer 1, expected act.1.1 of layer 1",
                            [](Plan &p) { p.buffers[acts(p, 1, 1)].name = "act.1"; }}})
    test::expectRefused(somePlan(), broken);
  // Ids of 9 blocks of 16 tokens have 576 bytes, of the KV blocks alone 320.
  test::PlanOptions larger = options();
  larger.miniBatches = 1;
  larger.blockTokens = 16;
  larger.placements[0].limits[0].context = 64;
  test::expectRefused(test::makePlan(larger),
                      {"ids of KV blocks alone", Rule::Structure, "(history) is 512, expected at least 576",
                       [](Plan &p) { resize(p, p.ioBuffer(Io::History), 512); }});
}

TEST(ActBlocks, OperandsThatAreNotTheOpsAreRefused) {
  for (const Broken &broken : std::vector<Broken>{
           {"another layer's", Rule::Structure, "act_append: operand act is act.1.0 [0, 2048), expected all of act.0.0",
            [](Plan &p) { use(p, operand(p, Op::ActAppend, 0, Arg::Act), acts(p, 1)); }},
           {"another layer's to rebuild", Rule::Structure,
            "rebuild_kv: operand act is act.2.0 [0, 2048), expected all of act.1.0",
            [](Plan &p) { use(p, operand(p, Op::RebuildKv, 1, Arg::Act), acts(p, 2)); }},
           {"another mini-batch's", Rule::Structure,
            "rebuild_kv: operand act is act.1.1 [0, 2048), expected all of act.1.0",
            [](Plan &p) { use(p, operand(p, Op::RebuildKv, 1, Arg::Act), acts(p, 1, 1)); }},
           {"keys and values", Rule::Structure, "rebuild_kv: operand act is kv.1.0 [0, 2048), expected all of act.1.0",
            [](Plan &p) { use(p, operand(p, Op::RebuildKv, 1, Arg::Act), p.kvBuffer(1)); }},
           {"a part", Rule::Structure, "act_append: operand act is act.0.0 [0, 1536), expected all of act.0.0",
            [](Plan &p) { operand(p, Op::ActAppend, 0, Arg::Act).bytes -= 512; }},
           {"what is only read", Rule::Structure, "act_append: operand act has access 0",
            [](Plan &p) { operand(p, Op::ActAppend, 0, Arg::Act).access = Access::Read; }},
           {"what is written", Rule::Structure, "rebuild_kv: operand act has access 2",
            [](Plan &p) { operand(p, Op::RebuildKv, 0, Arg::Act).access = Access::ReadWrite; }},
           {"rows too few", Rule::Structure, "act_append: operand x has 448 bytes, the op touches 512",
            [](Plan &p) { operand(p, Op::ActAppend, 0, Arg::X).bytes -= 64; }},
           {"keys and values of a block less", Rule::Structure,
            "rebuild_kv: operand y has 1536 bytes, the op touches 2048",
            [](Plan &p) { operand(p, Op::RebuildKv, 0, Arg::Y).bytes -= 512; }},
           {"rows appended to a block less", Rule::Structure,
            "rope_append: operand rebuilt kv has 1536 bytes, the op touches 2048",
            [](Plan &p) { operand(p, Op::RopeAppend, 0, Arg::KvRebuilt).bytes -= 512; }},
           {"attention to a block less", Rule::Structure,
            "attention: operand rebuilt kv has 1536 bytes, the op touches 2048",
            [](Plan &p) { operand(p, Op::Attention, 0, Arg::KvRebuilt).bytes -= 512; }},
           {"rows appended to what is only read", Rule::Structure, "rope_append: operand rebuilt kv has access 0",
            [](Plan &p) { operand(p, Op::RopeAppend, 0, Arg::KvRebuilt).access = Access::Read; }},
           {"no rebuilt ones", Rule::Structure, "attention: operand rebuilt kv is missing",
            [](Plan &p) { operand(p, Op::Attention, 0, Arg::KvRebuilt).arg = Arg::Table; }},
           {"another unit", Rule::Structure, "rebuild_kv: operand weight is layers.0.up, expected the layer's qkv",
            [](Plan &p) {
              for (const Operand &o : schedule(p).operands)
                if (o.arg == Arg::Weight && o.buffer < p.buffers.size() && p.buffers[o.buffer].name == "layers.0.up")
                  operand(p, Op::RebuildKv, 0, Arg::Weight) = o;
            }},
           {"another layer's unit", Rule::Structure,
            "rebuild_kv: operand weight is layers.2.qkv, the step is of layer 0",
            [](Plan &p) { operand(p, Op::RebuildKv, 0, Arg::Weight) = operand(p, Op::RebuildKv, 2, Arg::Weight); }},
           {"a part of the unit", Rule::Structure, "rebuild_kv: operand weight is layers.0.qkv [256, 8384), expected ",
            [](Plan &p) { operand(p, Op::RebuildKv, 0, Arg::Weight).bytes -= 64; }},
           {"of no layer", Rule::Structure, "act_append: the step is of no layer",
            [](Plan &p) { schedule(p).steps[stepOf(p, Op::ActAppend, 0)].layer = -1; }},
           {"an operand that is not its", Rule::Structure, "rope_append: operand act is not one of the op's",
            [](Plan &p) { add(p, stepOf(p, Op::RopeAppend, 0), operand(p, Op::RebuildKv, 0, Arg::Act)); }},
           {"a bias where the unit has none", Rule::Structure, "rebuild_kv: operand bias is not one of the op's",
            [](Plan &p) {
              Operand bias = operand(p, Op::RebuildKv, 0, Arg::Weight);
              bias.arg = Arg::Bias;
              add(p, stepOf(p, Op::RebuildKv, 0), bias);
            }}})
    test::expectRefused(somePlan(), broken);
}

TEST(ActBlocks, BiasesAndNormsOfHeadsAreTheLayers) {
  test::expectRefused(test::makePlan(options(test::tinyOpt(3))),
                      {"no bias", Rule::Structure, "rebuild_kv: operand bias is missing",
                       [](Plan &p) { operand(p, Op::RebuildKv, 0, Arg::Bias).arg = Arg::Table; }});
  test::expectRefused(test::makePlan(options(test::tinyOpt(3))),
                      {"another unit's bias", Rule::Structure, "rebuild_kv: operand bias is layers.2.qkv", [](Plan &p) {
                         operand(p, Op::RebuildKv, 0, Arg::Bias) = operand(p, Op::RebuildKv, 2, Arg::Bias);
                       }});
  test::expectRefused(test::makePlan(options(test::tinyQwen3(3))),
                      {"no norms", Rule::Structure, "rebuild_kv: operand norm is missing",
                       [](Plan &p) { operand(p, Op::RebuildKv, 0, Arg::NormWeights).arg = Arg::Table; }});
  test::expectRefused(test::makePlan(options(test::tinyQwen3(3))),
                      {"another layer's norms", Rule::Structure,
                       "rebuild_kv: operand norm is layers.2.qkv, the step is of layer 0", [](Plan &p) {
                         operand(p, Op::RebuildKv, 0, Arg::NormWeights) =
                             operand(p, Op::RebuildKv, 2, Arg::NormWeights);
                       }});
}

TEST(ActBlocks, WithoutThemTheirOpsAreRefused) {
  test::PlanOptions without = options();
  without.acts = {};
  const Plan none = test::makePlan(without);
  for (const Broken &broken :
       std::vector<Broken>{{"rows kept", Rule::Structure, "act_append: the plan has no activation blocks",
                            [](Plan &p) { schedule(p).steps[stepOf(p, Op::Norm, 0)].op = Op::ActAppend; }},
                           {"keys and values made", Rule::Structure, "rebuild_kv: the plan has no activation blocks",
                            [](Plan &p) { schedule(p).steps[stepOf(p, Op::Linear, 0)].op = Op::RebuildKv; }},
                           {"attention to rebuilt ones", Rule::Structure,
                            "attention: operand rebuilt kv is not one of the op's", [](Plan &p) {
                              Operand rebuilt = operand(p, Op::Attention, 0, Arg::X);
                              rebuilt.arg = Arg::KvRebuilt;
                              add(p, stepOf(p, Op::Attention, 0), rebuilt);
                            }}})
    test::expectRefused(none, broken);
}

TEST(ActBlocks, OutOfOrderAreRefused) {
  for (const Broken &broken : std::vector<Broken>{
           {"rebuilt behind the append", Rule::Structure,
            "rope_append: does not use what rebuild_kv has made before it of layer 0 for mini-batch 1",
            [](Plan &p) { move(p, stepOf(p, Op::RebuildKv, 0, 1), stepOf(p, Op::RopeAppend, 0, 1)); }},
           {"attention before it is rebuilt", Rule::Structure,
            "attention: does not use what rebuild_kv has made before it of layer 0 for mini-batch 0",
            [](Plan &p) { move(p, stepOf(p, Op::Attention, 0), stepOf(p, Op::RebuildKv, 0)); }},
           {"attention before the append", Rule::Structure,
            "attention: no step before it appends the iteration's rows to the cache of layer 0 for mini-batch 0",
            [](Plan &p) { move(p, stepOf(p, Op::Attention, 0), stepOf(p, Op::RopeAppend, 0)); }},
           {"rows kept behind attention", Rule::Structure,
            "attention: no step before it keeps the iteration's rows in activation blocks of layer 0 for mini-batch 0",
            [](Plan &p) { move(p, stepOf(p, Op::ActAppend, 0), stepOf(p, Op::Attention, 0)); }},
           {"another layer's keys and values", Rule::Structure,
            "attention: does not use what rebuild_kv has made before it of layer 1 for mini-batch 0",
            [](Plan &p) {
              use(p, operand(p, Op::Attention, 1, Arg::KvRebuilt), operand(p, Op::RebuildKv, 0, Arg::Y).buffer);
            }},
           {"those of the next layer", Rule::Structure,
            "rope_append: does not use what rebuild_kv has made before it of layer 0 for mini-batch 0",
            [](Plan &p) {
              use(p, operand(p, Op::RopeAppend, 0, Arg::KvRebuilt), operand(p, Op::RebuildKv, 1, Arg::Y).buffer);
            }},
           {"those of another mini-batch", Rule::Structure,
            "attention: operand rebuilt kv is rebuilt of mini-batch 1, the step is of 0",
            [](Plan &p) {
              use(p, operand(p, Op::Attention, 0, Arg::KvRebuilt), operand(p, Op::RebuildKv, 0, Arg::Y, 1).buffer);
            }},
           {"keys and values under the norm's rows", Rule::Structure,
            "rope_append: does not use what rebuild_kv has made before it of layer 0 for mini-batch 0",
            [](Plan &p) {
              const uint32_t rows = operand(p, Op::Norm, 0, Arg::Y).buffer;
              const uint32_t onto = operand(p, Op::RebuildKv, 0, Arg::Y).buffer;
              for (Operand &o : schedule(p).operands)
                if (o.buffer == rows)
                  use(p, o, onto);
              test::connect(p, schedule(p));
            }},
           {"keys and values that are made over", Rule::Structure,
            "rope_append: does not use what rebuild_kv has made before it of layer 0 for mini-batch 0",
            [](Plan &p) { // in one transient, that of layer 2 before layer 0 has been through
              const uint32_t onto = operand(p, Op::RebuildKv, 0, Arg::Y).buffer;
              for (const auto &[op, arg] : {std::pair(Op::RebuildKv, Arg::Y), std::pair(Op::RopeAppend, Arg::KvRebuilt),
                                            std::pair(Op::Attention, Arg::KvRebuilt)})
                use(p, operand(p, op, 2, arg), onto);
              move(p, stepOf(p, Op::RebuildKv, 2), stepOf(p, Op::RopeAppend, 0) - 1);
            }}})
    test::expectRefused(somePlan(), broken);
}

// Layer 1's qkv comes in this iteration; rebuild_kv is the first that reads its matrix.
TEST(ActBlocks, RebuiltBeforeTheirWeightsAreThereAreRefused) {
  const auto copyOfQkv = [](const Plan &p) {
    for (uint32_t i = 0;; ++i)
      if (const Step &step = p.schedules[0].steps[i];
          step.kind == StepKind::Copy &&
          p.buffers[p.schedules[0].operands[step.firstOperand].buffer].name == "layers.1.qkv")
        return i;
  };
  test::expectRefused(somePlan(), {"no wait for the copy", Rule::ReadBeforeReady, "and may start before step",
                                   [&](Plan &p) { // the norm waits instead
                                     for (Edge &edge : schedule(p).edges)
                                       if (edge.from == copyOfQkv(p))
                                         edge.to = stepOf(p, Op::Norm, 1);
                                   }});
  test::expectRefused(somePlan(), {"before the copy", Rule::EntryExit, "but finds nothing",
                                   [&](Plan &p) { move(p, stepOf(p, Op::RebuildKv, 1), copyOfQkv(p)); }});
}

TEST(ActBlocks, OutOfPlaceAreRefused) {
  for (const Broken &broken : std::vector<Broken>{
           {"two in one range", Rule::Overlap, "act.1.0",
            [](Plan &p) {
              home(p, acts(p, 1)).address = home(p, acts(p, 0)).address;
              for (Operand &o : schedule(p).operands)
                if (o.buffer == acts(p, 1))
                  o.address = home(p, acts(p, 0)).address;
            }},
           {"kept elsewhere", Rule::Structure, "act.0.0 [0, 2048) is written at ",
            [](Plan &p) { operand(p, Op::ActAppend, 0, Arg::Act).address += 256; }},
           {"read elsewhere", Rule::UseAfterRelease, "reads act.0.0 [0, 1792) at ",
            [](Plan &p) { operand(p, Op::RebuildKv, 0, Arg::Act).address += 256; }},
           {"a home on the host", Rule::Structure, "act.0.0",
            [](Plan &p) {
              home(p, acts(p, 0)).space = Space::Host;
              home(p, acts(p, 0)).address = p.hostBytes;
              p.hostBytes += 2048;
            }},
           {"in a state", Rule::EntryExit, "act.0.0 [0, 2048) is not a weight, only weights are in slots", [](Plan &p) {
              p.states.push_back({0, {{acts(p, 0), 0, 2048, p.placements[0].slots[0].address}}});
            }}})
    test::expectRefused(somePlan(), broken);
}

} // namespace
} // namespace headrace::plan
