// SPDX-License-Identifier: Apache-2.0
#include "compiler/Compile.h"

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/choice/CheckStated.h"
#include "compiler/choice/Resolve.h"
#include "compiler/choose/BestActShare.h"
#include "compiler/choose/Compilation.h"
#include "compiler/choose/Explain.h"
#include "compiler/choose/HybridShare.h"
#include "compiler/choose/MiniBatchCount.h"
#include "compiler/choose/policies/MechanismsInUse.h"
#include "compiler/choose/policies/Policies.h"
#include "compiler/emit/CompileDraft.h"
#include "compiler/search/Minima.h"
#include "compiler/search/Why.h"
#include "passes/algorithms/PickLayers.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/cost/CostModel.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

// Placements that are stated say what they have alike, or leave it to the choice: that, with what they say.
absl::StatusOr<Choice> commonOf(const std::vector<Candidate> &stated, Choice choice) {
  if (stated.empty())
    return choice;
  const algorithms::Residency &first = stated.front().residency;
  if (const std::vector<int32_t> away = first.actAway(); !away.empty())
    choice.residency.setActAway(away);
  if (first.residualsLeave())
    choice.residency.residuals() = first.residuals();
  for (const Candidate &candidate : stated) {
    const algorithms::Residency &residency = candidate.residency;
    if ((!residency.actAway().empty() && residency.actAway() != choice.residency.actAway()) ||
        (residency.residualsLeave() && residency.residuals() != choice.residency.residuals()))
      return absl::InvalidArgumentError(absl::StrCat("placement '", candidate.name,
                                                     "': expected activation blocks and residual streams where the "
                                                     "first placement has them"));
  }
  return choice;
}

absl::StatusOr<Draft> compileStated(const CompileRequest &asked, const Choice &chosen) {
  ASSIGN_OR_RETURN(choice, commonOf(asked.placements, chosen));
  CompileRequest request = asked;
  for (Candidate &candidate : request.placements)
    candidate = alike(std::move(candidate), choice);
  ASSIGN_OR_RETURN(policy, policyFor(request.policy, request.goal));
  RETURN_IF_ERROR(checkStated(request, choice, !policy->traits.swapsLayers));
  model::WeightLayout layout = model::layoutWeights(request.model);
  for (const Candidate &candidate : request.placements)
    RETURN_IF_ERROR(checkCandidate(candidate, request.model, layout));
  ASSIGN_OR_RETURN(target, resolve(request, choice, policy->traits.swapsLayers));
  RETURN_IF_ERROR(checkBlocks(request.placements, target));
  std::optional<cost::Roofline> roofline;
  const cost::CostModel &costs =
      request.costs ? *request.costs : roofline.emplace(request.model, request.hardware, target.activation, target.kv);
  ASSIGN_OR_RETURN(plan, Compilation(request, *policy, std::move(target), std::move(layout), costs).run());
  return plan;
}

// The largest decode bucket of the placement that runs first, all blocks in use.
ShareTimes shareTimes(const plan::Plan &plan) {
  ShareTimes times;
  for (const plan::Variant &variant : plan.variants) // ascending
    if (const plan::Schedule &schedule = plan.schedules[variant.schedule];
        variant.placement == 0 && schedule.iterationClass == plan::IterationClass::Decode && schedule.kvBlocks == 0)
      times = {variant.predictedNs, variant.computeAloneNs, variant.linkAloneNs};
  return times;
}

// With activation blocks on the device where all else can be made to fit beside them; else with some layers' of them on
// the host, whichever is fastest of: as few as makes that so; a few more, up to those that leave room for one more slot
// of weights; where that gains little, all.
constexpr double kSlotIsWorth = 1.0 / 16; // of the iteration: copies run beside the layer that they are not for

