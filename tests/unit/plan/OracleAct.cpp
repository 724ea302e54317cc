// SPDX-License-Identifier: Apache-2.0
//
// Activation blocks: how many there are and how large, where they are at home, the operands of what keeps rows in them
// and makes keys and values from them, and that attention finds these. What is at home on the host is written there
// by what keeps rows, and read in a slot that a copy of all of it has brought it to: as with the tails of caches,
// which copy is current is told step by step (OracleSchedule.cpp).
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "tests/unit/plan/OracleMemory.h"

namespace headrace::plan::test {
namespace {

using kernels::Op;
using Turn = std::pair<int32_t, uint32_t>; // layer, mini-batch

// The next block of a sequence keeps activations as long as fewer than the share of all would.
int64_t keptOf(const model::ActRatio &share, int64_t blocks) {
  int64_t kept = 0;
  for (int64_t all = 1; all <= blocks; ++all)
    kept += kept * share.den < share.num * all ? 1 : 0;
  return kept;
}

bool countsAreRight(const Plan &plan) {
  const kernels::MetaLayout &meta = plan.metaLayout;
  const model::ActRatio &share = plan.actRatio;
  if (plan.actBlocks == 0)
    return plan.contextBlocks == 0 && share == model::ActRatio{} && meta.maxActBlocks == 0 &&
           meta.firstActBlock == kernels::MetaLayout{}.firstActBlock;
  if (share.num < 0 || share.num > share.den || share.den > 1'000'000 || std::gcd(share.num, share.den) != 1)
    return false;
  const int64_t all = plan.contextBlocks, sequences = meta.maxSequences;
  if (plan.actBlocks < 0 || all < 1 || all > 1000 || meta.firstActBlock != plan.kvBlocks ||
      meta.maxActBlocks != plan.actBlocks)
    return false;
  // Of the kept, each sequence may round up, by less than one block; of the others none does.
  const int64_t longest = (plan.maxContext + plan.blockTokens - 1) / plan.blockTokens;
  const int64_t rounded = (share.num * all + sequences * (share.den - 1)) / share.den;
  const int64_t act = std::min({rounded, sequences * keptOf(share, longest), all});
  const int64_t kv = std::min(all - keptOf(share, all), sequences * (longest - keptOf(share, longest)));
  return plan.actBlocks >= act && plan.kvBlocks >= kv + 1;
}

uint64_t rebuiltBytes(const Plan &plan) { return static_cast<uint64_t>(plan.actBlocks) * plan.kvBlockBytes(); }

} // namespace

bool isAct(const Plan &plan, uint32_t buffer) {
  return buffer < plan.buffers.size() && plan.buffers[buffer].kind == BufferKind::Act;
}
bool actsOnHost(const Plan &plan, const Placement &placement, uint32_t buffer) {
  return isAct(plan, buffer) && std::any_of(placement.extents.begin(), placement.extents.end(), [&](const Extent &e) {
           return e.buffer == buffer && e.space == Space::Host;
         });
}

bool actBuffersAreRight(const Plan &plan) {
  std::multiset<std::pair<int32_t, uint32_t>> found, all;
  for (const Buffer &b : plan.buffers)
    if (b.kind == BufferKind::Act)
      found.insert({b.layer, b.index});
  for (int32_t layer = 0; layer < plan.model->layers && plan.actBlocks != 0; ++layer)
    for (uint32_t i = 0; i < plan.miniBatches; ++i)
      all.insert({layer, i});
  return found == all;
}

void addBrokenActRules(const Plan &plan, const Caches &caches, std::set<Rule> &rules) {
  const auto tokens = static_cast<uint64_t>(plan.blockTokens);
  const uint64_t rows = static_cast<uint64_t>(plan.actBlocks) * tokens;
  bool ok = countsAreRight(plan);
  for (const Buffer &b : plan.buffers) {
    const std::string turn = plan.miniBatches > 1 ? "." + std::to_string(b.index) : "";
    if (b.kind == BufferKind::Act)
      ok &= b.bytes == model::alignUp(rows * static_cast<uint64_t>(plan.model->hidden) * 4) &&
            b.name == "act." + std::to_string(b.layer) + turn;
    if (b.kind == BufferKind::Kv && !caches.byBlocks)
      ok &= b.bytes == model::alignUp(static_cast<uint64_t>(plan.kvBlocks) * plan.kvBlockBytes());
    if (b.kind == BufferKind::Io && b.index == static_cast<uint32_t>(Io::History))
      ok &= b.bytes / plan.miniBatches >= (static_cast<uint64_t>(plan.kvBlocks) * tokens + rows) * 4;
  }
  // Whole, in one place: on the device, or on the host, where what keeps rows writes it.
  std::map<uint32_t, std::pair<Space, uint64_t>> homes;
  for (const Placement &p : plan.placements)
    for (const Extent &e : p.extents)
      if (isAct(plan, e.buffer))
        ok &= (e.space == Space::Device || (e.space == Space::Host && e.direct)) && e.bufferOffset == 0 &&
              e.bytes == plan.buffers[e.buffer].bytes &&
              homes.try_emplace(e.buffer, e.space, e.address).first->second == std::pair(e.space, e.address);
  if (!ok)
    rules.insert(Rule::Structure);
}

void addBrokenActRules(const Plan &plan, const model::WeightLayout &layout, const Schedule &s, const Step &step,
                       std::set<Rule> &rules) {
  if (step.kind != StepKind::Compute)
    return;
  std::map<Arg, Operand> args;
  for (uint32_t k = step.firstOperand; k < step.firstOperand + step.operandCount; ++k)
    args[s.operands[k].arg] = s.operands[k];
  const bool keeps = step.op == Op::ActAppend, makes = step.op == Op::RebuildKv;
  const bool any = plan.actBlocks > 0, cacheStep = step.op == Op::RopeAppend || step.op == Op::Attention;
  bool ok = any || !(keeps || makes);
  ok &= args.contains(Arg::Act) == (keeps || makes) && args.contains(Arg::KvRebuilt) == (any && cacheStep);
  const auto is = [&](Arg arg, std::initializer_list<Access> accesses) {
    return args.contains(arg) && std::count(accesses.begin(), accesses.end(), args[arg].access) == 1;
  };
  const auto transient = [&](Arg arg, uint64_t bytes) {
    const Operand &o = args[arg];
    return o.buffer >= plan.buffers.size() && o.bufferOffset == 0 && o.bytes >= bytes;
  };
  if (any && cacheStep)
    ok &= transient(Arg::KvRebuilt, rebuiltBytes(plan)) &&
          is(Arg::KvRebuilt, {step.op == Op::Attention ? Access::Read : Access::ReadWrite});
  if (keeps || makes) {
    const Operand &act = args[Arg::Act];
    const bool own = act.buffer < plan.buffers.size() && plan.buffers[act.buffer].kind == BufferKind::Act &&
                     plan.buffers[act.buffer].layer == step.layer && plan.buffers[act.buffer].index == step.miniBatch;
    ok &= own && act.bufferOffset == 0 && act.bytes == plan.buffers[act.buffer].bytes;
  }
  if (keeps)
    ok &= transient(Arg::X, static_cast<uint64_t>(s.maxTokens * plan.model->hidden) * 4) &&
          is(Arg::X, {Access::Read}) && is(Arg::Act, {Access::Write, Access::ReadWrite});
  if (makes && step.layer >= 0 && step.layer < plan.model->layers) {
    const auto number = static_cast<uint32_t>(layout.layerUnit(step.layer, model::UnitRole::Qkv));
    const model::Unit &qkv = layout.units[number];
    const auto covers = [&](Arg arg, model::TensorRole role) {
      const Operand &o = args[arg];
      const model::Tensor *t = qkv.find(role);
      return t != nullptr && is(arg, {Access::Read}) && o.buffer < plan.buffers.size() &&
             plan.buffers[o.buffer].kind == BufferKind::Weight && plan.buffers[o.buffer].index == number &&
             o.bufferOffset <= t->offset && o.bufferOffset + o.bytes >= t->offset + t->bytes;
    };
    ok &= is(Arg::Act, {Access::Read}) && args[Arg::Act].space == Space::Device &&
          covers(Arg::Weight, model::TensorRole::Matrix);
    ok &= is(Arg::Y, {Access::Write}) && transient(Arg::Y, rebuiltBytes(plan));
    ok &= qkv.find(model::TensorRole::Bias) != nullptr ? covers(Arg::Bias, model::TensorRole::Bias)
                                                       : !args.contains(Arg::Bias);
    ok &=
        plan.model->qkNorm ? covers(Arg::NormWeights, model::TensorRole::HeadNorms) : !args.contains(Arg::NormWeights);
  } else if (makes) {
    ok = false;
  }
  if (!ok)
    rules.insert(Rule::Structure);
}

bool attendsToWhatIsRebuilt(const Plan &plan, const Schedule &s) {
  if (plan.actBlocks == 0)
    return true;
  // What a transient holds: keys and values of which turn, and whether they have this iteration's rows.
  struct Made {
    Turn turn;
    bool appended = false;
  };
  std::map<uint32_t, Made> made;
  std::set<Turn> kept;
  for (const Step &step : s.steps) {
    if (step.kind == StepKind::Copy)
      continue;
    const Turn turn{step.layer, step.miniBatch};
    const bool computes = step.kind == StepKind::Compute;
    const bool appends = computes && step.op == Op::RopeAppend, attends = computes && step.op == Op::Attention;
    std::optional<uint32_t> keys; // the transient that has them
    for (uint32_t k = step.firstOperand; k < step.firstOperand + step.operandCount; ++k)
      if (s.operands[k].arg == Arg::KvRebuilt)
        keys = s.operands[k].buffer;
    const auto holds = keys ? made.find(*keys) : made.end();
    const bool own = holds != made.end() && holds->second.turn == turn;
    if ((appends && !own) || (attends && !(own && holds->second.appended && kept.contains(turn))))
      return false;
    for (uint32_t k = step.firstOperand; k < step.firstOperand + step.operandCount; ++k) {
      const Operand &o = s.operands[k];
      if (o.access == Access::Read)
        continue;
      if (appends && o.buffer == *keys)
        made[o.buffer].appended = true;
      else
        made.erase(o.buffer);
      if (computes && step.op == Op::RebuildKv && o.arg == Arg::Y)
        made[o.buffer] = {turn};
    }
    if (computes && step.op == Op::ActAppend)
      kept.insert(turn);
  }
  return true;
}

} // namespace headrace::plan::test
