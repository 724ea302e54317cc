// SPDX-License-Identifier: Apache-2.0
//
// Compute ops: verifiers, and what each reads and writes.
#include "ir/Headrace.h"

namespace headrace::ir {

using mlir::failure;
using mlir::LogicalResult;
using mlir::Operation;
using mlir::success;
using mlir::Value;

using SetName = llvm::function_ref<void(Value, llvm::StringRef)>;
using Accesses = llvm::SmallVectorImpl<Access>;

static ByteRange whole(Value value) { return {0, bufferType(value).getBytes()}; }
static Access read(Value value, Arg arg) { return {value, AccessKind::Read, arg, whole(value)}; }
static Access write(Value value, Arg arg) { return {value, AccessKind::Write, arg, whole(value)}; }
static Access update(Value value, Arg arg) { return {value, AccessKind::ReadWrite, arg, whole(value)}; }
static void readTensor(Accesses &accesses, Value unit, ByteRange range, Arg arg) {
  if (!range.empty())
    accesses.push_back({unit, AccessKind::Read, arg, range});
}
static void useScratch(Accesses &accesses, const Workspace &workspace) {
  if (workspace.bytes)
    accesses.push_back({Value(), AccessKind::Write, Arg::Workspace, {0, workspace.bytes}});
}

static LogicalResult verifyTensor(Operation *op, llvm::StringRef what, ByteRange range, Value unit, bool required) {
  if (range.empty() && !required)
    return success();
  const uint64_t bytes = bufferType(unit).getBytes();
  if (range.empty() || range.offset > bytes || range.bytes > bytes - range.offset)
    return op->emitOpError() << "reads its " << what << " from bytes [" << range.offset << " for " << range.bytes
                             << "] of a unit of " << bytes;
  return success();
}

// The embedding's table is read by a kernel that is marked direct exactly when it lies on the host.
LogicalResult EmbedOp::verify() {
  const bool onHost = !bufferType(getUnit()).isOnDevice();
  if (onHost != getStep().direct)
    return emitOpError() << (onHost ? "reads a host buffer and must be marked direct"
                                    : "is marked direct but reads a device buffer");
  return failure(failed(verifyTensor(*this, "table", getTable(), getUnit(), true)) ||
                 failed(verifyTensor(*this, "positions", getPositions(), getUnit(), false)));
}
StepInfo &EmbedOp::stepInfo() { return getProperties().step; }
Address *EmbedOp::resultAddress() { return &getProperties().at; }
void EmbedOp::getAsmResultNames(SetName setName) { setName(getX(), "x"); }
void EmbedOp::getAccesses(Accesses &accesses) {
  accesses.push_back(read(getMeta(), Arg::Meta));
  readTensor(accesses, getUnit(), getTable(), Arg::Table);
  readTensor(accesses, getUnit(), getPositions(), Arg::Positions);
  accesses.push_back(read(getSampled(), Arg::Sampled));
  accesses.push_back(write(getX(), Arg::X));
}

LogicalResult NormOp::verify() {
  // The residual stream may be wider than what the next op reads; the padding of either hides the exact number of rows.
  const auto x = llvm::cast<BufferType>(getX().getType()), y = llvm::cast<BufferType>(getY().getType());
  if (x.getEncoding() == y.getEncoding() && x != y)
    return emitOpError() << "makes " << y << " of " << x << ": both must be the same";
  return failure(failed(verifyTensor(*this, "weight", getWeight(), getUnit(), true)) ||
                 failed(verifyTensor(*this, "bias", getBias(), getUnit(), false)));
}
StepInfo &NormOp::stepInfo() { return getProperties().step; }
Address *NormOp::resultAddress() { return &getProperties().at; }
void NormOp::getAsmResultNames(SetName setName) { setName(getY(), "normed"); }
void NormOp::getAccesses(Accesses &accesses) {
  accesses.push_back(read(getMeta(), Arg::Meta));
  accesses.push_back(read(getX(), Arg::X));
  readTensor(accesses, getUnit(), getWeight(), Arg::NormWeights);
  readTensor(accesses, getUnit(), getBias(), Arg::Bias);
  accesses.push_back(write(getY(), Arg::Y));
}

LogicalResult LinearOp::verify() {
  if (getResidual() && getResidual().getType() != getY().getType())
    return emitOpError() << "updates " << getResidual().getType() << " in place, but its result is "
                         << getY().getType();
  return failure(failed(verifyTensor(*this, "weight", getWeight(), getUnit(), true)) ||
                 failed(verifyTensor(*this, "bias", getBias(), getUnit(), false)));
}
StepInfo &LinearOp::stepInfo() { return getProperties().step; }
Address *LinearOp::resultAddress() { return getResidual() ? nullptr : &getProperties().at; }
Workspace *LinearOp::workspace() { return &getProperties().scratch; }
void LinearOp::getAsmResultNames(SetName setName) {
  setName(getY(), getResidual() ? "x" : getRole() == UnitRole::Head ? "logits" : stringifyUnitRole(getRole()));
}
int LinearOp::tiedOperand(unsigned) { return getResidual() ? 3 : -1; } // meta, x, unit, residual
void LinearOp::getAccesses(Accesses &accesses) {
  accesses.push_back(read(getMeta(), Arg::Meta));
  accesses.push_back(read(getX(), Arg::X));
  readTensor(accesses, getUnit(), getWeight(), Arg::Weight);
  readTensor(accesses, getUnit(), getBias(), Arg::Bias);
  if (getResidual())
    accesses.push_back(update(getResidual(), Arg::Residual));
  useScratch(accesses, getScratch());
  if (!getResidual())
    accesses.push_back(write(getY(), Arg::Y));
}

StepInfo &RopeAppendOp::stepInfo() { return getProperties().step; }
int RopeAppendOp::tiedOperand(unsigned index) { return static_cast<int>(index) + 1; } // meta, qkv, kv
void RopeAppendOp::getAccesses(Accesses &accesses) {
  accesses.push_back(read(getMeta(), Arg::Meta));
  accesses.push_back(update(getQkv(), Arg::X));
  accesses.push_back(update(getKv(), Arg::Kv));
}

StepInfo &AttentionOp::stepInfo() { return getProperties().step; }
Address *AttentionOp::resultAddress() { return &getProperties().at; }
void AttentionOp::getAsmResultNames(SetName setName) { setName(getOut(), "attended"); }
Workspace *AttentionOp::workspace() { return &getProperties().scratch; }
void AttentionOp::getAccesses(Accesses &accesses) {
  accesses.push_back(read(getMeta(), Arg::Meta));
  accesses.push_back(read(getQkv(), Arg::X));
  accesses.push_back(read(getKv(), Arg::Kv));
  useScratch(accesses, getScratch());
  accesses.push_back(write(getOut(), Arg::Y));
}

LogicalResult RecomputeKvOp::verify() {
  return failure(failed(verifyTensor(*this, "norm weight", getNormWeight(), getUnit(), true)) ||
                 failed(verifyTensor(*this, "norm bias", getNormBias(), getUnit(), false)) ||
                 failed(verifyTensor(*this, "weight", getWeight(), getUnit(), true)) ||
                 failed(verifyTensor(*this, "bias", getBias(), getUnit(), false)));
}
StepInfo &RecomputeKvOp::stepInfo() { return getProperties().step; }
int RecomputeKvOp::tiedOperand(unsigned) { return 3; } // meta, act, unit, kv
void RecomputeKvOp::getAccesses(Accesses &accesses) {
  accesses.push_back(read(getMeta(), Arg::Meta));
  accesses.push_back(read(getAct(), Arg::X));
  readTensor(accesses, getUnit(), getNormWeight(), Arg::NormWeights);
  readTensor(accesses, getUnit(), getNormBias(), Arg::NormWeights);
  readTensor(accesses, getUnit(), getWeight(), Arg::Weight);
  readTensor(accesses, getUnit(), getBias(), Arg::Bias);
  accesses.push_back(update(getKv(), Arg::Kv));
}

// `packed` must be what `bits` an element and two bounds a group take of `plain`.
static LogicalResult verifyPacked(Operation *op, int32_t bits, int32_t group, BufferType plain, BufferType packed) {
  if (bits != 4 && bits != 8)
    return op->emitOpError() << "packs 4 or 8 bits an element, not " << bits;
  if (group < 1)
    return op->emitOpError() << "needs groups of at least one element, not of " << group;
  if (plain.getEncoding() == Encoding::Bytes || packed.getEncoding() != Encoding::Bytes)
    return op->emitOpError() << "is between f32, f16 or bf16 elements and packed bytes";
  const uint64_t element = plain.getEncoding() == Encoding::F32 ? 4 : 2;
  const uint64_t elements = plain.getBytes() / element, groups = (elements + group - 1) / static_cast<uint64_t>(group);
  const uint64_t expected = (elements * static_cast<uint64_t>(bits) + 7) / 8 + groups * 2 * element;
  if (packed.getBytes() < expected)
    return op->emitOpError() << "packs " << elements << " elements in " << groups << " groups into "
                             << packed.getBytes() << " bytes, but they take " << expected;
  return success();
}
LogicalResult QuantiseOp::verify() {
  return verifyPacked(*this, getBits(), getGroup(), bufferType(getX()), bufferType(getY()));
}
StepInfo &QuantiseOp::stepInfo() { return getProperties().step; }
Address *QuantiseOp::resultAddress() { return &getProperties().at; }
void QuantiseOp::getAccesses(Accesses &accesses) {
  accesses.push_back(read(getX(), Arg::X));
  accesses.push_back(write(getY(), Arg::Y));
}
LogicalResult DequantiseOp::verify() {
  return verifyPacked(*this, getBits(), getGroup(), bufferType(getY()), bufferType(getX()));
}
StepInfo &DequantiseOp::stepInfo() { return getProperties().step; }
Address *DequantiseOp::resultAddress() { return &getProperties().at; }
void DequantiseOp::getAccesses(Accesses &accesses) {
  accesses.push_back(read(getX(), Arg::X));
  accesses.push_back(write(getY(), Arg::Y));
}

LogicalResult ActivateOp::verify() {
  const uint64_t in = bufferType(getX()).getBytes(), out = bufferType(getY()).getBytes();
  if (in != 2 * out)
    return emitOpError() << "makes " << out << " bytes of " << in << ": gate and up are twice the result";
  return success();
}
StepInfo &ActivateOp::stepInfo() { return getProperties().step; }
Address *ActivateOp::resultAddress() { return &getProperties().at; }
void ActivateOp::getAsmResultNames(SetName setName) { setName(getY(), "activated"); }
void ActivateOp::getAccesses(Accesses &accesses) {
  accesses.push_back(read(getMeta(), Arg::Meta));
  accesses.push_back(read(getX(), Arg::X));
  accesses.push_back(write(getY(), Arg::Y));
}

LogicalResult GatherRowsOp::verify() {
  if (bufferType(getX()).getEncoding() != bufferType(getY()).getEncoding())
    return emitOpError() << "gathers rows of " << getX().getType() << " into " << getY().getType()
                         << ": the encoding must be the same";
  return success();
}
StepInfo &GatherRowsOp::stepInfo() { return getProperties().step; }
Address *GatherRowsOp::resultAddress() { return &getProperties().at; }
void GatherRowsOp::getAsmResultNames(SetName setName) { setName(getY(), "gathered"); }
void GatherRowsOp::getAccesses(Accesses &accesses) {
  accesses.push_back(read(getMeta(), Arg::Meta));
  accesses.push_back(read(getX(), Arg::X));
  accesses.push_back(write(getY(), Arg::Y));
}

StepInfo &SampleOp::stepInfo() { return getProperties().step; }
Workspace *SampleOp::workspace() { return &getProperties().scratch; }
int SampleOp::tiedOperand(unsigned index) { return static_cast<int>(index) + 2; } // meta, logits, sampled, output
void SampleOp::getAccesses(Accesses &accesses) {
  accesses.push_back(read(getMeta(), Arg::Meta));
  accesses.push_back(read(getLogits(), Arg::X));
  accesses.push_back(update(getSampled(), Arg::Sampled));
  accesses.push_back(update(getOutput(), Arg::Output));
  useScratch(accesses, getScratch());
}

StepInfo &PublishOp::stepInfo() { return getProperties().step; }
void PublishOp::getAccesses(Accesses &accesses) {
  accesses.push_back(read(getMeta(), Arg::Meta));
  accesses.push_back(read(getOutput(), Arg::Output));
}

} // namespace headrace::ir
