// SPDX-License-Identifier: Apache-2.0
//
// The words in which HeadraceCompute.td says what a step reads and writes.
#pragma once

#include "ir/Headrace.h"

namespace headrace::ir {

inline ByteRange whole(mlir::Value value) { return {0, bufferType(value).getBytes()}; }
inline Access read(mlir::Value value, Arg arg) { return {value, AccessKind::Read, arg, whole(value)}; }
inline Access write(mlir::Value value, Arg arg) { return {value, AccessKind::Write, arg, whole(value)}; }
inline Access update(mlir::Value value, Arg arg) { return {value, AccessKind::ReadWrite, arg, whole(value)}; }
// Blocks of a cache at home on the device; its tail, which movement has brought there; and where appended rows are
// written as well. Keys and values that are rebuilt.
inline Arg cacheArg(mlir::Value value) {
  mlir::Operation *const made = rangeOf(value).getDefiningOp();
  if (llvm::isa_and_nonnull<RebuildKvOp>(made))
    return Arg::KvRebuilt;
  return llvm::isa_and_nonnull<KvOp>(made) ? Arg::Kv : Arg::KvTail;
}
inline void readCache(llvm::SmallVectorImpl<Access> &accesses, mlir::ValueRange kv) {
  for (mlir::Value value : kv)
    accesses.push_back(read(value, cacheArg(value)));
}
inline void updateCache(llvm::SmallVectorImpl<Access> &accesses, mlir::ValueRange kv, mlir::ValueRange home) {
  for (mlir::Value value : kv)
    accesses.push_back(update(value, cacheArg(value)));
  for (mlir::Value value : home)
    accesses.push_back(update(value, Arg::KvHome));
}
inline void readTensor(llvm::SmallVectorImpl<Access> &accesses, mlir::Value unit, ByteRange range, Arg arg) {
  if (!range.empty())
    accesses.push_back({unit, AccessKind::Read, arg, range});
}
inline void useScratch(llvm::SmallVectorImpl<Access> &accesses, const Workspace &workspace) {
  if (workspace.bytes)
    accesses.push_back({mlir::Value(), AccessKind::Write, Arg::Workspace, {0, workspace.bytes}});
}

} // namespace headrace::ir
