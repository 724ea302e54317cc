// SPDX-License-Identifier: Apache-2.0
//
// Golden models whose layers are passed for several mini-batches in one iteration: how many of them, and how their
// caches lie and their rows get home (WriteBackCases.h), weights away as well.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "passes/algorithms/RotatePlaces.h"
#include "runtime/plan/value/Plan.h"
#include "tests/golden/WriteBackCases.h"
#include "tests/support/LongRun.h"

namespace headrace::golden {

struct MiniBatchCase {
  int64_t miniBatches = 1;
  SplitCase split;
  bool residualsLeave = false; // between layers
  int64_t places = 0;          // that tails rotate through, one of each layer and mini-batch; 0: slots
};

inline std::ostream &operator<<(std::ostream &out, const MiniBatchCase &c) {
  return out << c.miniBatches << " mini-batches, residuals " << (c.residualsLeave ? "leave, " : "stay, ") << c.places
             << " places, " << c.split;
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

// Two to four mini-batches whose tails rotate through places, in every way to write back: with HEADRACE_LONG through
// all numbers of places that a plan can have, else one that is drawn for each.
inline std::vector<MiniBatchCase> rotatingMiniBatchCases(const std::string &model, int64_t layers, size_t prompts,
                                                         int64_t blocksOfOne, int64_t mixedTokens, bool poison) {
  std::vector<MiniBatchCase> out;
  std::seed_seq seed(model.begin(), model.end());
  std::mt19937_64 random(seed);
  for (int64_t m = 2; m <= 4; ++m) {
    std::vector<int64_t> places;
    for (int64_t p = 2; p < m * layers; ++p)
      if (algorithms::rotationPeriod(m * layers, p) <= plan::kMostPhases)
        places.push_back(p);
    const auto drawn = static_cast<size_t>(random() % places.size());
    const auto way = static_cast<algorithms::WriteBack>(random() % 3);
    for (size_t i = 0; i < places.size(); ++i)
      for (const algorithms::WriteBack back :
           {algorithms::WriteBack::Mirror, algorithms::WriteBack::All, algorithms::WriteBack::Dirty}) {
        const auto of = random();
        if (longRun() ? of % 4 == 0 || i == drawn : i == drawn && back == way)
          out.push_back({m,
                         {.resident = static_cast<int64_t>(of % 3) * blocksOfCache(prompts, m, blocksOfOne) / 4,
                          .interval = static_cast<int64_t>(of / 3 % 3),
                          .mixedTokens = of % 5 < 2 ? mixedTokens : 0,
                          .poison = poison,
                          .decode = back,
                          .mixed = back},
                         false,
                         places[i]});
      }
  }
  return out;
}

inline RunSetup withCase(RunSetup setup, const MiniBatchCase &c, int64_t blocks) {
  setup.miniBatches = c.miniBatches;
  setup.residualsLeave = c.residualsLeave;
  setup.prompts = forMiniBatches(setup.prompts, c.miniBatches);
  setup = withCase(std::move(setup), c.split, blocks);
  if (c.places > 0)
    setup.placement->residency.kv().setPlaces(c.places);
  return setup;
}

} // namespace headrace::golden
