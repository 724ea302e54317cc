// SPDX-License-Identifier: Apache-2.0
//
// HybridServe: weights and KV caches at home on the host, some of each sequence's blocks keep activations, on the
// device first (section 4.2.1), as many as is fastest. Whoever states a placement, a share or KV's device memory has
// them. In a search over all mechanisms: any number of layers, and of some blocks activations in place of keys and
// values.
#include <algorithm>
#include <utility>

#include "compiler/search/GeneratorInputs.h"
#include "compiler/search/Space.h"
#include "compiler/search/generators/WholeLayers.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

std::vector<Coordinates> seeds(Space &of, const Coordinates &origin) {
  std::vector<Coordinates> found;
  if (!of.free().act)
    return found;
  const int64_t all = of.request().model->layers;
  for (const int64_t parts : {16, 32, 48, 64})
    for (const int64_t layers : {int64_t{0}, all / 2, all})
      for (const bool embedding : {false, true})
        for (const auto &[slots, dirty] : {std::pair(origin.slots, false), {int64_t{1}, false}, {int64_t{1}, true}}) {
          Coordinates at = origin;
          at.actParts = parts;
          at.layers = layers;
          at.embedding |= embedding && of.free().embedding;
          if (of.free().slots && all <= kShallow && layers > 0)
            at.slots = slots;
          at.decodeDirty |= dirty && of.free().writeBack && all <= kShallow;
          if (std::find(found.begin(), found.end(), at) == found.end())
            found.push_back(at);
        }
  return found;
}

} // namespace

extern const Generator kHybridServeGenerator;
const Generator kHybridServeGenerator = {
    .name = "hybridserve",
    .summary = "HybridServe: weights and KV on the host, and activations in place of KV as far as that is faster",
    .statesPlacement = true,
    .onePlacement = true,
    .splitsCaches = true,
    .keepsActivations = true,
    .colour = 7,
    .candidates =
        [](const GeneratorInputs &in) {
          model::Policy every = in.request.policy;
          if (!every.statesPlacement())
            every.interval = 1;
          return wholeLayers(every, in.request.model, in.layout);
        },
    .seeds = seeds,
    .holds = [](const Coordinates &at) { return at.listed == 0; },
};

} // namespace headrace::compiler
