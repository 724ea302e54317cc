// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/Cores.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace headrace::host {
namespace {

std::vector<int> affinity() {
  std::vector<int> cores;
  for (int most = CPU_SETSIZE; most <= 64 * CPU_SETSIZE; most *= 2) { // more than a plain cpu_set_t holds
    cpu_set_t *const set = CPU_ALLOC(static_cast<size_t>(most));
    if (set == nullptr)
      break;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(most));
    CPU_ZERO_S(bytes, set);
    const bool known = ::sched_getaffinity(0, bytes, set) == 0;
    for (int core = 0; known && core < most; ++core)
      if (CPU_ISSET_S(static_cast<size_t>(core), bytes, set))
        cores.push_back(core);
    CPU_FREE(set);
    if (known)
      break;
  }
  if (cores.empty())
    cores.push_back(0);
  return cores;
}

// Its first word; "" where there is no such file.
std::string word(const std::string &path) {
  std::ifstream in(path);
  std::string text;
  in >> text;
  return text;
}

// Of one group's files: quota by period; 0 where there is none.
double quotaIn(const std::string &folder) {
  std::ifstream v2(absl::StrCat(folder, "/cpu.max"));
  std::string quota = "max", period;
  if (!(v2 >> quota >> period)) {
    quota = word(absl::StrCat(folder, "/cpu.cfs_quota_us"));
    period = word(absl::StrCat(folder, "/cpu.cfs_period_us"));
  }
  double time = 0, of = 0;
  if (!absl::SimpleAtod(quota, &time) || !absl::SimpleAtod(period, &of) || !(time > 0) || !(of > 0))
    return 0; // "max", -1, nothing
  return time / of;
}

} // namespace

std::vector<int> usableCores(const CoreFiles &files) {
  std::map<std::pair<std::string, std::string>, int> seen; // by package and core: how many threads of it so far
  std::vector<std::pair<int, int>> order;                  // of which of its core's threads it is, number
  for (const int core : affinity()) {
    const std::string topology = absl::StrCat(files.system, "/devices/system/cpu/cpu", core, "/topology/");
    std::pair physical{word(topology + "physical_package_id"), word(topology + "core_id")};
    if (physical.second.empty())
      physical.second = absl::StrCat("cpu", core); // not said: a core of its own
    order.emplace_back(seen[physical]++, core);
  }
  std::sort(order.begin(), order.end());
  std::vector<int> cores;
  cores.reserve(order.size());
  for (const auto &[sibling, core] : order)
    cores.push_back(core);
  return cores;
}

int coresByQuota(const CoreFiles &files) {
  double least = 0;
  const auto take = [&](const std::string &folder) {
    if (const double cores = quotaIn(folder); cores > 0 && (least == 0 || cores < least))
      least = cores;
  };
  // "0::/a/b" (v2), "4:cpu,cpuacct:/a/b" (v1): a group and all that it is in. In a container the path may be that of
  // the host, and the group's own files stand at the root.
  std::ifstream in(absl::StrCat(files.process, "/cgroup"));
  for (std::string line; std::getline(in, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3)
      continue;
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    const bool v2 = parts[1].empty();
    if (!v2 && std::find(controllers.begin(), controllers.end(), "cpu") == controllers.end())
      continue;
    const std::string root = absl::StrCat(files.system, "/fs/cgroup", v2 ? "" : "/cpu");
    for (std::string path = parts[2]; absl::StartsWith(path, "/") && path.size() > 1;
         path = path.substr(0, path.rfind('/')))
      take(root + path);
    take(root);
  }
  return least > 0 ? std::max(1, static_cast<int>(std::min(least, 1e6))) : 0;
}

int defaultThreads(const CoreFiles &files) {
  const int cores = static_cast<int>(usableCores(files).size()), quota = coresByQuota(files);
  return quota > 0 ? std::min(cores, quota) : cores;
}

} // namespace headrace::host
