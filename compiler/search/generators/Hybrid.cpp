// SPDX-License-Identifier: Apache-2.0
//
// HybridServe's: all layers of weights on the host, and of some blocks activations in place of keys and values.
#include "compiler/search/Generator.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

std::vector<Coordinates> seeds(Space &of) {
  std::vector<Coordinates> found;
  if (!of.free().act)
    return found;
  for (const int64_t parts : {4, 8, 12, 16})
    for (const int64_t layers : {int64_t{0}, of.request().model->layers}) {
      Coordinates at = of.origin();
      at.actParts = parts;
      at.layers = layers;
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
