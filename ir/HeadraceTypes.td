// SPDX-License-Identifier: Apache-2.0
#ifndef HEADRACE_TYPES_TD
#define HEADRACE_TYPES_TD

include "ir/HeadraceDialect.td"
include "mlir/IR/AttrTypeBase.td"

class Headrace_Type<string name, string typeMnemonic> : TypeDef<Headrace_Dialect, name> {
  let mnemonic = typeMnemonic;
}

def Headrace_Buffer : Headrace_Type<"Buffer", "buffer"> {
  let summary = "a run of bytes in one memory space, with one encoding";
  let description = [{
    `!headrace.buffer<device, 4096, bf16>` lies on the device, is 4096 bytes long and holds bf16. The memory space is part of
    the type: compute ops take buffers on the device only, so a program that forgets a prefetch does not type-check.

    Ops print the types of their operands short: `<4096, bf16>` (on the device), `<host, 4096, bf16>`.

    `!headrace.buffer<device, 1024 of 4096, bf16>` is a place of 4096 bytes of which only the first 1024 are there yet (a
    unit whose copy was cut in two). No compute op takes it; a second prefetch completes it.

    An SSA value of this type is one version of the buffer's content: an op that updates a buffer in place takes the old
    version and gives the new one, and nothing may use the old one afterwards.
  }];
  let parameters = (ins "::headrace::ir::MemorySpace":$space, "uint64_t":$bytes, "uint64_t":$held,
                        "::headrace::ir::Encoding":$encoding);
  let builders = [TypeBuilder<(ins "::headrace::ir::MemorySpace":$space, "uint64_t":$bytes,
                                   "::headrace::ir::Encoding":$encoding), [{
    return $_get($_ctxt, space, bytes, bytes, encoding);
  }]>];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    // All of the buffer's bytes are there.
    bool isWhole() const { return getHeld() == getBytes(); }
    bool isOnDevice() const { return getSpace() == ::headrace::ir::MemorySpace::Device; }
    // As print, without the space where that is the device: how ops print their types.
    void printShort(::mlir::AsmPrinter &printer) const;
  }];
}

def Headrace_SlotType : Headrace_Type<"Slot", "slot"> {
  let summary = "a range of device memory that offloaded units take turns in";
  let parameters = (ins "uint64_t":$bytes);
  let assemblyFormat = "`<` $bytes `>`";
  let genVerifyDecl = 1;
}

def Headrace_Token : Headrace_Type<"Token", "token">, BuildableType<"$_builder.getType<::headrace::ir::TokenType>()"> {
  let summary = "completion of a movement step";
}

class Headrace_BufferOf<Pred pred, string summary>
    : Type<And<[CPred<"::llvm::isa<::headrace::ir::BufferType>($_self)">, pred]>, summary, "::headrace::ir::BufferType">;
class Headrace_BufferPred<string condition>
    : CPred<"::llvm::cast<::headrace::ir::BufferType>($_self)." # condition>;
defvar Headrace_OnDevice = Headrace_BufferPred<"getSpace() == ::headrace::ir::MemorySpace::Device">;
defvar Headrace_OnHost = Headrace_BufferPred<"getSpace() == ::headrace::ir::MemorySpace::Host">;
defvar Headrace_IsWhole = Headrace_BufferPred<"isWhole()">;

// What compute ops take.
def Headrace_DeviceBuffer : Headrace_BufferOf<And<[Headrace_OnDevice, Headrace_IsWhole]>, "whole buffer on the device">;
// What an op that is marked `direct` writes.
def Headrace_HostBuffer : Headrace_BufferOf<And<[Headrace_OnHost, Headrace_IsWhole]>, "whole buffer on the host">;
// What an op that may be marked `direct` takes.
def Headrace_DirectBuffer : Headrace_BufferOf<And<[Or<[Headrace_OnDevice, Headrace_OnHost]>, Headrace_IsWhole]>,
                                              "whole buffer on the device, or on the host for a direct step">;
// A device range that movement is at work on.
def Headrace_DeviceRange : Headrace_BufferOf<Headrace_OnDevice, "buffer on the device, whole or in part">;
def Headrace_AwayBuffer : Headrace_BufferOf<And<[Neg<Headrace_OnDevice>, Headrace_IsWhole]>, "whole buffer off the device">;
def Headrace_WholeBuffer : Headrace_BufferOf<Headrace_IsWhole, "whole buffer">;

#endif // HEADRACE_TYPES_TD
