// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda/AttentionCase.h"

#include <algorithm>
#include <cmath>

#include "kernels/CudaWorkspace.h"

namespace headrace::bench {

AttentionCase::AttentionCase(const AttentionHeads &heads, const std::vector<BenchRows> &sequences)
    : heads_(heads), meta_(sequences, kBlockTokens),
      cacheBytes_(static_cast<size_t>(meta_.blocks() * 2 * heads.kvHeads * kBlockTokens * heads.headDim * 2)),
      copies_(std::clamp<size_t>((rotatedBytes() + cacheBytes_ - 1) / cacheBytes_, 1, kMostInRow)),
      kv_(cacheBytes_ * copies_, DeviceBuffer::Holds::Random),
      qkv_(static_cast<size_t>(meta_.tokens() * (heads.heads + 2 * heads.kvHeads) * heads.headDim * 2),
           DeviceBuffer::Holds::Random),
      out_(static_cast<size_t>(meta_.tokens() * heads.heads * heads.headDim * 2)),
      workspace_(std::max<size_t>(256, kernels::attentionWorkspaceBytes(kernels::Backend::Cuda,
                                                                        static_cast<int64_t>(sequences.size()),
                                                                        heads.heads, heads.headDim, meta_.longest()))),
      arrivals_(kernels::CudaWorkspace::kArrivals * sizeof(uint32_t)),
      sequences_(static_cast<int64_t>(sequences.size())) {
  for (const BenchRows &rows : sequences) {
    const auto t = static_cast<double>(rows.tokens), c = static_cast<double>(rows.context);
    kvBytes_ += c * static_cast<double>(2 * heads.kvHeads * heads.headDim * 2);
    flops_ += 4 * static_cast<double>(heads.heads * heads.headDim) * (t * c - t * (t - 1) / 2);
  }
  args_.meta = meta_.get();
  args_.qkv = qkv_.as();
  args_.segments =
      kernels::oneRun(int64_t{1} << 20, kernels::kvBlockElements(heads.kvHeads, kBlockTokens, heads.headDim));
  args_.out = out_.as();
  args_.workspace = workspace_.as();
  args_.arrivals = arrivals_.as<uint32_t>();
  args_.heads = heads.heads;
  args_.kvHeads = heads.kvHeads;
  args_.headDim = heads.headDim;
  args_.blockTokens = kBlockTokens;
  args_.maxContext = meta_.longest();
  args_.scale = 1.0f / std::sqrt(static_cast<float>(heads.headDim));
  args_.kvElem = args_.activation = kernels::Elem::BF16;
}

double AttentionCase::ms(Timer &timer) {
  const kernels::CudaLaunch launch =
      launchOf(kernels::Op::Attention, &args_, {meta_.tokens(), sequences_, meta_.longest()});
  const size_t inRow = timesCount() ? (kLeastInRow + copies_ - 1) / copies_ * copies_ : 1;
  BenchGraph graph;
  cudaGraphNode_t last = nullptr;
  for (size_t i = 0; i < inRow; ++i) {
    kernels::AttentionArgs args = args_;
    args.kv = kv_.as() + cacheBytes_ * (i % copies_);
    last = graph.kernel({last}, launch, &args);
  }
  graph.build(timer.stream());
  return timer.medianMs(5, [&](cudaStream_t stream) { graph.launch(stream); }) / static_cast<double>(inRow);
}

Work AttentionCase::work() const {
  const double queries = static_cast<double>(meta_.tokens() * heads_.heads * heads_.headDim * 2);
  return {.bytes = kvBytes_ + 2 * queries, .flops = flops_};
}

} // namespace headrace::bench
