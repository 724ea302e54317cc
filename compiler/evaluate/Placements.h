// SPDX-License-Identifier: Apache-2.0
//
// How much device memory a placement takes: by arithmetic on what the steps of each iteration class tell, without
// running the passes.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "compiler/choice/Candidate.h"
#include "compiler/choice/Resolve.h"
#include "compiler/evaluate/MemoryUse.h"
#include "passes/algorithms/LayOutArena.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::compiler {

// Device memory of a candidate, and what it is made of.
struct MemoryNeed {
  uint64_t bytes = 0;
  uint64_t kv = 0, io = 0, weights = 0, slots = 0, transients = 0; // transients: beyond what they share with slots
  std::string describe() const;                                    // "12.0 GiB: KV cache 4.0 GiB + ..."
};

class PlacementFamily {
public:
  // `packed`: bytes of the arena of a candidate alone, as it is evaluated; the largest number of one that cannot be.
  using Packed = std::function<uint64_t(const Candidate &)>;
  PlacementFamily(const model::ModelSpec &spec, const model::WeightLayout &layout, const Target &target,
                  std::vector<MemoryUse> uses, Packed packed);

  MemoryNeed need(const Candidate &candidate) const;
  // All but the transients, which take packing.
  MemoryNeed held(const Candidate &candidate) const;
  // Whether its arena takes no more: it is evaluated where sums do not tell.
  bool fits(const Candidate &candidate, uint64_t budget) const;
  uint64_t packed(const Candidate &candidate) const { return packed_(candidate); }
  uint64_t hostBytes(const Candidate &candidate) const; // of what is away: what is pinned

private:
  struct Item {
    uint64_t bytes = 0;
    std::vector<int32_t> units;
  };
  // The slots' sizes, and what an iteration puts into them.
  struct SlotsUsed {
    std::vector<uint64_t> bytes;
    std::vector<algorithms::SlotUse> uses;
  };
  SlotsUsed slotsOf(const algorithms::Residency &residency, const std::vector<Item> &items, const MemoryUse &use) const;
  SlotsUsed ringOf(const algorithms::Residency &residency, const std::vector<Item> &items, const MemoryUse &use) const;
  std::vector<SlotsUsed>
  slotsByClass(const algorithms::Residency &residency) const; // iteration class; none where nothing needs one
  // What weights come to, whatever caches do beside them.
  struct OfWeights {
    uint64_t home = 0, slots = 0;
    std::optional<uint64_t> transients; // that lie in slots where they are empty: beyond these; worked out where asked
  };
  using WeightsKey = std::tuple<std::vector<int32_t>, int64_t, uint64_t, algorithms::StartRule, int32_t>;
  OfWeights &weightsOf(const algorithms::Residency &residency) const;
  MemoryNeed held(const Candidate &candidate, const OfWeights &weights) const;
  std::vector<Item> itemsOf(const algorithms::Residency &residency) const; // in order of use

  const model::ModelSpec &spec_;
  const model::WeightLayout &layout_;
  uint64_t kvOf(const Candidate &candidate) const;     // at home on the device
  uint64_t tailsOf(const Candidate &candidate) const;  // their slots
  int64_t blocksOf(const Candidate &candidate) const { // of a layer's cache
    return candidate.kvBlocks > 0 ? candidate.kvBlocks : kvBlocks_;
  }
  uint64_t kvBlockBytes_ = 0, actBytes_ = 0, io_ = 0; // actBytes_: activation blocks, of all layers and mini-batches
  uint64_t residualSlots_ = 0, residualHomes_ = 0;    // of residual streams that leave the device
  uint64_t actSlots_ = 0, actHomes_ = 0;              // of activation blocks that are on the host
  uint64_t staging_ = 0;                              // of what the cpu lane works on, on the host
  uint64_t caches_ = 0;                               // one a layer and mini-batch
  int64_t kvBlocks_ = 0;
  std::vector<MemoryUse> uses_; // by iteration class
  Packed packed_;
  uint64_t transientsPeak_ = 0;                   // of all classes, sharing nothing with slots
  mutable std::map<WeightsKey, OfWeights> known_; // who fills caches asks for the same weights again and again
};

} // namespace headrace::compiler
