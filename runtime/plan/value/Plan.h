// SPDX-License-Identifier: Apache-2.0
//
// The executable plan: everything a device needs to run a model under a memory budget, and everything a reader needs to
// see why it looks like it does. Plain values; PlanFile.h reads and writes them (FlatBuffers), PlanVerifier.h proves
// the movement rules from them with code of its own.
//
//   Plan
//    |- model, hardware, goal, reason         the inputs that produced it, and the numbers that decided
//    |- buffers      weights (one a unit), KV cache (one a layer), io ..., in any order: they outlive an iteration
//    |- placements   where each buffer's extents live between iterations (their home)
//    |- states       what slots hold at the edge of an iteration
//    |- schedules    steps, operands, edges, transient buffers: one per placement and iteration class
//    |- variants     (bucket, placement) -> schedule + durations: what the runtime picks from each iteration
//    '- transitions  schedules that turn one state into another
//
// Addresses are byte offsets into one arena a device (Space::Device) or into the pinned host slab (Space::Host). All
// addresses and buffer sizes are multiples of model::kAlign, but for blocks of a cache that lie apart: there the first
// byte of all caches on the device, of each one's home on the host and of what steps use of it is. Ranges are half
// open.
//
// Time is in integer nanoseconds, so that the same input gives the same plan, byte for byte.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/IterationMeta.h"
#include "kernels/Types.h"
#include "runtime/base/Boxed.h"
#include "runtime/job/Hardware.h"
#include "runtime/job/JobFile.h"
#include "runtime/plan/value/Lane.h"

namespace headrace::model {
struct ModelSpec;
}

