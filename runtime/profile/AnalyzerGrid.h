// SPDX-License-Identifier: Apache-2.0
//
// Which (batch, sequence) pairs a profile measures (Select-N, section 4.4: powers of two, at most 100), and the plan
// that holds the largest of them without offloading anything.
//
//   sequence ->   64   128   256   512
//   batch  1       o     o     o     o        o on the grid
//          2       o     o     o     x        x more tokens than the device memory has room for
//          4       o     o     x     x
//
// Pairs far beyond the first at which a layer is predicted to compute longer than it is copied take no memory either:
// none of them is ever measured, unless all are asked for.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/cost/Record.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::profile {

inline constexpr size_t kMostPairs = 100; // of the default axes

// What the plan must hold.
struct PlanSizes {
  model::ModelSpec model;    // perhaps with fewer layers than the profiled one
  int64_t batch = 1;         // sequences
  int64_t context = 1;       // of the longest
  int64_t newTokens = 1;     // of the largest prefill
  int64_t kvTokens = 1;      // in the cache
  uint64_t deviceMemory = 0; // bytes
  bool activations = false;  // in place of keys and values, of every token (AnalyzerLines.h)
};
// Compiles a plan with everything resident. ResourceExhausted where it does not fit.
using PlanSource = std::function<absl::StatusOr<plan::Plan>(const PlanSizes &)>;

struct GridRequest {
  model::ModelSpec model;
  model::Hardware hardware;
  model::DType activation = model::DType::F32;
  model::Encoding kv;
  uint64_t deviceMemory = 0;
  int64_t blockTokens = 16;
  bool all = false;                        // make room for every pair, also for those that are never reached
  std::vector<int64_t> batches, sequences; // powers of two, ascending without gaps; empty: the default ones
  PlanSource plans;
};

struct Grid {
  std::vector<int64_t> batches, sequences;
  std::array<int64_t, cost::kPhases> mostTokens{}; // as in a record
  std::array<bool, cost::kPhases> memoryBound{};   // what mostTokens leaves out does not fit; else it is never reached
  plan::Plan plan;                                 // plan.model has the layers that are run
  uint64_t copyBytes = 0; // the largest copy: twice this much of the device memory is kept beside the plan's arena
};

// Sequences from 64 (or less, for a model of fewer positions) to the model's positions, batches from 1 to 128 or as
// many as keep within kMostPairs pairs. The whole model is run where its weights take at most three fifths of the
// device memory, else as many layers as do (two at least): layers are equally fast, so what matters is the room for
// batches and contexts. ResourceExhausted where not even the smallest pair of two layers fits; InvalidArgument for a
// sequence beyond the model's positions.
absl::StatusOr<Grid> chooseGrid(const GridRequest &request);

// A layer's compute by a cost model: the sum of its sites.
uint64_t layerNs(const cost::CostModel &costs, const model::ModelSpec &model, const cost::Bucket &bucket);

} // namespace headrace::profile
