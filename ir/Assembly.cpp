// SPDX-License-Identifier: Apache-2.0
#include "ir/Assembly.h"

#include "ir/Accesses.h"

namespace headrace::ir {

using llvm::StringRef; // generated code says StringRef
using mlir::failure;
using mlir::OpAsmParser;
using mlir::OpAsmPrinter;
using mlir::Operation;
using mlir::ParseResult;
using mlir::success;
using mlir::Type;
using mlir::Value;

// A number of at most 63 bits that is not negative.
static ParseResult parseAmount(OpAsmParser &parser, llvm::StringRef what, uint64_t &amount) {
  const llvm::SMLoc loc = parser.getCurrentLocation();
  int64_t value = 0;
  if (parser.parseInteger(value))
    return failure();
  if (value < 0)
    return parser.emitError(loc) << what << " must not be negative, got " << value;
  amount = static_cast<uint64_t>(value);
  return success();
}

template <typename T> static ParseResult parseSmall(OpAsmParser &parser, llvm::StringRef what, T &out) {
  const llvm::SMLoc loc = parser.getCurrentLocation();
  uint64_t value = 0;
  if (parseAmount(parser, what, value))
    return failure();
  if (value > static_cast<uint64_t>(std::numeric_limits<T>::max()))
    return parser.emitError(loc) << what << " must be at most " << static_cast<uint64_t>(std::numeric_limits<T>::max())
                                 << ", got " << value;
  out = static_cast<T>(value);
  return success();
}

//   step<attention 3 on compute, flops 100, device_bytes 200>
ParseResult parseStep(OpAsmParser &parser, StepInfo &step) {
  llvm::SMLoc loc;
  llvm::StringRef word;
  if (parser.parseKeyword("step") || parser.parseLess() || parser.getCurrentLocation(&loc) ||
      parser.parseKeyword(&word))
    return failure();
  const std::optional<Part> part = symbolizePart(word);
  if (!part)
    return parser.emitError(loc) << "expected embedding, attention, mlp, head or movement, got '" << word << "'";
  step = StepInfo();
  step.part = *part;
  int32_t layer = -1;
  const mlir::OptionalParseResult hasLayer = parser.parseOptionalInteger(layer);
  if (hasLayer.has_value()) {
    if (failed(*hasLayer))
      return failure();
    if (layer < 0)
      return parser.emitError(loc) << "a layer must not be negative, got " << layer;
    step.layer = layer;
  }
  if (succeeded(parser.parseOptionalKeyword("on"))) {
    if (parser.getCurrentLocation(&loc) || parser.parseKeyword(&word))
      return failure();
    step.lane = symbolizeLane(word);
    if (!step.lane)
      return parser.emitError(loc) << "expected compute, h2d, d2h or cpu, got '" << word << "'";
  }
  while (succeeded(parser.parseOptionalComma())) {
    if (parser.getCurrentLocation(&loc) || parser.parseKeyword(&word))
      return failure();
    ParseResult result = success();
    if (word == "direct")
      step.direct = true;
    else if (word == "resizable")
      step.resizable = true;
    else if (word == "mini_batch")
      result = parseSmall(parser, word, step.miniBatch);
    else if (word == "flops")
      result = parseAmount(parser, word, step.flops);
    else if (word == "device_bytes")
      result = parseAmount(parser, word, step.deviceBytes);
    else if (word == "link_bytes")
      result = parseAmount(parser, word, step.linkBytes);
    else
      return parser.emitError(loc) << "expected direct, resizable, mini_batch, flops, device_bytes or "
                                      "link_bytes, got '"
                                   << word << "'";
    if (result)
      return failure();
  }
  return parser.parseGreater();
}

void printStep(OpAsmPrinter &printer, Operation *, const StepInfo &step) {
  printer << "step<" << step.part;
  if (step.layer >= 0)
    printer << ' ' << step.layer;
  if (step.lane)
    printer << " on " << *step.lane;
  const auto amount = [&](llvm::StringRef name, uint64_t value) {
    if (value)
      printer << ", " << name << ' ' << value;
  };
  if (step.direct)
    printer << ", direct";
  if (step.resizable)
    printer << ", resizable";
  amount("mini_batch", step.miniBatch);
  amount("flops", step.flops);
  amount("device_bytes", step.deviceBytes);
  amount("link_bytes", step.linkBytes);
  printer << '>';
}

static ParseResult parseOffsetForBytes(OpAsmParser &parser, ByteRange &range) {
  return failure(parseAmount(parser, "an offset", range.offset) || parser.parseKeyword("for") ||
                 parseAmount(parser, "a number of bytes", range.bytes));
}
static void printOffsetForBytes(OpAsmPrinter &printer, const ByteRange &range) {
  printer << range.offset << " for " << range.bytes;
}

//   [4096 for 1024]
ParseResult parseRange(OpAsmParser &parser, ByteRange &range) {
  return failure(parser.parseLSquare() || parseOffsetForBytes(parser, range) || parser.parseRSquare());
}
void printRange(OpAsmPrinter &printer, Operation *, const ByteRange &range) {
  printer << '[';
  printOffsetForBytes(printer, range);
  printer << ']';
}

//   [4096 for 1024] or, with the second one present, [4096 for 1024, 5120 for 64]
ParseResult parseRanges(OpAsmParser &parser, ByteRange &first, ByteRange &second) {
  if (parser.parseLSquare() || parseOffsetForBytes(parser, first))
    return failure();
  if (succeeded(parser.parseOptionalComma()) && parseOffsetForBytes(parser, second))
    return failure();
  return parser.parseRSquare();
}
void printRanges(OpAsmPrinter &printer, Operation *, const ByteRange &first, const ByteRange &second) {
  printer << '[';
  printOffsetForBytes(printer, first);
  if (!second.empty()) {
    printer << ", ";
    printOffsetForBytes(printer, second);
  }
  printer << ']';
}

//   [4096 for 1024, 5120 for 64] norms[5200 for 128]: the second and the third one only if they are there
ParseResult parseRebuildRanges(OpAsmParser &parser, ByteRange &weight, ByteRange &bias, ByteRange &norms) {
  if (parseRanges(parser, weight, bias))
    return failure();
  return failed(parser.parseOptionalKeyword("norms")) ? success() : parseRange(parser, norms);
}
void printRebuildRanges(OpAsmPrinter &printer, Operation *op, const ByteRange &weight, const ByteRange &bias,
                        const ByteRange &norms) {
  printRanges(printer, op, weight, bias);
  if (norms.empty())
    return;
  printer << " norms";
  printRange(printer, op, norms);
}

//   at 4096, or nothing
static ParseResult parseAddress(OpAsmParser &parser, Address &address) {
  if (failed(parser.parseOptionalKeyword("at")))
    return success();
  uint64_t value = 0;
  if (parseAmount(parser, "an address", value))
    return failure();
  address.value = static_cast<int64_t>(value);
  return success();
}
static void printAddress(OpAsmPrinter &printer, const Address &address) {
  if (address.placed())
    printer << " at " << address.value;
}

//   scratch 1024, scratch 1024 at 4096, or nothing
static ParseResult parseWorkspace(OpAsmParser &parser, Workspace &workspace) {
  if (failed(parser.parseOptionalKeyword("scratch")))
    return success();
  return failure(parseAmount(parser, "scratch", workspace.bytes) || parseAddress(parser, workspace.address));
}
static void printWorkspace(OpAsmPrinter &printer, const Workspace &workspace) {
  if (!workspace.bytes)
    return;
  printer << " scratch " << workspace.bytes;
  printAddress(printer, workspace.address);
}

//===----------------------------------------------------------------------===//
// Steps with what belongs to them
//===----------------------------------------------------------------------===//

ParseResult parseStepAt(OpAsmParser &parser, StepInfo &step, Address &at) {
  return failure(parseStep(parser, step) || parseAddress(parser, at));
}
void printStepAt(OpAsmPrinter &printer, Operation *op, const StepInfo &step, const Address &at) {
  printStep(printer, op, step);
  printAddress(printer, at);
}

ParseResult parseStepScratch(OpAsmParser &parser, StepInfo &step, Workspace &scratch) {
  return failure(parseStep(parser, step) || parseWorkspace(parser, scratch));
}
void printStepScratch(OpAsmPrinter &printer, Operation *op, const StepInfo &step, const Workspace &scratch) {
  printStep(printer, op, step);
  printWorkspace(printer, scratch);
}

ParseResult parseStepAtScratch(OpAsmParser &parser, StepInfo &step, Address &at, Workspace &scratch) {
  return failure(parseStepAt(parser, step, at) || parseWorkspace(parser, scratch));
}
void printStepAtScratch(OpAsmPrinter &printer, Operation *op, const StepInfo &step, const Address &at,
                        const Workspace &scratch) {
  printStepAt(printer, op, step, at);
  printWorkspace(printer, scratch);
}

ParseResult parseLinearRanges(OpAsmParser &parser, ByteRange &weight, ByteRange &bias, Epilogue &epilogue) {
  if (parseRanges(parser, weight, bias))
    return failure();
  if (failed(parser.parseOptionalKeyword("then")))
    return success();
  const llvm::SMLoc loc = parser.getCurrentLocation();
  llvm::StringRef word;
  if (parser.parseKeyword(&word))
    return failure();
  const std::optional<Epilogue> parsed = symbolizeEpilogue(word);
  if (!parsed || *parsed == Epilogue::None)
    return parser.emitError(loc) << "expected relu, gelu or gelu_tanh, got '" << word << "'";
  epilogue = *parsed;
  return success();
}
void printLinearRanges(OpAsmPrinter &printer, Operation *op, const ByteRange &weight, const ByteRange &bias,
                       Epilogue epilogue) {
  printRanges(printer, op, weight, bias);
  if (epilogue != Epilogue::None)
    printer << " then " << epilogue;
}

//===----------------------------------------------------------------------===//
// What persists
//===----------------------------------------------------------------------===//

ParseResult parseRoleAt(OpAsmParser &parser, UnitRole &role, int32_t &layer, Address &at) {
  const llvm::SMLoc loc = parser.getCurrentLocation();
  llvm::StringRef word;
  if (parser.parseKeyword(&word))
    return failure();
  const std::optional<UnitRole> parsed = symbolizeUnitRole(word);
  if (!parsed)
    return parser.emitError(loc) << "expected embedding, qkv, out, up, down or head, got '" << word << "'";
  role = *parsed;
  layer = -1;
  if (succeeded(parser.parseOptionalKeyword("layer")) && parser.parseInteger(layer))
    return failure();
  return parseAddress(parser, at);
}
void printRoleAt(OpAsmPrinter &printer, Operation *, UnitRole role, int32_t layer, const Address &at) {
  printer << role;
  if (layer >= 0)
    printer << " layer " << layer;
  printAddress(printer, at);
}

ParseResult parseIndexAt(OpAsmParser &parser, int32_t &index, Address &at) {
  return failure(parser.parseInteger(index) || parseAddress(parser, at));
}
void printIndexAt(OpAsmPrinter &printer, Operation *, int32_t index, const Address &at) {
  printer << index;
  printAddress(printer, at);
}

// "mini_batch(1)", nothing for 0.
static ParseResult parseMiniBatch(OpAsmParser &parser, int32_t &miniBatch) {
  miniBatch = 0;
  if (failed(parser.parseOptionalKeyword("mini_batch")))
    return mlir::success();
  return failure(parser.parseLParen() || parser.parseInteger(miniBatch) || parser.parseRParen());
}
static void printMiniBatch(OpAsmPrinter &printer, int32_t miniBatch) {
  if (miniBatch != 0)
    printer << " mini_batch(" << miniBatch << ')';
}

// "3 at 4096", "3 tail at 4096", "3 mini_batch(1) tail at 4096", "3 interleaved(4096 by 16384) at 0".
ParseResult parseKvAt(OpAsmParser &parser, int32_t &layer, int32_t &miniBatch, KvPart &part, int64_t &blockBytes,
                      int64_t &stride, Address &at) {
  if (parser.parseInteger(layer) || parseMiniBatch(parser, miniBatch))
    return failure();
  part = KvPart::Cache;
  for (const KvPart other : {KvPart::Tail, KvPart::Mirror})
    if (succeeded(parser.parseOptionalKeyword(stringifyKvPart(other))))
      part = other;
  blockBytes = stride = 0;
  if (succeeded(parser.parseOptionalKeyword("interleaved")) &&
      (parser.parseLParen() || parser.parseInteger(blockBytes) || parser.parseKeyword("by") ||
       parser.parseInteger(stride) || parser.parseRParen()))
    return failure();
  return parseAddress(parser, at);
}
void printKvAt(OpAsmPrinter &printer, Operation *, int32_t layer, int32_t miniBatch, KvPart part, int64_t blockBytes,
               int64_t stride, const Address &at) {
  printer << layer;
  printMiniBatch(printer, miniBatch);
  if (part != KvPart::Cache)
    printer << ' ' << part;
  if (stride > 0)
    printer << " interleaved(" << blockBytes << " by " << stride << ')';
  printAddress(printer, at);
}

ParseResult parseActAt(OpAsmParser &parser, int32_t &layer, int32_t &miniBatch, Address &at) {
  return failure(parser.parseInteger(layer) || parseMiniBatch(parser, miniBatch) || parseAddress(parser, at));
}
void printActAt(OpAsmPrinter &printer, Operation *, int32_t layer, int32_t miniBatch, const Address &at) {
  printer << layer;
  printMiniBatch(printer, miniBatch);
  printAddress(printer, at);
}

ParseResult parseMiniBatchAt(OpAsmParser &parser, int32_t &miniBatch, Address &at) {
  return failure(parseMiniBatch(parser, miniBatch) || parseAddress(parser, at));
}
void printMiniBatchAt(OpAsmPrinter &printer, Operation *, int32_t miniBatch, const Address &at) {
  printMiniBatch(printer, miniBatch);
  printAddress(printer, at);
}

ParseResult parseStagingAt(OpAsmParser &parser, StagingRole &role, int32_t &miniBatch, Address &at) {
  const llvm::SMLoc loc = parser.getCurrentLocation();
  llvm::StringRef word;
  if (parser.parseKeyword(&word))
    return failure();
  const std::optional<StagingRole> parsed = symbolizeStagingRole(word);
  if (!parsed)
    return parser.emitError(loc) << "expected meta, qkv, attended or scratch, got '" << word << "'";
  role = *parsed;
  return failure(parseMiniBatch(parser, miniBatch) || parseAddress(parser, at));
}
void printStagingAt(OpAsmPrinter &printer, Operation *, StagingRole role, int32_t miniBatch, const Address &at) {
  printer << stringifyStagingRole(role);
  printMiniBatch(printer, miniBatch);
  printAddress(printer, at);
}

ParseResult parseIoAt(OpAsmParser &parser, IoRole &role, int32_t &miniBatch, Address &at) {
  const llvm::SMLoc loc = parser.getCurrentLocation();
  llvm::StringRef word;
  if (parser.parseKeyword(&word))
    return failure();
  const std::optional<IoRole> parsed = symbolizeIoRole(word);
  if (!parsed)
    return parser.emitError(loc) << "expected meta, sampled or output, got '" << word << "'";
  role = *parsed;
  return failure(parseMiniBatch(parser, miniBatch) || parseAddress(parser, at));
}
void printIoAt(OpAsmPrinter &printer, Operation *, IoRole role, int32_t miniBatch, const Address &at) {
  printer << role;
  printMiniBatch(printer, miniBatch);
  printAddress(printer, at);
}

//===----------------------------------------------------------------------===//
// Movement
//===----------------------------------------------------------------------===//

ParseResult parseDestination(OpAsmParser &parser, OpAsmParser::UnresolvedOperand &destination, int64_t &offset) {
  if (succeeded(parser.parseOptionalKeyword("onto")))
    return parser.parseOperand(destination);
  return failure(parser.parseKeyword("into") || parser.parseOperand(destination) || parser.parseLSquare() ||
                 parser.parseInteger(offset) || parser.parseRSquare());
}
void printDestination(OpAsmPrinter &printer, Operation *, Value destination, int64_t offset) {
  if (llvm::isa<SlotType>(destination.getType()))
    printer << "into " << destination << '[' << offset << ']';
  else
    printer << "onto " << destination;
}

ParseResult parseWait(OpAsmParser &parser, OpAsmParser::UnresolvedOperand &event, WaitKind &kind, Lane &lane) {
  llvm::StringRef word;
  llvm::SMLoc loc = parser.getCurrentLocation();
  kind = WaitKind::Program;
  lane = Lane::Compute;
  if (failed(parser.parseOptionalKeyword(&word)))
    return parser.parseOperand(event);
  const std::optional<WaitKind> why = symbolizeWaitKind(word);
  if (!why || *why == WaitKind::Program)
    return parser.emitError(loc) << "expected raw, war, waw or pacing, got '" << word << "'";
  kind = *why;
  if (parser.parseOperand(event) || parser.parseKeyword("on") || parser.getCurrentLocation(&loc) ||
      parser.parseKeyword(&word))
    return failure();
  const std::optional<Lane> where = symbolizeLane(word);
  if (!where)
    return parser.emitError(loc) << "expected compute, h2d, d2h or cpu, got '" << word << "'";
  lane = *where;
  return success();
}
void printWait(OpAsmPrinter &printer, Operation *, Value event, WaitKind kind, Lane lane) {
  if (kind == WaitKind::Program)
    printer << event;
  else
    printer << kind << ' ' << event << " on " << lane;
}

ParseResult parseDirty(OpAsmParser &parser, bool &dirty) {
  dirty = succeeded(parser.parseOptionalKeyword("dirty"));
  return success();
}
void printDirty(OpAsmPrinter &printer, Operation *, bool dirty) {
  if (dirty)
    printer << " dirty";
}

ParseResult parseKeeping(OpAsmParser &parser, bool &keeping) {
  keeping = succeeded(parser.parseOptionalKeyword("keeping"));
  return success();
}
void printKeeping(OpAsmPrinter &printer, Operation *, bool keeping) {
  if (keeping)
    printer << "keeping";
}

ParseResult parseLimits(OpAsmParser &parser, int64_t &tokens, int64_t &sequences, int64_t &context, int64_t &kvBlocks,
                        int64_t &cyclePhase, int64_t &period, int64_t &arenaBytes) {
  if (parser.parseKeyword("limits") || parser.parseLParen() || parser.parseInteger(tokens) || parser.parseComma() ||
      parser.parseInteger(sequences) || parser.parseComma() || parser.parseInteger(context) || parser.parseRParen())
    return failure();
  if (succeeded(parser.parseOptionalKeyword("kv")) &&
      (parser.parseLParen() || parser.parseInteger(kvBlocks) || parser.parseRParen()))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("cycle")) &&
      (parser.parseLParen() || parser.parseInteger(cyclePhase) || parser.parseKeyword("of") ||
       parser.parseInteger(period) || parser.parseRParen()))
    return failure();
  if (failed(parser.parseOptionalKeyword("arena")))
    return success();
  return failure(parser.parseLParen() || parser.parseInteger(arenaBytes) || parser.parseRParen());
}
void printLimits(OpAsmPrinter &printer, Operation *, int64_t tokens, int64_t sequences, int64_t context,
                 int64_t kvBlocks, int64_t cyclePhase, int64_t period, int64_t arenaBytes) {
  printer << "limits(" << tokens << ", " << sequences << ", " << context << ')';
  if (kvBlocks)
    printer << " kv(" << kvBlocks << ')';
  if (period != 1)
    printer << " cycle(" << cyclePhase << " of " << period << ')';
  if (arenaBytes)
    printer << " arena(" << arenaBytes << ')';
}

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

