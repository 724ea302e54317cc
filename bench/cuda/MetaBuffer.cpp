// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda/MetaBuffer.h"

#include <algorithm>
#include <random>

#include "runtime/core/MetaWriter.h"

namespace headrace::bench {

MetaBuffer::MetaBuffer(int64_t sequences, int64_t tokens, int64_t context, int64_t blockTokens)
    : blocksEach_((context + blockTokens - 1) / blockTokens),
      blocks_(sequences * blocksEach_ + 1), layout_{sequences * tokens, sequences, blocksEach_},
      device_(kernels::metaBytes(layout_)) {
  std::vector<uint64_t> staging(kernels::metaBytes(layout_) / sizeof(uint64_t));
  auto *meta = reinterpret_cast<kernels::IterationMeta *>(staging.data());
  kernels::initMeta(layout_, meta);
  std::vector<int32_t> blocks(static_cast<size_t>(blocks_ - 1)), ids(static_cast<size_t>(tokens), 1);
  for (size_t i = 0; i < blocks.size(); ++i)
    blocks[i] = static_cast<int32_t>(i + 1);
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937(1));
  std::vector<core::SequenceRows> rows;
  for (int64_t s = 0; s < sequences; ++s)
    rows.push_back({.tokens = ids,
                    .firstPosition = context - tokens,
                    .blocks = absl::MakeConstSpan(blocks).subspan(static_cast<size_t>(s * blocksEach_),
                                                                  static_cast<size_t>(blocksEach_)),
                    .sample = true,
                    .requestSlot = static_cast<int32_t>(s)});
  if (const absl::Status status = core::writeMeta(layout_, blockTokens, rows, meta); !status.ok())
    fail(std::string(status.message()));
  must(cudaMemcpy(device_.as(), staging.data(), kernels::metaBytes(layout_), cudaMemcpyHostToDevice), "cudaMemcpy");
}

} // namespace headrace::bench
