// SPDX-License-Identifier: Apache-2.0
//
// Pie: KV caches on both sides, a layer's swapped whole, first in, first out (passes/algorithms/ScheduleKvSwap.h).
// Weights as stated, or the fewest layers away with which it fits.
#include "compiler/search/GeneratorInputs.h"
#include "compiler/search/generators/WholeLayers.h"

namespace headrace::compiler {

extern const Generator kPieGenerator;
const Generator kPieGenerator = {
    .name = "pie",
    .summary = "Pie: where KV caches do not fit, layers' caches are swapped whole, first in, first out",
    .statesPlacement = true,
    .onePlacement = true,
    .splitsCaches = true,
    .swapsLayers = true,
    .colour = 8,
    .candidates = [](const GeneratorInputs &in) { return wholeLayers(in.request.policy, in.request.model, in.layout); },
};

} // namespace headrace::compiler
