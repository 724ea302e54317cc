// SPDX-License-Identifier: Apache-2.0
//
// How ops cut a list of items (rows, panels, blocks of columns) into units: runs of items, one behind the other.
#pragma once

#include "kernels/HostKernel.h"
#include "kernels/host/VecPortable.h"

namespace headrace::kernels {

struct HostUnits {
  // Items a unit, a multiple of `granularity` (or all of them). For a team of one that is all; else what takes the
  // team's unitNs, and no less than leaves each thread some eight units: more would cost and balance no better.
  static HEADRACE_INLINE int64_t perUnit(int64_t items, int64_t itemNs, const HostTeam &team, int64_t granularity = 1) {
    if (team.threads == 1 || items <= granularity)
      return items > 1 ? items : 1;
    int64_t per = itemNs > 0 ? team.unitNs / itemNs : 0;
    if (team.unitNs > 0 && per < items / (8 * team.threads))
      per = items / (8 * team.threads);
    per = (per + granularity - 1) / granularity * granularity;
    return per > granularity ? per : granularity;
  }

  // One phase; cut[0]: items a unit.
  static HEADRACE_INLINE HostWork of(int64_t items, int64_t itemNs, const HostTeam &team, int64_t granularity = 1) {
    HostWork work;
    work.team = team;
    work.cut[0] = perUnit(items, itemNs, team, granularity);
    work.units = items > 0 ? (items + work.cut[0] - 1) / work.cut[0] : 0;
    work.ns = items * itemNs;
    return work;
  }

  struct Run {
    int64_t first, end;
  };
  // The items of a unit.
  static HEADRACE_INLINE Run run(const HostWork &work, int64_t unit, int64_t items) {
    const int64_t first = unit * work.cut[0], end = first + work.cut[0];
    return {first, end < items ? end : items};
  }
};

// Of kernels all of whose phases have the same units.
static inline int64_t sameUnits(const void *, const HostWork &work, int64_t) { return work.units; }

} // namespace headrace::kernels
