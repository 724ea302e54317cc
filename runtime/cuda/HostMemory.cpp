// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/HostMemory.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Units.h"

namespace headrace::cuda {
namespace {

std::string contents(const char *path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The number after `key` at the start of a line.
std::optional<uint64_t> valueOf(const std::string &text, const std::string &key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.rfind(key, 0) == 0) {
      const char *digits = line.c_str() + key.size();
      char *end = nullptr;
      const uint64_t value = std::strtoull(digits, &end, 10);
      if (end != digits)
        return value;
    }
  return std::nullopt;
}

uint64_t systemsAvailable() {
  const uint64_t available = memAvailable(contents("/proc/meminfo"));
  const std::optional<uint64_t> left =
      controlGroupLeft(contents("/sys/fs/cgroup/memory.max"), contents("/sys/fs/cgroup/memory.current"),
                       contents("/sys/fs/cgroup/memory.stat"));
  return left ? std::min(available, *left) : available;
}

} // namespace

uint64_t memAvailable(const std::string &meminfo) { return valueOf(meminfo, "MemAvailable:").value_or(0) * 1024; }

std::optional<uint64_t> controlGroupLeft(const std::string &max, const std::string &current, const std::string &stat) {
  const std::optional<uint64_t> limit = valueOf(max, ""), used = valueOf(current, "");
  if (!limit || !used) // "max", or no such files
    return std::nullopt;
  const uint64_t cache = std::min(*used, valueOf(stat, "file ").value_or(0));
  const uint64_t held = *used - cache;
  return *limit - std::min(*limit, held);
}

absl::StatusOr<HostMemory> readHostMemory() {
  HostMemory memory;
  if (const char *stated = std::getenv(kHostMemoryVariable); stated != nullptr && *stated != '\0') {
    ASSIGN_OR_RETURN(bytes, model::parseBytes(stated, kHostMemoryVariable));
    memory.available = bytes;
  } else {
    memory.available = systemsAvailable();
  }
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    memory.memlockLimit = limit.rlim_cur;
  return memory;
}

absl::Status checkHostMemory(uint64_t bytes, const HostMemory &memory) {
  if (bytes <= memory.available)
    return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("host slab: the plan pins ", bytes, " bytes of host memory, ",
                                                   memory.available,
                                                   " are available: free some, compile the plan for more device "
                                                   "memory, or where memory grows as it is used say in ",
                                                   kHostMemoryVariable, " how much there can be"));
}

std::string pinningRefused(uint64_t bytes, const HostMemory &memory) {
  return absl::StrCat("pinning ", bytes, " bytes of host memory was refused (",
                      memory.memlockLimit ? absl::StrCat("RLIMIT_MEMLOCK is ", *memory.memlockLimit, " bytes")
                                          : "RLIMIT_MEMLOCK is unlimited",
                      ", ", memory.available,
                      " bytes are available): raise `ulimit -l`, or use a plan that keeps less "
                      "in host memory");
}

} // namespace headrace::cuda
