// SPDX-License-Identifier: Apache-2.0
//
// Compute ops: verifiers, names and what is updated in place. What each reads and writes stands in HeadraceCompute.td.
#include "ir/Headrace.h"

namespace headrace::ir {

using mlir::failure;
using mlir::LogicalResult;
using mlir::Operation;
using mlir::success;
using mlir::Value;

using SetName = llvm::function_ref<void(Value, llvm::StringRef)>;

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
  if (getInto() && getInto().getType() != getX().getType())
    return emitOpError() << "writes " << getX().getType() << " into " << getInto().getType();
  return failure(failed(verifyTensor(*this, "table", getTable(), getUnit(), true)) ||
                 failed(verifyTensor(*this, "positions", getPositions(), getUnit(), false)));
}
void EmbedOp::getAsmResultNames(SetName setName) {
  setName(getX(), "x");
  setName(getNextHistory(), "next_history");
}
int EmbedOp::tiedOperand(unsigned index) { // meta, unit, sampled, history, into
  return index == 1 ? 3 : getInto() ? 4 : -1;
}

LogicalResult NormOp::verify() {
  // The residual stream may be wider than what the next op reads, and one that leaves the device has room for the rows
  // of any iteration; the padding of either hides the exact number of rows.
  const auto x = llvm::cast<BufferType>(getX().getType()), y = llvm::cast<BufferType>(getY().getType());
  if (x.getEncoding() == y.getEncoding() && x.getBytes() < y.getBytes())
    return emitOpError() << "makes " << y << " of " << x << ", which is more than it reads";
  return failure(failed(verifyTensor(*this, "weight", getWeight(), getUnit(), true)) ||
                 failed(verifyTensor(*this, "bias", getBias(), getUnit(), false)));
}
void NormOp::getAsmResultNames(SetName setName) { setName(getY(), "normed"); }

LogicalResult LinearOp::verify() {
  if (getResidual() && getResidual().getType() != getY().getType())
    return emitOpError() << "updates " << getResidual().getType() << " in place, but its result is "
                         << getY().getType();
  return failure(failed(verifyTensor(*this, "weight", getWeight(), getUnit(), true)) ||
                 failed(verifyTensor(*this, "bias", getBias(), getUnit(), false)));
}
void LinearOp::getAsmResultNames(SetName setName) {
  setName(getY(), getResidual() ? "x" : getRole() == UnitRole::Head ? "logits" : stringifyUnitRole(getRole()));
}
int LinearOp::tiedOperand(unsigned) { return getResidual() ? 3 : -1; } // meta, x, unit, residual

// A cache is one buffer, or its blocks on the device and its tail there; then what was rebuilt.
static LogicalResult verifyCache(Operation *op, mlir::ValueRange kv) {
  const auto isRebuilt = [](Value value) { return llvm::isa_and_nonnull<RebuildKvOp>(rangeOf(value).getDefiningOp()); };
  const auto rebuilt = static_cast<size_t>(llvm::count_if(kv, isRebuilt));
  if (kv.size() == rebuilt || kv.size() > 2 + rebuilt)
    return op->emitOpError() << "takes a cache, and its tail if it is split, not " << kv.size() - rebuilt << " buffers";
  if (rebuilt > 1 || (rebuilt == 1 && !isRebuilt(kv.back())))
    return op->emitOpError() << "takes rebuilt keys and values once, behind the cache";
  return success();
}

LogicalResult RopeAppendOp::verify() {
  if (failed(verifyCache(*this, getKv())))
    return failure();
  if (getHome().size() > 2)
    return emitOpError() << "takes the home of a tail and a mirror, not " << getHome().size() << " buffers";
  if (getHome().empty() == getStep().direct)
    return emitOpError() << (getHome().empty() ? "is marked direct but writes device buffers"
                                               : "writes host buffers and must be marked direct");
  for (const auto &[index, appended] : llvm::enumerate(getAppended()))
    if (getAppended().size() != getKv().size() + getHome().size() ||
        appended.getType() !=
            getOperand(static_cast<unsigned>(tiedOperand(static_cast<unsigned>(index) + 1))).getType())
      return emitOpError() << "appends to " << getKv().size() + getHome().size()
                           << " buffers and has as many results of the same types behind the first";
  if (!getUnit() && !getHeadNorms().empty())
    return emitOpError() << "has norms of no unit";
  return getUnit() ? verifyTensor(*this, "norms", getHeadNorms(), getUnit(), true) : success();
}
int RopeAppendOp::tiedOperand(unsigned index) { return static_cast<int>(index) + 1; } // meta, qkv, kv, home

