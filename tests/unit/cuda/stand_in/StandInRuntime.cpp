// SPDX-License-Identifier: Apache-2.0
//
// Memory, streams, events and what the runtime says of itself.
#include "tests/unit/cuda/stand_in/StandInRuntime.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>

#include "tests/unit/cuda/stand_in/StandIn.h"
#include "tests/unit/cuda/stand_in/StandInQueue.h"

namespace headrace::stand_in {
namespace {

std::atomic<cudaError_t> lastError{cudaSuccess};
std::atomic<bool> atOnce{false};
std::atomic<uint64_t> order{1}, copied{0};
std::atomic<const void *> source{nullptr};

std::vector<ShownGpu> shown(1);
constexpr std::align_val_t kAlignment{4096};

// Host memory by its first byte.
std::mutex hostMutex;
std::map<const std::byte *, uint64_t> &hostMemory() {
  static std::map<const std::byte *, uint64_t> all;
  return all;
}
void remember(const void *memory, uint64_t bytes) {
  const std::lock_guard lock(hostMutex);
  hostMemory()[static_cast<const std::byte *>(memory)] = bytes;
}
bool forget(const void *memory) {
  const std::lock_guard lock(hostMutex);
  return hostMemory().erase(static_cast<const std::byte *>(memory)) != 0;
}

StandInWork copyOf(void *to, size_t toPitch, const void *from, size_t fromPitch, size_t width, size_t rows,
                   cudaMemcpyKind kind) {
  return {.type = cudaGraphNodeTypeMemcpy,
          .copy = {.to = static_cast<std::byte *>(to),
                   .from = static_cast<const std::byte *>(from),
                   .width = width,
                   .rows = rows,
                   .toPitch = toPitch,
                   .fromPitch = fromPitch,
                   .kind = kind}};
}

} // namespace

cudaError_t failed(cudaError_t error) {
  if (error != cudaSuccess)
    lastError = error;
  return error;
}
bool instant() { return atOnce; }
uint64_t nextOrder() { return order++; }
const void *lastSource() { return source; }

bool pinned(const void *memory, uint64_t bytes) {
  const auto *first = static_cast<const std::byte *>(memory);
  const std::lock_guard lock(hostMutex);
  auto after = hostMemory().upper_bound(first);
  if (after == hostMemory().begin())
    return false;
  --after;
  return first + bytes <= after->first + after->second;
}

cudaError_t give(cudaStream_t stream, const StandInWork &work) {
  if (work.type == cudaGraphNodeTypeMemcpy) {
    const StandInCopy &copy = work.copy;
    const bool toDevice = copy.kind == cudaMemcpyHostToDevice;
    const uint64_t bytes = (copy.rows - 1) * (toDevice ? copy.fromPitch : copy.toPitch) + copy.width;
    if (!pinned(toDevice ? static_cast<const void *>(copy.from) : copy.to, bytes))
      return failed(cudaErrorInvalidValue);
    if (toDevice && stream->capture.number == 0) {
      copied = copy.rows * copy.width;
      source = copy.from;
    }
  }
  if (stream->capture.number != 0) {
    const cudaGraphNode_t node = stream->capture.graph->add(work, stream->capture.after);
    if (node == nullptr)
      return failed(cudaErrorInvalidValue);
    stream->capture.after.assign(1, node);
    return cudaSuccess;
  }
  if (atOnce)
    return cudaSuccess;
  stream->last = Queue::get().add([work, drawn = nextOrder()] { work.run(drawn); });
  return cudaSuccess;
}

void hold() { Queue::get().hold(false); }
void holdGraphs() { Queue::get().hold(true); }
void release() { Queue::get().release(); }
void setInstant(bool instant) {
  Queue::get().wait(Queue::get().given());
  atOnce = instant;
}
uint64_t lastCopyBytes() { return copied; }
void show(std::vector<ShownGpu> gpus) { shown = std::move(gpus); }

} // namespace headrace::stand_in

using namespace headrace::stand_in;

