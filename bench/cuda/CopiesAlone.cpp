// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda/CopiesAlone.h"

#include <algorithm>

namespace headrace::bench {

CopiesAlone::Measured CopiesAlone::measure(const plan::Schedule &schedule) {
  BenchGraph graph;
  cudaGraphNode_t last = nullptr;
  Measured measured;
  for (const plan::Step &step : schedule.steps)
    if (step.kind == plan::StepKind::Copy && step.lane == plan::Lane::H2D) {
      const size_t length = std::min<size_t>(step.linkBytes, kBytes / 2);
      const size_t from = measured.bytes % (kBytes / 2) / 256 * 256;
      last = graph.copy({last}, device_.as() + from, host_.as() + from, length, cudaMemcpyHostToDevice);
      measured.bytes += length;
    }
  graph.build(timer_.stream());
  measured.ms = timer_.medianMs(3, [&](cudaStream_t stream) { graph.launch(stream); });
  return measured;
}

} // namespace headrace::bench
