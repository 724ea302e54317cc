// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/Compiling.h"

#include <filesystem>
#include <memory>

#include "absl/strings/str_join.h"
#include "compiler/Compile.h"
#include "runtime/base/Text.h"
#include "runtime/base/Units.h"
#include "runtime/job/Examples.h"
#include "runtime/model/ModelSpec.h"
#include "tools/commands/JobFlags.h"
#include "tools/commands/ModelHash.h"
#include "tools/commands/Progress.h"
#include "tools/report/RecordCosts.h"

namespace headrace::tools {
namespace {

// A word of a command line, quoted where a shell would take it apart.
std::string shellWord(const std::string &word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./,:=+%@";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos)
    return word;
  std::string out = "'";
  for (const char c : word)
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// A shipped shape by its name, which means the same in every folder; anything else by its path.
std::string modelWord(const std::string &path) {
  const std::filesystem::path file(path);
  if (file.extension() == ".toml")
    if (const auto shipped = model::resolveExample("", file.stem().string(), "models");
        shipped.ok() && *shipped == path)
      return file.stem().string();
  return path;
}

// What flags over `profile` need not say: its figures, and what --h2d-bandwidth and --d2h-bandwidth scale.
TomlEntries impliedEntries(const model::Hardware &profile, const model::Hardware &wanted) {
  model::Hardware implied = withH2dBandwidth(profile, wanted.h2dBandwidth);
  implied.h2dBandwidth = profile.h2dBandwidth;
  if (implied.d2hBandwidth != wanted.d2hBandwidth)
    implied.duplexBandwidth = 0; // to be said, whatever it is
  return hardwareEntries(implied);
}

// Whether the interval or the number of layers, with the rest of the flags, leads to this placement again.
bool statable(const plan::Plan &plan, const plan::Placement &placement) {
  // The slots that flags lead to without --slots may be others than a choice by latency has taken.
  return plan.policy.name == "interval" || plan.policy.name == "none" || plan.policy.name == "deepspeed" ||
         plan.policy.name == "select-n" || (placement.offloadedLayers == 0 && placement.slots.empty());
}

std::string searchText(const compiler::CompileProgress &at) {
  std::string text =
      at.buckets == 0 ? std::string("choosing placements")
                      : model::cat("placement for ", at.shape.tokens, " tokens of ", at.shape.sequences, " at context ",
                                   at.shape.context, " (bucket ", at.bucket, " of ", at.buckets, ")");
  return text + model::cat(", ", at.compiled, at.compiled == 1 ? " candidate tried" : " candidates tried");
}

} // namespace

absl::StatusOr<plan::Plan> compileJob(const model::Job &job, const PhaseText &onPhase, const PhaseText &onPass) {
  const model::Hardware &hardware = *job.hardware;
  if (job.goal.deviceMemory.value_or(0) > hardware.memoryBytes) // such a plan would run nowhere
    return absl::InvalidArgumentError(model::cat("goal.device_memory = ", *job.goal.deviceMemory,
                                                 ": expected at most the ", hardware.memoryBytes, " bytes that ",
                                                 hardware.name, " has"));
  absl::StatusOr<std::string> hash = modelHash(*job.model);
  if (!hash.ok())
    return hash.status();
  compiler::CompileRequest request;
  request.model = job.model->spec;
  request.modelHash = *hash;
  request.modelPath = job.model->path;
  request.hardware = *job.hardware;
  request.goal = job.goal;
  request.policy = job.policy;
  request.buckets = job.buckets;
  request.onPhase = onPhase;
  request.onPass = onPass;
  std::unique_ptr<cost::RecordCostModel> costs;
  if (!job.goal.record.empty()) {
    absl::StatusOr<std::unique_ptr<cost::RecordCostModel>> opened = openRecordCosts(job.goal.record, job);
    if (!opened.ok())
      return opened.status();
    costs = *std::move(opened);
    request.costs = costs.get();
  }
  Progress progress("compiling");
  request.progress = [&](const compiler::CompileProgress &at) {
    progress.update(static_cast<uint64_t>(at.done), static_cast<uint64_t>(at.total));
    progress.note(at.choosing ? searchText(at) : std::string());
  };
  return compiler::compile(request);
}

std::string chosenFlags(const model::Job &job, const plan::Plan &plan) {
  std::string out;
  const auto add = [&](std::string_view flag, const std::string &value) {
    out += model::cat(out.empty() ? "" : " ", flag, " ", shellWord(value));
  };
  const auto addBuckets = [&] {
    if (!job.buckets.newTokens.empty())
      add("--new-tokens", absl::StrJoin(job.buckets.newTokens, ","));
    if (!job.buckets.sequences.empty())
      add("--sequences", absl::StrJoin(job.buckets.sequences, ","));
    if (!job.buckets.contexts.empty())
      add("--contexts", absl::StrJoin(job.buckets.contexts, ","));
  };
  TomlEntries shape;
  if (!job.model->path.empty()) {
    out = shellWord(modelWord(job.model->path));
    if (const absl::StatusOr<model::ModelSource> named = model::openModel(job.model->path); named.ok())
      shape = shapeEntries(named->spec);
  }
  for (const auto &[flag, value] : differingFlags("shape", shape, shapeEntries(job.model->spec)))
    add(flag, value);
  // A profile that no name stands for is spelled out over the one that every headrace has.
  absl::StatusOr<model::Hardware> profile = model::openHardware(job.hardware->name);
  if (!profile.ok())
    profile = model::openHardware("host");
  add("--hardware", profile.ok() ? profile->name : "host");
  for (const auto &[flag, value] :
       differingFlags("hardware", profile.ok() ? impliedEntries(*profile, *job.hardware) : TomlEntries{},
                      hardwareEntries(*job.hardware)))
    add(flag, value);
  add("--device-memory", model::bytesText(plan.budgetBytes));
  if (plan.goal.batch)
    add("--batch", model::cat(*plan.goal.batch));
  if (plan.goal.context)
    add("--context", model::cat(*plan.goal.context));
  if (plan.goal.kvTokens)
    add("--kv-tokens", model::cat(*plan.goal.kvTokens));
  add("--kv-dtype", std::string(model::dtypeName(plan.kvDtype)));
  add("--block-tokens", model::cat(plan.blockTokens));
  if (plan.goal.ttftNs)
    add("--ttft", model::durationText(*plan.goal.ttftNs));
  if (plan.goal.tpotNs)
    add("--tpot", model::durationText(*plan.goal.tpotNs));
  if (plan.goal.sloFactor)
    add("--slo-factor", tomlNumber(*plan.goal.sloFactor));
  if (plan.goal.instances != model::Instances::Together)
    add("--instances", std::string(model::instancesName(plan.goal.instances)));
  if (!plan.weightHashes.empty())
    out += " --verify-weights";
  if (plan.goal.busDevices != 1)
    add("--bus-devices", model::cat(plan.goal.busDevices));
  if (!plan.goal.record.empty())
    add("--record", plan.goal.record);
  const plan::Placement &placement = plan.placements.front();
  if (plan.placements.size() > 1 || !statable(plan, placement)) {
    // No flag says it outright: the same inputs lead to the same choice.
    add("--policy", plan.policy.name);
    if (plan.policy.placements)
      add("--placements", model::cat(*plan.policy.placements));
    if (plan.policy.none)
      add("--interval", "none");
    if (plan.policy.interval)
      add("--interval", model::cat(*plan.policy.interval));
    if (plan.policy.offloadLayers)
      add("--offload-layers", model::cat(*plan.policy.offloadLayers));
    if (plan.policy.name == "auto" || plan.policy.name == "interval")
      add("--start-rule", std::string(model::startRuleName(plan.policy.startRule)));
    if (plan.policy.slots)
      add("--slots", model::cat(*plan.policy.slots));
    for (const auto &[flag, choice] : {std::pair("--offload-embedding", plan.policy.offloadEmbedding),
                                       std::pair("--offload-head", plan.policy.offloadHead)})
      if (choice != model::Choice::Auto)
        add(flag, std::string(model::choiceName(choice)));
    addBuckets();
    return out;
  }
  const bool nothing = placement.offloadedLayers == 0 && !placement.offloadsEmbedding && !placement.offloadsHead;
  if (nothing)
    add("--interval", "none");
  else if (placement.interval > 0)
    add("--interval", model::cat(placement.interval));
  else
    add("--offload-layers", model::cat(placement.offloadedLayers));
  add("--start-rule", std::string(model::startRuleName(placement.startRule)));
  if (plan.policy.slots)
    add("--slots", model::cat(*plan.policy.slots));
  if (!nothing) {
    add("--offload-embedding", placement.offloadsEmbedding ? "on" : "off");
    if (!plan.model->tiedEmbeddings) // else both are one matrix
      add("--offload-head", placement.offloadsHead ? "on" : "off");
  }
  addBuckets();
  return out;
}

} // namespace headrace::tools
