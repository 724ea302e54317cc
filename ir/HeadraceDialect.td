// SPDX-License-Identifier: Apache-2.0
//
// The headrace dialect: one iteration of a language model whose weights do not all live on the device.
//
//   HeadraceDialect.td     this file: the dialect, enumerations, properties
//   HeadraceTypes.td       buffer, slot, token
//   HeadraceInterfaces.td  what passes ask any step
//   HeadraceOps.td         iteration and what persists; movement
//   HeadraceCompute.td     compute ops, one for each kernel
//
// docs/ir.md says on one page what the IR means and shows a whole small model before and after each phase.
#ifndef HEADRACE_DIALECT_TD
#define HEADRACE_DIALECT_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/Properties.td"

def Headrace_Dialect : Dialect {
  let name = "headrace";
  let cppNamespace = "::headrace::ir";
  let summary = "one iteration of a model: compute at kernel level, movement of weights and KV beside it";
  let useDefaultTypePrinterParser = 1;
}

//===----------------------------------------------------------------------===//
// Enumerations. Where runtime/plan/value/Plan.h has the same one, the values are the same.
//===----------------------------------------------------------------------===//

class Headrace_Enum<string name, string summary, list<EnumCase> cases> : I32Enum<name, summary, cases> {
  let cppNamespace = "::headrace::ir";
}

def Headrace_MemorySpace : Headrace_Enum<"MemorySpace", "where a buffer lies", [
  I32EnumCase<"Device", 0, "device">, I32EnumCase<"Host", 1, "host">]>;

def Headrace_Encoding : Headrace_Enum<"Encoding", "element encoding of a buffer", [
  I32EnumCase<"F32", 0, "f32">, I32EnumCase<"F16", 1, "f16">, I32EnumCase<"BF16", 2, "bf16">,
  I32EnumCase<"Bytes", 3, "bytes">, I32EnumCase<"Packed", 4, "packed">]>;

def Headrace_IterationClass : Headrace_Enum<"IterationClass", "what an iteration's limits mean", [
  I32EnumCase<"Decode", 0, "decode">, I32EnumCase<"Mixed", 1, "mixed">, I32EnumCase<"Transition", 2, "transition">]>;

def Headrace_Phase : Headrace_Enum<"Phase", "how far an iteration is compiled", [
  I32EnumCase<"Model", 0, "model">, I32EnumCase<"Homes", 1, "homes">, I32EnumCase<"Movement", 2, "movement">,
  I32EnumCase<"Lanes", 3, "lanes">, I32EnumCase<"Offsets", 4, "offsets">]>;

def Headrace_MovableKind : Headrace_Enum<"MovableKind", "what a buffer is whose home may be off the device", [
  I32EnumCase<"Weight", 0, "weight">, I32EnumCase<"Kv", 1, "kv">, I32EnumCase<"Act", 2, "act">,
  I32EnumCase<"Residual", 3, "residual">]>;

def Headrace_Lane : Headrace_Enum<"Lane", "an in-order queue of work on a device", [
  I32EnumCase<"Compute", 0, "compute">, I32EnumCase<"H2D", 1, "h2d">, I32EnumCase<"D2H", 2, "d2h">,
  I32EnumCase<"Cpu", 3, "cpu">]>;

def Headrace_Part : Headrace_Enum<"Part", "part of the model that a step belongs to", [
  I32EnumCase<"Embedding", 0, "embedding">, I32EnumCase<"Attention", 1, "attention">, I32EnumCase<"Mlp", 2, "mlp">,
  I32EnumCase<"Head", 3, "head">, I32EnumCase<"Movement", 4, "movement">]>;

def Headrace_UnitRole : Headrace_Enum<"UnitRole", "which unit of placement a weight is", [
  I32EnumCase<"Embedding", 0, "embedding">, I32EnumCase<"Qkv", 1, "qkv">, I32EnumCase<"Out", 2, "out">,
  I32EnumCase<"Up", 3, "up">, I32EnumCase<"Down", 4, "down">, I32EnumCase<"Head", 5, "head">]>;

def Headrace_IoRole : Headrace_Enum<"IoRole", "a fixed buffer between host and device", [
  I32EnumCase<"Meta", 0, "meta">, I32EnumCase<"Sampled", 1, "sampled">, I32EnumCase<"Output", 2, "output">,
  I32EnumCase<"History", 3, "history">]>;

def Headrace_StagingRole : Headrace_Enum<"StagingRole", "what of the host slab steps of the cpu lane work on", [
  I32EnumCase<"Meta", 0, "meta">, I32EnumCase<"Qkv", 1, "qkv">, I32EnumCase<"Attended", 2, "attended">,
  I32EnumCase<"Scratch", 3, "scratch">]>;

def Headrace_KvPart : Headrace_Enum<"KvPart", "which blocks of a layer's KV cache", [
  I32EnumCase<"Cache", 0, "cache">, I32EnumCase<"Tail", 1, "tail">, I32EnumCase<"Mirror", 2, "mirror">]>;

def Headrace_Rows : Headrace_Enum<"Rows", "which count of the meta buffer says how many rows an op works on", [
  I32EnumCase<"Tokens", 0, "tokens">, I32EnumCase<"Sampled", 1, "sampled">]>;

def Headrace_Epilogue : Headrace_Enum<"Epilogue", "function applied to a linear op's output", [
  I32EnumCase<"None", 0, "none">, I32EnumCase<"Relu", 1, "relu">, I32EnumCase<"Gelu", 2, "gelu">,
  I32EnumCase<"GeluTanh", 3, "gelu_tanh">]>;

def Headrace_WaitKind : Headrace_Enum<"WaitKind", "why a step waits for another", [
  I32EnumCase<"Raw", 0, "raw">, I32EnumCase<"War", 1, "war">, I32EnumCase<"Waw", 2, "waw">,
  I32EnumCase<"Pacing", 3, "pacing">, I32EnumCase<"Program", 4, "program">]>;

def Headrace_WriteBack : Headrace_Enum<"WriteBack", "what an evict copies to the host", [
  I32EnumCase<"Dirty", 0, "dirty">, I32EnumCase<"All", 1, "all">]>;

//===----------------------------------------------------------------------===//
// Properties: plain structs of ir/Step.h, stored inline in the op.
//===----------------------------------------------------------------------===//

class Headrace_StructProp<string type, string summary> : Property<"::headrace::ir::" # type, summary> {
  let defaultValue = "::headrace::ir::" # type # "()";
  let hashProperty = "::headrace::ir::hashStruct($_storage)";
  let convertToAttribute = "return ::headrace::ir::structToAttribute($_ctxt, $_storage);";
  let convertFromAttribute = "return ::headrace::ir::structFromAttribute($_storage, $_attr, $_diag);";
  let writeToMlirBytecode = "::headrace::ir::writeStruct($_writer, $_storage);";
  let readFromMlirBytecode = [{
    if (::mlir::failed(::headrace::ir::readStruct($_reader, $_storage)))
      return ::mlir::failure();
  }];
}
def Headrace_StepProp : Headrace_StructProp<"StepInfo", "layer, part, lane, mini-batch, and amounts of resources">;
def Headrace_RangeProp : Headrace_StructProp<"ByteRange", "a run of bytes of a buffer">;
def Headrace_WorkspaceProp : Headrace_StructProp<"Workspace", "scratch of one step">;
// Byte offset into the arena of the buffer's space; kNoAddress before the offsets phase.
def Headrace_AddressProp : Headrace_StructProp<"Address", "byte offset into the arena or the host slab">;

#endif // HEADRACE_DIALECT_TD
