// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/proof/TakenOperands.h"

#include <algorithm>

#include "runtime/plan/proof/UnitBytes.h"
#include "runtime/plan/value/Mirrors.h"

namespace headrace::plan {
namespace {

using model::TensorRole;

uint64_t times(int64_t a, int64_t b) { return static_cast<uint64_t>(a) * static_cast<uint64_t>(b); }

} // namespace

const Operand *TakenOperands::find(Arg arg) const {
  for (uint32_t i = 0; i < step_->operandCount; ++i)
    if (const Operand &operand = schedule_.operands[step_->firstOperand + i]; operand.arg == arg)
      return &operand;
  return nullptr;
}

const Operand *TakenOperands::take(Arg arg, unsigned accesses) {
  const Operand *operand = find(arg);
  if (operand == nullptr) {
    fail("operand ", argName(arg), " is missing");
    return nullptr;
  }
  note(arg);
  if (!(accesses >> static_cast<int>(operand->access) & 1))
    fail("operand ", argName(arg), " has access ", static_cast<int>(operand->access), ", which the op does not make");
  return operand;
}

void TakenOperands::whole(Arg arg, unsigned accesses, uint32_t buffer) {
  const Operand *operand = take(arg, accesses);
  if (operand &&
      (operand->buffer != buffer || operand->bufferOffset != 0 || operand->bytes != plan_.buffers[buffer].bytes))
    fail("operand ", argName(arg), " is ",
         describe(plan_, schedule_, operand->buffer, operand->bufferOffset, operand->bytes), ", expected all of ",
         plan_.buffers[buffer].name);
}

void TakenOperands::cache(unsigned accesses) {
  const uint32_t buffer = buffers_.kv(step_->layer, step_->miniBatch);
  if (!caches_.split()) {
    whole(Arg::Kv, accesses, buffer);
    return;
  }
  const uint64_t bytes = caches_.residentBytes(schedule_.placement);
  if (bytes == 0)
    return;
  const Operand *operand = take(Arg::Kv, accesses);
  if (operand &&
      (operand->buffer != buffer || operand->bufferOffset != 0 || operand->bytes != bytes || !operand->interleaved))
    fail("operand ", argName(Arg::Kv), " is ",
         describe(plan_, schedule_, operand->buffer, operand->bufferOffset, operand->bytes),
         operand->interleaved ? "" : ", not interleaved", ", expected ", describe(plan_, schedule_, buffer, 0, bytes),
         ", interleaved");
}

void TakenOperands::blocks(Arg arg, unsigned accesses, Space space, uint64_t begin, uint64_t end) {
  if (begin >= end)
    return;
  const uint32_t buffer = buffers_.kv(step_->layer, step_->miniBatch);
  const Operand *operand = take(arg, accesses);
  if (operand && (operand->buffer != buffer || operand->bufferOffset != begin || operand->bytes != end - begin ||
                  operand->interleaved || operand->space != space))
    fail("operand ", argName(arg), " is ",
         describe(plan_, schedule_, operand->buffer, operand->bufferOffset, operand->bytes), " in space ",
         static_cast<int>(operand->space), operand->interleaved ? ", interleaved" : "", ", expected ",
         describe(plan_, schedule_, buffer, begin, end - begin), " as one run in space ", static_cast<int>(space));
}

void TakenOperands::tail(unsigned accesses) {
  if (!caches_.split())
    return;
  blocks(Arg::KvTail, accesses, Space::Device, caches_.residentBytes(schedule_.placement),
         caches_.bytesInUse(schedule_));
  if (const Operand *operand = find(Arg::KvTail); operand && operand->address % model::kAlign != 0)
    fail("operand ", argName(Arg::KvTail), " is at ", operand->address, ", expected a multiple of ", model::kAlign);
}

void TakenOperands::home() {
  if (!caches_.mirrors())
    return;
  const uint64_t begin = caches_.mirrorBegin(), resident = caches_.residentBytes(schedule_.placement);
  const Operand *operand = find(Arg::KvHome);
  const uint64_t end = operand ? operand->bufferOffset + operand->bytes : begin;
  blocks(Arg::KvHome, kRW, Space::Host, begin, end == std::max(begin, resident) ? end : caches_.bytesInUse(schedule_));
}

bool TakenOperands::needsAct() {
  if (plan_.actBlocks > 0 && step_->layer >= 0)
    return true;
  fail(plan_.actBlocks > 0 ? "the step is of no layer" : "the plan has no activation blocks");
  return false;
}

void TakenOperands::act(unsigned accesses) { whole(Arg::Act, accesses, buffers_.act(step_->layer, step_->miniBatch)); }

uint64_t TakenOperands::rebuiltBytes() const {
  uint64_t bytes = 0;
  return __builtin_mul_overflow(static_cast<uint64_t>(plan_.actBlocks), plan_.kvBlockBytes(), &bytes) ? UINT64_MAX
                                                                                                      : bytes;
}

void TakenOperands::rebuilt(unsigned accesses) {
  if (plan_.actBlocks > 0)
    local(Arg::KvRebuilt, accesses, rebuiltBytes());
}

void TakenOperands::range(Arg arg, unsigned accesses, Io io) {
  const uint64_t bytes = plan_.ioRangeBytes(plan_.buffers[buffers_.io(io)]);
  range(arg, accesses, io, step_->miniBatch * bytes, bytes);
}

void TakenOperands::meta() {
  const uint64_t begin = step_->miniBatch * kernels::metaFixedBytes(plan_.metaLayout);
  range(Arg::Meta, kR, Io::Meta, begin, plan_.buffers[buffers_.io(Io::Meta)].bytes - begin);
}

void TakenOperands::range(Arg arg, unsigned accesses, Io io, uint64_t begin, uint64_t bytes) {
  const uint32_t buffer = buffers_.io(io);
  if (plan_.miniBatches == 1) {
    whole(arg, accesses, buffer);
    return;
  }
  const Operand *operand = take(arg, accesses);
  if (operand && (operand->buffer != buffer || operand->bufferOffset != begin || operand->bytes != bytes))
    fail("operand ", argName(arg), " is ",
         describe(plan_, schedule_, operand->buffer, operand->bufferOffset, operand->bytes), ", expected ",
         describe(plan_, schedule_, buffer, begin, bytes), " of mini-batch ", step_->miniBatch);
}

void TakenOperands::local(Arg arg, unsigned accesses, uint64_t bytes) {
  const Operand *operand = take(arg, accesses);
  if (!operand)
    return;
  if (operand->buffer < plan_.buffers.size() || operand->bufferOffset != 0)
    fail("operand ", argName(arg), " is ",
         describe(plan_, schedule_, operand->buffer, operand->bufferOffset, operand->bytes),
         ", expected a transient buffer from its start");
  else if (const Buffer &buffer = plan_.buffer(schedule_, operand->buffer); buffer.index != step_->miniBatch)
    fail("operand ", argName(arg), " is ", buffer.name, " of mini-batch ", buffer.index, ", the step is of ",
         step_->miniBatch);
  if (operand->bytes < bytes)
    fail("operand ", argName(arg), " has ", operand->bytes, " bytes, the op touches ", bytes);
}

void TakenOperands::rows(Arg arg, unsigned accesses, int64_t rows, int64_t columns) {
  local(arg, accesses, times(rows, columns) * model::dtypeBytes(plan_.activationDtype));
}

void TakenOperands::rowsF32(Arg arg, unsigned accesses, int64_t rows, int64_t columns) {
  local(arg, accesses, times(rows, columns) * sizeof(float));
}

void TakenOperands::stream(Arg arg, unsigned accesses, int64_t columns) {
  const uint32_t buffer = buffers_.residual(step_->miniBatch);
  if (buffer == kNone) {
    rowsF32(arg, accesses, tokens_, columns);
    return;
  }
  whole(arg, accesses, buffer);
  const Operand *operand = find(arg);
  if (operand && operand->space != Space::Device)
    fail("operand ", argName(arg), " is ", plan_.buffers[buffer].name, " in space ", static_cast<int>(operand->space),
         ", expected on the device");
  if (const uint64_t touched = times(tokens_, columns) * sizeof(float); operand && operand->bytes < touched)
    fail("operand ", argName(arg), " has ", operand->bytes, " bytes, the op touches ", touched);
}

kernels::Backend TakenOperands::backend() const {
  return step_->lane == Lane::Cpu ? kernels::Backend::Host : backendOf(plan_.hardware.kind);
}

void TakenOperands::workspace(uint64_t bytes) {
  if (bytes > 0)
    local(Arg::Workspace, kW | kRW, bytes);
}

const model::Unit *TakenOperands::unit(Arg arg) {
  const Operand *operand = take(arg, kR);
  if (!operand)
    return nullptr;
  const Buffer &buffer = plan_.buffer(schedule_, operand->buffer);
  if (buffer.kind != BufferKind::Weight) {
    fail("operand ", argName(arg), " is ", buffer.name, ", expected a weight");
    return nullptr;
  }
  const model::Unit &unit = layout_.units[buffer.index];
  if (unit.layer >= 0 && unit.layer != step_->layer)
    fail("operand ", argName(arg), " is ", unit.name, ", the step is of layer ", step_->layer);
  return &unit;
}

void TakenOperands::covers(Arg arg, const model::Unit &unit, const model::Tensor *tensor) {
  const Operand *operand = take(arg, kR);
  if (!operand)
    return;
  if (tensor == nullptr) {
    fail("operand ", argName(arg), " is of ", unit.name, ", which has no such tensor");
    return;
  }
  const bool matrix = tensor->role == TensorRole::Matrix || tensor->role == TensorRole::TokenTable;
  const uint64_t bytes = matrix ? unitBytes(spec_, unit.role).matrix : tensor->bytes;
  if (operand->buffer != buffers_.weight(static_cast<size_t>(&unit - layout_.units.data())) ||
      operand->bufferOffset > tensor->offset || operand->bytes < bytes ||
      tensor->offset - operand->bufferOffset > operand->bytes - bytes)
    fail("operand ", argName(arg), " is ",
         describe(plan_, schedule_, operand->buffer, operand->bufferOffset, operand->bytes), ", expected bytes [",
         tensor->offset, ", ", tensor->offset + bytes, ") of ", unit.name);
}

void TakenOperands::headNorms() {
  if (!spec_.qkNorm)
    return;
  if (const model::Unit *qkv = unit(Arg::NormWeights))
    covers(Arg::NormWeights, *qkv, qkv->find(TensorRole::HeadNorms));
}

} // namespace headrace::plan
