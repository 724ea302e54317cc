// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/lm_offload/PoolThreads.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/base/Text.h"

namespace headrace::cost {

absl::StatusOr<int64_t> poolThreads(absl::Span<const ThreadTime> record, int64_t cores) {
  if (cores < 1)
    return absl::InvalidArgumentError(model::cat(cores, " cores: expected at least 1"));
  double best = std::numeric_limits<double>::infinity();
  int64_t before = 0;
  for (const ThreadTime &time : record) {
    if (time.threads <= before)
      return absl::InvalidArgumentError(
          model::cat("a record of ", time.threads, " threads behind ", before, ": expected ascending numbers"));
    if (!(time.ns > 0 && std::isfinite(time.ns)))
      return absl::InvalidArgumentError(
          model::cat(time.ns, " ns of ", time.threads, " threads: expected a positive time"));
    before = time.threads;
    if (time.threads <= cores)
      best = std::min(best, time.ns);
  }
  for (const ThreadTime &time : record)
    if (time.threads <= cores && time.ns <= best * (1 + kPoolSlack))
      return time.threads;
  return cores;
}

} // namespace headrace::cost