namespace headrace::plan {

inline constexpr uint32_t kFormatVersion = 8;
inline constexpr uint32_t kNone = 0xffffffffu;
inline constexpr uint64_t kNowhere = ~uint64_t{0}; // an address of what has no range in a space

enum class Space : uint8_t { Device = 0, Host = 1 };

enum class BufferKind : uint8_t {
  Weight = 0,     // one unit of placement
  Kv = 1,         // one layer's KV cache, of one mini-batch: blocks x 2 x kvHeads x blockTokens x headDim
  Io = 2,         // meta, sampled, output, history: see Io
  Activation = 3, // transient
  Workspace = 4,  // transient scratch of one step
  // One layer's activation blocks (HybridServe), of one mini-batch: actBlocks x blockTokens x hidden, what K and V are
  // made from in place of them
  Act = 5,
  // The residual stream of one mini-batch where it leaves the device between layers, or comes from another stage or
  // goes to one: at home on the host, float [maxTokens, hidden] of Plan::metaLayout. It holds nothing at the edge of an
  // iteration, but see Plan::receives().
  Residual = 6
};
// Activations and workspaces are a schedule's own (Schedule::locals), all others the plan's (Plan::buffers).
constexpr bool isTransient(BufferKind kind) { return kind == BufferKind::Activation || kind == BufferKind::Workspace; }
const char *bufferKindName(BufferKind kind); // "weight", "kv", "io", ...

enum class Io : uint8_t {
  // Of Sampled and History each mini-batch has a range, one behind the other (Plan::ioRangeBytes()), of at least what
  // is
  // said here. Of Meta a mini-batch's steps use what lies from its header on (kernels::metaFixedBytes() apart): its
  // arrays, and behind all of those its block table.
  Meta = 0,    // the iteration buffer: kernels::IterationMeta of each mini-batch
  Sampled = 1, // int32 [maxSequences]: what each request slot sampled last
  Output = 2,  // int32 [miniBatches x maxSequences]: an iteration's tokens, see IterationMeta::firstOutput
  // int32 [kvBlocks + actBlocks, blockTokens]: the id of the token whose key and value are there in a cache, or whose
  // activations
  History = 3
};

struct Buffer {
  std::string name; // "layers.3.qkv", "kv.3", "meta", "x"
  BufferKind kind = BufferKind::Activation;
  int32_t layer = -1;
  uint64_t bytes = 0;
  // Of a weight the unit in model::WeightLayout, of io its Io, of kv, of act, of residuals and of transients the
  // mini-batch; of others a number. No two buffers of a plan have the same kind, layer and index; of weights, not the
  // same index.
  uint32_t index = 0;
};

// A run of bytes of a buffer with one place. How they are encoded the model and Plan::kvEncoding say.
struct Extent {
  uint32_t buffer = 0; // index into Plan::buffers
  Space space = Space::Device;
  bool direct = false; // Host only: steps marked direct use it in place, over the link
  uint64_t bufferOffset = 0;
  uint64_t bytes = 0;
  uint64_t address = 0;
  bool interleaved = false; // of a cache, on the device: see kvStride()
};

// A range of device memory that offloaded units take turns in.
struct Slot {
  uint64_t address = 0;
  uint64_t bytes = 0;
};

struct Placement {
  std::string name;     // "none", "interval 4", "layers 10"
  int32_t interval = 0; // 0: not an interval; else of every `interval` layers the last is offloaded
  model::StartRule startRule = model::StartRule::Eager;
  int32_t startItems = 0; // of rule ahead: how many items ahead a copy may start
  // Sorted by (buffer, bufferOffset); they tile every buffer of Plan::buffers exactly once, each in one extent, but for
  // caches that are split. A cache is one extent on the device, or, in all placements of a plan, split by block number:
  // its first blocks, if there are any, interleaved on the device, as many of each layer; the others up to kvBlocks, if
  // there are any, the tail, on the host, direct and as one run. Where none is on the device the scratch block is of
  // the tail as well. Activation blocks are one run a layer, at the same place in all placements: on the device, or
  // direct on the host. Residuals are whole on the host, not direct, at the same address in all placements.
  std::vector<Extent> extents;
  std::vector<Slot> slots; // do not overlap device extents; may overlap transients whose life is elsewhere
  // KV blocks that may be in use, a layer, the scratch block 0 included: those below this number.
  int64_t kvBlocks = 0;
};

// "paper", "eager", "ahead 2".
std::string startText(const Placement &placement);

// Part of a weight or of a cache's tail (never of a residual) that a device range holds, beyond its home, at the edge
// of an iteration.
struct Content {
  uint32_t buffer = 0;
  uint64_t bufferOffset = 0;
  uint64_t bytes = 0;
  uint64_t address = 0;
  // Of a tail: its home on the host may be behind what is here, which is so written back before it is given up.
  bool dirty = false;
};
// What slots hold on entry or on exit; each content lies in one slot. A variant may be launched when the device's state
// contains all of its entry state (more does no harm); afterwards the state is its exit state. State 0 is the empty
// one. Of a state with a dirty content nothing is dropped: what follows it has it as its entry state.
struct State {
  uint32_t placement = 0;
  std::vector<Content> contents; // sorted by address, no overlaps
};

enum class StepKind : uint8_t {
  Compute = 0, // a kernel: Step::op
  Copy = 1,    // operand 0 is read, operand 1 written, the same bytes: prefetch (H2D) or evict with write-back (D2H)
  Publish = 2  // sampled tokens, or the rows that a stage sends, and the iteration's number become visible to the host
};

// Part of the model a step belongs to, for grouping in timelines.
enum class Part : uint8_t { Embedding = 0, Attention = 1, Mlp = 2, Head = 3, Movement = 4 };

struct Step {
  StepKind kind = StepKind::Compute;
  Lane lane = Lane::Compute;
  kernels::Op op{}; // Compute only
  Part part = Part::Embedding;
  int32_t layer = -1;
  uint8_t miniBatch = 0; // whose rows it works on, whose cache it copies; 0 where it is no one's
  bool direct = false;   // of a lane of kernels: reads or writes the host's memory over the link
  // A copy of which a launch may do only what is in use (KV, ACT blocks, rows of a residual or a transient):
  // core::InUse.
  bool resizable = false;
  // Of a resizable copy to the host: a launch may do only the run from the lowest to the highest block that its own
  // rows are written to (evict dirty); else the blocks in use from the copy's first on (evict all).
  bool dirtyOnly = false;
  uint32_t firstOperand = 0; // into Schedule::operands
  uint32_t operandCount = 0;
  // Resources at the schedule's limits; a variant's own are in its durations.
  uint64_t flops = 0;
  uint64_t deviceBytes = 0; // device memory read and written
  uint64_t linkBytes = 0;   // over the link in the lane's direction (direct: in that of directToHost())
};

enum class Access : uint8_t { Read = 0, Write = 1, ReadWrite = 2 };

// What an operand is to its op; core/BindStep.cpp maps these to the fields of kernels/Kernels.h.
enum class Arg : uint8_t {
  Source = 0,
  Destination = 1, // Copy
  Meta = 2,
  X = 3,
  Y = 4,
  Weight = 5,
  Bias = 6,
  NormWeights = 7,
  Residual = 8,
  Kv = 9,
  Table = 10,
  Positions = 11,
  Sampled = 12,
  Output = 13,
  Workspace = 14,
  // A layer's cache that is split: the device's copy of the blocks at home on the host; and where in the slab appended
  // rows are written as well (blocks that are mirrored). Kv is then its blocks at home on the device; there is no such
  // operand where it has none.
  KvTail = 15,
  KvHome = 16,
  History = 17,
  Act = 18,      // a layer's activation blocks
  KvRebuilt = 19 // their keys and values: what rebuild_kv has made in this iteration
};
const char *argName(Arg arg); // "source", "destination", "meta", ...

// The operands of a step: at most one of each Arg, in any order; but the publish of a stage that sends has a Residual
// of each mini-batch. Which an op has, and of what size, is what VerifySizes.cpp says and checks.

// The bytes [bufferOffset, bufferOffset + bytes) of a buffer, which this step finds (or leaves) at `address`.
// Buffers: below Plan::buffers.size() a persistent one, from there on Schedule::locals.
struct Operand {
  uint32_t buffer = 0;
  Space space = Space::Device;
  Access access = Access::Read;
  Arg arg = Arg::X;
  uint64_t bufferOffset = 0;
  uint64_t bytes = 0;
  uint64_t address = 0;
  bool interleaved = false; // its blocks lie as those of an interleaved extent
};

// Raw, War, Waw: a data edge, needed by an access of `to` (or of a step after it) to bytes that `from` (or a step
// before it) wrote or read. Pacing: only delays `to`.
enum class EdgeKind : uint8_t { Raw = 0, War = 1, Waw = 2, Pacing = 3 };
// `to` starts after `from` has ended. Only between lanes: in one lane the order of steps says it. from < to.
struct Edge {
  uint32_t from = 0;
  uint32_t to = 0;
  EdgeKind kind = EdgeKind::Raw;
};

// A transient buffer of one schedule: in the arena, in the host slab for steps of the cpu lane, or in both (rows that
// pass between the two). Of each range it has its own bytes from the first step that touches them there to the last.
//
//   compute   | qkv |                          | fetch_rows | out |
//   d2h             | rows of qkv |            ^ attended, from the slab, over the link
//   cpu                           | rope_append | attention |
struct Local {
  Buffer buffer;
  uint64_t address = kNowhere;     // on the device
  uint64_t hostAddress = kNowhere; // in the slab
  uint64_t in(Space space) const { return space == Space::Host ? hostAddress : address; }
  bool staged() const { return address != kNowhere && hostAddress != kNowhere; }
};

// What an iteration may be: only one row a sequence, any mix, or no compute at all.
enum class IterationClass : uint8_t { Decode = 0, Mixed = 1, Transition = 2 };

// Several schedules of one class may follow each other in a cycle, each entered with what the one before it leaves:
// what a slot holds then moves on from iteration to iteration, and comes back after `period` of them.
inline constexpr uint32_t kMostPhases = 32;

// Steps stand in an order in which they could run one by one; the steps of a lane run in this order.
struct Schedule {
  std::string name;
  uint32_t placement = 0;
  IterationClass iterationClass = IterationClass::Decode;
  int64_t maxTokens = 0, maxSequences = 0, maxContext = 0; // what locals were sized for
  uint32_t entryState = 0, exitState = 0;                  // of `placement`, but see fromPlacement
  // Transition between placements: the one whose homes are on the device, and whose the entry state is, when it starts;
  // it ends with the homes of `placement`. Else kNone.
  uint32_t fromPlacement = kNone;
  // KV blocks that may be in use, the scratch block included: those below this number. 0: all that the placement has.
  // Below that of one whose tail is at home on the host: nothing of it is brought.
  int64_t kvBlocks = 0;
  // Of a cycle this is number `phase` of `period`, at most kMostPhases; the exit state of one is the entry state of the
  // next, that of the last of the first. Those of a cycle have the placement, class and kvBlocks in common.
  uint32_t phase = 0, period = 1;
  std::vector<Step> steps;
  std::vector<Operand> operands;
  std::vector<Edge> edges; // sorted by (to, from)
  std::vector<Local> locals;
};

struct Variant {
  int64_t newTokens = 0, sequences = 0, context = 0; // buckets: upper bounds, inclusive
  uint32_t placement = 0;
  uint32_t schedule = 0;
  std::vector<uint64_t> durationsNs; // one a step of the schedule, each step alone on its lane
  uint64_t predictedNs = 0;          // the iteration, as sim plays it
  uint64_t computeAloneNs = 0;       // the sum of the compute lane: the resident bound
  uint64_t linkAloneNs = 0;          // the busier link direction alone: bytes / bandwidth
};

// What was chosen for a bucket, and what decided: the placement of `variant` frees the most device memory of those
// whose predicted iteration is within the objective.
struct BucketChoice {
  uint32_t variant = 0;         // of this bucket, in the placement chosen for it
  uint64_t sloNs = 0;           // the objective; 0: none was given for its class
  uint64_t residentNs = 0;      // the iteration with nothing offloaded
  uint64_t layerComputeNs = 0;  // t_c: one decoder layer's compute
  uint64_t layerTransferNs = 0; // t_t: one decoder layer's copy to the device
};

// From state 0 there is one to every entry state that holds anything, from every exit state with a dirty content one to
// state 0; between variants of one placement, neither of a cycle, there is one wherever an exit state does not contain
// an entry state. One whose schedule has a fromPlacement changes the placement:
// fromState is a state of that one (0: whatever its slots hold), toState one of the schedule's placement. From there
// the transitions of that placement lead on. A change that needs no copy, since the device holds all that the other
// placement has at home, is not listed.
struct Transition {
  uint32_t fromState = 0, toState = 0;
  uint32_t schedule = 0; // of class Transition
  std::vector<uint64_t> durationsNs;
  uint64_t predictedNs = 0;
};

inline constexpr uint32_t kPredicted = 1000; // thousandths

struct Plan {
  uint32_t version = kFormatVersion;
  std::string compilerVersion;
  model::Boxed<model::ModelSpec> model;
  // Of the spec (its name left out) and, with a checkpoint, its safetensors headers: names, types, shapes and places of
  // all tensors, not their values; hex.
  std::string modelHash;
  std::vector<uint64_t> weightHashes; // of the values: one a weight unit, as model::hashCheckpoint() has them; or none
  std::string modelPath;              // as given; where `run` looks for weights unless told otherwise
  model::Hardware hardware;
  model::Goal goal;
  model::Policy policy;
  std::string reason;           // why this placement, with the numbers that decided
  std::string limitingResource; // "link h2d", "compute", "device memory"

