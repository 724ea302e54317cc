// SPDX-License-Identifier: Apache-2.0
//
// What lies where in the host slab of a plan: the same for all of its placements, so that a change between them moves
// nothing there.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/choice/Candidate.h"
#include "compiler/choice/Resolve.h"
#include "passes/algorithms/SlabAddresses.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::compiler {

// Caches of a plan: the blocks at home on the host are in a placement those of the residency, `mirror` being the first
// that is away in any of them.
struct KvHomes {
  int64_t blocks = 0; // of a layer, the scratch block included
  uint64_t blockBytes = 0;
  std::optional<int64_t> mirror; // none: all blocks are on the device in all placements
  // Those on the device lie block by block, all caches' blocks of a number together: where a cache is split, or larger
  // in one placement than in another.
  bool interleaved = false;
};

struct HostLayout {
  KvHomes kv;
  algorithms::SlabAddresses at;    // of what is away in any of the placements
  std::optional<uint64_t> staging; // where what the cpu lane works on begins, behind all else; none: nothing does
  uint64_t bytes = 0;              // of the slab
  uint64_t kvBytes = 0;            // of them caches', what alignment adds left out
};

// Every unit that any of the candidates offloads, one after another, so that the units of a layer are one run of bytes;
// `all`: whether anybody does or not. Then, layer by layer, the KV blocks that any of them has at home on the host;
// then activation blocks, and residual streams that leave the device; then what the cpu lane works on.
HostLayout layOutHost(const std::vector<const Candidate *> &candidates, const model::WeightLayout &layout,
                      const Target &target, const model::ModelSpec &spec, bool all = false);

} // namespace headrace::compiler
