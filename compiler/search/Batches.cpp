// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/Batches.h"

#include <algorithm>
#include <cstdlib>

#include "compiler/search/Space.h"

namespace headrace::compiler {
namespace {

constexpr int64_t kFinest = 8; // what is left around the best is halved down to such a part of it

double rateOf(const std::vector<BatchRate> &tried, int64_t batch) {
  const auto found = std::find_if(tried.begin(), tried.end(), [&](const BatchRate &one) { return one.batch == batch; });
  return found == tried.end() ? 0 : found->tokensPerSecond;
}

} // namespace

std::vector<BatchRate> triedBatches(int64_t most, const std::function<double(int64_t batch)> &rate) {
  std::vector<BatchRate> tried;
  const auto attempt = [&](int64_t batch) { return tried.emplace_back(batch, rate(batch)).tokensPerSecond; };
  double best = 0;
  for (int64_t batch = most, worse = 0; batch >= 1 && worse < 2; batch /= 2) {
    const double of = attempt(batch);
    worse = best > 0 && of <= best ? worse + 1 : 0;
    best = std::max(best, of);
  }
  if (best == 0)
    return tried;
  // On both sides of the best the half to the next that was tried, as long as one of them is better, then nearer.
  int64_t at = bestBatch(tried).batch;
  const auto next = [&](bool above) { // none: the range ends here
    int64_t found = above ? most + 1 : 0;
    for (const BatchRate &one : tried)
      if (above ? one.batch > at && one.batch < found : one.batch < at && one.batch > found)
        found = one.batch;
    return found;
  };
  for (bool halved = true; halved;) {
    halved = false;
    for (const bool above : {true, false}) {
      const int64_t gap = std::abs(next(above) - at);
      if (gap * kFinest <= at || gap < 2 || (above && next(above) > most))
        continue;
      halved = true;
      const int64_t middle = above ? at + gap / 2 : at - gap / 2;
      if (attempt(middle) > rateOf(tried, at)) {
        at = middle;
        break;
      }
    }
  }
  return tried;
}

BatchRate bestBatch(const std::vector<BatchRate> &tried) {
  BatchRate best = tried.front();
  for (const BatchRate &one : tried)
    if (one.tokensPerSecond > best.tokensPerSecond)
      best = one;
  for (const BatchRate &one : tried)
    if (one.batch < best.batch && one.tokensPerSecond >= best.tokensPerSecond * (1 - kTie))
      best = one;
  return best;
}

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

} // namespace headrace::compiler
