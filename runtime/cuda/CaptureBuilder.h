// SPDX-License-Identifier: Apache-2.0
//
// A graph recorded from streams while they are used: compute is the origin, h2d and d2h are forked from it by an event
// and joined back by another. All are non-blocking, so that nothing else in the process disturbs the capture.
#pragma once

#include "absl/status/statusor.h"
#include "runtime/cuda/BuiltGraph.h"

namespace headrace::cuda {

absl::StatusOr<BuiltGraph> buildByCapture(const BuildRequest &request);

} // namespace headrace::cuda
