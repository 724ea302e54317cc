// SPDX-License-Identifier: Apache-2.0
//
// The pieces of assembly that ODS formats leave to us: custom<Name>(...) calls parseName and printName.
//
//   Range         [4096 for 1024]                         bytes [4096, 5120)
//   Ranges        [4096 for 1024, 5120 for 64]            the second one only if it is there
//   RebuildRanges  the same, and `norms[5200 for 128]`
//   LinearRanges  the same, and `then gelu`
//   Step          step<attention 3 on compute, flops 100, device_bytes 200>
//   StepAt        the same, and `at 8192` once placed;  StepAtScratch, StepScratch: and `scratch 1024 at 9216`
//   MiniBatchAt   mini_batch(1) at 4096
//   RoleAt        qkv layer 3 at 4096;   IndexAt, KvAt, ActAt, IoAt: the same for slot, kv (3 tail at 4096), act and io
//   Destination   into %slot.0[8192], or onto %part
//   Wait          %t, or raw %t on compute
//   Dirty         dirty, or nothing;   Keeping: keeping, or nothing
//   Limits        limits(8, 8, 2048) kv(33) cycle(2 of 5) arena(65536)
//   Types         <400, f32>, <host, 2000, bf16>, slot<4600>, token: types without what is always the same
//   LinearTypes   the same for linear, whose residual's type is its result's; EmbedTypes: where it goes, too;
//                 RopeTypes, AttentionTypes: for caches in parts
#pragma once

#include "ir/Headrace.h"

