// SPDX-License-Identifier: Apache-2.0
//
// One attempt at one case: an objective made of what the resident plan just took, a plan compiled for it with the
// model's record as costs, and both plans in turns.
//
//   held        p99 / SLO <= p99 / median of the resident plan in the same turns
//   missed      otherwise
//   refused     the compiler admits no placement; its message must name what would do
//   unmeasured  p99 / median of the resident plan above kMostNoise, or its median so far above what it was when the
//               objective was made of it that this is not 1.02 times the median any more
#pragma once

#include <nlohmann/json.hpp>

#include "bench/slo/Cases.h"
#include "bench/slo/Player.h"
#include "runtime/cost/RecordCostModel.h"
#include "runtime/job/Hardware.h"

namespace headrace::bench {

struct Trial {
  const Case &of;
  const model::ModelSpec &spec;
  const model::Hardware &hardware; // with the link of the case
  const cost::RecordCostModel &costs;
  const KeptWeights &weights;
  const host::HostOptions &device;
  int iterations = 600; // of each plan; an attempt that can only be unmeasured any more is given up before

  // A row for Results but for "attempts"; a line of it on stdout.
  nlohmann::json run() const;
};

// A line of names above those that trials print.
void printTrialNames();

} // namespace headrace::bench
