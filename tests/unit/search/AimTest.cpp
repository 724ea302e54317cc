// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/Aim.h"

#include "runtime/model/ModelSpec.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using plan::IterationClass;
using ::testing::ElementsAre;

CompileRequest longRequest() {
  model::ModelSpec spec = tinyLlama(2);
  spec.maxPositions = 4096;
  CompileRequest r = request(spec);
  r.goal.batch = 2;
  r.goal.context = 4096;
  return r;
}

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

// Two requests of 3,000 + 500 tokens: of each a chunk of 2,048 and one of 952, and 500 iterations of both, at eight
// contexts from 3,001 to 3,500 that 500 / 8 = 62.5 stand for.
TEST(Aim, OfStatedLengthsIsABatchOfSuchRequests) {
  CompileRequest r = longRequest();
  r.goal.inputLen = 3000;
  r.goal.outputLen = 500;
  const Aim aim = aimOf(r.goal, *resolve(r));
  ASSERT_EQ(aim.points.size(), 10u);
  const auto expectChunk = [&](size_t i, int64_t tokens, int64_t context) {
    EXPECT_EQ(aim.points[i].at.iterationClass, IterationClass::Mixed);
    EXPECT_EQ(aim.points[i].at.bucket.tokens, tokens);
    EXPECT_EQ(aim.points[i].at.context, context);
    EXPECT_DOUBLE_EQ(aim.points[i].weight, 2);
  };
  expectChunk(0, 2048, 2048);
  expectChunk(1, 1024, 3000);
  EXPECT_EQ(aim.points[2].at.context, 3001);
  EXPECT_EQ(aim.points[9].at.context, 3500);
  for (size_t i = 2; i < 10; ++i) {
    EXPECT_EQ(aim.points[i].at.iterationClass, IterationClass::Decode);
    EXPECT_EQ(aim.points[i].at.bucket.context, 4096);
    EXPECT_DOUBLE_EQ(aim.points[i].weight, 62.5);
  }
  EXPECT_EQ(aim.what, "a batch of 2 requests of 3000 + 500 tokens");
}

} // namespace
} // namespace headrace::compiler
