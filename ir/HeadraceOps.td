// SPDX-License-Identifier: Apache-2.0
//
//   headrace.iteration @decode decode phase(model) limits(8, 8, 2048) {
//     weight, kv, residual, io,     what exists before the first step           this file
//     staging, slot
//     carry, carry_out              what slots hold at the iteration's edges
//     claim                         a range of a slot for what a step makes there
//     on_device                     homes phase only: "some movement must bring this here"
//     prefetch, evict, stage        copies, asynchronous until waited for
//     wait, release                 order, and the end of a range's use
//     embed, norm, linear, ...      compute, one op for each kernel             HeadraceCompute.td
//   }
#ifndef HEADRACE_OPS_TD
#define HEADRACE_OPS_TD

include "ir/HeadraceTypes.td"
include "ir/HeadraceInterfaces.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/RegionKindInterface.td"
include "mlir/IR/SymbolInterfaces.td"

class Headrace_Op<string mnemonic, list<Trait> traits = []> : Op<Headrace_Dialect, mnemonic, traits>;

def Headrace_NameResults : DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>;
def Headrace_Persistent : DeclareOpInterfaceMethods<Headrace_PersistentInterface>;
def Headrace_Movable : DeclareOpInterfaceMethods<Headrace_MovableInterface>;

//===----------------------------------------------------------------------===//
// The container
//===----------------------------------------------------------------------===//

def Headrace_IterationOp : Headrace_Op<"iteration", [
    IsolatedFromAbove, NoTerminator, SingleBlock, Symbol, HasParent<"::mlir::ModuleOp">, NoRegionArguments]> {
  let summary = "one pass over all layers for the tokens of a batch, or a transition between two placements";
  let description = [{
    Straight-line: one block whose order is one in which the steps could run one by one. `limits` are what buffers were
    sized for: new tokens, sequences, tokens of context. `phase` says which passes have run; VerifyPhase checks the rules
    of that phase and of those before it. `arena` is the device memory in use, known in the offsets phase. `kv` are the KV
    blocks that may be in use where that is fewer than there are: no tail is brought behind them. `cycle(2 of 5)`: the
    iteration is number 2, from 0, of five that follow each other, each of which finds what the one before it leaves.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, EnumProp<Headrace_IterationClass>:$iteration_class, EnumProp<Headrace_Phase>:$phase,
                       I64Prop:$tokens, I64Prop:$sequences, I64Prop:$max_context,
                       DefaultValuedProp<I64Prop, "0">:$kv_blocks, DefaultValuedProp<I64Prop, "0">:$cycle_phase,
                       DefaultValuedProp<I64Prop, "1">:$period, DefaultValuedProp<I64Prop, "0">:$arena_bytes);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $sym_name $iteration_class `phase` `(` $phase `)`
    custom<Limits>($tokens, $sequences, $max_context, $kv_blocks, $cycle_phase, $period, $arena_bytes)
    attr-dict-with-keyword $body
  }];
  let skipDefaultBuilders = 1;
  let builders = [
    // The body gets its block, empty.
    OpBuilder<(ins "::llvm::StringRef":$name, "::headrace::ir::IterationClass":$iteration_class, "int64_t":$tokens,
                   "int64_t":$sequences, "int64_t":$context)>];
  let extraClassDeclaration = [{
    ::mlir::Block &block() { return getBody().front(); }
  }];
  let hasRegionVerifier = 1;
}

//===----------------------------------------------------------------------===//
// What exists before the first step
//===----------------------------------------------------------------------===//

def Headrace_WeightOp : Headrace_Op<"weight", [Headrace_NameResults, Headrace_Persistent, Headrace_Movable]> {
  let summary = "one unit of placement, at its home";
  let description = [{
    `unit` is the index in the model's weight layout; a unit holds a linear op's matrix with the vectors used beside it.
    The result's memory space is the unit's home; ChooseHomes decides it. The address is in the arena (device) or in the
    pinned slab (host).

        %layers.1.qkv = headrace.weight 5 "layers.1.qkv" qkv layer 1 : <host, 4096, bf16>
  }];
  let arguments = (ins I64Prop:$unit, StringProp:$name, EnumProp<Headrace_UnitRole>:$role,
                       DefaultValuedProp<I32Prop, "-1">:$layer,
                       DefaultValuedProp<Headrace_AddressProp, "::headrace::ir::Address()">:$at);
  let results = (outs Headrace_WholeBuffer:$buffer);
  let assemblyFormat = "$unit $name custom<RoleAt>($role, $layer, $at) attr-dict `:` custom<Types>(type($buffer))";
  let hasVerifier = 1;
}

