// SPDX-License-Identifier: Apache-2.0
//
// What every benchmark of the host device asks of the machine, and the flags for it.
#pragma once

#include <sched.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "runtime/host/HostDevice.h"
#include "runtime/threads/LowLatency.h"

namespace headrace::bench {

// The first two cores this process may use; the same one twice if there is only one.
inline void pinToFirstCores(host::HostOptions &options) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0)
    return;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) {
      if (options.computeCore >= 0) {
        options.transferCore = core;
        return;
      }
      options.computeCore = options.transferCore = core;
    }
}

// Low latency for the lanes and the calling thread, also between two devices: until what it returns is gone. Where the
// system does not grant it, it is said, and nothing changes.
inline threads::AwakeCores askLowLatency(const char *program, host::HostOptions &options) {
  absl::StatusOr<threads::AwakeCores> awake = threads::AwakeCores::hold();
  const absl::Status status = awake.ok() ? threads::makeThreadUrgent() : awake.status();
  options.lowLatency = status.ok();
  if (!status.ok())
    std::fprintf(stderr, "%s: %s: goes on without\n", program, std::string(status.message()).c_str());
  return status.ok() ? *std::move(awake) : threads::AwakeCores();
}

// --compute-core N, --transfer-core N. False for another flag.
inline bool takeLaneFlag(std::string_view flag, const char *value, host::HostOptions &options) {
  if (flag == "--compute-core")
    options.computeCore = std::atoi(value);
  else if (flag == "--transfer-core")
    options.transferCore = std::atoi(value);
  else
    return false;
  return true;
}

} // namespace headrace::bench
