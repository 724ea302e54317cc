// SPDX-License-Identifier: Apache-2.0
//
// The link: what one large pinned copy gets, and what chains of chunks in a graph get of that, alone, both ways at once
// and beside kernels. The chunks of a graph are the denominators of every iteration's bound.
#include <array>

#include "bench/cuda/Report.h"
#include "kernels/CudaKernels.h"

namespace headrace::bench {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kTotal = 1024 * kMiB; // bytes a measurement moves in one direction
constexpr int kRepeats = 7;

double gbps(size_t bytes, double ms) { return static_cast<double>(bytes) / ms * 1e-6; }

struct Buffers {
  PinnedBuffer hostIn{kTotal}, hostOut{kTotal};
  DeviceBuffer deviceIn{kTotal}, deviceOut{kTotal};
};

void addCopies(BenchGraph &graph, const Buffers &b, size_t chunk, bool toDevice) {
  cudaGraphNode_t last = nullptr;
  for (size_t at = 0; at < kTotal; at += chunk)
    last = toDevice ? graph.copy(last, b.deviceIn.as() + at, b.hostIn.as() + at, chunk, cudaMemcpyHostToDevice)
                    : graph.copy(last, b.hostOut.as() + at, b.deviceOut.as() + at, chunk, cudaMemcpyDeviceToHost);
}

// Kernels that stream device memory, one after another, for about as long as the copies take.
struct Load {
  static constexpr int64_t kRows = 4096, kColumns = 16384;
  DeviceBuffer gateUp{static_cast<size_t>(kRows * 2 * kColumns * 2)}, y{static_cast<size_t>(kRows * kColumns * 2)};
  DeviceBuffer count{sizeof(int32_t)};
  kernels::ActivateArgs args{};

  Load() {
    const int32_t rows = kRows;
    must(cudaMemcpy(count.as(), &rows, sizeof(rows), cudaMemcpyHostToDevice), "cudaMemcpy");
    args.count = count.as<int32_t>();
    args.gateUp = gateUp.as();
    args.y = y.as();
    args.intermediate = kColumns;
    args.activation = kernels::Elem::BF16;
  }
  static constexpr double kBytes = static_cast<double>(kRows * kColumns * 2 * 3);

  void add(BenchGraph &graph, int kernelCount) {
    const char *why = nullptr;
    const kernels::CudaLaunch launch = kernels::cudaLaunch(kernels::Op::Activate, &args, {kRows, 1, kRows}, &why);
    if (launch.kernel == nullptr)
      fail(std::string("activate: ") + why);
    cudaGraphNode_t last = nullptr;
    for (int i = 0; i < kernelCount; ++i)
      last = graph.kernel(last, kernels::cudaEntry(launch.kernel), {launch.grid[0], launch.grid[1], launch.grid[2]},
                          {launch.block[0], launch.block[1], launch.block[2]}, launch.sharedBytes, &args);
  }
};

double graphMs(Timer &timer, BenchGraph &graph) {
  graph.build(timer.stream());
  return medianMs(timer, kRepeats, [&](cudaStream_t stream) { graph.launch(stream); });
}

} // namespace

void measureLink(Report &report) {
  report.part(
      "link",
      "1 GiB each way, median of 7, by events; graphs of 1-D copy nodes in one chain a direction; 'of one copy' "
      "divides by one cudaMemcpyAsync of 1 GiB from pinned memory in the same process");
  Buffers buffers;
  Timer timer;
  const double inMs = medianMs(timer, kRepeats, [&](cudaStream_t s) {
    must(cudaMemcpyAsync(buffers.deviceIn.as(), buffers.hostIn.as(), kTotal, cudaMemcpyHostToDevice, s),
         "cudaMemcpyAsync");
  });
  const double outMs = medianMs(timer, kRepeats, [&](cudaStream_t s) {
    must(cudaMemcpyAsync(buffers.hostOut.as(), buffers.deviceOut.as(), kTotal, cudaMemcpyDeviceToHost, s),
         "cudaMemcpyAsync");
  });
  const double in = gbps(kTotal, inMs), out = gbps(kTotal, outMs);
  report.figure("one copy of 1 GiB, h2d", {{"GB/s", in}});
  report.figure("one copy of 1 GiB, d2h", {{"GB/s", out}});

  Load load;
  double kernelMs = 0; // of one kernel, alone
  {
    BenchGraph graph;
    load.add(graph, 64);
    kernelMs = graphMs(timer, graph) / 64;
    report.figure("load kernel alone", {{"ms", kernelMs}, {"memory GB/s", Load::kBytes / kernelMs * 1e-6}});
  }
  for (const size_t chunk : {1, 2, 4, 8, 16, 32, 64, 128, 256}) {
    const size_t bytes = chunk * kMiB;
    const std::string name = std::to_string(chunk) + " MiB chunks";
    const auto copies = [&](bool h2d, bool d2h, int kernelCount) {
      BenchGraph graph;
      if (h2d)
        addCopies(graph, buffers, bytes, true);
      if (d2h)
        addCopies(graph, buffers, bytes, false);
      if (kernelCount > 0)
        load.add(graph, kernelCount);
      return graphMs(timer, graph);
    };
    const double h2d = copies(true, false, 0), d2h = copies(false, true, 0), both = copies(true, true, 0);
    report.figure(name + ", h2d", {{"GB/s", gbps(kTotal, h2d)}, {"of one copy", gbps(kTotal, h2d) / in}});
    report.figure(name + ", d2h", {{"GB/s", gbps(kTotal, d2h)}, {"of one copy", gbps(kTotal, d2h) / out}});
    report.figure(name + ", both ways",
                  {{"GB/s, sum", gbps(2 * kTotal, both)}, {"of the longer alone", both / std::max(h2d, d2h)}});
    const int kernelCount = std::max(1, static_cast<int>(h2d / kernelMs));
    const double alone = kernelMs * kernelCount, beside = copies(true, false, kernelCount);
    report.figure(name + ", h2d beside kernels", {{"ms", beside},
                                                  {"kernels alone ms", alone},
                                                  {"copies alone ms", h2d},
                                                  {"of the longer alone", beside / std::max(alone, h2d)},
                                                  {"of their sum", beside / (alone + h2d)}});
  }
}

} // namespace headrace::bench
