// SPDX-License-Identifier: Apache-2.0
//
// CUDA sampling against its definition in whole units, token by token, and what it reads. On the emulator, whose expf
// is the test's too.
#include "tests/unit/kernels_cuda/Emulator.h"

#include <numeric>

#include "kernels/Penalties.h"
#include "kernels/Philox.h"
#include "kernels/Ranking.h"
#include "tests/unit/kernels_cuda/SampleOnDevice.h"

namespace headrace::kernels {
namespace {

// Tokens are ranked by logits, equal ones by ids; what a filter leaves is a prefix of the ranking. A token's weight is
// counted in units of 2^-44.
class Definition {
public:
  Definition(const Floats &model, const SampleRequest &request) : logits(model) {
    std::vector<uint32_t> had(model.size());
    for (size_t p = 0; p < request.history.size(); ++p) {
      uint32_t &word = had[static_cast<size_t>(request.history[p])];
      word = p < static_cast<size_t>(request.promptTokens) ? word | kInPrompt : word + 1;
    }
    for (size_t i = 0; i < model.size(); ++i)
      logits[i] = kernels::penalised({request.repetition, request.presence, request.frequency}, model[i], had[i]);
    ranking.resize(model.size());
    std::iota(ranking.begin(), ranking.end(), 0);
    std::stable_sort(ranking.begin(), ranking.end(), [this](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    for (size_t i = 0; i < model.size() && request.temperature > 0; ++i) {
      weights.push_back(std::exp((logits[i] - logits[ranking[0]]) / request.temperature));
      units.push_back(static_cast<uint64_t>(weights[i] * 0x1p44f));
    }
  }

  int32_t token(const SampleRequest &request) const {
    if (request.temperature == 0)
      return ranking[0];
    size_t length = ranking.size();
    if (request.minP > 0)
      while (weights[ranking[length - 1]] < request.minP)
        --length;
    if (request.topK > 0)
      length = std::min(length, static_cast<size_t>(request.topK));
    if (request.topP < 1) {
      const double target = std::max(1.0, static_cast<double>(sumOf(length)) * static_cast<double>(request.topP));
      size_t first = 1;
      while (static_cast<double>(sumOf(first)) < target)
        ++first;
      length = std::min(length, first);
    }
    std::vector<int32_t> ids(ranking.begin(), ranking.begin() + static_cast<int64_t>(length));
    std::sort(ids.begin(), ids.end());
    const uint64_t all = sumOf(length);
    const auto position = request.history.empty() ? static_cast<size_t>(request.position) : request.history.size();
    const auto limit = static_cast<uint64_t>(philoxUniform(request.seed, position) * static_cast<double>(all));
    uint64_t sum = 0;
    for (int32_t id : ids)
      if (sum += units[id]; sum > std::min(limit, all - 1))
        return id;
    return -1;
  }

private:
  uint64_t sumOf(size_t length) const {
    uint64_t sum = 0;
    for (size_t i = 0; i < length; ++i)
      sum += units[ranking[i]];
    return sum;
  }

  Floats logits, weights;
  std::vector<int32_t> ranking;
  std::vector<uint64_t> units;
};

// Rows of logits that a search by ranges finds easy and hard.
Floats randomLogits(size_t vocab, uint64_t seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  Floats logits = randomFloats(static_cast<int64_t>(vocab), seed);
  const size_t kind = random() % 10;
  const float far = kind == 8 ? 20.0f : 0.0f;
  for (float &v : logits)
    switch (kind) {
    case 0: // a few values
      v = std::round(v * 3);
      break;
    case 1: // one
      v = 2.5f;
      break;
    case 2: // two, next to each other
      v = random() % 2 == 0 ? 3.0f : std::nextafter(3.0f, 4.0f);
      break;
    case 3: // around zero, both signs, all exponents
      v = std::ldexp(v, -static_cast<int>(random() % 140));
      break;
    case 4: // masked
      v = random() % 4 != 0 ? -1e30f : v * 10;
      break;
    case 5: // far apart
      v = std::ldexp(v, static_cast<int>(random() % 90));
      break;
    case 6: // all within the last bits
      v = -7.0f + v * 0x1p-18f;
      break;
    case 7: // near each other, but for one
      v = &v == &logits[0] ? 10.0f : 2.0f + v * 0x1p-10f;
      break;
    default:
      v = v * 8 + far;
    }
  return logits;
}

TEST(EmulatedSample, TokensAreTheDefinitionsInWholeUnits) {
  std::mt19937 random(23);
  for (const size_t vocab : {1, 6, 127, 128, 129, 1030, 4099, 7001}) {
    std::vector<Floats> logits;
    std::vector<SampleRequest> requests;
    const size_t rows = vocab > 2000 ? 24 : 40;
    std::vector<int32_t> expected;
    for (size_t i = 0; i < rows; ++i) {
      logits.push_back(randomLogits(vocab, random()));
      SampleRequest request = randomRequest(random, static_cast<int64_t>(vocab));
      if (i % 3 != 0) // most without penalties
        request.repetition = 1, request.presence = request.frequency = 0;
      if (i % 4 == 1)
        request.topK = 0, request.minP = 0;
      if (i % 16 == 5)
        request.temperature = 0.001f;
      requests.push_back(request);
      expected.push_back(Definition(logits.back(), request).token(request));
    }
    EXPECT_EQ(sampleRows(logits, requests, vocab % 4, vocab % 4), expected) << vocab;
  }
}

// Readings of a row of logits, its own or those that penalties leave, for one token.
double passesOf(const Floats &logits, const SampleRequest &request) {
  emulator::counts = {};
  const int32_t token = sampleOne(logits, request);
  EXPECT_EQ(token, Definition(logits, request).token(request));
  return static_cast<double>(emulator::counts.bytesLoaded) / static_cast<double>(logits.size() * sizeof(float));
}

TEST(EmulatedSample, ATokenTakesFourPassesOfItsLogitsAtMost) {
  const size_t vocab = 16384;
  Floats spread = randomFloats(vocab, 5), flat = spread, same(vocab, 1.0f), far = spread;
  for (size_t i = 0; i < vocab; ++i)
    spread[i] *= 10, far[i] = far[i] * 4 + 40;
  for (const Floats *logits : {&spread, &flat, &same, &far}) {
    SCOPED_TRACE(logits == &spread ? "spread" : logits == &flat ? "flat" : logits == &same ? "same" : "far");
    EXPECT_EQ(passesOf(*logits, {}), 1.0);
    EXPECT_LT(passesOf(*logits, {.temperature = 1}), 2.05);
    EXPECT_LT(passesOf(*logits, {.temperature = 1, .minP = 0.1f}), 4.05);
    EXPECT_LT(passesOf(*logits, {.temperature = 1, .topK = 50}), 4.05);
    EXPECT_LT(passesOf(*logits, {.temperature = 1, .topP = 0.9f}), 4.05);
    EXPECT_LT(passesOf(*logits, {.temperature = 0.7f, .topP = 0.95f, .topK = 1000, .minP = 0.01f}), 4.05);
    EXPECT_LT(passesOf(*logits, {.temperature = 1, .topP = 0.9f, .repetition = 2, .history = {3, 1}}), 4.05);
  }
}

// 16,383 of 2^13 keys in the 64th of an octave that has the border: more than are listed, and two of the ranges of keys
// one after the other.
TEST(EmulatedSample, WhereTooManyAreNearABorderTheRowIsReadAgain) {
  Floats logits = randomFloats(16384, 5);
  for (float &v : logits)
    v = 2.0f + v * 0x1p-10f;
  logits[77] = 10.0f;
  for (const float topP : {0.1f, 0.9f, 0.99f, 1.0f})
    for (const int32_t topK : {0, 2, 50, 9000})
      EXPECT_LT(passesOf(logits, {.temperature = 1, .topP = topP, .topK = topK}), topP < 1 && topK > 0 ? 8.05 : 5.05);
}

} // namespace
} // namespace headrace::kernels
