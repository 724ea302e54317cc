// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/Explain.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "passes/algorithms/Residency.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/CacheMap.h"

namespace headrace::compiler {

std::string explainChoice(const model::ModelSpec &spec, const Target &target, const std::string &fixedBy,
                          const Candidate &chosen, uint64_t arenaBytes, const Candidate *before, uint64_t beforeBytes,
                          const plan::Variant &decode) {
  std::string text = absl::StrCat(describe(chosen, spec), " of ", spec.name, "'s ", spec.layers, " layers: ");
  if (!fixedBy.empty())
    absl::StrAppend(&text, fixedBy);
  else if (chosen.offloadsNothing())
    absl::StrAppend(&text, "everything fits");
  else if (chosen.residency.weightsAway().empty())
    absl::StrAppend(&text, "all weights fit beside these KV blocks");
  else
    absl::StrAppend(&text, "the fewest that fit");
  absl::StrAppend(&text, "; takes ", arenaBytes, " of ", target.deviceMemory, " bytes (", bytesText(arenaBytes), " of ",
                  bytesText(target.deviceMemory), ")");
  if (before)
    absl::StrAppend(&text, ", ", describe(*before, spec),
                    describe(*before, spec) == describe(chosen, spec) ? " with wrap-around" : "", " would take ",
                    beforeBytes);
  absl::StrAppend(
      &text, ". Decode of ", decode.sequences, " at context ", decode.context,
      target.choice.miniBatches == 1 ? "" : absl::StrCat(" in each of ", target.choice.miniBatches, " mini-batches"),
      ": ", msText(decode.predictedNs), " an iteration, compute alone ", msText(decode.computeAloneNs), ", link alone ",
      msText(decode.linkAloneNs));
  return text;
}

// Of several mini-batches: each has a residual stream as long as the iteration; all else is one's at a time.
std::string residualsText(const model::ModelSpec &spec, const Target &target) {
  if (target.choice.miniBatches == 1 && !target.choice.residency.residualsLeave())
    return "";
  if (target.choice.residency.residualsLeave())
    return absl::StrCat(", of which slots of residuals ",
                        bytesText(static_cast<uint64_t>(target.choice.residency.residuals().slots()) *
                                  target.residualBytes(spec.hidden)));
  int64_t rows = Target::limits(target.decode).tokens;
  if (!target.mixed.empty())
    rows = std::max(rows, Target::limits(target.mixed).tokens);
  const uint64_t one = model::alignUp(static_cast<uint64_t>(rows * spec.hidden) * sizeof(float));
  return absl::StrCat(", of which residuals of ", target.choice.miniBatches, " mini-batches ",
                      bytesText(static_cast<uint64_t>(target.choice.miniBatches) * one));
}

namespace {

// A payload's type.
constexpr char kLeastMemory[] = "headrace/least-memory"; // LeastMemory::Of, a space, bytes

absl::Status refusalOf(LeastMemory least, const std::string &text) {
  absl::Status status = absl::ResourceExhaustedError(text);
  status.SetPayload(kLeastMemory, absl::Cord(absl::StrCat(static_cast<int>(least.of), " ", least.bytes)));
  return status;
}

} // namespace

std::optional<LeastMemory> leastMemory(const absl::Status &status) {
  const auto payload = status.GetPayload(kLeastMemory);
  if (!payload)
    return std::nullopt;
  const std::string text(*payload);
  return LeastMemory{static_cast<LeastMemory::Of>(text.front() - '0'), std::stoull(text.substr(2))};
}

bool asksForLess(const absl::Status &a, const absl::Status &b) {
  const std::optional<LeastMemory> ofA = leastMemory(a), ofB = leastMemory(b);
  return ofA && ofB && ofA->of == ofB->of && ofA->bytes < ofB->bytes;
}

absl::Status refusalWith(const absl::Status &refusal, const std::string &text) {
  const std::string all = absl::StrCat(refusal.message(), text);
  const std::optional<LeastMemory> least = leastMemory(refusal);
  return least ? refusalOf(*least, all) : absl::ResourceExhaustedError(all);
}

namespace {

// "4096 bytes (4.00 KiB)": what would do.
std::string wouldDo(uint64_t bytes) { return absl::StrCat(bytes, " bytes (", leastBytesText(bytes), ")"); }
std::string thereAre(uint64_t bytes) { return absl::StrCat(bytes, " bytes (", bytesText(bytes), ")"); }

// And who says that there is less.
std::string hostThatWouldDo(const model::Hardware &hardware, uint64_t bytes) {
  return absl::StrCat("a host memory of ", bytes, " bytes (", leastBytesText(bytes), "; there are ",
                      bytesText(hardware.hostMemoryBytes), " by --host-memory or the profile ", hardware.name, ")");
}

// "a smaller KV cache (a shorter context)": what of it can be smaller.
std::string smallerCache(const Target &target) {
  std::string text = "a smaller KV cache (a shorter context";
  if (target.sequences() > 1)
    absl::StrAppend(&text, ", a smaller batch");
  if (target.kvTokens > target.context)
    absl::StrAppend(&text, ", fewer kv_tokens");
  return text + ")";
}

} // namespace

absl::Status deviceMemoryExhausted(const model::ModelSpec &spec, const model::Hardware &hardware, const Target &target,
                                   const model::Policy &policy, const Candidate &smallest, MemoryNeed need,
                                   std::optional<uint64_t> hostBytes) {
  const uint64_t memory = target.leastMemoryFor(need.bytes, spec.layers);
  need.io = need.io + memory - need.bytes;
  need.bytes = memory;
  const bool lacksHost = hostBytes && *hostBytes > hardware.hostLimit();
  std::vector<std::string> would;
  if (lacksHost)
    would.push_back(hostThatWouldDo(hardware, *hostBytes));
  would.push_back(
      absl::StrCat("a device memory of ", need.bytes, " bytes",
                   need.bytes <= hardware.memoryBytes
                       ? ""
                       : absl::StrCat(", more than the ", bytesText(hardware.memoryBytes), " of ", hardware.name)));
  would.push_back(smallerCache(target));
  if (!target.mixed.empty())
    would.emplace_back("smaller new-token buckets");
  if (target.choice.miniBatches > 1) {
    would.emplace_back("fewer mini-batches");
    if (!target.choice.residency.residualsLeave())
      would.emplace_back("residual streams that leave the device (residuals = \"host\")");
  }
  if (awayOf(smallest.residency, spec).layers < spec.layers && (policy.interval || policy.offloadLayers))
    would.emplace_back("more layers offloaded");
  return refusalOf(
      {LeastMemory::Of::Device, need.bytes},
      absl::StrCat(lacksHost ? absl::StrCat("host memory of ", thereAre(hardware.hostMemoryBytes), " and ") : "",
                   "device memory of ", thereAre(target.deviceMemory), lacksHost ? " together" : "", " cannot hold ",
                   spec.name, " at batch ", target.sequences(), " and context ", target.context, ": the minimum",
                   lacksHost ? " of the device" : "", " is ", need.describe(), residualsText(spec, target), "; with ",
                   describe(smallest, spec), ". What would do: ", absl::StrJoin(would, ", or ")));
}

std::optional<uint64_t> lacksDeviceMemory(const absl::Status &status) {
  const std::optional<LeastMemory> least = leastMemory(status);
  return least && least->of == LeastMemory::Of::Device ? std::optional(least->bytes) : std::nullopt;
}

std::string explainSplit(const plan::Plan &plan) {
  const auto blocksOf = [&](const plan::Placement &placement) { return plan::CacheMap(plan, placement).resident(); };
  const plan::Placement &first = plan.placements.front();
  const uint64_t blockBytes = plan.kvStride();
  const int64_t resident = blocksOf(first), away = plan.kvBlocks - resident;
  std::string text = absl::StrCat("KV blocks: ", resident, " of ", plan.kvBlocks, " on the device (",
                                  bytesText(static_cast<uint64_t>(resident) * blockBytes), "), the other ", away, " (",
                                  bytesText(static_cast<uint64_t>(away) * blockBytes),
                                  ") at home on the host: with all of them on the device nothing fits");
  const auto most =
      std::max_element(plan.placements.begin(), plan.placements.end(),
                       [&](const plan::Placement &a, const plan::Placement &b) { return blocksOf(a) < blocksOf(b); });
  if (most != plan.placements.begin())
    absl::StrAppend(&text, "; ", blocksOf(*most), " where weights leave the most to them ('", most->name, "')");
  return text;
}

std::string explainKvOnDevice(const plan::Plan &plan) {
  const uint64_t slots = plan::kvSlotBytes(plan, 0);
  return absl::StrCat("KV takes ", bytesText(plan::kvDeviceBytes(plan, 0)), " of the device, ",
                      slots == plan::kvDeviceBytes(plan, 0) ? "all" : bytesText(slots), " of that the ",
                      plan.policy.kvPlaces ? "places" : "slots", " that blocks on the host go through");
}

std::string explainExpansion(const model::Goal &goal, const Target &target, int64_t layers) {
  const KvOnDevice kv = target.kvOnDevice(layers);
  const int64_t resident = *target.kvResident, ranges = target.kvRanges(algorithms::kKvSlots, layers);
  const uint64_t all = kv.wholeBytes(), held = kv.splitBytes(resident, ranges);
  const double expansion = static_cast<double>(all) / static_cast<double>(held);
  std::string text = absl::StrCat("Expansion ", absl::StrFormat("%.2f", expansion), ": ", bytesText(all),
                                  " of KV in all, ", bytesText(held), " of the device for it, ",
                                  bytesText(held - static_cast<uint64_t>(kv.caches * resident) * kv.blockBytes),
                                  " of these the slots that the others go through");
  if (*goal.expansion == model::kAutoExpansion)
    absl::StrAppend(&text, "; at most that: an engine offers what compute does not wait for");
  else if (expansion < *goal.expansion * 0.99)
    absl::StrAppend(&text, "; ", *goal.expansion, " was asked for, batch x context has use for no more");
  return text;
}

std::string explainCycle(const plan::Plan &plan) {
  // The largest decode bucket of the first placement, phase by phase.
  std::vector<const plan::Variant *> phases;
  for (const plan::Variant &variant : plan.variants) {
    const plan::Schedule &schedule = plan.schedules[variant.schedule];
    const bool cycles = schedule.period > 1 || (plan.policy.kvPlaces && schedule.kvBlocks == 0);
    if (variant.placement != 0 || !cycles || schedule.iterationClass != plan::IterationClass::Decode)
      continue;
    if (schedule.phase == 0)
      phases.clear();
    phases.push_back(&variant);
  }
  if (phases.empty())
    return "";
  uint64_t slowest = 0, sum = 0, bytes = 0;
  for (const plan::Variant *variant : phases) {
    slowest = std::max(slowest, variant->predictedNs);
    sum += variant->predictedNs;
    bytes += plan::linkBytes(plan.schedules[variant->schedule]).h2d;
  }
  return absl::StrCat(
      "Tails of ", plan.model->layers, " layers",
      plan.miniBatches == 1 ? "" : absl::StrCat(" and ", plan.miniBatches, " mini-batches"), " cycle through ",
      plan.policy.kvPlaces ? absl::StrCat(*plan.policy.kvPlaces, " places") : "places", " in ", phases.size(),
      phases.size() == 1 ? " iteration: " : " iterations: ", bytesText(bytes / phases.size()),
      " brought an iteration in the mean, ", msText(sum / phases.size()), ", the slowest ", msText(slowest));
}

absl::Status kvHostExhausted(uint64_t kvHostMemory, uint64_t needed) {
  return refusalOf({LeastMemory::Of::KvHost, needed},
                   absl::StrCat("goal.kv_host_memory of ", kvHostMemory, " bytes (", bytesText(kvHostMemory),
                                ") cannot hold the KV blocks that are not on the device: the minimum is ", needed,
                                " bytes (", leastBytesText(needed),
                                "). What would do: more kv_device_memory, a smaller KV cache"));
}

absl::Status hostExhausted(const model::ModelSpec &spec, const model::Hardware &hardware, uint64_t hostBytes) {
  return refusalOf({LeastMemory::Of::Host, hostBytes},
                   absl::StrCat("host memory of ", thereAre(hardware.hostMemoryBytes),
                                " cannot hold what is offloaded of ", spec.name, ": the minimum is ",
                                wouldDo(hostBytes), ", pinned, with this policy at this device memory. What would do: ",
                                "more device memory, or a smaller KV cache, or ",
                                hostThatWouldDo(hardware, hostBytes)));
}

} // namespace headrace::compiler
