// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "compiler/choice/CompileRequest.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::core {

// A request of a tiny model (TinyPlan.h) with heads of 32 and caches in codes of so many bits; as it is where that is
// 0.
inline void packCaches(compiler::CompileRequest &request, int bits) {
  if (bits == 0)
    return;
  model::ModelSpec spec = request.model;
  spec.headDim *= 2, spec.heads /= 2, spec.kvHeads = std::max<int64_t>(1, spec.kvHeads / 2);
  request.model = spec;
  request.goal.kvEncoding = model::Encoding::groups(bits);
}

} // namespace headrace::core
