// SPDX-License-Identifier: Apache-2.0
//
// The passes, in the order in which compiler/Pipeline runs them; each closes or prepares a phase (docs/ir.md).
#ifndef HEADRACE_PASSES_TD
#define HEADRACE_PASSES_TD

include "mlir/Pass/PassBase.td"

class Headrace_Pass<string name, string op> : Pass<"headrace-" # name, op> {
  let dependentDialects = ["::headrace::ir::HeadraceDialect"];
}
class Headrace_IterationPass<string name> : Headrace_Pass<name, "::headrace::ir::IterationOp">;

def Headrace_ResidencyOption
    : Option<"residency", "residency", "::headrace::algorithms::Residency", /*default=*/"",
             "what lives where and how the rest is brought: weights=0,4-7 start=eager slots=2 ... (Residency.h)">;

def ChooseHomes : Headrace_IterationPass<"choose-homes"> {
  let summary = "model -> homes: movables that the residency has away get their home on the host";
  let description = [{
    An offloaded embedding is read where it is: its op is marked direct. Everything else that reads a movable whose home is
    on the host reads `on_device` of it.

    A cache whose blocks from one on are away is split: `kv` keeps those before it, `kv tail` has the others, and the step
    that appends rows writes them there, too (direct), unless the class has its tails written back. Blocks that another
    placement has away are mirrored: `kv mirror`. An iteration in which no block of the tail may be in use (`kv(...)` in
    its limits) does not bring it. From block 0 on nothing is left on the device, and there is no `kv` but the tail.
  }];
  let options = [
    Headrace_ResidencyOption,
    Option<"kvBlocks", "kv-blocks", "int64_t", "0", "blocks that a cache has, the scratch block included; 0: none is split">,
    Option<"kvBlocksHere", "kv-blocks-here", "int64_t", "0", "of them so many are in this placement; 0: all">,
    Option<"kvBlockBytes", "kv-block-bytes", "uint64_t", "0", "of a layer's cache">,
    Option<"kvMirror", "kv-mirror", "int64_t", "-1",
           "the first block that is away in any placement: rows from there on are written to the host; below 0: none">,
    Option<"kvInterleaved", "kv-interleaved", "bool", "false",
           "blocks on the device lie with those of the same number of all other caches">];
}

def PriceDirect : Headrace_IterationPass<"price-direct"> {
  let summary = "homes: steps marked direct get the amounts of reading or writing over the link";
  let description = [{
    What is read directly crosses the link instead of device memory; rows that are appended to a mirrored cache cross it
    as well. The amounts are the cost model's (cost::workOf).
  }];
  let options = [
    Option<"deviceBytes", "device-bytes", "uint64_t", "0", "of the step that reads: still moved in device memory">,
    Option<"linkBytes", "link-bytes", "uint64_t", "0", "of the step that reads: over the link">,
    Option<"appendDeviceBytes", "append-device-bytes", "uint64_t", "0", "of a step that appends: in device memory">,
    Option<"appendLinkBytes", "append-link-bytes", "uint64_t", "0", "of a step that appends: over the link">,
    Option<"keepDeviceBytes", "keep-device-bytes", "uint64_t", "0", "of a step that keeps activations: device memory">,
    Option<"keepLinkBytes", "keep-link-bytes", "uint64_t", "0", "of a step that keeps activations: over the link">];
}

def InsertMovement : Headrace_IterationPass<"insert-movement"> {
  let summary = "homes -> movement: on_device becomes prefetch, wait and release, in slots or a ring";
  let description = [{
    Start `paper` (Select-N): layer by layer. A layer's copies are eligible when the first layer of its interval starts
    (for an interval of one when the layer before starts), its compute waits for all of them, its slot is given up when its
    last step has ended. Nothing crosses the iteration's edge.

    Start `ahead-N`: layer by layer too. A layer's copies are eligible when the offloaded layer N before it has ended,
    around the edge: the first N are there on entry, copied by the tail of the iteration before. N = 0: when the layer is
    next; nothing crosses the edge.

    Start `eager`: movable by movable. A copy is eligible as soon as its range is free, a step waits for what it reads.
    The iteration starts with what the cut of its class says, copied by the iteration before, and its tail copies the
    same for the next. A cache's tail that the class has written back is evicted in place of its release, and so is a
    residual stream behind each layer but the last; embed writes into a range that is claimed.

    Slots are as large as the items that take turns in them. With `ring` (start eager) there is one slot of at most that
    many bytes instead, a ring that movables of any size go through (passes/algorithms/AssignRing.h).

    Where tails cycle through places the iteration is one of a cycle, which starts with a tail in each place (carry),
    brings others into places that were given up, and leaves the places as the next of the cycle finds them (carry_out).
  }];
  let options = [
    Headrace_ResidencyOption,
    Option<"phase", "phase", "int64_t", "-1", "which of a cycle this is, from 0; -1: as the iteration says">];
}

def AssignLanes : Headrace_IterationPass<"assign-lanes"> {
  let summary = "every step gets its lane; the order of a lane is the order of the program";
}

def InsertWaits : Headrace_IterationPass<"insert-waits"> {
  let summary = "waits in program order become waits between lanes, one for each dependence (RAW, WAR, WAW, pacing)";
  let description = [{
    Inserts all that correctness needs; ElideWaits removes what is implied. A read of what a prefetch brought waits where
    the program waited for it; a copy into a range waits for the step before the range was given up.
  }];
}

def ElideWaits : Headrace_IterationPass<"elide-waits"> {
  let summary = "movement -> lanes: removes waits that lane order and other waits imply";
  let description = [{
    What remains is the transitive reduction: taking any one away loses an order. A pacing wait that a data dependence
    relies on takes that dependence's kind.
  }];
}

def PlaceOnHost : Headrace_IterationPass<"place-on-host"> {
  let summary = "lanes: what is at home on the host gets its address in the host slab";
  let description = [{
    The slab serves all placements of a plan, so the plan says where a unit lies in it, and where a layer's mirrored blocks
    begin. Without addresses all lie one behind the other.
  }];
  let options = [
    Option<"at", "at", "::headrace::algorithms::SlabAddresses", /*default=*/"",
           "what lies where: weight:1@0 kv:0.1@8192 ... (SlabAddresses.h)">,
    Option<"staging", "staging", "int64_t", "-1",
           "where the first of the cpu lane's ranges begins, the others behind it as they stand; below 0: behind all else">];
}

def PlaceBuffers : Headrace_Pass<"place-buffers", "::mlir::ModuleOp"> {
  let summary = "lanes -> offsets: addresses for everything, the iterations of a module sharing one arena";
  let description = [{
    The iterations of a module are those of one placement: what persists has the same address in all of them. Transients
    share bytes where their lives do not meet (passes/algorithms/LayOutArena.h).
  }];
}

def VerifyCycles : Headrace_Pass<"verify-cycles", "::mlir::ModuleOp"> {
  let summary = "from phase movement on: each iteration of a cycle finds what the one before it leaves";
  let description = [{
    Of the iterations of a module with a period above 1, those of a class are one cycle: each number once. What the
    slots hold on entry of a number is what they hold on exit of the number before, and the same in all classes, so
    that these may follow each other.
  }];
}

def VerifyPhase : Headrace_IterationPass<"verify-phase"> {
  let summary = "checks the rules of an iteration's phase and of those before it";
  let options = [
    Option<"phase", "phase", "std::string", "\"\"", "also require this phase: model, homes, movement, lanes or offsets">];
}

#endif // HEADRACE_PASSES_TD
