// SPDX-License-Identifier: Apache-2.0
//
// HybridServe's: all layers of weights on the host, and of some blocks activations in place of keys and values.
#include <algorithm>
#include <utility>

#include "compiler/search/Generator.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

constexpr int64_t kShallow = 8; // layers: of fewer a slot is much of what there is, and what shares memory decides

std::vector<Coordinates> seeds(Space &of) {
  std::vector<Coordinates> found;
  if (!of.free().act)
    return found;
  const int64_t all = of.request().model->layers;
  for (const int64_t parts : {4, 8, 12, 16})
    for (const int64_t layers : {int64_t{0}, all / 2, all})
      for (const bool embedding : {false, true})
        for (const auto &[slots, dirty] :
             {std::pair(of.origin().slots, false), {int64_t{1}, false}, {int64_t{1}, true}}) {
          Coordinates at = of.origin();
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

const Generator kHybridGenerator = {
    .name = "hybrid",
    .what = "activations in place of some keys and values",
    .seeds = seeds,
    .holds = [](const Coordinates &at) { return at.listed == 0; },
};

} // namespace headrace::compiler
