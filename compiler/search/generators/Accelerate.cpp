// SPDX-License-Identifier: Apache-2.0
//
// Hugging Face Accelerate with device_map="auto" (its guide "Big model inference"): the device is filled with modules
// in the order of the model, what no longer fits stays on the host, and hooks copy a layer right before its forward and
// drop it behind. So what is away is the end of the model, its head first; every copy is waited for; and one layer's
// worth of the device is kept free for them.
//
//   4 layers, room for two and a slot     layer 0 | layer 1 | copy 2, layer 2 | copy 3, layer 3 | copy head, head
//
// A tied head is the table of the embedding, which comes first and stays.
#include "absl/strings/str_cat.h"
#include "compiler/search/GeneratorInputs.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

std::vector<Candidate> candidates(const GeneratorInputs &in) {
  const model::ModelSpec &spec = in.request.model;
  const model::WeightLayout &layout = in.layout;
  std::vector<Candidate> found(1);
  found[0].name = "none";
  std::vector<int32_t> units;
  const auto add = [&](std::string name) {
    Candidate candidate;
    candidate.name = std::move(name);
    candidate.residency.setWeightsAway(units);
    candidate.residency.start = algorithms::ahead(0);
    candidate.residency.weights().setSlots(1);
    found.push_back(std::move(candidate));
  };
  if (spec.hasHead() && !spec.tiedEmbeddings) {
    units.push_back(layout.headUnit());
    add("the head");
  }
  for (int64_t layer = spec.layers - 1; layer >= 0; --layer) {
    const std::vector<int32_t> more = unitsOfLayers(layout, {layer});
    units.insert(units.end(), more.begin(), more.end());
    add(absl::StrCat("from layer ", layer));
  }
  return found;
}

} // namespace

extern const Generator kAccelerateGenerator;
const Generator kAccelerateGenerator = {
    .name = "accelerate",
    .summary = "the last layers that do not fit offloaded, each copied when it is needed (Accelerate's device_map)",
    .startsItemByItem = true,
    .colour = 11,
    .candidates = candidates,
};

} // namespace headrace::compiler