// A buffer on the device leaves its space out.
ParseResult parseShortType(OpAsmParser &parser, Type &type) {
  mlir::MLIRContext *context = parser.getContext();
  if (succeeded(parser.parseOptionalKeyword("token"))) {
    type = TokenType::get(context);
    return success();
  }
  if (succeeded(parser.parseOptionalKeyword("slot"))) {
    uint64_t bytes = 0;
    const llvm::SMLoc loc = parser.getCurrentLocation();
    if (parser.parseLess() || parser.parseInteger(bytes) || parser.parseGreater())
      return failure();
    type = SlotType::getChecked([&] { return parser.emitError(loc); }, context, bytes);
    return failure(!type);
  }
  type = BufferType::parse(parser);
  return failure(!type);
}
void printShortType(OpAsmPrinter &printer, Type type) {
  if (llvm::isa<TokenType>(type))
    printer << "token";
  else if (auto slot = llvm::dyn_cast<SlotType>(type))
    printer << "slot<" << slot.getBytes() << '>';
  else
    llvm::cast<BufferType>(type).printShort(printer);
}

ParseResult parseEmbedTypes(OpAsmParser &parser, const std::optional<OpAsmParser::UnresolvedOperand> &into,
                            Type &intoType, Type &meta, Type &unit, Type &sampled, Type &history, Type &x) {
  if (parseTypes(parser, meta, unit, sampled, history) || parser.parseArrow() || parseShortType(parser, x))
    return failure();
  if (into)
    intoType = x;
  return success();
}
void printEmbedTypes(OpAsmPrinter &printer, Operation *op, Value, Type, Type meta, Type unit, Type sampled,
                     Type history, Type x) {
  printTypes(printer, op, meta, unit, sampled, history);
  printer << " -> ";
  printShortType(printer, x);
}

