// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "runtime/cuda/RecordedGraph.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::bench {

// The graph of a plan's variant as it is recorded, checked against the rules; at addresses where nothing is.
absl::StatusOr<cuda::RecordedGraph> recordVariant(const plan::Plan &plan, uint32_t variant);

} // namespace headrace::bench
