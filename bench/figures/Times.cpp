// SPDX-License-Identifier: Apache-2.0
#include "bench/figures/Times.h"

#include <algorithm>
#include <numeric>

namespace headrace::bench {

std::vector<Interval> united(std::vector<Interval> list) {
  std::sort(list.begin(), list.end(), [](const Interval &a, const Interval &b) { return a.begin < b.begin; });
  std::vector<Interval> out;
  for (const Interval &one : list)
    if (!out.empty() && one.begin <= out.back().end)
      out.back().end = std::max(out.back().end, one.end);
    else
      out.push_back(one);
  return out;
}

int64_t length(const std::vector<Interval> &united) {
  return std::accumulate(united.begin(), united.end(), int64_t{0},
                         [](int64_t sum, const Interval &one) { return sum + one.end - one.begin; });
}

int64_t common(const std::vector<Interval> &a, const std::vector<Interval> &b) {
  int64_t sum = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    sum += std::max<int64_t>(0, std::min(a[i].end, b[j].end) - std::max(a[i].begin, b[j].begin));
    a[i].end < b[j].end ? ++i : ++j;
  }
  return sum;
}

Spread spreadOf(const std::vector<std::vector<double>> &us) {
  Spread spread;
  if (us.empty() || us.front().empty())
    return spread;
  std::vector<double> medians, ratios, sums;
  for (size_t layer = 0; layer < us.front().size(); ++layer) {
    std::vector<double> times;
    for (const std::vector<double> &iteration : us)
      times.push_back(iteration[layer]);
    const double own = median(times);
    medians.push_back(own);
    for (double &time : times)
      time = own > 0 ? time / own : 0;
    spread.worstLayerP99 = std::max(spread.worstLayerP99, quantile(times, 0.99));
    ratios.insert(ratios.end(), times.begin(), times.end());
  }
  for (const std::vector<double> &iteration : us)
    sums.push_back(std::accumulate(iteration.begin(), iteration.end(), 0.0));
  spread.medianUs = median(medians);
  spread.p99 = quantile(ratios, 0.99);
  spread.worst = quantile(ratios, 1);
  spread.slowest = spread.medianUs > 0 ? quantile(medians, 1) / spread.medianUs : 0;
  const double sum = median(sums);
  spread.sumP99 = sum > 0 ? quantile(sums, 0.99) / sum : 0;
  spread.sumWorst = sum > 0 ? quantile(sums, 1) / sum : 0;
  return spread;
}

} // namespace headrace::bench
