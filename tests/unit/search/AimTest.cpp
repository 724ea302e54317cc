// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/Aim.h"

#include "absl/strings/str_cat.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using plan::IterationClass;
using ::testing::ElementsAre;

// Contexts of 256 tokens, 512, 1,024: each a third.
TEST(Aim, IsDecodeAtContextsEvenlyByOctave) {
  CompileRequest r = longRequest();
  r.goal.context = 1024;
  const Aim aim = aimOf(r.goal, *resolve(r));
  std::vector<int64_t> contexts;
  for (const AimPoint &point : aim.points) {
    contexts.push_back(point.at.context);
    EXPECT_EQ(point.at.iterationClass, IterationClass::Decode);
    EXPECT_EQ(point.at.bucket.sequences, 2);
    EXPECT_EQ(point.at.bucket.context, point.at.context);
    EXPECT_DOUBLE_EQ(point.weight, 1.0 / 3);
  }
  EXPECT_THAT(contexts, ElementsAre(256, 512, 1024));
  EXPECT_EQ(aim.what, "decode of 2 at contexts of 256 to 1024 tokens, evenly by octave");
  EXPECT_DOUBLE_EQ(aim.of({{.ns = 30}, {.ns = 60}, {.ns = 90}}), 60);
}

// Below 256 tokens there is one.
TEST(Aim, OfAShortContextIsThatContext) {
  CompileRequest r = longRequest();
  r.goal.context = 100;
  const Aim aim = aimOf(r.goal, *resolve(r));
  ASSERT_EQ(aim.points.size(), 1u);
  EXPECT_EQ(aim.points.front().at.context, 100);
  EXPECT_DOUBLE_EQ(aim.points.front().weight, 1);
}

void expectChunk(const AimPoint &point, const std::string &bucket, int64_t sequences, int64_t context, int64_t blocks,
                 int64_t written, double weight) {
  const cost::Bucket &of = point.at.bucket;
  EXPECT_EQ(point.at.iterationClass, IterationClass::Mixed);
  EXPECT_EQ(absl::StrCat(of.tokens, "x", of.sequences, "@", of.context), bucket);
  EXPECT_EQ(point.at.sequences, sequences);
  EXPECT_EQ(point.at.context, context);
  EXPECT_EQ(point.at.blocks, blocks);
  EXPECT_EQ(point.at.written, written);
  EXPECT_DOUBLE_EQ(point.weight, weight);
}

// Two requests of 3,000 + 500 tokens, blocks of 16: 6,000 rows in iterations of 2,048, 2,048 and 1,904, the second of
// which ends one prompt (188 blocks) and has 1,096 rows (69 blocks) of the other. And 500 iterations of both, at eight
// contexts from 3,001 to 3,500 that 500 / 8 = 62.5 stand for.
TEST(Aim, OfStatedLengthsIsABatchOfSuchRequests) {
  CompileRequest r = longRequest();
  r.goal.inputLen = 3000;
  r.goal.outputLen = 500;
  const Aim aim = aimOf(r.goal, *resolve(r));
  ASSERT_EQ(aim.points.size(), 11u);
  expectChunk(aim.points[0], "2048x1@2048", 1, 2048, 128, 128, 1);
  expectChunk(aim.points[1], "2048x2@4096", 2, 3000, 188 + 69, 60 + 69, 1);
  expectChunk(aim.points[2], "2048x1@4096", 1, 3000, 2 * 188, 120, 1); // the 69th has its last 8 rows yet to come
  EXPECT_EQ(aim.points[3].at.context, 3001);
  EXPECT_EQ(aim.points[10].at.context, 3500);
  for (size_t i = 3; i < 11; ++i) {
    EXPECT_EQ(aim.points[i].at.iterationClass, IterationClass::Decode);
    EXPECT_EQ(aim.points[i].at.bucket.context, 4096);
    EXPECT_DOUBLE_EQ(aim.points[i].weight, 62.5);
  }
  EXPECT_EQ(aim.what, "a batch of 2 requests of 3000 + 500 tokens, up to 2048 of prompts at a time");
}

// 4,000 tokens: two chunks of 2,048 rows. In chunks of 32 they are 125, in pairs that the second of each stands for;
// the last is alone.
TEST(PromptPoints, AreChunksEachAtItsContext) {
  const CompileRequest r = longRequest();
  Choice choice = askedChoice(r);
  const std::vector<AimPoint> two = promptPoints(4000, *resolve(r, choice));
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0].at.context, 2048);
  EXPECT_EQ(two[1].at.context, 4000);
  choice.largestChunk = 32;
  const std::vector<AimPoint> pairs = promptPoints(4000, *resolve(r, choice));
  double chunks = 0;
  for (const AimPoint &point : pairs) {
    EXPECT_LE(point.weight, 2);
    chunks += point.weight;
    EXPECT_EQ(point.at.context, 32 * chunks);
  }
  EXPECT_EQ(chunks, 125);
}