absl::StatusOr<Draft> compileWithHome(const CompileRequest &request, const Choice &choice) {
  const model::Policy &asked = request.policy;
  absl::StatusOr<Draft> plan = compileStated(request, choice);
  if (asked.actHome != model::ActHome::Auto || !choice.actRatio.any() || !lacksDeviceMemory(plan.status()) ||
      (!request.placements.empty() && !request.placements.front().residency.actAway().empty()))
    return plan;
  ASSIGN_OR_RETURN(policy, policyFor(asked, request.goal));
  ASSIGN_OR_RETURN(target, resolve(request, choice));
  if (!policy->traits.splitsCaches || asked.startRule != model::StartRule::Eager)
    return plan;
  const uint64_t layerBytes = static_cast<uint64_t>(target.choice.miniBatches) * target.actBytes;
  const int64_t layers = request.model->layers;
  const auto compileAway = [&](int64_t count) {
    Choice away = choice;
    away.residency.setActAway(algorithms::evenLayers(layers, count));
    return compileStated(request, away);
  };
  int64_t away = 0; // layers
  while (lacksDeviceMemory(plan.status()) && away < layers) {
    // What is missing, in layers: the slots that they go through take some of it back.
    const uint64_t least = lacksDeviceMemory(plan.status()).value_or(0);
    const uint64_t missing = least > target.deviceMemory ? least - target.deviceMemory : 1;
    away = std::min(layers, away + static_cast<int64_t>((missing - 1) / layerBytes) + 1);
    plan = compileAway(away);
  }
  // One more slot, and what else is brought back before it.
  const model::WeightLayout layout = model::layoutWeights(request.model);
  const auto beside = [&](uint64_t bytes) {
    return std::min(layers, away + static_cast<int64_t>((bytes - 1) / layerBytes) + 1);
  };
  const uint64_t slot = layout.layerBytes(0);
  const int64_t most = beside(slot + layout.totalBytes() - static_cast<uint64_t>(layers) * slot);
  const auto attempt = [&](int64_t more) { // by which part of it is the iteration shorter
    const uint64_t before = shareTimes(*plan).iterationNs;
    away = more;
    absl::StatusOr<Draft> other = compileAway(away);
    if (!other.ok() || shareTimes(*other).iterationNs >= before)
      return 0.0;
    plan = std::move(other);
    return 1 - static_cast<double>(shareTimes(*plan).iterationNs) / static_cast<double>(before);
  };
  for (int64_t more = beside(slot); plan.ok() && more <= most; ++more)
    if (attempt(more) > kSlotIsWorth)
      return plan;
  if (plan.ok())
    attempt(layers);
  return plan;
}

// "balanced", or which lane is the longer and what keeps it so.
std::string lanesText(const ShareTimes &times, cost::Binding binding) {
  std::string name(cost::bindingName(binding));
  if (binding == cost::Binding::kBalanced)
    return name;
  return absl::StrCat(times.linkNs > times.computeNs ? "the link" : "compute", " is the longer (", name, ")");
}

absl::StatusOr<Draft> compileWithBestShare(const CompileRequest &request, const Choice &choice) {
  const auto with = [&](int64_t part) {
    Choice tried = choice;
    tried.actRatio = model::actRatioOf(part, kActShareParts - part);
    if (tried.actRatio.any() && request.policy.actHome == model::ActHome::Host)
      tried.residency.setActAway(algorithms::evenLayers(request.model->layers, request.model->layers));
    return tried;
  };
  std::map<int64_t, Draft> plans;
  const auto timesOf = [&](int64_t part) -> absl::StatusOr<ShareTimes> {
    ASSIGN_OR_RETURN(plan, compileWithHome(request, with(part)));
    return shareTimes(plans.emplace(part, std::move(plan)).first->second);
  };
  std::string algorithm1 = "Algorithm 1 was not asked: memory does not hold keys and values alone";
  const auto start = [&]() -> std::optional<int64_t> {
    if (!plans.contains(0))
      return std::nullopt;
    const absl::StatusOr<HybridShare> share = hybridShare(request, choice, roomOf(plans.at(0)));
    algorithm1 =
        share.ok() ? explainHybridShare(*share) : absl::StrCat("Algorithm 1 has no answer: ", share.status().message());
    return share.ok() ? std::optional(share->partOf(kActShareParts)) : std::nullopt;
  };
  ASSIGN_OR_RETURN(best, bestActShare(timesOf, start));
  Draft plan = std::move(plans.at(best.part));
  plans.clear();
  std::string tried;
  for (const auto &[part, times] : best.tried)
    if (times.ok())
      absl::StrAppend(&tried, tried.empty() ? "" : ", ", model::actRatioText(with(part).actRatio), " ",
                      msText(times->iterationNs));
  const ShareTimes times = shareTimes(plan);
  absl::StrAppend(&plan.reason, ". Activation blocks: the share of ", model::actRatioText(with(best.part).actRatio),
                  " takes the least of those tried (", tried, "); compute alone ", msText(times.computeNs),
                  ", link alone ", msText(times.linkNs), ": ", lanesText(times, best.binding));
  absl::StrAppend(&plan.reason, ". ", algorithm1);
  return plan;
}

