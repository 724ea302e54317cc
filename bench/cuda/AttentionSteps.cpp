// SPDX-License-Identifier: Apache-2.0
//
// Attention of iterations whose sequences are not alike, and of prompts in chunks.
#include "bench/cuda/AttentionCase.h"
#include "bench/cuda/Steps.h"

namespace headrace::bench {
namespace {

constexpr int64_t kMixedSequences = 32, kChunkRows = 512;

AttentionHeads headsOf(const model::ModelSpec &spec) { return {spec.heads, spec.kvHeads, spec.headDim}; }

// Contexts from a 32nd of the longest to the longest in equal steps; the first sequence has the longest.
std::vector<BenchRows> mixed(int64_t longest) {
  std::vector<BenchRows> rows;
  for (int64_t i = kMixedSequences; i > 0; --i)
    rows.push_back({.tokens = 1, .context = std::max<int64_t>(1, longest * i / kMixedSequences)});
  return rows;
}

Json attention(const StepsOf &of, const std::vector<BenchRows> &rows) {
  size_t free = 0, total = 0;
  must(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  double bytes = 0;
  for (const BenchRows &one : rows)
    bytes += static_cast<double>(one.context * of.spec.kvHeads * of.spec.headDim * 4);
  if (bytes > 0.8 * static_cast<double>(free))
    return {{"left out", "its cache does not fit"}};
  AttentionCase one(headsOf(of.spec), rows);
  return besideBound(one.ms(of.timer) * 1e3, one.work(), of.peaks);
}

} // namespace

void addAttentionSteps(Tasks &tasks, const StepsOf &of) {
  const auto add = [&](const std::string &name, const std::vector<BenchRows> &rows) {
    tasks.push_back({"attention, " + name, 5, [&of, rows] { return attention(of, rows); }});
  };
  const std::string batch = std::to_string(kMixedSequences);
  const int64_t most = of.spec.maxPositions;
  for (const int64_t longest : within(most, {8192, 32768})) {
    const std::string at = std::to_string(longest);
    const int64_t middle = (longest / kMixedSequences + longest) / 2; // of the mixed ones
    add("decode of " + batch + ", contexts up to " + at, mixed(longest));
    add("decode of " + batch + ", contexts of " + std::to_string(middle),
        std::vector<BenchRows>(kMixedSequences, {.tokens = 1, .context = middle}));
    std::vector<BenchRows> chunked = mixed(longest);
    chunked.front().tokens = std::min(kChunkRows, longest);
    add("a chunk of " + std::to_string(chunked.front().tokens) + " and decode of 31, contexts up to " + at, chunked);
    const int64_t chunk = std::min<int64_t>(2048, longest);
    add("a chunk of " + std::to_string(chunk) + " at " + at, {{.tokens = chunk, .context = longest}});
  }
  for (const int64_t tokens : within(most, {4096, 1024, 16384}))
    add("prefill of " + std::to_string(tokens), {{.tokens = tokens, .context = tokens}});
}

} // namespace headrace::bench
