// SPDX-License-Identifier: Apache-2.0
//
// A graph made node by node. Library calls, which make their nodes themselves, are captured into it
// (cudaStreamBeginCaptureToGraph) behind the nodes that they follow.
#pragma once

#include "absl/status/statusor.h"
#include "runtime/cuda/BuiltGraph.h"

namespace headrace::cuda {

absl::StatusOr<BuiltGraph> buildExplicitly(const BuildRequest &request);

} // namespace headrace::cuda
