// SPDX-License-Identifier: Apache-2.0
//
// Kernels against what bounds them: device memory by a large copy, tensor cores by an 8192^3 product.
#include <algorithm>
#include <cmath>
#include <random>

#include "bench/cuda/Gemm.h"
#include "bench/cuda/Report.h"
#include "kernels/CudaKernels.h"
#include "runtime/core/MetaWriter.h"

namespace headrace::bench {
namespace {

constexpr size_t kGiB = size_t{1} << 30;
constexpr int64_t kBlockTokens = 16;

// Llama-3.1-8B's attention.
constexpr int64_t kHeads = 32, kKvHeads = 8, kHeadDim = 128;

double copyBandwidth(Timer &timer) {
  const size_t bytes = 4 * kGiB;
  const DeviceBuffer from(bytes), to(bytes);
  const double ms = medianMs(timer, 7, [&](cudaStream_t stream) {
    must(cudaMemcpyAsync(to.as(), from.as(), bytes, cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
  });
  return 2 * static_cast<double>(bytes) / ms * 1e-6;
}

// One kernel node, launched as a graph of `kInRow` of them.
double kernelMs(Timer &timer, kernels::Op op, void *args, const kernels::CudaShape &shape) {
  constexpr int kInRow = 20;
  const char *why = nullptr;
  const kernels::CudaLaunch launch = kernels::cudaLaunch(op, args, shape, &why);
  if (launch.kernel == nullptr)
    fail(std::string(kernels::opName(op)) + ": " + (why == nullptr ? "no kernel" : why));
  const void *entry = kernels::cudaEntry(launch.kernel);
  if (launch.sharedBytes > 48 * 1024)
    must(cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(launch.sharedBytes)),
         "cudaFuncSetAttribute");
  BenchGraph graph;
  cudaGraphNode_t last = nullptr;
  for (int i = 0; i < kInRow; ++i)
    last = graph.kernel(last, entry, {launch.grid[0], launch.grid[1], launch.grid[2]},
                        {launch.block[0], launch.block[1], launch.block[2]}, launch.sharedBytes, args);
  graph.build(timer.stream());
  return medianMs(timer, 5, [&](cudaStream_t stream) { graph.launch(stream); }) / kInRow;
}

// Attention over `sequences` of `tokens` new rows each behind `context - tokens` earlier ones, blocks in a random
// order.
class AttentionCase {
public:
  AttentionCase(int64_t sequences, int64_t tokens, int64_t context)
      : sequences_(sequences), tokens_(tokens), context_(context),
        blocksEach_((context + kBlockTokens - 1) / kBlockTokens),
        kv_(static_cast<size_t>((sequences * blocksEach_ + 1) * 2 * kKvHeads * kBlockTokens * kHeadDim * 2)),
        qkv_(static_cast<size_t>(sequences * tokens * (kHeads + 2 * kKvHeads) * kHeadDim * 2)),
        out_(static_cast<size_t>(sequences * tokens * kHeads * kHeadDim * 2)),
        workspace_(std::max<size_t>(
            256, kernels::attentionWorkspaceBytes(kernels::Backend::Cuda, sequences, kHeads, kHeadDim, context))),
        layout_{sequences * tokens, sequences, blocksEach_}, meta_(kernels::metaBytes(layout_)) {
    std::vector<uint64_t> staging(kernels::metaBytes(layout_) / sizeof(uint64_t));
    auto *meta = reinterpret_cast<kernels::IterationMeta *>(staging.data());
    kernels::initMeta(layout_, meta);
    std::vector<int32_t> blocks(static_cast<size_t>(sequences * blocksEach_)), ids(static_cast<size_t>(tokens), 1);
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
    if (const absl::Status status = core::writeMeta(layout_, kBlockTokens, rows, meta); !status.ok())
      fail(std::string(status.message()));
    must(cudaMemcpy(meta_.as(), staging.data(), kernels::metaBytes(layout_), cudaMemcpyHostToDevice), "cudaMemcpy");
    args_.meta = meta_.as<kernels::IterationMeta>();
    args_.qkv = qkv_.as();
    args_.kv = kv_.as();
    args_.segments = kernels::oneRun(int64_t{1} << 20, kernels::kvBlockElements(kKvHeads, kBlockTokens, kHeadDim));
    args_.out = out_.as();
    args_.workspace = workspace_.as();
    args_.heads = kHeads;
    args_.kvHeads = kKvHeads;
    args_.headDim = kHeadDim;
    args_.blockTokens = kBlockTokens;
    args_.maxContext = context;
    args_.scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim));
    args_.kvElem = args_.activation = kernels::Elem::BF16;
  }

