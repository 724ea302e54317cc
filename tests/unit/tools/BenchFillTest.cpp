// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/BenchFill.h"

#include <set>

#include <gtest/gtest.h>

namespace headrace::tools {
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

TEST(BenchFill, FindsTheEdgeToWithinASixteenth) {
  for (int64_t edge = 1; edge <= 1000; ++edge) {
    const auto found = search(1000, [&](int64_t batch) { return batch <= edge; });
    ASSERT_TRUE(found.has_value());
    EXPECT_LE(*found, edge);
    EXPECT_LE(edge - *found, *found / 16) << edge;
  }
}

TEST(BenchFill, SmallBatchesAreExact) {
  for (int64_t edge = 1; edge < 32; ++edge)
    EXPECT_EQ(search(100, [&](int64_t batch) { return batch <= edge; }), edge);
}

TEST(BenchFill, AsksFewQuestions) {
  size_t questions = 0;
  search(
      1 << 20, [](int64_t batch) { return batch <= 700; }, &questions);
  EXPECT_LE(questions, 21U + 4U); // the powers of two, then 512..1024 halved down to 32
}

TEST(BenchFill, SmallBatchesThatMissDoNotEndTheSearch) {
  // What a small batch computes hides no copy: only 20 to 200 hold.
  const auto found = search(4096, [](int64_t batch) { return batch >= 20 && batch <= 200; });
  ASSERT_TRUE(found.has_value());
  EXPECT_LE(*found, 200);
  EXPECT_LE(200 - *found, *found / 16);
}

TEST(BenchFill, NothingHolds) {
  EXPECT_EQ(search(1000, [](int64_t) { return false; }), std::nullopt);
  EXPECT_EQ(search(1, [](int64_t) { return true; }), 1);
  EXPECT_EQ(search(7, [](int64_t) { return true; }), 7);
  EXPECT_EQ(search(0, [](int64_t) { return true; }), std::nullopt);
}

TEST(BenchFill, AFailureEndsIt) {
  const auto found = largestBatch(100, [](int64_t batch) -> absl::StatusOr<bool> {
    if (batch == 4)
      return absl::InternalError("broken");
    return true;
  });
  EXPECT_EQ(found.status().message(), "broken");
}

} // namespace
} // namespace headrace::tools
