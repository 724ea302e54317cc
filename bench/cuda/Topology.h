// SPDX-License-Identifier: Apache-2.0
//
// The graph of a compiled plan's variant, node for node and edge for edge, whose nodes do next to nothing: kernels and
// library calls are a kernel that finds no work, copies are of so many bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/cuda/Gpu.h"
#include "runtime/cuda/RecordedGraph.h"

namespace headrace::bench {

class Topology {
public:
  static constexpr size_t kCopyBytes = 4096;

  Topology(const cuda::RecordedGraph &recorded, size_t copyBytes = kCopyBytes);
  BenchGraph graph;
  struct Copy {
    cudaGraphNode_t node = nullptr;
    void *to = nullptr;
    const void *from = nullptr;
    cudaMemcpyKind kind{};
  };
  std::vector<Copy> copies;

private:
  EmptyKernel kernel_;
  PinnedBuffer host_;
  DeviceBuffer device_;
};

} // namespace headrace::bench
