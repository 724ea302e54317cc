// SPDX-License-Identifier: Apache-2.0
//
// Plain structs that ops keep inline as properties, so that passes read and write them without looking anything up.
//
//   StepInfo    whose step it is (layer, part, mini-batch), its lane, and the amounts of resources it occupies
//   ByteRange   a run of bytes of a buffer, printed [offset for bytes]
//   Workspace   scratch of one step
//   Address     byte offset into the arena of the buffer's space
//   Access      one answer to "what does this step touch?"
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>

#include "ir/Enums.h"
#include "mlir/IR/Attributes.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/Hashing.h"

namespace mlir {
class DialectBytecodeReader;
class DialectBytecodeWriter;
} // namespace mlir

namespace headrace::ir {

struct StepInfo {
  int32_t layer = -1; // -1: of no layer (embedding, head)
  Part part = Part::Embedding;
  uint8_t miniBatch = 0;
  std::optional<Lane> lane; // set by AssignLanes
  bool direct = false;      // its kernel reads a host buffer over the link
  bool resizable = false;   // a copy whose size may be changed at launch
  uint64_t flops = 0;
  uint64_t deviceBytes = 0; // device memory read and written
  uint64_t linkBytes = 0;   // over the link: host to device, but for steps of the d2h lane

  using Fields = std::array<int64_t, 9>;
  Fields pack() const {
    return {layer,
            static_cast<int64_t>(part),
            miniBatch,
            lane ? static_cast<int64_t>(*lane) : -1,
            direct,
            resizable,
            static_cast<int64_t>(flops),
            static_cast<int64_t>(deviceBytes),
            static_cast<int64_t>(linkBytes)};
  }
  static bool unpack(const Fields &f, StepInfo &out);
  bool operator==(const StepInfo &) const = default;
};

struct ByteRange {
  uint64_t offset = 0;
  uint64_t bytes = 0; // 0: absent

  uint64_t end() const { return offset + bytes; }
  bool empty() const { return bytes == 0; }
  using Fields = std::array<int64_t, 2>;
  Fields pack() const { return {static_cast<int64_t>(offset), static_cast<int64_t>(bytes)}; }
  static bool unpack(const Fields &f, ByteRange &out);
  bool operator==(const ByteRange &) const = default;
};

struct Address {
  int64_t value = -1; // -1: not placed yet

  bool placed() const { return value >= 0; }
  using Fields = std::array<int64_t, 1>;
  Fields pack() const { return {value}; }
  static bool unpack(const Fields &f, Address &out);
  bool operator==(const Address &) const = default;
};

struct Workspace {
  uint64_t bytes = 0;
  Address address;

  using Fields = std::array<int64_t, 2>;
  Fields pack() const { return {static_cast<int64_t>(bytes), address.value}; }
  static bool unpack(const Fields &f, Workspace &out);
  bool operator==(const Workspace &) const = default;
};

enum class AccessKind : uint8_t { Read = 0, Write = 1, ReadWrite = 2 };

// What an operand is to its op; the values are those of plan::Arg.
enum class Arg : uint8_t {
  Source = 0,
  Destination = 1,
  Meta = 2,
  X = 3,
  Y = 4,
  Weight = 5,
  Bias = 6,
  NormWeights = 7,
  Residual = 8,
  Kv = 9,
  Table = 10,
  Positions = 11,
  Sampled = 12,
  Output = 13,
  Workspace = 14,
  KvTail = 15,
  KvHome = 16,
  History = 17,
  Act = 18,
  KvRebuilt = 19
};

// The bytes `range` of the buffer that `value` is a version of. A range that a step reads and rewrites in place appears
// once, as ReadWrite, with the value it reads; `value` is null for the step's workspace.
struct Access {
  mlir::Value value;
  AccessKind kind = AccessKind::Read;
  Arg arg = Arg::X;
  ByteRange range;
};

// Plumbing that ODS calls: structs travel through generic form and bytecode as arrays of integers.
mlir::Attribute fieldsToAttribute(mlir::MLIRContext *context, llvm::ArrayRef<int64_t> fields);
bool fieldsFromAttribute(mlir::Attribute attribute, llvm::MutableArrayRef<int64_t> fields);
void writeFields(mlir::DialectBytecodeWriter &writer, llvm::ArrayRef<int64_t> fields);
bool readFields(mlir::DialectBytecodeReader &reader, llvm::MutableArrayRef<int64_t> fields);

template <typename T> mlir::Attribute structToAttribute(mlir::MLIRContext *context, const T &value) {
  return fieldsToAttribute(context, value.pack());
}
template <typename T, typename Diag>
mlir::LogicalResult structFromAttribute(T &value, mlir::Attribute attribute, Diag &&emitError) {
  typename T::Fields fields{};
  if (fieldsFromAttribute(attribute, fields) && T::unpack(fields, value))
    return mlir::success();
  if (emitError)
    emitError() << "expected an array of " << fields.size() << " integers in range, got " << attribute;
  return mlir::failure();
}
template <typename T> void writeStruct(mlir::DialectBytecodeWriter &writer, const T &value) {
  writeFields(writer, value.pack());
}
template <typename T> mlir::LogicalResult readStruct(mlir::DialectBytecodeReader &reader, T &value) {
  typename T::Fields fields{};
  return mlir::success(readFields(reader, fields) && T::unpack(fields, value));
}
template <typename T> llvm::hash_code hashStruct(const T &value) {
  const auto fields = value.pack();
  return llvm::hash_combine_range(fields.begin(), fields.end());
}

} // namespace headrace::ir
