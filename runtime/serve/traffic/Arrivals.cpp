// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/traffic/Arrivals.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "runtime/serve/traffic/Random.h"

namespace headrace::serve {
namespace {

constexpr double kLatestNs = 0x1p62;

absl::Status refuse(const std::string &message) { return absl::InvalidArgumentError(message); }

} // namespace

absl::StatusOr<std::vector<int64_t>> arrivalTimes(const ArrivalProcess &process, int64_t count, uint64_t seed) {
  const double rate = process.requestRate, burstiness = process.burstiness;
  if (!(rate > 0))
    return refuse(absl::StrCat("request rate = ", rate, ", expected requests per second above zero, or inf"));
  if (!(burstiness > 0))
    return refuse(absl::StrCat("burstiness = ", burstiness, ", expected a number above zero"));
  if (count < 1)
    return refuse(absl::StrCat("number of requests = ", count, ", expected at least 1"));
  std::vector<int64_t> times(static_cast<size_t>(count), 0);
  if (std::isinf(rate))
    return times;
  Random random(seed, Stream::Arrivals);
  double ns = 0;
  for (int64_t &time : times) {
    const double gap = std::isinf(burstiness) ? 1 : random.gamma(burstiness) / burstiness;
    ns += gap / rate * 1e9;
    if (!(ns < kLatestNs))
      return refuse(absl::StrCat("request rate = ", rate, ": the last of ", count, " requests would come after ",
                                 static_cast<int64_t>(kLatestNs / 1e9), " s"));
    time = std::llround(ns);
  }
  return times;
}

} // namespace headrace::serve
