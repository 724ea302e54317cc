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

def ChooseHomes : Headrace_IterationPass<"choose-homes"> {
  let summary = "model -> homes: units that are offloaded get their home on the host";
  let description = [{
    The four units of each layer in `layers`, single `units` by their number, the embedding and the head. An offloaded
    embedding is read where it is: its op is marked direct. Everything else that reads an offloaded unit reads `on_device` of it.
  }];
  let options = [
    ListOption<"layers", "layers", "int64_t", "decoder layers to offload, from 0">,
    ListOption<"units", "units", "int64_t", "units to offload, by their number, beside those of the layers">,
    Option<"embedding", "embedding", "bool", "false", "offload the embedding">,
    Option<"head", "head", "bool", "false", "offload the head">];
}

def InsertMovement : Headrace_IterationPass<"insert-movement"> {
  let summary = "homes -> movement: on_device becomes prefetch, wait and release, in slots";
  let description = [{
    Rule `paper` (Select-N): layer by layer. A layer's copies are eligible when the first layer of its interval starts (for
    an interval of one when the layer before starts), its compute waits for all of them, its slot is given up when its last
    step has ended. Nothing crosses the iteration's edge.

    Rule `eager`: unit by unit. A copy is eligible as soon as its range is free, a step waits for the units it reads. The
    iteration starts with `wrap-units` whole units and `wrap-bytes` of the one after them in their slots, copied by the
    iteration before, and its tail copies the same for the next.

    Slots are as large as the layers that take turns in them. With `ring-bytes` (rule eager) there is one slot of at most
    that many bytes instead, a ring that units of any size go through (passes/algorithms/AssignRing.h).
  }];
  let options = [
    Option<"slots", "slots", "int64_t", "0",
           "layer-sized slots; 0: what the rule asks for (paper 1, or 2 where neighbours are offloaded; eager 2)">,
    Option<"ringBytes", "ring-bytes", "int64_t", "0",
           "eager: one ring of at most so many bytes instead of layer-sized slots; 0: none">,
    Option<"wrapUnits", "wrap-units", "int64_t", "0", "eager: whole units that the iteration before has copied">,
    Option<"wrapBytes", "wrap-bytes", "int64_t", "0", "eager: bytes of the next unit that it has copied">];
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

def PlaceBuffers : Headrace_Pass<"place-buffers", "::mlir::ModuleOp"> {
  let summary = "lanes -> offsets: addresses for everything, the iterations of a module sharing one arena";
  let description = [{
    The iterations of a module are those of one placement: what persists has the same address in all of them. Transients
    share bytes where their lives do not meet (passes/algorithms/LayOutArena.h).
  }];
  let options = [
    Option<"kvAlign", "kv-align", "int64_t", "256",
           "KV caches begin and end at multiples of this: whole pages where they are to grow">];
}

def VerifyPhase : Headrace_IterationPass<"verify-phase"> {
  let summary = "checks the rules of an iteration's phase and of those before it";
  let options = [
    Option<"phase", "phase", "std::string", "\"\"", "also require this phase: model, homes, movement, lanes or offsets">];
}

#endif // HEADRACE_PASSES_TD
