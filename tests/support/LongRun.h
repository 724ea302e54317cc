// SPDX-License-Identifier: Apache-2.0
//
// How many of its cases a test draws: all with HEADRACE_LONG in the environment; else a share that takes seconds, and
// under sanitizers, where each takes several times as long, a fifth of that.
#pragma once

#include <algorithm>
#include <cstdlib>

namespace headrace {

inline bool longRun() { return std::getenv("HEADRACE_LONG") != nullptr; }

inline int casesOf(int fast, int all) {
  if (longRun())
    return all;
#ifdef HEADRACE_SANITIZED
  return std::max(fast / 5, 1);
#else
  return fast;
#endif
}

} // namespace headrace
