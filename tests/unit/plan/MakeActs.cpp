// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "kernels/Kernels.h"
#include "tests/unit/plan/PlacementBuilder.h"

namespace headrace::plan::test {

using model::TensorRole;
using model::UnitRole;

// The rows of the norm to the layer's activation blocks.
void PlacementBuilder::keepRows(int64_t layer) {
  const uint32_t acts = actBuffer(plan_, layer, miniBatch_);
  compute(kernels::Op::ActAppend, Part::Attention, layer,
          {local(Arg::X, Access::Read, H), whole(Arg::Act, Access::ReadWrite, acts)}, actsOnHost(acts));
  if (actsOnHost(acts))
    computes_.back().step.linkBytes = static_cast<uint64_t>(limits_->tokens * plan_.model->hidden) * 4;
}

// Keys and values of earlier tokens, from these.
void PlacementBuilder::rebuild(int64_t layer) {
  const auto unit = unitOf(layer, UnitRole::Qkv);
  const uint32_t acts = actBuffer(plan_, layer, miniBatch_);
  Operand rows = whole(Arg::Act, Access::Read, acts);
  if (actsOnHost(acts)) {
    rows.space = Space::Device;
    rows.address = slotAddress_.at(acts);
  }
  std::vector<Operand> operands = {rows, weight(Arg::Weight, unit, TensorRole::Matrix),
                                   local(Arg::Y, Access::Write, Rebuilt, acts_.ranges == 0 && layer > 0),
                                   local(Arg::Workspace, Access::Write, Workspace)};
  if (layout_.units[unit].find(TensorRole::Bias))
    operands.push_back(weight(Arg::Bias, unit, TensorRole::Bias));
  if (plan_.model->qkNorm)
    operands.push_back(weight(Arg::NormWeights, unit, TensorRole::HeadNorms));
  compute(kernels::Op::RebuildKv, Part::Attention, layer, std::move(operands));
}

namespace {

// Blocks of four tokens, of which a sequence has `blocks` at most.
void useActs(NamedOptions &named, const ActOptions &acts, int64_t blocks) {
  named.options.acts = acts;
  named.options.blockTokens = 4;
  for (PlacementOptions &p : named.options.placements)
    for (LimitOptions &limits : p.limits)
      limits.context = 4 * blocks;
  named.name = "activation blocks " + model::actRatioText(acts.share) + ", " + named.name;
}
void letThemLeave(NamedOptions &named, int slots, bool stay, int evictAfter) {
  named.options.residualsLeave = true;
  named.name = "residuals, " + named.name;
  for (PlacementOptions &p : named.options.placements) {
    p.residualSlots = slots;
    p.residualsStay = stay;
    for (LimitOptions &limits : p.limits)
      limits.evictAfter = evictAfter;
  }
}
void passTwice(NamedOptions &named, uint32_t miniBatches) {
  named.options.miniBatches = miniBatches;
  named.name = std::to_string(miniBatches) + " mini-batches, " + named.name;
}

// Of a share of up to eighths, for sequences of one to six blocks.
ActOptions randomActs(std::mt19937_64 &random, int64_t &blocks) {
  const auto below = [&](uint64_t n) { return static_cast<int64_t>(random() % n); };
  ActOptions acts;
  const int64_t den = 1 + below(8), num = 1 + below(static_cast<uint64_t>(den)), common = std::gcd(num, den);
  acts.share = {num / common, den / common};
  blocks = 1 + below(6);
  acts.contextBlocks = below(2) == 0 ? 0 : blocks + below(static_cast<uint64_t>(blocks) + 1);
  acts.spare = below(3) == 0 ? 1 + below(3) : 0;
  acts.rebuildsFirst = below(2) == 0;
  acts.keepsLate = below(2) == 0;
  acts.ranges = static_cast<int>(below(4));
  return acts;
}

// One of three: of all layers, of every other one, of the last.
void bringFromHost(NamedOptions &named, ActOptions &acts, int turn, int slots) {
  const int64_t layers = named.options.model.layers;
  for (int64_t layer = turn % 3 == 2 ? layers - 1 : 0; layer < layers; layer += turn % 3 == 1 ? 2 : 1)
    acts.onHost.push_back(layer);
  acts.slots = slots;
  named.name = "on the host in " + std::to_string(slots) + " slots, " + named.name;
}

} // namespace

// Two sequences of four blocks: at a share of 1/2 eight blocks need 4 of each kind; of five that may be in use, two
// sequences have at most 3 activation blocks (of 3 and 2 blocks, say), and 2 KV blocks.
std::vector<NamedOptions> actPlans() {
  const std::vector<model::ActRatio> shares = {{1, 2}, {1, 3}, {1, 1}, {3, 4}, {1, 4}};
  std::vector<NamedOptions> out;
  for (int turn = 0; const bool twice : {false, true})
    for (NamedOptions named : variedPlans()) {
      ActOptions acts;
      acts.share = shares[static_cast<size_t>(turn) % shares.size()];
      acts.contextBlocks = turn % 3 == 1 ? 5 : 0;
      acts.spare = turn % 4 == 3 ? 2 : 0;
      acts.rebuildsFirst = turn % 2 == 1;
      acts.keepsLate = turn / 2 % 2 == 1;
      acts.ranges = turn % 4;
      useActs(named, acts, 4);
      if (twice)
        passTwice(named, 2);
      if (turn % 5 == 4)
        letThemLeave(named, 1 + turn % 3, turn % 2 == 0, turn % 4);
      out.push_back(named);
      ++turn;
    }
  return out;
}

NamedOptions randomActPlan(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t n) { return static_cast<int64_t>(random() % n); };
  const std::vector<NamedOptions> base = variedPlans();
  NamedOptions named = base[static_cast<size_t>(below(base.size()))];
  int64_t blocks = 0;
  const ActOptions acts = randomActs(random, blocks);
  useActs(named, acts, blocks);
  if (below(2) == 0)
    passTwice(named, static_cast<uint32_t>(2 + below(2)));
  if (below(4) == 0)
    letThemLeave(named, static_cast<int>(1 + below(3)), below(3) == 0, static_cast<int>(below(4)));
  named.name += " of " + std::to_string(seed);
  return named;
}

