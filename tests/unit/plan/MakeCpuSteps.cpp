// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/Kernels.h"
#include "tests/unit/plan/PlacementBuilder.h"

namespace headrace::plan::test {

// Behind all homes: the iteration buffer, then what each mini-batch has.
uint64_t PlacementBuilder::onHost(Role role) const {
  const LocalSizes l = sizes(largest_);
  const uint64_t one = l.qkv + l.attn + l.workspace,
                 begin = plan_.metaOnHost + plan_.buffers[plan_.ioBuffer(plan::Io::Meta)].bytes;
  return begin + miniBatch_ * one + (role == Qkv ? 0 : role == Attn ? l.qkv : l.qkv + l.attn);
}

Operand PlacementBuilder::hosted(Operand local) const {
  local.space = Space::Host;
  local.address = schedule_->locals[local.buffer - plan_.buffers.size()].hostAddress;
  return local;
}

void PlacementBuilder::copyDown(const Operand &from, uint64_t hostAddress, bool resizable) {
  Step step;
  step.kind = StepKind::Copy;
  step.lane = Lane::D2H;
  step.part = Part::Movement;
  step.miniBatch = static_cast<uint8_t>(miniBatch_);
  step.linkBytes = from.bytes;
  step.resizable = resizable;
  Operand source = from, destination = from;
  source.arg = Arg::Source;
  source.access = Access::Read;
  destination.arg = Arg::Destination;
  destination.access = Access::Write;
  destination.space = Space::Host;
  destination.address = hostAddress;
  computes_.push_back({step, {source, destination}});
}

void PlacementBuilder::copyMetaDown() {
  const Operand meta = range(Arg::Meta, Access::Read, plan::Io::Meta);
  copyDown(meta, plan_.metaOnHost + meta.bufferOffset, false);
}

void PlacementBuilder::computeOnCpu(kernels::Op op, int64_t layer, std::vector<Operand> operands) {
  compute(op, Part::Attention, layer, std::move(operands));
  PlannedCompute &made = computes_.back();
  made.step.lane = Lane::Cpu;
  made.step.linkBytes = 0;
  Operand &meta = made.operands.back();
  meta.space = Space::Host;
  meta.address = plan_.metaOnHost + meta.bufferOffset;
}

//   compute  ... rotate                              fetch_rows ...
//   d2h                 qkv
//   cpu                     append  attention
void PlacementBuilder::attendOnCpu(int64_t layer) {
  const model::ModelSpec &m = plan_.model;
  if (m.rope.enabled || m.qkNorm) {
    std::vector<Operand> operands = {local(Arg::X, Access::ReadWrite, Qkv)};
    if (m.qkNorm)
      operands.push_back(weight(Arg::NormWeights, unitOf(layer, model::UnitRole::Qkv), model::TensorRole::HeadNorms));
    compute(kernels::Op::Rotate, Part::Attention, layer, std::move(operands));
  }
  const Operand qkv = local(Arg::X, Access::Read, Qkv);
  copyDown(qkv, onHost(Qkv), !limits_->copiesAllRows);
  computeOnCpu(kernels::Op::Append, layer,
               {hosted(qkv), blocks(Arg::KvHome, Access::ReadWrite, cacheOf(layer), 0, inUse())});
  const Operand attended = local(Arg::Y, Access::Write, Attn);
  Operand workspace = local(Arg::Workspace, Access::Write, CpuWorkspace);
  computeOnCpu(kernels::Op::Attention, layer,
               {hosted(qkv), blocks(Arg::KvHome, Access::Read, cacheOf(layer), 0, inUse()), hosted(attended),
                hosted(workspace)});
  Operand x = hosted(attended);
  x.arg = Arg::X;
  x.access = Access::Read;
  compute(kernels::Op::FetchRows, Part::Attention, layer, {x, attended}, true);
}

} // namespace headrace::plan::test
