// SPDX-License-Identifier: Apache-2.0
//
// Plans for tests, put together by hand: a small model, chosen layers offloaded, copies where the rule has them. Plain
// and slow on purpose; shares no code with the compiler or the verifier.
//
//   arena   | kv.0 .. | act.0 .. | meta sampled output | x h qkv attn up act rows rowsNormed logits workspace | weights
//   | slots |
//   slab    | weights | residuals | act.0 .. | meta, qkv attn workspace of the cpu lane |
#pragma once

#include <set>
#include <string>
#include <vector>

#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::plan::test {

// How the home of a tail is kept current (plan contract): by the append itself, or by a copy that follows it, of what
// is in use, of what was written, or of all that there is.
enum class KeepHome : uint8_t { Mirror, EvictAll, EvictDirty, EvictFixed };

// The limits of one schedule, and where wrap-around is cut: the first `cutUnits` offloaded units, in order of use, and
// the first `cutBytes` of the one behind them are on the device when an iteration starts. (Paper: nothing is.)
struct LimitOptions {
  IterationClass iterationClass = IterationClass::Decode;
  int64_t tokens = 4, sequences = 2, context = 16;
  int cutUnits = 0;
  uint64_t cutBytes = 0;
  std::vector<int64_t> buckets = {4}; // new tokens of the variants made from it, ascending
  bool withoutTail = false;           // nothing of a split cache is brought
  bool noCycle = false;               // beside one that is: it leaves the state that it is entered with
  KeepHome keepHome = KeepHome::Mirror;
  bool mirrorsEven = false; // of layers 0, 2, .. the append writes the home nevertheless
  int evictAfter = 0;       // how many compute steps behind its append an evict may start at the soonest
  // Append and attention are the cpu lane's, and no tail is brought: of placements that have no block on the device.
  bool attendsOnCpu = false;
  bool copiesAllRows = false; // of such: copies down are of one size
};

struct PlacementOptions {
  std::string name = "test";
  std::vector<int64_t> layers; // offloaded
  model::StartRule rule = model::StartRule::Eager;
  bool offloadEmbedding = false; // read in place; needs a model whose head is not tied
  bool offloadHead = false;      // in a slot of its own
  bool logitsInSlot = false;     // paper: the logits take the bytes of the first slot
  std::vector<LimitOptions> limits = {LimitOptions{}};
  // Of a plan whose caches are interleaved. The tails, blocks [blocksOnDevice, kvBlocks) of each layer, take turns in
  // ring slots of their own.
  int64_t blocksOnDevice = 0; // on the device; 0: all
  bool allBlocksAway = false; // none on the device
  int64_t kvBlocks = 0;       // 0: as many as the limits need
  int ringSlots = 1;
  // When an iteration starts the tails of the first layers are on the device: at most one a slot; of the last of them
  // `cutBlocks` blocks, if not 0.
  int carriedTails = 0;
  int64_t cutBlocks = 0;
  bool tailsInParts = false; // two copies bring a tail, and two write it back
  bool resizable = true;
  // Its schedules with tails are cycles of so many: layer l's tail is in ring slot (phase x layers + l) % ringSlots.
  uint32_t period = 1;
  // Tails stay in the ring's slots over iterations, and the one that was used last makes room for the one that is
  // missing when it is two layers away. Cycles are as long as it takes until all is as before; `period` says nothing.
  // What is written back as a whole is so when it makes room. All classes keep homes alike.
  bool cycles = false;
  // Of such: the last slot is empty at first, and what is brought goes to the one that is, while what was used last
  // goes home from its own. At least three slots.
  bool spare = false;
  // The tails of the last layers are written back by the next iteration, before all else; those that are carried as
  // well stay where they are, and are written back by transitions alone.
  int dirtyTails = 0;
  // Of a plan whose residuals leave: how many slots they take turns in, one a layer and mini-batch, and whether one
  // stays where it is until its slot is wanted. LimitOptions::evictAfter and `resizable` are of them, too.
  int residualSlots = 1;
  bool residualsStay = false;
};

// Activation blocks. Beside them all placements have as many KV blocks as sequences then need.
struct ActOptions {
  model::ActRatio share;      // of a sequence's blocks; none: there are no activation blocks
  int64_t contextBlocks = 0;  // that may be in use; 0: as many as the longest sequences have
  int64_t spare = 0;          // activation blocks beyond those that these need
  bool rebuildsFirst = false; // rebuild_kv comes before the layer's norm; else right before its append
  bool keepsLate = false;     // act_append comes behind rope_append; else right behind the norm
  // Each layer's keys and values are made in the next of so many ranges; 0: in one transient for all layers.
  int ranges = 1;
  // Those of these layers are at home on the host; each mini-batch's are brought to the next of so many slots.
  std::vector<int64_t> onHost = {};
  int slots = 2;
};

