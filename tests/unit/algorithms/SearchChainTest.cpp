// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/SearchChain.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "tests/unit/algorithms/UnitProblems.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::algorithms {
namespace {

bool holds(const UnitPlacement &larger, const UnitPlacement &smaller) {
  return std::includes(larger.units.begin(), larger.units.end(), smaller.units.begin(), smaller.units.end());
}

// Eight units of 1024 B, read for 100 ns in 1000, and 8000 ns of compute in all.
UnitProblem eight(uint64_t sloNs) {
  std::vector<uint64_t> ns;
  for (int i = 0; i < 8; ++i)
    ns.insert(ns.end(), {100, 900});
  return unitProblem(std::vector<uint64_t>(8, 1024), ns, sloNs);
}

TEST(SearchChain, HoldsWhatTheLinkBeforeHolds) {
  // 8000, 8192 and 8992 ns free 5, 6 and 7 units (SearchUnitsTest): seven units through two places, eight through two,
  // eight through one.
  const std::vector<ChainLink> chain = searchChain(eight(8000), {{1.0}, {1.024}, {1.124}});
  ASSERT_EQ(chain.size(), 3u);
  const uint64_t freed[] = {5, 6, 7};
  for (size_t i = 0; i < chain.size(); ++i) {
    ASSERT_TRUE(chain[i].placed.has_value());
    EXPECT_TRUE(chain[i].nested);
    EXPECT_EQ(chain[i].placed->freedBytes, 1024 * freed[i]);
    EXPECT_EQ(chain[i].share, 1);
  }
  EXPECT_EQ(chain[0].placed->units.size(), 7u);
  EXPECT_EQ(chain[2].placed->ringBytes, 1024u);
}

TEST(SearchChain, TakesByteTargetsToo) {
  const std::vector<ChainLink> chain = searchChain(eight(8992), {{1.0, 2048}, {1.0, 4096}, {1.0, 8192}});
  ASSERT_EQ(chain.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(chain[i].placed.has_value());
    EXPECT_EQ(chain[i].placed->offloadedBytes, 2048u << i);
    EXPECT_TRUE(chain[i].nested);
  }
}

TEST(SearchChain, GoalsThatCannotBeMetHaveNoPlacement) {
  const std::vector<ChainLink> chain = searchChain(eight(8000), {{0.5}, {1.0}});
  ASSERT_EQ(chain.size(), 2u);
  EXPECT_EQ(chain[0].placed, std::nullopt);
  EXPECT_TRUE(chain[1].placed.has_value());
  EXPECT_TRUE(chain[1].nested);
  EXPECT_EQ(searchChain(eight(100), {{1.0}, {2.0}})[1].placed, std::nullopt);
  EXPECT_TRUE(searchChain(eight(8000), {}).empty());
}

// Random problems: flags and shares say what is so, every link meets its own goal, and one that is nested frees at most
// what was said less than it would alone.
TEST(SearchChain, SaysWhatIsNestedAndWhatItCosts) {
  std::mt19937_64 generator(11);
  const auto between = [&](uint64_t low, uint64_t high) {
    return std::uniform_int_distribution<uint64_t>(low, high)(generator);
  };
  size_t nested = 0, broken = 0;
  for (int i = 0; i < 40; ++i) {
    const size_t layers = between(2, 6);
    const uint64_t sizes[] = {256 * between(1, 16), 256 * between(1, 16), 256 * between(1, 16)};
    std::vector<uint64_t> bytes, ns;
    for (size_t unit = 0; unit < 3 * layers; ++unit) {
      bytes.push_back(sizes[unit % 3]);
      ns.push_back(between(1, 400));
      ns.push_back(between(1, 3000));
    }
    const uint64_t resident = std::accumulate(ns.begin(), ns.end(), uint64_t{0});
    const UnitProblem problem = unitProblem(bytes, ns, resident + resident / 20, 3);
    const std::vector<ChainGoal> goals = {{1.0}, {1.3}, {1.8}, {2.5}};
    const double mostLoss = i % 2 ? 0.02 : 0;
    const std::vector<ChainLink> chain = searchChain(problem, goals, mostLoss);
    ASSERT_EQ(chain.size(), goals.size());
    for (size_t link = 0; link < chain.size(); ++link) {
      ASSERT_TRUE(chain[link].placed.has_value());
      UnitProblem scaled = problem;
      uint64_t &slo = scaled.schedules[0].buckets[0].sloNs;
      slo = static_cast<uint64_t>(static_cast<double>(slo) * goals[link].sloFactor);
      EXPECT_LE(chain[link].placed->timing.ns[0][0], slo);
      const uint64_t alone = searchUnits(scaled)->freedBytes;
      const double loss = mostLoss > 0 ? std::max(mostLoss * static_cast<double>(alone),
                                                  static_cast<double>(*std::min_element(sizes, sizes + 3)))
                                       : 0;
      EXPECT_GE(static_cast<double>(chain[link].placed->freedBytes) + loss, static_cast<double>(alone));
      if (alone) {
        EXPECT_DOUBLE_EQ(chain[link].share,
                         static_cast<double>(chain[link].placed->freedBytes) / static_cast<double>(alone));
      }
      EXPECT_EQ(chain[link].nested, link == 0 || holds(*chain[link].placed, *chain[link - 1].placed));
      ++(chain[link].nested ? nested : broken);
    }
  }
  EXPECT_GT(nested, 120u); // of 160
  EXPECT_GT(broken, 0u);
}

// The chain around one of its links, as the header says, and what a chain is judged by: how many links are nested, then
// the share of the worst.
std::pair<size_t, double> judged(const UnitProblem &problem, const std::vector<ChainGoal> &goals, double mostLoss,
                                 size_t pivot) {
  uint64_t smallest = ~uint64_t{0};
  for (const OffloadableUnit &unit : problem.units)
    smallest = std::min(smallest, unit.bytes);
  std::vector<UnitPlacement> links(goals.size());
  double worst = 1;
  const auto place = [&](size_t link, const UnitPlacement *inside, const UnitPlacement *around) {
    UnitProblem scaled = problem;
    uint64_t &slo = scaled.schedules[0].buckets[0].sloNs;
    slo = static_cast<uint64_t>(static_cast<double>(slo) * goals[link].sloFactor);
    links[link] = *searchUnits(scaled);
    const auto alone = static_cast<double>(links[link].freedBytes);
    SearchLimits limits;
    if (inside)
      limits.only = inside->units;
    if (around)
      limits.kept = around->units;
    if ((!inside && !around) || (inside && inside->units.empty()))
      return;
    const auto nested = searchUnits(scaled, limits);
    const double loss = mostLoss > 0 ? std::max(mostLoss * alone, static_cast<double>(smallest)) : 0;
    if (!nested || static_cast<double>(nested->freedBytes) + loss < alone)
      return;
    links[link] = *nested;
    worst = alone > 0 ? std::min(worst, static_cast<double>(nested->freedBytes) / alone) : worst;
  };
  place(pivot, nullptr, nullptr);
  for (size_t link = pivot; link-- > 0;)
    place(link, &links[link + 1], nullptr);
  for (size_t link = pivot + 1; link < goals.size(); ++link)
    place(link, nullptr, &links[link - 1]);
  size_t nested = 1;
  for (size_t link = 1; link < links.size(); ++link)
    nested += holds(links[link], links[link - 1]);
  return {nested, worst};
}

// Of the chains around each link the one with the most links nested, and of these the one whose worst link loses least.
TEST(SearchChain, TheWorstLinkLosesLeast) {
  std::mt19937_64 generator(5);
  const auto between = [&](uint64_t low, uint64_t high) {
    return std::uniform_int_distribution<uint64_t>(low, high)(generator);
  };
  size_t differ = 0; // chains as well nested, by what their worst links lose
  for (int i = 0; i < 60; ++i) {
    const size_t layers = between(3, 6);
    const uint64_t sizes[] = {256 * between(1, 16), 256 * between(1, 16), 256 * between(1, 16)};
    std::vector<uint64_t> bytes, ns;
    for (size_t unit = 0; unit < 3 * layers; ++unit) {
      bytes.push_back(sizes[unit % 3]);
      ns.insert(ns.end(), {between(1, 400), between(1, 3000)});
    }
    const uint64_t resident = std::accumulate(ns.begin(), ns.end(), uint64_t{0});
    const UnitProblem problem = unitProblem(bytes, ns, resident + resident / 20, 3);
    const std::vector<ChainGoal> goals = {{1.0}, {1.3}, {1.8}, {2.5}};
    const double mostLoss = i % 4 ? 0.1 : 0;
    std::pair<size_t, double> best{0, 0};
    std::vector<std::pair<size_t, double>> all;
    for (size_t pivot = 0; pivot < goals.size(); ++pivot) {
      all.push_back(judged(problem, goals, mostLoss, pivot));
      best = std::max(best, all.back());
    }
    differ += std::any_of(all.begin(), all.end(),
                          [&](const auto &one) { return one.first == best.first && one.second < best.second; });
    std::pair<size_t, double> found{0, 1};
    for (const ChainLink &link : searchChain(problem, goals, mostLoss)) {
      found.first += link.nested;
      found.second = std::min(found.second, link.share);
    }
    EXPECT_EQ(found.first, best.first) << "problem " << i;
    EXPECT_DOUBLE_EQ(found.second, best.second) << "problem " << i;
  }
  EXPECT_GT(differ, 10u);
}

} // namespace
} // namespace headrace::algorithms