  model::DType activationDtype = model::DType::F32;
  model::Encoding kvEncoding; // of the caches' rows; of a packed one the group that the head size takes
  // Each layer is passed for so many mini-batches one after the other, the first first, with its weights brought once
  // (zig-zag); 1 to kernels::kMostMiniBatches. Each has iteration data, KV blocks and transients of its own: all
  // limits, buckets and numbers of blocks are of one of them, a bucket of the largest. Any of them may be empty.
  //
  //   embed 0, embed 1, layer 0 of 0, layer 0 of 1, layer 1 of 0, layer 1 of 1, head 0, head 1, publish
  uint32_t miniBatches = 1;
  int64_t blockTokens = 16;
  int64_t kvBlocks = 0; // a cache, the scratch block 0 included: the most of any placement
  // Activation blocks of a layer and mini-batch; in tables of blocks they are the numbers from kvBlocks on. 0: none,
  // and buffers of kind Act have no meaning.
  //
  //   block of a sequence  0 1 2 3 ...   number j is an activation block exactly where actRatio.isAct(j) says so
  //   contextBlocks        of both kinds that may be in use at a time; any sequences that the plan takes find theirs
  //
  // In an iteration, a layer's K and V of tokens in activation blocks are in one transient, block by block as in a
  // cache: rebuild_kv makes those of earlier tokens, rope_append appends the others, attention reads both.
  //
  // Their home is the device, or of some or all layers the host, direct: then such a layer's are brought to a slot for
  // rebuild_kv, and act_append, which is direct, writes its rows to the home.
  int64_t actBlocks = 0, contextBlocks = 0;
  model::ActRatio actRatio;
  kernels::MetaLayout metaLayout; // the limits over all variants
  int64_t maxContext = 0;

