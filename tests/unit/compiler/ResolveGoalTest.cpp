// SPDX-License-Identifier: Apache-2.0
#include "compiler/choice/Resolve.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> keys(const std::vector<cost::Bucket> &buckets) {
  std::vector<std::string> out;
  for (const cost::Bucket &s : buckets)
    out.push_back(absl::StrCat(s.tokens, "x", s.sequences, "@", s.context));
  return out;
}

TEST(ResolveGoal, DefaultsAreOneSequenceAndTheModelsContextUpTo2048) {
  CompileRequest r = request(tinyLlama(2));
  r.goal = {};
  auto target = resolve(r);
  ASSERT_TRUE(target.ok()) << target.status();
  EXPECT_EQ(target->batch, 1);
  EXPECT_EQ(target->context, 512); // the model's
  EXPECT_EQ(target->deviceMemory, r.hardware.memoryBytes);
  EXPECT_EQ(target->kvTokens, 512);
  EXPECT_EQ(target->kvBlocks, 33); // 512 / 16 and the scratch block
  // 33 blocks x (k, v) x 2 heads x 16 tokens x 16 x 4 bytes = 33 x 4096
  EXPECT_EQ(target->kvBytes, 33u * 4096);
  r.model->maxPositions = 131072;
  EXPECT_EQ(resolve(r)->context, 2048);
}

TEST(ResolveGoal, DefaultBucketsArePowersOfTwo) {
  CompileRequest r = request(tinyLlama(2));
  r.goal.batch = 3;
  r.goal.context = 512;
  auto target = resolve(r);
  ASSERT_TRUE(target.ok()) << target.status();
  EXPECT_THAT(keys(target->decode), ElementsAre("1x1@256", "1x1@512", "2x2@256", "2x2@512", "3x3@256", "3x3@512"));
  // New tokens from 16 to 3 x 512 = 1536, for one sequence and for three; 512 and more of one sequence need context
  // 512, 1024 and more need more than one.
  std::vector<std::string> expected;
  for (int64_t tokens : {16, 32, 64, 128, 256, 512, 1024, 1536})
    for (int64_t sequences : {1, 3})
      for (int64_t context : {256, 512})
        if (tokens <= sequences * context)
          expected.push_back(absl::StrCat(tokens, "x", sequences, "@", context));
  EXPECT_EQ(keys(target->mixed), expected);
  EXPECT_EQ(target->meta.maxTokens, 1536);
  EXPECT_EQ(target->meta.maxSequences, 3);
  EXPECT_EQ(target->meta.maxBlocksPerSequence, 32);
}

TEST(ResolveGoal, OneIterationPrefillsAtMost2048Tokens) {
  CompileRequest r = request(tinyLlama(2));
  r.goal.batch = 64;
  r.goal.context = 512;
  EXPECT_EQ(resolve(r)->mixed.back().tokens, 2048);
}

// Of 64 x 512 tokens; what is stated stays.
TEST(ResolveGoal, OneIterationPrefillsAsManyAsTheChoiceSays) {
  CompileRequest r = request(tinyLlama(2));
  r.goal.batch = 64;
  r.goal.context = 512;
  const auto largest = [&](int64_t chunk) {
    Choice choice = askedChoice(r);
    choice.largestChunk = chunk;
    const absl::StatusOr<Target> target = resolve(r, choice);
    EXPECT_TRUE(target.ok()) << target.status();
    EXPECT_EQ(target->meta.maxTokens, target->mixed.back().tokens);
    return target->mixed.back().tokens;
  };
  EXPECT_EQ(largest(8192), 8192);
  EXPECT_EQ(largest(65536), 64 * 512);
  r.goal.kvTokens = 5000; // 313 blocks
  EXPECT_EQ(largest(8192), 5008);
  r.buckets.newTokens = {16, 128};
  EXPECT_EQ(largest(8192), 128);
}

