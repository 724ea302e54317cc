// SPDX-License-Identifier: Apache-2.0
//
// Streams, events, and what the runtime says of itself and of GPUs.
#include "tests/unit/cuda/stand_in/StandInRuntime.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "tests/unit/cuda/stand_in/StandIn.h"
#include "tests/unit/cuda/stand_in/StandInFaults.h"
#include "tests/unit/cuda/stand_in/StandInQueue.h"

namespace headrace::stand_in {
namespace {

thread_local cudaError_t lastError = cudaSuccess; // CUDA's are the thread's, too
thread_local int current = 0;
std::atomic<bool> atOnce{false};
std::atomic<uint64_t> order{1}, copied{0};
std::atomic<const void *> source{nullptr};

std::vector<ShownGpu> shownAtFirst() {
  std::vector<ShownGpu> gpus(1);
  if (const char *name = std::getenv("HEADRACE_STAND_IN_GPU"); name != nullptr)
    gpus.front().name = name;
  return gpus;
}
std::vector<ShownGpu> shownGpus = shownAtFirst();
std::atomic<bool> programmaticEdges{false};
bool there(int device) { return device >= 0 && static_cast<size_t>(device) < shownGpus.size(); }
const ShownGpu &gpuOf(int device) {
  std::vector<const ShownGpu *> gpus;
  for (const ShownGpu &gpu : shownGpus)
    gpus.push_back(&gpu);
  if (const char *order = std::getenv("CUDA_DEVICE_ORDER"); order != nullptr && std::strcmp(order, "PCI_BUS_ID") == 0)
    std::stable_sort(gpus.begin(), gpus.end(),
                     [](const ShownGpu *a, const ShownGpu *b) { return a->pciBus < b->pciBus; });
  return *gpus.at(static_cast<size_t>(device));
}
// By kernel and device.
std::mutex kernelsMutex;
std::map<std::pair<const void *, int>, int> &sharedBytes() {
  static std::map<std::pair<const void *, int>, int> all;
  return all;
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

int currentDevice() { return current; }
uint64_t shownMemory(int device) { return gpuOf(device).memory; }

cudaError_t checkHere(int device) { return device == current ? cudaSuccess : failed(cudaErrorInvalidResourceHandle); }

int &sharedBytesOf(const void *function) {
  const std::lock_guard lock(kernelsMutex);
  return sharedBytes().try_emplace({function, current}, 48 << 10).first->second;
}
void forgetKernels() {
  const std::lock_guard lock(kernelsMutex);
  sharedBytes().clear();
}

cudaError_t give(cudaStream_t stream, const StandInWork &work) {
  if (const cudaError_t error = checkHere(stream->device); error != cudaSuccess)
    return error;
  if (work.type == cudaGraphNodeTypeMemcpy) {
    if (const cudaError_t error = checkCopy(work.copy); error != cudaSuccess)
      return error;
    if (work.copy.kind == cudaMemcpyHostToDevice && stream->capture.number == 0) {
      copied = work.copy.rows * work.copy.width;
      source = work.copy.from;
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
  stream->last = Queue::get().add({.stream = stream, .device = stream->device, .work = [work, drawn = nextOrder()] {
                                     work.run(drawn);
                                     return true;
                                   }});
  return cudaSuccess;
}

void hold() { Queue::get().hold(false); }
void holdGraphs() { Queue::get().hold(true); }
void release() { Queue::get().release(); }
void setInstant(bool instant) {
  Queue::get().waitForAll();
  atOnce = instant;
}
bool errorLeft() { return lastError != cudaSuccess; }
uint64_t lastCopyBytes() { return copied; }
void show(std::vector<ShownGpu> gpus) { shownGpus = std::move(gpus); }
void setProgrammatic(bool programmatic) { programmaticEdges = programmatic; }
bool programmatic() { return programmaticEdges; }

} // namespace headrace::stand_in

using namespace headrace::stand_in;

extern "C" {

// ---- what there is

cudaError_t cudaDriverGetVersion(int *version) {
  STAND_IN_CALL();
  return *version = 13000, cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version) {
  STAND_IN_CALL();
  return *version = 13000, cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *bus, int length, int device) {
  STAND_IN_CALL();
  std::snprintf(bus, static_cast<size_t>(length), "00000000:%02X:00.0", gpuOf(device).pciBus);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  STAND_IN_CALL();
  return Queue::get().waitForDevice(current), cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int *count) {
  STAND_IN_CALL();
  *count = static_cast<int>(shownGpus.size());
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}
// What has failed on a device is no reason to stay with the one before.
cudaError_t cudaSetDevice(int device) {
  const cudaError_t error = called(__func__, device);
  if (!there(device))
    return failed(cudaErrorInvalidDevice);
  return current = device, error;
}
cudaError_t cudaGetDevice(int *device) {
  STAND_IN_CALL();
  return *device = current, cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device) {
  STAND_IN_CALL();
  const ShownGpu &gpu = gpuOf(device);
  *properties = {};
  std::strncpy(properties->name, gpu.name.c_str(), sizeof properties->name - 1);
  properties->major = gpu.major;
  properties->minor = gpu.minor;
  properties->totalGlobalMem = gpu.memory;
  properties->multiProcessorCount = gpu.multiprocessors;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device) {
  STAND_IN_CALL();
  const ShownGpu &gpu = gpuOf(device);
  *value = attribute == cudaDevAttrCanUseHostPointerForRegisteredMem ? 1
           : attribute == cudaDevAttrHostNumaId                      ? gpu.numaNode
           : attribute == cudaDevAttrClockRate                       ? gpu.clock
           : attribute == cudaDevAttrMemoryClockRate                 ? gpu.memoryClock
           : attribute == cudaDevAttrGlobalMemoryBusWidth            ? gpu.memoryBus
                                                                     : 0;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return std::exchange(headrace::stand_in::lastError, cudaSuccess); }
const char *cudaGetErrorString(cudaError_t) { return "an error of the stand-in"; }
const char *cudaGetErrorName(cudaError_t error) {
  switch (error) {
  case cudaErrorNotReady:
    return "cudaErrorNotReady";
  case cudaErrorInvalidValue:
    return "cudaErrorInvalidValue";
  case cudaErrorStreamCaptureUnjoined:
    return "cudaErrorStreamCaptureUnjoined";
  case cudaErrorInvalidResourceHandle:
    return "cudaErrorInvalidResourceHandle";
  case cudaErrorMemoryAllocation:
    return "cudaErrorMemoryAllocation";
  case cudaErrorNotSupported:
    return "cudaErrorNotSupported";
  case cudaErrorIllegalAddress:
    return "cudaErrorIllegalAddress";
  case cudaErrorECCUncorrectable:
    return "cudaErrorECCUncorrectable";
  case cudaErrorUnknown:
    return "cudaErrorUnknown";
  default:
    return "cudaError";
  }
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *function) {
  STAND_IN_CALL();
  *attributes = {};
  attributes->maxDynamicSharedSizeBytes = sharedBytesOf(function);
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *function, cudaFuncAttribute, int bytes) {
  STAND_IN_CALL();
  if (bytes > (227 << 10))
    return failed(cudaErrorInvalidValue);
  return sharedBytesOf(function) = bytes, cudaSuccess;
}

// ---- streams

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  STAND_IN_CALL();
  if (flags != cudaStreamNonBlocking)
    return failed(cudaErrorInvalidValue); // there are no others here
  *stream = new CUstream_st{.device = current};
  given(Kind::Streams, 1);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const cudaError_t error = called(__func__);
  if (const cudaError_t elsewhere = checkHere(stream->device); elsewhere != cudaSuccess)
    return elsewhere;
  Queue::get().wait(stream->last);
  delete stream;
  given(Kind::Streams, -1);
  return error;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  STAND_IN_CALL();
  if (stream == cudaStreamLegacy) // the thread's device's
    return cudaSuccess;
  if (const cudaError_t error = checkHere(stream->device); error != cudaSuccess)
    return error;
  return Queue::get().wait(stream->last), cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  STAND_IN_CALL();
  if (const cudaError_t error = checkHere(stream->device); error != cudaSuccess)
    return error;
  return Queue::get().ended(stream->last) ? cudaSuccess : failed(cudaErrorNotReady);
}

// ---- events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
  STAND_IN_CALL();
  *event = new CUevent_st{.device = current};
  given(Kind::Events, 1);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event) {
  STAND_IN_CALL();
  *event = new CUevent_st{.device = current};
  given(Kind::Events, 1);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const cudaError_t error = called(__func__);
  if (const cudaError_t elsewhere = checkHere(event->device); elsewhere != cudaSuccess)
    return elsewhere;
  Queue::get().wait(event->entry);
  delete event;
  given(Kind::Events, -1);
  return error;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  STAND_IN_CALL();
  if (event->device != stream->device)
    return failed(cudaErrorInvalidResourceHandle);
  if (const cudaError_t error = checkHere(event->device); error != cudaSuccess)
    return error;
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
  STAND_IN_CALL();
  if (flags != cudaEventRecordExternal)
    return failed(cudaErrorInvalidValue); // not asked for
  if (const cudaError_t error = checkHere(event->device); error != cudaSuccess)
    return error;
  return give(stream, {.type = cudaGraphNodeTypeEventRecord, .event = event});
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  STAND_IN_CALL();
  if (const cudaError_t error = checkHere(event->device); error != cudaSuccess)
    return error;
  return Queue::get().ended(event->entry) ? cudaSuccess : failed(cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  STAND_IN_CALL();
  if (const cudaError_t error = checkHere(event->device); error != cudaSuccess)
    return error;
  return Queue::get().wait(event->entry), cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  STAND_IN_CALL();
  for (cudaEvent_t event : {begin, end})
    if (const cudaError_t error = checkHere(event->device); error != cudaSuccess)
      return error;
  if (begin->ns == 0 || end->ns == 0)
    return failed(cudaErrorInvalidResourceHandle);
  *milliseconds = static_cast<float>(static_cast<double>(end->ns - begin->ns) * 1e-6);
  return cudaSuccess;
}

} // extern "C"
