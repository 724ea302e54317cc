// SPDX-License-Identifier: Apache-2.0
//
// The host's kernels, for who runs them without knowing their arguments. A kernel is not one function but units of
// work, so that a team of threads may share it:
//
//   work    how the op is cut for a team, from its arguments and what the meta buffer says now
//   units   how many units a phase has
//   run     one unit of a phase
//
//   phase 0   | unit | unit | unit |   in any order, by any threads, at the same time
//   phase 1   | unit | unit |          once all of phase 0 have ended
//
// An op's results are the same bits however it is cut and whoever runs it: no sum is cut.
#pragma once

#include <cstdint>

#include "kernels/Types.h"

namespace headrace::kernels {

// Who runs it.
struct HostTeam {
  int threads = 1;
  // What a unit should take at least, and a phase be worth; 0: as many units as there can be, for tests.
  int64_t unitNs = 2000;
  // Memory in which units leave what later phases read, hostTeamBytes() or less; with less, ops are cut less finely.
  float *shared = nullptr;
  uint64_t sharedBytes = 0;
};

// How an op is cut.
struct HostWork {
  int64_t phases = 1;
  int64_t units = 0;   // of each phase, unless the kernel says otherwise
  int64_t ns = 0;      // about what one thread takes for all of it; 0: not looked at, for a team of one
  HostTeam team;       // for whom
  int64_t cut[4] = {}; // the op's own
};

struct HostKernel {
  // args points to the op's struct (Kernels.h).
  HostWork (*work)(const void *args, const HostTeam &team) = nullptr;
  int64_t (*units)(const void *args, const HostWork &work, int64_t phase) = nullptr;
  // scratch: as many bytes as the op's workspace, aligned as it is, of the thread's own while it runs the unit; null:
  // the workspace that args names, which one of the threads may take.
  void (*run)(const void *args, const HostWork &work, int64_t phase, int64_t unit, float *scratch) = nullptr;

  // All of it on the calling thread.
  void operator()(const void *args) const;
};
// Of an op that there is not: one without functions.
HostKernel hostKernel(Op op);

// What a team shares for a model's ops.
uint64_t hostTeamBytes(int64_t heads, int64_t kvHeads, int64_t headDim);

// A kernel of one unit that calls kFunction(args).
template <auto kFunction> constexpr HostKernel wholeKernel() {
  return {[](const void *, const HostTeam &team) {
            HostWork work;
            work.units = 1, work.team = team;
            return work;
          },
          [](const void *, const HostWork &work, int64_t) { return work.units; },
          [](const void *args, const HostWork &, int64_t, int64_t, float *) { kFunction(args); }};
}

} // namespace headrace::kernels
