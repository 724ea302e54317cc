// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda/MetaBuffer.h"

#include <algorithm>
#include <random>

#include "runtime/core/MetaWriter.h"

namespace headrace::bench {
namespace {

int64_t blocksOf(const BenchRows &rows, int64_t blockTokens) { return (rows.context + blockTokens - 1) / blockTokens; }

int64_t longestOf(const std::vector<BenchRows> &sequences) {
  int64_t longest = 0;
  for (const BenchRows &rows : sequences)
    longest = std::max(longest, rows.context);
  return longest;
}
int64_t allBlocks(const std::vector<BenchRows> &sequences, int64_t blockTokens) {
  int64_t blocks = 1;
  for (const BenchRows &rows : sequences)
    blocks += blocksOf(rows, blockTokens);
  return blocks;
}
kernels::MetaLayout layoutOf(const std::vector<BenchRows> &sequences, int64_t blockTokens) {
  kernels::MetaLayout layout{.maxSequences = static_cast<int64_t>(sequences.size()),
                             .maxBlocksPerSequence = blocksOf({.context = longestOf(sequences)}, blockTokens)};
  for (const BenchRows &rows : sequences)
    layout.maxTokens += rows.tokens;
  return layout;
}

} // namespace

MetaBuffer::MetaBuffer(const std::vector<BenchRows> &sequences, int64_t blockTokens, const BenchSampling &sampling)
    : longest_(longestOf(sequences)), blocks_(allBlocks(sequences, blockTokens)),
      layout_(layoutOf(sequences, blockTokens)), device_(kernels::metaBytes(layout_)) {
  std::vector<uint64_t> staging(kernels::metaBytes(layout_) / sizeof(uint64_t));
  auto *meta = reinterpret_cast<kernels::IterationMeta *>(staging.data());
  kernels::initMeta(layout_, meta);
  std::vector<int32_t> blocks(static_cast<size_t>(blocks_ - 1));
  for (size_t i = 0; i < blocks.size(); ++i)
    blocks[i] = static_cast<int32_t>(i + 1);
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937(1));
  const std::vector<int32_t> ids(static_cast<size_t>(layout_.maxTokens), 1);
  std::vector<core::SequenceRows> rows;
  size_t taken = 0;
  for (const BenchRows &own : sequences) {
    const auto count = static_cast<size_t>(blocksOf(own, blockTokens));
    rows.push_back({.tokens = absl::MakeConstSpan(ids).first(static_cast<size_t>(own.tokens)),
                    .firstPosition = own.context - own.tokens,
                    .blocks = absl::MakeConstSpan(blocks).subspan(taken, count),
                    .sample = true,
                    .requestSlot = static_cast<int32_t>(rows.size()),
                    .temperature = sampling.temperature,
                    .topP = sampling.topP,
                    .seed = rows.size()});
    taken += count;
  }
  if (const absl::Status status = core::writeMeta(layout_, blockTokens, rows, meta); !status.ok())
    fail(std::string(status.message()));
  must(cudaMemcpy(device_.as(), staging.data(), kernels::metaBytes(layout_), cudaMemcpyHostToDevice), "cudaMemcpy");
}

} // namespace headrace::bench
