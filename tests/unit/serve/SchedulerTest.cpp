// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/engine/Scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace::serve {
namespace {

using testing::ElementsAre;
using Views = std::vector<SequenceView>;

// Blocks of 10 tokens.
SchedulerLimits limits(int64_t seqs = 8, int64_t watermark = 0, Prefill prefill = Prefill::Chunked) {
  return {.maxNumSeqs = seqs, .blockTokens = 10, .watermarkBlocks = watermark, .prefill = prefill};
}
SequenceView waiting(int64_t prompt) { return {.prefill = prompt}; }
// With the blocks of its rows.
SequenceView at(int64_t prompt, int64_t rows) { return {.prefill = prompt, .rows = rows, .blocks = (rows + 9) / 10}; }

Composition composed(const SchedulerLimits &limits, const Views &running, int64_t budget, int64_t freeBlocks) {
  Composition out;
  Scheduler(limits).compose(running, budget, freeBlocks, out);
  return out;
}

TEST(Scheduler, ASequenceJoinsWhereASeatIsFree) {
  const Scheduler two(limits(2));
  EXPECT_TRUE(two.mayJoin(Views{at(10, 10)}, waiting(10), 100));
  EXPECT_FALSE(two.mayJoin(Views{at(10, 10), at(10, 10)}, waiting(10), 100));
}

TEST(Scheduler, ASequenceJoinsWhereTheBlocksOfItsPromptAndTheWatermarkAreFree) {
  const Views running{at(10, 10)};
  // 25 tokens are 3 blocks.
  EXPECT_TRUE(Scheduler(limits()).mayJoin(running, waiting(25), 3));
  EXPECT_FALSE(Scheduler(limits()).mayJoin(running, waiting(25), 2));
  EXPECT_TRUE(Scheduler(limits(8, 2)).mayJoin(running, waiting(25), 5));
  EXPECT_FALSE(Scheduler(limits(8, 2)).mayJoin(running, waiting(25), 4));
  EXPECT_FALSE(Scheduler(limits(8, 2)).mayJoin(running, waiting(31), 5)); // 4 blocks
}

TEST(Scheduler, BlocksThatRunningPromptsHaveYetToTakeAreNotFree) {
  // Of 45 tokens 15 are there: 5 blocks, of which 3 are to come. The head's 3 make 6.
  EXPECT_TRUE(Scheduler(limits()).mayJoin(Views{at(45, 15)}, waiting(25), 6));
  EXPECT_FALSE(Scheduler(limits()).mayJoin(Views{at(45, 15)}, waiting(25), 5));
  // What a decode will take is not kept for it.
  EXPECT_TRUE(Scheduler(limits()).mayJoin(Views{at(20, 20)}, waiting(25), 3));
}

// Three too many are in use: those that need no block go on, and for one that does the youngest give theirs up, two
// each, until one is free.
TEST(Scheduler, FewerThanNoneAreFree) {
  const Composition goOn = composed(limits(), {at(15, 15), at(15, 15), at(15, 12)}, 20, -3);
  EXPECT_THAT(goOn.rows, ElementsAre(1, 1, 3));
  EXPECT_EQ(goOn.preempted, 0u);
  const Composition next = composed(limits(), {at(20, 20), at(15, 15), at(15, 15), at(15, 15)}, 20, -3);
  EXPECT_THAT(next.rows, ElementsAre(1, 1, 0, 0));
  EXPECT_EQ(next.preempted, 2u);
  EXPECT_FALSE(Scheduler(limits()).mayJoin(Views{at(10, 10)}, waiting(5), -1));
}

TEST(Scheduler, WhereNothingRunsTheFirstMayTry) { EXPECT_TRUE(Scheduler(limits(1, 5)).mayJoin({}, waiting(100), 0)); }

TEST(Scheduler, DecodesComeFirstAndPromptsShareTheRestInOrder) {
  // A budget of 12: a row each for two decodes, 10 of the first prompt's 40; the second's have none left.
  const Composition next = composed(limits(), {at(5, 7), at(40, 0), at(5, 12), at(4, 0)}, 12, 100);
  EXPECT_THAT(next.rows, ElementsAre(1, 10, 1, 0));
  EXPECT_EQ(next.tokens, 12);
  EXPECT_EQ(next.sequences, 3);
  EXPECT_EQ(next.context, 13);
  EXPECT_TRUE(next.prefill);
  EXPECT_EQ(next.preempted, 0u);
}

TEST(Scheduler, APromptGoesOnWhereItWasAndTheNextTakesWhatItLeaves) {
  const Composition next = composed(limits(), {at(40, 35), at(20, 0)}, 12, 100);
  EXPECT_THAT(next.rows, ElementsAre(5, 7));
  EXPECT_EQ(next.context, 40);
}

TEST(Scheduler, WithoutAMixedBucketPromptsComeRowByRow) {
  const Composition next = composed(limits(), {at(5, 7), at(40, 3), at(40, 0)}, 0, 100);
  EXPECT_THAT(next.rows, ElementsAre(1, 1, 1));
}

TEST(Scheduler, MoreDecodesThanTheBudgetAllRunAndPromptsWait) {
  const Composition next = composed(limits(), {at(5, 7), at(5, 7), at(5, 7), at(9, 0)}, 2, 100);
  EXPECT_THAT(next.rows, ElementsAre(1, 1, 1, 0));
  EXPECT_FALSE(next.prefill);
}

TEST(Scheduler, PromptsAreCutToTheBlocksThatAreFree) {
  // 15 rows in 2 blocks; one more is free: 15 rows up to 30 of 60. Nothing is left for the next.
  const Composition next = composed(limits(), {at(60, 15), at(20, 0)}, 50, 1);
  EXPECT_THAT(next.rows, ElementsAre(15, 0));
  EXPECT_EQ(next.preempted, 0u);
}

TEST(Scheduler, ADecodeWithoutABlockTakesThoseOfTheYoungest) {
  // All decode at 20 rows in 2 blocks, and each needs a third; one is free. The first takes it, the second has one of
  // the youngest's 2.
  const Composition next = composed(limits(), {at(5, 20), at(5, 20), at(5, 20)}, 50, 1);
  EXPECT_THAT(next.rows, ElementsAre(1, 1, 0));
  EXPECT_EQ(next.preempted, 1u);
}

TEST(Scheduler, OnlyAsManyArePreemptedAsIsNeeded) {
  // The first needs a block and none is free: the fourth gives 1, and the others have room in theirs.
  Composition next = composed(limits(), {at(5, 20), at(5, 15), at(5, 15), at(5, 9)}, 50, 0);
  EXPECT_THAT(next.rows, ElementsAre(1, 1, 1, 0));
  EXPECT_EQ(next.preempted, 1u);
  // One that has no block yet gives none: the next youngest follows it.
  next = composed(limits(), {at(5, 20), at(5, 15), at(30, 0)}, 50, 0);
  EXPECT_THAT(next.rows, ElementsAre(1, 0, 0));
  EXPECT_EQ(next.preempted, 2u);
}

TEST(Scheduler, TheYoungestPreemptsItself) {
  const Composition next = composed(limits(), {at(5, 15), at(5, 20)}, 50, 0);
  EXPECT_THAT(next.rows, ElementsAre(1, 0));
  EXPECT_EQ(next.preempted, 1u);
}

TEST(Scheduler, WherePromptsAloneHaveNoBlocksTheYoungestAreEndedUntilTheOldestGoesOn) {
  // 10 rows of 30 each, no block free: the third's block goes to the first.
  const Composition next = composed(limits(), {at(30, 10), at(30, 10), at(30, 10)}, 50, 0);
  EXPECT_THAT(next.rows, ElementsAre(10, 0, 0));
  EXPECT_EQ(next.preempted, 1u);
}

TEST(Scheduler, TheOldestAloneWithoutABlockHasNoRows) {
  const Composition decode = composed(limits(), {at(5, 20)}, 50, 0), prompt = composed(limits(), {at(50, 20)}, 50, 0);
  EXPECT_EQ(decode.tokens, 0);
  EXPECT_EQ(prompt.tokens, 0);
  EXPECT_EQ(decode.preempted + prompt.preempted, 0u);
}

TEST(Scheduler, SeparatePrefillHoldsDecodesBackAndCutsPrompts) {
  const SchedulerLimits separate = limits(8, 0, Prefill::Separate);
  EXPECT_THAT(composed(separate, {at(5, 7), at(40, 0)}, 12, 100).rows, ElementsAre(0, 12));
  // A prompt of which one row is left comes beside decodes.
  EXPECT_THAT(composed(separate, {at(5, 7), at(40, 39)}, 12, 100).rows, ElementsAre(1, 1));
}

SchedulerLimits batches(int64_t seqs = 8) {
  return {.maxNumSeqs = seqs, .blockTokens = 10, .watermarkBlocks = 99, .batching = Batching::Static, .context = 100};
}
SequenceView waiting(int64_t prompt, int64_t output) { return {.prefill = prompt, .output = output}; }

TEST(Scheduler, AStaticBatchTakesThoseThatFitPaddedToItsLongest) {
  const Scheduler scheduler(batches());
  // 45 + 30 tokens are 8 blocks, for each of three; the watermark is none of its business.
  const Views two{waiting(45, 5), waiting(20, 30)};
  EXPECT_TRUE(scheduler.mayJoin(two, waiting(1, 1), 24));
  EXPECT_FALSE(scheduler.mayJoin(two, waiting(1, 1), 23));
  // 45 + 55 are the context of 100, 45 + 56 are more.
  EXPECT_TRUE(scheduler.mayJoin(two, waiting(1, 55), 30));
  EXPECT_FALSE(scheduler.mayJoin(two, waiting(1, 56), 100));
  EXPECT_FALSE(Scheduler(batches(2)).mayJoin(two, waiting(1, 1), 100));
  EXPECT_TRUE(scheduler.mayJoin({}, waiting(100, 1), 0));
}

TEST(Scheduler, NobodyJoinsAStaticBatchThatRuns) {
  Views running{waiting(45, 5), waiting(20, 30)};
  running[0].rows = 1;
  EXPECT_FALSE(Scheduler(batches()).mayJoin(running, waiting(1, 1), 100));
}

TEST(Scheduler, AStaticBatchDecodesOnceAllItsPromptsAreThere) {
  EXPECT_THAT(composed(batches(), {at(40, 40), at(40, 39), at(40, 20)}, 12, 100).rows, ElementsAre(0, 1, 11));
  EXPECT_THAT(composed(batches(), {at(40, 40), at(40, 40), at(40, 39)}, 12, 100).rows, ElementsAre(0, 0, 1));
  EXPECT_THAT(composed(batches(), {at(40, 40), at(40, 40), at(40, 40)}, 12, 100).rows, ElementsAre(1, 1, 1));
}

TEST(Scheduler, ADecodeOverPaddingTakesNoBlockAndGivesNone) {
  // 12 rows in 4 blocks, those of its padding; the second takes the one that is free.
  SequenceView padded = at(12, 12);
  padded.blocks = 4;
  const Composition next = composed(batches(), {padded, at(20, 20), at(20, 20)}, 12, 1);
  EXPECT_THAT(next.rows, ElementsAre(1, 1, 0));
  EXPECT_EQ(next.preempted, 1u);
}

TEST(Scheduler, WholePromptsAreNotCut) {
  const SchedulerLimits whole = limits(8, 0, Prefill::Whole);
  // 7 + 5 of 12 fit, the third waits for the next iteration, and so do decodes.
  EXPECT_THAT(composed(whole, {at(5, 7), at(7, 0), at(5, 0), at(4, 0)}, 12, 100).rows, ElementsAre(0, 7, 5, 0));
  EXPECT_THAT(composed(whole, {at(5, 7), at(7, 0), at(6, 0)}, 12, 100).rows, ElementsAre(0, 7, 0));
  // Prompt and tokens of one that was preempted may be more than an iteration holds.
  EXPECT_THAT(composed(whole, {at(5, 7), at(15, 0)}, 12, 100).rows, ElementsAre(0, 12));
  EXPECT_THAT(composed(whole, {at(5, 7), at(15, 12)}, 12, 100).rows, ElementsAre(0, 3));
}

} // namespace
} // namespace headrace::serve
