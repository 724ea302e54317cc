// SPDX-License-Identifier: Apache-2.0
//
// Memory that a CUDA device takes when it is opened and gives back when it is closed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace headrace::cuda {

// Device memory of exactly so many bytes.
class DeviceMemory {
public:
  DeviceMemory() = default;
  DeviceMemory(DeviceMemory &&other) noexcept { swap(other); }
  DeviceMemory &operator=(DeviceMemory other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceMemory();
  static absl::StatusOr<DeviceMemory> take(uint64_t bytes, const std::string &what);
  std::byte *data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

private:
  void swap(DeviceMemory &other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  std::byte *data_ = nullptr;
  uint64_t bytes_ = 0;
};

// Pinned host memory that kernels can read and write at the same address; zeroed.
class MappedMemory {
public:
  MappedMemory() = default;
  MappedMemory(MappedMemory &&other) noexcept { swap(other); }
  MappedMemory &operator=(MappedMemory other) noexcept {
    swap(other);
    return *this;
  }
  ~MappedMemory();
  static absl::StatusOr<MappedMemory> take(uint64_t bytes, const std::string &what);
  std::byte *data() const { return data_; }
  std::byte *deviceData() const { return device_; }

private:
  void swap(MappedMemory &other) noexcept {
    std::swap(data_, other.data_);
    std::swap(device_, other.device_);
  }
  std::byte *data_ = nullptr, *device_ = nullptr;
};

struct SlabOptions {
  int numaNode = -1;                                           // where it should lie; -1: wherever the system puts it
  std::function<void(const std::string &)> notice;             // pages that lie elsewhere; may be null
  std::function<void(uint64_t done, uint64_t total)> progress; // bytes, while pages are given memory; may be null
};

// The plan's host memory: one range, faulted in by several threads on the device's NUMA node, then pinned.
//
// It is registered with CUDA as one range and not chunk by chunk, because a copy node must not lie across two
// registrations; chunks are what a thread faults in at a time, before memory that lacks is named with how far it went.
class PinnedSlab {
public:
  static constexpr uint64_t kChunkBytes = uint64_t{256} << 20;
  static constexpr unsigned kMostThreads = 8; // more do not clear pages faster: they share the memory's bandwidth

  PinnedSlab() = default;
  PinnedSlab(PinnedSlab &&other) noexcept { swap(other); }
  PinnedSlab &operator=(PinnedSlab other) noexcept {
    swap(other);
    return *this;
  }
  ~PinnedSlab();
  // Fails by name before it takes what is not there.
  static absl::StatusOr<PinnedSlab> take(uint64_t bytes, const SlabOptions &options);
  absl::Span<std::byte> bytes() const { return absl::MakeSpan(data_, bytes_); }

private:
  void swap(PinnedSlab &other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(mapped_, other.mapped_);
    std::swap(registered_, other.registered_);
  }
  std::byte *data_ = nullptr;
  uint64_t bytes_ = 0, mapped_ = 0; // mapped_: whole pages
  bool registered_ = false;
};

} // namespace headrace::cuda
