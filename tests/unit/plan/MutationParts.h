// SPDX-License-Identifier: Apache-2.0
//
// What mutations are made of: chance, and where in a schedule a change may be made.
#pragma once

#include <algorithm>
#include <tuple>
#include <vector>

#include "tests/unit/plan/Mutations.h"

namespace headrace::plan::test {

// Not std::uniform_int_distribution, whose numbers differ between libraries.
inline uint64_t below(Random &random, uint64_t n) { return random() % n; }
template <typename T> T &pick(Random &random, std::vector<T> &of) { return of[below(random, of.size())]; }
inline bool coin(Random &random) { return below(random, 2) == 0; }

// Up or down by 1 to `most` times `unit`; never below 0.
inline uint64_t moved(Random &random, uint64_t from, uint64_t unit, uint64_t most) {
  const uint64_t by = unit * (1 + below(random, most));
  return coin(random) && from >= by ? from - by : from + by;
}

inline void sortEdges(Schedule &s) {
  std::sort(s.edges.begin(), s.edges.end(),
            [](const Edge &a, const Edge &b) { return std::tie(a.to, a.from) < std::tie(b.to, b.from); });
}

} // namespace headrace::plan::test
