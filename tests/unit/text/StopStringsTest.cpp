// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/StopStrings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace headrace::text {
namespace {

TEST(StopStrings, WithoutAnyNothingIsHeldBack) {
  StopStrings stops;
  EXPECT_EQ(stops.push("a b"), "a b");
  EXPECT_EQ(stops.finish(), "");
  EXPECT_FALSE(stops.stopped());
}

TEST(StopStrings, AStopStringIsNeverShown) {
  StopStrings stops({"END"});
  EXPECT_EQ(stops.push("the E"), "the ");
  EXPECT_EQ(stops.push("ND of"), "");
  EXPECT_TRUE(stops.stopped());
  EXPECT_EQ(stops.reached(), "END");
  EXPECT_EQ(stops.push("more"), "");
  EXPECT_EQ(stops.finish(), "");
}

TEST(StopStrings, WhatOnlyBeganLikeOneIsShown) {
  StopStrings stops({"END"});
  EXPECT_EQ(stops.push("E"), "");
  EXPECT_EQ(stops.push("N"), "");
  EXPECT_EQ(stops.push("EN"), "EN"); // ENEN: the first two can no longer begin it
  EXPECT_EQ(stops.push("T"), "ENT");
  EXPECT_EQ(stops.push("xE"), "x");
  EXPECT_EQ(stops.finish(), "E");
  EXPECT_FALSE(stops.stopped());
}

TEST(StopStrings, TheFirstToBeCompleteEndsTheReply) {
  StopStrings stops({"\n\n", "User:"});
  EXPECT_EQ(stops.push("yes\nUser: no\n\n"), "yes\n");
  EXPECT_EQ(stops.reached(), "User:");
  StopStrings nested({"b", "ab"});
  EXPECT_EQ(nested.push("xab"), "x"); // both end here: the longer one
  EXPECT_EQ(nested.reached(), "ab");
}

// Against a search of every end of the text in turn, for texts of two letters cut anywhere.
TEST(StopStrings, AreFoundWhateverThePiecesAre) {
  std::mt19937 random(1);
  const auto draw = [&](size_t n) { return random() % n; };
  const auto word = [&](size_t most) {
    std::string text;
    for (size_t n = 1 + draw(most); n > 0; --n)
      text += "ab"[draw(2)];
    return text;
  };
  int stopped = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> stops;
    for (size_t n = 1 + draw(3); n > 0; --n)
      stops.push_back(word(6));
    const std::string text = word(24);
    std::string expected = text;
    bool found = false;
    for (size_t end = 1; end <= text.size() && !found; ++end)
      for (const std::string &stop : stops)
        if (std::string_view(text).substr(0, end).ends_with(stop)) {
          expected = found ? std::min(expected, text.substr(0, end - stop.size())) : text.substr(0, end - stop.size());
          found = true;
        }
    StopStrings pieces(stops);
    std::string shown;
    for (size_t at = 0; at < text.size();) {
      const size_t n = 1 + draw(4);
      shown += pieces.push(std::string_view(text).substr(at, n));
      at += n;
    }
    shown += pieces.finish();
    ASSERT_EQ(shown, expected) << text << " in round " << round;
    ASSERT_EQ(pieces.stopped(), found);
    stopped += found;
  }
  EXPECT_GT(stopped, 5000);
  EXPECT_LT(stopped, 19500);
}

} // namespace
} // namespace headrace::text