ParseResult parseLinearTypes(OpAsmParser &parser, const std::optional<OpAsmParser::UnresolvedOperand> &residual,
                             Type &residualType, Type &meta, Type &x, Type &unit, Type &y) {
  if (parseTypes(parser, meta, x, unit) || parser.parseArrow() || parseShortType(parser, y))
    return failure();
  if (residual)
    residualType = y;
  return success();
}
void printLinearTypes(OpAsmPrinter &printer, Operation *op, Value, Type, Type meta, Type x, Type unit, Type y) {
  printTypes(printer, op, meta, x, unit);
  printer << " -> ";
  printShortType(printer, y);
}

// The unit's type is there where the unit is.
// As many more types as there are operands.
static ParseResult parseMoreTypes(OpAsmParser &parser, Operands operands, llvm::SmallVectorImpl<Type> &types) {
  for (size_t i = 0; i < operands.size(); ++i)
    if (parser.parseComma() || parseShortType(parser, types.emplace_back()))
      return failure();
  return success();
}
static void printMoreTypes(OpAsmPrinter &printer, mlir::TypeRange types) {
  for (Type type : types) {
    printer << ", ";
    printShortType(printer, type);
  }
}

ParseResult parseRopeTypes(OpAsmParser &parser, Operands kvOperands, Operands homeOperands,
                           const std::optional<OpAsmParser::UnresolvedOperand> &unit, Type &unitType, Type &meta,
                           Type &qkv, llvm::SmallVectorImpl<Type> &kv, llvm::SmallVectorImpl<Type> &home,
                           llvm::SmallVectorImpl<Type> &appended) {
  if (parseTypes(parser, meta, qkv) || parseMoreTypes(parser, kvOperands, kv) ||
      parseMoreTypes(parser, homeOperands, home))
    return failure();
  appended.append(kv.begin(), kv.end());
  appended.append(home.begin(), home.end());
  return unit ? failure(parser.parseComma() || parseShortType(parser, unitType)) : success();
}
void printRopeTypes(OpAsmPrinter &printer, Operation *op, mlir::ValueRange, mlir::ValueRange, Value unit, Type unitType,
                    Type meta, Type qkv, mlir::TypeRange kv, mlir::TypeRange home, mlir::TypeRange) {
  printTypes(printer, op, meta, qkv);
  printMoreTypes(printer, kv);
  printMoreTypes(printer, home);
  if (unit) {
    printer << ", ";
    printShortType(printer, unitType);
  }
}