void AttentionOp::getAsmResultNames(SetName setName) { setName(getOut(), "attended"); }
LogicalResult AttentionOp::verify() { return verifyCache(*this, getKv()); }

LogicalResult RotateOp::verify() {
  if (!getUnit() && !getHeadNorms().empty())
    return emitOpError() << "has norms of no unit";
  return getUnit() ? verifyTensor(*this, "norms", getHeadNorms(), getUnit(), true) : success();
}
void RotateOp::getAsmResultNames(SetName setName) { setName(getRotated(), "rotated"); }
void AppendOp::getAsmResultNames(SetName setName) { setName(getAppended(), "appended"); }
void HostAttentionOp::getAsmResultNames(SetName setName) { setName(getOut(), "attended"); }
int RotateOp::tiedOperand(unsigned) { return 1; }        // meta, qkv
int AppendOp::tiedOperand(unsigned) { return 2; }        // meta, qkv, kv
int HostAttentionOp::tiedOperand(unsigned) { return 3; } // meta, qkv, kv, into

LogicalResult FetchRowsOp::verify() {
  if (!getStep().direct)
    return emitOpError() << "reads a host buffer and must be marked direct";
  const BufferType x = bufferType(getX()), y = bufferType(getY());
  if (x.getBytes() != y.getBytes() || x.getEncoding() != y.getEncoding())
    return emitOpError() << "fetches " << getX().getType() << " to " << getY().getType();
  return success();
}
void FetchRowsOp::getAsmResultNames(SetName setName) { setName(getY(), "attended"); }

LogicalResult ActAppendOp::verify() {
  if (const bool onHost = !bufferType(getAct()).isOnDevice(); onHost != getStep().direct)
    return emitOpError() << (onHost ? "writes a host buffer and must be marked direct"
                                    : "is marked direct but writes a device buffer");
  return success();
}
int ActAppendOp::tiedOperand(unsigned) { return 2; } // meta, x, act

LogicalResult RebuildKvOp::verify() {
  return failure(failed(verifyTensor(*this, "weight", getWeight(), getUnit(), true)) ||
                 failed(verifyTensor(*this, "bias", getBias(), getUnit(), false)) ||
                 failed(verifyTensor(*this, "norms", getHeadNorms(), getUnit(), false)));
}
void RebuildKvOp::getAsmResultNames(SetName setName) { setName(getRebuilt(), "rebuilt"); }

LogicalResult ActivateOp::verify() {
  const uint64_t in = bufferType(getX()).getBytes(), out = bufferType(getY()).getBytes();
  if (in != 2 * out)
    return emitOpError() << "makes " << out << " bytes of " << in << ": gate and up are twice the result";
  return success();
}
void ActivateOp::getAsmResultNames(SetName setName) { setName(getY(), "activated"); }

LogicalResult GatherRowsOp::verify() {
  if (bufferType(getX()).getEncoding() != bufferType(getY()).getEncoding())
    return emitOpError() << "gathers rows of " << getX().getType() << " into " << getY().getType()
                         << ": the encoding must be the same";
  return success();
}
void GatherRowsOp::getAsmResultNames(SetName setName) { setName(getY(), "gathered"); }

void KeepIdsOp::getAsmResultNames(SetName setName) { setName(getNextHistory(), "next_history"); }
int KeepIdsOp::tiedOperand(unsigned) { return 2; } // meta, sampled, history

int SampleOp::tiedOperand(unsigned index) { return static_cast<int>(index) + 3; } // meta, logits, history, ...

} // namespace headrace::ir
