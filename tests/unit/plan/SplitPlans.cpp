// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/ModelSpec.h"
#include "tests/unit/plan/MakePlan.h"

namespace headrace::plan::test {
namespace {

using model::StartRule;

// Two sequences of 32 tokens: 1 + 2 x 2 = 5 blocks of 2 x 16 rows x 16 tokens x 4 bytes = 2048 bytes a layer.
LimitOptions twoBlocksEach() {
  LimitOptions limits;
  limits.context = 32;
  return limits;
}
PlacementOptions split(int64_t blocksOnDevice, int ringSlots, int carriedTails = 0) {
  PlacementOptions p;
  p.name = "split";
  p.limits = {twoBlocksEach()};
  p.blocksOnDevice = blocksOnDevice;
  p.ringSlots = ringSlots;
  p.carriedTails = carriedTails;
  return p;
}
PlacementOptions split(int64_t blocksOnDevice, int ringSlots, int carriedTails, std::vector<int64_t> layers,
                       int cutUnits, uint64_t cutBytes) {
  PlacementOptions p = split(blocksOnDevice, ringSlots, carriedTails);
  p.layers = std::move(layers);
  p.limits.front().cutUnits = cutUnits;
  p.limits.front().cutBytes = cutBytes;
  return p;
}
PlacementOptions named(std::string name, PlacementOptions p) {
  p.name = std::move(name);
  return p;
}
PlanOptions interleaved(model::ModelSpec model, std::vector<PlacementOptions> placements) {
  PlanOptions options{std::move(model), std::move(placements)};
  options.switches = options.placements.size() > 1;
  options.interleaved = true;
  return options;
}

void addSinglePlacements(std::vector<NamedOptions> &out) {
  out.push_back({"all blocks on the device", interleaved(tinyLlama(2), {split(0, 0)})});
  out.push_back({"all but scratch away, one slot", interleaved(tinyLlama(3), {split(1, 1)})});
  PlacementOptions parts = split(2, 2);
  parts.tailsInParts = true;
  out.push_back({"tails in two parts, two slots", interleaved(tinyLlama(4), {parts})});
  PlanOptions three = interleaved(tinyOpt(4), {split(3, 3)});
  three.lastLayerFirst = true;
  out.push_back({"three slots, the last layer first", three});
  PlacementOptions fixed = split(4, 2);
  fixed.resizable = false;
  out.push_back({"one block away, copies of one size", interleaved(tinyQwen3(3), {fixed})});
  out.push_back({"tails beside weights", interleaved(tinyLlama(4), {split(2, 2, 0, {1, 3}, 1, 512)})});
  PlacementOptions paper = split(1, 2, 1, {0, 1, 3}, 0, 0);
  paper.rule = StartRule::Paper;
  out.push_back({"tails beside weights, paper", interleaved(tinyLlama(4), {paper})});
  out.push_back({"a carried tail beside weights", interleaved(tinyQwen3(4), {split(2, 2, 1, {0, 2}, 2, 0)})});
  PlacementOptions cut = split(1, 3, 3);
  cut.cutBlocks = 1;
  out.push_back({"three carried tails, cut behind a block", interleaved(tinyLlama(5), {cut})});
  out.push_back({"a slot for each tail", interleaved(tinyLlama(2), {split(2, 2, 2)})});
  PlacementOptions spare = split(2, 3, 2);
  spare.cutBlocks = 2;
  out.push_back({"a slot to spare", interleaved(tinyLlama(2), {spare})});
  // 2 x 6 rows x 4 tokens x 4 bytes = 192 bytes: blocks are not aligned.
  model::ModelSpec narrow = tinyLlama(3);
  narrow.headDim = 6;
  PlacementOptions small = split(3, 2, 1);
  small.limits.front().context = 12; // 1 + 2 x 3 blocks, of which 4 are away
  PlanOptions unaligned = interleaved(narrow, {small});
  unaligned.blockTokens = 4;
  out.push_back({"blocks of 192 bytes", unaligned});
}

void addSchedulesWithoutTail(std::vector<NamedOptions> &out) {
  LimitOptions without;
  without.withoutTail = true;
  PlacementOptions both = split(3, 2, 2);
  both.limits.push_back(without);
  out.push_back({"with and without the tail", interleaved(tinyLlama(4), {both})});
  PlacementOptions weights = split(2, 1, 1, {1}, 1, 256);
  weights.limits.push_back(without);
  weights.limits.back().cutUnits = 2;
  weights.limits.push_back({IterationClass::Mixed, 16, 2, 32, 0, 0, {8, 16}});
  out.push_back({"without the tail beside weights, two classes", interleaved(tinyLlama(3), {weights})});
}

void addSwitches(std::vector<NamedOptions> &out) {
  out.push_back({"two splits", interleaved(tinyLlama(3), {named("many", split(3, 2)), named("few", split(1, 1, 1))})});
  // All blocks are on the device in the second; those that are away in the others have a home nevertheless.
  out.push_back({"weights make room for the tail",
                 interleaved(tinyLlama(4), {named("split", split(2, 2)), named("all", split(0, 0, 0, {0, 1}, 1, 512)),
                                            named("some", split(4, 1, 1, {0}, 0, 0))})});
  LimitOptions without;
  without.withoutTail = true;
  PlacementOptions more = split(3, 1, 0, {0}, 0, 0), less = split(2, 1);
  less.kvBlocks = 4;
  more.kvBlocks = 6;
  more.limits.push_back(without);
  PlanOptions unlike = interleaved(tinyLlama(3), {named("less", less), named("more", more)});
  unlike.lastLayerFirst = true;
  out.push_back({"two splits, of which one has more blocks", unlike});
  // The blocks that only the second has are on the device, and have a home on the host as all behind the fewest.
  PlacementOptions all = split(0, 0);
  all.kvBlocks = 6;
  out.push_back(
      {"more blocks where none is away", interleaved(tinyLlama(3), {named("less", less), named("all", all)})});
  out.push_back({"caches that grow", growingCaches()});
}

} // namespace

PlanOptions growingCaches() {
  PlacementOptions none, some, most;
  none.name = "none";
  some.name = "eager";
  some.layers = {1, 3};
  some.limits.front().cutUnits = 1;
  some.limits.front().cutBytes = 512;
  most.name = "paper";
  most.layers = {0, 1, 3};
  most.rule = StartRule::Paper;
  most.kvBlocks = 4; // of 1 + 2 x 1 in the others
  return interleaved(tinyLlama(4), {none, some, most});
}

std::vector<NamedOptions> splitPlans() {
  std::vector<NamedOptions> out;
  addSinglePlacements(out);
  addSchedulesWithoutTail(out);
  addSwitches(out);
  return out;
}

std::set<std::string> partsOfSplit(const Plan &plan) {
  std::set<std::string> out;
  const auto has = [&](bool is, const char *part) {
    if (is)
      out.insert(part);
  };
  const auto isCache = [&](uint32_t buffer) { return plan.buffers[buffer].kind == BufferKind::Kv; };
  for (const Placement &placement : plan.placements)
    for (const Extent &e : placement.extents) {
      has(isCache(e.buffer) && e.space == Space::Host && e.bufferOffset == 0, "no block on the device");
      has(!isCache(e.buffer) && e.space == Space::Host, "weights away");
      has(e.interleaved, "interleaved home");
      has(e.space == Space::Host && isCache(e.buffer), "home on the host");
    }
  for (const State &state : plan.states)
    for (const Content &content : state.contents) {
      has(isCache(content.buffer), "carried tail");
      has(content.dirty, "dirty state");
    }
  for (const Schedule &s : plan.schedules) {
    has(s.kvBlocks > 0, "schedule without the tail");
    has(s.period > 1, "cycle");
    bool evicts = false;
    for (const Step &step : s.steps) {
      if (step.kind == StepKind::Copy && step.lane == Lane::D2H) {
        const bool flush = s.iterationClass == IterationClass::Transition;
        has(true, flush            ? "flush"
                  : step.dirtyOnly ? "evict dirty"
                  : step.resizable ? "evict all"
                                   : "evict of one size");
        evicts = true;
      }
      has(step.resizable, "resizable copy");
      has(directToHost(s, step), "direct append");
      for (uint32_t o = 0; o < step.operandCount; ++o) {
        const Operand &operand = s.operands[step.firstOperand + o];
        has(step.kind == StepKind::Copy && operand.interleaved, "copy to interleaved blocks");
        has(operand.arg == Arg::KvTail, "tail operand");
        has(operand.arg == Arg::KvHome, "home operand");
        has(operand.arg == Arg::KvHome && evicts, "evict beside a mirror");
      }
    }
  }
  return out;
}

} // namespace headrace::plan::test
