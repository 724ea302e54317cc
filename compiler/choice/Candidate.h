// SPDX-License-Identifier: Apache-2.0
//
// A placement before it is compiled: a choice and what it is called.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/choice/Choice.h"
#include "runtime/job/JobFile.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::compiler {

struct Candidate : Choice {
  std::string name;
  int32_t interval = 0; // of every so many layers the last is away; 0: not an interval

  bool offloadsNothing() const; // of what placements may differ by
  bool samePlacement(const Choice &other) const {
    return static_cast<const Choice &>(*this) == other;
  } // whatever its name
};

// With all that the placements of a plan have alike: everything but what movables have by placement, and blocks of
// caches.
Candidate alike(Candidate candidate, const Choice &common);

// What of a model a residency has off the device.
struct Away {
  int64_t layers = 0;      // with a unit away
  size_t units = 0;        // of them, and of the head that is not tied
  bool wholeLayers = true; // no layer has some away and others not
  bool embedding = false;  // with tied embeddings the head's operand is the same table, and both are away or neither
  bool head = false;
};
Away awayOf(const algorithms::Residency &residency, const model::ModelSpec &spec);

// "8 layers (interval 4), the embedding, 2 slots"; "12 units of 7 layers, a ring of 1.00 MiB"; "offload nothing".
std::string describe(const Candidate &candidate, const model::ModelSpec &spec);

// The units of these layers.
std::vector<int32_t> unitsOfLayers(const model::WeightLayout &layout, const std::vector<int64_t> &layers);

// Offloads `units` (in any order, no unit twice: numbers of layers' units, and the head's where embeddings are not
// tied), with one ring. Rule eager with wrap-around; its name says how many units there are.
Candidate placementOfUnits(const std::vector<int32_t> &units, uint64_t ringBytes);

// InvalidArgument unless a candidate that was not made here can be compiled: what is away are whole units that exist,
// on the host, but for the tied head's, and whole layers' activation blocks; a ring holds the largest of them; and
// nothing contradicts itself.
absl::Status checkCandidate(const Candidate &candidate, const model::ModelSpec &spec,
                            const model::WeightLayout &layout);

} // namespace headrace::compiler
