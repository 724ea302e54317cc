// SPDX-License-Identifier: Apache-2.0
//
// Select-N, sections 4.3 and 4.4: nothing, then every interval from the number of layers down to 1.
#include "compiler/search/GeneratorInputs.h"
#include "compiler/search/generators/Generators.h"
#include "compiler/search/generators/WholeLayers.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

std::vector<Candidate> candidates(const GeneratorInputs &in) {
  const model::Policy &asked = in.request.policy;
  model::Policy none = asked;
  if (asked.offloadEmbedding == model::AutoOnOff::On || asked.offloadHead == model::AutoOnOff::On)
    none.offloadLayers = 0;
  else
    none.none = true;
  for (model::AutoOnOff *choice : {&none.offloadEmbedding, &none.offloadHead})
    if (*choice == model::AutoOnOff::Auto)
      *choice = model::AutoOnOff::Off;
  none.startRule = model::StartRule::Paper;
  std::vector<Candidate> found = wholeLayers(none, in.request.model, in.layout);
  for (int64_t interval = in.request.model->layers; interval >= 1; --interval)
    appendNew(found, paperIntervals(asked, interval, in.request.model, in.layout));
  return found;
}

} // namespace

const Generator kSelectNGenerator = {
    .name = "select-n",
    .summary = "Select-N's intervals under the paper's start rule",
    .order = Order::MostFreed,
    .allowsForSlowest = true,
    .countsGaps = true,
    .startsItemByItem = true,
    .flagsReachIt = true,
    .printsFormula = true,
    .colour = 3,
    .candidates = candidates,
};

} // namespace headrace::compiler