  double ms(Timer &timer) {
    return kernelMs(timer, kernels::Op::Attention, &args_, {sequences_ * tokens_, sequences_, context_});
  }
  double kvBytes() const { return static_cast<double>(sequences_ * context_ * 2 * kKvHeads * kHeadDim * 2); }
  // Four a multiplied pair and dimension (two products), under the causal mask.
  double flops() const {
    const auto t = static_cast<double>(tokens_), c = static_cast<double>(context_);
    return static_cast<double>(sequences_) * 4 * kHeads * kHeadDim * (t * c - t * (t - 1) / 2);
  }

private:
  int64_t sequences_, tokens_, context_, blocksEach_;
  DeviceBuffer kv_, qkv_, out_, workspace_;
  kernels::MetaLayout layout_;
  DeviceBuffer meta_;
  kernels::AttentionArgs args_{};
};

} // namespace

void measureKernels(Report &report) {
  report.part(
      "kernels",
      "graphs of 20 nodes of one kernel in a chain, median of 5 by events; attention of Llama-3.1-8B (32 heads, 8 "
      "of keys, 128 wide, BF16), blocks of 16 tokens in random order; shares of a 4 GiB device copy "
      "(2 x bytes) and of an 8192^3 BF16 product of the same process");
  Timer timer;
  const double memory = copyBandwidth(timer);
  report.figure("device copy of 4 GiB", {{"GB/s", memory}});
  const double peak = gemmTflops(timer, 8192, 8192, 8192);
  report.figure("8192^3 product, BF16", {{"TFLOP/s", peak}});

  size_t free = 0, total = 0;
  must(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  for (const int64_t context : {512, 2048, 8192, 32768, 131072})
    for (const int64_t sequences : {1, 8, 32, 128}) {
      const std::string name =
          "decode attention, batch " + std::to_string(sequences) + ", context " + std::to_string(context);
      const double bytes = static_cast<double>(sequences * context * 2 * kKvHeads * kHeadDim * 2);
      if (bytes > 0.5 * static_cast<double>(free)) {
        report.figure(name, {{"left out", "its cache does not fit"}});
        continue;
      }
      AttentionCase one(sequences, 1, context);
      const double ms = one.ms(timer), rate = one.kvBytes() / ms * 1e-6;
      report.figure(name, {{"us", ms * 1e3}, {"GB/s", rate}, {"share of memory", rate / memory}});
    }
  for (const auto &[sequences, tokens] :
       {std::pair<int64_t, int64_t>{1, 1024}, {4, 1024}, {1, 4096}, {4, 4096}, {1, 16384}}) {
    AttentionCase one(sequences, tokens, tokens);
    const double ms = one.ms(timer), rate = one.flops() / ms * 1e-9;
    report.figure("prefill attention, batch " + std::to_string(sequences) + ", " + std::to_string(tokens) + " tokens",
                  {{"us", ms * 1e3}, {"TFLOP/s", rate}, {"share of the product", rate / peak}});
  }
  for (const int64_t rows : {1, 8, 32, 128, 1024, 4096}) {
    // Llama-3.1-8B's gate and up.
    const double flops = gemmTflops(timer, rows, 28672, 4096);
    const double bytes = 28672.0 * 4096 * 2, us = 2.0 * static_cast<double>(rows) * 28672 * 4096 / flops * 1e-6;
    report.figure("linear 28672 x 4096, " + std::to_string(rows) + " rows",
                  {{"us", us},
                   {"TFLOP/s", flops},
                   {"share of the product", flops / peak},
                   {"weights GB/s", bytes / us * 1e-3},
                   {"share of memory", bytes / us * 1e-3 / memory}});
  }
}

} // namespace headrace::bench
