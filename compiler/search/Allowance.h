// SPDX-License-Identifier: Apache-2.0
//
// What --allow-quantized would bring where it is not given, by one more choice that is played: the one that was found,
// with what most bytes of cross the link packed in the fewest bits, and as few layers away as memory then holds.
#pragma once

#include <string>

#include "compiler/search/Space.h"

namespace headrace::compiler {

// "packed weights would take 24.000 ms an iteration instead of 506.000 ms: --allow-quantized weights"; an iteration of
// decode at the longest context that `best` was played at. Empty where it would not be a twentieth shorter, nothing
// that may be packed moves, or it is allowed or ruled out. `inOrder`: as of the space's.
std::string allowanceWouldBring(Space &space, const Scored &best, const cost::CostModel &costs,
                                const Generator *inOrder = nullptr);

} // namespace headrace::compiler
