// SPDX-License-Identifier: Apache-2.0
#include "tools/report/Drift.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

namespace headrace::tools {
namespace {

// A row's likeliest token, and ln of the sum of its exponentials.
struct Row {
  size_t first = 0;
  double logSum = 0;

  explicit Row(absl::Span<const float> logits)
      : first(static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin())) {
    const double most = logits[first];
    double sum = 0;
    for (const float logit : logits)
      sum += std::exp(static_cast<double>(logit) - most);
    logSum = most + std::log(sum);
  }
};

} // namespace

PositionDrift driftOf(absl::Span<const float> full, absl::Span<const float> packed, std::optional<int32_t> next) {
  const Row p(full), q(packed);
  PositionDrift out;
  const double shift = p.logSum - q.logSum;
  for (size_t i = 0; i < full.size(); ++i) {
    const double difference = static_cast<double>(full[i]) - static_cast<double>(packed[i]);
    const double error = std::abs(difference);
    if (error > out.largest) {
      out.largest = error;
      out.largestToken = static_cast<int32_t>(i);
    }
    out.mean += error;
    out.kl += std::exp(static_cast<double>(full[i]) - p.logSum) * (difference - shift);
  }
  out.mean /= static_cast<double>(full.size());
  out.kl = std::max(out.kl, 0.0); // which only rounding takes it below
  out.sameFirst = p.first == q.first;
  if (next) {
    const auto id = static_cast<size_t>(*next);
    out.fullLoss = p.logSum - static_cast<double>(full[id]);
    out.packedLoss = q.logSum - static_cast<double>(packed[id]);
  }
  return out;
}

DriftSummary summaryOf(absl::Span<const PositionDrift> positions) {
  DriftSummary out;
  out.positions = static_cast<int64_t>(positions.size());
  for (const PositionDrift &at : positions) {
    out.meanError += at.mean;
    out.largestErrors += at.largest;
    out.meanKl += at.kl;
    out.sameFirst += at.sameFirst;
    if (out.error == nullptr || at.largest > out.error->largest)
      out.error = &at;
    if (out.kl == nullptr || at.kl > out.kl->kl)
      out.kl = &at;
    if (at.fullLoss && at.packedLoss) {
      ++out.predicted;
      out.full += *at.fullLoss;
      out.packed += *at.packedLoss;
    }
  }
  const auto mean = [](double sum, int64_t of) { return of == 0 ? 0 : sum / static_cast<double>(of); };
  for (double *sum : {&out.meanError, &out.largestErrors, &out.meanKl})
    *sum = mean(*sum, out.positions);
  for (double *sum : {&out.full, &out.packed})
    *sum = std::exp(mean(*sum, out.predicted));
  return out;
}

std::vector<DriftBin> binsOf(absl::Span<const PositionDrift> positions) {
  std::map<int64_t, DriftBin> bins;
  for (const PositionDrift &at : positions) {
    const auto most = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(at.position + 1)));
    bins[most].most = most;
    bins[most].positions.push_back(at);
  }
  std::vector<DriftBin> out;
  for (auto &[most, bin] : bins)
    out.push_back(std::move(bin));
  return out;
}

} // namespace headrace::tools
