// SPDX-License-Identifier: Apache-2.0
//
// What --allow-quantized would bring where it is not given, by one more choice that is played: the one that was found,
// with what most bytes of cross the link packed in the fewest bits, and as few layers away as memory then holds. And
// what the CPU would that attends, likewise.
#pragma once

#include <string>

#include "compiler/search/Space.h"

namespace headrace::compiler {

// "packed weights would take 24.000 ms an iteration instead of 506.000 ms: --allow-quantized weights"; an iteration of
// decode at the longest context that `best` was played at. Empty where that or the aim would not be a twentieth less,
// nothing that may be packed moves, or it is allowed or ruled out. `inOrder`: as of the space's.
std::string allowanceWouldBring(Space &space, const Scored &best, const cost::CostModel &costs,
                                const Generator *inOrder = nullptr);
// "attention on the CPU would take 1.009 s an iteration instead of 7.679 s: --attention auto"; empty likewise. `open`:
// the space's request with who attends left open.
std::string attentionWouldBring(Space &space, const Scored &best, const CompileRequest &open,
                                const cost::CostModel &costs);

} // namespace headrace::compiler
