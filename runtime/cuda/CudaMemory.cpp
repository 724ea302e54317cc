// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/CudaMemory.h"

#include <cuda_runtime_api.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/cuda/CudaError.h"
#include "runtime/cuda/FaultIn.h"
#include "runtime/cuda/HostMemory.h"

namespace headrace::cuda {

DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr)
    giveBack(cudaFree(data_));
}

absl::StatusOr<DeviceMemory> DeviceMemory::take(uint64_t bytes, const std::string &what) {
  DeviceMemory memory;
  if (bytes == 0)
    return memory;
  void *data = nullptr;
  HEADRACE_CUDA(absl::StrCat("taking ", bytes, " bytes of device memory (", what, ")"), cudaMalloc(&data, bytes));
  memory.data_ = static_cast<std::byte *>(data);
  memory.bytes_ = bytes;
  return memory;
}

MappedMemory::~MappedMemory() {
  if (data_ != nullptr)
    giveBack(cudaFreeHost(data_));
}

absl::StatusOr<MappedMemory> MappedMemory::take(uint64_t bytes, const std::string &what) {
  MappedMemory memory;
  const std::string during = absl::StrCat("taking ", bytes, " bytes of mapped host memory (", what, ")");
  void *data = nullptr, *device = nullptr;
  HEADRACE_CUDA(during, cudaHostAlloc(&data, bytes, cudaHostAllocMapped | cudaHostAllocPortable));
  memory.data_ = static_cast<std::byte *>(data);
  std::memset(data, 0, bytes);
  HEADRACE_CUDA(during, cudaHostGetDevicePointer(&device, data, 0));
  memory.device_ = static_cast<std::byte *>(device);
  return memory;
}

namespace {

// Binds to the node where the kernel can; a system without NUMA refuses, and then any memory is near.
void bindToNode(std::byte *data, uint64_t bytes, int node) {
  if (node < 0 || node >= 1024)
    return;
  unsigned long mask[1024 / (8 * sizeof(unsigned long))] = {};
  mask[static_cast<size_t>(node) / (8 * sizeof(unsigned long))] |=
      1ul << (static_cast<size_t>(node) % (8 * sizeof(unsigned long)));
  (void)::syscall(SYS_mbind, data, bytes, MPOL_PREFERRED, mask, 1025ul, 0u);
}

std::atomic<uint64_t> pinnedBytes{0}; // of all slabs of the process

} // namespace

PinnedSlab::~PinnedSlab() {
  if (registered_)
    giveBack(cudaHostUnregister(data_));
  if (data_ != nullptr) {
    ::munmap(data_, mapped_);
    pinnedBytes -= mapped_;
  }
}

absl::StatusOr<PinnedSlab> PinnedSlab::take(uint64_t bytes, const SlabOptions &options) {
  PinnedSlab slab;
  if (bytes == 0)
    return slab;
  ASSIGN_OR_RETURN(memory, readHostMemory(pinnedBytes));
  RETURN_IF_ERROR(checkHostMemory(bytes, memory));
  const uint64_t page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)), mapped = (bytes + page - 1) / page * page;
  void *data = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    return absl::ResourceExhaustedError(absl::StrCat("host slab: mapping ", bytes, " bytes: ", std::strerror(errno)));
  slab.data_ = static_cast<std::byte *>(data);
  slab.bytes_ = bytes;
  slab.mapped_ = mapped;
  pinnedBytes += mapped;
  bindToNode(slab.data_, mapped, options.numaNode);
  (void)::madvise(data, mapped, MADV_HUGEPAGE); // fewer pages to pin; not everywhere
  const int threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, kMostThreads));
  if (const absl::Status status = faultIn(slab.data_, mapped, kChunkBytes, threads, options.progress); !status.ok())
    return absl::Status(status.code(), absl::StrCat("host slab: ", std::string(status.message())));
  if (options.numaNode >= 0 && options.notice)
    if (const std::string said =
            elsewhereNotice(bytesElsewhere(slab.data_, mapped, options.numaNode).value_or(0), mapped, options.numaNode);
        !said.empty())
      options.notice(said);
  if (const cudaError_t error = cudaHostRegister(data, mapped, cudaHostRegisterPortable | cudaHostRegisterMapped);
      error != cudaSuccess) {
    const absl::Status failed = cudaFailed(error, "cudaHostRegister", pinningRefused(bytes, memory));
    return absl::ResourceExhaustedError(std::string(failed.message()));
  }
  slab.registered_ = true;
  return slab;
}

} // namespace headrace::cuda
