// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/LaunchChecks.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::core {
namespace {

using testing::HasSubstr;

TEST(LaunchChecks, AnIterationFitsItsBucketOrIsRefusedWithBoth) {
  struct {
    kernels::IterationMeta meta{};
    int32_t contextLength[3] = {5, 40, 99}; // the third is of no sequence
  } buffer;
  kernels::IterationMeta &meta = buffer.meta;
  meta.contextLength = sizeof meta;
  meta.numTokens = 8, meta.numSequences = 2, meta.numSampled = 2;
  EXPECT_TRUE(checkFits("cuda device", {8, 2, 40}, {&meta}).ok());
  EXPECT_TRUE(checkFits("cuda device", {9, 3, 40}, {&meta}).ok());
  const absl::Status status = checkFits("cuda device", {7, 2, 40}, {&meta});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("cuda device: 8 tokens of 2 sequences, 2 sampled, do not fit the "
                        "variant's 7 tokens of 2 sequences"));
  EXPECT_THAT(std::string(checkFits("cuda device", {8, 2, 39}, {&meta}).message()),
              HasSubstr("sequence 1 of 2 is 40 tokens long with this iteration's, the variant's context is 39"));
  EXPECT_FALSE(checkFits("sim", {8, 1, 40}, {&meta}).ok());
  meta.numSampled = 3;
  EXPECT_FALSE(checkFits("sim", {8, 2, 40}, {&meta}).ok());
  meta.numSampled = -1;
  EXPECT_FALSE(checkFits("sim", {8, 2, 40}, {&meta}).ok());
}

// Two mini-batches of two sequences each whose tables have three and two words a row, written by themselves: each at
// the first byte behind the arrays. Another's rows would be in the way.
TEST(LaunchChecks, BlockTablesOfMiniBatchesFollowEachOther) {
  const kernels::MetaLayout layout{.maxTokens = 2, .maxSequences = 2, .maxBlocksPerSequence = 3};
  const uint64_t fixed = kernels::metaFixedBytes(layout);
  std::vector<uint64_t> words(kernels::metaBytes(layout, 2) / sizeof(uint64_t));
  auto *const first = reinterpret_cast<kernels::IterationMeta *>(words.data());
  kernels::initMetas(layout, 2, first);
  kernels::IterationMeta *const second = kernels::metaOf(layout, first, 1);
  const Metas metas{first, fixed, 2};
  EXPECT_TRUE(checkFits("sim", {2, 2, 12}, metas).ok()); // no rows
  EXPECT_EQ(bytesInUse(metas), 2 * fixed);
  first->numSequences = second->numSequences = 2;
  first->tableStride = 3, second->tableStride = 2;
  const absl::Status status = checkFits("sim", {2, 2, 12}, metas);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()),
            absl::StrCat("sim: mini-batch 1: its block table begins at byte ", 2 * fixed,
                         " of the iteration's, expected ", 2 * fixed + 24, ", where what is before it ends"));
  second->blockTable += 24;
  EXPECT_TRUE(checkFits("sim", {2, 2, 12}, metas).ok());
  EXPECT_EQ(bytesInUse(metas), 2 * fixed + 24 + 16);
  first->blockTable += 4;
  EXPECT_FALSE(checkFits("sim", {2, 2, 12}, metas).ok());
}

TEST(LaunchChecks, TokensOfTheLastTwoIterationsAreHeld) {
  EXPECT_FALSE(tokensHeld(0, 0));
  EXPECT_TRUE(tokensHeld(1, 1));
  EXPECT_TRUE(tokensHeld(1, 2));
  EXPECT_FALSE(tokensHeld(1, 3));
  EXPECT_FALSE(tokensHeld(4, 3));
  EXPECT_TRUE(checkAwaited("sim", 2, 3).ok());
  EXPECT_EQ(checkAwaited("sim", 0, 3).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(checkAwaited("sim", 4, 3).code(), absl::StatusCode::kFailedPrecondition);
  const absl::Status gone = checkAwaited("sim", 1, 3);
  EXPECT_EQ(gone.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(gone.message()), HasSubstr("tokens of iteration 1 are gone: 3 were launched"));
}

} // namespace
} // namespace headrace::core
