// SPDX-License-Identifier: Apache-2.0
#include "runtime/threads/GuardedMemory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace headrace::threads {
namespace {

// A number of bytes that stands alone in a file (cgroup v2); max if there is none ("max", or no such file).
uint64_t readNumber(const char *path) {
  std::ifstream in(path);
  uint64_t value = 0;
  return in >> value ? value : std::numeric_limits<uint64_t>::max();
}

} // namespace

uint64_t availableMemory() {
  uint64_t available = 0;
  std::ifstream in("/proc/meminfo");
  for (std::string key, rest; in >> key && std::getline(in, rest);)
    if (key == "MemAvailable:") {
      available = std::strtoull(rest.c_str(), nullptr, 10) * 1024;
      break;
    }
  const uint64_t limit = readNumber("/sys/fs/cgroup/memory.max"), used = readNumber("/sys/fs/cgroup/memory.current");
  if (limit != std::numeric_limits<uint64_t>::max() && used != std::numeric_limits<uint64_t>::max())
    available = std::min(available, limit - std::min(limit, used));
  return available;
}

uint64_t partTakenAt(uint64_t at, uint64_t inner) { return std::min(uint64_t{64} << 20, inner - at); }

absl::StatusOr<GuardedMemory> GuardedMemory::take(uint64_t bytes, uint64_t alignment, std::string_view what,
                                                  bool populate) {
  const std::string name(what);
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  if (bytes % alignment != 0 || page % alignment != 0)
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", bytes, " bytes, expected a multiple of ", alignment));
  const uint64_t available = availableMemory();
  if (bytes > std::numeric_limits<int64_t>::max() - 3 * page || (available != 0 && bytes > available))
    return absl::ResourceExhaustedError(
        absl::StrCat(name, ": ", bytes, " bytes wanted, ", available, " bytes of memory are available"));

  const uint64_t inner = (bytes + page - 1) / page * page;
  GuardedMemory memory;
  memory.mappingBytes_ = inner + 2 * page;
  void *mapping = mmap(nullptr, memory.mappingBytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED)
    return absl::ResourceExhaustedError(absl::StrCat(name, ": mapping ", bytes, " bytes: ", std::strerror(errno)));
  memory.mapping_ = mapping;
  std::byte *usable = static_cast<std::byte *>(mapping) + page;
  if (inner != 0 && mprotect(usable, inner, PROT_READ | PROT_WRITE) != 0)
    return absl::ResourceExhaustedError(absl::StrCat(name, ": mapping ", bytes, " bytes: ", std::strerror(errno)));
  // Fewer translations to miss; where the kernel has no huge pages nothing is lost.
  if (inner != 0)
    (void)madvise(usable, inner, MADV_HUGEPAGE);
#ifdef MADV_POPULATE_WRITE
  for (uint64_t at = 0; populate && at < inner; at += partTakenAt(at, inner))
    if (madvise(usable + at, partTakenAt(at, inner), MADV_POPULATE_WRITE) != 0 && errno != EINVAL)
      return absl::ResourceExhaustedError(absl::StrCat(name, ": taking ", bytes, " bytes: ", std::strerror(errno)));
#else
  (void)populate;
#endif
  memory.size_ = bytes;
  memory.begin_ = usable + (inner - bytes);
  return memory;
}

GuardedMemory::GuardedMemory(GuardedMemory &&other) noexcept { *this = std::move(other); }

GuardedMemory &GuardedMemory::operator=(GuardedMemory &&other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mappingBytes_, other.mappingBytes_);
  std::swap(begin_, other.begin_);
  std::swap(size_, other.size_);
  return *this;
}

GuardedMemory::~GuardedMemory() {
  if (mapping_ != nullptr)
    munmap(mapping_, mappingBytes_);
}

} // namespace headrace::threads
