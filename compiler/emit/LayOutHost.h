// SPDX-License-Identifier: Apache-2.0
//
// What lies where in the host slab of a plan: the same for all of its placements, so that a change between them moves
// nothing there.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/choice/Candidate.h"
#include "compiler/choice/Resolve.h"
#include "compiler/lower/Pipeline.h"
#include "passes/algorithms/SlabAddresses.h"

namespace headrace::compiler {

struct HostLayout {
  KvHomes kv;
  algorithms::SlabAddresses at; // of what is away in any of the placements
  uint64_t bytes = 0;           // of the slab
  uint64_t kvBytes = 0;         // of them caches', what alignment adds left out
};

// Every unit that any of the candidates offloads, one after another, so that the units of a layer are one run of bytes;
// `all`: whether anybody does or not. Then, layer by layer, the KV blocks that any of them has at home on the host;
// then activation blocks, and residual streams that leave the device.
HostLayout layOutHost(const std::vector<const Candidate *> &candidates, const model::WeightLayout &layout,
                      const Target &target, const model::ModelSpec &spec, bool all = false);

} // namespace headrace::compiler
