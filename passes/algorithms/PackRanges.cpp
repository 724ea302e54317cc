// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/PackRanges.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

namespace headrace::algorithms {
namespace {

constexpr int kImprovements = 8;

uint64_t roundUp(uint64_t n, uint64_t alignment) { return (n + alignment - 1) / alignment * alignment; }

// Addresses from `begin` to `end`.
struct Run {
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Ascending runs that do not touch: what touches is one run, so there are few where boxes lie close.
class Runs {
public:
  // False: all of it was there.
  bool add(Run run) {
    auto first = runs_.begin();
    if (!runs_.empty() && runs_.back().end < run.begin)
      first = runs_.end();
    else
      first = std::lower_bound(first, runs_.end(), run.begin, [](const Run &r, uint64_t at) { return r.end < at; });
    if (first != runs_.end() && first->begin <= run.begin && run.end <= first->end)
      return false;
    auto last = first;
    for (; last != runs_.end() && last->begin <= run.end; ++last)
      run = {std::min(run.begin, last->begin), std::max(run.end, last->end)};
    if (first == last) {
      runs_.insert(first, run);
    } else {
      *first = run;
      runs_.erase(first + 1, last);
    }
    return true;
  }
  void clear() { runs_.clear(); } // keeps its memory
  absl::Span<const Run> span() const { return runs_; }

private:
  std::vector<Run> runs_;
};

// The moments from `first` to `last`.
struct Moments {
  uint32_t first = 0;
  uint32_t last = 0;
};

// Which addresses are taken when: a tree over the moments, a node for every aligned 1, 2, 4, ... of them. A life is
// cut into the fewest nodes that make it up, at most two of a size; it meets what has taken one of these as a whole, or
// a node inside one, or a node around one.
//
//    [              around              ]
//    [     around     ][      life      ]
//    [      ][  life  ][ inside ][inside]
class TakenTree {
public:
  explicit TakenTree(size_t moments) {
    while (leaves_ < moments + 2) // one more at both ends, for visit()
      leaves_ *= 2;
    nodes_.resize(2 * leaves_);
  }

  void clear() {
    for (Node &node : nodes_) {
      node.whole.clear();
      node.any.clear();
    }
  }

  // What is in `any` of a node is in that of all around it: above one that has the run already, nothing is to be done.
  void take(Moments life, Run run) {
    bool known[2] = {}; // by side: what is around has it
    visit(
        life,
        [&](size_t node, Side side) {
          nodes_[node].whole.add(run);
          known[side] |= !nodes_[node].any.add(run);
        },
        [&](size_t node, Side side) {
          if (side == kBoth)
            known[kLeft] = known[kLeft] || known[kRight] || !nodes_[node].any.add(run);
          else if (!known[side])
            known[side] = !nodes_[node].any.add(run);
        });
  }

  // The lowest address from which on so many bytes are free all life long.
  uint64_t lowestGap(Moments life, uint64_t bytes) {
    busy_.clear();
    const auto collect = [&](const Runs &runs) {
      if (!runs.span().empty())
        busy_.push_back(runs.span());
    };
    visit(
        life, [&](size_t node, Side) { collect(nodes_[node].any); },
        [&](size_t node, Side) { collect(nodes_[node].whole); });
    uint64_t address = 0;
    for (bool raised = true; raised;) {
      raised = false;
      for (absl::Span<const Run> &runs : busy_) {
        size_t next = 0;
        for (; next < runs.size() && runs[next].begin < address + bytes; ++next)
          if (runs[next].end > address) {
            address = runs[next].end;
            raised = true;
          }
        runs.remove_prefix(next); // all below the address
      }
    }
    return address;
  }

private:
  struct Node {
    Runs whole; // taken by lives that it is one of the nodes of
    Runs any;   // that, and what is taken inside it
  };

  // From which end of a life one comes to a node; both: it is around both.
  enum Side : uint8_t { kLeft, kRight, kBoth };

  // The nodes that make up a life, and those around them, from the smallest up.
  template <typename Inside, typename Around> void visit(Moments life, Inside &&inside, Around &&around) const {
    size_t left = leaves_ + life.first, right = leaves_ + life.last + 2; // the leaves beside the life's
    bool leftMet = false, rightMet = false;                              // has some of the life in it
    for (; (left ^ right) != 1; left /= 2, right /= 2) {
      if (leftMet)
        around(left, kLeft);
      if (rightMet)
        around(right, kRight);
      if (left % 2 == 0) {
        inside(left + 1, kLeft);
        leftMet = true;
      }
      if (right % 2 == 1) {
        inside(right - 1, kRight);
        rightMet = true;
      }
    }
    if (leftMet)
      around(left, kLeft);
    if (rightMet)
      around(right, kRight);
    for (left /= 2; left > 0; left /= 2)
      around(left, kBoth);
  }

  size_t leaves_ = 2;
  std::vector<Node> nodes_; // node n has the nodes 2n and 2n + 1
  std::vector<absl::Span<const Run>> busy_;
};

class Packer {
public:
  Packer(absl::Span<const LiveRange> items, absl::Span<const TakenRange> taken, uint64_t alignment)
      : items_(items), births_(birthsOf(items, taken)), tree_(births_.size()) {
    lives_.reserve(items.size());
    bytes_.reserve(items.size());
    for (const LiveRange &item : items) {
      lives_.push_back(momentsOf(item.first, item.last));
      bytes_.push_back(roundUp(item.bytes, alignment));
    }
    for (const TakenRange &range : taken)
      if (range.bytes)
        taken_.push_back({momentsOf(range.first, range.last),
                          {range.address / alignment * alignment, roundUp(range.address + range.bytes, alignment)}});
  }

