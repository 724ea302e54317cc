// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>

#include <gmock/gmock.h>

#include "tests/unit/kernels/SampleRows.h"

namespace headrace::kernels {
namespace {

using Request = SampleRequest;

// One token for each row of logits, as `sampled` gets them at the request slots. What is published is the same, but the
// marker for each row with a logit that is not finite. One row more, of NaNs, is behind those that are sampled.
std::vector<int32_t> run(HostIsa isa, const std::vector<Floats> &logits, const std::vector<Request> &requests) {
  const size_t n = logits.size(), vocab = logits[0].size();
  SampleRows rows(requests);
  Floats flat;
  for (const Floats &row : logits)
    flat.insert(flat.end(), row.begin(), row.end());
  flat.resize((n + 1) * vocab, kNan);
  std::vector<int32_t> sampled(2 * n + 2, -7), output(n + 1, -7), tokens;
  Floats workspace(sampleWorkspaceBytes(Backend::Host, 1, vocab) / sizeof(float), kNan);
  const SampleArgs args{.meta = rows.meta.get(),
                        .logits = flat.data(),
                        .history = rows.history.data(),
                        .sampled = sampled.data(),
                        .output = output.data(),
                        .workspace = workspace.data(),
                        .vocab = static_cast<int64_t>(vocab),
                        .blockTokens = SampleRows::kBlockTokens};
  runKernel(Op::Sample, isa, &args, workspace.size() * sizeof(float));
  for (size_t s = 0; s < n; ++s) {
    const bool finite = std::all_of(logits[s].begin(), logits[s].end(), [](float v) { return std::isfinite(v); });
    tokens.push_back(sampled[2 * s + 1]);
    EXPECT_EQ(output[s], finite ? tokens[s] : kNotFinite);
    EXPECT_EQ(sampled[2 * s], -7);
    EXPECT_TRUE(tokens[s] >= 0 && tokens[s] < static_cast<int32_t>(vocab)) << tokens[s];
  }
  EXPECT_EQ(output[n], -7);
  EXPECT_EQ(sampled[2 * n + 1], -7);
  for (size_t s = 0; s < n; ++s)
    EXPECT_TRUE(sameBits(&flat[s * vocab], logits[s].data(), vocab)); // penalties leave the model's logits
  return tokens;
}
int32_t runOne(HostIsa isa, const Floats &logits, const Request &request) { return run(isa, {logits}, {request})[0]; }

HEADRACE_ON_EACH_ISA(SampleTest);

TEST_P(SampleTest, GreedyTakesTheLargestAndTheLowestIdAmongEquals) {
  EXPECT_EQ(runOne(GetParam(), {1, 3, 2}, {}), 1);
  Floats logits(45, -2.0f);
  EXPECT_EQ(runOne(GetParam(), logits, {}), 0);
  logits[44] = 5;
  EXPECT_EQ(runOne(GetParam(), logits, {}), 44);
  logits[9] = logits[10] = 5;
  EXPECT_EQ(runOne(GetParam(), logits, {}), 9);
}

TEST_P(SampleTest, NansNeverWin) {
  Floats logits(20, -1.0f);
  logits[0] = logits[7] = logits[19] = kNan;
  logits[12] = 1;
  EXPECT_EQ(runOne(GetParam(), logits, {}), 12);
  for (int32_t position = 0; position < 50; ++position) {
    const int32_t token = runOne(GetParam(), logits, {.temperature = 100, .topP = 0.99f, .position = position});
    EXPECT_FALSE(std::isnan(logits[token]));
  }
  const Floats all(20, kNan);
  EXPECT_EQ(runOne(GetParam(), all, {}), 0);
  EXPECT_EQ(runOne(GetParam(), all, {.temperature = 1}), 0);
  EXPECT_EQ(runOne(GetParam(), all, {.temperature = 1, .topP = 0.5f}), 0);
}

TEST_P(SampleTest, InfiniteLogitsAreTheOnlyCandidates) {
  Floats logits(20, 3.0f);
  logits[5] = logits[6] = INFINITY;
  EXPECT_EQ(runOne(GetParam(), logits, {}), 5);
  for (int32_t position = 0; position < 20; ++position)
    EXPECT_THAT((std::vector<int32_t>{5, 6}),
                testing::Contains(runOne(GetParam(), logits, {.temperature = 1, .position = position})));
  const Floats none(9, -INFINITY);
  EXPECT_EQ(runOne(GetParam(), none, {}), 0);
}

// Every place of a row, alone among finite logits and beside rows that are well, whatever samples it; run() checks what
// is published.
TEST_P(SampleTest, OneLogitThatIsNotFiniteMarksItsRowAlone) {
  const Request requests[] = {{},
                              {.temperature = 1},
                              {.temperature = 0.7f, .topP = 0.5f},
                              {.temperature = 1, .topK = 3, .minP = 0.1f},
                              {.repetition = 2, .presence = 1, .history = {0, 0}, .promptTokens = 1},
                              {.temperature = 1, .repetition = 2, .history = {0}}};
  for (const float wrong : {kNan, -kNan, INFINITY, -INFINITY})
    for (const size_t vocab : {1, 7, 8, 19}) {
      const Floats well = randomFloats(static_cast<int64_t>(vocab), 5);
      for (size_t place = 0; place < vocab; ++place)
        for (const Request &request : requests) {
          std::vector<Floats> rows(3, well);
          rows[1][place] = wrong;
          const std::vector<int32_t> tokens = run(GetParam(), rows, {request, request, request});
          EXPECT_EQ(tokens[0], runOne(GetParam(), well, request));
          EXPECT_EQ(tokens[2], tokens[0]);
        }
    }
}

// The largest numbers there are, whose sum is not finite, are.
TEST_P(SampleTest, LargeLogitsAreFinite) {
  Floats logits(40, 3.4e38f);
  logits[3] = -3.4e38f;
  EXPECT_EQ(runOne(GetParam(), logits, {}), 0);
  EXPECT_NE(runOne(GetParam(), logits, {.temperature = 1}), 3);
}

TEST_P(SampleTest, TheUniformNumberPicksInOrderOfIds) {
  // Probabilities 1/8, 4/8, 1/8, 2/8 (temperature 1, logits ln of them): running sums 1/8, 5/8, 6/8, 1.
  const Floats logits = {std::log(1.0f), std::log(4.0f), std::log(1.0f), std::log(2.0f)};
  for (int32_t position = 0; position < 200; ++position) {
    const double u = uniformAt(17, position);
    const int32_t expected = u < 0.125 ? 0 : u < 0.625 ? 1 : u < 0.75 ? 2 : 3;
    EXPECT_EQ(runOne(GetParam(), logits, {.temperature = 1, .seed = 17, .position = position}), expected) << u;
  }
}

// The tokens that a hundred positions sample.
std::vector<int32_t> seenOf(HostIsa isa, const Floats &logits, Request request) {
  std::vector<int32_t> tokens;
  for (request.position = 0; request.position < 100; ++request.position)
    tokens.push_back(runOne(isa, logits, request));
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

TEST_P(SampleTest, TopPKeepsTheShortestPrefixThatReachesIt) {
  // Probabilities 1/8, 4/8, 1/8, 2/8. topP 0.5: {1}. 0.7: {1, 3}. 0.76: {0, 1, 3}, the tie going to the lower id.
  const Floats logits = {std::log(1.0f), std::log(4.0f), std::log(1.0f), std::log(2.0f)};
  auto seen = [&](float topP) { return seenOf(GetParam(), logits, {.temperature = 1, .topP = topP}); };
  EXPECT_EQ(seen(0.0f), (std::vector<int32_t>{1}));
  EXPECT_EQ(seen(0.49f), (std::vector<int32_t>{1}));
  EXPECT_EQ(seen(0.7f), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(seen(0.76f), (std::vector<int32_t>{0, 1, 3}));
  EXPECT_EQ(seen(0.9f), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(seen(1.0f), (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST_P(SampleTest, TopKKeepsTheFirstOfTheRanking) {
  const Floats logits = {std::log(1.0f), std::log(4.0f), std::log(1.0f), std::log(2.0f)};
  auto seen = [&](int32_t topK) { return seenOf(GetParam(), logits, {.temperature = 1, .topK = topK}); };
  EXPECT_EQ(seen(1), (std::vector<int32_t>{1}));
  EXPECT_EQ(seen(2), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(seen(3), (std::vector<int32_t>{0, 1, 3})); // the tie goes to the lower id
  for (const int32_t all : {0, 4, 5, 1 << 30})
    EXPECT_EQ(seen(all), (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST_P(SampleTest, MinPKeepsWhatReachesItsShareOfTheLikeliest) {
  // Weights 1/4, 1, 1/4, 1/2.
  const Floats logits = {std::log(1.0f), std::log(4.0f), std::log(1.0f), std::log(2.0f)};
  auto seen = [&](float minP) { return seenOf(GetParam(), logits, {.temperature = 1, .minP = minP}); };
  EXPECT_EQ(seen(0.24f), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(seen(0.26f), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(seen(0.51f), (std::vector<int32_t>{1}));
  EXPECT_EQ(seen(1), (std::vector<int32_t>{1}));
  // A temperature of 2 makes them 1/2, 1, 1/2, 0.71.
  EXPECT_EQ(seenOf(GetParam(), logits, {.temperature = 2, .minP = 0.49f}), (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST_P(SampleTest, TopPIsOfWhatTopKAndMinPLeave) {
  // Weights 1/4, 1, 1/4, 1/2. Of the two likeliest 1 has 2/3, of all 1/2.
  const Floats logits = {std::log(1.0f), std::log(4.0f), std::log(1.0f), std::log(2.0f)};
  for (const Request &two :
       {Request{.temperature = 1, .topK = 2}, Request{.temperature = 1, .minP = 0.4f},
        Request{.temperature = 1, .topK = 3, .minP = 0.4f}, Request{.temperature = 1, .topK = 2, .minP = 0.1f}}) {
    Request request = two;
    EXPECT_EQ(seenOf(GetParam(), logits, request), (std::vector<int32_t>{1, 3}));
    request.topP = 0.66f;
    EXPECT_EQ(seenOf(GetParam(), logits, request), (std::vector<int32_t>{1}));
    request.topP = 0.67f;
    EXPECT_EQ(seenOf(GetParam(), logits, request), (std::vector<int32_t>{1, 3}));
  }
}

TEST_P(SampleTest, PenaltiesAreOfTheirTokens) {
  // The prompt has 0 twice and 1, generated are 1, 2, 2, 2. With each penalty the logits are as beside it.
  const Request base{.history = {0, 0, 1, 1, 2, 2, 2}, .promptTokens = 3};
  const Floats logits = {8, 8, 8, -2, 3};
  const auto greedy = [&](Floats row, Request request) { return runOne(GetParam(), row, request); };
  Request request = base;
  EXPECT_EQ(greedy(logits, request), 0);
  request.repetition = 4; // 2, 2, 2, -2, 3: once, however often it is there
  EXPECT_EQ(greedy(logits, request), 4);
  EXPECT_EQ(greedy({8, 8, 8, -2, 1.5f}, request), 0);
  EXPECT_EQ(greedy({-1, -1, -1, -3.5f, -5}, request), 3); // -4, -4, -4, -3.5, -5: below 0 it multiplies
  EXPECT_EQ(greedy({-1, -1, -1, -4, -5}, request), 0);
  request = base;
  request.presence = 2; // 8, 6, 6, -2, 3: of generated tokens, once
  EXPECT_EQ(greedy(logits, request), 0);
  EXPECT_EQ(greedy({5, 8, 8.5f, -2, 3}, request), 2); // 5, 6, 6.5
  EXPECT_EQ(greedy({6.25f, 8, 8, -2, 3}, request), 0);
  request.presence = -2; // 8, 10, 10
  EXPECT_EQ(greedy(logits, request), 1);
  request = base;
  request.frequency = 1;                           // 8, 7, 5, -2, 3: each time
  EXPECT_EQ(greedy({6, 8, 9, -2, 3}, request), 1); // 6, 7, 6
  request.frequency = -1;
  EXPECT_EQ(greedy(logits, request), 2);
  request = base;
  request.repetition = 2, request.presence = 1, request.frequency = 0.5f; // 4, 2.5, 1.5, -2, 3
  EXPECT_EQ(greedy({5, 8, 8, -2, 3}, request), 4);                        // 2.5, 2.5, 1.5, -2, 3
  EXPECT_EQ(greedy({5, 8, 8, -2, 2}, request), 0);
}

// Of the tokens behind the sampled position nothing is read, and of other sequences nothing.
TEST_P(SampleTest, OnlyTheSequencesOwnTokensArePenalised) {
  const Floats logits = {4, 3, 2, 1, 0};
  const Request first{.repetition = 8, .history = {0, 1}}, second{.repetition = 8, .history = {0, 1, 2, 0, 1}};
  Request plain = first;
  plain.repetition = 1;
  EXPECT_EQ(run(GetParam(), {logits, logits, logits}, {first, second, plain}), (std::vector<int32_t>{2, 3, 0}));
}

// What a penalty makes infinite was finite: it is published.
TEST_P(SampleTest, APenaltyMakesNoNumberWrong) {
  const Request request{.repetition = 0.5f, .history = {2}};
  EXPECT_EQ(runOne(GetParam(), {1, 2, 3e38f, 3.2e38f}, request), 2);
  EXPECT_EQ(runOne(GetParam(), {-1e38f, -1, -3e38f, -2}, {.repetition = 4, .history = {1, 2}}), 3);
}

TEST_P(SampleTest, FrequenciesFollowTheTemperature) {
  // Logits 0 and ln 3, temperature 1/2: odds 1 to 9. 4000 draws: 3600 +- 19 (standard deviation), within 5 of them.
  const Floats logits = {0, std::log(3.0f)};
  std::vector<Floats> rows(4000, logits);
  std::vector<Request> requests;
  for (int32_t i = 0; i < 4000; ++i)
    requests.push_back({.temperature = 0.5f, .seed = 3, .position = i});
  int64_t ones = 0;
  for (int32_t token : run(GetParam(), rows, requests))
    ones += token;
  EXPECT_NEAR(ones, 3600, 95);
}

TEST_P(SampleTest, SmallTemperaturesAreGreedy) {
  const Floats logits = randomFloats(100, 3);
  const int32_t greedy = runOne(GetParam(), logits, {});
  for (float temperature : {1e-4f, 1e-30f, 1e-44f})
    EXPECT_EQ(runOne(GetParam(), logits, {.temperature = temperature, .topP = 0.9f}), greedy);
}

RC_GTEST_PROP(SampleProperty, TheTokenIsTheReferencesCandidateAtTheUniformNumber, ()) {
  const auto isa = *rc::gen::elementOf(testedIsas());
  const int64_t vocab = *rc::gen::inRange<int64_t>(1, 400);
  std::mt19937 random(*rc::gen::arbitrary<uint32_t>());
  Floats logits = randomFloats(vocab, random());
  const bool coarse = *rc::gen::arbitrary<bool>(); // many equal logits
  for (float &v : logits)
    v = coarse ? std::round(v * 3) : v * 10;
  Request request = randomRequest(random, vocab);
  if (*rc::gen::arbitrary<bool>()) // as without penalties and filters but top-p
    request = {
        .temperature = request.temperature, .topP = request.topP, .seed = request.seed, .position = request.position};
  RC_ASSERT(reference::mayTake(runOne(isa, logits, request), logits, request));
}

RC_GTEST_PROP(SampleProperty, TheTokenDoesNotDependOnTheBatch, ()) {
  const auto isa = *rc::gen::elementOf(testedIsas());
  const int64_t vocab = *rc::gen::inRange<int64_t>(1, 200), count = *rc::gen::inRange<int64_t>(1, 8);
  std::mt19937 random(*rc::gen::arbitrary<uint32_t>());
  std::vector<Floats> logits;
  std::vector<Request> requests;
  for (int64_t i = 0; i < count; ++i) {
    logits.push_back(randomFloats(vocab, random()));
    requests.push_back(randomRequest(random, vocab));
  }
  const std::vector<int32_t> tokens = run(isa, logits, requests);
  for (int64_t i = 0; i < count; ++i)
    RC_ASSERT(runOne(isa, logits[i], requests[i]) == tokens[i]);
  RC_ASSERT(sameInTeams([&] { return run(isa, logits, requests); }));
}

TEST(UniformAt, IsPhilox4x32WithTenRounds) {
  // Random123's known answers, first two words: counter 0, key 0: 6627e8d5 e169c58d.
  const uint64_t zero = 0x6627e8d5e169c58dull;
  EXPECT_EQ(uniformAt(0, 0), static_cast<double>(zero >> 11) * 0x1p-53);
}

TEST(UniformAt, IsUniformAndDiffersBySeedAndPosition) {
  double sum = 0, least = 1, largest = 0;
  for (uint64_t i = 0; i < 10000; ++i) {
    const double u = uniformAt(i % 10, i / 10);
    sum += u;
    least = std::min(least, u);
    largest = std::max(largest, u);
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.015); // standard deviation 0.29 / 100
  EXPECT_GE(least, 0.0);
  EXPECT_LT(least, 0.002);
  EXPECT_LT(largest, 1.0);
  EXPECT_GT(largest, 0.998);
  EXPECT_NE(uniformAt(1, 2), uniformAt(2, 1));
  EXPECT_NE(uniformAt(1, uint64_t{1} << 32), uniformAt(1, 0));
  EXPECT_NE(uniformAt(uint64_t{1} << 32, 1), uniformAt(0, 1));
}

} // namespace
} // namespace headrace::kernels
