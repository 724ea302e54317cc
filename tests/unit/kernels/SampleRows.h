// SPDX-License-Identifier: Apache-2.0
//
// What rows of logits are sampled with, and the buffers that say so: for the tests of every device's kernel.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "tests/unit/kernels/KernelTest.h"
#include "tests/unit/kernels/Reference.h"

namespace headrace::kernels {

struct SampleRequest {
  float temperature = 0, topP = 1;
  uint64_t seed = 1;
  int32_t position = 0; // where there is a history its length counts
  int32_t topK = 0;
  float minP = 0, repetition = 1, presence = 0, frequency = 0;
  std::vector<int32_t> history = {};
  int32_t promptTokens = 0; // of the history
};

// The s-th request's row is that of the last sequence but s, and its history lies in blocks of four of which the other
// sequences' are between. Other ids than those in use are 0: who reads one penalises token 0.
struct SampleRows {
  static constexpr int64_t kBlockTokens = 4;
  TestMeta meta;
  std::vector<int32_t> history;

  explicit SampleRows(const std::vector<SampleRequest> &requests) : meta(sequences(requests), kBlockTokens) {
    const size_t n = requests.size();
    IterationMeta &m = *meta.get();
    m.numSampled = static_cast<int32_t>(n);
    history.resize((blocksEach(requests) * n + 1) * kBlockTokens);
    for (size_t s = 0; s < n; ++s) {
      const SampleRequest &request = requests[s];
      const int32_t position =
          request.history.empty() ? request.position : static_cast<int32_t>(request.history.size());
      m.array<int32_t>(m.sampleRow)[s] = static_cast<int32_t>(n - 1 - s);
      m.array<int32_t>(m.requestSlot)[s] = static_cast<int32_t>(2 * s + 1);
      m.array<int32_t>(m.samplePosition)[s] = position;
      m.array<float>(m.temperature)[s] = request.temperature;
      m.array<float>(m.topP)[s] = request.topP;
      m.array<uint64_t>(m.seed)[s] = request.seed;
      m.array<int32_t>(m.topK)[s] = request.topK;
      m.array<float>(m.minP)[s] = request.minP;
      m.array<float>(m.repetition)[s] = request.repetition;
      m.array<float>(m.presence)[s] = request.presence;
      m.array<float>(m.frequency)[s] = request.frequency;
      m.array<int32_t>(m.promptTokens)[s] = request.promptTokens;
      for (size_t p = 0; p < request.history.size(); ++p)
        history[static_cast<size_t>(blockOf(p / kBlockTokens, n - 1 - s, n)) * kBlockTokens + p % kBlockTokens] =
            request.history[p];
    }
  }

private:
  static size_t blocksEach(const std::vector<SampleRequest> &requests) {
    size_t most = 1;
    for (const SampleRequest &request : requests)
      most = std::max(most, (request.history.size() + kBlockTokens - 1) / kBlockTokens);
    return most;
  }
  static int32_t blockOf(size_t block, size_t sequence, size_t sequences) {
    return static_cast<int32_t>(1 + block * sequences + sequence);
  }
  static std::vector<TestSequence> sequences(const std::vector<SampleRequest> &requests) {
    const size_t n = requests.size();
    std::vector<TestSequence> out(n);
    for (size_t i = 0; i < n; ++i) {
      const auto tokens = static_cast<int64_t>(requests[n - 1 - i].history.size());
      out[i] = {std::max<int64_t>(tokens - 1, 0), 1, {}};
      for (size_t block = 0; block < blocksEach(requests); ++block)
        out[i].blocks.push_back(blockOf(block, i, n));
    }
    return out;
  }
};

// Penalties that F32 does exactly on round logits, in the prompt, in what was generated, in both; the others at random.
// At most 252 tokens: 63 blocks.
inline SampleRequest randomRequest(std::mt19937 &random, int64_t vocab) {
  const auto one = [&random](auto... values) {
    const float all[] = {static_cast<float>(values)...};
    return all[random() % std::size(all)];
  };
  SampleRequest request{.temperature = one(0, 0.3, 1, 2), .topP = one(0.03, 0.31, 0.77, 0.97, 1, 1), .seed = random()};
  request.topK = static_cast<int32_t>(one(0, 0, 1, 2, 7, 50, 1000));
  request.minP = one(0, 0, 0.01, 0.2, 0.7, 1);
  request.repetition = one(1, 1, 2, 0.5, 4);
  request.presence = one(0, 0, 0.5, -1);
  request.frequency = one(0, 0, 0.25, -0.5);
  request.position = static_cast<int32_t>(random() % 100000);
  const auto few = std::min<int64_t>(vocab, 1 + static_cast<int64_t>(random() % 40));
  request.history.resize(1 + random() % 252);
  for (int32_t &id : request.history)
    id = static_cast<int32_t>(static_cast<int64_t>(random()) % few * (vocab / few));
  request.promptTokens = static_cast<int32_t>(random() % (request.history.size() + 1));
  return request;
}

namespace reference {

// The logits that a request samples from.
inline std::vector<float> penalised(const std::vector<float> &logits, const SampleRequest &request) {
  std::vector<float> out;
  for (size_t id = 0; id < logits.size(); ++id) {
    const auto begin = request.history.begin(), generated = begin + request.promptTokens, end = request.history.end();
    const auto times = std::count(generated, end, static_cast<int32_t>(id));
    double logit = logits[id];
    if (std::count(begin, end, static_cast<int32_t>(id)) > 0)
      logit = logit > 0 ? logit / request.repetition : logit * request.repetition;
    if (times > 0)
      logit = logit - request.frequency * static_cast<double>(times) - request.presence;
    out.push_back(static_cast<float>(logit));
  }
  return out;
}

// Whether a token may be what the request takes: the reference's own, or one next to a border. F32 weights move borders
// by about 1e-6 of the sum.
inline bool mayTake(int32_t token, const std::vector<float> &model, const SampleRequest &request) {
  const std::vector<float> logits = penalised(model, request);
  const float top = *std::max_element(logits.begin(), logits.end());
  if (request.temperature == 0)
    return token == std::find(logits.begin(), logits.end(), top) - logits.begin();
  const auto position = request.history.empty() ? static_cast<size_t>(request.position) : request.history.size();
  for (double shift : {0.0, -2e-6, 2e-6}) {
    const double topP = request.topP >= 1 ? 2.0 : request.topP + shift;
    const std::vector<int32_t> ids = candidates(logits, request.temperature, topP, request.topK, request.minP);
    double total = 0, sum = 0;
    auto weight = [&](int32_t id) { return std::exp((double{logits[id]} - top) / request.temperature); };
    for (int32_t id : ids)
      total += weight(id);
    const double u = uniformAt(request.seed, position) * total;
    for (int32_t id : ids) {
      const double before = sum;
      sum += weight(id);
      if (id == token && u >= before - 2e-6 * total && u <= sum + 2e-6 * total)
        return true;
    }
  }
  return false;
}

} // namespace reference
} // namespace headrace::kernels