// Mostly two slots, as of the plans that are compiled.
std::vector<NamedOptions> hostActPlans() {
  const std::vector<model::ActRatio> shares = {{1, 2}, {3, 4}, {1, 3}, {1, 4}, {1, 1}};
  std::vector<NamedOptions> bases = variedPlans(), out;
  for (const std::vector<NamedOptions> &more : {splitPlans(), writeBackPlans()})
    bases.insert(bases.end(), more.begin(), more.end());
  for (int turn = 0; NamedOptions named : bases) {
    ActOptions acts;
    acts.share = shares[static_cast<size_t>(turn) % shares.size()];
    acts.contextBlocks = turn % 7 == 1 ? 6 : 0;
    acts.spare = turn % 4 == 3 ? 2 : 0;
    acts.rebuildsFirst = turn % 2 == 0;
    acts.keepsLate = turn % 4 == 1;
    acts.ranges = turn % 3;
    named = withMiniBatches(named, static_cast<uint32_t>(1 + turn % 3));
    bringFromHost(named, acts, turn % 4, turn % 4 == 3 ? 1 + turn / 4 % 3 : 2);
    useActs(named, acts, 4);
    if (turn % 5 == 4)
      letThemLeave(named, 1 + turn % 3, turn % 2 == 0, turn % 4);
    out.push_back(named);
    ++turn;
  }
  return out;
}

NamedOptions randomHostActPlan(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t n) { return static_cast<int>(random() % n); };
  const std::vector<NamedOptions> varied = variedPlans();
  NamedOptions named = varied[static_cast<size_t>(below(varied.size()))];
  const int kind = below(3);
  if (kind == 1)
    named = randomSplitPlan(random());
  if (kind == 2)
    named = randomResidualPlan(random());
  else
    named = withMiniBatches(named, static_cast<uint32_t>(1 + below(3)));
  int64_t blocks = 0;
  ActOptions acts = randomActs(random, blocks);
  bringFromHost(named, acts, below(3), below(3) == 0 ? 1 + below(3) : 2);
  useActs(named, acts, blocks);
  named.name += " of " + std::to_string(seed);
  return named;
}