// 64 prompts of 512 tokens: four an iteration of 2,048 rows, sixteen one of 8,192.
TEST(Aim, ShortPromptsShareAnIteration) {
  CompileRequest r = longRequest();
  r.goal.batch = 64;
  r.goal.context = 544;
  r.goal.inputLen = 512;
  Choice choice = askedChoice(r);
  const Aim few = aimOf(r.goal, *resolve(r, choice));
  ASSERT_EQ(few.points.size(), 8u + 1); // of sixteen iterations
  expectChunk(few.points[0], "2048x64@512", 4, 512, 4 * 32, 4 * 32, 2);
  expectChunk(few.points[7], "2048x64@512", 4, 512, 64 * 32, 4 * 32, 2);
  choice.largestChunk = 8192;
  const Aim aim = aimOf(r.goal, *resolve(r, choice));
  ASSERT_EQ(aim.points.size(), 4u + 1);
  for (size_t i = 0; i < 4; ++i)
    expectChunk(aim.points[i], "8192x64@512", 16, 512, static_cast<int64_t>(i + 1) * 16 * 32, 16 * 32, 1);
  EXPECT_EQ(aim.points[4].at.iterationClass, IterationClass::Decode);
  EXPECT_EQ(aim.points[4].at.context, 513);
  EXPECT_EQ(aim.what, "a batch of 64 requests of 512 + 1 tokens, up to 8192 of prompts at a time");
}

// 2% of prompts' time for each doubling: of 100 + 10 ns a chunk of 8,192 is compared by 100 x 1.02^2 + 10.
TEST(Aim, ALargerChunkHasToBeWorthIt) {
  CompileRequest r = request(tinyLlama(2));
  r.goal.batch = 64;
  r.goal.context = 144;
  r.goal.inputLen = 128;
  Choice choice = askedChoice(r);
  choice.largestChunk = 8192;
  const Aim aim = aimOf(r.goal, *resolve(r, choice)), usual = aimOf(r.goal, *resolve(r));
  ASSERT_EQ(aim.points.size(), 2u);
  const std::vector<Played> played = {{.ns = 100}, {.ns = 10}};
  EXPECT_DOUBLE_EQ(aim.of(played), 110);
  EXPECT_DOUBLE_EQ(aim.compared(played), 100 * 1.02 * 1.02 + 10);
  const std::vector<Played> four(5, {.ns = 10});
  EXPECT_EQ(usual.compared(four), usual.of(four));
}

// Where no bucket of prompts has room for a row of each, they come a row at a time.
TEST(Aim, WithoutABucketPromptsComeAsDecodesDo) {
  CompileRequest r = longRequest();
  r.buckets.newTokens = {2};
  r.goal.inputLen = 100;
  r.goal.outputLen = 4;
  const Aim aim = aimOf(r.goal, *resolve(r));
  ASSERT_EQ(aim.points.size(), 8u + 4);
  for (const AimPoint &point : aim.points)
    EXPECT_EQ(point.at.iterationClass, IterationClass::Decode);
  EXPECT_EQ(aim.points[0].at.context, 1);
  EXPECT_EQ(aim.points[7].at.context, 100);
  EXPECT_DOUBLE_EQ(aim.points[0].weight, 12.5);
  EXPECT_EQ(aim.points[8].at.context, 101);
}

// Of 64 x 34 blocks and the scratch block: what prompts have so far, of which what this iteration writes.
TEST(Aim, ChunksBringWhatTheBatchHasSoFar) {
  CompileRequest r = longRequest();
  r.goal.batch = 64;
  r.goal.context = 544;
  r.goal.inputLen = 512;
  const Target target = *resolve(r);
  const model::WeightLayout layout = model::layoutWeights(r.model);
  const cost::Roofline costs(r.model, r.hardware, target.activation, target.kv);
  Prices prices(costs);
  Iterations iterations(r, target, layout, prices);
  const Player player(iterations);
  const Aim aim = aimOf(r.goal, target);
  const core::InUse first = player.inUse(aim.points[0].at), last = player.inUse(aim.points[7].at);
  EXPECT_EQ(first.kvBlocks, 1 + 4 * 32);
  EXPECT_EQ(first.writtenBegin, 1);
  EXPECT_EQ(last.kvBlocks, 1 + 64 * 32);
  EXPECT_EQ(last.writtenBegin, 1 + 60 * 32);
  EXPECT_EQ(last.writtenEnd, last.kvBlocks);
}

} // namespace
} // namespace headrace::compiler
