// SPDX-License-Identifier: Apache-2.0
//
// The compute steps of an iteration and the buffers that they use, as plain values: the one place where a model becomes
// steps. Prices, memory and the IR are made of this list, all weights and caches at home on the device.
//
//   embed -> [ norm -> qkv -> rope_append -> attention -> out -> norm -> up -> (activate) -> down ] x layers
//         -> gather_rows -> norm -> head -> sample -> publish
//
// Of several mini-batches each part stands once a mini-batch, the first one's first, before the next part: a layer's
// weights are used by all of them, one after the other.
//
// Where blocks of the context keep activations (HybridServe, section 4.1) a layer begins with rebuild_kv, which needs
// nothing of this iteration but the layer's qkv weights and activations, and its first norm's rows are kept:
//
//   rebuild_kv | norm | act_append | qkv | rope_append | attention | ...
//
// Where the CPU attends, rows go down to it between a layer's first half and its second, and up again; the first halves
// of the next mini-batches stand before the second half of one, so that the device has work meanwhile:
//
//   compute  first 0.0 | first 0.1 | first 0.2 | second 0.0 | first 1.0 | second 0.1 | ...
//   d2h               | qkv 0.0   | qkv 0.1   | qkv 0.2
//   cpu                           | 0.0       | 0.1        | 0.2 ...
//
//   first half: norm, qkv, (rotate), stage | append, attention | second half: fetch_rows, out, norm, up, down
//
// Where residual streams leave the device between layers, each layer works on one that comes for it, as what a compiler
// spills comes back to a register. Embedding goes on into the first layer, and behind the last the rows that the head
// wants are gathered: these few stay.
//
//   stays     embed 0 | embed 1 | layer 0 of 0 | layer 0 of 1 | layer 1 of 0 | layer 1 of 1 | head 0 | head 1
//   leaves    embed 0 | layer 0 of 0 | embed 1 | layer 0 of 1 | layer 1 of 0 | layer 1 of 1 | head 0 | head 1
//             ^ comes                ^ comes                  ^ comes        ^ comes
// Of a stage (model::ModelSpec::stage) streams have their homes on the host, too, and each comes once, for the first
// layer's first step, and goes home behind the last one's last, from where publish has it; embedding and head are the
// first stage's and the last one's alone, and in front of sample stands keep_ids, embed's other half. It may leave
// between layers as well, as above.
//
//   middle    layer 0 of 0 | layer 0 of 1 | layer 1 of 0 | layer 1 of 1 | publish
//             ^ comes       ^ comes                      goes ^          ^ goes
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/choice/Resolve.h"
#include "kernels/Kernels.h"
#include "passes/algorithms/SlabAddresses.h"
#include "runtime/base/EnumCount.h"
#include "runtime/cost/CostModel.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::compiler {

// What is lowered, and what its transients are sized for.
struct StepsRequest {
  const model::ModelSpec *spec = nullptr;
  const model::WeightLayout *layout = nullptr;
  const Target *target = nullptr;
  model::DeviceKind device = model::DeviceKind::Host;
  plan::IterationClass iterationClass = plan::IterationClass::Decode;
  cost::Bucket limits;
};

// What a buffer's bytes are, as the IR has it in a type.
enum class Elements : uint8_t { F32 = 0, F16 = 1, BF16 = 2, Bytes = 3, Packed = 4 };

// What of the host slab steps of the cpu lane work on: the iteration buffer of all mini-batches, the others of each.
enum class Staging : uint8_t { Meta = 0, Qkv = 1, Attended = 2, Scratch = 3 };

struct StepBuffer {
  enum class Kind : uint8_t { Movable, Io, Transient, Staging };
  Kind kind = Kind::Transient;
  Staging staging = Staging::Meta; // of Staging
  uint64_t bytes = 0;
  Elements elements = Elements::Bytes;
  int32_t miniBatch = 0;
  plan::Io io = plan::Io::Meta; // of Io
  // Of what is movable: which, the layer that uses it (-1: none), and of what is loaded which unit of the layout. A
  // residual stream that leaves the device is a buffer for each of its layers; at home it is one.
  algorithms::Movable of;
  int32_t layer = -1, unit = -1;

