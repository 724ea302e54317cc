// SPDX-License-Identifier: Apache-2.0
//
// The share of a sequence's blocks that keeps activations with which an iteration takes the least: as the link brings
// less and the device computes more with each of them, it is the one where both take the same (HybridServe, 4.3: the
// aim of Algorithm 1), or as near to that as something else lets it come, which is named.
//
// Shares are 64ths. First the quarters, then from the best of them towards where both lanes take the same by 8, 4, 2
// and 1, each as long as it makes the iteration shorter: about ten of 65 are asked for.
//
//   share     0     1/4   1/2   3/4   1      5/8    9/16   17/32  35/64
//   link      6.0   5.5   5.0   4.5   4.0    4.75   4.88   4.94   4.91
//   compute   0.5   2.5   4.5   6.5   8.5    5.5    5.0    4.75   4.88
//   takes     6.0   5.5   5.0   6.5   8.5    5.5    5.0    4.94   4.91     which it is
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace headrace::compiler {

inline constexpr int64_t kActShareParts = 64;

struct ShareTimes {
  uint64_t iterationNs = 0;           // what is to be least
  uint64_t computeNs = 0, linkNs = 0; // each lane alone
};

struct ActShareChoice {
  int64_t part = 0;                                   // of kActShareParts; of several the smallest
  std::map<int64_t, std::optional<ShareTimes>> tried; // by part; none where memory does not hold it
  // "both within 5% of each other", or what keeps them from it.
  std::string binding;
};

// `timesOf` compiles with a share. kResourceExhausted says that memory does not hold it, any other error ends the
// search; kResourceExhausted, the first one's, where none of those tried is held.
absl::StatusOr<ActShareChoice> bestActShare(const std::function<absl::StatusOr<ShareTimes>(int64_t part)> &timesOf);

} // namespace headrace::compiler
