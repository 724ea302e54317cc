// SPDX-License-Identifier: Apache-2.0
//
// vLLM's prefetch offloader (its PrefetchOffloadConfig, v0.17): of every G layers the last K are offloaded
// (offload_group_size, offload_num_in_group), and behind an offloaded layer the copy of the one S further on, around
// the end of the iteration, is started (offload_prefetch_step) into one of S static buffers.
//
//   4 layers, G = 2, K = 1, S = 1    layer 0 | layer 1 | layer 2 | layer 3 |
//                                    1 is there        : copy 3            : copy 1 for the next
//
// The copies behind the last layer end before the iteration does (join_after_forward; a CUDA graph ends with its
// streams joined). Layer n has buffer n mod S there, which two neighbours share around the end where S does not divide
// the number of offloaded layers: such settings are left out. Embedding and head stay.
//
// One setting serves all iterations; the grid is G to 16 with every K and beyond with K = 1, S to 4: of its settings
// the best is taken, so that the baseline is as good as a user could tune it.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/search/GeneratorInputs.h"
#include "compiler/search/generators/WholeLayers.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

constexpr int64_t kLargestGroup = 16; // with more than one layer of it offloaded
constexpr int32_t kMostSteps = 4;

std::vector<Candidate> candidates(const GeneratorInputs &in) {
  const int64_t layers = in.request.model->layers;
  std::vector<Candidate> found(1);
  found[0].name = "none";
  for (int64_t group = layers; group >= 1; --group)
    for (int64_t inGroup = 1; inGroup <= (group <= kLargestGroup ? group : 1); ++inGroup) {
      std::vector<int64_t> away;
      for (int64_t layer = 0; layer < layers; ++layer)
        if (layer % group >= group - inGroup)
          away.push_back(layer);
      for (int32_t step = 1; step <= kMostSteps; ++step) {
        if (away.empty() || away.size() % static_cast<size_t>(step) != 0)
          continue;
        Candidate candidate;
        candidate.name = absl::StrCat("group ", group, ", ", inGroup, " of each, step ", step);
        candidate.interval = inGroup == 1 ? static_cast<int32_t>(group) : 0;
        candidate.residency.setWeightsAway(unitsOfLayers(in.layout, away));
        candidate.residency.start = algorithms::ahead(step);
        candidate.residency.weights().setSlots(step);
        appendNew(found, {candidate});
      }
    }
  std::stable_sort(found.begin(), found.end(), [&](const Candidate &a, const Candidate &b) {
    return in.family.hostBytes(a) < in.family.hostBytes(b);
  });
  return found;
}

} // namespace

extern const Generator kVllmPrefetchGenerator;
const Generator kVllmPrefetchGenerator = {
    .name = "vllm-prefetch",
    .summary = "the best setting of vLLM's prefetch offloader: group size, layers in a group, prefetch step",
    .order = Order::MostFreed,
    .onePlacement = true,
    .startsItemByItem = true,
    .colour = 10,
    .candidates = candidates,
};

} // namespace headrace::compiler
