// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/traffic/Lengths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace headrace::serve {
namespace {

using testing::HasSubstr;

double mean(const std::vector<RequestLengths> &lengths, int64_t RequestLengths::*of) {
  double sum = 0;
  for (const RequestLengths &one : lengths)
    sum += static_cast<double>(one.*of);
  return sum / static_cast<double>(lengths.size());
}

TEST(RandomLengths, AreConstantWithoutARange) {
  const auto lengths = randomLengths({.input = 100, .output = 20}, 120, 50, 1);
  ASSERT_TRUE(lengths.ok()) << lengths.status();
  for (const RequestLengths &one : *lengths) {
    EXPECT_EQ(one.prompt, 100);
    EXPECT_EQ(one.output, 20);
  }
}

// floor(10 x 0.75) = 7 to ceil(10 x 1.25) = 13, and 3 x 0.75 = 2.25 to 3.75: 2 to 4. Means 10 and 3, deviations 2
// and 0.82, of 40,000 4 x 0.01 and 4 x 0.004.
TEST(RandomLengths, AreUniformInTheirRange) {
  const auto lengths = randomLengths({.input = 10, .output = 3, .rangeRatio = 0.25}, 17, 40'000, 1);
  ASSERT_TRUE(lengths.ok()) << lengths.status();
  std::vector<int> prompts(14, 0), outputs(5, 0);
  for (const RequestLengths &one : *lengths) {
    ++prompts.at(static_cast<size_t>(one.prompt));
    ++outputs.at(static_cast<size_t>(one.output));
  }
  EXPECT_EQ(std::count(prompts.begin(), prompts.begin() + 7, 0), 7);
  EXPECT_EQ(std::count(prompts.begin() + 7, prompts.end(), 0), 0);
  EXPECT_EQ(outputs[0] + outputs[1], 0);
  EXPECT_NEAR(mean(*lengths, &RequestLengths::prompt), 10, 0.04);
  EXPECT_NEAR(mean(*lengths, &RequestLengths::output), 3, 0.017);
}

TEST(RandomLengths, AreAtLeastOne) {
  const auto lengths = randomLengths({.input = 1, .output = 1, .rangeRatio = 0.9}, 10, 100, 1);
  ASSERT_TRUE(lengths.ok());
  for (const RequestLengths &one : *lengths)
    EXPECT_TRUE(one.prompt >= 1 && one.prompt <= 2 && one.output >= 1 && one.output <= 2);
}

TEST(RandomLengths, RefusesByName) {
  const auto refusal = [](RandomLengths lengths, int64_t context = 2048, int64_t count = 1) {
    return std::string(randomLengths(lengths, context, count, 1).status().message());
  };
  EXPECT_THAT(refusal({.input = 0}), HasSubstr("random input length = 0, expected 1 to "));
  EXPECT_THAT(refusal({.output = -3}), HasSubstr("random output length = -3, expected 1 to "));
  EXPECT_EQ(refusal({.rangeRatio = 1}), "random range ratio = 1, expected 0 or more and less than 1");
  EXPECT_THAT(refusal({.rangeRatio = std::numeric_limits<double>::quiet_NaN()}), HasSubstr("range ratio = nan"));
  EXPECT_EQ(refusal({.input = 100, .output = 20, .rangeRatio = 0.5}, 179),
            "random lengths: prompts of up to 150 tokens with up to 30 new ones are more than the context of 179");
  EXPECT_EQ(refusal({}, 2048, 0), "number of requests = 0, expected at least 1");
}

// Deviations of what is kept are at most 200 and 240 tokens for ShareGPT, 15 and 60 for Alpaca: over 400,000 the means
// are within 4 x 0.4, and 4 x 0.1.
TEST(FittedLengths, HaveThePublishedMeans) {
  for (const char *const name : {"sharegpt", "alpaca"}) {
    const LengthFit *const fit = findLengthFit(name);
    ASSERT_NE(fit, nullptr);
    const auto lengths = fittedLengths(*fit, 2048, 400'000, 1);
    ASSERT_TRUE(lengths.ok()) << lengths.status();
    const double within = fit->name == "sharegpt" ? 1.6 : 0.4;
    EXPECT_NEAR(mean(*lengths, &RequestLengths::prompt), fit->meanPrompt, within) << name;
    EXPECT_NEAR(mean(*lengths, &RequestLengths::output), fit->meanOutput, within) << name;
    for (const RequestLengths &one : *lengths) {
      ASSERT_GE(std::min(one.prompt, one.output), fit->leastTokens);
      ASSERT_LE(one.prompt, fit->mostPrompt);
      ASSERT_LE(one.prompt + one.output, fit->mostTotal);
    }
  }
  EXPECT_EQ(findLengthFit("lmsys"), nullptr);
}

TEST(FittedLengths, FitTheContextOrAreRefused) {
  const LengthFit &fit = *findLengthFit("sharegpt");
  int64_t leftOut = 0;
  const auto lengths = fittedLengths(fit, 100, 1000, 1, &leftOut);
  ASSERT_TRUE(lengths.ok()) << lengths.status();
  for (const RequestLengths &one : *lengths)
    EXPECT_LE(one.prompt + one.output, 100);
  // The same draws with room for all of them: as many are longer, the last is not.
  const auto all = fittedLengths(fit, 2048, 1000 + leftOut, 1);
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(leftOut, std::count_if(all->begin(), all->end(),
                                   [](const RequestLengths &one) { return one.prompt + one.output > 100; }));
  EXPECT_GT(leftOut, 1000);
  EXPECT_EQ(fittedLengths(fit, 7, 1, 1).status().message(),
            "of sharegpt's lengths none of 5000 with its output is from 8 to 7 tokens, the context is 7");
  EXPECT_EQ(fittedLengths(fit, 100, -1, 1).status().message(), "number of requests = -1, expected at least 1");
}

// To the token: the same on every machine.
TEST(FittedLengths, ASeedGivesTheseLengths) {
  const auto lengths = fittedLengths(*findLengthFit("sharegpt"), 2048, 5, 0);
  ASSERT_TRUE(lengths.ok());
  std::vector<int64_t> tokens;
  for (const RequestLengths &one : *lengths) {
    tokens.push_back(one.prompt);
    tokens.push_back(one.output);
  }
  EXPECT_THAT(tokens, testing::ElementsAre(540, 486, 571, 339, 9, 212, 111, 465, 557, 372));
}

TEST(MakeRequests, PairsTimesAndLengths) {
  const std::vector<TrafficRequest> requests = makeRequests({5, 7}, {{10, 2}, {20, 3}});
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[1].arrivalNs, 7);
  EXPECT_EQ(requests[1].tokensOfPrompt(), 20);
  EXPECT_EQ(requests[1].outputTokens, 3);
}

TEST(MakeUpPrompt, GivesIdsOfTheVocabularyByRequest) {
  std::vector<int32_t> a, b, again;
  makeUpPrompt(1000, 50, 1, 0, a);
  makeUpPrompt(1000, 50, 1, 1, b);
  makeUpPrompt(1000, 50, 1, 0, again);
  EXPECT_EQ(a, again);
  EXPECT_NE(a, b);
  EXPECT_EQ(*std::min_element(a.begin(), a.end()), 0);
  EXPECT_EQ(*std::max_element(a.begin(), a.end()), 49);
}

} // namespace
} // namespace headrace::serve
