// SPDX-License-Identifier: Apache-2.0
//
// How many tokens the KV cache holds, where the goal leaves that to the compiler (kv_tokens = "auto"): what every
// sequence may have, or where that does not fit beside the weights as much as does. So vLLM sizes it, too.
//
//   24 GB, weights of 16, 0.5 of activations; a sequence of the context 1 GB, a batch of 16    7 GB, seven of them
//   weights of 23.5                       weights leave: as many sequences, of 1, 4, 16, as decode the most tokens a
//                                         second at the longest contexts
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "compiler/choice/CompileRequest.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::compiler {

// What `compile` makes of the request with as many tokens as were found; with none stated where all fit: the plan is
// the one that a goal without kv_tokens has. Beside an expansion the cache would be as large without it, and that is
// what it has of the device.
absl::StatusOr<plan::Plan>
compileWithKvThatFits(const CompileRequest &request,
                      const std::function<absl::StatusOr<plan::Plan>(const CompileRequest &)> &compile);

} // namespace headrace::compiler
