// SPDX-License-Identifier: Apache-2.0
//
// Memory of an exact size whose last byte is followed by a page that faults, and whose first is preceded by one (after
// less than a page of slack, since only one end can be at a page's edge).
//
//   | guard | slack < 1 page | bytes ... | guard |
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace headrace::threads {

class GuardedMemory {
public:
  GuardedMemory() = default;
  ~GuardedMemory();
  GuardedMemory(GuardedMemory &&other) noexcept;
  GuardedMemory &operator=(GuardedMemory &&other) noexcept;

  // Takes `bytes` (a multiple of `alignment`, a power of two up to the page size). ResourceExhausted naming `what` and
  // both numbers where the machine has less memory available. With `populate` the pages are there on return.
  static absl::StatusOr<GuardedMemory> take(uint64_t bytes, uint64_t alignment, std::string_view what, bool populate);

  absl::Span<std::byte> bytes() const { return {begin_, size_}; }

private:
  void *mapping_ = nullptr;
  size_t mappingBytes_ = 0;
  std::byte *begin_ = nullptr;
  size_t size_ = 0;
};

// The part of `inner` bytes that begins at `at` and is taken at once: at most 64 MiB, between which signals come in,
// since to take all of it may need seconds. 0 at the end.
uint64_t partTakenAt(uint64_t at, uint64_t inner);

// Bytes that this machine could give without swapping (MemAvailable, less where a cgroup limits it); 0 if unknown.
uint64_t availableMemory();

} // namespace headrace::threads