namespace headrace::ir {

mlir::ParseResult parseRange(mlir::OpAsmParser &parser, ByteRange &range);
void printRange(mlir::OpAsmPrinter &printer, mlir::Operation *op, const ByteRange &range);
mlir::ParseResult parseRanges(mlir::OpAsmParser &parser, ByteRange &first, ByteRange &second);
void printRanges(mlir::OpAsmPrinter &printer, mlir::Operation *op, const ByteRange &first, const ByteRange &second);
mlir::ParseResult parseRebuildRanges(mlir::OpAsmParser &parser, ByteRange &weight, ByteRange &bias, ByteRange &norms);
void printRebuildRanges(mlir::OpAsmPrinter &printer, mlir::Operation *op, const ByteRange &weight,
                        const ByteRange &bias, const ByteRange &norms);
mlir::ParseResult parseLinearRanges(mlir::OpAsmParser &parser, ByteRange &weight, ByteRange &bias, Epilogue &epilogue);
void printLinearRanges(mlir::OpAsmPrinter &printer, mlir::Operation *op, const ByteRange &weight, const ByteRange &bias,
                       Epilogue epilogue);

mlir::ParseResult parseStep(mlir::OpAsmParser &parser, StepInfo &step);
void printStep(mlir::OpAsmPrinter &printer, mlir::Operation *op, const StepInfo &step);
mlir::ParseResult parseStepAt(mlir::OpAsmParser &parser, StepInfo &step, Address &at);
void printStepAt(mlir::OpAsmPrinter &printer, mlir::Operation *op, const StepInfo &step, const Address &at);
mlir::ParseResult parseStepScratch(mlir::OpAsmParser &parser, StepInfo &step, Workspace &scratch);
void printStepScratch(mlir::OpAsmPrinter &printer, mlir::Operation *op, const StepInfo &step, const Workspace &scratch);
mlir::ParseResult parseStepAtScratch(mlir::OpAsmParser &parser, StepInfo &step, Address &at, Workspace &scratch);
void printStepAtScratch(mlir::OpAsmPrinter &printer, mlir::Operation *op, const StepInfo &step, const Address &at,
                        const Workspace &scratch);

mlir::ParseResult parseRoleAt(mlir::OpAsmParser &parser, UnitRole &role, int32_t &layer, Address &at);
void printRoleAt(mlir::OpAsmPrinter &printer, mlir::Operation *op, UnitRole role, int32_t layer, const Address &at);
mlir::ParseResult parseIndexAt(mlir::OpAsmParser &parser, int32_t &index, Address &at);
void printIndexAt(mlir::OpAsmPrinter &printer, mlir::Operation *op, int32_t index, const Address &at);
mlir::ParseResult parseKvAt(mlir::OpAsmParser &parser, int32_t &layer, int32_t &miniBatch, KvPart &part,
                            int64_t &blockBytes, int64_t &stride, Address &at);
void printKvAt(mlir::OpAsmPrinter &printer, mlir::Operation *op, int32_t layer, int32_t miniBatch, KvPart part,
               int64_t blockBytes, int64_t stride, const Address &at);
mlir::ParseResult parseActAt(mlir::OpAsmParser &parser, int32_t &layer, int32_t &miniBatch, Address &at);
void printActAt(mlir::OpAsmPrinter &printer, mlir::Operation *op, int32_t layer, int32_t miniBatch, const Address &at);
mlir::ParseResult parseStagingAt(mlir::OpAsmParser &parser, StagingRole &role, int32_t &miniBatch, Address &at);
void printStagingAt(mlir::OpAsmPrinter &printer, mlir::Operation *, StagingRole role, int32_t miniBatch,
                    const Address &at);
mlir::ParseResult parseIoAt(mlir::OpAsmParser &parser, IoRole &role, int32_t &miniBatch, Address &at);
void printIoAt(mlir::OpAsmPrinter &printer, mlir::Operation *op, IoRole role, int32_t miniBatch, const Address &at);

mlir::ParseResult parseDestination(mlir::OpAsmParser &parser, mlir::OpAsmParser::UnresolvedOperand &destination,
                                   int64_t &offset);
void printDestination(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::Value destination, int64_t offset);
mlir::ParseResult parseWait(mlir::OpAsmParser &parser, mlir::OpAsmParser::UnresolvedOperand &event, WaitKind &kind,
                            Lane &lane);
void printWait(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::Value event, WaitKind kind, Lane lane);
mlir::ParseResult parseDirty(mlir::OpAsmParser &parser, bool &dirty);
void printDirty(mlir::OpAsmPrinter &printer, mlir::Operation *op, bool dirty);
mlir::ParseResult parseKeeping(mlir::OpAsmParser &parser, bool &keeping);
void printKeeping(mlir::OpAsmPrinter &printer, mlir::Operation *op, bool keeping);
mlir::ParseResult parseLimits(mlir::OpAsmParser &parser, int64_t &tokens, int64_t &sequences, int64_t &context,
                              int64_t &kvBlocks, int64_t &cyclePhase, int64_t &period, int64_t &arenaBytes);
void printLimits(mlir::OpAsmPrinter &printer, mlir::Operation *op, int64_t tokens, int64_t sequences, int64_t context,
                 int64_t kvBlocks, int64_t cyclePhase, int64_t period, int64_t arenaBytes);

mlir::ParseResult parseShortType(mlir::OpAsmParser &parser, mlir::Type &type);
void printShortType(mlir::OpAsmPrinter &printer, mlir::Type type);
template <typename... Rest> mlir::ParseResult parseTypes(mlir::OpAsmParser &parser, mlir::Type &first, Rest &...rest) {
  return mlir::failure(parseShortType(parser, first) || (... || (parser.parseComma() || parseShortType(parser, rest))));
}
template <typename... Rest>
void printTypes(mlir::OpAsmPrinter &printer, mlir::Operation *, mlir::Type first, Rest... rest) {
  printShortType(printer, first);
  (..., (printer << ", ", printShortType(printer, rest)));
}
mlir::ParseResult parseMiniBatchAt(mlir::OpAsmParser &parser, int32_t &miniBatch, Address &at);
void printMiniBatchAt(mlir::OpAsmPrinter &printer, mlir::Operation *op, int32_t miniBatch, const Address &at);
mlir::ParseResult parseEmbedTypes(mlir::OpAsmParser &parser,
                                  const std::optional<mlir::OpAsmParser::UnresolvedOperand> &into, mlir::Type &intoType,
                                  mlir::Type &meta, mlir::Type &unit, mlir::Type &sampled, mlir::Type &history,
                                  mlir::Type &x);
void printEmbedTypes(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::Value into, mlir::Type intoType,
                     mlir::Type meta, mlir::Type unit, mlir::Type sampled, mlir::Type history, mlir::Type x);
mlir::ParseResult parseLinearTypes(mlir::OpAsmParser &parser,
                                   const std::optional<mlir::OpAsmParser::UnresolvedOperand> &residual,
                                   mlir::Type &residualType, mlir::Type &meta, mlir::Type &x, mlir::Type &unit,
                                   mlir::Type &y);
void printLinearTypes(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::Value residual, mlir::Type residualType,
                      mlir::Type meta, mlir::Type x, mlir::Type unit, mlir::Type y);
using Operands = llvm::ArrayRef<mlir::OpAsmParser::UnresolvedOperand>;
mlir::ParseResult parseRotateTypes(mlir::OpAsmParser &parser,
                                   const std::optional<mlir::OpAsmParser::UnresolvedOperand> &unit,
                                   mlir::Type &unitType, mlir::Type &meta, mlir::Type &qkv, mlir::Type &rotated);
void printRotateTypes(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::Value unit, mlir::Type unitType,
                      mlir::Type meta, mlir::Type qkv, mlir::Type rotated);
mlir::ParseResult parseHostAttentionTypes(mlir::OpAsmParser &parser,
                                          const std::optional<mlir::OpAsmParser::UnresolvedOperand> &scratch,
                                          mlir::Type &scratchType, mlir::Type &meta, mlir::Type &qkv, mlir::Type &kv,
                                          mlir::Type &into, mlir::Type &out);
void printHostAttentionTypes(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::Value scratch,
                             mlir::Type scratchType, mlir::Type meta, mlir::Type qkv, mlir::Type kv, mlir::Type into,
                             mlir::Type out);
mlir::ParseResult parseRopeTypes(mlir::OpAsmParser &parser, Operands kvOperands, Operands homeOperands,
                                 const std::optional<mlir::OpAsmParser::UnresolvedOperand> &unit, mlir::Type &unitType,
                                 mlir::Type &meta, mlir::Type &qkv, llvm::SmallVectorImpl<mlir::Type> &kv,
                                 llvm::SmallVectorImpl<mlir::Type> &home, llvm::SmallVectorImpl<mlir::Type> &appended);
void printRopeTypes(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::ValueRange kvOperands,
                    mlir::ValueRange homeOperands, mlir::Value unit, mlir::Type unitType, mlir::Type meta,
                    mlir::Type qkv, mlir::TypeRange kv, mlir::TypeRange home, mlir::TypeRange appended);
mlir::ParseResult parseAttentionTypes(mlir::OpAsmParser &parser, Operands kvOperands, mlir::Type &meta, mlir::Type &qkv,
                                      llvm::SmallVectorImpl<mlir::Type> &kv);
void printAttentionTypes(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::ValueRange kvOperands, mlir::Type meta,
                         mlir::Type qkv, mlir::TypeRange kv);

} // namespace headrace::ir
