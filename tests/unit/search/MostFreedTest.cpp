// SPDX-License-Identifier: Apache-2.0
//
// The choice by latency on tables of round numbers: bytes, and nanoseconds by bucket.
#include "compiler/search/MostFreed.h"

#include <algorithm>
#include <random>

#include "compiler/search/LeastObjectives.h"
#include "compiler/search/Range.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using std::chrono::nanoseconds;
using ::testing::ElementsAre;
using ::testing::Optional;

constexpr uint64_t kMemory = 100;

// Placements as a table has them. A search finds the row that frees the most of those behind the stated ones, within
// what is asked.
class Table : public Choosable {
public:
  struct Row {
    int64_t freed = 0;
    uint64_t bytes = 0; // of the device
    std::vector<uint64_t> ns, gapNs;
    std::optional<size_t> oneCut = {};
  };
  explicit Table(std::vector<Row> rows, size_t searched = 0) : rows_(std::move(rows)), searched_(searched) {}

  size_t stated() const override { return rows_.size() - searched_; }
  int64_t freed(size_t p) override { return rows_[p].freed; }
  bool offloadsNothing(size_t p) override { return rows_[p].freed == 0; }
  uint64_t heldBytes(size_t p) override { return rows_[p].bytes; }
  uint64_t needBytes(size_t p) override { return rows_[p].bytes; }
  uint64_t bytes(size_t p) override { return rows_[p].bytes; }
  bool fits(size_t p, uint64_t memory) override { return rows_[p].bytes <= memory; }
  uint64_t movedBytes(size_t p) override { return static_cast<uint64_t>(rows_[p].freed); }
  uint64_t copiesNs(size_t p) override { return static_cast<uint64_t>(rows_[p].freed); } // a nanosecond a byte
  uint64_t ns(size_t p, size_t bucket) override { return rows_[p].ns[bucket]; }
  uint64_t gapNs(size_t p, size_t bucket) override { return rows_[p].gapNs.empty() ? 0 : rows_[p].gapNs[bucket]; }
  bool searches() const override { return searched_ > 0; }
  std::optional<size_t> search(const std::vector<uint64_t> &sloNs) override {
    std::optional<size_t> best;
    for (size_t p = stated(); p < rows_.size(); ++p) {
      bool within = true;
      for (size_t b = 0; b < sloNs.size(); ++b)
        within &= sloNs[b] == 0 || rows_[p].ns[b] <= sloNs[b];
      if (within && (!best || rows_[p].freed > rows_[*best].freed))
        best = p;
    }
    return best;
  }
  // The row that moves the most of what a step allows.
  std::vector<size_t> chain(size_t bucket, const std::vector<RangeStep> &steps, std::optional<size_t>) override {
    std::vector<size_t> found;
    for (const RangeStep &step : steps) {
      size_t best = 0;
      for (size_t p = 0; p < rows_.size(); ++p)
        if (rows_[p].ns[bucket] <= step.sloNs && movedBytes(p) <= step.mostBytes && freed(p) > freed(best))
          best = p;
      found.push_back(best);
    }
    return found;
  }
  std::optional<size_t> inOneCut(size_t p) override { return rows_[p].oneCut; }

private:
  std::vector<Row> rows_;
  size_t searched_;
};

std::vector<Objective> objectives(uint64_t decodeNs, uint64_t promptNs) {
  return {
      {.bucket = {.tokens = 1, .sequences = 1, .context = 64}, .decode = true, .residentNs = 10, .sloNs = decodeNs},
      {.bucket = {.tokens = 16, .sequences = 1, .context = 64}, .decode = false, .residentNs = 40, .sloNs = promptNs}};
}

// The table of MostFreed.h: decode within 12 takes a, prompts within 50 take b.
TEST(MostFreed, EachBucketHasItsOwn) {
  Table table({{0, 90, {10, 40}}, {4, 86, {11, 45}}, {9, 81, {15, 48}}, {12, 78, {16, 60}}});
  MostFreed choice(table, objectives(12, 50), /*gaps=*/false);
  EXPECT_EQ(choice.decisive(), 0u);
  std::vector<std::optional<size_t>> of = choice.forEach(kMemory);
  EXPECT_THAT(of, ElementsAre(Optional(1), Optional(2)));
  EXPECT_TRUE(choice.reduce(of, 2, kMemory));
  EXPECT_THAT(of, ElementsAre(Optional(1), Optional(2)));
  // In one placement: what both hold.
  EXPECT_TRUE(choice.reduce(of, 1, kMemory));
  EXPECT_THAT(of, ElementsAre(Optional(1), Optional(1)));
}

TEST(MostFreed, OfEqualsTheFastest) {
  Table table({{0, 90, {10, 40}}, {4, 86, {12, 45}}, {4, 86, {11, 45}}, {4, 86, {11, 45}}});
  EXPECT_THAT(MostFreed(table, objectives(12, 0), false).forEach(kMemory), ElementsAre(Optional(2), std::nullopt));
}

