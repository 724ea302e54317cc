// SPDX-License-Identifier: Apache-2.0
//
// Kernels against what bounds them: device memory by a large copy, tensor cores by an 8192^3 product.
#include "bench/cuda/AttentionCase.h"
#include "bench/cuda/Gemm.h"
#include "bench/cuda/Gpu.h"
#include "bench/cuda/Parts.h"

namespace headrace::bench {
namespace {

constexpr const char *kCopy = "device copy of 4 GiB", *kPeak = "8192^3 product, BF16";

double copyBandwidth(Timer &timer) {
  const size_t bytes = 4 * kGiB;
  const DeviceBuffer from(bytes, DeviceBuffer::Holds::Random), to(bytes);
  const double ms = timer.medianMs(7, [&](cudaStream_t stream) {
    must(cudaMemcpyAsync(to.as(), from.as(), bytes, cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
  });
  return 2 * static_cast<double>(bytes) / ms * 1e-6;
}

std::vector<BenchRows> alike(int64_t sequences, const BenchRows &each) {
  return std::vector<BenchRows>(static_cast<size_t>(sequences), each);
}

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
    const double bytes = static_cast<double>(sequences * of * 2 * kLlama8bHeads.kvHeads * kLlama8bHeads.headDim * 2);
    if (bytes > 0.8 * static_cast<double>(free))
      return Json{{"left out", "its cache does not fit"}};
    AttentionCase one(kLlama8bHeads, alike(sequences, {.tokens = 1, .context = of}));
    const double ms = one.ms(timer), rate = one.kvBytes() / ms * 1e-6;
    return Json{{"us", ms * 1e3}, {"GB/s", rate}, {"share of memory", rate / report.number(kCopy, "GB/s")}};
  };
  const auto prefill = [&](int64_t sequences, int64_t tokens) {
    AttentionCase one(kLlama8bHeads, alike(sequences, {.tokens = tokens, .context = tokens}));
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
