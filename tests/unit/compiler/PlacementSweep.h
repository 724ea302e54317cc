// SPDX-License-Identifier: Apache-2.0
//
// Cases that the search of placements is judged by, and a checker that shares no code with it: a sweep over ring sizes
// and counts of units, timed by planCut() and iterationNs().
#pragma once

#include <string>
#include <vector>

#include "compiler/search/SearchPlacement.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {

// A shipped model on shipped hardware in one bucket, with its goal as a multiple of the resident time.
struct SearchCase {
  std::string model, hardware;
  cost::Bucket bucket;
  bool decode = true;
  double factor = 1;
  std::string name() const; // "opt-6.7b a10 decode 32 x 512 at 1.50"
};
// Decode and prefill of several batches and contexts, from 1.02 to 4 times the resident time, on each model and
// hardware.
std::vector<SearchCase> searchCases(const std::vector<std::string> &hardware);

class OpenedCase {
public:
  // allBuckets: of the plan with the default buckets, decode and mixed, each class with the factor times its slowest
  // bucket.
  explicit OpenedCase(const SearchCase &c, bool allBuckets = false);
  // Of a request with one bucket of the class asked for.
  OpenedCase(CompileRequest request, const cost::Bucket &bucket, bool decode, double factor);
  OpenedCase(const OpenedCase &) = delete;

  absl::StatusOr<SearchedPlacement> search() { return searchPlacement(search_, prices_); }
  const CompileRequest &request() const { return request_; }
  const model::WeightLayout &layout() const { return layout_; }
  const algorithms::UnitProblem &problem() const { return problem_.problem; }
  int64_t layers() const { return request_.model->layers; }
  double layerBytes() const { return static_cast<double>(layout_.layerBytes(0)); }
  uint64_t residentNs() const { return residentNs_; }
  uint64_t sloNs() const { return sloNs_; }
  size_t buckets() const { return search_.decode.size() + search_.mixed.size(); }
  // The most bytes of layers' units whose copies, start-up included, take the SLO's time together.
  double limitBytes() const;
  uint64_t layerComputeNs() const;
  uint64_t copyNs(uint64_t bytes) { return prices_.copyNs(bytes, true); }

private:
  OpenedCase(CompileRequest request, const SearchCase &c, bool allBuckets);

  CompileRequest request_;
  Target target_;
  model::WeightLayout layout_;
  cost::Roofline costs_;
  Prices prices_;
  SearchRequest search_;
  PlacementProblem problem_;
  uint64_t residentNs_ = 0, sloNs_ = 0;
};

// What Select-N frees: the paper's rule, with one slot a layer large (two for interval 1).
uint64_t selectNFreed(OpenedCase &c);

struct SweepResult {
  uint64_t freedBytes = 0, movedBytes = 0, ringBytes = 0;
  size_t sets = 0, rings = 0; // tried
};

// The placement that frees the most among: rings of 0.25 to 2 layers in steps of 1/48 of a layer, and sets with every
// combination of `steps` + 1 counts of three roles and as many of the fourth as the link can copy, each role spread
// evenly over the layers, at the same and at staggered phases. Only what frees more than `above` is looked at.
SweepResult sweepRings(const OpenedCase &c, int steps, uint64_t above);

} // namespace headrace::compiler
