// SPDX-License-Identifier: Apache-2.0
//
// The headrace dialect in C++: types, ops, and the questions about values that every pass asks.
//
//   mlir::MLIRContext context;
//   context.loadDialect<headrace::ir::HeadraceDialect>();
//   mlir::OpBuilder b(&context);
//   auto module = mlir::ModuleOp::create(b.getUnknownLoc());
//   b.setInsertionPointToEnd(module.getBody());
//   auto decode = IterationOp::create(b, loc, "decode", IterationClass::Decode, 8, 8, 2048);
//   b.setInsertionPointToEnd(&decode.block());
//   auto bytes = BufferType::get(&context, MemorySpace::Device, 4096, Encoding::Bytes);
//   auto meta = IoOp::create(b, loc, bytes, IoRole::Meta, Address());
//   auto y = NormOp::create(b, loc, x.getType(), Rows::Tokens, meta, x, qkv, UnitRole::Qkv, ByteRange{0, 256},
//                           ByteRange(), step, Address());
#pragma once

#include "ir/Enums.h"
#include "ir/Lanes.h"
#include "ir/Step.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/RegionKindInterface.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/DenseMap.h"

namespace headrace::ir {

// A movable buffer: of a weight its unit and its layer (-1: of none), else its layer twice; and what messages call it.
struct Movable {
  MovableKind kind;
  int32_t index;
  int32_t layer;
  std::string name;
  int32_t miniBatch = 0; // of a cache
  int32_t unit = -1;     // of what is loaded: which of the model's weight layout
};

} // namespace headrace::ir

#include "ir/HeadraceDialect.h.inc"
#define GET_TYPEDEF_CLASSES
#include "ir/HeadraceInterfaces.h.inc"
#include "ir/HeadraceTypes.h.inc"
#define GET_OP_CLASSES
#include "ir/HeadraceOps.h.inc"

namespace headrace::ir {

inline BufferType bufferType(mlir::Value value) { return llvm::cast<BufferType>(value.getType()); }

// The value that made the range of memory that `value` is a version of: through in-place updates and completed parts,
// to a persistent op's result, a carry's or prefetch's into a slot, or a compute step's new buffer. Walks back one
// version after another (the residual stream has two a layer): what asks for many values asks `Ranges`.
mlir::Value rangeOf(mlir::Value value);

// The buffer whose content a range holds: the range itself, or for a copy on the device its home (weight, kv).
mlir::Value bufferOfRange(mlir::Value range);
inline mlir::Value bufferOf(mlir::Value value) { return bufferOfRange(rangeOf(value)); }

// Where byte 0 of a range lies; not placed before the offsets phase.
Address addressOfRange(mlir::Value range);
inline Address addressOf(mlir::Value value) { return addressOfRange(rangeOf(value)); }

// The same questions for all values of an iteration, each answered in constant time.
class Ranges {
public:
  explicit Ranges(IterationOp iteration);
  mlir::Value rangeOf(mlir::Value value) const {
    const auto it = ranges_.find(value);
    return it == ranges_.end() ? value : it->second;
  }
  mlir::Value bufferOf(mlir::Value value) const { return bufferOfRange(rangeOf(value)); }
  Address addressOf(mlir::Value value) const { return addressOfRange(rangeOf(value)); }

private:
  llvm::DenseMap<mlir::Value, mlir::Value> ranges_; // of versions that are not their range's first
};

// The step that must end for `event` (a token, or a buffer) to have happened; null for what exists on entry.
mlir::Operation *stepOf(mlir::Value event);

} // namespace headrace::ir
