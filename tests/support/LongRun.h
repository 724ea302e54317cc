// SPDX-License-Identifier: Apache-2.0
//
// How many of its cases a test draws: all with HEADRACE_LONG in the environment, else a share that takes seconds.
#pragma once

#include <cstdlib>

namespace headrace {

inline bool longRun() { return std::getenv("HEADRACE_LONG") != nullptr; }

inline int casesOf(int fast, int all) { return longRun() ? all : fast; }

} // namespace headrace
