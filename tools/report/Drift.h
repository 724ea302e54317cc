// SPDX-License-Identifier: Apache-2.0
//
// How far a model's logits are from those of full precision, position by position, by plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace headrace::tools {

// Of one position, whose logits are those of the token behind it.
struct PositionDrift {
  int64_t prompt = 0, position = 0;
  double largest = 0, mean = 0; // |packed - full| of the vocabulary's logits
  int32_t largestToken = 0;     // the lowest id that has the largest
  double kl = 0;                // of packed from full, sum of p ln(p / q), nats
  bool sameFirst = true;        // both have the same likeliest token, the lowest id among equals
  // -ln of the probability that full and packed give the token which follows in the prompt; none behind its last.
  std::optional<double> fullLoss, packedLoss;
};

// `full` and `packed`: a logit for each token, finite; `next`: the token that follows, unset at a prompt's end. Sums
// are F64, in order of ids: logits that are the same bits drift by 0 throughout.
PositionDrift driftOf(absl::Span<const float> full, absl::Span<const float> packed, std::optional<int32_t> next);

// Of positions, at least one.
struct DriftSummary {
  int64_t positions = 0;
  double meanError = 0;         // of logits, over all positions
  const PositionDrift *error{}; // the first with the largest error of a logit
  double meanKl = 0;            // over all positions
  const PositionDrift *kl{};    // the first with the largest
  int64_t sameFirst = 0;        // positions
  int64_t predicted = 0;        // positions with a token that follows; 0: there is no perplexity
  double full = 0, packed = 0;  // perplexity: exp of the mean loss
  double largestErrors = 0;     // mean over positions of the largest error of each
  double firstShare() const { return static_cast<double>(sameFirst) / static_cast<double>(positions); }
};
// Points into `positions`.
DriftSummary summaryOf(absl::Span<const PositionDrift> positions);

// Positions by how many tokens their logits follow: 1, 2, 3-4, 5-8, ..., each up to twice the one before.
struct DriftBin {
  int64_t most = 0; // tokens
  std::vector<PositionDrift> positions;
};
std::vector<DriftBin> binsOf(absl::Span<const PositionDrift> positions); // without empty ones

} // namespace headrace::tools