absl::StatusOr<Draft> compileWithAnyShare(const CompileRequest &request, const Choice &choice) {
  return request.policy.actRatio && request.policy.actRatio->isAuto() ? compileWithBestShare(request, choice)
                                                                      : compileWithHome(request, choice);
}

absl::StatusOr<Draft> compileWithBestMiniBatches(const CompileRequest &request, const Policy &policy) {
  CompileRequest one = request;
  one.goal.miniBatches = 1;
  if (!one.goal.batch) // else buckets would be of another batch with each count
    one.goal.batch = one.buckets.sequences.empty() ? 1 : one.buckets.sequences.back();
  const absl::StatusOr<int64_t> packed = packedMiniBatches(one, policy); // where it does not tell, from 1 on
  std::map<int64_t, Draft> plans;
  const auto with = [&](int64_t count) {
    Choice tried = askedChoice(one);
    tried.miniBatches = count;
    return tried;
  };
  const auto timeOf = [&](int64_t count) -> absl::StatusOr<uint64_t> {
    ASSIGN_OR_RETURN(plan, compileWithAnyShare(one, with(count)));
    return shareTimes(plans.emplace(count, std::move(plan)).first->second).iterationNs;
  };
  ASSIGN_OR_RETURN(best, bestMiniBatches(policy.traits.swapsLayers ? 1 : *one.goal.batch, packed.value_or(1), timeOf));
  Draft plan = std::move(plans.at(best.count));
  absl::StrAppend(&plan.reason, ". Mini-batches: the batch packs into ",
                  packed.ok() ? absl::StrCat(*packed) : absl::StrCat("none (", packed.status().message(), ")"), "; ",
                  explainMiniBatches(best));
  return plan;
}

std::optional<uint64_t> leastHostOf(const CompileRequest &request, const cost::CostModel &costs) {
  Space space(request, costs);
  return leastHost(space);
}

// Of a space that memory holds nothing of: the least that would do, of the device, and of the host beside this device.
absl::Status nothingFits(Space &space, const std::optional<LeastChoice> &least, const cost::CostModel &costs) {
  const model::Hardware &hardware = space.request().hardware;
  std::optional<uint64_t> hostBytes;
  if (hardware.hostMemoryBytes > 0 || space.request().goal.kvHostMemory) {
    CompileRequest anyHost = space.request();
    anyHost.hardware.hostMemoryBytes = 0; // no limit
    anyHost.goal.kvHostMemory.reset();
    hostBytes = leastHostOf(anyHost, costs);
    if (!hostBytes && !least) { // nor does this device memory do, whatever the host has
      anyHost.goal.deviceMemory = uint64_t{1} << 62;
      hostBytes = leastHostOf(anyHost, costs);
    }
  }
  const std::string host =
      hostBytes && *hostBytes > hardware.hostLimit() ? hostMemoryThatWouldDo(hardware, *hostBytes) : std::string();
  if (!least)
    return hostExhausted(space.request().model, hardware, hostBytes.value_or(0));
  MemoryNeed need = space.need(least->at, least->candidate);
  need.transients = need.transients + least->deviceBytes - need.bytes;
  need.bytes = least->deviceBytes;
  const absl::Status refused = deviceMemoryExhausted(space.request().model, space.target(least->at),
                                                     space.request().policy, least->candidate, need, "");
  return host.empty() ? refused : refusalWith(refused, absl::StrCat(", ", host));
}

