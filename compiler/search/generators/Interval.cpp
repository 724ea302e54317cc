// SPDX-License-Identifier: Apache-2.0
//
// Whole layers, evenly spread: the first number of them that fits. In a search over all mechanisms (Select-N's
// intervals are among them) of a deep model some counts, which differ little from those between; of a shallow one all,
// in fewer slots and with the head as well, which are much of what there is.
#include <algorithm>

#include "compiler/search/GeneratorInputs.h"
#include "compiler/search/Space.h"
#include "compiler/search/generators/WholeLayers.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

std::vector<Candidate> candidates(const GeneratorInputs &in) {
  return wholeLayers(in.request.policy, in.request.model, in.layout);
}

constexpr int64_t kCounts = 16;
constexpr int64_t kMostTimes = 16;

std::vector<Coordinates> seeds(Space &of, const Coordinates &origin) {
  std::vector<Coordinates> found;
  if (!of.free().layers)
    return found;
  const int64_t layers = of.request().model->layers;
  const int64_t step = std::max<int64_t>(1, layers / kCounts);
  for (int64_t count = 0;; count = std::min(layers, count + step)) {
    Coordinates at = origin;
    at.layers = count;
    at.embedding |= of.free().embedding && count > 0;
    at.head |= of.free().head && count == layers;
    found.push_back(at);
    for (const int64_t slots : {at.slots, int64_t{1}})
      for (const bool head : {at.head, of.free().head})
        if (layers <= kShallow && (of.free().slots || slots == at.slots) && (slots != at.slots || head != at.head)) {
          found.push_back(at);
          found.back().slots = slots;
          found.back().head = head;
        }
    if (count < layers)
      continue;
    // With all of them away, chunks so many times as large, which bring them less often. What else weights could leave
    // stays: each iteration would bring the head and a tied embedding.
    for (size_t i = 0, n = found.size(); i < n && of.free().chunk; ++i)
      if (Coordinates whole = found[i]; whole.layers == layers) {
        whole.embedding = origin.embedding;
        whole.head = origin.head;
        for (int64_t times = 2; times <= kMostTimes; times *= 2) {
          whole.chunk = times * kLargestChunk;
          found.push_back(whole);
        }
      }
    return found;
  }
}

} // namespace

extern const Generator kIntervalGenerator;
const Generator kIntervalGenerator = {
    .name = "interval",
    .summary = "the least offloading that fits the memory, or what interval or offload_layers state",
    .statesPlacement = true,
    .allowsForSlowest = true,
    .splitsCaches = true,
    .seeksChunk = true,
    .flagsReachIt = true,
    .colour = 5,
    .candidates = candidates,
    .seeds = seeds,
    .holds = [](const Coordinates &at) { return at.listed == 0 && at.actParts == 0; },
};

} // namespace headrace::compiler