def Headrace_KvOp : Headrace_Op<"kv", [Headrace_NameResults, Headrace_Persistent, Headrace_Movable]> {
  let summary = "one layer's KV cache, or blocks of it";
  let description = [{
    Whole, and on the device, until ChooseHomes splits it: then `cache` (which is not printed) are its first blocks, on the
    device, if any are; `tail` those behind them, at home on the host; `mirror` blocks of the cache that are kept current on
    the host as well, right in front of the tail. The mirror is written by the step that appends rows, the tail by that
    step or by what writes it back (evict).

    Each mini-batch has a cache of its own; `mini_batch(0)` is not printed.

    Where caches are split, or grow, those on the device lie block by block, all caches' blocks of a number together:
    `interleaved(4096 by 16384)` is one of four, block b of 4,096 bytes lying b x 16,384 behind the address.

        %kv.3 = headrace.kv 3 : <8192, f32>
        %kv.3.tail = headrace.kv 3 tail : <host, 16384, f32>
        %kv.3.1 = headrace.kv 3 mini_batch(1) : <8192, f32>
  }];
  let arguments = (ins I32Prop:$layer, DefaultValuedProp<I32Prop, "0">:$mini_batch, DefaultValuedProp<EnumProp<Headrace_KvPart>, "::headrace::ir::KvPart::Cache">:$part,
                       DefaultValuedProp<Headrace_AddressProp, "::headrace::ir::Address()">:$at,
                       DefaultValuedProp<I64Prop, "0">:$block_bytes, DefaultValuedProp<I64Prop, "0">:$stride);
  let results = (outs Headrace_WholeBuffer:$buffer);
  let assemblyFormat = [{
    custom<KvAt>($layer, $mini_batch, $part, $block_bytes, $stride, $at) attr-dict `:` custom<Types>(type($buffer))
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    bool isInterleaved() { return getStride() > 0; }
  }];
}

def Headrace_ActOp : Headrace_Op<"act", [Headrace_NameResults, Headrace_Persistent, Headrace_Movable]> {
  let summary = "one layer's activation blocks";
  let description = [{
    Of tokens that have a block here the norm's output is kept, from which rebuild_kv makes keys and values (HybridServe).
    Each mini-batch has its own; `mini_batch(0)` is not printed.

        %act.3 = headrace.act 3 : <8192, f32>
  }];
  let arguments = (ins I32Prop:$layer, DefaultValuedProp<I32Prop, "0">:$mini_batch,
                       DefaultValuedProp<Headrace_AddressProp, "::headrace::ir::Address()">:$at);
  let results = (outs Headrace_WholeBuffer:$buffer);
  let assemblyFormat = "custom<ActAt>($layer, $mini_batch, $at) attr-dict `:` custom<Types>(type($buffer))";
  let hasVerifier = 1;
}

def Headrace_ResidualOp : Headrace_Op<"residual", [Headrace_NameResults, Headrace_Persistent, Headrace_Movable]> {
  let summary = "the home of a mini-batch's residual stream, where that leaves the device between layers";
  let description = [{
    On the host. Holds nothing when the iteration begins; from then on what was last written back. Each step that writes
    the residual stream makes the buffer's content on the device, of which `written` of an evict is what is at home.

        %residual.1 = headrace.residual mini_batch(1) : <host, 65536, f32>
  }];
  let arguments = (ins DefaultValuedProp<I32Prop, "0">:$mini_batch,
                       DefaultValuedProp<Headrace_AddressProp, "::headrace::ir::Address()">:$at);
  let results = (outs Headrace_HostBuffer:$buffer);
  let assemblyFormat = "`` custom<MiniBatchAt>($mini_batch, $at) attr-dict `:` custom<Types>(type($buffer))";
  let hasVerifier = 1;
}

