// SPDX-License-Identifier: Apache-2.0
//
// The headrace dialect in C++: types, ops, and the questions about values that every pass asks.
//
//   mlir::MLIRContext context;
//   context.loadDialect<headrace::ir::HeadraceDialect>();
//   mlir::OpBuilder b(&context);
//   auto module = mlir::ModuleOp::create(b.getUnknownLoc());
//   b.setInsertionPointToEnd(module.getBody());
//   auto decode = IterationOp::create(b, loc, "decode", Shape::Decode, StartRule::Eager, 8, 8, 2048);
//   b.setInsertionPointToEnd(&decode.block());
//   auto meta = IoOp::create(b, loc, BufferType::get(&context, MemorySpace::Device, 4096, Encoding::Bytes), IoRole::Meta);
//   auto y = NormOp::create(b, loc, x.getType(), Rows::Tokens, meta, x, qkv, UnitRole::Qkv, {0, 256}, ByteRange(), step);
#pragma once

#include "ir/Enums.h"
#include "ir/Step.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/RegionKindInterface.h"
#include "mlir/IR/SymbolTable.h"

#include "ir/HeadraceDialect.h.inc"
#define GET_TYPEDEF_CLASSES
#include "ir/HeadraceTypes.h.inc"
#include "ir/HeadraceInterfaces.h.inc"
#define GET_OP_CLASSES
#include "ir/HeadraceOps.h.inc"

namespace headrace::ir {

inline BufferType bufferType(mlir::Value value) { return llvm::cast<BufferType>(value.getType()); }

// The value that made the range of memory that `value` is a version of: through in-place updates and completed parts, to a
// persistent op's result, a carry's or prefetch's into a slot, or a compute step's new buffer.
mlir::Value rangeOf(mlir::Value value);

// The buffer whose content `value` is: as rangeOf, and from a copy on the device on to its home (weight, kv).
mlir::Value bufferOf(mlir::Value value);

// Where byte 0 of `value` lies; not placed before the offsets phase.
Address addressOf(mlir::Value value);

// The step that must end for `event` (a token, or a buffer) to have happened; null for what exists on entry.
mlir::Operation *stepOf(mlir::Value event);

} // namespace headrace::ir
