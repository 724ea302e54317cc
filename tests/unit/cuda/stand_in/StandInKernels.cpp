// SPDX-License-Identifier: Apache-2.0
//
// cudaEntry of the emulated kernels, which are compiled with that name changed: it remembers what it gave, because the
// runtime is told functions and the emulator wants names.
#include "tests/unit/cuda/stand_in/StandInKernels.h"

#include <map>
#include <mutex>

#include "tests/unit/cuda/EmulatedCalls.h"
#include "tests/unit/kernels_cuda/TestDevice.h"

namespace headrace {
namespace kernels {

const void *emulatedEntry(const char *kernel);

} // namespace kernels

namespace stand_in {
namespace {

std::mutex entriesMutex;
std::map<const void *, std::string> &entries() {
  static std::map<const void *, std::string> all;
  return all;
}
std::map<const void *, Runs> &own() {
  static std::map<const void *, Runs> all;
  return all;
}

} // namespace

std::string kernelName(const void *function) {
  const std::lock_guard lock(entriesMutex);
  const auto found = entries().find(function);
  return found == entries().end() ? "" : found->second;
}

const void *ownKernel(const void *function, const Runs &runs) {
  const std::lock_guard lock(entriesMutex);
  own()[function] = runs;
  return function;
}

Runs runsOf(const void *function) {
  {
    const std::lock_guard lock(entriesMutex);
    if (const auto found = own().find(function); found != own().end())
      return found->second;
  }
  const cuda::EmulatedCall call = cuda::callOf(kernelName(function));
  return call.call == nullptr ? Runs{} : Runs{call.bytes, call.call};
}

void runKernel(const void *function, const kernels::CudaLaunch &launch, const void *args, uint64_t order) {
  kernels::testDevice().run({{launch, args, runsOf(function).call, function}}, order);
}

} // namespace stand_in

const void *kernels::cudaEntry(const char *kernel) {
  const void *function = emulatedEntry(kernel);
  if (function != nullptr) {
    const std::lock_guard lock(stand_in::entriesMutex);
    stand_in::entries()[function] = kernel;
  }
  return function;
}

} // namespace headrace
