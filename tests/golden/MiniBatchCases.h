// SPDX-License-Identifier: Apache-2.0
//
// Golden models whose layers are passed for several mini-batches in one iteration: how many of them, and how their
// caches lie and their rows get home (WriteBackCases.h), weights away as well.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/golden/WriteBackCases.h"
#include "tests/support/LongRun.h"

namespace headrace::golden {

struct MiniBatchCase {
  int64_t miniBatches = 1;
  SplitCase split;
  bool residualsLeave = false; // between layers
};

inline std::ostream &operator<<(std::ostream &out, const MiniBatchCase &c) {
  return out << c.miniBatches << " mini-batches, residuals " << (c.residualsLeave ? "leave, " : "stay, ") << c.split;
}

// Of each mini-batch, where there are `prompts` prompts for all of them, or one for each.
inline int64_t sequencesOfOne(size_t prompts, int64_t miniBatches) {
  return std::max(int64_t{1}, static_cast<int64_t>(prompts) / miniBatches);
}

// As many of `all` as the mini-batches take, the last of them, which are the longest; from the first one on again where
// there are too few.
template <typename T> std::vector<T> forMiniBatches(const std::vector<T> &all, int64_t miniBatches) {
  std::vector<T> out;
  const int64_t sequences = miniBatches * sequencesOfOne(all.size(), miniBatches);
  const int64_t skipped = std::max(int64_t{0}, static_cast<int64_t>(all.size()) - sequences);
  for (int64_t i = 0; i < sequences; ++i)
    out.push_back(all[static_cast<size_t>(skipped + i) % all.size()]);
  return out;
}

// KV blocks of each mini-batch's cache: the scratch block, and `ofOne` for each of its sequences.
inline int64_t blocksOfCache(size_t prompts, int64_t miniBatches, int64_t ofOne) {
  return 1 + sequencesOfOne(prompts, miniBatches) * ofOne;
}

// One to four mini-batches, each with all on the device, one layer in two away, and the cases of WriteBackCases.h: with
// HEADRACE_LONG all of them, else one in three. Residuals leave in half of them.
inline std::vector<MiniBatchCase> miniBatchCases(const std::string &model, size_t prompts, int64_t blocksOfOne,
                                                 int64_t mixedTokens, bool poison, int64_t oneIn) {
  std::vector<MiniBatchCase> out;
  for (int64_t m = 1; m <= 4; ++m) {
    const int64_t blocks = blocksOfCache(prompts, m, blocksOfOne);
    out.push_back({m, {.resident = blocks, .poison = poison}});
    out.push_back({m, {.resident = blocks, .interval = 2, .poison = poison}});
    out.push_back({m, {.resident = blocks, .poison = poison}, true});
    out.push_back({m, {.resident = blocks, .interval = 1, .poison = poison}, true});
    int64_t next = m, taken = 0;
    for (const SplitCase &c : writeBackCases(model + std::to_string(m), blocks, mixedTokens, poison, oneIn))
      if (longRun() || next++ % 3 == 0)
        out.push_back({m, c, taken++ % 2 == 0});
  }
  return out;
}

inline RunSetup withCase(RunSetup setup, const MiniBatchCase &c, int64_t blocks) {
  setup.miniBatches = c.miniBatches;
  setup.residualsLeave = c.residualsLeave;
  setup.prompts = forMiniBatches(setup.prompts, c.miniBatches);
  return withCase(std::move(setup), c.split, blocks);
}

} // namespace headrace::golden
