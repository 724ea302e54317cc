// SPDX-License-Identifier: Apache-2.0
//
// Encodings that a request allows, and a request as it is once encodings and who attends are chosen.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "compiler/choice/Choice.h"
#include "compiler/choice/CompileRequest.h"
#include "compiler/choice/Encodings.h"

namespace headrace::compiler {

// As it is, which is first and says nothing, then in fewer and fewer bits, as far as the model's sizes have such.
std::vector<model::WeightEncodings> allowedWeights(const CompileRequest &request);
std::vector<std::optional<model::Encoding>> allowedKv(const CompileRequest &request);

// With the choice's encodings as its model's and its goal's, caches wholly on the host where the CPU attends, and
// nothing of either left to be found: what is laid out, priced and planned.
CompileRequest asChosen(const CompileRequest &request, const Choice &choice);

// InvalidArgument where what is allowed is stated as well, nothing can be packed, or prices are of one encoding.
absl::Status checkAllowed(const CompileRequest &request);

} // namespace headrace::compiler
