// SPDX-License-Identifier: Apache-2.0
//
// Requests for models and devices that nobody shipped.
#pragma once

#include <random>

#include "compiler/Compile.h"

namespace headrace::compiler {

// One decode bucket, or with `decode` false one of prefill, of a random model: 2 to 90 layers of 256 to 8192, grouped
// queries, heads tied or not, on a device whose link and copies' start-up are random as well. Memory is not what binds.
CompileRequest randomRequest(std::mt19937_64 &generator, bool decode);

} // namespace headrace::compiler