// What the search finds, as a placement that was stated.
absl::StatusOr<Draft> compileSearched(const CompileRequest &request) {
  RETURN_IF_ERROR(checkStated(request, askedChoice(request), /*rotates=*/true));
  ASSIGN_OR_RETURN(target, resolve(request));
  std::optional<cost::Roofline> roofline;
  const cost::CostModel &costs =
      request.costs ? *request.costs : roofline.emplace(request.model, request.hardware, target.activation, target.kv);
  Space space(request, costs);
  const std::optional<Searched> searched = search(space, allGenerators());
  CompileRequest chosen = request;
  chosen.placements.resize(1);
  Coordinates at;
  if (searched) {
    at = searched->best.at;
    ASSIGN_OR_RETURN(filled, space.filled(searched->best));
    chosen.placements.front() = std::move(filled);
  } else { // what takes the least is at the end of the space, which a search may not have come to
    const std::optional<LeastChoice> least = leastDevice(space);
    if (!least || least->deviceBytes > target.deviceMemory)
      return nothingFits(space, least, costs);
    at = least->at;
    chosen.placements.front() = least->candidate;
  }
  ASSIGN_OR_RETURN(draft, compileStated(chosen, space.commonOf(at)));
  draft.reason = searched ? why(space, *searched, chosen.placements.front())
                          : absl::StrCat(describe(chosen.placements.front(), request.model), " of ",
                                         request.model->name, ": what takes the least memory");
  draft.request.placements.clear();
  return draft;
}

// With what KV takes of the device, where that is not said yet.
absl::StatusOr<plan::Plan> compileExplained(Draft draft, const Policy &policy) {
  if (!draft.goal.expansion && !policy.traits.swapsLayers && plan::kvBytesByHome(draft, 0).host > 0)
    absl::StrAppend(&draft.reason, ". ", explainKvOnDevice(draft));
  return compileDraft(draft);
}

} // namespace

absl::StatusOr<plan::Plan> compile(const CompileRequest &asked) {
  RETURN_IF_ERROR(model::validate(asked.model, "model"));
  RETURN_IF_ERROR(model::validate(asked.hardware, "hardware"));
  ASSIGN_OR_RETURN(policy, policyFor(asked.policy, asked.goal));
  RETURN_IF_ERROR(checkPolicy(asked.policy, asked.goal));
  RETURN_IF_ERROR(model::checkBeside(mechanismsInUse(asked, *policy)));
  CompileRequest request = asked;
  if (policy->traits.keepsActivations) {
    if (!request.policy.actRatio)
      request.policy.actRatio = model::kAutoActRatio;
    if (!request.goal.kvDeviceMemory && !request.goal.expansion && !request.policy.kvPlaces)
      request.goal.kvDeviceMemory = 0;
  }
  if (policy->traits.searches && request.placements.empty()) {
    if (asked.policy.name == "auto" && !asked.policy.actRatio &&
        asked.policy.actHome == model::ActHome::Auto) // whoever runs it may want swap space, or hand over
      request.policy.actRatio = model::ActRatio();
    ASSIGN_OR_RETURN(draft, compileSearched(request));
    return compileExplained(std::move(draft), *policy);
  }
  const bool anyShare = request.policy.actRatio && request.policy.actRatio->isAuto();
  if (asked.progress && (anyShare || request.goal.autoMiniBatches))
    request.progress = [&](CompileProgress at) {
      at.searching = true;
      asked.progress(at);
    };
  ASSIGN_OR_RETURN(draft, request.goal.autoMiniBatches ? compileWithBestMiniBatches(request, *policy)
                                                       : compileWithAnyShare(request, askedChoice(request)));
  draft.request.progress = asked.progress;
  return compileExplained(std::move(draft), *policy);
}

} // namespace headrace::compiler
