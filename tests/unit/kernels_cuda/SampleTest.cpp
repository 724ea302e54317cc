// SPDX-License-Identifier: Apache-2.0
//
// CUDA sampling against the reference and against the host's kernel.
#include "tests/unit/kernels_cuda/SampleOnDevice.h"

namespace headrace::kernels {
namespace {

using Request = SampleRequest;

std::vector<int32_t> hostTokens(const std::vector<Floats> &logits, const std::vector<Request> &requests) {
  SampleRows rows(requests);
  Floats flat, workspace(logits[0].size());
  for (const Floats &row : logits)
    flat.insert(flat.end(), row.begin(), row.end());
  std::vector<int32_t> sampled(2 * logits.size()), output(logits.size());
  const SampleArgs args{.meta = rows.meta.get(),
                        .logits = flat.data(),
                        .history = rows.history.data(),
                        .sampled = sampled.data(),
                        .output = output.data(),
                        .workspace = workspace.data(),
                        .vocab = static_cast<int64_t>(logits[0].size()),
                        .blockTokens = SampleRows::kBlockTokens};
  hostKernel(Op::Sample)(&args);
  return output;
}

TEST(CudaSample, GreedyTakesTheLargestAndTheLowestIdAmongEquals) {
  EXPECT_EQ(sampleOne({1, 3, 2}, {}), 1);
  Floats logits(2500, -2.0f);
  EXPECT_EQ(sampleOne(logits, {}), 0);
  logits[2499] = 5;
  EXPECT_EQ(sampleOne(logits, {}), 2499);
  logits[1030] = logits[1031] = logits[2100] = 5;
  EXPECT_EQ(sampleOne(logits, {}), 1030);
  EXPECT_EQ(sampleOne({-1, 0.0f, -0.0f}, {}), 1);
  EXPECT_EQ(sampleOne({-1, -0.0f, 0.0f}, {}), 1);
}

TEST(CudaSample, NansNeverWin) {
  Floats logits(20, -1.0f);
  logits[0] = logits[7] = logits[19] = kNan;
  logits[12] = 1;
  EXPECT_EQ(sampleOne(logits, {}), 12);
  std::vector<Request> requests;
  for (int32_t position = 0; position < 6; ++position)
    requests.push_back({100, position % 2 == 0 ? 0.99f : 1.0f, 1, position});
  for (int32_t token : sampleRows(std::vector<Floats>(6, logits), requests))
    EXPECT_FALSE(std::isnan(logits[token]));
  EXPECT_EQ(sampleOne({kNan, -INFINITY}, {}), 1);
  const Floats all(20, kNan);
  EXPECT_EQ(sampleOne(all, {}), 0);
  EXPECT_EQ(sampleOne(all, {1}), 0);
  EXPECT_EQ(sampleOne(all, {1, 0.5f}), 0);
}

TEST(CudaSample, InfiniteLogitsAreTheOnlyCandidates) {
  Floats logits(20, 3.0f);
  logits[5] = logits[6] = INFINITY;
  EXPECT_EQ(sampleOne(logits, {}), 5);
  std::vector<Request> requests;
  for (int32_t position = 0; position < 6; ++position)
    requests.push_back({1, position % 2 == 0 ? 0.9f : 1.0f, 1, position});
  for (int32_t token : sampleRows(std::vector<Floats>(6, logits), requests))
    EXPECT_TRUE(token == 5 || token == 6) << token;
  EXPECT_EQ(sampleOne(Floats(9, -INFINITY), {}), 0);
}

// A wrong logit in any lane and warp, beside rows that are well; sampleRows() checks what is published.
TEST(CudaSample, OneLogitThatIsNotFiniteMarksItsRowAlone) {
  const Floats well = randomFloats(1100, 5);
  const Request requests[] = {
      {}, {0.7f, 0.5f}, {.temperature = 1, .topK = 3, .minP = 0.1f, .repetition = 2, .history = {0, 1099}}};
  const float values[] = {kNan, INFINITY, -INFINITY};
  size_t turn = 0;
  for (const size_t place : {0, 31, 32, 1023, 1024, 1099}) {
    const Request request = requests[(turn + turn / 3) % 3];
    std::vector<Floats> rows(3, well);
    rows[1][place] = values[turn++ % 3];
    const std::vector<int32_t> tokens = sampleRows(rows, {request, request, request});
    EXPECT_EQ(tokens[0], tokens[2]);
  }
}

TEST(CudaSample, TheUniformNumberPicksInOrderOfIds) {
  // Probabilities 1/8, 4/8, 1/8, 2/8 (temperature 1, logits ln of them): running sums 1/8, 5/8, 6/8, 1.
  const Floats logits = {std::log(1.0f), std::log(4.0f), std::log(1.0f), std::log(2.0f)};
  std::vector<Request> requests;
  for (int32_t position = 0; position < 24; ++position)
    requests.push_back({1, 1, 17, position});
  const std::vector<int32_t> tokens = sampleRows(std::vector<Floats>(24, logits), requests);
  for (int32_t position = 0; position < 24; ++position) {
    const double u = uniformAt(17, position);
    EXPECT_EQ(tokens[position], u < 0.125 ? 0 : u < 0.625 ? 1 : u < 0.75 ? 2 : 3) << u;
  }
}

// A position for each `parts`-th of the range of the uniform number of seed 1.
std::vector<int32_t> positionsOver(int32_t parts) {
  std::vector<int32_t> positions;
  for (int32_t part = 0, position = 0; part < parts; ++position)
    if (static_cast<int32_t>(uniformAt(1, position) * parts) == part)
      positions.push_back(position), ++part;
  return positions;
}

TEST(CudaSample, TopPKeepsTheShortestPrefixThatReachesIt) {
  // Probabilities 1/8, 4/8, 1/8, 2/8. topP 0.5: {1}. 0.7: {1, 3}. 0.76: {0, 1, 3}, the tie going to the lower id.
  const Floats logits = {std::log(1.0f), std::log(4.0f), std::log(1.0f), std::log(2.0f)};
  const std::vector<int32_t> positions = positionsOver(16);
  auto seen = [&](float topP) {
    std::vector<Request> requests;
    for (int32_t position : positions)
      requests.push_back({1, topP, 1, position});
    std::vector<int32_t> tokens = sampleRows(std::vector<Floats>(positions.size(), logits), requests);
    std::sort(tokens.begin(), tokens.end());
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    return tokens;
  };
  EXPECT_EQ(seen(0.0f), (std::vector<int32_t>{1}));
  EXPECT_EQ(seen(0.49f), (std::vector<int32_t>{1}));
  EXPECT_EQ(seen(0.7f), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(seen(0.76f), (std::vector<int32_t>{0, 1, 3}));
  EXPECT_EQ(seen(0.9f), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(seen(1.0f), (std::vector<int32_t>{0, 1, 2, 3}));
}

// Round numbers: tests/unit/kernels/SampleTest.cpp has the arithmetic.
TEST(CudaSample, TopKAndMinPKeepTheFirstOfTheRankingAndTopPIsOfTheRest) {
  const Floats logits = {std::log(1.0f), std::log(4.0f), std::log(1.0f), std::log(2.0f)};
  auto seen = [&](Request request) {
    std::vector<Request> requests;
    for (const int32_t position : positionsOver(8)) {
      request.position = position;
      requests.push_back(request);
    }
    std::vector<int32_t> tokens = sampleRows(std::vector<Floats>(requests.size(), logits), requests);
    std::sort(tokens.begin(), tokens.end());
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    return tokens;
  };
  EXPECT_EQ(seen({.temperature = 1, .topK = 3}), (std::vector<int32_t>{0, 1, 3}));
  EXPECT_EQ(seen({.temperature = 1, .topK = 9}), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(seen({.temperature = 1, .minP = 0.26f}), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(seen({.temperature = 1, .topP = 0.66f, .topK = 2}), (std::vector<int32_t>{1}));
  EXPECT_EQ(seen({.temperature = 1, .topP = 0.67f, .minP = 0.4f}), (std::vector<int32_t>{1, 3}));
}

TEST(CudaSample, PenaltiesAreOfTheirTokens) {
  const auto greedy = [](const Floats &logits, float repetition, float presence, float frequency) {
    return sampleOne(logits, {.repetition = repetition,
                              .presence = presence,
                              .frequency = frequency,
                              .history = {0, 0, 1, 1, 2, 2, 2},
                              .promptTokens = 3});
  };
  EXPECT_EQ(greedy({8, 8, 8, -2, 3}, 4, 0, 0), 4);          // 2, 2, 2, -2, 3
  EXPECT_EQ(greedy({-1, -1, -1, -3.5f, -5}, 4, 0, 0), 3);   // -4, -4, -4, -3.5, -5
  EXPECT_EQ(greedy({5, 8, 8.5f, -2, 3}, 1, 2, 0), 2);       // 5, 6, 6.5
  EXPECT_EQ(greedy({6.25f, 8, 8, -2, 3}, 1, 2, 0), 0);      // 6.25, 6, 6
  EXPECT_EQ(greedy({6, 8, 9, -2, 3}, 1, 0, 1), 1);          // 6, 7, 6
  EXPECT_EQ(greedy({5, 8, 8, -2, 2}, 2, 1, 0.5f), 0);       // 2.5, 2.5, 1.5, -2, 2
  EXPECT_EQ(greedy({1, 2, 3e38f, 3.2e38f}, 0.5f, 0, 0), 2); // infinite, and published
}

TEST(CudaSample, TokensAreTheReferencesWithEveryPenaltyAndFilter) {
  std::mt19937 random(19);
  for (const int64_t vocab : {1, 40, 1500}) {
    std::vector<Floats> logits;
    std::vector<Request> requests;
    const size_t rows = testDevice().emulated() ? 8 : 200;
    for (size_t i = 0; i < rows; ++i) {
      logits.push_back(randomFloats(vocab, random()));
      for (float &v : logits.back())
        v = i % 2 == 0 ? std::round(v * 3) : v * 10;
      requests.push_back(randomRequest(random, vocab));
    }
    const std::vector<int32_t> tokens = sampleRows(logits, requests);
    EXPECT_EQ(tokens, sampleRows(logits, requests, 2)) << vocab;
    for (size_t i = 0; i < rows; ++i)
      EXPECT_TRUE(reference::mayTake(tokens[i], logits[i], requests[i])) << vocab << ", row " << i;
    for (size_t i = 0; i < rows; i += 5)
      EXPECT_EQ(sampleOne(logits[i], requests[i]), tokens[i]);
  }
}

TEST(CudaSample, SmallTemperaturesAreGreedy) {
  const Floats logits = randomFloats(100, 3);
  const int32_t greedy = sampleOne(logits, {});
  for (float temperature : {1e-4f, 1e-30f, 1e-44f})
    EXPECT_EQ(sampleOne(logits, {temperature, 0.9f}), greedy);
}

// The host's F32 weights differ in their last bits, so a token may differ where the uniform number falls on a border;
// with 2000 draws that has a probability of about 1e-4.
TEST(CudaSample, TokensAreTheHostsAndDoNotDependOnTheBatchOrTheOrder) {
  for (size_t vocab : {5, 130, 4099, 33000}) {
    if (testDevice().emulated() && vocab > 5000)
      continue;
    std::vector<Floats> logits;
    std::vector<Request> requests;
    const size_t rows = testDevice().emulated() ? 8 : 200;
    for (size_t i = 0; i < rows; ++i) {
      logits.push_back(randomFloats(vocab, 100 * vocab + i));
      for (float &v : logits.back()) // every third row with many equal logits
        v = i % 3 == 0 ? std::round(v * 3) : v * 10;
      const float temperatures[] = {0.3f, 1.0f, 2.0f, 0.0f}, topPs[] = {0.03f, 0.31f, 0.77f, 0.97f, 1.0f};
      requests.push_back({temperatures[i % 4], topPs[i % 5], 77 + i, static_cast<int32_t>(3 * i)});
    }
    const std::vector<int32_t> tokens = sampleRows(logits, requests);
    EXPECT_EQ(tokens, hostTokens(logits, requests)) << vocab;
    EXPECT_EQ(tokens, sampleRows(logits, requests, 2)) << vocab;
    for (size_t i = 0; i < rows; i += 5)
      EXPECT_EQ(sampleOne(logits[i], requests[i]), tokens[i]);
  }
}

} // namespace
} // namespace headrace::kernels
