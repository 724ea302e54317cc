// SPDX-License-Identifier: Apache-2.0
//
// KV caches that the device does not hold, swapped layer by layer (Pie): how many layers' caches it has places for.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "compiler/evaluate/Iterations.h"
#include "compiler/search/GeneratorInputs.h"

namespace headrace::compiler {

// Of as many sequences as decode together, with all blocks in use: a layer's compute, and its cache on the link, each
// direction as it is while the other is busy too. Nanoseconds.
struct SwapTimes {
  uint64_t computeNs = 0, inNs = 0, outNs = 0;
  // Each direction alone, and of its rate what it has while the other is busy too, in thousandths.
  uint64_t inAloneNs = 0, outAloneNs = 0;
  int64_t both = 1000;
  // In layers' compute, whole ones, while both directions are busy: swaps begin when a layer does.
  algorithms::SwapVisits visits() const;
};
// Of caches of so many blocks.
SwapTimes swapTimes(const GeneratorInputs &inputs, const std::vector<PricedStep> &steps, Prices &prices,
                    int64_t blocks);

// A layer's cache of so many blocks: the bytes of a place.
uint64_t placeBytes(const Target &target, int64_t blocks);
// What places may take of the device, where that is stated: all that KV may; two places where no block is to stay.
std::optional<uint64_t> placesMemory(const GeneratorInputs &inputs);

// Of these candidates, the first of which offloads least, the first that leaves room for two places: with the most
// places that fit, or so many as are stated, then with fewer.
struct SwappedCaches {
  std::vector<Candidate> candidates;
  int64_t most = 0;             // places that there would be room for; 0: not for two, by arithmetic
  std::vector<Candidate> least; // where there is not: each with the fewest places
};
SwappedCaches swappedCaches(const GeneratorInputs &inputs, const std::vector<Candidate> &candidates,
                            algorithms::SwapVisits visits);

// Where the expansion is found while the plan runs (Pie, sections 3.4 and 4.1): what there is of the device for KV is
// shared out among ever fewer places, which are ever larger, and so are all layers' caches.
//
//   of 40 layers, 4,000 blocks     40 at home   36 places   31      20
//   blocks of each layer's cache       100          111     129     200      expansion 1, 1.1, 1.3, 2
//
// With these weights away, fewest blocks first, each as much larger than the one before: at most kMostExpansions, none
// that has not got the blocks of one sequence. Empty: `bytes` do not hold one.
inline constexpr size_t kMostExpansions = 8;
std::vector<Candidate> swapsByExpansion(const GeneratorInputs &inputs, const Candidate &weights, uint64_t bytes,
                                        const std::function<algorithms::SwapVisits(int64_t blocks)> &visitsOf);

} // namespace headrace::compiler
