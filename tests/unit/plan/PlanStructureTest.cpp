// SPDX-License-Identifier: Apache-2.0
//
// Each fault in a plan's structure, by the message with which both the reader and the verifier refuse it.
#include "runtime/plan/structure/PlanStructure.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/proof/PlanVerifier.h"
#include "tests/unit/plan/MakePlan.h"
#include "tests/unit/plan/PlanText.h"

namespace headrace::plan {
namespace {

struct Fault {
  const char *message;
  std::function<void(Plan &)> make;
  // What a reader says in its place, of what a file has among its inputs; empty: no file can say it.
  const char *read = nullptr;
};

// Layers 1 and 3 of four in two slots, cut inside layer 1's `out`; 22 buffers before meta: embedding, 4 x 4 units,
// head, 4 caches. Schedule 0 is the iteration, 1 the transition to its entry state.
Plan somePlan() {
  test::PlacementOptions placement;
  placement.layers = {1, 3};
  placement.limits.front().cutUnits = 1;
  placement.limits.front().cutBytes = 512;
  return test::makePlan({test::tinyLlama(4), {placement}});
}
Schedule &schedule(Plan &p) { return p.schedules[0]; }
uint32_t firstCopy(const Plan &p) {
  for (uint32_t i = 0;; ++i)
    if (p.schedules[0].steps[i].kind == StepKind::Copy)
      return i;
}
Operand &source(Plan &p) { return schedule(p).operands[schedule(p).steps[firstCopy(p)].firstOperand]; }

const std::vector<Fault> &faults() {
  static const std::vector<Fault> all = {
      // What the plan is for.
      {"model.family is 9, expected 0 to 4", [](Plan &p) { p.model->family = model::Family{9}; }, ""},
      {"model.norm is 2, expected 0 to 1", [](Plan &p) { p.model->norm = model::NormKind{2}; }, ""},
      {"model.activation is 4, expected 0 to 3", [](Plan &p) { p.model->activation = model::Activation{4}; }, ""},
      {"model.rope.scaling is 3, expected 0 to 2", [](Plan &p) { p.model->rope.scaling = model::RopeScalingKind{3}; }, ""},
      {"model.dtype is 3, expected 0 to 2", [](Plan &p) { p.model->dtype = model::DType{3}; }, ""},
      {"model: weight_encoding = qkv=q4:48: expected q8 or q4, with :32, :64 or :128 behind it",
       [](Plan &p) { p.model->encodings[model::UnitRole::Qkv] = model::Encoding::groups(4, 48); },
       "model.weight_encoding = \"qkv=q4:48\": expected q8 or q4"},
      {"model: weight_encoding = out=q3:32: expected q8 or q4, with :32, :64 or :128 behind it",
       [](Plan &p) { p.model->encodings[model::UnitRole::Out] = model::Encoding::groups(3, 32); },
       "model.weight_encoding = \"out=q3:32\": expected q8 or q4"},
      {"model: weight_encoding = down=q4:32: expected a group that divides the 48 input features of "
       "model.layers.0.mlp.down_proj.weight: none of 32, 64 and 128 does",
       [](Plan &p) { p.model->encodings[model::UnitRole::Down] = model::Encoding::groups(4, 32); },
       "inputs: weight_encoding = down=q4:32: expected a group that divides the 48"},
      {"model: weight_encoding = embedding=q4:32: expected none of the embedding",
       [](Plan &p) { p.model->encodings[model::UnitRole::Embedding] = model::Encoding::groups(4, 32); },
       "inputs: weight_encoding = embedding=q4:32: expected none of the embedding"},
      {"hardware.h2d_bandwidth = \"nanB/s\": expected",
       [](Plan &p) { p.hardware.h2dBandwidth = std::nan(""); }},
      {"hardware.copy_latency = \"-1", [](Plan &p) { p.hardware.copyLatency = -1; }},
      {"goal.tpot = \"18446744073709.551615ms\": expected", [](Plan &p) { p.goal.tpot = std::chrono::nanoseconds(-1); }},
      {"policy.start_rule = \"ahead\": expected", [](Plan &p) { p.policy.startRule = model::StartRule::Ahead; }},
      {"goal.slo_factor = nan: expected", [](Plan &p) { p.goal.sloFactor = std::nan(""); }},
      {"goal.batch = 0: expected", [](Plan &p) { p.goal.batch = 0; }},
      {"goal.record has a control character, 10", [](Plan &p) { p.goal.record = "a\nb"; }},
      {"choices[0].variant is 99999, expected", [](Plan &p) { p.choices = {{99999, 1, 1, 1, 1}}; }},
      {"choices[1] is out of order, or there twice", [](Plan &p) { p.choices = {{0, 1, 1, 1, 1}, {0, 1, 1, 1, 1}}; }},
      {"activation_dtype is 3, expected 0 to 2", [](Plan &p) { p.activationDtype = model::DType{3}; }},
      {"kv_dtype is 3, expected 0 to 2", [](Plan &p) { p.kvEncoding = model::DType{3}; }, ""},
      {"kv_packed is q4:32 of heads of 16, expected q8 or q4 in groups of 64 or else 32 that divide a head",
       [](Plan &p) { p.kvEncoding = model::Encoding::groups(4, 32); },
       "inputs: expected goal.device_memory, goal.kv_dtype for heads of 16"},
      {"kv_packed is q3:32 of heads of 32, expected q8 or q4",
       [](Plan &p) { p.model->headDim = 32, p.kvEncoding = model::Encoding::groups(3, 32); },
       "goal.kv_dtype = \"q3\": expected"},
      {"kv_packed is q8:32 of heads of 64, expected q8 or q4",
       [](Plan &p) { p.model->headDim = 64, p.kvEncoding = model::Encoding::groups(8, 32); },
       ""},
      {"block_tokens is 0, expected 1 to 1048576", [](Plan &p) { p.blockTokens = 0; },
       "goal.block_tokens = 0: expected"},
      {"kv_blocks is 0, expected 1 to 2147483647", [](Plan &p) { p.kvBlocks = 0; }},
      {"max_context is -1, expected 1 to 2147483647", [](Plan &p) { p.maxContext = -1; }},
      {"max_tokens is 0, expected 1 to 67108864", [](Plan &p) { p.metaLayout.maxTokens = 0; }},
      {"max_sequences is 99999999, expected 1 to 16777216", [](Plan &p) { p.metaLayout.maxSequences = 99999999; }},
      {"max_blocks_per_sequence is 0, expected 1 to 268435456",
       [](Plan &p) { p.metaLayout.maxBlocksPerSequence = 0; }},
      {"max_tokens 4, max_sequences 8 and max_blocks_per_sequence 268435456 make a meta buffer of 8589935872 bytes",
       [](Plan &p) { p.metaLayout = {4, 8, 1 << 28}; }},
      {"arena_bytes is 9007199254740993, expected at most 9007199254740992",
       [](Plan &p) { p.arenaBytes = (uint64_t{1} << 53) + 1; }},
      {"placements has 0 entries, expected 1 to 16384", [](Plan &p) { p.placements.clear(); }},
      {"states has 0 entries, expected 1 to 16384", [](Plan &p) { p.states.clear(); }},
      {"schedules has 0 entries, expected 1 to 16384", [](Plan &p) { p.schedules.clear(); }},
      {"variants has 0 entries, expected 1 to 16384", [](Plan &p) { p.variants.clear(); }},

      {"slowest_permille is 999, expected at least 1000", [](Plan &p) { p.slowestPermille = 999; }},
      {"model.name has 257 bytes, expected at most 256", [](Plan &p) { p.model->name.assign(257, 'x'); },
       "\": expected 1 to 256 bytes without control characters"},
      {"reason has a control character, 27", [](Plan &p) { p.reason = "\x1b[2J"; }},
      {"limiting_resource has a control character, 10", [](Plan &p) { p.limitingResource = "link\nh2d"; }},
      {"model_path has 16385 bytes, expected at most 16384", [](Plan &p) { p.modelPath.assign(16385, '/'); }},

      // Buffers.
      {"buffers[3].name has a control character, 7", [](Plan &p) { p.buffers[3].name = "\a"; }},
      {"buffers has no io 3", [](Plan &p) { p.buffers.pop_back(); }},
      {"buffers has no weight 16, a model of 4 layers has 18", [](Plan &p) { p.buffers[16].kind = BufferKind::Act; }},
      {"buffers has no weight 18, a model of 5 layers has 22", [](Plan &p) { p.model->layers = 5; }},
      {"buffers has no kv of layer 3", [](Plan &p) { p.buffers[21].kind = BufferKind::Act; }},
      {"the number of buffers is 262145, expected at most 262144", [](Plan &p) { p.buffers.resize((1u << 18) + 1); }},
      {"buffers[3].kind is 7, expected 0 to 6", [](Plan &p) { p.buffers[3].kind = BufferKind{7}; }},
      {"buffers[3].kind is 3 (activation), which is a schedule's own",
       [](Plan &p) { p.buffers[3].kind = BufferKind::Activation; }},
      {"buffers[3].index is 18, expected at most 17", [](Plan &p) { p.buffers[3].index = 18; }},
      {"buffers[18].index is 1, expected at most 0", [](Plan &p) { p.buffers[18].index = 1; }},
      {"buffers[22].index is 4, expected at most 3", [](Plan &p) { p.buffers[22].index = 4; }},
      {"buffers[3].layer is 4, expected -1 to 3", [](Plan &p) { p.buffers[3].layer = 4; }},
      {"buffers[18].layer is -1, expected 0 to 3", [](Plan &p) { p.buffers[18].layer = -1; }},
      {"buffers[22].layer is 0, expected -1 to -1", [](Plan &p) { p.buffers[22].layer = 0; }},
      {"buffers[19] is kv 0 of layer 0, as buffers[18] is", [](Plan &p) { p.buffers[19].layer = 0; }},
      {"buffers[2] is weight 1, as buffers[1] is", [](Plan &p) { p.buffers[2].index = 1; }},
      {"buffers[26] is weight 1, as buffers[1] is",
       [](Plan &p) {
         p.buffers.push_back(p.buffers[1]);
         p.buffers.back().layer = 1;
       }},
      {"buffers[5].bytes is 0", [](Plan &p) { p.buffers[5].bytes = 0; }},
      {"buffers[5].bytes is 300, expected a multiple of 256", [](Plan &p) { p.buffers[5].bytes = 300; }},
      {"buffers[5].bytes is 18014398509481984, expected at most 9007199254740992",
       [](Plan &p) { p.buffers[5].bytes = uint64_t{1} << 54; }},

      // Placements.
      {"placements[0].name has a control character, 127", [](Plan &p) { p.placements[0].name = "\x7f"; }},
      {"placements[0].start_rule is 3, expected 0 to 2", [](Plan &p) { p.placements[0].startRule = model::StartRule{3}; }},
      {"placements[0].start_items is 1, expected 0 to 0", [](Plan &p) { p.placements[0].startItems = 1; }},
      {"placements[0].start_items is -1, expected 0 to 1048576",
       [](Plan &p) {
         p.placements[0].startRule = model::StartRule::Ahead;
         p.placements[0].startItems = -1;
       }},
      {"placements[0].extents[2].space is 3, expected 0 to 1",
       [](Plan &p) { p.placements[0].extents[2].space = Space{3}; }},
      {"placements[0].extents[2].buffer is 26, expected less than 26",
       [](Plan &p) { p.placements[0].extents[2].buffer = 26; }},
      {"placements[0].extents[2] begins at byte 0 of buffer 3, expected byte 0 of buffer 2",
       [](Plan &p) { p.placements[0].extents.erase(p.placements[0].extents.begin() + 2); }},
      {"placements[0].extents[2].bytes is 256, expected all 4096 of layers.0.out",
       [](Plan &p) { p.placements[0].extents[2].bytes = 256; }},
      {"placements[0].extents[2] begins at byte 256 of buffer 2, expected byte 0 of buffer 2",
       [](Plan &p) {
         p.placements[0].extents[2].bufferOffset = 256;
         p.placements[0].extents[2].bytes -= 256;
       }},
      {"placements[0].extents end at byte 0 of buffer 25, expected the end of buffer 25",
       [](Plan &p) { p.placements[0].extents.pop_back(); }},
      {"placements[0].extents[2] has bytes [0, 0 + 18446744073709551360) of a buffer of 4096",
       [](Plan &p) { p.placements[0].extents[2].bytes = -uint64_t{256}; }},
      {"placements[0].extents[2].address is 18446744073709551360, expected at most 9007199254740992",
       [](Plan &p) { p.placements[0].extents[2].address = -uint64_t{256}; }},
      {"placements[0].extents[2].address is 100 for offset 0, expected to differ by a multiple of 256",
       [](Plan &p) { p.placements[0].extents[2].address = 100; }},
      {"placements[0].extents[2].direct is set, but its home is not the host",
       [](Plan &p) { p.placements[0].extents[2].direct = true; }},
      {"placements[0].slots[1].bytes is 0", [](Plan &p) { p.placements[0].slots[1].bytes = 0; }},
      {"placements[0].slots[1].bytes is 1, expected a multiple of 256", [](Plan &p) { p.placements[0].slots[1].bytes = 1; }},
      {"placements[0].slots[1].address is 1, expected a multiple of 256",
       [](Plan &p) { p.placements[0].slots[1].address = 1; }},
      {"placements[0].slots[0].address is 18446744073709551360, expected at most 9007199254740992",
       [](Plan &p) { p.placements[0].slots[0].address = -uint64_t{256}; }},

      // States.
      {"states[0] has 2 contents, expected the empty state", [](Plan &p) { p.states[0] = p.states[1]; }},
      {"states[1].placement is 4, expected less than 1", [](Plan &p) { p.states[1].placement = 4; }},
      {"states[1].contents[0].buffer is 26, expected less than 26", [](Plan &p) { p.states[1].contents[0].buffer = 26; }},
      {"states[1].contents[0] has bytes [0, 0 + 8449) of a buffer of 8448",
       [](Plan &p) { p.states[1].contents[0].bytes = 8449; }},
      {"the end of the content before it", [](Plan &p) { p.states[1].contents[1].address -= 256; }},

      // Schedules.
      {"schedules[0].name has 300 bytes, expected at most 256", [](Plan &p) { schedule(p).name.assign(300, 'x'); }},
      {"schedules[0].locals[1].name has a control character, 9",
       [](Plan &p) { schedule(p).locals[1].buffer.name = "\t"; }},
      {"schedules[0].iteration_class is 3, expected 0 to 2", [](Plan &p) { schedule(p).iterationClass = IterationClass{3}; }},
      {"schedules[0].placement is 1, expected less than 1", [](Plan &p) { schedule(p).placement = 1; }},
      {"schedules[0].max_tokens is 5, expected 1 to 4", [](Plan &p) { schedule(p).maxTokens = 5; }},
      {"schedules[0].max_sequences is 0, expected 1 to 2", [](Plan &p) { schedule(p).maxSequences = 0; }},
      {"schedules[0].max_context is 17, expected 1 to 16", [](Plan &p) { schedule(p).maxContext = 17; }},
      {"schedules[0].entry_state is 2, expected less than 2", [](Plan &p) { schedule(p).entryState = 2; }},
      {"schedules[0].exit_state is 1, a state of placement 1, expected one of 0",
       [](Plan &p) {
         p.placements.push_back(p.placements[0]);
         p.states[1].placement = 1;
         schedule(p).entryState = 0;
       }},
      {"schedules[0].steps is empty", [](Plan &p) { schedule(p).steps.clear(); }},
      {"schedules[0].locals[1].kind is 0, expected an activation or a workspace",
       [](Plan &p) { schedule(p).locals[1].buffer.kind = BufferKind::Weight; }},
      {"schedules[0].locals[1].bytes is 0", [](Plan &p) { schedule(p).locals[1].buffer.bytes = 0; }},
      {"schedules[0].locals[1].bytes is 100, expected a multiple of 256",
       [](Plan &p) { schedule(p).locals[1].buffer.bytes = 100; }},
      {"schedules[0].locals[1].address is 100, expected a multiple of 256",
       [](Plan &p) { schedule(p).locals[1].address = 100; }},

      // Steps.
      {"schedules[0].steps[2].kind is 3, expected 0 to 2", [](Plan &p) { schedule(p).steps[2].kind = StepKind{3}; }},
      {"schedules[0].steps[2].lane is 4, expected 0 to 3", [](Plan &p) { schedule(p).steps[2].lane = Lane{4}; }},
      {"schedules[0].steps[2].op is 14, expected 0 to 13", [](Plan &p) { schedule(p).steps[2].op = kernels::Op{14}; }},
      {"schedules[0].steps[2].part is 5, expected 0 to 4", [](Plan &p) { schedule(p).steps[2].part = Part{5}; }},
      {"schedules[0].steps[2].layer is 4, expected -1 to 3", [](Plan &p) { schedule(p).steps[2].layer = 4; }},
      {"schedules[0].steps[2] has operands [4294967295, 4294967295 + 2) of ",
       [](Plan &p) { schedule(p).steps[2].firstOperand = kNone, schedule(p).steps[2].operandCount = 2; }},
      {"schedules[0].steps[0].operand_count is 21, expected at most 20",
       [](Plan &p) { schedule(p).steps[0].operandCount = 21; }},
      {"schedules[0].steps[2] has amounts beyond measure",
       [](Plan &p) { schedule(p).steps[2].linkBytes = ~uint64_t{0}; }},
      {"schedules[1].steps[0].kind is 0, a transition has copies only",
       [](Plan &p) { p.schedules[1].steps[0].kind = StepKind::Compute; }},
      {".operand_count is 1, a copy has 2", [](Plan &p) { schedule(p).steps[firstCopy(p)].operandCount = 1; }},
      {" has two operands for source", [](Plan &p) { (&source(p))[1].arg = Arg::Source; }},
      {" is a copy: a source to read, then a destination to write, are expected",
       [](Plan &p) { source(p).arg = Arg::X; }},
      {", expected the same", [](Plan &p) { source(p).bytes -= 256; }},

      // Operands.
      {"schedules[0].operands[0].space is 2, expected 0 to 1", [](Plan &p) { schedule(p).operands[0].space = Space{2}; }},
      {"schedules[0].operands[0].access is 3, expected 0 to 2",
       [](Plan &p) { schedule(p).operands[0].access = Access{3}; }},
      {"schedules[0].operands[0].arg is 20, expected 0 to 19", [](Plan &p) { schedule(p).operands[0].arg = Arg{20}; }},
      {"schedules[0].operands[0].buffer is 4294967295, expected less than ",
       [](Plan &p) { schedule(p).operands[0].buffer = kNone; }},
      {" of a buffer of ", [](Plan &p) { source(p).bufferOffset = ~uint64_t{0} - 255; }},
      {".space is 1, where the transient buffer has no range",
       [](Plan &p) {
         for (Operand &o : schedule(p).operands)
           if (o.arg == Arg::Workspace)
             o.space = Space::Host;
       }},
      {", where the transient buffer lies",
       [](Plan &p) {
         for (Operand &o : schedule(p).operands)
           if (o.arg == Arg::Workspace)
             o.address += 256;
       }},

      // Edges.
      {"schedules[0].edges[0].kind is 4, expected 0 to 3", [](Plan &p) { schedule(p).edges[0].kind = EdgeKind{4}; }},
      {"schedules[0].edges[0].to is 1000, expected less than ", [](Plan &p) { schedule(p).edges[0].to = 1000; }},
      {", expected forwards", [](Plan &p) { std::swap(schedule(p).edges[0].from, schedule(p).edges[0].to); }},
      {" of the same lane",
       [](Plan &p) { schedule(p).edges.back() = {static_cast<uint32_t>(schedule(p).steps.size()) - 2,
                                                 static_cast<uint32_t>(schedule(p).steps.size()) - 1}; }},
      {"schedules[0].edges[1] is out of order, or there twice",
       [](Plan &p) { schedule(p).edges[1] = schedule(p).edges[0]; }},

      // Variants and transitions.
      {"variants[0].placement is 1, expected less than 1", [](Plan &p) { p.variants[0].placement = 1; }},
      {"variants[0].schedule is 2, expected less than 2", [](Plan &p) { p.variants[0].schedule = 2; }},
      {"variants[0].schedule is 1, a transition", [](Plan &p) { p.variants[0].schedule = 1; }},
      {"variants[0].schedule is 0, of placement 0, expected one of 1",
       [](Plan &p) {
         p.placements.push_back(p.placements[0]);
         p.variants[0].placement = 1;
       }},
      {"variants[0].new_tokens is 5, expected 1 to 4", [](Plan &p) { p.variants[0].newTokens = 5; }},
      {"variants[0].sequences is 0, expected 1 to 2", [](Plan &p) { p.variants[0].sequences = 0; }},
      {"variants[0].context is 17, expected 1 to 16", [](Plan &p) { p.variants[0].context = 17; }},
      {"variants[0].durations_ns has ", [](Plan &p) { p.variants[0].durationsNs.pop_back(); }},
      {"variants[0].durations_ns[0] is 8796093022209, expected at most 8796093022208",
       [](Plan &p) { p.variants[0].durationsNs[0] = (uint64_t{1} << 43) + 1; }},
      {"variants[1] is out of order, or there twice", [](Plan &p) { p.variants.push_back(p.variants[0]); }},
      {"transitions[0].from_state is 2, expected less than 2", [](Plan &p) { p.transitions[0].fromState = 2; }},
      {"transitions[0].to_state is 2, expected less than 2", [](Plan &p) { p.transitions[0].toState = 2; }},
      {"transitions[0].schedule is 2, expected less than 2", [](Plan &p) { p.transitions[0].schedule = 2; }},
      {"transitions[0].schedule is 0, not a transition", [](Plan &p) { p.transitions[0].schedule = 0; }},
      {"transitions[0].durations_ns has 3 entries, its schedule has 2 steps",
       [](Plan &p) { p.transitions[0].durationsNs.push_back(1); }},
      {"weight_hashes has 3 entries, expected none, or one for each of the model's 18 weight units",
       [](Plan &p) { p.weightHashes = {1, 2, 3}; }},
      {"schedules[0].from_placement is 0, expected none: the schedule is not a transition",
       [](Plan &p) { p.schedules[0].fromPlacement = 0; }},
      {"schedules[1].from_placement is 1, expected less than 1", [](Plan &p) { p.schedules[1].fromPlacement = 1; }},
      {"schedules[1].from_placement is 0, expected another than .placement, or none",
       [](Plan &p) { p.schedules[1].fromPlacement = 0; }},
      {"schedules[1].entry_state is 1, a state of placement 0, expected one of 1",
       [](Plan &p) {
         p.placements.push_back(p.placements[0]);
         p.schedules[1].fromPlacement = 1;
         p.schedules[1].entryState = 1;
       }},
      {"transitions[0].from_state is 1, a state of placement 0, expected one of 1",
       [](Plan &p) {
         p.placements.push_back(p.placements[0]);
         p.schedules[1].fromPlacement = 1;
         p.transitions[0].fromState = 1;
       }},
      {"transitions[0].to_state is 1, a state of placement 0, expected one of 1",
       [](Plan &p) {
         p.placements.push_back(p.placements[0]);
         p.schedules[1].placement = 1;
         p.schedules[1].exitState = 0;
       }},
  };
  return all;
}

TEST(PlanStructure, OfAGoodPlanHasNoFault) { EXPECT_FALSE(findStructureFault(somePlan()).has_value()); }

TEST(PlanStructure, FaultsAreRefusedByTheReader) {
  for (const Fault &fault : faults()) {
    Plan plan = somePlan();
    fault.make(plan);
    const std::string expected = fault.read != nullptr ? fault.read : fault.message;
    if (expected.empty())
      continue;
    const absl::Status status = parse(test::bytesOf(serialize(plan)), "a.plan").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << fault.message;
    EXPECT_EQ(status.message().substr(0, 8), "a.plan: ") << fault.message;
    EXPECT_NE(status.message().find(expected), std::string::npos) << expected << "\n  was " << status.message();
  }
}

TEST(PlanStructure, FaultsAreTheOnlyViolationTheVerifierNames) {
  for (const Fault &fault : faults()) {
    Plan plan = somePlan();
    fault.make(plan);
    const std::vector<Violation> violations = findViolations(plan);
    // Enumerators that only the file has are the reader's alone.
    if (violations.empty())
      continue;
    ASSERT_EQ(violations.size(), 1u) << fault.message;
    EXPECT_EQ(violations[0].rule, Rule::Structure) << fault.message;
  }
}

TEST(PlanStructure, NumbersOfBlocksThatCannotBeAreRefused) {
  const auto refused = [](const std::string &message, auto make) {
    Plan plan = test::makePlan(test::growingCaches());
    ASSERT_FALSE(findStructureFault(plan).has_value());
    make(plan);
    const absl::Status status = parse(test::bytesOf(serialize(plan)), "a.plan").status();
    EXPECT_NE(status.message().find(message), std::string::npos) << message << "\n  was " << status.message();
  };
  refused("placements[0].kv_blocks is 0, expected 1 to 4", [](Plan &p) { p.placements[0].kvBlocks = 0; });
  refused("placements[1].kv_blocks is 99, expected 1 to 4", [](Plan &p) { p.placements[1].kvBlocks = 99; });
  Plan fixed = somePlan(); // of caches in one run each all placements have the same
  --fixed.placements[0].kvBlocks;
  EXPECT_TRUE(findStructureFault(fixed).has_value());
}

TEST(PlanStructure, AModelThatCannotBeIsRefused) {
  Plan plan = somePlan();
  plan.model->kvHeads = 3; // of 2 heads
  EXPECT_FALSE(parse(test::bytesOf(serialize(plan)), "a.plan").ok());
  plan = somePlan();
  plan.model->hidden = 0;
  EXPECT_FALSE(parse(test::bytesOf(serialize(plan)), "a.plan").ok());
}

} // namespace
} // namespace headrace::plan