ParseResult parseRotateTypes(OpAsmParser &parser, const std::optional<OpAsmParser::UnresolvedOperand> &unit,
                             Type &unitType, Type &meta, Type &qkv, Type &rotated) {
  if (parseTypes(parser, meta, qkv))
    return failure();
  rotated = qkv;
  return unit ? failure(parser.parseComma() || parseShortType(parser, unitType)) : success();
}
void printRotateTypes(OpAsmPrinter &printer, Operation *op, Value unit, Type unitType, Type meta, Type qkv, Type) {
  printTypes(printer, op, meta, qkv);
  if (unit) {
    printer << ", ";
    printShortType(printer, unitType);
  }
}

ParseResult parseHostAttentionTypes(OpAsmParser &parser, const std::optional<OpAsmParser::UnresolvedOperand> &scratch,
                                    Type &scratchType, Type &meta, Type &qkv, Type &kv, Type &into, Type &out) {
  if (parseTypes(parser, meta, qkv, kv, into))
    return failure();
  out = into;
  return scratch ? failure(parser.parseComma() || parseShortType(parser, scratchType)) : success();
}
void printHostAttentionTypes(OpAsmPrinter &printer, Operation *op, Value scratch, Type scratchType, Type meta, Type qkv,
                             Type kv, Type into, Type) {
  printTypes(printer, op, meta, qkv, kv, into);
  if (scratch) {
    printer << ", ";
    printShortType(printer, scratchType);
  }
}

ParseResult parseAttentionTypes(OpAsmParser &parser, Operands kvOperands, Type &meta, Type &qkv,
                                llvm::SmallVectorImpl<Type> &kv) {
  return failure(parseTypes(parser, meta, qkv) || parseMoreTypes(parser, kvOperands, kv));
}
void printAttentionTypes(OpAsmPrinter &printer, Operation *op, mlir::ValueRange, Type meta, Type qkv,
                         mlir::TypeRange kv) {
  printTypes(printer, op, meta, qkv);
  printMoreTypes(printer, kv);
}

} // namespace headrace::ir

#define GET_OP_CLASSES
#include "ir/HeadraceOps.cpp.inc"
