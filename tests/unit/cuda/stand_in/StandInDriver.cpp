// SPDX-License-Identifier: Apache-2.0
//
// What programs ask of the driver past the runtime: nodes of memory operations. With HEADRACE_STAND_IN_NO_MEM_OPS in
// the environment it has none.
#include <cuda.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/unit/cuda/stand_in/StandInFaults.h"
#include "tests/unit/cuda/stand_in/StandInRuntime.h"

using namespace headrace::stand_in;

namespace {

using Operations = std::vector<CUstreamBatchMemOpParams>;

uint32_t &wordAt(CUdeviceptr address) { return *reinterpret_cast<uint32_t *>(address); }

// One behind the other, as CUDA has them. A wait holds all streams here.
void runOperations(void *data) {
  for (const CUstreamBatchMemOpParams &one : *static_cast<const Operations *>(data))
    if (one.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32)
      std::atomic_ref(wordAt(one.writeValue.address)).store(one.writeValue.value);
    else
      while (std::atomic_ref(wordAt(one.waitValue.address)).load() < one.waitValue.value)
        std::this_thread::yield();
}

CUresult currentContext(CUcontext *context) { return *context = nullptr, CUDA_SUCCESS; }

CUresult addOperations(CUgraphNode *made, CUgraph graph, const CUgraphNode *after, size_t count,
                       const CUDA_BATCH_MEM_OP_NODE_PARAMS *params) {
  if (std::getenv("HEADRACE_STAND_IN_NO_MEM_OPS") != nullptr)
    return CUDA_ERROR_NOT_SUPPORTED;
  for (unsigned i = 0; i < params->count; ++i) {
    const CUstreamBatchMemOpParams &one = params->paramArray[i];
    const bool write = one.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32;
    const bool wait =
        one.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 && one.waitValue.flags == CU_STREAM_WAIT_VALUE_GEQ;
    const CUdeviceptr address = write ? one.writeValue.address : one.waitValue.address;
    if ((!write && !wait) || !pinned(reinterpret_cast<const void *>(address), sizeof(uint32_t)))
      return CUDA_ERROR_INVALID_VALUE;
  }
  // Graphs run them as often as they are launched, so they are kept to the program's end.
  static std::mutex mutex;
  static auto *const kept = new std::deque<Operations>;
  const std::lock_guard lock(mutex);
  Operations &own = kept->emplace_back(params->paramArray, params->paramArray + params->count);
  *made = graph->add({.type = cudaGraphNodeTypeHost, .host = runOperations, .hostData = &own}, {after, after + count});
  return *made == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

} // namespace

extern "C" {

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult *result) {
  STAND_IN_CALL();
  *function = std::strcmp(name, "cuCtxGetCurrent") == 0            ? reinterpret_cast<void *>(currentContext)
              : std::strcmp(name, "cuGraphAddBatchMemOpNode") == 0 ? reinterpret_cast<void *>(addOperations)
                                                                   : nullptr;
  *result = *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

} // extern "C"
