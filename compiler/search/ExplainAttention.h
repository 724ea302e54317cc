// SPDX-License-Identifier: Apache-2.0
//
// What a reason says of who attends for rows that decode.
#pragma once

#include <string>

#include "compiler/search/Space.h"

namespace headrace::compiler {

// Where it was left open, the best of either that was tried, and from which context on the closed form (LM-Offload's,
// cost/lm_offload) has the CPU: ". Attention that was weighed, the best of each: on the device 7678.928 ms, on the CPU
// 988.723 ms; by the closed form the CPU is faster from 640 x 31 tokens on". Where the CPU attends to one mini-batch,
// that nothing overlaps. Else empty.
std::string explainAttention(Space &space, const Scored &best);

} // namespace headrace::compiler
