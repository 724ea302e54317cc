// SPDX-License-Identifier: Apache-2.0
//
// Which batch, up to the goal's, makes the most tokens a second, each by the choice with the least time there:
//
//   nothing of lengths stated    a token a sequence in the mean iteration of the aim: batch / aim
//   lengths stated               the outputs of a full batch of such requests in the time that it takes, prompts
//                                included: batch x output / aim
//
// Tried are halves of the most, and some between them (search/Batches.h).
#pragma once

#include "absl/status/statusor.h"
#include "compiler/choice/CompileRequest.h"
#include "compiler/evaluate/Draft.h"
#include "compiler/search/Generator.h"

namespace headrace::compiler {

// A request that prefers throughput, as a search has it (traits.searches) without the batch: the draft is that of the
// best batch with the least latency, its reason ends with the batches that were tried. A refusal is the smallest
// batch's.
absl::StatusOr<Draft> compileMostTokens(const CompileRequest &request, const Generator &policy);

} // namespace headrace::compiler
