// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/Record.h"

#include "kernels/Kernels.h"

#include <algorithm>
#include <cmath>

namespace headrace::cost {
namespace {

constexpr std::string_view kSiteNames[kSites] = {"embed",  "attention_norm", "qkv",  "rope_append", "attention",
                                                 "out",    "mlp_norm",       "up",   "activate",    "down",
                                                 "gather", "head_norm",      "head", "sample"};

// Between two sizes in proportion; the products are of bytes (2^53 at most) and ns (2^50): in doubles, as whole
// nanoseconds never need more.
uint64_t between(uint64_t x, uint64_t x0, uint64_t y0, uint64_t x1, uint64_t y1) {
  const double share = static_cast<double>(x - x0) / static_cast<double>(x1 - x0);
  const double y = static_cast<double>(y0) + share * (static_cast<double>(y1) - static_cast<double>(y0));
  return static_cast<uint64_t>(std::ceil(y));
}

} // namespace

std::string_view phaseName(Phase phase) { return phase == Phase::Prefill ? "prefill" : "decode"; }

std::optional<Phase> phaseFromName(std::string_view name) {
  for (Phase phase : {Phase::Prefill, Phase::Decode}) {
    if (name == phaseName(phase))
      return phase;
  }
  return std::nullopt;
}

Bucket bucketOf(Phase phase, int64_t batch, int64_t sequence) {
  return {phase == Phase::Prefill ? batch * sequence : batch, batch, sequence};
}

std::string_view siteName(Site site) { return kSiteNames[static_cast<size_t>(site)]; }

OpSite opSiteOf(Site site) {
  using kernels::Op;
  using model::UnitRole;
  switch (site) {
  case Site::Embed:
    return {Op::Embed, UnitRole::Embedding};
  case Site::AttentionNorm:
    return {Op::Norm, UnitRole::Qkv};
  case Site::Qkv:
    return {Op::Linear, UnitRole::Qkv};
  case Site::RopeAppend:
    return {Op::RopeAppend, UnitRole::Qkv};
  case Site::Attention:
    return {Op::Attention, UnitRole::Qkv};
  case Site::Out:
    return {Op::Linear, UnitRole::Out};
  case Site::MlpNorm:
    return {Op::Norm, UnitRole::Up};
  case Site::Up:
    return {Op::Linear, UnitRole::Up};
  case Site::Activate:
    return {Op::Activate, UnitRole::Up};
  case Site::Down:
    return {Op::Linear, UnitRole::Down};
  case Site::Gather:
    return {Op::GatherRows, UnitRole::Head};
  case Site::HeadNorm:
    return {Op::Norm, UnitRole::Head};
  case Site::Head:
    return {Op::Linear, UnitRole::Head};
  case Site::Sample:
    return {Op::Sample, UnitRole::Head};
  }
  return {};
}

std::optional<Site> siteOf(const OpSite &site) {
  using kernels::Op;
  for (int s = 0; s < kSites; ++s) {
    const OpSite known = opSiteOf(static_cast<Site>(s));
    const bool byUnit = site.op == Op::Norm || site.op == Op::Linear; // the others stand once in an iteration or layer
    if (known.op == site.op && (!byUnit || known.unit == site.unit))
      return static_cast<Site>(s);
  }
  return std::nullopt;
}

Timing summarise(std::vector<uint64_t> samplesNs) {
  std::sort(samplesNs.begin(), samplesNs.end());
  // Nearest rank: the smallest sample that at least `percent` of all do not exceed.
  const auto rank = [&](size_t percent) { return samplesNs[(samplesNs.size() * percent + 99) / 100 - 1]; };
  return {rank(50), rank(10), rank(90)};
}

double MeasuredSpread::slowestFactor() const {
  double factor = 1;
  if (repetitions > 0)
    for (const Iterations &measured : {resident, waiting})
      factor = std::max(factor, static_cast<double>(measured.slowestNs) / static_cast<double>(measured.predictedNs));
  return std::floor(factor * 1000) / 1000;
}

std::string_view lineName(LineKind kind) {
  constexpr std::string_view kNames[kLines] = {"rebuild_kv", "load_kv", "load_act"};
  return kNames[static_cast<size_t>(kind)];
}

bool MeasuredLines::measured() const {
  return std::any_of(samples.begin(), samples.end(), [](const auto &line) { return !line.empty(); });
}

absl::StatusOr<Line> fitLine(absl::Span<const MeasuredLines::Sample> samples, std::string_view what) {
  std::vector<TokenSample> fitted;
  for (size_t i = 0; i < samples.size(); ++i)
    if (!heldOut(i))
      fitted.push_back({samples[i].tokens, static_cast<double>(samples[i].timing.medianNs)});
  return fitLine(fitted, what);
}

const Cell *Record::find(Phase phase, int64_t batch, int64_t sequence) const {
  for (const Cell &cell : cells) {
    if (cell.phase == phase && cell.batch == batch && cell.sequence == sequence)
      return &cell;
  }
  return nullptr;
}

bool layersAreEqual(absl::Span<const uint64_t> layerNs, double tolerance) {
  if (layerNs.empty())
    return true;
  const auto [least, most] = std::minmax_element(layerNs.begin(), layerNs.end());
  return static_cast<double>(*most) <= static_cast<double>(*least) * (1 + tolerance);
}

uint64_t layerComputeNs(const Cell &cell) {
  if (!cell.layerNs.empty())
    return *std::max_element(cell.layerNs.begin(), cell.layerNs.end());
  uint64_t sum = 0;
  for (int s = 0; s < kSites; ++s)
    sum += inLayer(static_cast<Site>(s)) ? cell.sites[static_cast<size_t>(s)].medianNs : 0;
  return sum;
}

uint64_t restComputeNs(const Cell &cell) {
  uint64_t sum = 0;
  for (int s = 0; s < kSites; ++s)
    sum += inLayer(static_cast<Site>(s)) ? 0 : cell.sites[static_cast<size_t>(s)].medianNs;
  return sum;
}

uint64_t transferNs(const Record &record, uint64_t bytes, bool hostToDevice) {
  if (record.transfers.empty())
    return kLongestStepNs;
  const auto timeOf = [&](const Transfer &t) {
    return hostToDevice ? std::max(t.h2d.medianNs, t.h2dWithCompute.medianNs)
                        : std::max(t.d2h.medianNs, t.d2hWithCompute.medianNs);
  };
  const auto above = std::find_if(record.transfers.begin(), record.transfers.end(),
                                  [&](const Transfer &t) { return t.bytes >= bytes; });
  if (above == record.transfers.begin())
    return timeOf(*above);
  const Transfer &below = *(above - 1);
  if (above != record.transfers.end()) // sizes ascend, so above->bytes > below.bytes
    return between(bytes, below.bytes, timeOf(below), above->bytes, timeOf(*above));
  const double ratio = static_cast<double>(bytes) / static_cast<double>(below.bytes);
  const double ns = std::ceil(static_cast<double>(timeOf(below)) * ratio);
  return ns < static_cast<double>(kLongestStepNs) ? static_cast<uint64_t>(ns) : kLongestStepNs;
}

std::vector<CellKey> missingCells(const Record &record) {
  const uint64_t transfer = transferNs(record, record.identity.layerBytes, true);
  std::vector<CellKey> missing;
  for (Phase phase : {Phase::Prefill, Phase::Decode}) {
    for (int64_t batch : record.batches) {
      for (int64_t sequence : record.sequences) {
        if (!record.onGrid(phase, batch, sequence))
          continue;
        // Measured, or no larger than needed by one that shows the copy hidden.
        const bool settled = std::any_of(record.cells.begin(), record.cells.end(), [&](const Cell &c) {
          if (c.phase != phase || c.batch > batch || c.sequence > sequence)
            return false;
          return (c.batch == batch && c.sequence == sequence) || layerComputeNs(c) > transfer;
        });
        if (!settled)
          missing.push_back({phase, batch, sequence});
      }
    }
  }
  std::stable_sort(missing.begin(), missing.end(), [](const CellKey &a, const CellKey &b) {
    return a.phase != b.phase ? a.phase < b.phase : a.batch * a.sequence < b.batch * b.sequence;
  });
  return missing;
}

} // namespace headrace::cost
