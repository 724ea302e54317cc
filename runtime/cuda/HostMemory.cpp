// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/HostMemory.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Units.h"

namespace headrace::cuda {
namespace {

constexpr const char *kOwnGroups = "/proc/self/cgroup", *kGroupsRoot = "/sys/fs/cgroup";

std::string contents(const std::string &path) {
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
  const std::optional<uint64_t> left = controlGroupsLeft(contents(kOwnGroups), kGroupsRoot);
  return left ? std::min(available, *left) : available;
}

std::optional<uint64_t> lesser(std::optional<uint64_t> a, std::optional<uint64_t> b) {
  return !a ? b : !b ? a : std::min(*a, *b);
}

// "/a/b": "/a/b", "/a", "".
std::vector<std::string> upwards(std::string path) {
  std::vector<std::string> all;
  while (!path.empty() && path != "/") {
    all.push_back(path);
    path.erase(path.rfind('/'));
  }
  all.emplace_back();
  return all;
}

} // namespace

uint64_t memAvailable(const std::string &meminfo) { return valueOf(meminfo, "MemAvailable:").value_or(0) * 1024; }

std::optional<uint64_t> controlGroupLeft(const std::string &max, const std::string &current, const std::string &stat) {
  const std::optional<uint64_t> limit = valueOf(max, ""), used = valueOf(current, "");
  if (!limit || !used) // "max", or no such files
    return std::nullopt;
  // "file" has memory of tmpfs and shared memory in it, which stays.
  const uint64_t file = valueOf(stat, "total_cache ").value_or(valueOf(stat, "file ").value_or(0)),
                 shared = valueOf(stat, "total_shmem ").value_or(valueOf(stat, "shmem ").value_or(0));
  const uint64_t cache = std::min(*used, file - std::min(file, shared));
  const uint64_t held = *used - cache;
  return *limit - std::min(*limit, held);
}

namespace {

// f(limit, used, stat): the texts of each limit of each group that counts.
void eachControlGroup(const std::string &groups, const std::string &root,
                      absl::FunctionRef<void(const std::string &, const std::string &, const std::string &)> f) {
  const auto look = [&](const std::string &folder, const char *limit, const char *used) {
    const std::string base = root + folder + "/memory.";
    f(contents(base + limit), contents(base + used), contents(base + "stat"));
  };
  std::istringstream lines(groups);
  for (std::string line; std::getline(lines, line);) { // "hierarchy:controllers:/path"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos)
      continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    for (const std::string &folder : upwards(line.substr(second + 1)))
      if (controllers == ",,") { // version 2; "unified" where both are mounted
        for (const char *mount : {"", "/unified"})
          for (const char *limit : {"max", "high"})
            look(mount + folder, limit, "current");
      } else if (controllers.find(",memory,") != std::string::npos) {
        look("/memory" + folder, "limit_in_bytes", "usage_in_bytes");
      }
  }
}

} // namespace

std::optional<uint64_t> controlGroupsLeft(const std::string &groups, const std::string &root) {
  std::optional<uint64_t> left;
  eachControlGroup(groups, root, [&](const std::string &limit, const std::string &used, const std::string &stat) {
    left = lesser(left, controlGroupLeft(limit, used, stat));
  });
  return left;
}

std::optional<uint64_t> controlGroupsLimit(const std::string &groups, const std::string &root) {
  std::optional<uint64_t> least;
  eachControlGroup(groups, root, [&](const std::string &limit, const std::string &, const std::string &) {
    least = lesser(least, valueOf(limit, ""));
  });
  return least;
}

std::optional<uint64_t> controlGroupsLimit() { return controlGroupsLimit(contents(kOwnGroups), kGroupsRoot); }

uint64_t pageTableBytes(uint64_t bytes) { return bytes / 512 + (bytes % 512 != 0 ? 1 : 0); }

absl::StatusOr<HostMemory> readHostMemory(uint64_t pinned) {
  HostMemory memory;
  if (const char *stated = std::getenv(kHostMemoryVariable); stated != nullptr && *stated != '\0') {
    ASSIGN_OR_RETURN(bytes, model::parseBytes(stated, kHostMemoryVariable));
    memory.available = bytes - std::min(bytes, pinned);
  } else {
    memory.available = systemsAvailable();
  }
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    memory.memlockLimit = limit.rlim_cur;
  return memory;
}

absl::Status checkHostMemory(uint64_t bytes, const HostMemory &memory) {
  const uint64_t tables = pageTableBytes(bytes);
  if (bytes <= memory.available && tables <= memory.available - bytes)
    return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("host slab: the plan pins ", bytes,
                                                   " bytes of host memory, which take ", tables, " of page tables, ",
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
