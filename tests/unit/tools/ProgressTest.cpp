// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/Progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(ProgressLine, SaysNothingOfWhatIsOverWithinASecond) {
  ProgressLine line(80);
  for (int i = 0; i < 9; ++i) { // nine short steps
    line.begin("step", Amount::Count, 0.1 * i);
    line.update(1, 2, 0.1 * i);
    EXPECT_EQ(line.tick(0.1 * i + 0.05), "");
    EXPECT_EQ(line.end(), "");
  }
}

TEST(ProgressLine, AStepsFirstSecondIsTheOutermosts) {
  ProgressLine line(80);
  line.begin("bench", Amount::Count, 10);
  line.begin("compiling", Amount::Count, 10.9);
  EXPECT_EQ(line.tick(10.99), "");
  EXPECT_EQ(line.tick(11), "\rbench: compiling  1 s so far\x1b[K");
  EXPECT_EQ(line.end(), ""); // the line stays: bench goes on
  EXPECT_EQ(line.tick(11.3), "\rbench  1 s so far\x1b[K");
  EXPECT_EQ(line.end(), "\r\x1b[K");
  EXPECT_TRUE(line.idle());
}

TEST(ProgressLine, IsRedrawnFourTimesASecondAtMostAndOnlyIfItChanged) {
  ProgressLine line(80);
  line.begin("a", Amount::Count, 0);
  line.update(1, 9, 0);
  EXPECT_NE(line.tick(1), "");
  line.update(2, 9, 1.1);
  EXPECT_EQ(line.tick(1.2), "");
  EXPECT_NE(line.tick(1.25), "");
  EXPECT_EQ(line.tick(1.6), ""); // the same text
  EXPECT_NE(line.tick(2.1), ""); // 2 s so far
}

// No bytes but those of the line: what wraps to a second line of a terminal could not be taken away.
TEST(ProgressLine, IsNoWiderThanTheTerminal) {
  ProgressLine line(20);
  line.begin(std::string(100, 'x'), Amount::Count, 0);
  EXPECT_EQ(line.tick(1), "\r" + std::string(19, 'x') + "\x1b[K");
}

TEST(ProgressLine, WithoutATerminalALineEveryTenSeconds) {
  ProgressLine line(std::nullopt);
  line.begin("measuring", Amount::Count, 0);
  line.update(1, 4, 0);
  EXPECT_EQ(line.tick(9.9), "");
  EXPECT_EQ(line.tick(10), "headrace: measuring  [######..................]  25%  1 of 4, 10 s so far\n");
  EXPECT_EQ(line.tick(19.9), "");
  EXPECT_EQ(line.tick(20), "headrace: measuring  [######..................]  25%  1 of 4, 20 s so far\n");
  EXPECT_EQ(line.end(), ""); // nothing to take away
}

TEST(ProgressLine, BytesLeftTakeAsLongAsThoseThatAreDone) {
  ProgressLine line(80);
  line.begin("loading", Amount::Bytes, 0);
  line.update(1024, 4096, 5);
  EXPECT_EQ(line.tick(5), "\rloading  [######..................]  25%  1.00 KiB of 4.00 KiB, about 15 s left\x1b[K");
}

// The first round may be slower than those behind it: what is left is as many times the last one.
TEST(ProgressLine, RoundsLeftTakeAsLongAsTheLastOne) {
  ProgressLine line(80);
  line.begin("rounds", Amount::Rounds, 0);
  line.update(0, 4, 0);
  EXPECT_THAT(line.tick(5), Not(HasSubstr("left"))); // nothing is known
  line.update(1, 4, 10);
  EXPECT_THAT(line.tick(10), HasSubstr("about 30 s left"));
  line.update(2, 4, 12);
  EXPECT_THAT(line.tick(12), HasSubstr("2 of 4, about 4 s left"));
  EXPECT_THAT(line.tick(13), HasSubstr("about 3 s left"));
  EXPECT_THAT(line.tick(20), HasSubstr("about 0 s left"));
}

// Pairs of a profile, requests, buckets: the next may take a hundred times what the last did.
TEST(ProgressLine, OfWhatIsOnlyCountedNoTimeLeftIsSaid) {
  ProgressLine line(120);
  line.begin("profile", Amount::Count, 0);
  line.update(84, 85, 60);
  EXPECT_THAT(line.tick(60), HasSubstr("84 of 85, 60 s so far"));
}

TEST(ProgressLine, AnOuterStepSaysWhichOfHowManyAndTheInnerWhatIsDone) {
  ProgressLine line(200);
  line.begin("bench", Amount::Count, 0);
  line.update(1, 3, 0);
  line.begin("headrace at batch 8", Amount::Count, 1);
  line.begin("compiling", Amount::Count, 1);
  line.note("placement for 8 tokens of 8 at context 64 (bucket 1 of 2)");
  EXPECT_EQ(line.tick(2),
            "\rbench 2 of 3: headrace at batch 8: compiling  [########................]  33%  2 s so far, "
            "placement for 8 tokens of 8 at context 64 (bucket 1 of 2)\x1b[K");
  line.update(7, 7, 3);
  EXPECT_EQ(line.tick(100).find("nan"), std::string::npos);
}

// One bar, of the outermost step: what is within it fills its part, and where that begins anew the bar does not fall.
TEST(ProgressLine, TheBarIsTheWholes) {
  ProgressLine line(200);
  line.begin("fleet", Amount::Count, 0);
  line.update(1, 2, 0);
  line.begin("compiling", Amount::Count, 0);
  line.update(28, 56, 1);
  EXPECT_EQ(line.tick(1), "\rfleet 2 of 2: compiling 29 of 56  [##################......]  75%  1 s so far\x1b[K");
  line.update(1, 56, 2); // the next of several plans
  EXPECT_EQ(line.tick(2), "\rfleet 2 of 2: compiling 2 of 56  [##################......]  75%  2 s so far\x1b[K");
  line.end();
  line.update(2, 2, 3);
  EXPECT_THAT(line.tick(3), HasSubstr("100%  2 of 2, 3 s so far"));
}

// How much of a search there is nobody knows, however far the plan is that it looks at.
TEST(ProgressLine, ASearchHasNoBar) {
  ProgressLine line(200);
  line.begin("the largest batch", Amount::Count, 0);
  line.note("trying 64");
  line.begin("compiling", Amount::Count, 0);
  line.update(56, 56, 1);
  EXPECT_EQ(line.tick(1), "\rthe largest batch, trying 64: compiling 56 of 56  1 s so far\x1b[K");
}

TEST(ProgressLine, NothingOfNothingIsWhole) {
  ProgressLine line(80);
  line.begin("a", Amount::Bytes, 0);
  line.update(0, 0, 0);
  EXPECT_EQ(line.tick(2), "\ra  2 s so far\x1b[K");
  line.update(9, 3, 2); // more than was thought
  EXPECT_THAT(line.tick(3), HasSubstr("100%  3 B of 3 B, about 0 s left"));
}

} // namespace
} // namespace headrace::tools