extern "C" {

// ---- what there is

cudaError_t cudaDriverGetVersion(int *version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaDeviceGetPCIBusId(char *bus, int length, int) {
  return std::strncpy(bus, "00000000:00:00.0", static_cast<size_t>(length)), cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return Queue::get().wait(Queue::get().given()), cudaSuccess; }
cudaError_t cudaGetDeviceCount(int *count) {
  *count = static_cast<int>(shown.size());
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device) {
  const ShownGpu &gpu = shown.at(static_cast<size_t>(device));
  *properties = {};
  std::strncpy(properties->name, gpu.name.c_str(), sizeof properties->name - 1);
  properties->major = gpu.major;
  properties->minor = gpu.minor;
  properties->totalGlobalMem = gpu.memory;
  properties->multiProcessorCount = gpu.multiprocessors;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device) {
  const ShownGpu &gpu = shown.at(static_cast<size_t>(device));
  *value = attribute == cudaDevAttrCanUseHostPointerForRegisteredMem ? 1
           : attribute == cudaDevAttrHostNumaId                      ? -1
           : attribute == cudaDevAttrClockRate                       ? gpu.clock
           : attribute == cudaDevAttrMemoryClockRate                 ? gpu.memoryClock
           : attribute == cudaDevAttrGlobalMemoryBusWidth            ? gpu.memoryBus
                                                                     : 0;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *free, size_t *total) { return *free = *total = shown.at(0).memory, cudaSuccess; }
cudaError_t cudaGetLastError() {
  const cudaError_t error = headrace::stand_in::lastError.exchange(cudaSuccess);
  return error;
}
const char *cudaGetErrorString(cudaError_t) { return "an error of the stand-in"; }
const char *cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorNotReady                ? "cudaErrorNotReady"
         : error == cudaErrorInvalidValue          ? "cudaErrorInvalidValue"
         : error == cudaErrorStreamCaptureUnjoined ? "cudaErrorStreamCaptureUnjoined"
                                                   : "cudaError";
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *) {
  *attributes = {};
  attributes->maxDynamicSharedSizeBytes = 48 << 10;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *, cudaFuncAttribute, int bytes) {
  return bytes <= (227 << 10) ? cudaSuccess : failed(cudaErrorInvalidValue);
}

// ---- memory

cudaError_t cudaMalloc(void **memory, size_t bytes) {
  *memory = ::operator new(std::max<size_t>(bytes, 1), kAlignment);
  std::memset(*memory, 0xff, bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void *memory) { return ::operator delete(memory, kAlignment), cudaSuccess; }
cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned) {
  *memory = ::operator new(std::max<size_t>(bytes, 1), kAlignment);
  remember(*memory, bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void *memory) {
  if (!forget(memory))
    return failed(cudaErrorInvalidValue);
  ::operator delete(memory, kAlignment);
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned) { return remember(memory, bytes), cudaSuccess; }
cudaError_t cudaHostUnregister(void *memory) {
  return forget(memory) ? cudaSuccess : failed(cudaErrorHostMemoryNotRegistered);
}
cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned) { return *device = host, cudaSuccess; }
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind) {
  Queue::get().wait(Queue::get().given());
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemset(void *to, int value, size_t bytes) {
  Queue::get().wait(Queue::get().given());
  std::memset(to, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return give(stream, copyOf(to, bytes, from, bytes, bytes, 1, kind));
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t toPitch, const void *from, size_t fromPitch, size_t width, size_t rows,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  return give(stream, copyOf(to, toPitch, from, fromPitch, width, rows, kind));
}

// ---- streams

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Queue::get().wait(stream->last);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Queue::get().wait(stream == cudaStreamLegacy ? Queue::get().given() : stream->last);
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return Queue::get().ended(stream->last) ? cudaSuccess : failed(cudaErrorNotReady);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
  return give(stream, {.type = cudaGraphNodeTypeHost, .host = function, .hostData = data});
}

// ---- events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Queue::get().wait(event->entry);
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (stream->capture.number != 0) {
    event->capture = stream->capture;
    return cudaSuccess;
  }
  event->capture = {};
  const cudaError_t error = give(stream, {.type = cudaGraphNodeTypeEventRecord, .event = event});
  event->entry = stream->last;
  return error;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  if (flags != cudaEventRecordExternal)
    return cudaEventRecord(event, stream);
  return give(stream, {.type = cudaGraphNodeTypeEventRecord, .event = event});
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return Queue::get().ended(event->entry) ? cudaSuccess : failed(cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return Queue::get().wait(event->entry), cudaSuccess; }
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (begin->ns == 0 || end->ns == 0)
    return failed(cudaErrorInvalidResourceHandle);
  *milliseconds = static_cast<float>(static_cast<double>(end->ns - begin->ns) * 1e-6);
  return cudaSuccess;
}

} // extern "C"
