// SPDX-License-Identifier: Apache-2.0
//
// Which batch, where a request leaves that open: the one that makes the most tokens a second, or the largest that
// holds.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

namespace headrace::compiler {

struct BatchRate {
  int64_t batch = 0;
  double tokensPerSecond = 0; // 0: memory does not hold it, or the objectives are missed
};

// What is tried of 1 to `most` to find the highest rate, in this order: halves until two in a row are worse than the
// best, then the middle between the best and those tried beside it, down to an eighth of it. Some log2(most) + 8 of
// them.
//
//   up to 64     64: 64    32: 96    16: 88    8: 80    48: 80    24: 96    40: 88    28: 100    30: 98    26: 98
std::vector<BatchRate> triedBatches(int64_t most, const std::function<double(int64_t batch)> &rate);
// The best of them; of equals, to a thousandth, the smallest. `tried`: at least one.
BatchRate bestBatch(const std::vector<BatchRate> &tried);

// The largest batch from 1 to `most` for which `holds` says yes, none if it says so for no power of two (nor `most`).
// What holds need not be a range (a small batch may compute too little to hide a copy that a larger one hides): all
// powers of two are asked, and above the largest that holds the rest is halved until what is left is at most a
// sixteenth of the batch. About log2(most) + 4 questions, each asked once. A failure of `holds` ends the search.
absl::StatusOr<std::optional<int64_t>> largestBatch(int64_t most,
                                                    const std::function<absl::StatusOr<bool>(int64_t batch)> &holds);

} // namespace headrace::compiler
