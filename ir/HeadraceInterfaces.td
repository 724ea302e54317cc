// SPDX-License-Identifier: Apache-2.0
#ifndef HEADRACE_INTERFACES_TD
#define HEADRACE_INTERFACES_TD

include "mlir/IR/OpBase.td"

// A unit of work that occupies a lane: every compute op, prefetch, evict, publish.
def Headrace_StepInterface : OpInterface<"StepInterface"> {
  let cppNamespace = "::headrace::ir";
  let description = [{
    What passes and plan emission ask any step. A step makes at most one new buffer; its other buffer results are new
    versions of operands that it updates in place (tied).
  }];
  let methods = [
    InterfaceMethod<"Layer, part, lane and amounts; a reference into the op.",
                    "::headrace::ir::StepInfo &", "stepInfo", (ins)>,
    InterfaceMethod<"What the step reads and writes, byte ranges within each buffer; operands first, then results.",
                    "void", "getAccesses", (ins "::llvm::SmallVectorImpl<::headrace::ir::Access> &":$accesses)>,
    InterfaceMethod<"The operand that result `index` is a new version of, or -1 for a new buffer or a token.",
                    "int", "tiedOperand", (ins "unsigned":$index), "", "return -1;">,
    InterfaceMethod<"Where the address of the step's new buffer is kept; null if it makes none (or it lies in a slot).",
                    "::headrace::ir::Address *", "resultAddress", (ins), "", "return nullptr;">,
    InterfaceMethod<"The step's scratch; null if its kind has none.",
                    "::headrace::ir::Workspace *", "workspace", (ins), "", "return nullptr;">,
  ];
}

// A buffer (or slot) that exists before the first step: weight, kv, io, slot.
def Headrace_PersistentInterface : OpInterface<"PersistentInterface"> {
  let cppNamespace = "::headrace::ir";
  let methods = [
    InterfaceMethod<"Where its address is kept.", "::headrace::ir::Address &", "address", (ins)>,
    InterfaceMethod<"Bytes it takes where it lies.", "uint64_t", "sizeInBytes", (ins)>,
    InterfaceMethod<"Which one it is: kind, and unit, layer, role or index. Unique in an iteration.",
                    "std::pair<::mlir::TypeID, int64_t>", "identity", (ins)>,
  ];
}

def Headrace_MovableInterface : OpInterface<"MovableInterface"> {
  let cppNamespace = "::headrace::ir";
  let description = "A buffer whose home may be off the device: what passes and verifiers of movement ask it.";
  let methods = [
    InterfaceMethod<"Which one it is.", "::headrace::ir::Movable", "movable", (ins)>,
    InterfaceMethod<"The buffer, at its home.", "::mlir::Value", "atHome", (ins)>,
  ];
}

#endif // HEADRACE_INTERFACES_TD
