// SPDX-License-Identifier: Apache-2.0
//
// A placement before it is compiled, as plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "passes/algorithms/PlanCut.h"
#include "runtime/job/JobFile.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::compiler {

struct Candidate {
  std::string name;
  int32_t interval = 0;   // 0: not an interval, but `layers` spread evenly
  int64_t layers = 0;     // offloaded; with `units` those that have one away
  bool embedding = false; // the table's home is the host; with tied embeddings the head's operand, too
  bool head = false;
  // If not empty, these are offloaded instead of `layers` whole ones: units of layers, and the head's where the
  // embeddings are not tied, by number (model::WeightLayout), ascending. See placementOfUnits().
  std::vector<int32_t> units;
  model::StartRule startRule = model::StartRule::Eager;
  int64_t slots = 0;      // layer-sized slots wanted; 0: nothing is prefetched, or there is a ring
  uint64_t ringBytes = 0; // above 0: one ring of at most so many bytes (algorithms/AssignRing.h) instead of them; eager
  bool wrap = false;      // the tail of an iteration copies for the next
  bool oneCut = false;    // an iteration with prompts copies at least as much ahead as one that decodes
  // How far, where a search has decided that; else it is planned when the placement is compiled (PlanWrapAround.h).
  std::optional<algorithms::Cut> decodeCut, mixedCut;

  bool offloadsNothing() const { return layers == 0 && units.empty() && !embedding && !head; }
  std::string describe() const;                     // "interval 4 (8 of 32 layers, the embedding), 2 slots"
  bool samePlacement(const Candidate &other) const; // but for the name
};

// Offloads `units` (in any order, no unit twice: numbers of layers' units, and the head's where embeddings are not
// tied), with one ring. Rule eager with wrap-around; its name says how many units there are.
Candidate placementOfUnits(const model::WeightLayout &layout, std::vector<int32_t> units, uint64_t ringBytes);

// InvalidArgument unless a candidate that was not made here can be compiled: layers and units exist, units are
// ascending and not the tied head's or the embedding's, a ring holds the largest of them and is not asked for beside
// slots or under the rule paper, and nothing wraps around without the rule eager.
absl::Status checkCandidate(const Candidate &candidate, const model::ModelSpec &spec,
                            const model::WeightLayout &layout);

} // namespace headrace::compiler
