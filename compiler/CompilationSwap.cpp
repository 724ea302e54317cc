// SPDX-License-Identifier: Apache-2.0
//
// Of Compilation, Pie: caches that the device does not hold are swapped layer by layer, first in, first out.
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/Compilation.h"
#include "compiler/choose/ExplainSwap.h"
#include "compiler/choose/SwapCaches.h"
#include "compiler/lower/Explain.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {

absl::StatusOr<plan::Plan> Compilation::swapCaches() {
  const uint64_t place = placeBytes(target_);
  const std::optional<uint64_t> memory = placesMemory(inputs_);
  if (memory && *memory / place >= static_cast<uint64_t>(request_.model->layers) && !request_.policy.kvPlaces)
    return choose(); // all of it may be there
  if (memory && *memory / place < 2)
    return absl::InvalidArgumentError(
        absl::StrCat("goal.kv_device_memory = ", *memory, ": expected at least two places of a layer's cache, ",
                     2 * place, " bytes: policy ", std::string(policy_.name), " swaps layers whole"));
  if (memory && request_.policy.kvPlaces && *memory / place < static_cast<uint64_t>(*request_.policy.kvPlaces))
    return absl::InvalidArgumentError(
        absl::StrCat("policy.kv_places = ", *request_.policy.kvPlaces, ": expected at most ", *memory / place,
                     ", what a kv_device_memory of ", *memory, " bytes holds of places of ", place));
  if (request_.model->layers <= model::kLeastKvPlaces)
    return choose(); // no fewer places than layers
  const std::vector<Candidate> all = policy_.candidates(inputs_);
  if (!memory && !request_.policy.kvPlaces) { // all of it beside as many weights as there may be
    split_ = all;
    std::erase_if(*split_, [least = all.front().residency.weightsAway()](const Candidate &candidate) {
      return candidate.residency.weightsAway() != least;
    });
    absl::StatusOr<plan::Plan> plan = choose();
    if (!lacksDeviceMemory(plan.status()))
      return plan;
  }
  swap_ = swapTimes(inputs_, candidates_.pricedSteps(), prices_);
  SwappedCaches swapped = swappedCaches(inputs_, all, swap_->visits());
  if (swapped.candidates.empty() && swapped.most > 0)
    return absl::InvalidArgumentError(explainNoCycle(*request_.model, swapped.most));
  packsAll_ = swapped.candidates.empty(); // packing may take less than arithmetic says; else it says what would do
  split_ = packsAll_ ? std::move(swapped.least) : std::move(swapped.candidates);
  latency_.reset();
  nested_ = false;
  return choose();
}

} // namespace headrace::compiler
