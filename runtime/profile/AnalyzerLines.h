// SPDX-License-Identifier: Apache-2.0
//
// The lines of a record (cost/Record.h, MeasuredLines): HybridServe's sampling-based regression, section 4.3. A plan
// that keeps activations of every token decodes at counts of tokens that are evenly spread, and copies of as many
// tokens' keys and values, and activations, of one layer are made.
//
//   tokens   | o       x       o       x       o       x       o      o fitted to   x held out
//            '----------------------------------------------- most
//
//   turn 1 .. 5   each count in turn, until its median has settled; of each the turn with the least median counts, as
//                 what else disturbs a machine makes nothing faster
//   look 1 .. 3   five turns more, where the counts that are fitted to are no line
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "runtime/core/Device.h"
#include "runtime/cost/Record.h"
#include "runtime/profile/Analyzer.h"
#include "runtime/profile/AnalyzerGrid.h"

namespace headrace::profile {

inline constexpr int kLineCounts = 7;

// Pairs of decoding whose rows of activation blocks are as evenly spread as whole blocks of up to `batch` sequences of
// up to `sequence` tokens allow: up to kLineCounts of them, ascending by rows.
std::vector<cost::CellKey> lineCells(int64_t batch, int64_t sequence, int64_t blockTokens);

// What the lines are measured with.
struct LinesPlan {
  plan::Plan plan;
  std::vector<cost::CellKey> cells;
};
// The largest pair of the grid's decoding that fits, with as many layers as the grid runs; fewer layers (two at least),
// then fewer tokens, where they are predicted to be rebuilt for longer than `seconds`. ResourceExhausted where none
// fits, InvalidArgument where the grid has room for fewer counts than a line takes.
absl::StatusOr<LinesPlan> chooseLinesPlan(const GridRequest &request, const Grid &grid, double seconds);

// Opens the device anew. Of the options: secondsPerPair (of each count, in a look; of loads a tenth), seed, weights (of
// this plan's model), loading and measuring. FailedPrecondition naming the line and R^2 where three looks find none.
absl::StatusOr<cost::MeasuredLines> measureLines(const LinesPlan &lines, core::Device &device,
                                                 const AnalyzerOptions &options);

} // namespace headrace::profile
