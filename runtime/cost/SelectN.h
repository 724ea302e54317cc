// SPDX-License-Identifier: Apache-2.0
//
// Select-N's choice on plain values: what an iteration takes with an offloading interval, which intervals meet a
// latency objective, and which of them frees the most device memory (Select-N, sections 4.3 and 4.4, corrected).
//
// Interval i: of every i layers the last is in host memory; its copy may start when the first layer of its group starts
// and no copy crosses groups (one slot; the paper's start rule). With t_c a layer's compute, t_t its copy, L layers and
// n = floor(L / i) of them offloaded, i >= 2:
//
//   T(i) = n (max((i - 1) t_c, t_t) + t_c) + (L - n i) t_c + rest          i = 4, t_t = 5 t_c:
//                                                                          compute [1][2][3]......[4]
//   T(1) = L max(t_c, t_t) + rest   (two slots, DeepSpeed's behaviour)     h2d     [      4      ]
//
// T does not fall when t_c, t_t or rest grows: it is made of sums and maxima of them. So T from upper bounds of the
// three is an upper bound of T (RecordCostModel.h).
//
// T(1) takes it that layer 1 is copied while the last layer of the iteration before computes. With empty slots at the
// start (nothing wraps around under the paper's rule) the first copy is exposed and an iteration takes
// L max(t_c, t_t) + min(t_c, t_t) + rest; that is what is held against an SLO.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/cost/RecordCostModel.h"

namespace headrace::cost {

// Section 4.4: the granularity of SLOs in the paper's records.
inline constexpr uint64_t kSloStepNs = 2'000'000;
// Down to a multiple of `stepNs` (> 0), so that what meets the rounded SLO meets the SLO. 0 if the SLO is below a step.
constexpr uint64_t roundSlo(uint64_t sloNs, uint64_t stepNs = kSloStepNs) { return sloNs / stepNs * stepNs; }

// Times in ns. Upper bounds where the truth is not known; residentNs() is then of lower bounds where an SLO is taken
// from it.
struct LayerTimes {
  int64_t layers = 1;
  double computeNs = 0;  // t_c, a layer's compute
  double transferNs = 0; // t_t, a layer's copy to the device
  double restNs = 0;     // compute outside the layers: embedding, head, sampling
};

double residentNs(const LayerTimes &times); // L t_c + rest: nothing offloaded
// T(i), the closed form above. Interval 0, or one larger than the layers: nothing is offloaded.
double intervalNs(const LayerTimes &times, int64_t interval);
// The same with empty slots at the start: T(i), for interval 1 longer by min(t_c, t_t).
double emptyStartNs(const LayerTimes &times, int64_t interval);
// T(i) for layers that differ: it is the sum over groups of max(sum of all but the last, t_t) + the last, then
// what is left over. One time a layer.
double intervalNs(absl::Span<const double> computeNs, double transferNs, double restNs, int64_t interval);

// floor(L / i); 0 for interval 0.
int64_t offloadedLayers(int64_t layers, int64_t interval);
// Layers' worth of device memory given back: the offloaded ones less the slots (two for interval 1, else one).
int64_t freedLayers(int64_t layers, int64_t interval);

struct IntervalChoice {
  int64_t interval = 0; // 0: nothing is offloaded
  int64_t offloaded = 0;
  int64_t freed = 0;      // layers' worth of device memory
  double iterationNs = 0; // emptyStartNs() of it
  bool feasible = true;   // false: not even without offloading; the minimum SLO is iterationNs
};

// Every interval from 1 to L with emptyStartNs() <= sloNs, ascending. Not always without gaps: with t_t large, 7 of 32
// offloads as many layers as 8 and hides less of each copy.
std::vector<int64_t> feasibleIntervals(const LayerTimes &times, double sloNs);
// The feasible interval that frees the most device memory; of several, floor(L / n), the fastest that offloads n layers
// (the name the paper uses). One that frees nothing is not chosen. sloNs that is not positive (or NaN) is infeasible.
// `slowestFactor` (at least 1): what offloads is feasible where so many times its iteration is within the objective
// (CostModel::slowestFactor).
IntervalChoice chooseInterval(const LayerTimes &times, double sloNs, double slowestFactor = 1);

// What section 4.4 prints, beside the choice: L_offload = floor(t_c (1 + delta) / t_t) and floor(L / L_offload).
struct PaperFormula {
  int64_t offloadPrinted = 0, intervalPrinted = 0; // as printed: 0 for any layer that copies longer than it computes
  int64_t offloadTimesL = 0, intervalTimesL = 0;   // with the factor L that is missing
};
PaperFormula paperFormula(const LayerTimes &times, double delta);

// A latency objective: an absolute time (ttft, tpot), or a multiple of the iteration without offloading.
struct Slo {
  double ns = 0;     // > 0: absolute
  double factor = 0; // > 0: 1 + delta, of the resident time
};
// kInvalidArgument unless exactly one of the two is given, positive and finite, the factor at least 1. `what` (a flag)
// begins the message.
absl::Status checkSlo(const Slo &slo, std::string_view what);

// The choice for one (batch, sequence) of a record, conservative as RecordCostModel.h defines it. Absolute SLOs are
// rounded down to `stepNs` and held by T from upper bounds. A factor f must hold wherever t_c and the rest lie between
// their bounds: f residentNs - T(i) is concave in both (residentNs is linear; T(i), also with empty slots, is a sum of
// maxima), so it is least at one of the four corners. What offloads leaves room for the slowest iterations of the
// record (RecordCostModel::slowestFactor). Any batch and sequence from 1.
IntervalChoice chooseFromRecord(const RecordCostModel &costs, Phase phase, int64_t batch, int64_t sequence,
                                const Slo &slo, uint64_t stepNs = kSloStepNs);

// Table 1 for any SLO: rows batch, columns sequence, a cell the interval; "-" offload nothing, "x" not even without
// offloading. The choice is asked for each pair.
std::string intervalTable(absl::Span<const int64_t> batches, absl::Span<const int64_t> sequences,
                          const std::function<IntervalChoice(int64_t batch, int64_t sequence)> &choose);
// Of a record's grid, with a line above it that says which phase and SLO.
std::string recordTable(const RecordCostModel &costs, Phase phase, const Slo &slo, uint64_t stepNs = kSloStepNs);

} // namespace headrace::cost
