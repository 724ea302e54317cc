// SPDX-License-Identifier: Apache-2.0
//
// How many threads this process is given cores for, and which cores these are.
#pragma once

#include <string>
#include <vector>

namespace headrace::host {

// Where the system says so; a test's own files.
struct CoreFiles {
  std::string system = "/sys", process = "/proc/self";
};

// The cores that the calling thread may run on, physical ones first: one of each before the second of any that share
// one (hyper-threads), each in ascending order. At least one; {0} where the system does not say.
std::vector<int> usableCores(const CoreFiles &files = {});

// As many cores as cgroups let this process have the time of (cpu.max, cpu.cfs_quota_us: the least of the groups that
// it is in), rounded down, at least 1; 0: no limit.
int coresByQuota(const CoreFiles &files = {});

// Threads where nobody says how many: all usable cores, as far as the quota goes.
int defaultThreads(const CoreFiles &files = {});

} // namespace headrace::host
