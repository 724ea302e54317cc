// SPDX-License-Identifier: Apache-2.0
#include "ir/Step.h"

#include "mlir/Bytecode/BytecodeImplementation.h"
#include "mlir/IR/BuiltinAttributes.h"

namespace headrace::ir {

bool StepInfo::unpack(const Fields &f, StepInfo &out) {
  const std::optional<Part> part = symbolizePart(static_cast<uint32_t>(f[1]));
  const std::optional<Lane> lane = f[3] < 0 ? std::nullopt : symbolizeLane(static_cast<uint32_t>(f[3]));
  if (f[0] < -1 || f[0] > std::numeric_limits<int32_t>::max() || !part || f[2] < 0 || f[2] > 255 ||
      (f[3] >= 0 && !lane) || f[6] < 0 || f[7] < 0 || f[8] < 0)
    return false;
  out = {static_cast<int32_t>(f[0]),
         *part,
         static_cast<uint8_t>(f[2]),
         lane,
         f[4] != 0,
         f[5] != 0,
         static_cast<uint64_t>(f[6]),
         static_cast<uint64_t>(f[7]),
         static_cast<uint64_t>(f[8])};
  return true;
}

bool ByteRange::unpack(const Fields &f, ByteRange &out) {
  out = {static_cast<uint64_t>(f[0]), static_cast<uint64_t>(f[1])};
  return f[0] >= 0 && f[1] >= 0;
}

bool Address::unpack(const Fields &f, Address &out) {
  out.value = f[0];
  return f[0] >= -1;
}

bool Workspace::unpack(const Fields &f, Workspace &out) {
  out.bytes = static_cast<uint64_t>(f[0]);
  out.address.value = f[1];
  return f[0] >= 0 && f[1] >= -1;
}

mlir::Attribute fieldsToAttribute(mlir::MLIRContext *context, llvm::ArrayRef<int64_t> fields) {
  return mlir::DenseI64ArrayAttr::get(context, fields);
}

bool fieldsFromAttribute(mlir::Attribute attribute, llvm::MutableArrayRef<int64_t> fields) {
  auto array = llvm::dyn_cast_or_null<mlir::DenseI64ArrayAttr>(attribute);
  if (!array || array.size() != static_cast<int64_t>(fields.size()))
    return false;
  llvm::copy(array.asArrayRef(), fields.begin());
  return true;
}

void writeFields(mlir::DialectBytecodeWriter &writer, llvm::ArrayRef<int64_t> fields) {
  for (int64_t field : fields)
    writer.writeSignedVarInt(field);
}

bool readFields(mlir::DialectBytecodeReader &reader, llvm::MutableArrayRef<int64_t> fields) {
  for (int64_t &field : fields)
    if (failed(reader.readSignedVarInt(field)))
      return false;
  return true;
}

} // namespace headrace::ir
