// SPDX-License-Identifier: Apache-2.0
//
// How often a measurement is repeated: until its median no longer moves, or its time is used up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace headrace::profile {

inline constexpr size_t kLeastRepetitions = 7;
inline constexpr double kSettledWithin = 0.01;

inline uint64_t medianOf(std::vector<uint64_t> samples) { // of at least one; of an even number the lower
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>((samples.size() - 1) / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

// At least kLeastRepetitions samples, and the medians of both their halves are within kSettledWithin of that of all.
inline bool settled(absl::Span<const uint64_t> samples) {
  if (samples.size() < kLeastRepetitions)
    return false;
  const auto median = [](absl::Span<const uint64_t> part) {
    return static_cast<double>(medianOf({part.begin(), part.end()}));
  };
  const size_t middle = samples.size() / 2;
  const double all = median(samples);
  for (const double half : {median(samples.first(middle)), median(samples.subspan(middle))})
    if (half < all * (1 - kSettledWithin) || half > all * (1 + kSettledWithin))
      return false;
  return true;
}

} // namespace headrace::profile
