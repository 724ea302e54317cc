// SPDX-License-Identifier: Apache-2.0
//
// The choice by latency: for every bucket the placement that frees the most device memory while the iteration, as the
// simulator plays it, meets the bucket's objective and the placement fits the memory.
//
//   freed = bytes of offloaded weights, and of KV blocks at home on the host - bytes of slots
//
//   placement   freed   decode   prompts        objectives: decode 12 ms, prompts 50 ms
//   none          0      10 ms    40 ms
//   a             4      11 ms    45 ms         decode takes a
//   b             9      15 ms    48 ms         prompts take b; in one placement for both: a
//
// Where a plan may have fewer placements than that takes, buckets go to others that hold them, so that as little as
// can be of what is freed is lost. Where one instance serves all buckets and a change between two placements would
// keep a sequence waiting for too long, one placement serves all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include "compiler/search/Objective.h"

namespace headrace::compiler {

// A placement of a range: within this time, moving at most these bytes; freeing these, if not 0, and no more.
struct RangeStep {
  uint64_t sloNs = 0;
  uint64_t mostBytes = 0;
  uint64_t leastFreed = 0;
};

// Placements by number: first those there are to choose from, then what is found. Of what they come to only what is
// asked for is worked out, once. Times by bucket.
class Choosable {
public:
  virtual ~Choosable() = default;
  virtual size_t stated() const = 0; // that there are from the beginning; the first offloads the least
  // Bytes that it frees; where the stated ones are in order a figure that falls, each being better than those behind
  // it.
  virtual int64_t freed(size_t placement) = 0;
  virtual bool offloadsNothing(size_t placement) = 0;
  virtual uint64_t heldBytes(size_t placement) = 0; // of the device, at least
  virtual uint64_t needBytes(size_t placement) = 0; // the same by sums, at most
  virtual uint64_t bytes(size_t placement) = 0;     // of the device, packed
  virtual bool fits(size_t placement, uint64_t deviceMemory) = 0;
  virtual uint64_t movedBytes(size_t placement) = 0; // host to device, in an iteration
  virtual uint64_t copiesNs(size_t placement) = 0;   // of these, alone: no iteration is shorter
  virtual uint64_t ns(size_t placement, size_t bucket) = 0;
  // The longest gap before the tokens of a bucket where this placement serves all of them; 0 for those with prompts.
  virtual uint64_t gapNs(size_t placement, size_t bucket) = 0;
  // The placement that frees the most with each bucket within so long; 0: it may take as long as it takes. None:
  // nothing is within that, or nothing is searched.
  virtual std::optional<size_t> search(const std::vector<uint64_t> &sloNs) = 0;
  virtual bool searches() const = 0;
  // Placements for the bucket, one a step (which do not fall), nested where that frees as much; none offloads what
  // `within` does not, if it is one. Empty: no such thing.
  virtual std::vector<size_t> chain(size_t bucket, const std::vector<RangeStep> &steps,
                                    std::optional<size_t> within) = 0;
  // The same placement whose prompts leave the ring as decode finds it; none if it is such a one, or has no ring.
  virtual std::optional<size_t> inOneCut(size_t placement) = 0;
};

class MostFreed {
public:
  static constexpr uint64_t kAnyMemory = std::numeric_limits<uint64_t>::max();
  static constexpr uint64_t kLongestNs = 1'000'000'000'000'000; // as long as an objective may be
  // Decides in place of the time whether a placement meets a bucket's objective (FlexGen's own estimate).
  using Opinion = std::function<bool(size_t placement, const Objective &)>;

  // `gaps`: a placement that serves all buckets holds its gaps to the objectives, too.
  MostFreed(Choosable &from, std::vector<Objective> buckets, bool gaps, Opinion opinion = nullptr);
  // The same of other objectives: what was found for these is not there.
  MostFreed withObjectives(std::vector<Objective> buckets) const;

  const std::vector<Objective> &buckets() const { return buckets_; }
  size_t decisive() const { return decisive_; }
  Choosable &from() const { return from_; }
  bool gaps() const { return gaps_; }
  const std::vector<size_t> &among() const { return among_; } // stated, and found for these objectives
  void add(size_t placement);
  void roughly() { closely_ = false; } // that one placement holds all buckets is enough, whether or not one frees more

  // For each bucket with an objective; none where it cannot be met.
  std::vector<std::optional<size_t>> forEach(uint64_t deviceMemory);
  // Of those that meet the bucket's objective the one that frees the most; of equals the fastest.
  std::optional<size_t> forBucket(size_t bucket, uint64_t deviceMemory);
  // One for all buckets, gaps between their tokens included.
  std::optional<size_t> forAll(uint64_t deviceMemory);
  // The least device memory with which there is one for all.
  std::optional<uint64_t> leastBytesForAll();
  // As policies without a latency objective choose.
  std::optional<size_t> firstThatFits(uint64_t deviceMemory);

  // At most `most` placements: takes away the one whose buckets lose the least of what is freed by going to another
  // that holds them, as long as there is one; what the decisive bucket has stays, but for one that holds all. False:
  // the objectives need more.
  bool reduce(std::vector<std::optional<size_t>> &of, size_t most, uint64_t deviceMemory);
  static size_t countOf(const std::vector<std::optional<size_t>> &of); // placements

  uint64_t ns(size_t placement, size_t bucket);
  size_t played() const { return played_.size(); } // placements, for these objectives
  bool meets(size_t placement, size_t bucket, uint64_t deviceMemory);
  // What the search finds that meets an objective once it is played, where `holds` says so: the search knows what steps
  // take alone, so where they disturb each other it is asked again, for as much less as was missed. Null: all hold.
  std::optional<size_t> searchWithin(size_t bucket, uint64_t sloNs, const std::function<bool(size_t)> &holds);
  // In an order, of equals the earlier first.
  std::vector<size_t> byFreed() const; // from the most
  std::vector<size_t> byBytes() const;
  std::vector<size_t> byCopies() const;

private:
  bool meetsAll(size_t placement, uint64_t deviceMemory);
  bool holdsAll(size_t placement, uint64_t deviceMemory);
  // The placement, or it in one cut, that holds all.
  std::optional<size_t> formThatHoldsAll(size_t placement, uint64_t deviceMemory);
  std::vector<uint64_t> missedTogether(size_t placement); // by bucket, in one placement for all; 0: held
  // What a search finds that holds all; asked again for as much less as was missed.
  void searchForAll();
  std::optional<size_t> mostFreedForAll(const std::vector<std::optional<size_t>> &of, uint64_t deviceMemory);

  Choosable &from_;
  std::vector<Objective> buckets_; // decode, then mixed
  bool gaps_ = false, closely_ = true;
  Opinion opinion_;
  size_t decisive_ = 0;
  std::vector<size_t> among_;
  std::set<size_t> played_;
};

} // namespace headrace::compiler
