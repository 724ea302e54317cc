// SPDX-License-Identifier: Apache-2.0
//
// What lies between two kernels of ours: a chain of 200 joined by full edges, and by programmatic ones, by which the
// next kernel is on the device before the last one has ended, and waits there for what it wrote.
#include "bench/cuda/BenchKernels.h"
#include "bench/cuda/Steps.h"

namespace headrace::bench {
namespace {

constexpr size_t kKernels = 200;
constexpr int64_t kThreads = 256;

double chain(Timer &timer, int64_t elements, bool programmatic) {
  const auto bytes = static_cast<size_t>(elements) * sizeof(float);
  const DeviceBuffer a(bytes), b(bytes); // zeros
  const int64_t blocks = std::clamp<int64_t>(elements / kThreads / 4, 1, 132);
  const kernels::CudaLaunch launch{.kernel = "chain",
                                   .grid = {static_cast<uint32_t>(blocks), 1, 1},
                                   .block = {static_cast<uint32_t>(kThreads), 1, 1}};
  int launches = 0;
  BenchGraph graph;
  cudaGraphNode_t last = nullptr;
  for (size_t i = 0; i < kKernels; ++i) {
    const ChainArgs args{.x = (i % 2 == 0 ? a : b).as<float>(), .y = (i % 2 == 0 ? b : a).as<float>(), .n = elements};
    const cudaGraphNode_t next =
        graph.kernel(programmatic ? BenchGraph::After{} : BenchGraph::After{last}, chainEntry(), launch, &args);
    if (programmatic && last != nullptr)
      graph.programmaticEdge(last, next);
    last = next;
  }
  graph.build(timer.stream());
  const double ms = timer.medianMs(5, [&](cudaStream_t stream) {
    ++launches;
    graph.launch(stream);
  });
  std::vector<float> counted(static_cast<size_t>(elements));
  must(cudaMemcpy(counted.data(), a.as(), bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
  const auto expected = static_cast<float>(kKernels * static_cast<size_t>(launches));
  for (const float value : counted)
    if (value != expected)
      fail("a chain counted to " + std::to_string(value) + ", expected " + std::to_string(expected) +
           ": a kernel did not wait for the one before");
  return ms * 1e3 / kKernels;
}

} // namespace

void addChains(Tasks &tasks, const StepsOf &of) {
  // A row of 4,096 numbers; 128 rows of as many.
  for (const int64_t rows : within(of.spec.maxPositions, {1, 128}))
    tasks.push_back({"chain of 200 kernels, " + std::to_string(rows) + " rows", 3, [&of, rows] {
                       const int64_t elements = rows * of.spec.hidden;
                       const double full = chain(of.timer, elements, false), early = chain(of.timer, elements, true);
                       Json fields = besideBound(full, {.bytes = static_cast<double>(elements * 8)}, of.peaks);
                       fields["us, programmatic edges"] = early;
                       fields["programmatic / full"] = early / full;
                       return fields;
                     }});
}

} // namespace headrace::bench
