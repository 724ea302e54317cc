// SPDX-License-Identifier: Apache-2.0
//
// The dialect, its types, and what holds of values and of an iteration as a whole.
#include "ir/Headrace.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/TypeSwitch.h"

#include "ir/HeadraceDialect.cpp.inc"
#include "ir/HeadraceEnums.cpp.inc"
#include "ir/HeadraceInterfaces.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "ir/HeadraceTypes.cpp.inc"

namespace headrace::ir {

using mlir::failure;
using mlir::LogicalResult;
using mlir::success;
using mlir::Value;

void HeadraceDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "ir/HeadraceTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "ir/HeadraceOps.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

//   !headrace.buffer<device, 4096, bf16>    !headrace.buffer<device, 1024 of 4096, bf16>
// In the short form (printShort) the device is left out; both are accepted everywhere.
mlir::Type BufferType::parse(mlir::AsmParser &parser) {
  const llvm::SMLoc loc = parser.getCurrentLocation();
  llvm::SMLoc spaceLoc, encodingLoc;
  llvm::StringRef word;
  MemorySpace space = MemorySpace::Device;
  if (parser.parseLess() || parser.getCurrentLocation(&spaceLoc))
    return {};
  if (succeeded(parser.parseOptionalKeyword(&word))) {
    const std::optional<MemorySpace> named = symbolizeMemorySpace(word);
    if (!named) {
      parser.emitError(spaceLoc) << "expected device or host, got '" << word << "'";
      return {};
    }
    space = *named;
    if (parser.parseComma())
      return {};
  }
  uint64_t held = 0;
  if (parser.parseInteger(held))
    return {};
  uint64_t bytes = held;
  if (succeeded(parser.parseOptionalKeyword("of")) && parser.parseInteger(bytes))
    return {};
  if (parser.parseComma() || parser.getCurrentLocation(&encodingLoc) || parser.parseKeyword(&word))
    return {};
  const std::optional<Encoding> encoding = symbolizeEncoding(word);
  if (!encoding) {
    parser.emitError(encodingLoc) << "expected f32, f16, bf16, bytes or packed, got '" << word << "'";
    return {};
  }
  if (parser.parseGreater())
    return {};
  return getChecked([&] { return parser.emitError(loc); }, parser.getContext(), space, bytes, held, *encoding);
}

static void printSizes(mlir::AsmPrinter &printer, BufferType type) {
  if (!type.isWhole())
    printer << type.getHeld() << " of ";
  printer << type.getBytes() << ", " << type.getEncoding() << '>';
}
void BufferType::print(mlir::AsmPrinter &printer) const {
  printer << '<' << getSpace() << ", ";
  printSizes(printer, *this);
}
void BufferType::printShort(mlir::AsmPrinter &printer) const {
  printer << '<';
  if (!isOnDevice())
    printer << getSpace() << ", ";
  printSizes(printer, *this);
}

// Sizes are below 2^62, so that sums of two never overflow.
static constexpr uint64_t kMaxBytes = uint64_t{1} << 62;

LogicalResult BufferType::verify(llvm::function_ref<mlir::InFlightDiagnostic()> emitError, MemorySpace, uint64_t bytes,
                                 uint64_t held, Encoding encoding) {
  if (bytes == 0 || bytes > kMaxBytes)
    return emitError() << "a buffer has between 1 and 2^62 bytes, got " << bytes;
  if (held == 0 || held > bytes)
    return emitError() << "a buffer of " << bytes << " bytes cannot hold " << held;
  const uint64_t element = encoding == Encoding::F32                                 ? 4
                           : encoding == Encoding::F16 || encoding == Encoding::BF16 ? 2
                                                                                     : 1;
  if (bytes % element)
    return emitError() << bytes << " bytes are no whole number of " << stringifyEncoding(encoding) << " elements";
  return success();
}

LogicalResult SlotType::verify(llvm::function_ref<mlir::InFlightDiagnostic()> emitError, uint64_t bytes) {
  if (bytes == 0 || bytes > kMaxBytes)
    return emitError() << "a slot has between 1 and 2^62 bytes, got " << bytes;
  return success();
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

Value rangeOf(Value value) {
  while (auto step = llvm::dyn_cast_or_null<StepInterface>(value.getDefiningOp())) {
    const int operand = step.tiedOperand(llvm::cast<mlir::OpResult>(value).getResultNumber());
    if (operand < 0)
      break;
    value = step->getOperand(static_cast<unsigned>(operand));
  }
  return value;
}

Value bufferOfRange(Value range) {
  mlir::Operation *op = range.getDefiningOp();
  if (auto prefetch = llvm::dyn_cast_or_null<PrefetchOp>(op))
    return rangeOf(prefetch.getSource()); // of a cache's home any version
  if (auto carry = llvm::dyn_cast_or_null<CarryOp>(op))
    return carry.getSource();
  if (auto claim = llvm::dyn_cast_or_null<ClaimOp>(op))
    return claim.getSource();
  if (auto onDevice = llvm::dyn_cast_or_null<OnDeviceOp>(op))
    return onDevice.getSource();
  return range;
}

Ranges::Ranges(IterationOp iteration) {
  for (mlir::Operation &op : iteration.block()) {
    auto step = llvm::dyn_cast<StepInterface>(op);
    for (unsigned i = 0, n = step ? op.getNumResults() : 0; i < n; ++i)
      if (const int operand = step.tiedOperand(i); operand >= 0)
        ranges_[op.getResult(i)] = rangeOf(op.getOperand(static_cast<unsigned>(operand)));
  }
}

static Address inSlot(Value slot, int64_t offset) {
  Address address = llvm::cast<SlotOp>(slot.getDefiningOp()).address();
  if (address.placed())
    address.value += offset;
  return address;
}

Address addressOfRange(Value range) {
  mlir::Operation *op = range.getDefiningOp();
  if (auto persistent = llvm::dyn_cast_or_null<PersistentInterface>(op))
    return persistent.address();
  if (auto prefetch = llvm::dyn_cast_or_null<PrefetchOp>(op))
    return inSlot(prefetch.getDestination(), prefetch.getSlotOffset());
  if (auto carry = llvm::dyn_cast_or_null<CarryOp>(op))
    return inSlot(carry.getSlot(), carry.getSlotOffset());
  if (auto claim = llvm::dyn_cast_or_null<ClaimOp>(op))
    return inSlot(claim.getSlot(), claim.getSlotOffset());
  if (auto step = llvm::dyn_cast_or_null<StepInterface>(op))
    if (Address *address = step.resultAddress())
      return *address;
  return Address();
}

mlir::Operation *stepOf(Value event) {
  mlir::Operation *op = event.getDefiningOp();
  return llvm::isa_and_nonnull<StepInterface>(op) ? op : nullptr;
}

//===----------------------------------------------------------------------===//
// Iteration
//===----------------------------------------------------------------------===//

void IterationOp::build(mlir::OpBuilder &builder, mlir::OperationState &state, llvm::StringRef name,
                        IterationClass iterationClass, int64_t tokens, int64_t sequences, int64_t context) {
  Properties &properties = state.getOrAddProperties<Properties>();
  properties.sym_name = builder.getStringAttr(name);
  properties.iteration_class = iterationClass;
  properties.phase = Phase::Model;
  properties.tokens = tokens;
  properties.sequences = sequences;
  properties.max_context = context;
  state.addRegion()->emplaceBlock();
}

// An in-place update ends the life of the version it takes: nothing after it may use that version.
static LogicalResult verifyVersions(mlir::Block &block) {
  for (mlir::Operation &op : block) {
    auto step = llvm::dyn_cast<StepInterface>(op);
    if (!step)
      continue;
    for (unsigned i = 0, n = op.getNumResults(); i < n; ++i) {
      const int operand = step.tiedOperand(i);
      if (operand < 0)
        continue;
      const Value old = op.getOperand(static_cast<unsigned>(operand));
      for (mlir::OpOperand &use : old.getUses()) {
        mlir::Operation *user = use.getOwner();
        const bool same = user == &op && use.getOperandNumber() == static_cast<unsigned>(operand);
        // A wait names the step that wrote the version, not its content.
        if (same || llvm::isa<WaitOp>(user) || (user != &op && user->isBeforeInBlock(&op)))
          continue;
        auto diagnostic = user->emitOpError()
                          << "uses a version of a buffer that '" << op.getName() << "' has updated in place";
        diagnostic.attachNote(op.getLoc()) << "updated here";
        return diagnostic;
      }
    }
  }
  return success();
}

// Buffers exist once: one weight op a unit, one kv op a layer, one io op a role, one slot op an index.
static LogicalResult verifyUnique(mlir::Block &block) {
  llvm::DenseMap<std::pair<mlir::TypeID, int64_t>, mlir::Operation *> seen;
  for (mlir::Operation &op : block) {
    auto persistent = llvm::dyn_cast<PersistentInterface>(op);
    if (!persistent)
      continue;
    const auto [it, isNew] = seen.try_emplace(persistent.identity(), &op);
    if (isNew)
      continue;
    auto diagnostic = op.emitOpError() << "declares a buffer that is there already";
    diagnostic.attachNote(it->second->getLoc()) << "declared here";
    return diagnostic;
  }
  return success();
}

LogicalResult IterationOp::verifyRegions() {
  const bool computes = getIterationClass() != IterationClass::Transition;
  if (computes ? getTokens() < 1 || getSequences() < 1 || getMaxContext() < 1
               : getTokens() < 0 || getSequences() < 0 || getMaxContext() < 0)
    return emitOpError() << "has limits (" << getTokens() << ", " << getSequences() << ", " << getMaxContext()
                         << "): tokens, sequences and context must be at least " << (computes ? 1 : 0);
  if (getKvBlocks() < 0)
    return emitOpError() << "may use " << getKvBlocks() << " KV blocks";
  if (getPeriod() < 1 || getCyclePhase() < 0 || getCyclePhase() >= getPeriod())
    return emitOpError() << "is number " << getCyclePhase() << " of a cycle of " << getPeriod()
                         << ": numbers go from 0 to one less than there are";
  if (!computes && getPeriod() != 1)
    return emitOpError() << "is a transition, of which there are no cycles";
  if (getArenaBytes() < 0)
    return emitOpError() << "has an arena of " << getArenaBytes() << " bytes";
  for (mlir::Operation &op : block()) {
    if (op.getDialect() != getOperation()->getDialect())
      return op.emitOpError() << "does not belong into a headrace.iteration";
    if (!computes && llvm::isa<StepInterface>(op) && !llvm::isa<PrefetchOp, EvictOp>(op))
      return op.emitOpError() << "computes, in a transition, which only moves";
  }
  return failure(failed(verifyUnique(block())) || failed(verifyVersions(block())));
}

} // namespace headrace::ir
