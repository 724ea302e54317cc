// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda/MemOps.h"

#include <cuda.h>

namespace headrace::bench {
namespace {

// The driver's function of that name; null where it has none. Its errors have the numbers of the runtime's.
template <typename F> F driverFunction(const char *name, unsigned since) {
  void *found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  if (cudaGetDriverEntryPointByVersion(name, &found, since, cudaEnableDefault, &result) != cudaSuccess ||
      result != cudaDriverEntryPointSuccess) {
    (void)cudaGetLastError();
    return nullptr;
  }
  return reinterpret_cast<F>(found);
}

constexpr const char *kAddNode = "cuGraphAddBatchMemOpNode", *kCurrent = "cuCtxGetCurrent";
constexpr unsigned kAddNodeSince = 11070, kCurrentSince = 4000;

cudaError_t add(cudaGraphNode_t *made, cudaGraph_t graph, const cudaGraphNode_t *after, size_t count, uint32_t *asked,
                uint32_t *answered, uint32_t round) {
  static const auto addNode = driverFunction<decltype(&::cuGraphAddBatchMemOpNode)>(kAddNode, kAddNodeSince);
  static const auto current = driverFunction<decltype(&::cuCtxGetCurrent)>(kCurrent, kCurrentSince);
  if (addNode == nullptr || current == nullptr)
    return cudaErrorNotSupported;
  CUstreamBatchMemOpParams operations[2] = {};
  operations[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operations[0].writeValue.address = reinterpret_cast<CUdeviceptr>(asked);
  operations[0].writeValue.value = round;
  operations[0].writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT; // behind a fence: what kernels wrote is there
  operations[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  operations[1].waitValue.address = reinterpret_cast<CUdeviceptr>(answered);
  operations[1].waitValue.value = round;
  operations[1].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  CUDA_BATCH_MEM_OP_NODE_PARAMS params{};
  params.count = 2;
  params.paramArray = operations;
  if (const CUresult error = current(&params.ctx); error != CUDA_SUCCESS)
    return static_cast<cudaError_t>(error);
  return static_cast<cudaError_t>(addNode(made, graph, after, count, &params));
}

} // namespace

std::string whyNoMemOps() {
  const PinnedBuffer memory(4096);
  void *seen = nullptr;
  must(cudaHostGetDevicePointer(&seen, memory.as(), 0), "cudaHostGetDevicePointer");
  auto *words = static_cast<uint32_t *>(seen);
  const BenchGraph graph;
  cudaGraphNode_t node = nullptr;
  const cudaError_t added = add(&node, graph.graph(), nullptr, 0, words, words + 64, 1);
  cudaGraphExec_t executable = nullptr;
  const cudaError_t made = added == cudaSuccess ? cudaGraphInstantiate(&executable, graph.graph(), 0) : added;
  if (made == cudaSuccess)
    must(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
  else
    (void)cudaGetLastError();
  if (made != cudaErrorNotSupported && made != cudaErrorNotPermitted)
    must(made, kAddNode);
  return made == cudaSuccess ? "" : std::string(kAddNode) + ": " + cudaGetErrorName(made);
}

cudaGraphNode_t askAndWait(BenchGraph &graph, const BenchGraph::After &after, uint32_t *asked, uint32_t *answered,
                           uint32_t round) {
  return graph.node(after, kAddNode, [&](auto *made, auto into, const auto *behind, size_t count) {
    return add(made, into, behind, count, asked, answered, round);
  });
}

} // namespace headrace::bench
