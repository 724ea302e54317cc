// SPDX-License-Identifier: Apache-2.0
//
// What the pass of that name does, for who looks at an iteration before the pipeline runs.
#pragma once

#include "ir/Headrace.h"

namespace headrace::passes {

// The residual stream of each mini-batch leaves the device between layers: its home is declared on the host, embedding
// and the gathering of the head's rows stand beside the first and the last layer of their mini-batch. Fails, with a
// diagnostic, on an iteration that does not go from an embedding through layers 0, 1, ...
mlir::LogicalResult spillResiduals(ir::IterationOp iteration);

} // namespace headrace::passes