// 84 bytes hold what frees 9 and no less.
TEST(MostFreed, WhatMemoryDoesNotHoldIsNone) {
  Table table({{0, 90, {10, 40}}, {4, 86, {11, 45}}, {9, 81, {15, 48}}});
  MostFreed choice(table, objectives(15, 0), false);
  EXPECT_THAT(choice.forBucket(0, 84), Optional(2));
  EXPECT_EQ(choice.forBucket(0, 80), std::nullopt);
  EXPECT_THAT(choice.firstThatFits(86), Optional(1));
  EXPECT_EQ(MostFreed(table, objectives(12, 0), false).forBucket(0, 84), std::nullopt);
}

// Searched placements stand beside the stated ones, and what the search finds slower than asked is asked for anew: 14
// ns find 9 bytes, 12 find 7.
TEST(MostFreed, WhatIsSearchedCompetes) {
  Table table({{0, 90, {10, 40}}, {4, 86, {11, 45}}, {7, 83, {12, 46}}, {9, 81, {14, 48}}}, 2);
  EXPECT_THAT(MostFreed(table, objectives(14, 0), false).forEach(kMemory), ElementsAre(Optional(3), std::nullopt));
  EXPECT_THAT(MostFreed(table, objectives(13, 0), false).forEach(kMemory), ElementsAre(Optional(2), std::nullopt));
  EXPECT_THAT(MostFreed(table, objectives(11, 0), false).forEach(kMemory), ElementsAre(Optional(1), std::nullopt));
}

// What is known without playing it is not played: what frees 30 has copies of 30 ns, and what frees 9 holds the
// objective before what frees less is looked at.
TEST(MostFreed, PlaysNoMoreThanItHasTo) {
  Table table({{0, 90, {10, 40}}, {4, 86, {11, 45}}, {9, 81, {12, 48}}, {30, 60, {31, 60}}});
  MostFreed choice(table, objectives(12, 0), false);
  EXPECT_THAT(choice.forBucket(0, kMemory), Optional(2));
  EXPECT_EQ(choice.played(), 1u);
}

// An opinion decides in place of the time, and of what it allows memory.
TEST(MostFreed, AnOpinionDecidesInPlaceOfTheTime) {
  Table table({{0, 90, {10, 40}}, {4, 86, {99, 45}}, {9, 81, {99, 48}}});
  MostFreed choice(table, objectives(12, 0), false, [](size_t p, const Objective &of) { return p < 2 && of.decode; });
  EXPECT_THAT(choice.forEach(kMemory), ElementsAre(Optional(1), std::nullopt));
}

// Four buckets in four placements, of 12, 9, 5 and 1 bytes freed. In three: the buckets of 9 go to 5, which costs 4,
// where those of 5 would lose 4, too, and come later; 1 holds all, and loses more.
TEST(MostFreed, FewerPlacementsLoseTheLeast) {
  const auto bucket = [](bool decode) { return Objective{.decode = decode, .residentNs = 1, .sloNs = 20}; };
  Table table({{1, 90, {1, 1, 1, 1}}, {5, 86, {30, 1, 1, 1}}, {9, 81, {30, 30, 1, 1}}, {12, 78, {30, 30, 30, 1}}});
  MostFreed choice(table, {bucket(false), bucket(false), bucket(false), bucket(true)}, false);
  std::vector<std::optional<size_t>> of = choice.forEach(kMemory);
  EXPECT_THAT(of, ElementsAre(Optional(0), Optional(1), Optional(2), Optional(3)));
  EXPECT_EQ(MostFreed::countOf(of), 4u);
  EXPECT_TRUE(choice.reduce(of, 3, kMemory));
  EXPECT_EQ(MostFreed::countOf(of), 3u);
  EXPECT_THAT(of[3], Optional(3)); // what decides stays
  EXPECT_TRUE(choice.reduce(of, 1, kMemory));
  EXPECT_THAT(of, ElementsAre(Optional(0), Optional(0), Optional(0), Optional(0)));
}

// No placement holds both: 4 bytes miss the prompts, 5 decode.
TEST(MostFreed, MoreThanAPlanMayHaveIsSaid) {
  Table table({{4, 86, {11, 99}}, {5, 85, {99, 45}}});
  MostFreed choice(table, objectives(12, 50), false);
  std::vector<std::optional<size_t>> of = choice.forEach(kMemory);
  EXPECT_FALSE(choice.reduce(of, 1, kMemory));
  EXPECT_EQ(MostFreed::countOf(of), 2u);
}

