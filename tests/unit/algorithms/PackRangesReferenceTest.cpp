// SPDX-License-Identifier: Apache-2.0
//
// packRanges beside the plainest way to do the same: every item is compared with every other, all attempts are made to
// their end. Both must give the same addresses.
#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "passes/algorithms/PackRanges.h"
#include "gtest/gtest.h"

namespace headrace::algorithms {
namespace {

struct PackProblem {
  std::vector<LiveRange> items;
  std::vector<TakenRange> taken;
  uint64_t enough = 0;
  uint64_t alignment = 256;

  uint64_t up(uint64_t bytes) const { return (bytes + alignment - 1) / alignment * alignment; }
  uint64_t bytes(size_t item) const { return up(items[item].bytes); }
};

template <typename A, typename B> bool liveTogether(const A &a, const B &b) {
  return a.first <= b.last && b.first <= a.last;
}

// The lowest address for each item in turn: 0, or where a neighbour ends.
Packing placeInTurn(const PackProblem &problem, const std::vector<size_t> &order) {
  Packing packing;
  packing.addresses.assign(problem.items.size(), 0);
  for (size_t turn = 0; turn < order.size(); ++turn) {
    const size_t item = order[turn];
    const uint64_t bytes = problem.bytes(item);
    std::vector<std::pair<uint64_t, uint64_t>> neighbours;
    for (const TakenRange &range : problem.taken)
      if (liveTogether(problem.items[item], range))
        neighbours.push_back({range.address, range.address + range.bytes});
    for (size_t before = 0; before < turn; ++before)
      if (const size_t other = order[before]; liveTogether(problem.items[item], problem.items[other]))
        neighbours.push_back({packing.addresses[other], packing.addresses[other] + problem.bytes(other)});
    const auto fits = [&](uint64_t address) {
      return std::none_of(neighbours.begin(), neighbours.end(), [&](const auto &n) {
        return n.first < n.second && n.first < address + bytes && address < n.second;
      });
    };
    uint64_t lowest = bytes == 0 || fits(0) ? 0 : std::numeric_limits<uint64_t>::max();
    for (const auto &[begin, end] : neighbours)
      if (problem.up(end) < lowest && fits(problem.up(end)))
        lowest = problem.up(end);
    packing.addresses[item] = lowest;
    packing.peak = std::max(packing.peak, lowest + bytes);
  }
  return packing;
}

// How the reference came to its packing.
struct Reference {
  Packing packing;
  int attempts = 0;      // until one was good enough
  bool improved = false; // by what stuck out going first
};

Reference packPlainly(const PackProblem &problem) {
  uint64_t bound = problem.enough;
  for (const LiveRange &at : problem.items) { // the sum is largest where something begins
    uint64_t live = 0;
    for (size_t i = 0; i < problem.items.size(); ++i)
      if (problem.items[i].first <= at.first && at.first <= problem.items[i].last)
        live += problem.bytes(i);
    bound = std::max(bound, live);
  }
  const auto length = [&](size_t i) { return problem.items[i].last - problem.items[i].first + 1; };
  const std::vector<std::function<bool(size_t, size_t)>> before{
      [&](size_t a, size_t b) {
        return std::pair(length(a), problem.bytes(a)) > std::pair(length(b), problem.bytes(b));
      },
      [&](size_t a, size_t b) {
        return std::pair(problem.bytes(a), length(a)) > std::pair(problem.bytes(b), length(b));
      },
      [&](size_t a, size_t b) {
        return static_cast<double>(problem.bytes(a)) * static_cast<double>(length(a)) >
               static_cast<double>(problem.bytes(b)) * static_cast<double>(length(b));
      },
      [&](size_t a, size_t b) {
        return std::pair(-problem.items[a].first, problem.bytes(a)) >
               std::pair(-problem.items[b].first, problem.bytes(b));
      }};
  Reference reference;
  std::vector<size_t> best;
  for (const auto &less : before) {
    std::vector<size_t> order(problem.items.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), less);
    Packing packing = placeInTurn(problem, order);
    if (reference.attempts++ == 0 || packing.peak < reference.packing.peak)
      reference.packing = packing, best = order;
    if (reference.packing.peak <= bound)
      return reference;
  }
  Packing last = reference.packing;
  for (int round = 0; round < 8 && reference.packing.peak > bound; ++round) {
    std::stable_partition(best.begin(), best.end(),
                          [&](size_t i) { return last.addresses[i] + problem.bytes(i) > bound; });
    last = placeInTurn(problem, best);
    ++reference.attempts;
    if (last.peak < reference.packing.peak)
      reference.packing = last, reference.improved = true;
  }
  return reference;
}

// Boxes of many shapes: few or many steps, short and long lives, gaps between steps, sizes with and without a
// remainder.
PackProblem drawProblem(std::mt19937 &random) {
  const auto upTo = [&](int64_t most) { return std::uniform_int_distribution<int64_t>(0, most)(random); };
  PackProblem problem;
  problem.alignment = upTo(3) ? 256 : 1;
  const uint64_t unit = upTo(1) ? problem.alignment : 100;
  const int64_t steps = 1 + upTo(40), longest = upTo(1) ? upTo(4) : upTo(steps), largest = 1 + upTo(30);
  const int64_t spread = 1 + upTo(2) * 1000000;
  for (int64_t count = upTo(40); count > 0; --count) {
    const int64_t first = upTo(steps), last = first + (upTo(9) ? upTo(longest) : steps);
    problem.items.push_back({static_cast<uint64_t>(upTo(largest)) * unit, first * spread, last * spread});
  }
  for (int64_t count = upTo(2) ? upTo(12) : 0; count > 0; --count) {
    const int64_t first = upTo(steps), last = upTo(5) ? (first + upTo(longest)) * spread : INT64_MAX;
    problem.taken.push_back(
        {static_cast<uint64_t>(upTo(60)) * unit, static_cast<uint64_t>(upTo(largest)) * unit, first * spread, last});
  }
  problem.enough = upTo(3) ? 0 : static_cast<uint64_t>(upTo(100)) * unit;
  return problem;
}

TEST(PackRangesReference, GivesTheAddressesOfThePlainWay) {
  std::mt19937 random(7);
  int firstOrder = 0, laterOrder = 0, allAttempts = 0, improved = 0;
  for (int input = 0; input < 5000; ++input) {
    const PackProblem problem = drawProblem(random);
    const Reference reference = packPlainly(problem);
    const Packing packing = packRanges(problem.items, problem.taken, problem.enough, problem.alignment);
    ASSERT_EQ(packing.addresses, reference.packing.addresses) << "input " << input;
    ASSERT_EQ(packing.peak, reference.packing.peak) << "input " << input;
    (reference.attempts == 1 ? firstOrder : reference.attempts <= 4 ? laterOrder : allAttempts) += 1;
    improved += reference.improved;
  }
  // Every way through the search was taken.
  EXPECT_GT(firstOrder, 100);
  EXPECT_GT(laterOrder, 100);
  EXPECT_GT(allAttempts, 100);
  EXPECT_GT(improved, 100);
}

} // namespace
} // namespace headrace::algorithms
