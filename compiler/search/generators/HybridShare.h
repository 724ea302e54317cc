// SPDX-License-Identifier: Apache-2.0
//
// What HybridServe's Algorithm 1 says of a request: its times as lines through what the request's cost model prices at
// sampled numbers of tokens (HybridServe, section 4.3, Figure 11), and the splits that follow from them.
//
//   T_load_w              copies of weights in an iteration, by the layers
//   T_load_kv, T_load_act copies of a mini-batch's blocks of one layer
//   T_kv_gen              rebuild_kv of one layer
//   T_forward             all else that computes, by the layers
//
// A layer here is the mean of the plan's: what an iteration does outside its layers (the head) is spread over them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/choice/CompileRequest.h"
#include "compiler/search/Space.h"
#include "runtime/cost/HybridAllocation.h"
#include "runtime/cost/HybridSplit.h"

namespace headrace::compiler {

// What a placement leaves to activations and brings of weights: of all layers.
struct HybridRoom {
  double loadWeightsNs = 0;  // in an iteration
  int64_t weightBytes = 0;   // that it brings
  int64_t deviceBytes = 0;   // for blocks at home on the device
  int64_t kvDeviceBytes = 0; // that KV blocks have of these, where it is stated what KV may take
};
// Of a choice without activation blocks, which memory holds.
HybridRoom roomOf(Space &space, const Scored &kvAlone);

struct HybridShare {
  cost::HybridTimes times; // of the whole batch: overMiniBatches()
  int64_t blocks = 0;      // of the largest decode bucket, in all mini-batches
  int64_t blocksPerSequence = 0;
  cost::BlockBytes block; // of one layer
  int64_t actDevice = 0;  // that the device has room for
  // Algorithm 1, which fills the host's memory: as printed (none where it divides by 0), and corrected.
  std::optional<cost::PrintedAllocation> printed;
  std::optional<cost::HybridAllocation> corrected;
  cost::HybridSplit batch; // the same balance over the blocks of this batch

  // The batch's share of activation blocks, to the nearest of so many parts.
  int64_t partOf(int64_t parts) const;
};

// Largest decode bucket; whatever share `choice` has. Errors are fitLine()'s and bestSplit()'s: prices that are
// no lines, blocks that fit nowhere.
absl::StatusOr<HybridShare> hybridShare(const CompileRequest &request, const Choice &choice, const HybridRoom &room);

// "Algorithm 1 over the host's memory: as printed 9000 ACT and 6000 KV blocks (0.60), corrected 8000 ACT and 7000 KV
// blocks (0.53: balanced); over this batch, corrected: 2200 ACT and 1896 KV blocks (0.54: balanced), 700 of ACT and 0
// of KV on the device".
std::string explainHybridShare(const HybridShare &share);

} // namespace headrace::compiler
