// SPDX-License-Identifier: Apache-2.0
//
// What graphs cost: to make, to hold, to launch, to switch.
#include "bench/cuda/Report.h"
#include "kernels/CudaKernels.h"

namespace headrace::bench {
namespace {

// A kernel that finds no row to work on.
struct Nothing {
  DeviceBuffer count{sizeof(int32_t)}, y{256};
  kernels::BiasActivateArgs args{};
  kernels::CudaLaunch launch;

  Nothing() {
    args.count = count.as<int32_t>();
    args.y = y.as();
    args.n = 64;
    args.capacity = 1;
    args.epilogue = kernels::Epilogue::Relu;
    args.result = kernels::Elem::F32;
    launch = kernels::cudaLaunch(args);
  }
  cudaGraphNode_t add(BenchGraph &graph, cudaGraphNode_t after) {
    return graph.kernel(after, kernels::cudaEntry(launch.kernel), {launch.grid[0], launch.grid[1], launch.grid[2]},
                        {launch.block[0], launch.block[1], launch.block[2]}, launch.sharedBytes, &args);
  }
};

struct Copies {
  static constexpr size_t kBytes = 4096;
  PinnedBuffer host{2 * kBytes};
  DeviceBuffer device{2 * kBytes};
};

// `kernels` in a chain; with branches, a copy in each direction for every eighth of them, in chains of their own that
// wait for the kernel beside them: three chains with few edges across, as a plan's graph has.
void fill(BenchGraph &graph, Nothing &nothing, const Copies &copies, int kernelCount, bool branches) {
  cudaGraphNode_t last = nullptr;
  for (int i = 0; i < kernelCount; ++i) {
    last = nothing.add(graph, last);
    if (branches && i % 8 == 7) {
      graph.copy(last, copies.device.as(), copies.host.as(), Copies::kBytes, cudaMemcpyHostToDevice);
      graph.copy(last, copies.host.as() + Copies::kBytes, copies.device.as() + Copies::kBytes, Copies::kBytes,
                 cudaMemcpyDeviceToHost);
    }
  }
}

double launchUs(const BenchGraph &graph, cudaStream_t stream, int times) {
  std::vector<double> us;
  for (int i = 0; i < times; ++i) {
    must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    const double at = nowSeconds();
    graph.launch(stream);
    us.push_back((nowSeconds() - at) * 1e6);
  }
  must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  return median(us);
}

} // namespace

void measureGraphs(Report &report) {
  report.part("graphs",
              "chains of kernels that find no work; host time of cudaGraphLaunch into an idle stream, median of 101; "
              "device time by events over 20 launches in a row; memory as the change of cudaMemGetInfo");
  Nothing nothing;
  const Copies copies;
  Timer timer;
  for (const bool branches : {false, true})
    for (const int kernelCount : {8, 64, 256, 512, 1024, 2048}) {
      BenchGraph graph;
      fill(graph, nothing, copies, kernelCount, branches);
      const int nodes = branches ? kernelCount + kernelCount / 8 * 2 : kernelCount;
      const BenchGraph::Built built = graph.build(timer.stream());
      const double us = launchUs(graph, timer.stream(), 101);
      const double ms = medianMs(timer, 5, [&](cudaStream_t stream) {
        for (int i = 0; i < 20; ++i)
          graph.launch(stream);
      });
      report.figure(std::to_string(nodes) + " nodes, " + (branches ? "three branches" : "one chain"),
                    {{"instantiate ms", built.instantiateMs},
                     {"upload ms", built.uploadMs},
                     {"device bytes", built.deviceBytes},
                     {"launch us", us},
                     {"launch us a node", us / nodes},
                     {"device us a node", ms / 20 * 1e3 / nodes}});
    }

  report.part("switch",
              "two executables of 512 kernels each that find no work; device time an executable by events over 40 "
              "launches in a row, and with the host waiting for each before it launches the next");
  BenchGraph a, b;
  fill(a, nothing, copies, 512, true);
  fill(b, nothing, copies, 512, true);
  a.build(timer.stream());
  b.build(timer.stream());
  const auto perLaunch = [&](bool alternate, bool wait) {
    return medianMs(timer, 7,
                    [&](cudaStream_t stream) {
                      for (int i = 0; i < 40; ++i) {
                        (alternate && i % 2 ? b : a).launch(stream);
                        if (wait)
                          must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
                      }
                    }) /
           40 * 1e3;
  };
  const double same = perLaunch(false, false), other = perLaunch(true, false);
  report.figure("one executable again and again", {{"us", same}});
  report.figure("two in turns", {{"us", other}, {"gap us", other - same}});
  report.figure("one, the host waits between", {{"us", perLaunch(false, true)}});
  report.figure("two in turns, the host waits between", {{"us", perLaunch(true, true)}});
}

} // namespace headrace::bench
