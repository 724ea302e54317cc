// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/Compiling.h"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "absl/strings/str_join.h"
#include "compiler/Compile.h"
#include "compiler/choice/Resolve.h"
#include "compiler/search/generators/Generators.h"
#include "runtime/base/FileIo.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/base/Units.h"
#include "runtime/job/Examples.h"
#include "runtime/job/JobSections.h"
#include "runtime/model/KvEncoding.h"
#include "runtime/model/ModelSpec.h"
#include "tools/commands/ModelHash.h"
#include "tools/commands/Progress.h"
#include "tools/commands/PromptTime.h"
#include "tools/commands/RunSetup.h"
#include "tools/report/Format.h"
#include "tools/report/RecordCosts.h"

namespace headrace::tools {
namespace {

using model::shapeEntries;
using model::TomlEntries;
using model::tomlNumber;

// A shipped shape by its name, which means the same in every folder; anything else by its path.
std::string modelWord(const std::string &path) {
  const std::filesystem::path file(path);
  if (model::isTomlPath(path))
    if (const auto shipped = model::resolveExample("", file.stem().string(), "models");
        shipped.ok() && *shipped == path)
      return file.stem().string();
  return path;
}

// Whether the interval or the number of layers, with the rest of the flags, leads to this placement again.
bool statable(const plan::Plan &plan, const plan::Placement &placement) {
  // The slots that flags lead to without --slots may be others than a choice by latency has taken.
  return compiler::policyNamed(plan.policy.name).flagsReachIt ||
         (plan::offloadedWeights(plan, placement).layers == 0 && placement.slots.empty());
}

// A command line word by word.
class Words {
public:
  void add(const std::string &word) { text_ += model::cat(text_.empty() ? "" : " ", shellWord(word)); }
  void add(std::string_view flag, const std::string &value) {
    add(std::string(flag));
    add(value);
  }
  template <class Number> void addIf(std::string_view flag, const std::optional<Number> &value) {
    if (value)
      add(flag, model::cat(*value));
  }
  const std::string &text() const { return text_; }

private:
  std::string text_;
};

// `spec`: the source's, or as it was packed for a plan.
void addModel(const model::ModelSource &model, const model::ModelSpec &spec, Words &words) {
  TomlEntries shape;
  if (!model.path.empty()) {
    words.add(modelWord(model.path));
    shape = shapeEntries(model.ofPath.value_or(model.spec));
  }
  for (const auto &[flag, value] : differingFlags("shape", shape, shapeEntries(spec)))
    words.add(flag, value);
}

void addHardware(const model::Hardware &hardware, Words &words) {
  for (const auto &[flag, value] : hardwareFlags(hardware))
    words.add(flag, value);
}

std::string expansionWord(double expansion) {
  return expansion == model::kAutoExpansion ? std::string("auto") : tomlNumber(expansion);
}

void addCaches(const model::Policy &policy, Words &words) {
  words.addIf("--kv-places", policy.kvPlaces);
  if (policy.kvWriteBack != model::KvWriteBack::Auto)
    words.add("--kv-write-back", std::string(model::kvWriteBackName(policy.kvWriteBack)));
  if (policy.attention != model::Attention::Device)
    words.add("--attention", std::string(model::attentionName(policy.attention)));
  if (policy.residuals != model::Residuals::Device)
    words.add("--residuals", std::string(model::residualsName(policy.residuals)));
  if (policy.actRatio)
    words.add("--act-ratio", model::actRatioText(*policy.actRatio));
  if (policy.actHome != model::ActHome::Auto)
    words.add("--act-home", std::string(model::actHomeName(policy.actHome)));
}

// Objectives, the requests that they are of, who runs the plan.
void addObjectives(const model::Goal &goal, Words &words) {
  if (goal.ttft)
    words.add("--ttft", model::durationText(*goal.ttft));
  if (goal.tpot)
    words.add("--tpot", model::durationText(*goal.tpot));
  if (goal.sloFactor)
    words.add("--slo-factor", tomlNumber(*goal.sloFactor));
  words.addIf("--input-len", goal.inputLen);
  words.addIf("--output-len", goal.outputLen);
  if (goal.instances != model::Instances::Together)
    words.add("--instances", std::string(model::instancesName(goal.instances)));
}

void addPrices(const model::Goal &goal, Words &words) {
  if (goal.busDevices != 1)
    words.add("--bus-devices", model::cat(goal.busDevices));
  if (!goal.record.empty())
    words.add("--record", goal.record);
}

// What KV may have, as it was asked for; what was found for its caches beside a placement that is `stated`.
void addKvMemory(const plan::Plan &plan, bool stated, Words &words) {
  const plan::HomeBytes kv = plan::kvBytesByHome(plan, 0);
  const bool found = stated && kv.host > 0 && (plan.goal.expansion || !plan.goal.kvDeviceMemory);
  const bool bothSay = plan.goal.expansion && plan.goal.kvDeviceMemory; // how much there is
  if (found ? plan.goal.kvTokens.has_value() : !bothSay)
    words.addIf("--kv-tokens", plan.goal.kvTokens);
  else if (found && plan.goal.expansion) // it may have said how much there is
    words.add("--kv-tokens", model::cat((plan.kvBlocks - 1) * plan.blockTokens * plan.miniBatches));
  if (found) // none where no block stays
    words.add("--kv-device-memory", model::bytesText(kv.device == 0 ? 0 : plan::kvDeviceBytes(plan, 0)));
  else if (plan.goal.kvDeviceMemory)
    words.add("--kv-device-memory", model::bytesText(*plan.goal.kvDeviceMemory));
  if (plan.goal.expansion && !found)
    words.add("--expansion", expansionWord(*plan.goal.expansion));
  if (plan.goal.kvHostMemory)
    words.add("--kv-host-memory", model::bytesText(*plan.goal.kvHostMemory));
  addCaches(plan.policy, words);
}

// `stated`: flags say the placement outright; else the same inputs lead to the same choice.
void addGoal(const plan::Plan &plan, bool stated, Words &words) {
  const model::Goal &goal = plan.goal;
  words.add("--device-memory", model::bytesText(plan.deviceMemory));
  words.addIf("--batch", goal.batch);
  if (goal.miniBatches > 1)
    words.add("--mini-batches", model::cat(goal.miniBatches));
  words.addIf("--context", goal.context);
  addKvMemory(plan, stated, words);
  words.add("--kv-dtype", model::kvEncodingText(plan.kvEncoding));
  words.add("--block-tokens", model::cat(plan.blockTokens));
  addObjectives(goal, words);
  if (!plan.weightHashes.empty())
    words.add("--verify-weights");
  addPrices(goal, words);
}

// As it was asked for, whatever a plan has of it.
void addGoal(const model::Goal &goal, Words &words) {
  for (const auto &[flag, value] : differingFlags("goal", {}, model::goalEntries(goal)))
    words.add(flag, value);
  if (!goal.record.empty())
    words.add("--record", goal.record);
}

void addPolicy(const model::Policy &policy, bool startRule, Words &words) {
  words.add("--policy", policy.name);
  words.addIf("--placements", policy.placements);
  if (policy.percent)
    words.add("--percent", model::percentText(*policy.percent));
  if (policy.prefer != model::Prefer::Latency)
    words.add("--prefer", std::string(model::preferName(policy.prefer)));
  if (policy.none)
    words.add("--interval", "none");
  words.addIf("--interval", policy.interval);
  words.addIf("--offload-layers", policy.offloadLayers);
  if (startRule)
    words.add("--start-rule", std::string(model::startRuleName(policy.startRule)));
  words.addIf("--slots", policy.slots);
  for (const auto &[flag, choice] :
       {std::pair("--offload-embedding", policy.offloadEmbedding), std::pair("--offload-head", policy.offloadHead)})
    if (choice != model::AutoOnOff::Auto)
      words.add(flag, std::string(model::autoOnOffName(choice)));
}

void addPlacement(const plan::Plan &plan, const plan::Placement &placement, Words &words) {
  const plan::OffloadedWeights offloaded = plan::offloadedWeights(plan, placement);
  const bool nothing = offloaded.layers == 0 && !offloaded.embedding && !offloaded.head;
  if (nothing)
    words.add("--interval", "none");
  else if (placement.interval > 0)
    words.add("--interval", model::cat(placement.interval));
  else
    words.add("--offload-layers", model::cat(offloaded.layers));
  words.add("--start-rule", std::string(model::startRuleName(placement.startRule)));
  words.addIf("--slots", plan.policy.slots);
  if (nothing)
    return;
  words.add("--offload-embedding", offloaded.embedding ? "on" : "off");
  if (!plan.model->tiedEmbeddings) // else both are one matrix
    words.add("--offload-head", offloaded.head ? "on" : "off");
}

// Sizes of iterations with prompts, where they were sought.
std::vector<int64_t> soughtTokens(const plan::Plan &plan) {
  std::vector<int64_t> sizes;
  for (const plan::Variant &variant : plan.variants)
    if (plan.schedules[variant.schedule].iterationClass == plan::IterationClass::Mixed)
      sizes.push_back(variant.newTokens);
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

void addBuckets(const model::Buckets &buckets, Words &words) {
  for (const auto &[flag, sizes] : {std::pair("--new-tokens", &buckets.newTokens),
                                    {"--sequences", &buckets.sequences},
                                    {"--contexts", &buckets.contexts}})
    if (!sizes->empty())
      words.add(flag, absl::StrJoin(*sizes, ","));
}

std::string searchText(const compiler::CompileProgress &at) {
  std::string text = at.buckets == 0
                         ? std::string("choosing placements")
                         : model::cat("placement for ", at.bucket.tokens, " tokens of ", at.bucket.sequences,
                                      " at context ", at.bucket.context, " (bucket ", at.nth, " of ", at.buckets, ")");
  return text + model::cat(", ", at.evaluated, at.evaluated == 1 ? " candidate tried" : " candidates tried");
}

compiler::CompileRequest requestOf(const model::Job &job) {
  compiler::CompileRequest request;
  request.model = job.model->spec;
  request.modelPath = job.model->path;
  request.hardware = *job.hardware;
  request.goal = job.goal;
  request.policy = job.policy;
  request.buckets = job.buckets;
  request.sharedMemory = job.sharedMemory;
  return request;
}

} // namespace

absl::StatusOr<int64_t> kvTokensOf(const model::Job &job) {
  ASSIGN_OR_RETURN(target, compiler::resolve(requestOf(job)));
  return target.kvTokens * target.choice.miniBatches;
}

namespace {

absl::Status checkMemories(const model::Job &job) {
  const model::Hardware &hardware = *job.hardware;
  if (job.goal.deviceMemory.value_or(0) > hardware.memoryBytes) // such a plan would run nowhere
    return absl::InvalidArgumentError(model::cat("goal.device_memory = ", *job.goal.deviceMemory,
                                                 ": expected at most the ", hardware.memoryBytes, " bytes that ",
                                                 hardware.name, " has"));
  if (job.goal.kvDeviceMemory.value_or(0) > hardware.memoryBytes)
    return absl::InvalidArgumentError(model::cat("goal.kv_device_memory = ", *job.goal.kvDeviceMemory,
                                                 ": expected at most the ", hardware.memoryBytes, " bytes that ",
                                                 hardware.name, " has"));
  return absl::OkStatus();
}

// The job outlives it.
compiler::CompileRequest hashedRequestOf(const model::Job &job) {
  compiler::CompileRequest request = requestOf(job);
  request.modelHash = modelHash(*job.model);
  request.hashOf = [&](const model::ModelSpec &spec) {
    model::ModelSource packed = *job.model;
    packed.spec = spec;
    return modelHash(packed);
  };
  return request;
}

} // namespace

absl::StatusOr<compiler::StagedPlans> compileStagesToHold(const AssembledJob &assembled, int64_t stages) {
  const model::Job &job = assembled.job;
  RETURN_IF_ERROR(checkMemories(job));
  if (!job.goal.record.empty())
    return absl::InvalidArgumentError("goal.record beside stages: expected none, as a record is of a whole model");
  compiler::CompileRequest request = hashedRequestOf(job);
  Progress progress("compiling stages");
  request.progress = [&](const compiler::CompileProgress &at) {
    progress.note(at.choosing ? searchText(at) : std::string());
  };
  const bool mayMiss = assembled.input.allowMissed;
  if (stages > 0 && mayMiss)
    return compiler::compileStages(request, stages, [](const plan::Plan &) { return absl::OkStatus(); });
  absl::StatusOr<compiler::StagedPlans> made = compiler::compileStages(request, stages, checkObjectives);
  if (!made.ok() && mayMiss && absl::IsResourceExhausted(made.status()))
    made = compiler::compileStages(request, stages, [](const plan::Plan &) { return absl::OkStatus(); });
  return made;
}

absl::StatusOr<plan::Plan> compileJob(const model::Job &job, const PhaseText &onPhase, const PhaseText &onPass,
                                      std::string *advice) {
  RETURN_IF_ERROR(checkMemories(job));
  compiler::CompileRequest request = hashedRequestOf(job);
  request.onPhase = onPhase;
  request.onPass = onPass;
  if (advice != nullptr)
    request.advise = [advice](std::string_view line) { *advice = std::string(line); };
  std::unique_ptr<cost::RecordCostModel> costs;
  if (!job.goal.record.empty()) {
    absl::StatusOr<std::unique_ptr<cost::RecordCostModel>> opened = openRecordCosts(job.goal.record, job);
    if (!opened.ok())
      return opened.status();
    costs = *std::move(opened);
    request.costs = costs.get();
  }
  Progress progress("compiling");
  request.progress = [&, plans = 1, done = 0](const compiler::CompileProgress &at) mutable {
    plans += !at.choosing && at.done < done; // the next of those that are compared
    done = at.choosing ? done : at.done;
    const bool search = at.choosing || plans > 1;
    progress.update(search ? 0 : static_cast<uint64_t>(at.done), search ? 0 : static_cast<uint64_t>(at.total));
    progress.note(at.choosing ? searchText(at)
                  : search    ? model::cat("plan ", plans, ": ", at.done, " of ", at.total, " schedules")
                              : std::string());
  };
  absl::StatusOr<plan::Plan> plan = compiler::compile(request);
  if (job.goal.ttft) {
    ASSIGN_OR_RETURN(policy, compiler::policyFor(job.policy, job.goal));
    if ((policy->order == compiler::Order::MostFreed || policy->order == compiler::Order::LeastAim) &&
        policy->opinion == nullptr) {
      compiler::CompileRequest other = request;
      other.onPhase = nullptr;
      other.onPass = nullptr;
      plan = holdTtft(job, std::move(plan), [&](std::chrono::nanoseconds ttft) {
        other.goal.ttft = ttft;
        return compiler::compile(other);
      });
    }
  }
  const bool stated = job.policy.actRatio && !job.policy.actRatio->isAuto(); // auto knows the bytes
  if (plan.ok() && job.sharedMemory && plan->arenaBytes + plan->hostBytes > *job.sharedMemory)
    return absl::ResourceExhaustedError(model::cat(
        "the plan takes ", plan->arenaBytes, " bytes of device memory and ", plan->hostBytes, " of host memory (",
        formatBytes(plan->arenaBytes), " and ", formatBytes(plan->hostBytes),
        "), on the host both lie in the machine's, of which plans may have ", *job.sharedMemory, " (",
        formatBytes(*job.sharedMemory), "). What would do: ", plan->arenaBytes + plan->hostBytes,
        " bytes, a smaller KV cache (a shorter context, a smaller batch, fewer kv_tokens); --hardware host with "
        "--memory and --host-memory"));
  if (plan.ok() && stated && plan->actBlocks > 0 && plan->actBlockBytes() >= plan->kvBlockBytes())
    warnOnce(model::cat("policy.act_ratio = ", model::actRatioText(plan->actRatio), ": an activation block of ",
                        plan->model->name, " takes ", plan->actBlockBytes(), " bytes a layer, its keys and values ",
                        plan->kvBlockBytes(), ": nothing is saved, and they are rebuilt"));
  return plan;
}

absl::StatusOr<plan::Plan> compileToHold(const AssembledJob &assembled, const PhaseText &onPhase,
                                         const PhaseText &onPass, std::string *advice) {
  ASSIGN_OR_RETURN(plan, compileJob(assembled.job, onPhase, onPass, advice));
  if (!assembled.input.allowMissed)
    RETURN_IF_ERROR(checkObjectives(plan));
  return plan;
}

std::string askedFlags(const model::Job &job) {
  Words words;
  addModel(*job.model, job.model->spec, words);
  addHardware(*job.hardware, words);
  addGoal(job.goal, words);
  addPolicy(job.policy, job.policy.startRuleStated, words);
  addCaches(job.policy, words);
  addBuckets(job.buckets, words);
  return words.text();
}

std::string chosenFlags(const model::Job &job, const plan::Plan &plan) {
  Words words;
  addModel(*job.model, plan.model, words);
  addHardware(*job.hardware, words);
  const plan::Placement &placement = plan.placements.front();
  const bool adapts = plan.goal.expansion == model::kAutoExpansion;
  const bool stated = plan.placements.size() == 1 && statable(plan, placement) && !adapts;
  addGoal(plan, stated, words);
  if (stated)
    addPlacement(plan, placement, words);
  else
    addPolicy(plan.policy, compiler::policyNamed(plan.policy.name).statesPlacement, words);
  model::Buckets buckets = job.buckets;
  if (stated && buckets.newTokens.empty() && plan.goal.inputLen)
    buckets.newTokens = soughtTokens(plan);
  addBuckets(buckets, words);
  if (!checkObjectives(plan).ok())
    words.add("--allow-missed");
  return words.text();
}

} // namespace headrace::tools
