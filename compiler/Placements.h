// SPDX-License-Identifier: Apache-2.0
//
// Which placements there are to choose from, and how much device memory each takes: by arithmetic on what one lowered
// iteration of each shape class tells, without running the passes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/ResolveGoal.h"
#include "ir/Headrace.h"
#include "passes/algorithms/LayOutArena.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::compiler {

// A placement before it is compiled.
struct Candidate {
  std::string name;
  int32_t interval = 0;   // 0: not an interval, but `layers` spread evenly
  int64_t layers = 0;     // offloaded
  bool embedding = false; // the table's home is the host; with tied embeddings the head's operand, too
  bool head = false;
  model::StartRule startRule = model::StartRule::Eager;
  int64_t slots = 0; // layer-sized slots wanted; 0: nothing is prefetched
  bool wrap = false; // the tail of an iteration copies for the next

  bool offloadsNothing() const { return layers == 0 && !embedding && !head; }
  std::string describe() const; // "interval 4 (8 of 32 layers, the embedding), 2 slots"
};

// What an iteration of one shape class does with memory.
struct MemoryUse {
  struct Unit {
    uint64_t bytes = 0;
    int64_t firstUse = -1, lastUse = -1; // compute steps that read it, embed left out; -1: none
  };
  std::vector<Unit> units;                       // in the order of the weight layout
  std::vector<algorithms::LiveRange> transients; // lives in compute steps
};
MemoryUse memoryUseOf(ir::IterationOp modelPhase);

// Device memory of a candidate, and what it is made of.
struct MemoryNeed {
  uint64_t bytes = 0;
  uint64_t kv = 0, io = 0, weights = 0, slots = 0, transients = 0; // transients: beyond what they share with slots
  std::string describe() const;                                    // "12.0 GiB: KV cache 4.0 GiB + ..."
};

class PlacementFamily {
public:
  PlacementFamily(const model::ModelSpec &spec, const model::WeightLayout &layout, const Target &target,
                  std::vector<MemoryUse> uses);

  // The policy's candidates, from the one that offloads least. The last needs the least memory.
  std::vector<Candidate> candidates(const model::Policy &policy) const;
  MemoryNeed need(const Candidate &candidate) const;
  // As need().bytes <= budget, without packing where sums tell.
  bool fits(const Candidate &candidate, uint64_t budget) const;
  // The layers whose home is the host, ascending; and all such units, in no order.
  std::vector<int64_t> layersOf(const Candidate &candidate) const;
  std::vector<int32_t> unitsOf(const Candidate &candidate) const;

private:
  struct Item {
    uint64_t bytes = 0;
    std::vector<int32_t> units;
  };
  std::vector<Item> itemsOf(const Candidate &candidate) const;
  Candidate withLayers(const model::Policy &policy, int64_t layers, int32_t interval, std::string name) const;
  int64_t slotsFor(const Candidate &candidate, const model::Policy &policy) const;

  const model::ModelSpec &spec_;
  const model::WeightLayout &layout_;
  uint64_t kv_ = 0, io_ = 0;
  std::vector<MemoryUse> uses_; // by shape class
  uint64_t transientsPeak_ = 0; // of all classes, sharing nothing with slots
};

} // namespace headrace::compiler
