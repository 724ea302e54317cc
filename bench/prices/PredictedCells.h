// SPDX-License-Identifier: Apache-2.0
//
// Measured iterations beside what a profile predicts of what ran in them, planned as bench_cuda plans them.
#pragma once

#include <string>
#include <vector>

#include "bench/prices/KernelFigures.h"
#include "runtime/job/Hardware.h"

namespace headrace::bench {

// What decides an iteration, by those measured: its copies, or its compute.
struct PredictedCell {
  std::string name;
  double ms = 0, predicted = 0;
  bool byLink = false;
  double error() const { return ms / predicted - 1; }
};
// Of the part "iterations" of bench_cuda's figures; Failure where a round cannot be planned.
std::vector<PredictedCell> predictedCells(const Json &figures, const model::Hardware &hardware);

// Of the sizes of errors of those that the link, or compute, decides.
double medianError(const std::vector<PredictedCell> &cells, bool byLink);

// A prompt of so many tokens, everything resident; in chunks of 32,768, as no matrix may have 2^31 elements.
double predictedPrefillMs(const model::ModelSpec &spec, int64_t tokens, const model::Hardware &hardware);
// The same of Llama-3.1-8B from the committed figures, added up: arithmetic by the product of 4,096 rows and by
// attention over 16,384 tokens, bytes by the traced norm and rope_append of 2,040.
double prefillByHandMs(const Measured &measured, int64_t tokens);

} // namespace headrace::bench
