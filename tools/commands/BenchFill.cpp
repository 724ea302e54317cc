// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/BenchFill.h"

#include <algorithm>

namespace headrace::tools {

absl::StatusOr<std::optional<int64_t>> largestBatch(int64_t most,
                                                    const std::function<absl::StatusOr<bool>(int64_t batch)> &holds) {
  std::optional<int64_t> best;
  int64_t missed = most + 1; // the least asked above `best` that does not hold
  for (int64_t batch = 1; most >= 1;) {
    const absl::StatusOr<bool> held = holds(batch);
    if (!held.ok())
      return held.status();
    if (*held) {
      best = batch;
      missed = most + 1;
    } else if (best) {
      missed = std::min(missed, batch);
    }
    if (batch == most)
      break;
    batch = std::min(batch * 2, most);
  }
  while (best && missed - *best > std::max<int64_t>(1, *best / 16)) {
    const int64_t middle = *best + (missed - *best) / 2;
    const absl::StatusOr<bool> held = holds(middle);
    if (!held.ok())
      return held.status();
    (*held ? *best : missed) = middle;
  }
  return best;
}

} // namespace headrace::tools
