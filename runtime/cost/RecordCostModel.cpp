// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/RecordCostModel.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "kernels/Kernels.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::cost {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

double ratioOf(uint64_t a, uint64_t b) {
  if (a == b)
    return 1; // 0 of 0 as well: that amount does not count
  return b == 0 ? kInfinite : static_cast<double>(a) / static_cast<double>(b);
}
// How many times as long x may take as g, and how much of g's time it must take (RecordCostModel.h).
double mostRatio(const Work &x, const Work &g) {
  return std::max({1.0, ratioOf(x.flops, g.flops), ratioOf(x.deviceBytes, g.deviceBytes)});
}
double leastRatio(const Work &x, const Work &g) {
  return std::min({1.0, ratioOf(x.flops, g.flops), ratioOf(x.deviceBytes, g.deviceBytes)});
}

uint64_t toNs(double ns) {
  return ns < static_cast<double>(kLongestStepNs) ? static_cast<uint64_t>(std::ceil(ns)) : kLongestStepNs;
}

// Nothing for a mix of prompts and single tokens, or for chunks of prompts.
std::optional<Phase> phaseOf(const Bucket &bucket) {
  if (bucket.tokens == bucket.sequences)
    return Phase::Decode;
  if (bucket.tokens % bucket.context == 0 && bucket.tokens / bucket.context == bucket.sequences)
    return Phase::Prefill;
  return std::nullopt;
}

size_t indexAtLeast(const std::vector<int64_t> &axis, int64_t value) {
  return static_cast<size_t>(std::lower_bound(axis.begin(), axis.end(), value) - axis.begin());
}

} // namespace

absl::StatusOr<RecordCostModel> RecordCostModel::create(Record record, std::string_view where) {
  const model::ModelSpec spec = record.model;
  return create(std::move(record), spec, where);
}

absl::StatusOr<RecordCostModel> RecordCostModel::create(Record record, const model::ModelSpec &spec,
                                                        std::string_view where) {
  RETURN_IF_ERROR(checkRecord(record, where));
  const uint64_t layerBytes = model::layoutWeights(spec).layerBytes(0);
  if (record.identity.layers != spec.layers || record.identity.layerBytes != layerBytes)
    return absl::FailedPreconditionError(model::cat(
        where, ": of ", record.identity.layers, " layers of ", record.identity.layerBytes,
        " bytes: this record is of another model, expected ", spec.layers, " layers of ", layerBytes, " bytes"));
  RETURN_IF_ERROR(checkComplete(record, where));
  return RecordCostModel(std::move(record), spec);
}

RecordCostModel::RecordCostModel(Record record, const model::ModelSpec &spec)
    : record_(std::move(record)), spec_(spec),
      roofline_(spec, record_.hardware, record_.identity.activation, record_.identity.kv),
      grid_(kPhases * record_.batches.size() * record_.sequences.size(), -1) {
  if (record_.lines.measured()) // checkRecord() has found that it is a line
    rebuildKv_ = fitLine(record_.lines.at(LineKind::RebuildKv), "").value();
  for (const Cell &cell : record_.cells) {
    Point p{cell.phase, cell.batch, cell.sequence, {}, {}, {}, {}};
    double layer = 0;
    for (size_t s = 0; s < kSites; ++s)
      layer += inLayer(static_cast<Site>(s)) ? static_cast<double>(cell.sites[s].medianNs) : 0;
    // Of layers that are not equal the slowest stands for all where time must not be too small, the fastest where it
    // must not be too large, their mean where a whole iteration is priced; each in the proportions of the sites'
    // medians.
    double slowest = 1, fastest = 1, mean = 1;
    if (!cell.layerNs.empty() && layer > 0) {
      const auto [least, most] = std::minmax_element(cell.layerNs.begin(), cell.layerNs.end());
      slowest = static_cast<double>(*most) / layer;
      fastest = static_cast<double>(*least) / layer;
      mean = static_cast<double>(std::accumulate(cell.layerNs.begin(), cell.layerNs.end(), uint64_t{0})) /
             static_cast<double>(cell.layerNs.size()) / layer;
    }
    for (size_t s = 0; s < kSites; ++s) {
      const double median = static_cast<double>(cell.sites[s].medianNs);
      const bool scaled = inLayer(static_cast<Site>(s));
      p.median[s] = median * (scaled ? mean : 1);
      p.high[s] = median * (scaled ? slowest : 1);
      p.low[s] = median * (scaled ? fastest : 1);
      p.work[s] = workOf(spec, opSiteOf(static_cast<Site>(s)), bucketOf(cell.phase, cell.batch, cell.sequence),
                         record_.identity.activation, record_.identity.kv, false);
    }
    const size_t at =
        (static_cast<size_t>(cell.phase) * record_.batches.size() + indexAtLeast(record_.batches, cell.batch)) *
            record_.sequences.size() +
        indexAtLeast(record_.sequences, cell.sequence);
    grid_[at] = static_cast<int32_t>(points_.size());
    points_.push_back(p);
  }
  const std::vector<Point> measured = points_;
  for (Point &p : points_) {
    for (const Point &other : measured) {
      if (other.phase != p.phase)
        continue;
      const bool smaller = other.batch <= p.batch && other.sequence <= p.sequence;
      const bool larger = other.batch >= p.batch && other.sequence >= p.sequence;
      for (size_t s = 0; s < kSites; ++s) {
        p.high[s] = smaller ? std::max(p.high[s], other.high[s]) : p.high[s];
        p.low[s] = larger ? std::min(p.low[s], other.low[s]) : p.low[s];
      }
    }
  }
}

