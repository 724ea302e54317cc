// SPDX-License-Identifier: Apache-2.0
//
// What persists, and movement: verifiers, accesses, names.
#include "ir/Headrace.h"

namespace headrace::ir {

using mlir::failure;
using mlir::LogicalResult;
using mlir::Operation;
using mlir::success;
using mlir::Value;

// Of an iteration: what kernels::kMostMiniBatches says.
constexpr int32_t kMostMiniBatches = 64;

using SetName = llvm::function_ref<void(Value, llvm::StringRef)>;

// Names of what persists, for printing: "layers.1.qkv", "kv.1", "meta", "slot.0"; copies take their source's.
static std::string nameOf(Value buffer) {
  if (auto movable = llvm::dyn_cast_or_null<MovableInterface>(rangeOf(buffer).getDefiningOp()))
    return movable.movable().name;
  return "buffer";
}

void WeightOp::getAsmResultNames(SetName setName) { setName(getBuffer(), getName()); }
void KvOp::getAsmResultNames(SetName setName) { setName(getBuffer(), nameOf(getBuffer())); }
// "", or ".1" behind the first mini-batch.
static std::string suffix(int32_t miniBatch) { return miniBatch == 0 ? "" : "." + std::to_string(miniBatch); }
void ActOp::getAsmResultNames(SetName setName) { setName(getBuffer(), nameOf(getBuffer())); }
void ResidualOp::getAsmResultNames(SetName setName) { setName(getBuffer(), nameOf(getBuffer())); }
void ClaimOp::getAsmResultNames(SetName setName) { setName(getResult(), "d." + nameOf(getSource())); }
void IoOp::getAsmResultNames(SetName setName) {
  setName(getBuffer(), stringifyIoRole(getRole()).str() + suffix(getMiniBatch()));
}
void StagingOp::getAsmResultNames(SetName setName) {
  setName(getBuffer(), "staging." + stringifyStagingRole(getRole()).str() + suffix(getMiniBatch()));
}
void StageOp::getAsmResultNames(SetName setName) { setName(getStaged(), "staged"); }
void SlotOp::getAsmResultNames(SetName setName) { setName(getSlot(), "slot." + std::to_string(getIndex())); }
void OnDeviceOp::getAsmResultNames(SetName setName) { setName(getResult(), "d." + nameOf(getSource())); }
void CarryOp::getAsmResultNames(SetName setName) { setName(getResult(), "d." + nameOf(getSource())); }
void PrefetchOp::getAsmResultNames(SetName setName) {
  setName(getResult(), "d." + nameOf(getSource()));
  setName(getToken(), "t." + nameOf(getSource()));
}
void EvictOp::getAsmResultNames(SetName setName) {
  setName(getWritten(), nameOf(getHome()));
  setName(getToken(), "t." + nameOf(getHome()));
}

Movable WeightOp::movable() {
  const auto unit = static_cast<int32_t>(getUnit());
  return {MovableKind::Weight, unit, getLayer(), getName().str(), /*miniBatch=*/0, unit};
}
Movable KvOp::movable() {
  return {MovableKind::Kv, static_cast<int32_t>(getLayer()), static_cast<int32_t>(getLayer()),
          "kv." + std::to_string(getLayer()) + suffix(getMiniBatch()) +
              (getPart() == KvPart::Cache ? "" : "." + stringifyKvPart(getPart()).str()),
          getMiniBatch()};
}
Movable ActOp::movable() {
  return {MovableKind::Act, getLayer(), getLayer(), "act." + std::to_string(getLayer()) + suffix(getMiniBatch()),
          getMiniBatch()};
}
Movable ResidualOp::movable() {
  return {MovableKind::Residual, getMiniBatch(), -1, "residual" + suffix(getMiniBatch()), getMiniBatch()};
}
Value ActOp::atHome() { return getBuffer(); }
Value ResidualOp::atHome() { return getBuffer(); }
Value WeightOp::atHome() { return getBuffer(); }
Value KvOp::atHome() { return getBuffer(); }

Address &WeightOp::address() { return getProperties().at; }
Address &KvOp::address() { return getProperties().at; }
Address &ActOp::address() { return getProperties().at; }
Address &ResidualOp::address() { return getProperties().at; }
Address &IoOp::address() { return getProperties().at; }
Address &StagingOp::address() { return getProperties().at; }
Address &SlotOp::address() { return getProperties().at; }
using Identity = std::pair<mlir::TypeID, int64_t>;
Identity WeightOp::identity() { return {mlir::TypeID::get<WeightOp>(), getUnit()}; }
Identity KvOp::identity() {
  return {mlir::TypeID::get<KvOp>(),
          (int64_t{getLayer()} * kMostMiniBatches + getMiniBatch()) * (getMaxEnumValForKvPart() + 1) +
              static_cast<int>(getPart())};
}
Identity IoOp::identity() {
  return {mlir::TypeID::get<IoOp>(), static_cast<int64_t>(getRole()) * kMostMiniBatches + getMiniBatch()};
}
Identity StagingOp::identity() {
  return {mlir::TypeID::get<StagingOp>(), static_cast<int64_t>(getRole()) * kMostMiniBatches + getMiniBatch()};
}
Identity ActOp::identity() {
  return {mlir::TypeID::get<ActOp>(), int64_t{getLayer()} * kMostMiniBatches + getMiniBatch()};
}
Identity ResidualOp::identity() { return {mlir::TypeID::get<ResidualOp>(), getMiniBatch()}; }
Identity SlotOp::identity() { return {mlir::TypeID::get<SlotOp>(), getIndex()}; }
uint64_t WeightOp::sizeInBytes() { return bufferType(getBuffer()).getBytes(); }
uint64_t KvOp::sizeInBytes() { return bufferType(getBuffer()).getBytes(); }
uint64_t ActOp::sizeInBytes() { return bufferType(getBuffer()).getBytes(); }
uint64_t ResidualOp::sizeInBytes() { return bufferType(getBuffer()).getBytes(); }
uint64_t IoOp::sizeInBytes() { return bufferType(getBuffer()).getBytes(); }
uint64_t StagingOp::sizeInBytes() { return bufferType(getBuffer()).getBytes(); }
uint64_t SlotOp::sizeInBytes() { return getSlot().getType().getBytes(); }

LogicalResult WeightOp::verify() {
  if (getUnit() < 0)
    return emitOpError() << "has unit " << getUnit() << ", which must not be negative";
  if (getName().empty())
    return emitOpError() << "has no name";
  const bool ofLayer = getRole() != UnitRole::Embedding && getRole() != UnitRole::Head;
  if (ofLayer != (getLayer() >= 0))
    return emitOpError() << "is a unit of role " << stringifyUnitRole(getRole())
                         << (ofLayer ? " and needs a layer" : " and has no layer");
  return success();
}

static LogicalResult verifyMiniBatch(Operation *op, int32_t miniBatch) {
  if (miniBatch < 0 || miniBatch >= kMostMiniBatches)
    return op->emitOpError() << "has mini-batch " << miniBatch << ", expected 0 to " << kMostMiniBatches - 1;
  return success();
}

LogicalResult KvOp::verify() {
  if (getLayer() < 0)
    return emitOpError() << "has layer " << getLayer() << ", which must not be negative";
  if (!isInterleaved() && getBlockBytes() == 0)
    return verifyMiniBatch(*this, getMiniBatch());
  if (getBlockBytes() <= 0 || getStride() <= 0 || getStride() % getBlockBytes() != 0)
    return emitOpError() << "has blocks of " << getBlockBytes() << " bytes, one every " << getStride()
                         << ": expected as many bytes as some caches' blocks take";
  const BufferType type = bufferType(getBuffer());
  if (!type.isOnDevice() || type.getBytes() % static_cast<uint64_t>(getBlockBytes()) != 0)
    return emitOpError() << "is " << type << ": expected whole blocks of " << getBlockBytes()
                         << " bytes on the device, as it is interleaved";
  return verifyMiniBatch(*this, getMiniBatch());
}

LogicalResult ActOp::verify() {
  if (getLayer() < 0)
    return emitOpError() << "has layer " << getLayer() << ", which must not be negative";
  return verifyMiniBatch(*this, getMiniBatch());
}

LogicalResult ResidualOp::verify() { return verifyMiniBatch(*this, getMiniBatch()); }

LogicalResult IoOp::verify() {
  if ((getRole() == IoRole::Output || getRole() == IoRole::Meta) && getMiniBatch() != 0)
    return emitOpError() << "has mini-batch " << getMiniBatch() << ", but " << stringifyIoRole(getRole())
                         << " is of all of them";
  return verifyMiniBatch(*this, getMiniBatch());
}

LogicalResult StagingOp::verify() {
  if (getRole() == StagingRole::Meta && getMiniBatch() != 0)
    return emitOpError() << "has mini-batch " << getMiniBatch() << ", but meta is of all of them";
  return verifyMiniBatch(*this, getMiniBatch());
}

StepInfo &StageOp::stepInfo() { return getProperties().step; }
int StageOp::tiedOperand(unsigned) { return 1; } // buffer, staging
void StageOp::getAccesses(llvm::SmallVectorImpl<Access> &accesses) {
  const ByteRange all{0, bufferType(getBuffer()).getBytes()};
  accesses.push_back({getBuffer(), AccessKind::Read, Arg::Source, all});
  accesses.push_back({getStaging(), AccessKind::Write, Arg::Destination, all});
}
LogicalResult StageOp::verify() {
  const BufferType buffer = bufferType(getBuffer()), staging = bufferType(getStaging());
  if (buffer.getBytes() != staging.getBytes() || buffer.getEncoding() != staging.getEncoding())
    return emitOpError() << "stages " << getBuffer().getType() << " in " << getStaging().getType();
  return success();
}

LogicalResult SlotOp::verify() {
  if (getIndex() < 0)
    return emitOpError() << "has index " << getIndex() << ", which must not be negative";
  return success();
}

//===----------------------------------------------------------------------===//
// Ranges and parts
//===----------------------------------------------------------------------===//

static LogicalResult verifyInside(Operation *op, ByteRange range, BufferType buffer) {
  if (range.empty() || range.offset > buffer.getBytes() || range.bytes > buffer.getBytes() - range.offset)
    return op->emitOpError() << "names bytes [" << range.offset << " for " << range.bytes << "] of a buffer of "
                             << buffer.getBytes();
  return success();
}

// `part` must be `home` on the device, holding its bytes up to `held`.
static LogicalResult verifyPart(Operation *op, BufferType home, BufferType part, uint64_t held) {
  if (part.getBytes() != home.getBytes() || part.getEncoding() != home.getEncoding())
    return op->emitOpError() << "makes " << part << " of " << home << ": size and encoding must be the same";
  if (part.getHeld() != held)
    return op->emitOpError() << "makes a range that holds " << part.getHeld() << " bytes, but brings those up to "
                             << held;
  return success();
}

static LogicalResult verifyFits(Operation *op, uint64_t end, int64_t offset, SlotType slot) {
  if (offset < 0 || static_cast<uint64_t>(offset) > slot.getBytes() ||
      end > slot.getBytes() - static_cast<uint64_t>(offset))
    return op->emitOpError() << "puts " << end << " bytes at " << offset << " of a slot of " << slot.getBytes();
  return success();
}

LogicalResult OnDeviceOp::verify() {
  const BufferType home = getSource().getType(), here = getResult().getType();
  return verifyPart(*this, home, here, home.getBytes());
}

// Only homes of caches are written: those of weights are never behind.
static LogicalResult verifyDirty(Operation *op, bool dirty, Value buffer) {
  if (dirty && !llvm::isa_and_nonnull<KvOp>(bufferOf(buffer).getDefiningOp()))
    return op->emitOpError() << "is dirty, but of no KV cache: its home is never behind";
  return success();
}

LogicalResult CarryOp::verify() {
  const BufferType home = getSource().getType();
  if (failed(verifyInside(*this, getRange(), home)))
    return failure();
  if (getRange().offset != 0)
    return emitOpError() << "holds a prefix on entry, so its range begins at 0, not at " << getRange().offset;
  return failure(failed(verifyPart(*this, home, getResult().getType(), getRange().bytes)) ||
                 failed(verifyFits(*this, getRange().bytes, getSlotOffset(), getSlot().getType())) ||
                 failed(verifyDirty(*this, getDirty(), getResult())));
}

LogicalResult ClaimOp::verify() {
  const BufferType home = getSource().getType();
  if (!llvm::isa_and_nonnull<ResidualOp>(getSource().getDefiningOp()))
    return emitOpError() << "is of no residual stream: nothing else is made on the device before it has a home";
  return failure(failed(verifyPart(*this, home, getResult().getType(), home.getBytes())) ||
                 failed(verifyFits(*this, home.getBytes(), getSlotOffset(), getSlot().getType())));
}

LogicalResult PrefetchOp::verify() {
  const BufferType home = getSource().getType();
  if (failed(verifyInside(*this, getRange(), home)) || failed(verifyPart(*this, home, bufferType(), getRange().end())))
    return failure();
  if (auto slotType = llvm::dyn_cast<SlotType>(getDestination().getType())) {
    if (getRange().offset != 0)
      return emitOpError() << "into a slot begins at byte 0, not at " << getRange().offset;
    return verifyFits(*this, getRange().end(), getSlotOffset(), slotType);
  }
  if (getSlotOffset() != 0)
    return emitOpError() << "onto a part lies where that part does; it has no offset of its own";
  const BufferType part = llvm::cast<BufferType>(getDestination().getType());
  if (part.getHeld() != getRange().offset)
    return emitOpError() << "onto a part of " << part.getHeld() << " bytes begins where that ends, not at "
                         << getRange().offset;
  if (bufferOf(getDestination()) != rangeOf(getSource()))
    return emitOpError() << "completes a part of another buffer";
  return success();
}

LogicalResult EvictOp::verify() {
  const BufferType here = getBuffer().getType(), home = getHome().getType();
  if (here.getBytes() != home.getBytes() || here.getEncoding() != home.getEncoding())
    return emitOpError() << "writes " << here << " back to " << home << ": size and encoding must be the same";
  if (getWriteBack() == WriteBack::All && getRange() != ByteRange{0, home.getBytes()})
    return emitOpError() << "all names the whole buffer, [0 for " << home.getBytes() << "]";
  if (bufferOf(getBuffer()) != rangeOf(getHome()))
    return emitOpError() << "writes back to another buffer's home";
  return verifyInside(*this, getRange(), home);
}

// Only what movement brought may be given up.
static LogicalResult verifyMoved(Operation *op, Value buffer) {
  if (!llvm::isa_and_nonnull<PrefetchOp, CarryOp, ClaimOp>(rangeOf(buffer).getDefiningOp()))
    return op->emitOpError() << "takes a range that prefetch or carry brought, or that was claimed";
  return success();
}
LogicalResult ReleaseOp::verify() { return verifyMoved(*this, getBuffer()); }
LogicalResult CarryOutOp::verify() {
  if (llvm::isa_and_nonnull<ResidualOp>(bufferOf(getBuffer()).getDefiningOp()))
    return emitOpError() << "is of a residual stream, which ends with the iteration";
  return failure(failed(verifyMoved(*this, getBuffer())) || failed(verifyDirty(*this, getDirty(), getBuffer())));
}

LogicalResult WaitOp::verify() {
  if (!stepOf(getEvent()))
    return emitOpError() << "waits for something that no step of this iteration makes";
  if (llvm::isa<BufferType>(getEvent().getType()) && llvm::isa<PrefetchOp, EvictOp>(getEvent().getDefiningOp()))
    return emitOpError() << "waits for a copy by its token, not by its buffer";
  return success();
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

StepInfo &PrefetchOp::stepInfo() { return getProperties().step; }
StepInfo &EvictOp::stepInfo() { return getProperties().step; }
Address *PrefetchOp::resultAddress() { return nullptr; }
int PrefetchOp::tiedOperand(unsigned index) {
  return index == 0 && llvm::isa<BufferType>(getDestination().getType()) ? 1 : -1;
}

int EvictOp::tiedOperand(unsigned index) { return index == 0 ? 1 : -1; } // buffer, home

void PrefetchOp::getAccesses(llvm::SmallVectorImpl<Access> &accesses) {
  accesses.push_back({getSource(), AccessKind::Read, Arg::Source, getRange()});
  accesses.push_back({getResult(), AccessKind::Write, Arg::Destination, getRange()});
}
void EvictOp::getAccesses(llvm::SmallVectorImpl<Access> &accesses) {
  accesses.push_back({getBuffer(), AccessKind::Read, Arg::Source, getRange()});
  accesses.push_back({getHome(), AccessKind::Write, Arg::Destination, getRange()});
}

// The prefetch or carry that put the buffer's first byte into a slot.
static Value firstPart(PrefetchOp op) { return rangeOf(op.getResult()); }

SlotOp PrefetchOp::slot() {
  Operation *first = firstPart(*this).getDefiningOp();
  if (auto carry = llvm::dyn_cast_or_null<CarryOp>(first))
    return carry.getSlot().getDefiningOp<SlotOp>();
  return llvm::cast<PrefetchOp>(first).getDestination().getDefiningOp<SlotOp>();
}

uint64_t PrefetchOp::offsetInSlot() {
  Operation *first = firstPart(*this).getDefiningOp();
  if (auto carry = llvm::dyn_cast_or_null<CarryOp>(first))
    return static_cast<uint64_t>(carry.getSlotOffset());
  return static_cast<uint64_t>(llvm::cast<PrefetchOp>(first).getSlotOffset());
}

} // namespace headrace::ir