def Headrace_IoOp : Headrace_Op<"io", [Headrace_NameResults, Headrace_Persistent]> {
  let summary = "a fixed buffer between host and device: meta, sampled, output or history";
  let description = [{
    Meta and output are of all mini-batches: of meta a step reads what its own has. Of sampled and history each has its
    own. Those of a role are declared one behind the other, the first mini-batch's first: they are ranges of one buffer of
    the plan. `mini_batch(0)` is not printed.

        %meta = headrace.io meta : <8192, bytes>
        %sampled = headrace.io sampled : <256, bytes>
        %sampled.1 = headrace.io sampled mini_batch(1) : <256, bytes>
  }];
  let arguments = (ins EnumProp<Headrace_IoRole>:$role, DefaultValuedProp<I32Prop, "0">:$mini_batch,
                       DefaultValuedProp<Headrace_AddressProp, "::headrace::ir::Address()">:$at);
  let results = (outs Headrace_DeviceBuffer:$buffer);
  let assemblyFormat = "custom<IoAt>($role, $mini_batch, $at) attr-dict `:` custom<Types>(type($buffer))";
  let hasVerifier = 1;
}

def Headrace_StagingOp : Headrace_Op<"staging", [Headrace_NameResults, Headrace_Persistent]> {
  let summary = "a mini-batch's range of the host slab for steps of the cpu lane";
  let description = [{
    Holds nothing when the iteration begins. `meta` and `qkv` are what `stage` brings down, `attended` what attention on
    the CPU makes and fetch_rows brings up, `scratch` its workspace. Each layer has the same range in turn; `meta` is of
    all mini-batches.

        %staging.qkv = headrace.staging qkv : <host, 3072, f32>
        %staging.qkv.1 = headrace.staging qkv mini_batch(1) : <host, 3072, f32>
  }];
  let arguments = (ins EnumProp<Headrace_StagingRole>:$role, DefaultValuedProp<I32Prop, "0">:$mini_batch,
                       DefaultValuedProp<Headrace_AddressProp, "::headrace::ir::Address()">:$at);
  let results = (outs Headrace_HostBuffer:$buffer);
  let assemblyFormat = "custom<StagingAt>($role, $mini_batch, $at) attr-dict `:` custom<Types>(type($buffer))";
  let hasVerifier = 1;
}

