// SPDX-License-Identifier: Apache-2.0
//
// What a plan says of caches that are swapped layer by layer (Pie).
#pragma once

#include <string>
#include <vector>

#include "compiler/choose/SwapCaches.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {

// "Caches of 10 of 40 layers are away at a time, ..."; `placeBytes`: of a place. Empty where nothing is swapped.
std::string explainSwap(const model::ModelSpec &model, const algorithms::Residency &residency, const SwapTimes &times,
                        uint64_t placeBytes);
// "Expansion is found while the plan runs, among 1.00 (all on the device, 100 blocks a layer), 1.33 (30 places, 133)".
std::string explainExpansions(const std::vector<Candidate> &swaps, int64_t layers);

} // namespace headrace::compiler