// 9 bytes keep a sequence waiting for 20 of 15 ns, in one cut for 14; 4 never do.
TEST(MostFreed, OneForAllHoldsGapsToo) {
  Table table({{0, 90, {10, 40}}, {4, 86, {11, 45}}, {9, 81, {14, 48}, {20, 0}, 3}, {9, 81, {15, 48}, {14, 0}}}, 1);
  EXPECT_THAT(MostFreed(table, objectives(15, 50), true).forAll(kMemory), Optional(3));
  EXPECT_THAT(MostFreed(table, objectives(14, 50), true).forAll(kMemory), Optional(1));
  EXPECT_EQ(MostFreed(table, objectives(9, 50), true).forAll(kMemory), std::nullopt);
  EXPECT_THAT(MostFreed(table, objectives(15, 50), true).leastBytesForAll(), Optional(81u));
}

// --- Ranges ---

// Eight placements of 0 to 14 bytes freed; the chosen one frees 14. Of four the ends, then where the gap is widest: 6
// lies 6 from 0 and 8 from 14, as 8 does the other way round, which comes later.
TEST(Range, IsSpreadOverWhatIsFreed) {
  std::vector<Table::Row> rows;
  for (int64_t freed = 0; freed <= 14; freed += 2)
    rows.push_back({freed, 100 - static_cast<uint64_t>(freed), {10 + static_cast<uint64_t>(freed), 40}});
  Table table(rows);
  MostFreed choice(table, objectives(30, 0), false);
  std::vector<size_t> placements = {7};
  spreadRange(choice, {.placements = 3}, 7, kMemory, placements);
  EXPECT_THAT(placements, ElementsAre(7, 0, 3));
  placements = {7};
  spreadRange(choice, {.placements = 20}, 7, kMemory, placements);
  EXPECT_EQ(placements.size(), 8u); // no more than there are
  // 94 bytes begin at 6 freed.
  placements = {7};
  spreadRange(choice, {.placements = 2}, 7, 94, placements);
  EXPECT_THAT(placements, ElementsAre(7, 3));
}

// --- What would do ---

// Against all placements of random tables: at the least TPOT a placement is held, 1 ns below none is; the same of the
// least memory, a byte below.
TEST(LeastObjectives, AreExactOnRandomTables) {
  std::mt19937 generator(45);
  const auto below = [&](uint64_t n) { return generator() % n; };
  int missed = 0;
  for (int problem = 0; problem < 500; ++problem) {
    std::vector<Table::Row> rows(1, {0, 100, {10, 40}});
    const size_t searched = below(3) * 4;
    for (size_t p = 0, n = 1 + below(6) + searched; p < n; ++p) {
      const uint64_t freed = 1 + below(60);
      const uint64_t ns = std::max<uint64_t>(10, freed) + below(100);
      rows.push_back({static_cast<int64_t>(freed), 100 - freed, {ns, 40 + below(100)}});
    }
    Table table(rows, searched);
    const uint64_t memory = 40 + below(60), tpot = 10 + below(60);
    model::Goal goal;
    goal.tpot = nanoseconds(tpot);
    const auto held = [&](uint64_t ns, uint64_t bytes) {
      MostFreed choice(table, objectives(ns, 0), false);
      return choice.forEach(bytes)[0].has_value();
    };
    if (held(tpot, memory))
      continue;
    MostFreed choice(table, objectives(tpot, 0), false);
    (void)choice.forEach(memory);
    const LeastByClass least = leastByClass(choice, goal, memory);
    EXPECT_EQ(least.mixed.placement, std::nullopt);
    if (least.decode.placement) {
      ++missed;
      EXPECT_TRUE(least.decode.missed);
      EXPECT_TRUE(held(least.decode.ns, memory));
      EXPECT_FALSE(held(least.decode.ns - 1, memory));
    }
    if (const std::optional<uint64_t> bytes = leastBytes(choice)) {
      EXPECT_TRUE(held(tpot, *bytes));
      EXPECT_FALSE(held(tpot, *bytes - 1));
    }
    EXPECT_EQ(leastOfAll(choice).bytes, std::min_element(rows.begin(), rows.end(), [](const auto &a, const auto &b) {
                                          return a.bytes < b.bytes;
                                        })->bytes);
  }
  EXPECT_GT(missed, 50);
}

// Both objectives in one placement: 11 and 45 ns are those of 4 bytes freed, gaps of 13 included.
TEST(LeastObjectives, OfOnePlacementForAll) {
  Table table({{4, 86, {11, 45}, {13'000'000, 0}}, {9, 81, {15, 48}, {20'000'000, 0}}});
  model::Goal goal;
  goal.tpot = nanoseconds(12'000'000);
  const MostFreed choice(table, objectives(12'000'000, 0), true);
  const LeastTogether least = leastTogether(choice, goal, kMemory);
  ASSERT_TRUE(least.tpot);
  EXPECT_GE(least.tpot->count(), 13'000'000); // to within a ten-thousandth
  EXPECT_LE(least.tpot->count(), 13'001'300);
  EXPECT_FALSE(least.ttft || least.factor);
}

} // namespace
} // namespace headrace::compiler