  uint64_t deviceMemory = 0; // device memory the plan may use
  uint64_t arenaBytes = 0;   // device memory it does use, all variants and transitions
  // Pinned: every unit that any placement offloads, the tails of caches, residuals, and what the cpu lane works on.
  uint64_t hostBytes = 0;
  // Where in the slab an iteration that has steps in the cpu lane copies the iteration buffer to, for them: whole, as
  // it is on the device; else nowhere. Nothing is there when an iteration starts.
  uint64_t metaOnHost = kNowhere;
  bool attendsOnCpu() const { return metaOnHost != kNowhere; }

  // In any order: each weight unit that the model has, each cache and each Io once; a residual of each mini-batch, or,
  // of a whole model, of none; activation blocks of each layer and mini-batch, where there are any.
  std::vector<Buffer> buffers;
  std::vector<Placement> placements;
  std::vector<State> states;
  std::vector<Schedule> schedules;
  // Sorted by (placement, newTokens, sequences, context, KV blocks of its schedule, phase of its schedule).
  std::vector<Variant> variants;
  // One a bucket, in the order of the buckets; none where placement 0 was chosen for all by memory alone.
  std::vector<BucketChoice> choices;
  std::vector<Transition> transitions;
  // What the slowest iterations (p99) of placements that offload weights take, in thousandths of what is predicted: of
  // the record that the plan was compiled with, where the policy heeds it (cost::CostModel::slowestFactor). Objectives
  // are held against it (slowestNs in PlacementTable.h).
  uint32_t slowestPermille = kPredicted;