const RecordCostModel::Point *RecordCostModel::point(Phase phase, size_t batch, size_t sequence) const {
  if (batch >= record_.batches.size() || sequence >= record_.sequences.size())
    return nullptr;
  const int32_t at =
      grid_[(static_cast<size_t>(phase) * record_.batches.size() + batch) * record_.sequences.size() + sequence];
  return at < 0 ? nullptr : &points_[static_cast<size_t>(at)];
}

double RecordCostModel::interpolate(size_t site, Phase phase, const Bucket &bucket) const {
  const size_t b1 = indexAtLeast(record_.batches, bucket.sequences);
  const size_t s1 = indexAtLeast(record_.sequences, bucket.context);
  if (b1 >= record_.batches.size() || s1 >= record_.sequences.size())
    return -1;
  const auto on = [](const std::vector<int64_t> &axis, size_t i, int64_t value) { return axis[i] == value; };
  const bool onBatch = on(record_.batches, b1, bucket.sequences),
             onSequence = on(record_.sequences, s1, bucket.context);
  if ((b1 == 0 && !onBatch) || (s1 == 0 && !onSequence))
    return -1;
  const size_t b0 = onBatch ? b1 : b1 - 1, s0 = onSequence ? s1 : s1 - 1;
  const Point *corners[4] = {point(phase, b0, s0), point(phase, b0, s1), point(phase, b1, s0), point(phase, b1, s1)};
  if (std::find(std::begin(corners), std::end(corners), nullptr) != std::end(corners))
    return -1;
  // Linear in batch and in sequence: exact for times that are a + b batch + c sequence + d batch sequence.
  const auto share = [](int64_t x, int64_t x0, int64_t x1) {
    return x1 == x0 ? 0.0 : static_cast<double>(x - x0) / static_cast<double>(x1 - x0);
  };
  const double u = share(bucket.sequences, record_.batches[b0], record_.batches[b1]);
  const double v = share(bucket.context, record_.sequences[s0], record_.sequences[s1]);
  return (1 - u) * ((1 - v) * corners[0]->median[site] + v * corners[1]->median[site]) +
         u * ((1 - v) * corners[2]->median[site] + v * corners[3]->median[site]);
}

TimeBounds RecordCostModel::phaseBounds(size_t site, Phase phase, const Bucket &bucket) const {
  TimeBounds bounds{0, kInfinite};
  bool below = false;
  double monotone = 0;
  const Work work =
      workOf(spec_, opSiteOf(static_cast<Site>(site)), bucket, record_.identity.activation, record_.identity.kv, false);
  for (const Point &g : points_) {
    if (g.phase != phase)
      continue;
    bounds.upperNs = std::min(bounds.upperNs, g.high[site] * mostRatio(work, g.work[site]));
    bounds.lowerNs = std::max(bounds.lowerNs, g.low[site] * leastRatio(work, g.work[site]));
    if (g.batch <= bucket.sequences && g.sequence <= bucket.context) {
      below = true;
      monotone = std::max(monotone, g.low[site]);
    }
  }
  // Inside the grid only monotony is asked of the truth.
  if (below)
    bounds.lowerNs = monotone;
  if (const Point *above = point(phase, indexAtLeast(record_.batches, bucket.sequences),
                                 indexAtLeast(record_.sequences, bucket.context)))
    bounds.upperNs = above->high[site];
  return bounds;
}