TEST(ResolveGoal, AShortContextHasOneBucket) {
  CompileRequest r = request(tinyLlama(2));
  r.goal.batch = 1;
  r.goal.context = 12;
  auto target = resolve(r);
  ASSERT_TRUE(target.ok()) << target.status();
  EXPECT_THAT(keys(target->decode), ElementsAre("1x1@12"));
  EXPECT_THAT(keys(target->mixed), ElementsAre("12x1@12"));
  EXPECT_EQ(target->kvBlocks, 2);
}

TEST(ResolveGoal, ATokenAtATimeNeedsNoMixedBucket) {
  CompileRequest r = request(tinyLlama(2));
  r.goal.batch = 1;
  r.goal.context = 1;
  auto target = resolve(r);
  ASSERT_TRUE(target.ok()) << target.status();
  EXPECT_THAT(keys(target->decode), ElementsAre("1x1@1"));
  EXPECT_TRUE(target->mixed.empty());
}

TEST(ResolveGoal, BucketsSettleWhatTheGoalLeavesOpen) {
  CompileRequest r = request(tinyLlama(2));
  r.goal = {};
  r.buckets.sequences = {2, 6};
  r.buckets.contexts = {32, 96};
  auto target = resolve(r);
  ASSERT_TRUE(target.ok()) << target.status();
  EXPECT_EQ(target->batch, 6);
  EXPECT_EQ(target->context, 96);
}

TEST(ResolveGoal, KvTokensReplaceBatchTimesContext) {
  CompileRequest r = request(tinyLlama(2));
  r.goal.kvTokens = 100; // 7 blocks of 16
  auto target = resolve(r);
  ASSERT_TRUE(target.ok()) << target.status();
  EXPECT_EQ(target->kvBlocks, 8);
  EXPECT_EQ(target->kvTokens, 112);
  EXPECT_LE(target->mixed.back().tokens, 112);
}

// Six layers; batch 2 at context 64 takes 8 blocks of 16 tokens, and the scratch block: 9 of 4096 bytes a layer. Two
// slots hold what does not stay of a layer: of R blocks 6 R + 2 (9 - R) = 18 + 4 R are on the device.
TEST(ResolveGoal, WhatKvMayHaveOfTheDeviceIsBlocksAndSlots) {
  const auto resident = [](std::optional<uint64_t> bytes, bool swapsLayers = false) {
    CompileRequest r = request(tinyLlama(6));
    r.goal.kvDeviceMemory = bytes;
    auto target = resolve(r, askedChoice(r), swapsLayers);
    EXPECT_TRUE(target.ok()) << target.status();
    return target->kvResident;
  };
  EXPECT_EQ(resident(std::nullopt), std::nullopt);
  EXPECT_EQ(resident(0), 0); // whole layers, whatever slots take
  EXPECT_EQ(resident(22 * 4096), 1);
  EXPECT_EQ(resident(26 * 4096 - 1), 1);
  EXPECT_EQ(resident(26 * 4096), 2);
  EXPECT_EQ(resident(54 * 4096 - 1), 8);        // 50 blocks
  EXPECT_EQ(resident(54 * 4096), std::nullopt); // all of them, which no slots are for
  EXPECT_EQ(resident(10 * 4096, /*swapsLayers=*/true), std::nullopt);
}

// More slots, fewer blocks: in three 6 R + 3 (9 - R) = 27 + 3 R. Places are as many as are stated.
TEST(ResolveGoal, SlotsAndBlocksShareWhatKvMayHave) {
  CompileRequest r = request(tinyLlama(6));
  r.goal.kvDeviceMemory = 42 * 4096;
  absl::StatusOr<Target> target = resolve(r);
  ASSERT_TRUE(target.ok()) << target.status();
  EXPECT_EQ(target->kvResident, 6); // (42 - 18) / 4
  EXPECT_EQ(target->residentBeside(2, 6), 6);
  EXPECT_EQ(target->residentBeside(3, 6), 5);            // (42 - 27) / 3
  EXPECT_EQ(target->residentBeside(4, 6), std::nullopt); // as many as there are caches: six slots of 9 blocks
  r.policy.kvPlaces = 4;
  target = resolve(r);
  ASSERT_TRUE(target.ok()) << target.status();
  EXPECT_EQ(target->kvResident, 3); // (42 - 4 x 9) / (6 - 4)
  EXPECT_EQ(target->residentBeside(2, 6), 3);
}

