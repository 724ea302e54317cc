// SPDX-License-Identifier: Apache-2.0
#include "compiler/Compile.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/CompileSearched.h"
#include "compiler/CompileStated.h"
#include "compiler/CompileThroughput.h"
#include "compiler/CompileWithKv.h"
#include "compiler/choice/Resolve.h"
#include "compiler/choose/BestActShare.h"
#include "compiler/choose/Explain.h"
#include "compiler/choose/ExplainObjective.h"
#include "compiler/choose/HybridShare.h"
#include "compiler/choose/MiniBatchCount.h"
#include "compiler/choose/policies/MechanismsInUse.h"
#include "compiler/choose/policies/Policies.h"
#include "compiler/emit/CompileDraft.h"
#include "compiler/evaluate/PlayChoice.h"
#include "compiler/search/Aim.h"
#include "passes/algorithms/PickLayers.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/cost/CostModel.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

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

// With chunks of prompts twice as large, four times, ... where that is better by the aim of what a draft has first.
absl::StatusOr<Draft> withBestChunk(Draft draft) {
  const CompileRequest request = draft.request;
  const model::WeightLayout layout = model::layoutWeights(request.model);
  std::optional<cost::Roofline> roofline;
  Prices prices(request.costs
                    ? *request.costs
                    : roofline.emplace(request.model, request.hardware, draft.target.activation, draft.target.kv));
  Choice choice = draft.target.choice;
  choice.buckets = request.buckets;
  const size_t missed = missesOf(draft).size();
  const int64_t rows = draft.target.batch * request.goal.promptLength(draft.target.context);
  std::string tried;
  std::optional<double> best;
  for (Draft next = draft;;) {
    const Aim aim = aimOf(request.goal, next.target);
    Iterations iterations(request, next.target, layout, prices);
    ASSIGN_OR_RETURN(played, Player(iterations).play(next.candidates.front(), aim.at()));
    absl::StrAppend(&tried, best ? ", " : "", choice.largestChunk, " ", msText(static_cast<uint64_t>(aim.of(played))));
    if (!best || (aim.compared(played) < *best && missesOf(next).size() <= missed)) {
      best = aim.compared(played);
      draft = std::move(next);
    }
    if (choice.largestChunk >= std::min(rows, draft.target.kvTokens))
      break;
    choice.largestChunk *= 2;
    absl::StatusOr<Draft> larger = compileStated(request, choice);
    if (!larger.ok()) // nor do larger ones fit
      break;
    next = *std::move(larger);
  }
  if (draft.target.choice.largestChunk != kLargestChunk)
    absl::StrAppend(&draft.reason, ". Prompts: up to ", draft.target.choice.largestChunk,
                    " tokens an iteration; with each of those tried ", aimOf(request.goal, draft.target).what, ": ",
                    tried);
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
  if (asked.goal.autoKvTokens)
    return compileWithKvThatFits(asked, compile);
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
    const bool anyBatch = request.policy.prefer == model::Prefer::Throughput;
    ASSIGN_OR_RETURN(draft, anyBatch ? compileMostTokens(request) : compileSearched(request));
    if (anyBatch) { // it is found now
      request.goal.batch = draft.goal.batch;
      request.policy.prefer = draft.policy.prefer;
    }
    const int64_t chunk = draft.target.choice.largestChunk;
    absl::StatusOr<plan::Plan> plan = compileExplained(std::move(draft), *policy);
    if (!absl::IsUnimplemented(plan.status()) || chunk == kLargestChunk)
      return plan;
    // For a larger chunk weights leave, and caches fill what they had: they may span more than kernels of the device
    // take.
    ASSIGN_OR_RETURN(usual, resolve(request));
    request.buckets.newTokens = usual.choice.buckets.newTokens;
    ASSIGN_OR_RETURN(again, compileSearched(request));
    return compileExplained(std::move(again), *policy);
  }
  const bool anyShare = request.policy.actRatio && request.policy.actRatio->isAuto();
  if (asked.progress && (anyShare || request.goal.autoMiniBatches))
    request.progress = [&](CompileProgress at) {
      at.searching = true;
      asked.progress(at);
    };
  ASSIGN_OR_RETURN(draft, request.goal.autoMiniBatches ? compileWithBestMiniBatches(request, *policy)
                                                       : compileWithAnyShare(request, askedChoice(request)));
  if (policy->traits.seeksChunk && hasPrompts(request.goal) && request.buckets.newTokens.empty() &&
      request.placements.empty()) {
    ASSIGN_OR_RETURN(chunked, withBestChunk(std::move(draft)));
    draft = std::move(chunked);
  }
  draft.request.progress = asked.progress;
  return compileExplained(std::move(draft), *policy);
}

} // namespace headrace::compiler
