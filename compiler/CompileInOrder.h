// SPDX-License-Identifier: Apache-2.0
//
// A request by a policy that has an order of its own (Generator::order First or MostFreed), whose placements are not
// stated.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/choice/CompileRequest.h"
#include "compiler/evaluate/Draft.h"
#include "compiler/search/Generator.h"

namespace headrace::compiler {

absl::StatusOr<Draft> compileInOrder(const CompileRequest &request, const Generator &policy);

} // namespace headrace::compiler
