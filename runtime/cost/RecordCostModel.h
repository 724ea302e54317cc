// SPDX-License-Identifier: Apache-2.0
//
// Times looked up in a performance record.
//
//   sequence ->   64    128    256 |
//   batch  4       o------o------o | . x         o measured   . looked up
//          8       o------o--.---o |             inside a measured square: interpolated
//         16       o------o        | (stopped)   elsewhere: the upper bound
//
// What "conservative" means here, and why it holds. Call a truth t(batch, sequence)
//   monotone         it does not fall when batch or sequence grows;
//   sub-homogeneous  t(x) <= t(g) max(1, flops(x) / flops(g), bytes(x) / bytes(g)): r times the work takes at most r
//                    times as long. Every max(flops / rate, bytes / rate') + constant is, whatever its rates.
// Then lowerNs <= t(x) <= upperNs for every x:
//   - x below some measured g in both coordinates: t(x) <= t(g) as t is monotone; the smallest such g bounds it.
//   - no such g (beyond the grid, or where it stopped early): for every measured g sub-homogeneity is the bound; the
//     least one is taken. Nothing assumes that t grows no faster than it did inside the grid.
//   - the same from below: t(x) >= t(g) for g below x, else t(x) >= t(g) min(1, flops(x) / flops(g), bytes(x) /
//     bytes(g)), which is sub-homogeneity with x and g exchanged.
// Select-N's iteration time T(i) does not fall when t_c or t_t grows (SelectN.h), so T from upper bounds is never below
// the true one: every interval that they admit is feasible in truth, and the interval chosen is never smaller than the
// true one. An SLO that is a multiple of the resident time must hold for every time between the bounds (SelectN.h).
// Interpolated times lie between the two bounds but need not be above the truth: they price plans, they admit nothing.
//
// Measured medians need not be monotone (noise): the bounds use the largest median of all smaller cells, and the
// smallest of all larger ones.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/cost/Record.h"

namespace headrace::cost {

// Nanoseconds, lowerNs <= truth <= upperNs under the conditions above.
struct TimeBounds {
  double lowerNs = 0, upperNs = 0;
};

class RecordCostModel final : public CostModel {
public:
  // Refuses an incomplete record (kFailedPrecondition) and one whose layers or layer bytes are not the model's.
  static absl::StatusOr<RecordCostModel> create(Record record, const model::ModelSpec &spec, std::string_view where);
  // Over the record's own model.
  static absl::StatusOr<RecordCostModel> create(Record record, std::string_view where);

  // An iteration of one row a sequence is looked up as decode, one of `context` rows a sequence as prefill. Any other
  // mix gets its upper bound from the cells of both phases by its work. Direct ops are not measured. Those that read
  // over the link are priced by the roofline over the record's hardware; one that appends does what was measured, while
  // the roofline has its rows cross the link. Keys and values made again of activations are priced by their line at the
  // bucket's rows of activation blocks, where the record has it (Record.h).
  uint64_t computeNs(const OpSite &site, const Bucket &bucket, bool direct) const override;
  uint64_t copyNs(uint64_t bytes, bool hostToDevice) const override;       // transferNs()
  uint64_t cpuNs(const OpSite &site, const Bucket &bucket) const override; // of kind cuda the roofline's
  Sharing sharing() const override; // host memory as the record's hardware has it
  // The least over the sizes of 2 x (faster direction alone) / (both together).
  double duplexShare() const override;

  // As nine of ten launches measured it: an objective is to be held, not met on average. None where the record has
  // none.
  Interference interference() const override;
  double slowestFactor() const override; // 1 where the record has no spread

  TimeBounds siteBounds(Site site, const Bucket &bucket) const;
  // Of one layer (with unequal layers: of the fastest and of the slowest), and of all that is not in a layer.
  TimeBounds layerBounds(const Bucket &bucket) const;
  TimeBounds restBounds(const Bucket &bucket) const;

  const Record &record() const { return record_; }

private:
  struct Point { // one measured cell
    Phase phase = Phase::Prefill;
    int64_t batch = 1, sequence = 1;
    std::array<double, kSites> median{}, high{}, low{};
    std::array<Work, kSites> work{};
  };
  RecordCostModel(Record record, const model::ModelSpec &spec);
  const Point *point(Phase phase, size_t batch, size_t sequence) const; // by indices into the axes; null: not measured
  double interpolate(size_t site, Phase phase, const Bucket &bucket) const; // below 0: not inside a measured square
  TimeBounds phaseBounds(size_t site, Phase phase, const Bucket &bucket) const;

  Record record_;
  model::Boxed<model::ModelSpec> spec_;
  Roofline roofline_;
  std::optional<Line> rebuildKv_;
  std::vector<Point> points_;
  std::vector<int32_t> grid_; // [phase][batch][sequence] -> points_, -1: not measured
};

} // namespace headrace::cost