  // The number of a buffer in `buffers`, kNone where there is none. They look through the list: who asks for many has a
  // BufferIndex (BufferIndex.h).
  uint32_t kvBuffer(int64_t layer, uint32_t miniBatch = 0) const;
  uint32_t ioBuffer(Io which) const;
  const Buffer &buffer(const Schedule &schedule, uint32_t id) const;
  uint64_t kvCaches() const; // one a layer and mini-batch
  // Blocks that sequences of a mini-batch may have at a time, the scratch block left out.
  int64_t mostContextBlocks() const { return actBlocks > 0 ? contextBlocks : kvBlocks - 1; }
  uint64_t actBlockBytes() const; // of one layer and mini-batch; 0 where there are none
  // Whether the residual stream leaves the device between layers: there are buffers of kind Residual.
  //
  //   compute  | layer 0 of 0 | layer 0 of 1 | layer 1 of 0 | layer 1 of 1 |
  //   d2h                     | residual 0   | residual 1   | residual 0   |     from a slot, as soon as written
  //   h2d                                    | residual 0   | residual 1   |     into a slot
  //
  // Embed, which writes it first, writes into a slot as well. All steps that read or write the residual stream name the
  // buffer of their mini-batch, whole, on the device, in a slot; copies between slot and home are whole and resizable.
  bool residualsLeave() const;
  // Of a stage (model::ModelSpec::stage), whose layers are numbered from its own first on and whose residuals have a
  // home whether they leave or not. One that does not embed receives its rows: the home of each residual has those of
  // the launch when an iteration starts, and what the first layer reads in a slot, a copy has brought from there. One
  // without a head sends its rows: behind the last step that writes a mini-batch's stream a copy takes it home, and the
  // publish reads all homes, in the order of the mini-batches. It has no step of the other kind: no embed here, no
  // gather_rows, norm and linear of the head, and sample there. Nothing writes a home behind the publish.
  //
  //   h2d      | residual |                                              a stage between two others
  //   compute             | layer 0 | layer 1 | layer 2 |          | publish |
  //   d2h                                               | residual |
  bool receives() const;
  bool sends() const;
  // A cache's place among them: layer by layer, in it mini-batch by mini-batch.
  uint64_t cacheNumber(const Buffer &cache) const {
    return static_cast<uint64_t>(cache.layer) * miniBatches + cache.index;
  }
  uint64_t kvBlockBytes() const; // of one cache
  // In an interleaved extent all caches' blocks of a number lie together, block by block; so a cache's lie this far
  // apart, each a run of kvBlockBytes().
  //
  //   | 0 of kv.0 | 0 of kv.1 | 1 of kv.0 | 1 of kv.1 | 2 of kv.0 | ...     two layers: a stride of two blocks
  uint64_t kvStride() const;
  // Of one mini-batch: it has the bytes [miniBatch x this, + this) of the buffer, which is Sampled or History. Where
  // there are several, a multiple of model::kAlign.
  uint64_t ioRangeBytes(const Buffer &io) const { return io.bytes / (miniBatches == 0 ? 1 : miniBatches); }
  // Sequences of a mini-batch that may run.
  int64_t mostSequences() const { return metaLayout.maxSequences; }
  // Of all mini-batches together: rows that an iteration may sample.
  int64_t mostSampled() const { return static_cast<int64_t>(miniBatches) * metaLayout.maxSequences; }
};

// "kv.3", or "kv.3.1" where a plan has several mini-batches.
std::string kvName(int64_t layer, uint32_t miniBatch, uint32_t miniBatches);
// Whether the sequences of an iteration may bring one row each, and no more: decoding.
bool bringsOneRowEach(const Plan &plan, const Variant &variant);
// Rows that rebuild_kv makes at most in an iteration of a variant: of a layer and mini-batch, whole blocks.
int64_t actRows(const Plan &plan, const Variant &variant);
// "act.3", or "act.3.1".
std::string actName(int64_t layer, uint32_t miniBatch, uint32_t miniBatches);
// "residual", or "residual.1" where a plan has several mini-batches.
std::string residualName(uint32_t miniBatch, uint32_t miniBatches);

// Device memory of one schedule and its placement by what it is used for. The sum need not be the arena: ranges are
// shared (activations and workspace count each byte of their own once); `peak` is the end of the highest range in use.
struct DeviceBytes {
  uint64_t weights = 0, slots = 0, kv = 0, io = 0, activations = 0, workspace = 0,
           peak = 0; // kv: activation blocks too
};
DeviceBytes deviceBytes(const Plan &plan, uint32_t schedule);

// Whether a direct step writes host memory, which takes the link towards the host; else it reads it.
bool directToHost(const Schedule &schedule, const Step &step);

// Bytes each direction moves in one iteration of a schedule: the linkBytes of copies by lane, of direct steps by what
// they do.
struct LinkBytes {
  uint64_t h2d = 0, d2h = 0;
};
LinkBytes linkBytes(const Schedule &schedule);

// What of a placement's weights has its home on the host.
struct OffloadedWeights {
  int32_t layers = 0; // with a unit there
  bool embedding = false;
  bool head = false; // with tied embeddings both are one matrix
};
OffloadedWeights offloadedWeights(const Plan &plan, const Placement &placement);

// Bytes of weights by home: what the manifest says.
struct HomeBytes {
  uint64_t device = 0, host = 0;
};
HomeBytes weightBytesByHome(const Plan &plan, uint32_t placement);
// The same of KV caches, all layers.
HomeBytes kvBytesByHome(const Plan &plan, uint32_t placement);
// Bytes of the slots, or places, that the tails of KV caches go through.
uint64_t kvSlotBytes(const Plan &plan, uint32_t placement);
// What all KV takes of the device: what is at home there, which is aligned, and these.
uint64_t kvDeviceBytes(const Plan &plan, uint32_t placement);

} // namespace headrace::plan
