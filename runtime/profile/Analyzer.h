// SPDX-License-Identifier: Apache-2.0
//
// Select-N's performance analyzer (section 4.4): measures a model on a device and fills in a performance record.
//
//   chooseGrid() --> plan with everything resident --> Analyzer: open, load weights
//                      transfers: each size alone, beside an iteration, both directions at once
//                      interference: that iteration alone and beside copies, in turns; copies that wait for its steps
//                      pairs:     one iteration of prefill, then of decode, small pairs first, until none is missing
//                                 (pairs beyond one whose layer computes longer than it is copied need not be)
//                      again:     pairs that took longer than one with more work, which shows that something else
//                                 slowed the machine down: twice at most, the shortest look counts
//                      spread:    iterations with everything resident, and with layers that wait for copies: how far
//                                 the slowest lie from the prediction
//
// A step's time is from the end of the step before it in its lane to its own end, so that the sites of an iteration add
// up to the time from the start of the first to visible tokens. Prompts are random ids; decoding reads a cache of
// zeros, as no kernel's time depends on values.
//
// The same code serves every device: what it knows of one is core::Device with DeviceOptions::trace.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/core/Device.h"
#include "runtime/cost/Record.h"
#include "runtime/model/WeightSource.h"
#include "runtime/profile/AnalyzerGrid.h"

namespace headrace::profile {

struct AnalyzerOptions {
  // On the device's clock: a pair is repeated until its median has settled (Repeat.h) or this is used up, once at
  // least. Copies of one size and kind get a tenth.
  double secondsPerPair = 2;
  bool all = false;             // every pair on the grid, also those that need not be measured
  uint64_t seed = 0;            // of the prompts
  double layerTolerance = 0.05; // layers are equal if none takes longer than the fastest by more than this
  const model::WeightSource *weights = nullptr; // of the plan's model; may be null for devices that hold no data
  bool fromFiles = false;                       // they are a folder's: what loading them takes is measured
  std::function<void(uint64_t done, uint64_t total)> loading;   // bytes of weights
  std::function<void(uint64_t done, uint64_t total)> measuring; // steps: sizes of copies and pairs
  // After each size and each pair, with a record that is whole but for what is missing. A failure ends the analysis.
  std::function<absl::Status(const cost::Record &)> onProgress;
};

// The sizes that copies are measured at: powers of four from 4 KiB below the largest, and the largest.
std::vector<uint64_t> transferSizes(uint64_t largest);

// A record with nothing measured for this grid; identity, model and hardware are the caller's.
cost::Record emptyRecord(const Grid &grid, cost::Identity identity, const model::ModelSpec &model);

// What is still to be measured: cost::missingCells(), or with `all` every pair on the grid without a cell, in the same
// order.
std::vector<cost::CellKey> cellsLeft(const cost::Record &record, bool all);

// Measures what `record` (of this grid) lacks. Layers are judged over all pairs: one is slower if it is so in the
// middle pair. The record then has the time of each layer for each pair; pairs of an earlier run that found them equal
// get one time for all. With fewer layers than the model's, those that were not there count as the slowest that was.
absl::StatusOr<cost::Record> analyze(cost::Record record, const Grid &grid, core::Device &device,
                                     const AnalyzerOptions &options);

} // namespace headrace::profile
