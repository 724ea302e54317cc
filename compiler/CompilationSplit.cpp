// SPDX-License-Identifier: Apache-2.0
//
// Of Compilation, caches that the device does not hold: how many blocks stay, in how many slots the others take turns,
// and what would do where nothing does.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/Compilation.h"
#include "compiler/lower/Explain.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

constexpr int64_t kMostKvSlots = 8; // that are tried
constexpr int kFillings = 3;
constexpr uint64_t kWorthFilling = 256; // from one part of so many of the device's memory on
constexpr int64_t kMostCompared = 32;   // placements, of those that an objective may choose from

// The largest decode bucket of the first placement, whatever is in use of KV.
const plan::Variant &largestDecode(const plan::Plan &plan) {
  const plan::Variant *largest = &plan.variants.front();
  for (const plan::Variant &variant : plan.variants) {
    const plan::Schedule &schedule = plan.schedules[variant.schedule];
    if (variant.placement == 0 && schedule.kvBlocks == 0 && schedule.iterationClass == plan::IterationClass::Decode)
      largest = &variant;
  }
  return *largest;
}
uint64_t decodeNs(const plan::Plan &plan) { return largestDecode(plan).predictedNs; }

// Where an iteration takes a hundredth more than its compute and its copies.
bool waitsForSlots(const plan::Plan &plan) {
  const plan::Variant &decode = largestDecode(plan);
  const uint64_t bound = std::max(decode.computeAloneNs, decode.linkAloneNs);
  return decode.predictedNs > bound + bound / 100;
}

} // namespace

absl::StatusOr<plan::Plan> Compilation::run() {
  if (target_.kvResident)
    return withSlots([this] {
      packsAll_ = false;
      split_ = caches_.stated(policy_.candidates(inputs_), *target_.kvResident);
      const std::vector<Candidate> stated = *split_;
      absl::StatusOr<plan::Plan> plan = choose();
      if (lacksDeviceMemory(plan.status()))
        plan = packAll(plan.status());
      return lacksDeviceMemory(plan.status()) ? leastOf(stated, plan.status()) : std::move(plan);
    });
  absl::StatusOr<plan::Plan> plan = choose();
  if (plan.ok() && request_.policy.kvPlaces)
    return absl::InvalidArgumentError(absl::StrCat(
        "policy.kv_places = ", *request_.policy.kvPlaces, ": expected fewer KV blocks on the device than there are (",
        target_.kvBlocks, " a layer): all of them fit, and nothing rotates; goal.kv_device_memory states how many stay"));
  if (!lacksDeviceMemory(plan.status()) || !policy_.traits.splitsCaches || request_.goal.kvDeviceMemory)
    return plan;
  if (maySplit())
    return withSlots([this, whole = plan.status()] { return splitCaches(whole); });
  return absl::ResourceExhaustedError(
      absl::StrCat(plan.status().message(), ", KV blocks at home on the host (kv_device_memory)"));
}

// Where the head takes longer than the copies that two slots can take ahead, the link is idle at an iteration's edge:
// some percent on a shallow model with a large vocabulary. One more slot costs the memory of a layer's tail.
template <class Make> absl::StatusOr<plan::Plan> Compilation::withSlots(Make &&make) {
  caches_.setSlots(0);
  absl::StatusOr<plan::Plan> plan = make();
  for (int64_t slots = algorithms::kKvSlots + 1; slots <= kMostKvSlots && !request_.policy.kvPlaces; ++slots) {
    // An objective that was missed may be met with more.
    const bool missed = absl::IsResourceExhausted(plan.status()) && latency_ && !lacksDeviceMemory(plan.status());
    if (plan.ok() ? !waitsForSlots(*plan) : !missed)
      break;
    caches_.setSlots(slots);
    absl::StatusOr<plan::Plan> more = make();
    if (missed && !more.ok())
      continue;
    if (!more.ok() || (plan.ok() && decodeNs(*more) >= decodeNs(*plan)))
      break;
    plan = std::move(more);
  }
  return plan;
}

// What is stated stays as it is.
bool Compilation::maySplit() const {
  return policy_.traits.splitsCaches && !request_.goal.kvDeviceMemory && request_.placements.empty() &&
         !request_.policy.statesPlacement() && target_.kvBlocks > 1;
}

