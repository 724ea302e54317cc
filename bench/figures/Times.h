// SPDX-License-Identifier: Apache-2.0
//
// What the times of steps come to: how much of two lanes is beside each other, and how much layers vary.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/figures/Report.h"

namespace headrace::bench {

struct Interval {
  int64_t begin = 0, end = 0;
};
// The same time as disjoint intervals in ascending order.
std::vector<Interval> united(std::vector<Interval> list);
int64_t length(const std::vector<Interval> &united);
// Of what both of two united lists cover.
int64_t common(const std::vector<Interval> &a, const std::vector<Interval> &b);

// Times of each layer in each iteration, [iteration][layer]: by how much a layer's time exceeds its own median, and how
// far layers' medians lie apart.
struct Spread {
  double medianUs = 0;             // the median of layers' medians
  double p99 = 0, worst = 0;       // over all layers and iterations: time / the layer's median, 99% and the most
  double worstLayerP99 = 0;        // of the layer whose own p99 / median is the largest
  double slowest = 0;              // the slowest layer's median / medianUs
  double sumP99 = 0, sumWorst = 0; // of the sum over layers: iteration / median iteration
};
Spread spreadOf(const std::vector<std::vector<double>> &us);

} // namespace headrace::bench
