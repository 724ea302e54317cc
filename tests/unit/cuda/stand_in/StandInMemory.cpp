// SPDX-License-Identifier: Apache-2.0
//
// Memory: what was taken and registered, and copies.
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <optional>

#include "tests/unit/cuda/stand_in/StandIn.h"
#include "tests/unit/cuda/stand_in/StandInFaults.h"
#include "tests/unit/cuda/stand_in/StandInQueue.h"
#include "tests/unit/cuda/stand_in/StandInRuntime.h"

namespace headrace::stand_in {
namespace {

constexpr std::align_val_t kAlignment{4096};

// By their first bytes: pinned host memory and devices' memory.
struct Range {
  uint64_t bytes = 0;
  int device = 0; // of host memory -1 where it is for all of them
};
std::mutex memoryMutex;
using Ranges = std::map<const std::byte *, Range>;
Ranges &hostMemory() {
  static Ranges all;
  return all;
}
Ranges &deviceMemory() {
  static Ranges all;
  return all;
}
void remember(Ranges &all, const void *memory, const Range &range) {
  const std::lock_guard lock(memoryMutex);
  all[static_cast<const std::byte *>(memory)] = range;
}
std::optional<uint64_t> forget(Ranges &all, const void *memory) { // how many bytes it had
  const std::lock_guard lock(memoryMutex);
  const auto found = all.extract(static_cast<const std::byte *>(memory));
  return found.empty() ? std::nullopt : std::optional(found.mapped().bytes);
}
// Null where no range has all of these bytes.
const Range *find(const Ranges &all, const void *memory, uint64_t bytes) {
  const auto *first = static_cast<const std::byte *>(memory);
  auto after = all.upper_bound(first);
  if (after == all.begin())
    return nullptr;
  --after;
  return first + bytes <= after->first + after->second.bytes ? &after->second : nullptr;
}
// Device memory that was given back is given out again: faulting in pages would be most of what a test takes.
std::multimap<uint64_t, void *> &spare() {
  static std::multimap<uint64_t, void *> all;
  return all;
}
void *takeOrMake(uint64_t bytes) {
  const std::lock_guard lock(memoryMutex);
  const auto found = spare().find(bytes);
  if (found == spare().end())
    return ::operator new(std::max<uint64_t>(bytes, 1), kAlignment);
  return spare().extract(found).mapped();
}
void keepSpare(void *memory, uint64_t bytes) {
  const std::lock_guard lock(memoryMutex);
  if (spare().size() < 8)
    spare().insert({bytes, memory});
  else
    ::operator delete(memory, kAlignment);
}
uint64_t takenOn(int device) {
  const std::lock_guard lock(memoryMutex);
  uint64_t bytes = 0;
  for (const auto &[first, range] : deviceMemory())
    bytes += range.device == device ? range.bytes : 0;
  return bytes;
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

bool pinned(const void *memory, uint64_t bytes) {
  const std::lock_guard lock(memoryMutex);
  const Range *range = find(hostMemory(), memory, bytes);
  return range != nullptr && (range->device < 0 || range->device == currentDevice());
}

cudaError_t checkCopy(const StandInCopy &copy) {
  const bool toDevice = copy.kind == cudaMemcpyHostToDevice;
  const auto bytes = [&](uint64_t pitch) { return (copy.rows - 1) * pitch + copy.width; };
  const uint64_t onHost = bytes(toDevice ? copy.fromPitch : copy.toPitch),
                 onDevice = bytes(toDevice ? copy.toPitch : copy.fromPitch);
  if (!pinned(toDevice ? copy.from : copy.to, onHost))
    return failed(cudaErrorInvalidValue);
  return checkDeviceMemory(toDevice ? copy.to : copy.from, onDevice);
}

cudaError_t checkDeviceMemory(const void *memory, uint64_t bytes) {
  const std::lock_guard lock(memoryMutex);
  const Range *range = find(deviceMemory(), memory, bytes);
  return range == nullptr ? failed(cudaErrorInvalidValue) : checkHere(range->device);
}

} // namespace headrace::stand_in

using namespace headrace::stand_in;

extern "C" {

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  STAND_IN_CALL();
  *total = shownMemory(currentDevice());
  *free = *total - takenOn(currentDevice());
  return cudaSuccess;
}
cudaError_t cudaMalloc(void **memory, size_t bytes) {
  STAND_IN_CALL();
  if (bytes > shownMemory(currentDevice()) - takenOn(currentDevice()))
    return failed(cudaErrorMemoryAllocation);
  *memory = takeOrMake(bytes);
  std::memset(*memory, 0xff, bytes);
  remember(deviceMemory(), *memory, {bytes, currentDevice()});
  given(Kind::DeviceMemory, 1);
  return cudaSuccess;
}
// It waits for what runs, as CUDA's does.
cudaError_t cudaFree(void *memory) {
  const cudaError_t error = called(__func__);
  if (const cudaError_t elsewhere = checkDeviceMemory(memory, 1); elsewhere != cudaSuccess)
    return elsewhere;
  Queue::get().waitForAll();
  const std::optional<uint64_t> bytes = forget(deviceMemory(), memory);
  if (!bytes)
    return failed(cudaErrorInvalidValue);
  keepSpare(memory, *bytes);
  given(Kind::DeviceMemory, -1);
  return error;
}
cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags) {
  STAND_IN_CALL();
  *memory = ::operator new(std::max<size_t>(bytes, 1), kAlignment);
  remember(hostMemory(), *memory, {bytes, (flags & cudaHostAllocPortable) != 0 ? -1 : currentDevice()});
  given(Kind::HostMemory, 1);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void *memory) {
  const cudaError_t error = called(__func__);
  Queue::get().waitForAll();
  if (!forget(hostMemory(), memory))
    return failed(cudaErrorInvalidValue);
  ::operator delete(memory, kAlignment);
  given(Kind::HostMemory, -1);
  return error;
}
cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags) {
  STAND_IN_CALL();
  remember(hostMemory(), memory, {bytes, (flags & cudaHostRegisterPortable) != 0 ? -1 : currentDevice()});
  given(Kind::HostMemory, 1);
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void *memory) {
  const cudaError_t error = called(__func__);
  if (!forget(hostMemory(), memory))
    return failed(cudaErrorHostMemoryNotRegistered);
  given(Kind::HostMemory, -1);
  return error;
}
cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned) {
  STAND_IN_CALL();
  return *device = host, cudaSuccess;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  STAND_IN_CALL();
  if (const cudaError_t error = checkDeviceMemory(kind == cudaMemcpyHostToDevice ? to : from, bytes);
      error != cudaSuccess)
    return error;
  return std::memcpy(to, from, bytes), cudaSuccess;
}
cudaError_t cudaMemset(void *to, int value, size_t bytes) {
  STAND_IN_CALL();
  if (const cudaError_t error = checkDeviceMemory(to, bytes); error != cudaSuccess)
    return error;
  return std::memset(to, value, bytes), cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  STAND_IN_CALL();
  return give(stream, copyOf(to, bytes, from, bytes, bytes, 1, kind));
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t toPitch, const void *from, size_t fromPitch, size_t width, size_t rows,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  STAND_IN_CALL();
  return give(stream, copyOf(to, toPitch, from, fromPitch, width, rows, kind));
}

} // extern "C"