  // Each item in turn goes to the lowest gap that it fits in. Nothing where the peak would not be below the limit.
  std::optional<Packing> place(absl::Span<const uint32_t> order, uint64_t limit) {
    if (std::exchange(used_, true))
      tree_.clear();
    for (const auto &[life, run] : taken_)
      tree_.take(life, run);
    Packing packing;
    packing.addresses.assign(items_.size(), 0);
    for (uint32_t item : order) {
      if (items_[item].bytes == 0)
        continue; // takes nothing, at 0
      const uint64_t address = tree_.lowestGap(lives_[item], bytes(item));
      packing.addresses[item] = address;
      packing.peak = std::max(packing.peak, address + bytes(item));
      if (packing.peak >= limit)
        return std::nullopt;
      tree_.take(lives_[item], {address, address + bytes(item)});
    }
    return packing;
  }

  uint64_t bytes(uint32_t item) const { return bytes_[item]; } // rounded up to the alignment
  // Of its life; one to the end of all time has a length, too.
  uint64_t length(uint32_t item) const {
    return static_cast<uint64_t>(items_[item].last) - static_cast<uint64_t>(items_[item].first) + 1;
  }

private:
  // The moments are the steps at which something begins: of two lives that meet, one is there when the other begins.
  static std::vector<int64_t> birthsOf(absl::Span<const LiveRange> items, absl::Span<const TakenRange> taken) {
    std::vector<int64_t> births;
    births.reserve(items.size() + taken.size());
    for (const LiveRange &item : items)
      births.push_back(item.first);
    for (const TakenRange &range : taken)
      births.push_back(range.first);
    std::sort(births.begin(), births.end());
    births.erase(std::unique(births.begin(), births.end()), births.end());
    return births;
  }
  Moments momentsOf(int64_t first, int64_t last) const {
    const auto from = std::lower_bound(births_.begin(), births_.end(), first);
    const auto to = std::upper_bound(from, births_.end(), last);
    return {static_cast<uint32_t>(from - births_.begin()), static_cast<uint32_t>(to - births_.begin() - 1)};
  }

  absl::Span<const LiveRange> items_;
  std::vector<int64_t> births_; // ascending
  std::vector<Moments> lives_;  // by item
  std::vector<uint64_t> bytes_; // by item
  std::vector<std::pair<Moments, Run>> taken_;
  TakenTree tree_;
  bool used_ = false; // the tree
};

} // namespace

uint64_t largestLiveSum(absl::Span<const LiveRange> items, uint64_t alignment) {
  // A sweep over the steps where something begins or has ended; at one step, ends come first.
  std::vector<std::pair<int64_t, int64_t>> changes;
  for (const LiveRange &item : items) {
    int64_t bytes = static_cast<int64_t>(roundUp(item.bytes, alignment));
    changes.push_back({item.first, bytes});
    if (item.last < std::numeric_limits<int64_t>::max())
      changes.push_back({item.last + 1, -bytes});
  }
  std::sort(changes.begin(), changes.end());
  int64_t live = 0, largest = 0;
  for (const auto &[step, change] : changes)
    largest = std::max(largest, live += change);
  return static_cast<uint64_t>(largest);
}

Packing packRanges(absl::Span<const LiveRange> items, absl::Span<const TakenRange> taken, uint64_t enough,
                   uint64_t alignment) {
  constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();
  Packer packer(items, taken, alignment);
  Packing best;
  best.peak = kNoLimit;
  std::vector<uint32_t> order; // the best packing's
  uint64_t bound = enough;
  const auto attempt = [&](auto key) {
    std::vector<uint32_t> candidate(items.size());
    std::iota(candidate.begin(), candidate.end(), 0);
    std::stable_sort(candidate.begin(), candidate.end(), [&](uint32_t a, uint32_t b) { return key(a) > key(b); });
    if (std::optional<Packing> packing = packer.place(candidate, best.peak))
      best = *std::move(packing), order = std::move(candidate);
    return best.peak <= bound;
  };
  // Long lives first keeps what is always there out of the way of what comes and goes; large items first is the classic
  // rule; area (life x bytes) is between the two; the order of birth suits chains.
  if (attempt([&](uint32_t i) { return std::pair(packer.length(i), packer.bytes(i)); }))
    return best;
  bound = std::max(enough, largestLiveSum(items, alignment));
  if (best.peak <= bound || attempt([&](uint32_t i) { return std::pair(packer.bytes(i), packer.length(i)); }) ||
      attempt(
          [&](uint32_t i) { return static_cast<double>(packer.bytes(i)) * static_cast<double>(packer.length(i)); }) ||
      attempt([&](uint32_t i) { return std::pair(-items[i].first, packer.bytes(i)); }))
    return best;
  // What sticks out above the bound goes first in the next attempt, until nothing moves.
  Packing packing = best;
  const auto sticksOut = [&](uint32_t i) { return packing.addresses[i] + packer.bytes(i) > bound; };
  for (int round = 0; round < kImprovements && best.peak > bound; ++round) {
    if (std::is_partitioned(order.begin(), order.end(), sticksOut))
      break;
    std::stable_partition(order.begin(), order.end(), sticksOut);
    packing = *packer.place(order, kNoLimit);
    if (packing.peak < best.peak)
      best = packing;
  }
  return best;
}

} // namespace headrace::algorithms
