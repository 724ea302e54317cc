// SPDX-License-Identifier: Apache-2.0
//
// Steps of the cpu lane, what they are brought, and what they have of the host slab.
#include <map>
#include <set>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/plan/OracleMemory.h"

namespace headrace::plan::test {
namespace {

using kernels::Op;

const Local *localOf(const Plan &plan, const Schedule &s, uint32_t buffer) {
  return buffer < plan.buffers.size() ? nullptr : &s.locals[buffer - plan.buffers.size()];
}
bool placed(uint64_t address) { return address != kNowhere; }

} // namespace

bool isMeta(const Plan &plan, uint32_t buffer) {
  return buffer < plan.buffers.size() && plan.buffers[buffer].kind == BufferKind::Io && plan.buffers[buffer].index == 0;
}
bool isStaged(const Plan &plan, const Schedule &s, uint32_t buffer) {
  const Local *local = localOf(plan, s, buffer);
  return local != nullptr && placed(local->address) && placed(local->hostAddress);
}

bool localsAreRight(const Plan &plan, const Schedule &s) {
  bool ok = true;
  for (const Local &l : s.locals) {
    ok &= placed(l.address) || placed(l.hostAddress);
    ok &= l.buffer.kind != BufferKind::Workspace || placed(l.address) != placed(l.hostAddress);
    for (const uint64_t address : {l.address, l.hostAddress})
      ok &= !placed(address) || (address % 256 == 0 && address <= uint64_t{1} << 53);
  }
  for (const Operand &o : s.operands)
    if (const Local *l = localOf(plan, s, o.buffer)) {
      const uint64_t begin = o.space == Space::Host ? l->hostAddress : l->address;
      ok &= placed(begin) && o.address == begin + o.bufferOffset;
    }
  return ok;
}

// Of a transient all that the step's mini-batch has, or the iteration buffer of all: down.
bool copiesDownAreRight(const Plan &plan, const Schedule &s) {
  bool ok = true;
  for (const Step &step : s.steps) {
    if (step.kind != StepKind::Copy)
      continue;
    const Operand &from = s.operands[step.firstOperand], &to = s.operands[step.firstOperand + 1];
    const bool io = from.buffer < plan.buffers.size() && plan.buffers[from.buffer].kind == BufferKind::Io;
    if (!io && localOf(plan, s, from.buffer) == nullptr)
      continue;
    ok &= s.iterationClass != IterationClass::Transition && from.space == Space::Device && to.space == Space::Host &&
          !step.dirtyOnly;
    if (io) {
      ok &= isMeta(plan, from.buffer) && placed(plan.metaOnHost) && from.bytes == plan.buffers[from.buffer].bytes &&
            step.miniBatch == 0 && !step.resizable;
    } else {
      const Buffer &buffer = plan.buffer(s, from.buffer);
      ok &= isStaged(plan, s, from.buffer) && from.bufferOffset == 0 && from.bytes == buffer.bytes &&
            step.miniBatch == buffer.index;
    }
  }
  return ok;
}

// Which steps the lane has, and whose memory is theirs.
void addBrokenCpuRules(const Plan &plan, const Caches &caches, const Schedule &s, const Step &step,
                       std::set<Rule> &rules) {
  const auto breaks = [&](bool broken, Rule rule) {
    if (broken)
      rules.insert(rule);
  };
  const bool cpu = step.lane == Lane::Cpu;
  if (step.kind == StepKind::Copy)
    return;
  std::map<Arg, Operand> args;
  for (uint32_t k = step.firstOperand; k < step.firstOperand + step.operandCount; ++k)
    args[s.operands[k].arg] = s.operands[k];
  for (const auto &[arg, o] : args) {
    breaks(cpu && o.space == Space::Device, Rule::WrongSpace);
    if (cpu && o.space == Space::Host && isMeta(plan, o.buffer))
      breaks(!placed(plan.metaOnHost) || o.address != plan.metaOnHost + o.bufferOffset, Rule::HostRange);
  }
  if (step.kind == StepKind::Publish)
    return breaks(cpu, Rule::Structure);
  const bool may = step.op == Op::Append || step.op == Op::Attention;
  breaks(cpu && (!may || step.direct), Rule::Structure);
  breaks(step.op == Op::Append && !cpu, Rule::Structure);
  const auto &m = *plan.model;
  const auto touches = [&](Arg arg, int64_t columns, Access access) {
    const Operand &o = args[arg];
    breaks(!args.contains(arg) || o.buffer < plan.buffers.size() || o.bufferOffset != 0 || o.access != access ||
               o.bytes < static_cast<uint64_t>(s.maxTokens * columns) * 4,
           Rule::Structure);
  };
  const auto only = [&](std::set<Arg> expected) {
    for (const auto &[arg, o] : args)
      breaks(!expected.contains(arg), Rule::Structure);
  };
  if (step.op == Op::Rotate) {
    touches(Arg::X, m.qkvRows(), Access::ReadWrite);
    breaks(!m.qkNorm && !m.rope.enabled, Rule::Structure);
    breaks(args.contains(Arg::NormWeights) != m.qkNorm, Rule::Structure); // what of it: Oracle.cpp
    only({Arg::Meta, Arg::X, Arg::NormWeights});
    breaks(step.layer < 0, Rule::Structure);
  }
  if (step.op == Op::FetchRows) {
    touches(Arg::X, m.qRows(), Access::Read);
    touches(Arg::Y, m.qRows(), Access::Write);
    breaks(args[Arg::X].buffer != args[Arg::Y].buffer || args[Arg::X].space != Space::Host ||
               args[Arg::Y].space != Space::Device,
           Rule::Structure);
    only({Arg::Meta, Arg::X, Arg::Y});
  }
  if (step.op != Op::Append && !(step.op == Op::Attention && cpu))
    return;
  const bool appends = step.op == Op::Append;
  if (step.layer < 0 || plan.actBlocks > 0 || !caches.mirrored || caches.mirroredFrom > 0 ||
      blocksOnDevice(plan, plan.placements[s.placement]) > 0) {
    rules.insert(Rule::Structure);
    return;
  }
  touches(Arg::X, m.qkvRows(), Access::Read);
  const Operand &home = args[Arg::KvHome];
  const uint32_t cache = plan.kvBuffer(step.layer, step.miniBatch);
  breaks(!args.contains(Arg::KvHome) || home.buffer != cache || home.space != Space::Host || home.interleaved ||
             home.bufferOffset != 0 ||
             home.bytes != static_cast<uint64_t>(blocksInUse(plan, s)) * plan.kvBlockBytes() ||
             home.access != (appends ? Access::ReadWrite : Access::Read),
         Rule::Structure);
  if (args.contains(Arg::KvHome) && caches.byte0.contains(home.buffer) && home.space == Space::Host)
    breaks(home.address != caches.byte0.at(home.buffer) + home.bufferOffset, Rule::HostRange);
  if (appends)
    return only({Arg::Meta, Arg::X, Arg::KvHome, Arg::Workspace});
  touches(Arg::Y, m.qRows(), Access::Write);
  only({Arg::Meta, Arg::X, Arg::KvHome, Arg::Y, Arg::Workspace});
}

// Rows are rotated once, where they are, and appended before they are attended to.
bool attendsToItsRows(const Plan &plan, const Schedule &s) {
  using Turn = std::pair<int32_t, uint32_t>; // layer, mini-batch
  std::set<Turn> appended, rotated;
  const bool rotates = plan.model->rope.enabled || plan.model->qkNorm;
  for (const Step &step : s.steps) {
    if (step.kind != StepKind::Compute)
      continue;
    const Turn turn{step.layer, step.miniBatch};
    const bool twice = rotated.contains(turn) && (step.op == Op::RopeAppend || step.op == Op::Rotate);
    const bool late = step.op == Op::Rotate && appended.contains(turn);
    const bool never = step.op == Op::Append && rotates && !rotated.contains(turn);
    if (twice || late || never || (step.op == Op::Attention && !appended.contains(turn)))
      return false;
    if (step.op == Op::RopeAppend || step.op == Op::Append)
      appended.insert(turn);
    if (step.op == Op::Rotate)
      rotated.insert(turn);
  }
  return true;
}

} // namespace headrace::plan::test