// What caches may grow to in placements that leave memory is within it.
TEST(ResolveGoal, CachesDoNotGrowBeyondWhatKvMayHave) {
  CompileRequest r = request(tinyLlama(2));
  r.goal.kvTokens = 64; // 5 blocks a layer of the 9 that the batch has use for
  const auto most = [&](std::optional<uint64_t> bytes) {
    r.goal.kvDeviceMemory = bytes;
    const absl::StatusOr<Target> target = resolve(r);
    EXPECT_TRUE(target.ok()) << target.status();
    return target.ok() ? target->mostKvBlocks : 0;
  };
  EXPECT_EQ(most(std::nullopt), 9);
  EXPECT_EQ(most(2 * 9 * 4096), 9);
  EXPECT_EQ(most(2 * 9 * 4096 - 1), 8);
  EXPECT_EQ(most(2 * 5 * 4096), 5);
  EXPECT_EQ(most(0), 5);
}

TEST(ResolveGoal, RefusesContradictionsByName) {
  const auto expect = [](auto change, const char *text) {
    CompileRequest r = request(tinyLlama(2));
    change(r);
    const absl::Status status = resolve(r).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  };
  expect([](CompileRequest &r) { r.goal.batch = 0; }, "goal.batch = 0: expected 1 to ");
  expect([](CompileRequest &r) { r.goal.batch = -3; }, "goal.batch = -3: expected 1 to ");
  expect([](CompileRequest &r) { r.goal.context = 0; }, "goal.context = 0: expected 1 to ");
  expect([](CompileRequest &r) { r.goal.context = 513; },
         "goal.context = 513: expected at most the 512 positions of tiny-llama-2");
  expect([](CompileRequest &r) { r.goal.kvTokens = 63; },
         "goal.kv_tokens = 63: expected at least one sequence of context 64");
  expect([](CompileRequest &r) { r.goal.kvTokens = std::numeric_limits<int64_t>::max(); },
         "goal.kv_tokens = 9223372036854775807: expected at most 2147483646 blocks of 16 tokens");
  expect([](CompileRequest &r) { r.goal.blockTokens = 0; }, "goal.block_tokens = 0: expected 1 to 4096");
  // Two layers' caches have a slot each, so splitting them would free nothing: 2 x 9 blocks of 4096 bytes.
  expect([](CompileRequest &r) { r.goal.kvDeviceMemory = 73727; },
         "goal.kv_device_memory = 73727: expected at least 73728 bytes, all of it (2 layers), or 0 for no block");
  expect([](CompileRequest &r) { r.goal.deviceMemory = 0; }, "goal.device_memory = 0: expected a positive");
  expect(
      [](CompileRequest &r) {
        r.buckets.sequences = {2, 1};
      },
      "buckets.sequences = 1: expected ascending sizes, it follows 2");
  expect(
      [](CompileRequest &r) {
        r.buckets.sequences = {1, 4};
      },
      "buckets.sequences = 4: expected a last size of 2, which is goal.batch");
  expect([](CompileRequest &r) { r.buckets.contexts = {32}; },
         "buckets.contexts = 32: expected a last size of 64, which is goal.context");
  expect([](CompileRequest &r) { r.buckets.contexts = {0, 64}; }, "buckets.contexts = 0: expected sizes from 1");
  expect(
      [](CompileRequest &r) {
        r.buckets.newTokens = {16, 16};
      },
      "buckets.new_tokens = 16: expected ascending sizes, it follows 16");
  expect([](CompileRequest &r) { r.buckets.newTokens = {1024}; },
         "buckets.new_tokens = 1024: expected at most the 128 tokens that the KV cache holds");
  expect([](CompileRequest &r) { r.goal.batch = 1 << 20, r.model->maxPositions = 1 << 16, r.goal.context = 1 << 16; },
         "lower batch");
}

} // namespace
} // namespace headrace::compiler
