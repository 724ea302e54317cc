// SPDX-License-Identifier: Apache-2.0
//
// The largest batch that would do: what `headrace bench --fill` gives every policy.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/statusor.h"

namespace headrace::tools {

// The largest batch from 1 to `most` for which `holds` says yes, none if it says so for no power of two (nor `most`).
// What holds need not be a range (a small batch may compute too little to hide a copy that a larger one hides): all
// powers of two are asked, and above the largest that holds the rest is halved until what is left is at most a
// sixteenth of the batch. About log2(most) + 4 questions, each asked once. A failure of `holds` ends the search.
absl::StatusOr<std::optional<int64_t>> largestBatch(int64_t most,
                                                    const std::function<absl::StatusOr<bool>(int64_t batch)> &holds);

} // namespace headrace::tools
