// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/Batches.h"

#include <cmath>
#include <set>

#include <gtest/gtest.h>

namespace headrace::compiler {
namespace {

std::optional<int64_t> search(int64_t most, const std::function<bool(int64_t)> &holds, size_t *questions = nullptr) {
  std::set<int64_t> asked;
  const auto found = largestBatch(most, [&](int64_t batch) -> absl::StatusOr<bool> {
    EXPECT_GE(batch, 1);
    EXPECT_LE(batch, most);
    EXPECT_TRUE(asked.insert(batch).second) << batch << " asked twice";
    return holds(batch);
  });
  EXPECT_TRUE(found.ok());
  if (questions != nullptr)
    *questions = asked.size();
  return *found;
}

double bestOf(int64_t most, const std::function<double(int64_t)> &rate, size_t *questions = nullptr) {
  std::set<int64_t> asked;
  const std::vector<BatchRate> tried = triedBatches(most, [&](int64_t batch) {
    EXPECT_GE(batch, 1);
    EXPECT_LE(batch, most);
    EXPECT_TRUE(asked.insert(batch).second) << batch << " asked twice";
    return rate(batch);
  });
  if (questions != nullptr)
    *questions = asked.size();
  return bestBatch(tried).tokensPerSecond;
}

TEST(TriedBatches, HalvesAndThenWhatLiesBetween) {
  std::vector<int64_t> tried; // of 100 - |batch - 28|
  for (const BatchRate &one :
       triedBatches(64, [](int64_t batch) { return 100 - std::abs(static_cast<double>(batch) - 28); }))
    tried.push_back(one.batch);
  // 32 is the best of the halves; 48 is worse and 24 no better, so nearer, until 28 is; what lies beside it is worse.
  EXPECT_EQ(tried, (std::vector<int64_t>{64, 32, 16, 8, 48, 24, 40, 28, 30, 26}));
}

TEST(TriedBatches, ComeWithinAFiftiethOfARateThatRisesAndFalls) {
  for (int64_t peak = 1; peak <= 256; ++peak) {
    size_t questions = 0;
    // Twice the batch, or half of it, makes 0.8 of the tokens.
    const auto rate = [&](int64_t batch) {
      return 2 / (static_cast<double>(batch) / static_cast<double>(peak) +
                  static_cast<double>(peak) / static_cast<double>(batch));
    };
    EXPECT_GE(bestOf(256, rate, &questions), 0.98) << peak;
    EXPECT_LE(questions, 17U) << peak;
  }
}

TEST(TriedBatches, WhatDoesNotFitIsNoReasonToStop) {
  size_t questions = 0; // 1,024 to 8 do not
  EXPECT_EQ(bestOf(
                1024, [](int64_t batch) { return batch > 5 ? 0.0 : static_cast<double>(batch); }, &questions),
            5);
  EXPECT_LE(questions, 18U);
  EXPECT_EQ(bestOf(16, [](int64_t) { return 0.0; }), 0);
}

TEST(TriedBatches, OfEqualsTheSmallestIsTaken) {
  EXPECT_EQ(bestBatch({{64, 1000}, {32, 999.5}, {16, 998}}).batch, 32);
  EXPECT_EQ(bestBatch({{64, 1002}, {32, 999.5}, {16, 998}}).batch, 64);
}

TEST(LargestBatch, FindsTheEdgeToWithinASixteenth) {
  for (int64_t edge = 1; edge <= 1000; ++edge) {
    const auto found = search(1000, [&](int64_t batch) { return batch <= edge; });
    ASSERT_TRUE(found.has_value());
    EXPECT_LE(*found, edge);
    EXPECT_LE(edge - *found, *found / 16) << edge;
  }
}

TEST(LargestBatch, SmallBatchesAreExact) {
  for (int64_t edge = 1; edge < 32; ++edge)
    EXPECT_EQ(search(100, [&](int64_t batch) { return batch <= edge; }), edge);
}

TEST(LargestBatch, AsksFewQuestions) {
  size_t questions = 0;
  search(
      1 << 20, [](int64_t batch) { return batch <= 700; }, &questions);
  EXPECT_LE(questions, 21U + 4U); // the powers of two, then 512..1024 halved down to 32
}

TEST(LargestBatch, SmallBatchesThatMissDoNotEndTheSearch) {
  // What a small batch computes hides no copy: only 20 to 200 hold.
  const auto found = search(4096, [](int64_t batch) { return batch >= 20 && batch <= 200; });
  ASSERT_TRUE(found.has_value());
  EXPECT_LE(*found, 200);
  EXPECT_LE(200 - *found, *found / 16);
}

TEST(LargestBatch, NothingHolds) {
  EXPECT_EQ(search(1000, [](int64_t) { return false; }), std::nullopt);
  EXPECT_EQ(search(1, [](int64_t) { return true; }), 1);
  EXPECT_EQ(search(7, [](int64_t) { return true; }), 7);
  EXPECT_EQ(search(0, [](int64_t) { return true; }), std::nullopt);
}

TEST(LargestBatch, AFailureEndsIt) {
  const auto found = largestBatch(100, [](int64_t batch) -> absl::StatusOr<bool> {
    if (batch == 4)
      return absl::InternalError("broken");
    return true;
  });
  EXPECT_EQ(found.status().message(), "broken");
}

} // namespace
} // namespace headrace::compiler
