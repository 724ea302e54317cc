// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "tests/unit/plan/ActSpots.h"
#include "tests/unit/plan/MutationParts.h"
#include "tests/unit/plan/PlanParts.h"

namespace headrace::plan::test {
namespace {

using kernels::Op;

// --- how many, and how large -----------------------------------------------------------------------------------------

bool oneBlockShort(Plan &plan, Random &random) {
  if (plan.actBlocks == 0)
    return false;
  Schedule &s = pick(random, plan.schedules);
  switch (below(random, 4)) {
  case 0: { // of all layers
    const uint64_t less = plan.actBlockBytes();
    if (plan.actBlocks == 1)
      return false;
    for (Buffer &b : plan.buffers)
      b.bytes -= b.kind == BufferKind::Act ? less : 0;
    for (Placement &p : plan.placements)
      for (Extent &e : p.extents)
        e.bytes -= isActs(plan, e.buffer) ? less : 0;
    for (Schedule &of : plan.schedules)
      for (Operand &o : of.operands)
        o.bytes -= isActs(plan, o.buffer) ? less : 0;
    return true;
  }
  case 1: { // a transient
    std::vector<uint32_t> made;
    for (uint32_t i = 0; i < s.locals.size(); ++i)
      if (s.locals[i].buffer.name == "rebuilt" && s.locals[i].buffer.bytes > plan.kvBlockBytes())
        made.push_back(i);
    if (made.empty())
      return false;
    const uint32_t local = pick(random, made);
    s.locals[local].buffer.bytes -= plan.kvBlockBytes();
    for (Operand &o : s.operands)
      o.bytes -= o.buffer == plan.buffers.size() + local ? plan.kvBlockBytes() : 0;
    return true;
  }
  case 2: { // an operand
    std::vector<uint32_t> of;
    for (uint32_t k = 0; k < s.operands.size(); ++k)
      if (const Operand &o = s.operands[k];
          o.bytes > plan.kvBlockBytes() && (o.arg == Arg::KvRebuilt || isActs(plan, o.buffer)))
        of.push_back(k);
    if (of.empty())
      return false;
    Operand &o = s.operands[pick(random, of)];
    const uint64_t less = isActs(plan, o.buffer) ? plan.actBlockBytes() : plan.kvBlockBytes();
    o.bytes -= std::min(less, o.bytes - 64);
    return true;
  }
  default: { // ids
    const uint32_t history = plan.ioBuffer(Io::History);
    const uint64_t own = plan.buffers[history].bytes / plan.miniBatches, less = own - model::kAlign;
    if (less == 0)
      return false;
    plan.buffers[history].bytes = less * plan.miniBatches;
    for (Placement &p : plan.placements)
      for (Extent &e : p.extents)
        e.bytes = e.buffer == history ? less * plan.miniBatches : e.bytes;
    for (Schedule &of : plan.schedules)
      for (Operand &o : of.operands)
        if (o.buffer == history) {
          const uint64_t miniBatch = o.bufferOffset / own;
          o.address -= o.bufferOffset - miniBatch * less;
          o.bufferOffset = miniBatch * less;
          o.bytes = less;
        }
  }
  }
  return true;
}
bool changeActCounts(Plan &plan, Random &random) {
  const auto by = static_cast<int64_t>(1 + below(random, 3)) * (coin(random) ? 1 : -1);
  switch (below(random, 4)) {
  case 0:
    plan.actBlocks += by;
    if (coin(random))
      plan.metaLayout.maxActBlocks = plan.actBlocks;
    return true;
  case 1:
    plan.contextBlocks += by;
    return true;
  case 2:
    (coin(random) ? plan.actRatio.num : plan.actRatio.den) += by;
    return true;
  default:
    plan.kvBlocks += by;
    for (Placement &p : plan.placements)
      p.kvBlocks += by;
    if (plan.actBlocks > 0 && coin(random))
      plan.metaLayout.firstActBlock = plan.kvBlocks;
    return true;
  }
}
bool changeActMeta(Plan &plan, Random &random) {
  const auto by = static_cast<int64_t>(1 + below(random, 3)) * (coin(random) ? 1 : -1);
  (plan.actBlocks > 0 && coin(random) ? plan.metaLayout.firstActBlock : plan.metaLayout.maxActBlocks) += by;
  return true;
}
// As if there were none; or as if there were some where there are none.
bool denyActs(Plan &plan, Random &random) {
  if (plan.actBlocks == 0) {
    std::vector<Spot> of = stepsOf(plan, {Op::Activate, Op::Norm});
    switch (below(random, 3)) {
    case 0:
      plan.actBlocks = plan.metaLayout.maxActBlocks = 1;
      plan.metaLayout.firstActBlock = plan.kvBlocks;
      plan.actRatio = {1, 2};
      return true;
    case 1:
      stepAt(plan, pick(random, of)).op = coin(random) ? Op::ActAppend : Op::RebuildKv;
      return true;
    default:
      of = stepsOf(plan, {Op::RopeAppend, Op::Attention});
      part(plan, pick(random, of), Arg::Kv)->arg = coin(random) ? Arg::Act : Arg::KvRebuilt;
      return true;
    }
  }
  plan.actBlocks = 0;
  if (below(random, 4) != 0)
    plan.contextBlocks = 0;
  if (below(random, 4) != 0)
    plan.actRatio = {};
  if (below(random, 4) != 0)
    plan.metaLayout.maxActBlocks = 0;
  if (below(random, 4) != 0)
    plan.metaLayout.firstActBlock = kernels::MetaLayout{}.firstActBlock;
  if (coin(random))
    for (Buffer &b : plan.buffers)
      b.kind = b.kind == BufferKind::Act ? BufferKind::Residual : b.kind;
  return true;
}
bool changeActBuffer(Plan &plan, Random &random) {
  std::vector<uint32_t> all = actBuffers(plan);
  if (all.empty())
    return false;
  Buffer &b = plan.buffers[pick(random, all)];
  switch (below(random, 4)) {
  case 0:
    b.kind = coin(random) ? BufferKind::Residual : BufferKind::Kv;
    return true;
  case 1:
    b.index = below(random, 2) == 0 && plan.miniBatches > 1 ? (b.index + 1) % plan.miniBatches : plan.miniBatches;
    return true;
  case 2:
    b.layer = (b.layer + 1) % static_cast<int32_t>(plan.model->layers);
    return true;
  default:
    b.name = "activations";
    return true;
  }
}

// --- operands and places ---------------------------------------------------------------------------------------------

bool changeActAccess(Plan &plan, Random &random) {
  std::vector<Spot> of = stepsOf(plan, {Op::ActAppend, Op::RebuildKv, Op::RopeAppend, Op::Attention});
  const Spot spot = pick(random, of);
  std::vector<Operand *> operands;
  for (const Arg arg : {Arg::Act, Arg::KvRebuilt, Arg::Y})
    if (Operand *o = part(plan, spot, arg); o != nullptr)
      operands.push_back(o);
  if (operands.empty())
    return false;
  Access &access = pick(random, operands)->access;
  access = static_cast<Access>((static_cast<uint64_t>(access) + 1 + below(random, 2)) % 3);
  return true;
}
bool leaveActOperandOut(Plan &plan, Random &random) {
  std::vector<Spot> of = stepsOf(plan, {Op::ActAppend, Op::RebuildKv, Op::RopeAppend, Op::Attention});
  const Spot spot = pick(random, of);
  std::vector<Arg> args;
  for (const Arg arg : {Arg::Act, Arg::KvRebuilt, Arg::Bias, Arg::NormWeights})
    if (part(plan, spot, arg) != nullptr && plan.actBlocks > 0)
      args.push_back(arg);
  if (args.empty())
    return false;
  Step &step = stepAt(plan, spot);
  Operand &last = scheduleAt(plan, spot).operands[step.firstOperand + step.operandCount - 1];
  std::swap(*part(plan, spot, pick(random, args)), last);
  --step.operandCount;
  return true;
}
// Two layers' or mini-batches', and their steps know.
bool actsInOneRange(Plan &plan, Random &random) {
  std::vector<uint32_t> all = actBuffers(plan);
  if (all.size() < 2)
    return false;
  const uint32_t moving = pick(random, all), onto = pick(random, all);
  uint64_t to = 0;
  for (Placement &p : plan.placements) {
    for (const Extent &e : p.extents)
      to = e.buffer == onto ? e.address : to;
    for (Extent &e : p.extents)
      e.address = e.buffer == moving ? to : e.address;
  }
  for (Schedule &s : plan.schedules)
    for (Operand &o : s.operands)
      o.address = o.buffer == moving ? to : o.address;
  return moving != onto;
}
// A home in one placement alone, or an operand.
bool moveActs(Plan &plan, Random &random) {
  std::vector<uint32_t> all = actBuffers(plan);
  if (all.empty())
    return false;
  const uint32_t moving = pick(random, all);
  const auto placement = static_cast<uint32_t>(below(random, plan.placements.size()));
  Extent *home = nullptr;
  for (Extent &e : plan.placements[placement].extents)
    home = e.buffer == moving ? &e : home;
  const bool away = below(random, 3) == 0;
  const uint64_t to = away ? plan.hostBytes : plan.arenaBytes;
  bool found = false;
  if (coin(random)) {
    home->space = away ? Space::Host : Space::Device;
    home->address = to;
    (away ? plan.hostBytes : plan.arenaBytes) += home->bytes;
    plan.deviceMemory = std::max(plan.deviceMemory, plan.arenaBytes);
    found = true;
  }
  for (Schedule &s : plan.schedules)
    for (Operand &o : s.operands)
      if (s.placement == placement && o.buffer == moving && (home->address == to || !found)) {
        o.address = home->address == to ? to : moved(random, o.address, 256, 8);
        o.space = home->space;
        found = true;
      }
  return found;
}
// A copy from their home on the device, or to it, which no rule has.
bool copyActs(Plan &plan, Random &random) {
  std::vector<uint32_t> all = actBuffers(plan);
  if (all.empty())
    return false;
  const auto schedule = static_cast<uint32_t>(below(random, plan.schedules.size()));
  Schedule &s = plan.schedules[schedule];
  Operand at;
  lieAtHome(plan, s, at, pick(random, all));
  if (at.space == Space::Host)
    return false;
  Operand aside = at;
  aside.space = Space::Host;
  aside.address = plan.hostBytes;
  const bool back = coin(random);
  (back ? at : aside).access = Access::Read, (back ? at : aside).arg = Arg::Source;
  (back ? aside : at).access = Access::Write, (back ? aside : at).arg = Arg::Destination;
  Step step;
  step.kind = StepKind::Copy;
  step.lane = back ? Lane::D2H : Lane::H2D;
  step.part = Part::Movement;
  step.layer = plan.buffers[at.buffer].layer;
  step.linkBytes = at.bytes;
  insertCopy(plan, schedule, static_cast<uint32_t>(below(random, s.steps.size() + 1)), step, back ? at : aside,
             back ? aside : at);
  if (coin(random))
    connect(plan, s);
  return true;
}

} // namespace

const std::vector<Mutation> &actSizeMutations() {
  static const std::vector<Mutation> all = {
      {"one block short", oneBlockShort},
      {"change counts of activation blocks", changeActCounts},
      {"change the meta's activation blocks", changeActMeta},
      {"deny that there are activation blocks", denyActs},
      {"change a buffer of activation blocks", changeActBuffer},
      {"change an access of activation blocks", changeActAccess},
      {"leave an operand of activation blocks out", leaveActOperandOut},
      {"activation blocks in one range", actsInOneRange},
      {"move activation blocks", moveActs},
      {"copy activation blocks", copyActs},
  };
  return all;
}

} // namespace headrace::plan::test
