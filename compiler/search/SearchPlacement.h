// SPDX-License-Identifier: Apache-2.0
//
// The placement that frees the most device memory within latency objectives: single units, the size of the ring they go
// through and the cut of wrap-around, searched together (passes/algorithms/SearchUnits.h), for one model on one device.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/choice/Candidate.h"
#include "compiler/choice/CompileRequest.h"
#include "compiler/choice/Resolve.h"
#include "compiler/evaluate/Prices.h"
#include "passes/algorithms/SearchChain.h"
#include "passes/algorithms/SearchFastest.h"

namespace headrace::compiler {

// A bucket and how long its iteration may take.
struct BucketGoal {
  cost::Bucket bucket;
  uint64_t sloNs = 0; // TPOT for decode iterations, TTFT or TPOT for mixed ones
};

struct SearchRequest {
  const model::ModelSpec *model = nullptr;
  const model::WeightLayout *layout = nullptr;
  const Target *target = nullptr;
  model::DeviceKind deviceKind = model::DeviceKind::Host;
  // What the placement must serve; at least one in all. A plan serves more buckets than have goals: leave out those
  // whose time nobody asks for.
  std::vector<BucketGoal> decode, mixed;
  // Beside what the search decides: the embedding (its rows are read over the link; counted as freed and not as moved).
  // With tied embeddings it is the head's operand, and this has no meaning.
  bool embedding = false;
  bool head = true;                                          // whether a head that is not tied may be offloaded
  std::vector<int32_t> only;                                 // units; if not empty, no others may be
  uint64_t mostBytes = std::numeric_limits<uint64_t>::max(); // offloaded units' at most, the embedding's not counted
};

// Without buckets: of what a request leaves to choose, and the host holds. `embedding`: may it be away.
SearchRequest searchRequestOf(const CompileRequest &request, const model::WeightLayout &layout, const Target &target,
                              bool embedding);

// What keeps a placement from moving more.
enum class SearchBound : uint8_t {
  Weights, // the link could bring all that there is
  Unit,    // in what is left of the time it brings no further unit: a smaller one than there is
  Link,    // it is busy for 97% of the time: what is left is the start-up of copies of smaller units
  Host,    // what may be offloaded (SearchRequest::mostBytes) holds no further unit
  Ring,    // it idles, while long steps compute or for want of a unit that fits: a larger ring takes what it would free
};

// What a placement moves in each iteration, of what the link can bring within the shortest goal.
struct LinkUse {
  uint64_t movedBytes = 0; // host to device: the offloaded units
  uint64_t limitBytes = 0; // of layers' units, each with the start-up of its copy
  SearchBound bound = SearchBound::Link;
  bool full() const { return static_cast<double>(movedBytes) >= 0.97 * static_cast<double>(limitBytes); }
};

struct SearchedPlacement {
  // Rule eager with wrap-around, one ring, both cuts set for the classes asked for; `none` (offloadsNothing()) where
  // nothing frees memory within the goals. Compiled, it has slots of exactly ringBytes and the times predicted here, as
  // sim plays them: to the nanosecond, or a little less where only a part of a unit is copied ahead.
  Candidate candidate;
  LinkUse link;
  uint64_t ringBytes = 0;
  uint64_t freedBytes = 0;                 // moved - ring, and the embedding's where it is away
  std::vector<uint64_t> decodeNs, mixedNs; // predicted, in the order of the goals
};

// What algorithms::searchUnits is asked for a request, and which unit each index is.
struct PlacementProblem {
  algorithms::UnitProblem problem; // copyNs asks the prices, which must outlive it
  std::vector<int32_t> units;
};
absl::StatusOr<PlacementProblem> placementProblem(const SearchRequest &request, Prices &prices);

// Of a placement of these units, whichever way it was found.
absl::StatusOr<LinkUse> linkUse(const SearchRequest &request, const std::vector<int32_t> &units, Prices &prices);

// Guarantees: every goal is met by the predicted times; the same request gives the same placement; freedBytes is never
// less than that of any number of whole layers spread evenly with a ring. ResourceExhausted, with the bucket, its goal
// and the least time there is, where a bucket misses its goal with nothing offloaded.
absl::StatusOr<SearchedPlacement> searchPlacement(const SearchRequest &request, Prices &prices);

// The other way round: the placement that frees at least `leastFreed` bytes with all goals missed (or undercut) by the
// least common factor, which is `factor`: with goals that are resident times the smallest slowdown for so much memory.
// ResourceExhausted, with the most that can be freed, where all layers and the head away free less.
struct FastestSearched {
  double factor = 1;
  SearchedPlacement placement;
};
absl::StatusOr<FastestSearched> searchFastest(const SearchRequest &request, uint64_t leastFreed, Prices &prices);

// Placements for several goals at once, from the tightest to the loosest, whose units are nested: each offloads all
// that the one before does. A step's factor multiplies every goal of the request (1.0, 1.2, 1.5: the request's goals,
// then looser ones), its bytes are the most that its units may have; neither falls from step to step. With leastFreed a
// step stops at so much freed, if it can have it, and is not nested where it then has less. Where nesting
// would free less than a search for the goal alone by over `mostLoss` (and by over the smallest unit), the chain is
// broken: `nested` is false there. Goals at the beginning that cannot be met are ResourceExhausted as of
// searchPlacement(). Takes about as long as (n + 1) n / 2 searches.
struct ChainedPlacement {
  SearchedPlacement placement;
  bool nested = true; // offloads all that the one before does; the first always
  double share = 1;   // of what a search for this goal alone frees
};
struct ChainStep {
  ChainStep(double factor, uint64_t mostBytes = std::numeric_limits<uint64_t>::max(), uint64_t leastFreed = 0)
      : factor(factor), mostBytes(mostBytes), leastFreed(leastFreed) {}
  double factor;
  uint64_t mostBytes, leastFreed;
};
absl::StatusOr<std::vector<ChainedPlacement>>
searchChain(const SearchRequest &request, const std::vector<ChainStep> &steps, Prices &prices, double mostLoss = 0.02);

} // namespace headrace::compiler
