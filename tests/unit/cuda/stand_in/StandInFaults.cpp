// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/cuda/stand_in/StandInFaults.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "tests/unit/cuda/stand_in/StandIn.h"
#include "tests/unit/cuda/stand_in/StandInQueue.h"
#include "tests/unit/cuda/stand_in/StandInRuntime.h"
#include "tests/unit/cuda/stand_in/StandInShared.h"

namespace headrace::stand_in {
namespace {

std::mutex mutex;
std::map<std::string, uint64_t> &counts() {
  static std::map<std::string, uint64_t> all;
  return all;
}
Fault &planned() {
  static Fault fault;
  return fault;
}
uint64_t counted = 0; // calls that might be the planned one
bool came = false;
std::array<std::atomic<int64_t>, 7> out{};

cudaError_t errorOf(const Fault &fault) {
  return fault.error != 0 ? static_cast<cudaError_t>(fault.error)
         : fault.sticky   ? cudaErrorIllegalAddress
                          : cudaErrorUnknown;
}

} // namespace

bool &inHostFunction() {
  thread_local bool in = false;
  return in;
}

cudaError_t called(const char *name) { return called(name, currentDevice()); }

cudaError_t called(const char *name, int device) {
  if (inHostFunction()) {
    std::fprintf(stderr, "stand-in: %s is called by a host node's function, which may call nothing of CUDA\n", name);
    std::abort();
  }
  const std::lock_guard lock(mutex);
  ++counts()[name];
  const Fault &fault = planned();
  if (fault.device >= 0 && fault.device != device)
    return cudaSuccess;
  const bool now = fault.call == name && ++counted == fault.nth;
  if (!now && !(came && fault.sticky))
    return cudaSuccess;
  if (now)
    came = true;
  if (fault.sticky)
    Queue::get().discard(fault.device); // a context that has failed runs nothing more
  return failed(errorOf(fault));
}

void fail(const Fault &fault) {
  const std::lock_guard lock(mutex);
  counts().clear();
  planned() = fault;
  counted = 0;
  came = false;
}
bool heal() {
  const std::lock_guard lock(mutex);
  const bool had = came;
  if (planned().sticky)
    (void)cudaGetLastError(); // stayed, as such errors do
  counts().clear();
  planned() = {};
  came = false;
  return had;
}
std::map<std::string, uint64_t> calls() {
  const std::lock_guard lock(mutex);
  return counts();
}

void given(Kind kind, int change) { out[static_cast<size_t>(kind)] += change; }
Held held() {
  const auto of = [](Kind kind) { return out[static_cast<size_t>(kind)].load(); };
  return {.deviceMemory = of(Kind::DeviceMemory),
          .hostMemory = of(Kind::HostMemory),
          .streams = of(Kind::Streams),
          .events = of(Kind::Events),
          .graphs = of(Kind::Graphs),
          .executables = of(Kind::Executables),
          .handles = of(Kind::Handles)};
}

std::ostream &operator<<(std::ostream &out, const Held &held) {
  return out << "device memory " << held.deviceMemory << ", host memory " << held.hostMemory << ", streams "
             << held.streams << ", events " << held.events << ", graphs " << held.graphs << ", executables "
             << held.executables << ", handles " << held.handles;
}

} // namespace headrace::stand_in

using namespace headrace::stand_in;

extern "C" {

int standInCalled(const char *name) { return called(name); }
void standInHandles(int change) { given(Kind::Handles, change); }
int standInDevice() { return currentDevice(); }
cudaError_t standInHost(cudaStream_t stream, cudaHostFn_t function, void *data) {
  return give(stream, {.type = cudaGraphNodeTypeHost, .host = function, .hostData = data});
}

} // extern "C"
