// SPDX-License-Identifier: Apache-2.0
//
// Kernels against what bounds them: device memory by a large copy, tensor cores by an 8192^3 product.
#include <algorithm>
#include <cmath>

#include "bench/cuda/Gemm.h"
#include "bench/cuda/Gpu.h"
#include "bench/cuda/MetaBuffer.h"
#include "bench/cuda/Parts.h"

namespace headrace::bench {
namespace {

constexpr int64_t kBlockTokens = 16;
constexpr const char *kCopy = "device copy of 4 GiB", *kPeak = "8192^3 product, BF16";

// Llama-3.1-8B's attention.
constexpr int64_t kHeads = 32, kKvHeads = 8, kHeadDim = 128;

double copyBandwidth(Timer &timer) {
  const size_t bytes = 4 * kGiB;
  const DeviceBuffer from(bytes, DeviceBuffer::Holds::Random), to(bytes);
  const double ms = timer.medianMs(7, [&](cudaStream_t stream) {
    must(cudaMemcpyAsync(to.as(), from.as(), bytes, cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
  });
  return 2 * static_cast<double>(bytes) / ms * 1e-6;
}

// Attention over `sequences` of `tokens` new rows each behind `context - tokens` earlier ones, blocks in a random
// order.
class AttentionCase {
public:
  AttentionCase(int64_t sequences, int64_t tokens, int64_t context)
      : sequences_(sequences), tokens_(tokens), context_(context),
        blocksEach_((context + kBlockTokens - 1) / kBlockTokens),
        kvBytes_(static_cast<size_t>((sequences * blocksEach_ + 1) * 2 * kKvHeads * kBlockTokens * kHeadDim * 2)),
        copies_(std::clamp<size_t>((kRotated + kvBytes_ - 1) / kvBytes_, 1, kMostInRow)),
        kv_(kvBytes_ * copies_, DeviceBuffer::Holds::Random),
        qkv_(static_cast<size_t>(sequences * tokens * (kHeads + 2 * kKvHeads) * kHeadDim * 2),
             DeviceBuffer::Holds::Random),
        out_(static_cast<size_t>(sequences * tokens * kHeads * kHeadDim * 2)),
        workspace_(std::max<size_t>(
            256, kernels::attentionWorkspaceBytes(kernels::Backend::Cuda, sequences, kHeads, kHeadDim, context))),
        arrivals_(kernels::CudaWorkspace::kArrivals * sizeof(uint32_t)),
        meta_(sequences, tokens, context, kBlockTokens) {
    args_.meta = meta_.get();
    args_.qkv = qkv_.as();
    args_.segments = kernels::oneRun(int64_t{1} << 20, kernels::kvBlockElements(kKvHeads, kBlockTokens, kHeadDim));
    args_.out = out_.as();
    args_.workspace = workspace_.as();
    args_.arrivals = arrivals_.as<uint32_t>();
    args_.heads = kHeads;
    args_.kvHeads = kKvHeads;
    args_.headDim = kHeadDim;
    args_.blockTokens = kBlockTokens;
    args_.maxContext = context;
    args_.scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim));
    args_.kvElem = args_.activation = kernels::Elem::BF16;
  }

  // Of one node, in a graph of a chain of them that go through the copies of the cache in turn.
  double ms(Timer &timer) {
    const kernels::CudaLaunch launch =
        launchOf(kernels::Op::Attention, &args_, {sequences_ * tokens_, sequences_, context_});
    const size_t inRow = (kLeastInRow + copies_ - 1) / copies_ * copies_;
    BenchGraph graph;
    cudaGraphNode_t last = nullptr;
    for (size_t i = 0; i < inRow; ++i) {
      kernels::AttentionArgs args = args_;
      args.kv = kv_.as() + kvBytes_ * (i % copies_);
      last = graph.kernel({last}, launch, &args);
    }
    graph.build(timer.stream());
    return timer.medianMs(5, [&](cudaStream_t stream) { graph.launch(stream); }) / static_cast<double>(inRow);
  }
  double kvBytes() const { return static_cast<double>(sequences_ * context_ * 2 * kKvHeads * kHeadDim * 2); }
  // Four a multiplied pair and dimension (two products), under the causal mask.
  double flops() const {
    const auto t = static_cast<double>(tokens_), c = static_cast<double>(context_);
    return static_cast<double>(sequences_) * 4 * kHeads * kHeadDim * (t * c - t * (t - 1) / 2);
  }

private:
  static constexpr size_t kLeastInRow = 10, kMostInRow = 256;
  int64_t sequences_, tokens_, context_, blocksEach_;
  size_t kvBytes_, copies_;
  DeviceBuffer kv_, qkv_, out_, workspace_, arrivals_;
  MetaBuffer meta_;
  kernels::AttentionArgs args_{};
};

} // namespace

void measureKernels(const Context &context) {
  Report &report = context.report;
  report.part(
      "kernels",
      "graphs of at least 10 nodes of one kernel in a chain, median of 5 by events behind a spin kernel; random "
      "operands, of caches and weights so many that 256 MiB go by before one is read again; attention of "
      "Llama-3.1-8B (32 heads, 8 of keys, 128 wide, BF16), blocks of 16 tokens in random order; shares of a "
      "4 GiB device copy (2 x bytes) and of an 8192^3 BF16 product of the same process");
  Timer timer;
  std::vector<Report::Task> tasks = {
      {kCopy, 3,
       [&] {
         return Json{{"GB/s", copyBandwidth(timer)}};
       }},
      {kPeak, 3, [&] {
         return Json{{"TFLOP/s", tflops(8192, 8192, 8192, gemmMs(timer, 8192, 8192, 8192))}};
       }}};
  const auto linear = [&](int64_t rows) { // Llama-3.1-8B's gate and up
    const double ms = gemmMs(timer, rows, 28672, 4096), rate = tflops(rows, 28672, 4096, ms);
    const double weights = 28672.0 * 4096 * 2 / ms * 1e-6;
    return Json{{"us", ms * 1e3},
                {"TFLOP/s", rate},
                {"share of the product", rate / report.number(kPeak, "TFLOP/s")},
                {"weights GB/s", weights},
                {"share of memory", weights / report.number(kCopy, "GB/s")}};
  };
  const auto decode = [&](int64_t sequences, int64_t of) {
    size_t free = 0, total = 0;
    must(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    const double bytes = static_cast<double>(sequences * of * 2 * kKvHeads * kHeadDim * 2);
    if (bytes > 0.8 * static_cast<double>(free))
      return Json{{"left out", "its cache does not fit"}};
    AttentionCase one(sequences, 1, of);
    const double ms = one.ms(timer), rate = one.kvBytes() / ms * 1e-6;
    return Json{{"us", ms * 1e3}, {"GB/s", rate}, {"share of memory", rate / report.number(kCopy, "GB/s")}};
  };
  const auto prefill = [&](int64_t sequences, int64_t tokens) {
    AttentionCase one(sequences, tokens, tokens);
    const double ms = one.ms(timer), rate = one.flops() / ms * 1e-9;
    return Json{{"us", ms * 1e3}, {"TFLOP/s", rate}, {"share of the product", rate / report.number(kPeak, "TFLOP/s")}};
  };
  for (const int64_t of : {2048, 512, 8192, 32768, 131072})
    for (const int64_t sequences : {32, 1, 128, 8})
      tasks.push_back({"decode attention, batch " + std::to_string(sequences) + ", context " + std::to_string(of), 4,
                       [&decode, sequences, of] { return decode(sequences, of); }});
  for (const int64_t rows : {32, 1, 128, 1024, 8, 4096})
    tasks.push_back(
        {"linear 28672 x 4096, " + std::to_string(rows) + " rows", 3, [&linear, rows] { return linear(rows); }});
  for (const auto &[sequences, tokens] :
       {std::pair<int64_t, int64_t>{1, 1024}, {4, 1024}, {1, 4096}, {4, 4096}, {1, 16384}})
    tasks.push_back(
        {"prefill attention, batch " + std::to_string(sequences) + ", " + std::to_string(tokens) + " tokens", 4,
         [&prefill, sequences = sequences, tokens = tokens] { return prefill(sequences, tokens); }});
  report.attempt(tasks);
}

} // namespace headrace::bench
