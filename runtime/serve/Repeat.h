// SPDX-License-Identifier: Apache-2.0
//
// How often a measurement is repeated: until its median no longer moves, or its time is used up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace headrace::serve {

inline constexpr size_t kLeastRepetitions = 5;
inline constexpr double kSettledWithin = 0.01;

inline uint64_t medianOf(std::vector<uint64_t> samples) { // of at least one; of an even number the lower
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>((samples.size() - 1) / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

// At least kLeastRepetitions samples, the median of whose later half is within kSettledWithin of the median of all.
inline bool settled(absl::Span<const uint64_t> samples) {
  if (samples.size() < kLeastRepetitions)
    return false;
  const auto all = static_cast<double>(medianOf({samples.begin(), samples.end()}));
  const auto half = samples.subspan(samples.size() / 2);
  const auto later = static_cast<double>(medianOf({half.begin(), half.end()}));
  return later >= all * (1 - kSettledWithin) && later <= all * (1 + kSettledWithin);
}

} // namespace headrace::serve