struct PlanOptions {
  model::ModelSpec model;
  std::vector<PlacementOptions> placements;
  // A unit has one home address in all placements, slots lie where a placement has no homes, and transitions lead from
  // each placement to each other that has more at home.
  bool switches = false;
  // The caches are interleaved, and may be split:
  //
  //   arena   | meta sampled output | x h ... workspace | blocks of all layers | weights |
  //   slab    | weights | home of kv.0 | kv.1 | ..
  //
  // Slots lie where a placement leaves room. Of the units behind the blocks, those come first which the placement with
  // the most blocks offloads.
  bool interleaved = false;
  bool lastLayerFirst = false; // in the run of blocks of one number
  int64_t blockTokens = 16;
  // Each layer is passed for so many. Where tails are spoken of by layer, it is by cache: layer by layer, in it
  // mini-batch by mini-batch.
  uint32_t miniBatches = 1;
  // The residual stream of each leaves the device between layers, or may. A mini-batch's first layer follows its
  // embedding at once, its head its last layer; their homes are behind all others in the slab, their slots in the
  // arena. A stage has homes and slots in any case; its stream stays where there is a slot for each mini-batch and
  // PlacementOptions::residualsStay.
  bool residualsLeave = false;
  ActOptions acts = {};
  model::Encoding kvEncoding = {}; // of the caches' rows
};

// A decoder of `layers` layers, 32 wide: Llama's ops (RMSNorm, gated MLP, rotary positions, no biases).
model::ModelSpec tinyLlama(int64_t layers);
// OPT's ops: LayerNorm, learned positions, ReLU, biases.
model::ModelSpec tinyOpt(int64_t layers);
// The same as tinyLlama, with norms of q's and k's heads.
model::ModelSpec tinyQwen3(int64_t layers);

Plan makePlan(const PlanOptions &options);

// A spread of small plans that between them have: one and two slots, three where two do not go round, both rules, a cut
// inside a unit, a cut at a unit's edge, none, direct embedding, offloaded head, transients in a slot, two classes with
// different cuts and transitions between them, two placements, three with transitions between them, two families.
struct NamedOptions {
  std::string name;
  PlanOptions options;
};
std::vector<NamedOptions> variedPlans();
// Those, and some of those below, of a wider model whose weights are packed: all alike, and by role; every second one
// has packed caches as well.
std::vector<NamedOptions> packedPlans();

// Plans whose caches are interleaved: all blocks on the device, all but scratch away, between; rings of one to three
// slots, a slot for each tail, one to spare; carried tails, whole and in part; beside weights of both rules; schedules
// without the tail; placements with different splits and transitions between them, with different numbers of blocks.
std::vector<NamedOptions> splitPlans();

// Plans whose tails are written back by copies; whose schedules form cycles; whose caches have no block on the device.
std::vector<NamedOptions> writeBackPlans();
// Plans of two to four mini-batches: whole caches and split ones, weights away, both ways back, cycles, several
// placements.
std::vector<NamedOptions> miniBatchPlans();
// Plans whose residuals leave: one to four mini-batches, one to three slots, of all that the others have.
std::vector<NamedOptions> residualPlans();
// Plans with activation blocks: one and two mini-batches, weights away, residuals that leave, several placements.
std::vector<NamedOptions> actPlans();
// Plans that attend in the cpu lane: one to four mini-batches, all families, beside prefill that brings tails, weights
// away, residuals that leave.
std::vector<NamedOptions> cpuPlans();
NamedOptions randomCpuPlan(uint64_t seed);
// Stages, first, middle and last ones, of one to three mini-batches: whose stream stays or leaves, with all that the
// others have.
std::vector<NamedOptions> stagePlans();
NamedOptions randomStagePlan(uint64_t seed);
// Any of these forms, by chance; residuals in one mini-batch to four.
NamedOptions randomSplitPlan(uint64_t seed);
NamedOptions randomResidualPlan(uint64_t seed);
NamedOptions randomActPlan(uint64_t seed);

// Passed for so many; rings and cycles are as much longer.
NamedOptions withMiniBatches(NamedOptions named, uint32_t count);
// Plans whose activation blocks are at home on the host, of all layers or of some: beside caches that are whole and
// split ones, with all that these have.
std::vector<NamedOptions> hostActPlans();
NamedOptions randomHostActPlan(uint64_t seed);
// What of that a plan has, of these: "of all layers", "of some layers", "one slot", "two slots", "three slots",
// "sized copies", "copies of one size", "brought before its rows are kept", "brought behind its rows", "several
// mini-batches", "caches that are whole", "tails", "tails that copies write back", "tails ahead of their homes",
// "cycles", "residuals leave", "weights away", "several placements".
std::set<std::string> partsOfHostActs(const Plan &plan);

// What of activation blocks a plan has, of these: "one mini-batch", "several mini-batches", "rebuilt from a slot",
// "rebuilt with a bias", "rebuilt with norms of heads", "rebuilt before the norm", "rebuilt before the
// append", "kept before the append", "kept behind the append", "one transient for all layers", "a transient a layer",
// "no KV block but scratch", "both kinds of blocks", "fewer blocks than the longest sequences have", "blocks to spare",
// "residuals leave", "several placements", "two classes".
std::set<std::string> partsOfActs(const Plan &plan);

// What of split caches a plan has, of these: "interleaved home", "home on the host", "copy to interleaved blocks",
// "resizable copy", "tail operand", "home operand", "direct append", "carried tail", "schedule without the tail",
// "evict all", "evict dirty", "evict of one size", "evict beside a mirror", "dirty state", "flush", "cycle", "no block
// on the device", "weights away".
std::set<std::string> partsOfSplit(const Plan &plan);

// Of variedPlans() the three placements with transitions between them, with interleaved caches; the third has one block
// more, where layer 0 has its home in the first.
PlanOptions growingCaches();

} // namespace headrace::plan::test