  bool isTransient() const { return kind == Kind::Transient; }
  bool isMovable() const { return kind == Kind::Movable; }
  bool is(algorithms::MovableKind what) const { return isMovable() && of.kind == what; }
  const algorithms::MovableTraits &traits() const { return algorithms::traitsOf(of.kind); }
  algorithms::SlabKey key() const { return {of, miniBatch}; }
};

using BufferIndex = int32_t;
inline constexpr BufferIndex kNoBuffer = -1;

// Bytes of a unit; none where the model has no such tensor.
struct UnitRange {
  uint64_t offset = 0, bytes = 0;
};

struct Step {
  std::optional<kernels::Op> op; // none: publish, or what copies `x` down to `y`
  plan::Lane lane = plan::Lane::Compute;
  model::UnitRole role = model::UnitRole::Embedding; // whose kernel it is: of cost::OpSite
  plan::Part part = plan::Part::Embedding;
  int32_t layer = -1;
  int32_t miniBatch = 0;
  bool sampledRows = false; // one row a sequence; else one a token

  // What it uses beside meta, what its mini-batch has (sampled, history) and the output.
  BufferIndex unit = kNoBuffer; // of weights, of which: matrix, table or norm; bias or positions; heads' norms
  UnitRange weight, bias, headNorms;
  BufferIndex x = kNoBuffer;       // rows; rope_append rotates them in place
  BufferIndex kv = kNoBuffer;      // a layer's cache
  BufferIndex rebuilt = kNoBuffer; // keys and values behind it
  BufferIndex act = kNoBuffer;     // activation blocks
  BufferIndex y = kNoBuffer;       // what it makes; where `inPlace` it adds to that, or writes it where it is
  bool inPlace = false;
  BufferIndex comes = kNoBuffer; // a stream that is brought for this step and those behind it
  bool sends = false;            // of publish: the streams of all mini-batches, at home

  kernels::Epilogue epilogue = kernels::Epilogue::None;
  uint64_t workspaceBytes = 0;
  uint64_t flops = 0, deviceBytes = 0; // at the limits
  uint64_t linkBytes = 0;              // of what is brought over the link by a step that does nothing else

  bool copiesDown() const { return lane == plan::Lane::D2H; }
  bool onCpu() const { return lane == plan::Lane::Cpu; }

  std::optional<cost::OpSite> site() const { return op ? std::optional(cost::OpSite{*op, role}) : std::nullopt; }
};

struct Steps {
  struct Own { // of a mini-batch
    BufferIndex sampled = kNoBuffer, history = kNoBuffer;
    // Meta is the same buffer for all.
    std::array<BufferIndex, model::enumCount<Staging>()> staging = {kNoBuffer, kNoBuffer, kNoBuffer, kNoBuffer};
    std::vector<BufferIndex> kv, act; // by layer; `act` empty: none are kept
  };
  // In the order of declaration: units of weights by number, caches, activation blocks, meta, sampled, output, history,
  // what the cpu lane works on; then what steps make, in their order.
  std::vector<StepBuffer> buffers;
  int32_t firstUnit = 0;                            // of the layout's units the number of the first that there is
  std::vector<Own> own;                             // by mini-batch
  BufferIndex meta = kNoBuffer, output = kNoBuffer; // of all mini-batches
  std::vector<Step> steps;

  BufferIndex ofUnit(int32_t unit) const { return unit - firstUnit; }
  const StepBuffer &buffer(BufferIndex index) const { return buffers[static_cast<size_t>(index)]; }
};

Steps stepsOf(const StepsRequest &request);

// Whether an iteration of a class attends on the CPU: where that is chosen, those that decode.
inline bool attendsOnCpu(const Choice &choice, plan::IterationClass iterationClass) {
  return choice.attendsOnCpu && iterationClass == plan::IterationClass::Decode;
}

// What of a model is movable, each as it is at home: units of weights, caches and activation blocks by layer and
// mini-batch, then the residual streams where they leave the device.
std::vector<StepBuffer> movableBuffers(const model::ModelSpec &spec, const model::WeightLayout &layout,
                                       const Target &target);

// What of the host slab the cpu lane works on, where that attends: the iteration buffer, as it is on the device, then
// what each mini-batch has for itself; each a multiple of model::kAlign, one behind the other.
std::vector<StepBuffer> stagingBuffers(const model::ModelSpec &spec, const Target &target);

} // namespace headrace::compiler