def Headrace_SlotOp : Headrace_Op<"slot", [Headrace_NameResults, Headrace_Persistent]> {
  let summary = "a range of device memory that offloaded units take turns in";
  let arguments = (ins I32Prop:$index, DefaultValuedProp<Headrace_AddressProp, "::headrace::ir::Address()">:$at);
  let results = (outs Headrace_SlotType:$slot);
  let assemblyFormat = "custom<IndexAt>($index, $at) attr-dict `:` custom<Types>(type($slot))";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Movement
//===----------------------------------------------------------------------===//

def Headrace_OnDeviceOp : Headrace_Op<"on_device", [Headrace_NameResults]> {
  let summary = "homes phase: the content of a buffer whose home is elsewhere, on the device, however it gets there";
  let description = [{
    Keeps the program well typed between the choice of homes and the insertion of movement. Stands right before the first
    use; InsertMovement replaces it by carry, prefetch and wait.
  }];
  let arguments = (ins Headrace_AwayBuffer:$source);
  let results = (outs Headrace_DeviceBuffer:$result);
  let assemblyFormat = "$source attr-dict `:` custom<Types>(type($source)) `->` custom<Types>(type($result))";
  let hasVerifier = 1;
}

def Headrace_PrefetchOp : Headrace_Op<"prefetch", [
    Headrace_NameResults,
    DeclareOpInterfaceMethods<Headrace_StepInterface, ["resultAddress", "tiedOperand"]>]> {
  let summary = "copy bytes of a buffer from its home to the device";
  let description = [{
    Into a slot: `range` must begin at 0; the buffer's byte 0 lies `slot_offset` bytes into the slot.

        %w, %t = headrace.prefetch %layers.1.qkv[0 for 4096] into %slot.0[8192] step<movement 1> : ...

    Onto a part that is there already: `range` must begin where that part ends; the result is the longer part, or the whole.

        %w, %t = headrace.prefetch %layers.1.qkv[1024 for 3072] onto %part step<movement 1> : ...

    The range belongs to the buffer from here on; the bytes may be read once `token` has been waited for.
  }];
  let arguments = (ins Headrace_AwayBuffer:$source, AnyTypeOf<[Headrace_SlotType, Headrace_DeviceRange]>:$destination,
                       Headrace_RangeProp:$range, DefaultValuedProp<I64Prop, "0">:$slot_offset, Headrace_StepProp:$step);
  let results = (outs Headrace_DeviceRange:$result, Headrace_Token:$token);
  let assemblyFormat = [{
    $source `` custom<Range>($range) custom<Destination>($destination, $slot_offset) custom<Step>($step)
    attr-dict `:` custom<Types>(type($source), type($destination)) `->` custom<Types>(type($result))
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::headrace::ir::BufferType bufferType() { return ::llvm::cast<::headrace::ir::BufferType>(getResult().getType()); }
    // The slot it lies in, through earlier parts; and where the buffer's byte 0 is in that slot.
    ::headrace::ir::SlotOp slot();
    uint64_t offsetInSlot();
  }];
}

def Headrace_CarryOp : Headrace_Op<"carry", [Headrace_NameResults]> {
  let summary = "what a slot holds on entry: a prefix of a buffer, copied by the iteration before";
  let description = [{
    `dirty`: the iteration before has written it (a cache's tail) and not written it back: its home may be behind.

        %t = headrace.carry %kv.3.tail[0 for 4096] in %slot.1[0] dirty : ...
  }];
  let arguments = (ins Headrace_AwayBuffer:$source, Headrace_SlotType:$slot, Headrace_RangeProp:$range, I64Prop:$slot_offset,
                       DefaultValuedProp<BoolProp, "false">:$dirty);
  let results = (outs Headrace_DeviceRange:$result);
  let assemblyFormat = [{
    $source `` custom<Range>($range) `in` $slot `` `[` $slot_offset `]` `` custom<Dirty>($dirty)
    attr-dict `:` custom<Types>(type($source), type($slot)) `->` custom<Types>(type($result))
  }];
  let hasVerifier = 1;
}

def Headrace_ClaimOp : Headrace_Op<"claim", [Headrace_NameResults]> {
  let summary = "a range of a slot for what the next step writes whole: nothing is brought";
  let description = [{
    The range belongs to the buffer from here on; the step that writes it waits until what was there is done with.

        %d = headrace.claim %residual in %slot.1[0] : <host, 65536, f32>, slot<65536> -> <65536, f32>
  }];
  let arguments = (ins Headrace_AwayBuffer:$source, Headrace_SlotType:$slot, I64Prop:$slot_offset);
  let results = (outs Headrace_DeviceBuffer:$result);
  let assemblyFormat = [{
    $source `in` $slot `` `[` $slot_offset `]` attr-dict
    `:` custom<Types>(type($source), type($slot)) `->` custom<Types>(type($result))
  }];
  let hasVerifier = 1;
}

def Headrace_CarryOutOp : Headrace_Op<"carry_out"> {
  let summary = "what a slot holds on exit: the buffer's copy may still be under way, and ends before the iteration does";
  let description = [{
    `dirty`: its home may be behind it. What follows carries it as dirty, and writes it back before it gives it up.
  }];
  let arguments = (ins Headrace_DeviceRange:$buffer, DefaultValuedProp<BoolProp, "false">:$dirty);
  let assemblyFormat = "$buffer `` custom<Dirty>($dirty) attr-dict `:` custom<Types>(type($buffer))";
  let hasVerifier = 1;
}

def Headrace_ReleaseOp : Headrace_Op<"release"> {
  let summary = "gives a device range up without writing anything back (evict, write-back none)";
  let description = [{
    No use of the buffer may follow. A later prefetch may overwrite the range once the last reader has ended.
  }];
  let arguments = (ins Headrace_DeviceRange:$buffer);
  let assemblyFormat = "$buffer attr-dict `:` custom<Types>(type($buffer))";
  let hasVerifier = 1;
}

def Headrace_EvictOp : Headrace_Op<"evict", [
    Headrace_NameResults, AllTypesMatch<["home", "written"]>,
    DeclareOpInterfaceMethods<Headrace_StepInterface, ["tiedOperand"]>]> {
  let summary = "copy bytes of a device range back to the buffer's home, and give the range up";
  let description = [{
    `all`: the whole buffer. `dirty`: `range`, where all lies that this iteration has written of it; a `resizable` one does
    of that, at a launch, the run from the first to the last block that was. `written` is the home's next version, which
    a later prefetch brings. The device range is free once `token` has been waited for; `keeping`: it is not given up, the
    buffer stays there as well.

        %h, %t = headrace.evict dirty %d[0 for 4096] to %kv.3.tail step<movement 3, resizable> : ...
        %h, %t = headrace.evict all keeping %d[0 for 4096] to %kv.3.tail step<movement 3> : ...
  }];
  let arguments = (ins Headrace_DeviceBuffer:$buffer, Headrace_AwayBuffer:$home, Headrace_RangeProp:$range,
                       EnumProp<Headrace_WriteBack>:$write_back, DefaultValuedProp<BoolProp, "false">:$keeping,
                       Headrace_StepProp:$step);
  let results = (outs Headrace_AwayBuffer:$written, Headrace_Token:$token);
  let assemblyFormat = [{
    $write_back custom<Keeping>($keeping) $buffer `` custom<Range>($range) `to` $home custom<Step>($step)
    attr-dict `:` custom<Types>(type($buffer), type($home))
  }];
  let hasVerifier = 1;
}

def Headrace_StageOp : Headrace_Op<"stage", [
    Headrace_NameResults, AllTypesMatch<["staging", "staged"]>,
    DeclareOpInterfaceMethods<Headrace_StepInterface, ["tiedOperand"]>]> {
  let summary = "copy a buffer down to where steps of the cpu lane find it";
  let description = [{
    Rows that the device has made, of which a `resizable` one does the launch's, or the iteration buffer.

        %down = headrace.stage %qkv into %staging.qkv step<movement 1, resizable, lane d2h> : <3072, f32>, <host, 3072, f32>
  }];
  let arguments = (ins Headrace_DeviceBuffer:$buffer, Headrace_HostBuffer:$staging, Headrace_StepProp:$step);
  let results = (outs Headrace_HostBuffer:$staged);
  let assemblyFormat = [{
    $buffer `into` $staging custom<Step>($step) attr-dict `:` custom<Types>(type($buffer), type($staging))
  }];
  let hasVerifier = 1;
}

def Headrace_WaitOp : Headrace_Op<"wait"> {
  let summary = "later steps start after a step has ended";
  let description = [{
    `event` is what the awaited step defines: a movement step's token, or the buffer that a compute step wrote.

        headrace.wait %t                   movement phase: nothing that follows starts before
        headrace.wait raw %t on compute    lanes phase: the compute lane's steps that follow do not

    In the lanes phase a wait names why (raw, war, waw, pacing) and stands before the step of the lane that needs it;
    order within a lane needs no wait.
  }];
  let arguments = (ins AnyTypeOf<[Headrace_Token, Headrace_WholeBuffer]>:$event,
                       DefaultValuedProp<EnumProp<Headrace_WaitKind>, "::headrace::ir::WaitKind::Program">:$kind,
                       DefaultValuedProp<EnumProp<Headrace_Lane>, "::headrace::ir::Lane::Compute">:$lane);
  let assemblyFormat = "custom<Wait>($event, $kind, $lane) attr-dict `:` custom<Types>(type($event))";
  let hasVerifier = 1;
}

include "ir/HeadraceCompute.td"

#endif // HEADRACE_OPS_TD