absl::StatusOr<plan::Plan> Compilation::splitCaches(const absl::Status &whole) {
  const std::vector<Candidate> all = policy_.candidates(inputs_);
  // Where objectives decide it may be another than the first that meets them.
  const auto most =
      static_cast<size_t>(request_.policy.placements.value_or(policy_.traits.byObjective ? kMostCompared : 1));
  // Packing may take a little more than arithmetic says, homes that several placements share more than that.
  packsAll_ = false;
  for (const int64_t lessIn256ths : {0, 1, 16, 64, 128}) {
    split_ = caches_.filled(all, most, lessIn256ths);
    if (split_->empty())
      continue;
    latency_.reset();
    nested_ = false;
    absl::StatusOr<plan::Plan> plan = choose();
    if (plan.ok()) {
      plan = filledUp(*std::move(plan));
      absl::StrAppend(&plan->reason, ". ", explainSplit(*plan));
      return plan;
    }
    if (lacksDeviceMemory(plan.status()))
      continue;
    if (absl::IsResourceExhausted(plan.status())) // memory would do, and the objective does not
      return absl::ResourceExhaustedError(
          absl::StrCat(plan.status().message(), ". With all KV blocks on the device: ", whole.message()));
    return plan;
  }
  split_ = caches_.least(all);
  if (absl::StatusOr<plan::Plan> plan = packAll(whole); plan.ok()) {
    absl::StrAppend(&plan->reason, ". ", explainSplit(*plan));
    return plan;
  }
  const absl::Status least = leastOf(caches_.least(all), whole);
  return absl::ResourceExhaustedError(absl::StrCat(least.message(), whatHostWouldDo(all)));
}

// At this device memory, where it is the host that has no room for what would be away.
std::string Compilation::whatHostWouldDo(const std::vector<Candidate> &candidates) {
  caches_.setHostCounts(false);
  const std::vector<Candidate> any = caches_.filled(candidates, SIZE_MAX, 0);
  caches_.setHostCounts(true);
  std::optional<HostLayout> least;
  for (const Candidate &candidate : any)
    if (const HostLayout host = layOutHost({&candidate}, layout_, target_, request_.model->layers);
        !least || host.bytes < least->bytes)
      least = host;
  std::string text;
  if (least && least->bytes > request_.hardware.hostMemoryBytes)
    absl::StrAppend(&text, ", a host memory of ", least->bytes, " bytes");
  if (least && least->kvBytes > request_.goal.kvHostMemory.value_or(least->kvBytes))
    absl::StrAppend(&text, text.empty() ? ", " : " with ", "a kv_host_memory of ", least->kvBytes, " bytes");
  return text;
}

// Packing may also take less than arithmetic says: what it leaves becomes blocks.
plan::Plan Compilation::filledUp(plan::Plan plan) {
  for (int tries = 0; tries < kFillings && split_->size() == 1; ++tries) {
    const uint64_t left = target_.deviceMemory - plan.arenaBytes;
    const int64_t resident =
        *split_->front().residency.firstKvBlockAway() + static_cast<int64_t>(left / plan.kvStride());
    if (left < std::max(plan.kvStride(), target_.deviceMemory / kWorthFilling) || resident >= target_.kvBlocks)
      break;
    split_ = caches_.stated(*split_, resident);
    latency_.reset();
    absl::StatusOr<plan::Plan> fuller = choose();
    if (!fuller.ok())
      break;
    plan = *std::move(fuller);
  }
  return plan;
}

absl::StatusOr<plan::Plan> Compilation::packAll(const absl::Status &refused) {
  packsAll_ = true;
  latency_.reset();
  nested_ = false;
  std::erase_if(*split_, [&](const Candidate &c) { return family_.held(c).bytes > target_.deviceMemory; });
  return split_->empty() ? refused : choose();
}

// Says of the candidate that needs the least memory how much that is, where it is less than `refused` says.
absl::Status Compilation::leastOf(const std::vector<Candidate> &candidates, const absl::Status &refused) {
  absl::Status least = refused;
  for (const Candidate &candidate : candidates) {
    if (family_.held(candidate).bytes >= *lacksDeviceMemory(least))
      continue;
    plan::Plan alone = emptyPlan();
    ASSIGN_OR_RETURN(evaluation, evaluate(candidate, alone, /*gaps=*/false));
    if (evaluation.arenaBytes < *lacksDeviceMemory(least))
      least = exhausted({{candidate}, 0}, evaluation.arenaBytes);
  }
  return least;
}

} // namespace headrace::compiler
