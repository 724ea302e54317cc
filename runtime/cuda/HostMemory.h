// SPDX-License-Identifier: Apache-2.0
//
// How much host memory there is to pin, before anything is taken.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace headrace::cuda {

struct HostMemory {
  uint64_t available = 0;               // of /proc/meminfo, or what control groups leave if that is less
  std::optional<uint64_t> memlockLimit; // RLIMIT_MEMLOCK; unset: unlimited
};
// Where kHostMemoryVariable is set ("200GiB") that much is available, whatever the system says: for a container whose
// memory grows as it is used. InvalidArgument naming the variable where it holds no amount. Of such an amount the
// process holds `pinned` bytes already, for other devices; what the system says knows of them.
inline constexpr const char *kHostMemoryVariable = "HEADRACE_HOST_MEMORY";
absl::StatusOr<HostMemory> readHostMemory(uint64_t pinned);

// The bytes of "MemAvailable:", 0 where there is no such line.
uint64_t memAvailable(const std::string &meminfo);
// What a control group still gives: its limit less what it uses, page cache not counted; unset: no limit. The texts are
// those of memory.max (or memory.high, above which it is slowed down), memory.current and memory.stat.
std::optional<uint64_t> controlGroupLeft(const std::string &max, const std::string &current, const std::string &stat);

// The least that the groups leave which this process is in, and every group above them: all of them count. `groups` is
// the text of /proc/self/cgroup, `root` where control groups are mounted; of both versions.
std::optional<uint64_t> controlGroupsLeft(const std::string &groups, const std::string &root);
// The least limit of theirs, whatever is in use; without arguments of this process. Unset: none.
std::optional<uint64_t> controlGroupsLimit(const std::string &groups, const std::string &root);
std::optional<uint64_t> controlGroupsLimit();

// Of so many bytes of pages of 4 KiB, an entry of 8 bytes each; where the system has larger ones it is less.
uint64_t pageTableBytes(uint64_t bytes);

// ResourceExhausted naming the numbers where `bytes` and their page tables do not fit. RLIMIT_MEMLOCK is not decisive:
// the driver pins for the process, and whether it counts against the limit depends on the system. It is part of the
// message when pinning is refused (pinningRefused).
absl::Status checkHostMemory(uint64_t bytes, const HostMemory &memory);
std::string pinningRefused(uint64_t bytes, const HostMemory &memory);

} // namespace headrace::cuda
