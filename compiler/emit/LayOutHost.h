// SPDX-License-Identifier: Apache-2.0
//
// What lies where in the host slab of a plan: the same for all of its placements, so that a change between them moves
// nothing there.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/lower/Candidate.h"
#include "compiler/lower/Pipeline.h"
#include "compiler/lower/ResolveGoal.h"

namespace headrace::compiler {

struct HostLayout {
  std::vector<uint64_t> units; // address of each unit
  KvHomes kv;
  std::vector<uint64_t> act; // address of each layer's and mini-batch's activation blocks, 0 where they are not away
  std::vector<uint64_t> residuals; // address of each mini-batch's, where they leave the device
  uint64_t bytes = 0;              // of the slab
  uint64_t kvBytes = 0;            // of them caches', what alignment adds left out
};

// Every unit that any of the candidates offloads, one after another, so that the units of a layer are one run of bytes;
// `all`: whether anybody does or not. Then, layer by layer, the KV blocks that any of them has at home on the host;
// then activation blocks, and residual streams that leave the device.
HostLayout layOutHost(const std::vector<const Candidate *> &candidates, const model::WeightLayout &layout,
                      const Target &target, const model::ModelSpec &spec, bool all = false);

} // namespace headrace::compiler