TimeBounds RecordCostModel::siteBounds(Site site, const Bucket &bucket) const {
  const size_t s = static_cast<size_t>(site);
  // Bounds from different cells may cross where the medians are noisy: the wider interval is kept.
  const auto ordered = [](const TimeBounds &b) {
    return TimeBounds{std::min(b.lowerNs, b.upperNs), std::max(b.lowerNs, b.upperNs)};
  };
  if (const std::optional<Phase> phase = phaseOf(bucket))
    return ordered(phaseBounds(s, *phase, bucket));
  TimeBounds bounds{0, kInfinite};
  const Work work = workOf(spec_, opSiteOf(site), bucket, record_.identity.activation, record_.identity.kv, false);
  for (const Point &g : points_) {
    bounds.upperNs = std::min(bounds.upperNs, g.high[s] * mostRatio(work, g.work[s]));
    bounds.lowerNs = std::max(bounds.lowerNs, g.low[s] * leastRatio(work, g.work[s]));
  }
  return ordered(bounds);
}

TimeBounds RecordCostModel::layerBounds(const Bucket &bucket) const {
  TimeBounds sum;
  for (int s = 0; s < kSites; ++s) {
    if (!inLayer(static_cast<Site>(s)))
      continue;
    const TimeBounds one = siteBounds(static_cast<Site>(s), bucket);
    sum.lowerNs += one.lowerNs;
    sum.upperNs += one.upperNs;
  }
  return sum;
}

TimeBounds RecordCostModel::restBounds(const Bucket &bucket) const {
  TimeBounds sum;
  for (int s = 0; s < kSites; ++s) {
    if (inLayer(static_cast<Site>(s)))
      continue;
    const TimeBounds one = siteBounds(static_cast<Site>(s), bucket);
    sum.lowerNs += one.lowerNs;
    sum.upperNs += one.upperNs;
  }
  return sum;
}

uint64_t RecordCostModel::computeNs(const OpSite &site, const Bucket &bucket, bool direct) const {
  const std::optional<Site> known = siteOf(site);
  if (direct && site.op == kernels::Op::RopeAppend)
    return std::max(computeNs(site, bucket, false), roofline_.directNs(site, bucket));
  if (!direct && rebuildKv_ && site.op == kernels::Op::RebuildKv)
    return toNs(lineNs(*rebuildKv_, bucket.actRows));
  if (direct || !known)
    return roofline_.computeNs(site, bucket, direct);
  if (bucket.tokens < 1 || bucket.sequences < 1 || bucket.context < 1)
    return 0; // nothing to do
  if (const std::optional<Phase> phase = phaseOf(bucket)) {
    const double inside = interpolate(static_cast<size_t>(*known), *phase, bucket);
    if (inside >= 0)
      return toNs(inside);
  }
  return toNs(siteBounds(*known, bucket).upperNs);
}

uint64_t RecordCostModel::cpuNs(const OpSite &site, const Bucket &bucket) const {
  return record_.hardware.kind == model::DeviceKind::Host ? computeNs(site, bucket, false)
                                                          : roofline_.cpuNs(site, bucket);
}

Sharing RecordCostModel::sharing() const {
  Sharing sharing = sharingOf(record_.hardware);
  sharing.duplexShare = duplexShare();
  return sharing;
}

uint64_t RecordCostModel::copyNs(uint64_t bytes, bool hostToDevice) const {
  return transferNs(record_, bytes, hostToDevice);
}

double RecordCostModel::duplexShare() const {
  double share = 2;
  for (const Transfer &t : record_.transfers)
    share = std::min(share, 2 * static_cast<double>(std::min(t.h2d.medianNs, t.d2h.medianNs)) /
                                static_cast<double>(t.both.medianNs));
  return share;
}

double RecordCostModel::slowestFactor() const { return record_.spread.slowestFactor(); }

Interference RecordCostModel::interference() const {
  const MeasuredInterference &measured = record_.interference;
  if (measured.repetitions == 0)
    return {};
  // Like with like: what disturbs a machine now and then lengthens both p90, and is not what copies cost.
  const auto ratio = [&](uint64_t Timing::*quantile) {
    return static_cast<double>(measured.computeBeside.*quantile) / static_cast<double>(measured.computeAlone.*quantile);
  };
  return {std::max({1.0, ratio(&Timing::medianNs), ratio(&Timing::p90Ns)}), measured.copyStart.p90Ns};
}

} // namespace headrace::cost
