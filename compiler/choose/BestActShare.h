// SPDX-License-Identifier: Apache-2.0
//
// The share of a sequence's blocks that keeps activations with which an iteration takes the least: as the link brings
// less and the device computes more with each of them, it is the one where both take the same (HybridServe, 4.3: the
// aim of Algorithm 1), or as near to that as something else lets it come, which is named.
//
// Shares are 64ths. First none, which all others are held against, and the one that Algorithm 1 starts with; then from
// the best of them on towards where both lanes take the same, by the lines through what was tried, until the next 64th
// there is no shorter. So it is the best of all 65 where both lanes are lines and hide each other; where what was found
// waits for other things, the quarters are tried as well.
//
//   share     0     1/2   35/64  9/16
//   link      6.0   5.5   4.91   4.88     from 1/2 on: 0 and 1/2 make lines that cross at 35.5 64ths
//   compute   0.5   4.5   4.88   5.0
//   takes     6.0   5.5   4.91   5.0      35/64 it is
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "absl/status/statusor.h"
#include "runtime/cost/HybridServe.h"

namespace headrace::compiler {

inline constexpr int64_t kActShareParts = 64;

struct ShareTimes {
  uint64_t iterationNs = 0;           // what is to be least
  uint64_t computeNs = 0, linkNs = 0; // each lane alone
};

struct ActShareChoice {
  int64_t part = 0;                                    // of kActShareParts; of several the smallest
  std::map<int64_t, absl::StatusOr<ShareTimes>> tried; // by part; kResourceExhausted where memory does not hold it
  cost::Binding binding = cost::Binding::kBalanced;    // or what keeps the lanes from it
};

// `timesOf` compiles with a share. kResourceExhausted says that memory does not hold it, any other error ends the
// search; where none of those tried is held, the refusal that asks for the least memory. `start` is asked for once the
// share of none was tried: a part from 0 to kActShareParts, or nothing.
absl::StatusOr<ActShareChoice> bestActShare(const std::function<absl::StatusOr<ShareTimes>(int64_t part)> &timesOf,
                                            const std::function<std::optional<int64_t>()> &start);

} // namespace headrace::compiler