std::set<std::string> partsOfHostActs(const Plan &plan) {
  std::set<std::string> out;
  const auto has = [&](bool is, const char *part) {
    if (is)
      out.insert(part);
  };
  const std::set<std::string> split = partsOfSplit(plan);
  const auto isAct = [&](uint32_t buffer) {
    return buffer < plan.buffers.size() && plan.buffers[buffer].kind == BufferKind::Act;
  };
  has(true, split.contains("tail operand") ? "tails" : "caches that are whole");
  has(split.contains("evict all") || split.contains("evict dirty") || split.contains("evict of one size"),
      "tails that copies write back");
  has(split.contains("dirty state"), "tails ahead of their homes");
  has(split.contains("cycle"), "cycles");
  has(split.contains("weights away"), "weights away");
  has(plan.miniBatches > 1, "several mini-batches");
  has(plan.residualsLeave(), "residuals leave");
  has(plan.placements.size() > 1, "several placements");
  bool all = true;
  for (const Extent &e : plan.placements[0].extents)
    all &= !isAct(e.buffer) || e.space == Space::Host;
  has(true, all ? "of all layers" : "of some layers");
  for (const Schedule &s : plan.schedules) {
    std::set<uint64_t> slots;
    std::set<uint32_t> kept;
    for (const Step &step : s.steps)
      for (uint32_t k = step.firstOperand; k < step.firstOperand + step.operandCount; ++k) {
        const Operand &o = s.operands[k];
        if (!isAct(o.buffer))
          continue;
        if (step.kind == StepKind::Compute && step.op == kernels::Op::ActAppend)
          kept.insert(o.buffer);
        if (step.kind != StepKind::Copy || o.arg != Arg::Destination)
          continue;
        slots.insert(o.address);
        has(true, kept.contains(o.buffer) ? "brought behind its rows" : "brought before its rows are kept");
        has(true, step.resizable ? "sized copies" : "copies of one size");
      }
    has(slots.size() == 1, "one slot");
    has(slots.size() == 2, "two slots");
    has(slots.size() == 3, "three slots");
  }
  return out;
}

std::set<std::string> partsOfActs(const Plan &plan) {
  std::set<std::string> out;
  const auto has = [&](bool is, const char *part) {
    if (is)
      out.insert(part);
  };
  has(true, plan.miniBatches == 1 ? "one mini-batch" : "several mini-batches");
  has(true, plan.kvBlocks == 1 ? "no KV block but scratch" : "both kinds of blocks");
  const int64_t sequences = plan.metaLayout.maxSequences, longest = plan.metaLayout.maxBlocksPerSequence;
  has(plan.contextBlocks < sequences * longest, "fewer blocks than the longest sequences have");
  has(plan.actBlocks > model::blocksOfKinds(plan.actRatio, plan.contextBlocks, sequences, longest).act,
      "blocks to spare");
  has(plan.residualsLeave(), "residuals leave");
  has(plan.placements.size() > 1, "several placements");
  std::set<IterationClass> classes;
  for (const Schedule &s : plan.schedules) {
    std::map<std::pair<int32_t, uint8_t>, std::set<kernels::Op>> before; // by layer and mini-batch
    std::map<uint32_t, int> made;                                        // by transient
    for (const Step &step : s.steps) {
      if (step.kind != StepKind::Compute)
        continue;
      classes.insert(s.iterationClass);
      std::set<kernels::Op> &ops = before[{step.layer, step.miniBatch}];
      const bool rebuilds = step.op == kernels::Op::RebuildKv;
      has(rebuilds, ops.contains(kernels::Op::Norm) ? "rebuilt before the append" : "rebuilt before the norm");
      has(step.op == kernels::Op::ActAppend,
          ops.contains(kernels::Op::RopeAppend) ? "kept behind the append" : "kept before the append");
      ops.insert(step.op);
      for (uint32_t k = step.firstOperand; rebuilds && k < step.firstOperand + step.operandCount; ++k) {
        const Operand &o = s.operands[k];
        has(o.arg == Arg::Bias, "rebuilt with a bias");
        has(o.arg == Arg::NormWeights, "rebuilt with norms of heads");
        for (const Extent &e : plan.placements[s.placement].extents)
          has(o.arg == Arg::Weight && e.buffer == o.buffer && e.space == Space::Host, "rebuilt from a slot");
        if (o.arg == Arg::Y)
          ++made[o.buffer];
      }
    }
    for (const auto &[transient, times] : made)
      has(true, times > 1 ? "one transient for all layers" : "a transient a layer");
  }
  classes.erase(IterationClass::Transition);
  has(classes.size() > 1, "two classes");
  return out;
}

} // namespace headrace::plan::test
