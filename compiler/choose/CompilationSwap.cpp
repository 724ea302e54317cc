// SPDX-License-Identifier: Apache-2.0
//
// Of Compilation, Pie: caches that the device does not hold are swapped layer by layer, first in, first out.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/choose/Compilation.h"
#include "compiler/choose/Explain.h"
#include "compiler/choose/ExplainSwap.h"
#include "compiler/choose/SwapCaches.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

constexpr int64_t kMemoryParts = 256; // of the memory for KV, where less of it is looked for

} // namespace

absl::StatusOr<Draft> Compilation::swapCaches() {
  const uint64_t place = placeBytes(target_, target_.kvBlocks);
  const std::optional<uint64_t> memory = placesMemory(inputs_);
  if (request_.goal.expansion == model::kAutoExpansion && request_.model->layers > model::kLeastKvPlaces)
    return swapByExpansion();
  if (memory && *memory / place >= static_cast<uint64_t>(request_.model->layers) && !request_.policy.kvPlaces)
    return choose(); // all of it may be there
  if (memory && *memory / place < 2)
    return absl::InvalidArgumentError(
        absl::StrCat("goal.kv_device_memory = ", *memory, ": expected at least ",
                     std::min<uint64_t>(model::kLeastKvPlaces, static_cast<uint64_t>(request_.model->layers)) * place,
                     " bytes, ", request_.model->layers == 1 ? "the layer's cache" : "two places of a layer's cache",
                     ", or 0 for no more than these: policy ", std::string(policy_.name), " swaps layers whole"));
  if (memory && request_.policy.kvPlaces && *memory / place < static_cast<uint64_t>(*request_.policy.kvPlaces))
    return absl::InvalidArgumentError(
        absl::StrCat("policy.kv_places = ", *request_.policy.kvPlaces, ": expected at most ", *memory / place,
                     ", what a kv_device_memory of ", *memory, " bytes holds of places of ", place));
  if (request_.model->layers <= model::kLeastKvPlaces)
    return choose(); // no fewer places than layers
  const std::vector<Candidate> all = candidatesOf(policy_, inputs_);
  if (!memory && !request_.policy.kvPlaces) { // all of it beside as many weights as there may be
    split_ = all;
    std::erase_if(*split_, [least = all.front().residency.weightsAway()](const Candidate &candidate) {
      return candidate.residency.weightsAway() != least;
    });
    absl::StatusOr<Draft> plan = choose();
    if (!lacksDeviceMemory(plan.status()))
      return plan;
  }
  swap_ = swapTimes(inputs_, iterations_.pricedSteps(), prices_, target_.kvBlocks);
  SwappedCaches swapped = swappedCaches(inputs_, all, swap_->visits());
  // Where none fits, what takes the least says what would do.
  split_ = swapped.candidates.empty() ? std::move(swapped.least) : std::move(swapped.candidates);
  latency_.reset();
  nested_ = false;
  return choose();
}

// One placement for each of several expansions, all with the same bytes of the device for KV.
absl::StatusOr<Draft> Compilation::swapByExpansion() {
  const std::vector<Candidate> all = candidatesOf(policy_, inputs_);
  const std::vector<PricedStep> steps = iterations_.pricedSteps();
  const auto visitsOf = [&](int64_t blocks) { return swapTimes(inputs_, steps, prices_, blocks).visits(); };
  const int64_t layers = request_.model->layers;
  std::optional<uint64_t> memory = placesMemory(inputs_);
  if (!memory) { // as many places of all the KV there may be as fit beside as many weights as there may be
    const SwappedCaches most = swappedCaches(inputs_, all, visitsOf(target_.kvBlocks));
    memory = static_cast<uint64_t>(std::max<int64_t>(2, most.most)) * placeBytes(target_, target_.kvBlocks);
  }
  absl::Status refused = absl::ResourceExhaustedError("");
  for (const Candidate &weights : all) {
    if (weights.residency.start != algorithms::kEager)
      continue;
    const auto swapsIn = [&](int64_t parts) {
      return swapsByExpansion(inputs_, weights, *memory / kMemoryParts * static_cast<uint64_t>(parts), visitsOf);
    };
    const auto fit = [&](const std::vector<Candidate> &swaps) {
      return swaps.size() >= 2 && std::all_of(swaps.begin(), swaps.end(), [&](const Candidate &candidate) {
               return family_.fits(candidate, target_.deviceMemory);
             });
    };
    together_ = swapsIn(kMemoryParts);
    if (together_.size() < 2)
      return absl::InvalidArgumentError(
          absl::StrCat("goal.kv_device_memory = ", *memory, ": expected at least ",
                       placeBytes(target_, target_.meta.maxBlocksPerSequence + 1) * static_cast<uint64_t>(layers),
                       " bytes where policy ", std::string(policy_.name), " finds the expansion: ", layers,
                       " layers' caches of one sequence of context ", target_.context));
    if (!fit(together_)) { // as much of the memory as leaves room for each of them
      int64_t fits = 0, doesNot = kMemoryParts;
      while (doesNot - fits > 1) {
        const int64_t middle = fits + (doesNot - fits) / 2;
        (fit(swapsIn(middle)) ? fits : doesNot) = middle;
      }
      if (fits > 0)
        together_ = swapsIn(fits);
    }
    latency_.reset();
    absl::StatusOr<Draft> plan = choose();
    if (plan.ok()) {
      absl::StrAppend(&plan->reason, ". ", explainExpansions(together_, layers));
      return plan;
    }
    if (!lacksDeviceMemory(plan.status()))
      return plan;
    refused = plan.status(); // with more weights away
  }
  return refused;
}

} // namespace headrace::compiler
