// SPDX-License-Identifier: Apache-2.0
//
// What a request makes use of, by itself or by its policy, for the table of what may not stand side by side.
#pragma once

#include <vector>

#include "compiler/choice/CompileRequest.h"
#include "compiler/search/Generator.h"
#include "runtime/job/Capabilities.h"

namespace headrace::compiler {

// Each said as it was: by a key of the goal or the policy, or by the policy's name.
std::vector<model::MechanismInUse> mechanismsInUse(const CompileRequest &request, const Generator &policy);

} // namespace headrace::compiler
