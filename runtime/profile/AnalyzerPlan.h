// SPDX-License-Identifier: Apache-2.0
//
// The plan that a profile launches: a compiled plan with everything resident, a variant for each pair that is to be
// measured, and schedules of copies. The copies are of no buffer of the model, so no verifier accepts the plan; it is
// never written to a file.
//
//   arena  | the compiled plan's             | to | from |      slab  | from | to |
//                                               ^     |                 |      ^
//                                               |     +------- d2h -----|------+
//                                               +------------- h2d -----+
//
//   alone    compute  .                          beside   compute  [ all steps of one pair's iteration ]
//            h2d      [copy][copy][copy][copy]            h2d      [copy][copy]...
//   both     h2d      [copy]                             starts   compute  [ the same iteration ]
//            d2h      [copy]                                      h2d         [c]    [c]    [c]   each after a step
//   waiting  compute  [ ]......[layer 0]....[layer 1]....[layer 2]
//            h2d      [ copy 0 ][ copy 1   ][ copy 2 ]              each layer after its copy, copy n after layer n - 2
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "runtime/core/Device.h"
#include "runtime/cost/Record.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::profile {

// Which op of an iteration a step is; a Publish counts to Sample. Unset for copies.
std::vector<std::optional<cost::Site>> sitesOf(const plan::Plan &plan, const plan::Schedule &schedule);

// The schedules that measure copies of one size; directions 0: host to device, 1: device to host.
struct CopyGraphs {
  uint64_t bytes = 0;
  std::array<core::GraphKey, 2> alone, beside;
  core::GraphKey both; // all but alone[0]: not of a plan for lines
};

// Rows of activation blocks of a pair of decoding: cost::Bucket::actRows.
int64_t actRowsOf(const plan::Plan &plan, const cost::CellKey &cell);

struct AnalyzerPlan {
  plan::Plan plan;
  std::vector<cost::CellKey> cells;       // that have a variant
  std::vector<core::GraphKey> cellGraphs; // one a cell
  std::vector<CopyGraphs> copies;         // one a size
  cost::CellKey besideCell;               // whose iteration runs beside copies
  std::optional<core::GraphKey> starts;   // that iteration, with copies that wait for steps of it; none without copies
  struct Waiting {
    cost::CellKey cell;
    core::GraphKey graph;
  };
  std::vector<Waiting> waiting; // decode iterations whose layers wait for copies: the middle pair's, the smallest's

  uint32_t schedule(const core::GraphKey &key) const {
    return key.transition ? plan.transitions[key.index].schedule : plan.variants[key.index].schedule;
  }
};

// `resident`: one placement, no copies; its largest schedules hold the cells (AnalyzerGrid.h). Sizes are at most
// `copyBytes`. Durations are the roofline's over the plan's hardware. The iteration beside copies is the shortest of
// all pairs on the grid that is predicted to be long enough for three copies of the largest size, else the longest.
AnalyzerPlan makeAnalyzerPlan(plan::Plan resident, absl::Span<const cost::CellKey> cells,
                              absl::Span<const uint64_t> sizes, uint64_t copyBytes);

// `kept`: one that keeps activations of every token, on the device. A variant for each of these pairs of decoding, and
// copies of these sizes to the device, alone: what lines are measured with (AnalyzerLines.h).
AnalyzerPlan makeLinesPlan(plan::Plan kept, absl::Span<const cost::CellKey> cells, absl::Span<const uint64_t> sizes);

} // namespace headrace::profile
