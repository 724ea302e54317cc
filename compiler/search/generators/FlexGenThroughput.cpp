// SPDX-License-Identifier: Apache-2.0
//
// FlexGen's own policy of throughput (FlexGen, section 4): percents of weights, KV caches and hidden states on the
// device, the same of every layer, the next layer's share copied while a layer computes for a block of mini-batches. As
// `--percent` states them, or as its linear programme finds them (FlexGenShares.h).
//
//   weights   tensors by midpoints (Midpoints.h), then a unit is where most of it is; in two slots, rule eager
//   KV        the nearest number of blocks of each cache; FlexGen splits caches by heads
//   hidden    residual streams, on the device or not
//
// Embedding and head stay on the device unless it is stated that they do not. FlexGen attends on the CPU as well; here
// attention is on the device. The programme knows nothing of what kernels need: where its shares do not fit, it is
// solved for a twentieth of the device less, and so on; last comes all on the host.
#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/choice/Resolve.h"
#include "compiler/search/GeneratorInputs.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/cost/lm_offload/FlexGenShares.h"
#include "runtime/cost/lm_offload/MachineOf.h"
#include "runtime/cost/lm_offload/Midpoints.h"
#include "runtime/model/KvEncoding.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

constexpr const char *kUnitNames[model::kUnitsPerLayer] = {"qkv", "out", "up", "down"};
constexpr int kParts = 20; // of the device, that the programme is solved for ever fewer of

template <class... Expected>
absl::Status refuse(absl::string_view key, const std::string &value, Expected... expected) {
  return absl::InvalidArgumentError(absl::StrCat(key, " = ", value, ": expected ", expected...));
}

std::string quoted(const model::Percent &percent) { return absl::StrCat("\"", model::percentText(percent), "\""); }

// Of a cache's blocks, the scratch block left out, that are to stay on the device.
int64_t residentOf(const Target &target, double cg) {
  return std::llround(cg / 100 * static_cast<double>(target.kvBlocks - 1));
}

bool onCpu(const CompileRequest &request) { return request.policy.attention == model::Attention::Cpu; }

cost::OffloadSetting settingOf(const CompileRequest &request, const Target &target) {
  const model::Goal &goal = request.goal;
  cost::OffloadSetting setting =
      cost::plannedSetting(request.model, target.kv, target.sequences(), target.choice.miniBatches);
  setting.prompt = std::max<int64_t>(1, goal.inputLen.value_or(target.context / 2));
  setting.output = std::max<int64_t>(2, goal.outputLen.value_or(target.context - setting.prompt));
  if (setting.prompt + setting.output > request.model->longestContext())
    setting.prompt = request.model->longestContext() - setting.output;
  if (onCpu(request) && request.hardware.cpu.known()) // of kind host the CPU is the device
    setting.attention = cost::AttentionPlace::kCpu;
  return setting;
}

cost::OffloadMachine machineOf(const CompileRequest &request, const Target &target,
                               const cost::OffloadSetting &setting) {
  return cost::offloadMachine(request.hardware, request.model, setting.weights, setting.kv, target.deviceMemory);
}

// With these shares. What is stated beside them has to be the same.
absl::StatusOr<CompileRequest> withShares(const CompileRequest &asked, const Target &target,
                                          const model::Percent &percent) {
  for (const auto &[share, is] : {std::pair("cg = 0", percent.cg == 0), {"hg = 100", percent.hg == 100}})
    if (onCpu(asked) && !is)
      return refuse("policy.percent", quoted(percent), share,
                    " beside policy.attention = \"cpu\": caches are wholly on "
                    "the host, and hidden states stay");
  CompileRequest request = asked;
  request.policy.percent = percent;
  const int64_t layers = asked.model->layers, resident = residentOf(target, percent.cg);
  const KvOnDevice kv = target.kvOnDevice(layers);
  const uint64_t bytes = percent.cg >= 100 ? kv.wholeBytes()
                         : resident == 0   ? 0
                                           : kv.splitBytes(resident + 1, target.kvRanges(algorithms::kKvSlots, layers));
  if (asked.goal.kvDeviceMemory && *asked.goal.kvDeviceMemory != bytes)
    return refuse("goal.kv_device_memory", absl::StrCat(*asked.goal.kvDeviceMemory),
                  "none beside policy.name \"flexgen-throughput\", or the ", bytes, " bytes that cg = ", percent.cg,
                  " makes of policy.percent = ", quoted(percent));
  request.goal.kvDeviceMemory = bytes;
  if (asked.policy.residuals == model::Residuals::Host && percent.hg == 100)
    return refuse("policy.residuals", "\"host\"", "\"device\" beside hg = 100 of policy.percent = ", quoted(percent));
  if (percent.hc == 100)
    request.policy.residuals = model::Residuals::Host;
  return request;
}

absl::StatusOr<std::vector<CompileRequest>> requests(const CompileRequest &asked) {
  if (asked.goal.autoMiniBatches)
    return refuse("goal.mini_batches", "\"auto\"",
                  "a number beside policy.name \"flexgen-throughput\": its shares are of so many parts of the batch");
  if (asked.goal.allowQuantized != model::AllowQuantized::Nothing)
    return refuse("goal.allow_quantized",
                  absl::StrCat("\"", std::string(model::allowQuantizedName(asked.goal.allowQuantized)), "\""),
                  "none beside policy.name \"flexgen-throughput\", which is told what is packed (weight_encoding, "
                  "kv_dtype)");
  if (asked.goal.expansion)
    return refuse("goal.expansion", absl::StrCat(*asked.goal.expansion),
                  "none beside policy.name \"flexgen-throughput\": its shares say what KV takes of the device");
  CompileRequest whole = asked;
  whole.goal.kvDeviceMemory.reset();
  ASSIGN_OR_RETURN(target, resolve(whole));
  std::vector<CompileRequest> found;
  if (asked.policy.percent) {
    ASSIGN_OR_RETURN(request, withShares(asked, target, *asked.policy.percent));
    found.push_back(std::move(request));
    return found;
  }
  const cost::OffloadSetting setting = settingOf(asked, target);
  cost::OffloadMachine machine = machineOf(asked, target, setting);
  absl::Status refused;
  for (int part = kParts; part > 0; --part) {
    machine.deviceBytes = target.deviceMemory / kParts * static_cast<uint64_t>(part);
    const auto shares =
        cost::flexGenShares(cost::plannedModel(asked.model, asked.hardware), machine, setting,
                            onCpu(asked) ? cost::ShareLimits{.mostCg = 0, .leastHg = 100} : cost::ShareLimits());
    if (!shares.ok()) {
      if (refused.ok())
        refused = shares.status();
      continue;
    }
    // To a hundredth, down: what users state, and no more than there is room for.
    model::Percent percent = shares->percent;
    percent.wg = std::floor(100 * percent.wg) / 100;
    percent.cg = std::floor(100 * percent.cg) / 100;
    percent.wc = 100 - percent.wg;
    percent.cc = 100 - percent.cg;
    if (!found.empty() && *found.back().policy.percent == percent)
      continue;
    ASSIGN_OR_RETURN(request, withShares(asked, target, percent));
    found.push_back(std::move(request));
  }
  if (found.empty())
    return refused;
  const model::Percent least = {0, 100, 0, 100, found.back().policy.percent->hg, found.back().policy.percent->hc};
  if (*found.back().policy.percent != least) {
    ASSIGN_OR_RETURN(request, withShares(asked, target, least));
    found.push_back(std::move(request));
  }
  return found;
}

std::vector<Candidate> candidates(const GeneratorInputs &in) {
  const model::ModelSpec &spec = in.request.model;
  const model::Policy &policy = in.request.policy;
  const cost::MidpointShares shares = cost::sharesByMidpoints(spec, policy.percent.value_or(model::Percent()).wg);
  Candidate candidate;
  std::vector<int32_t> units;
  if (policy.offloadEmbedding == model::AutoOnOff::On ||
      (spec.tiedEmbeddings && policy.offloadHead == model::AutoOnOff::On))
    units.push_back(in.layout.embeddingUnit());
  for (int64_t layer = 0; layer < spec.layers; ++layer)
    for (int unit = 0; unit < model::kUnitsPerLayer; ++unit)
      if (!shares.unitsOnDevice[static_cast<size_t>(unit)])
        units.push_back(in.layout.layerUnit(layer, model::UnitRole::Qkv) + unit);
  if (policy.offloadHead == model::AutoOnOff::On && !spec.tiedEmbeddings)
    units.push_back(in.layout.headUnit());
  for (int unit = 0; unit < model::kUnitsPerLayer; ++unit)
    if (!shares.unitsOnDevice[static_cast<size_t>(unit)])
      absl::StrAppend(&candidate.name, candidate.name.empty() ? "" : "+", kUnitNames[unit]);
  candidate.name = candidate.name.empty() ? "none" : candidate.name + " of every layer";
  candidate.residency.setWeightsAway(units);
  if (!units.empty()) {
    candidate.residency.wrap.around = true;
    candidate.residency.weights().setSlots(policy.slots.value_or(2));
  }
  return {candidate};
}

// Asked and reached, and what its own cost model says of that.
std::string why(const GeneratorInputs &in, const std::vector<Candidate> &placements) {
  const model::ModelSpec &spec = in.request.model;
  const model::Policy &policy = in.request.policy;
  const model::Percent percent = policy.percent.value_or(model::Percent());
  uint64_t away = 0, all = 0;
  for (int64_t layer = 0; layer < spec.layers; ++layer)
    all += in.layout.layerBytes(layer);
  for (const int32_t unit : placements.front().residency.weightsAway())
    if (unit != in.layout.embeddingUnit() && unit != in.layout.headUnit())
      away += in.layout.units[static_cast<size_t>(unit)].bytes;
  const int64_t blocks = in.target.kvBlocks - 1, resident = residentOf(in.target, percent.cg);
  std::string text =
      absl::StrFormat("Shares on the device, asked and reached: weights %s%%, %.1f%% by whole tensors, %.1f%% by "
                      "units; KV %s%%, %.1f%% "
                      "by blocks; hidden states %s%%. Attention is on the %s",
                      absl::StrCat(percent.wg), cost::reachedWeights(spec, percent.wg),
                      100 * (1 - static_cast<double>(away) / static_cast<double>(all)), absl::StrCat(percent.cg),
                      100 * static_cast<double>(resident) / static_cast<double>(blocks), absl::StrCat(percent.hg),
                      onCpu(in.request) ? "CPU" : "device");
  cost::OffloadSetting setting = settingOf(in.request, in.target);
  setting.percent = percent;
  const auto form = cost::closedForm(cost::plannedModel(spec, in.request.hardware),
                                     machineOf(in.request, in.target, setting), cost::kPlannedRuntime, setting);
  if (form.ok())
    absl::StrAppendFormat(&text,
                          ". By the closed form with these shares, of %d + %d tokens: %.3f ms a layer of decode (%s), "
                          "%.3f ms of prompts",
                          setting.prompt, setting.output, 1e3 * form->decodeLayer.seconds,
                          std::string(cost::limitingLaneName(form->decodeLayer.limit)),
                          1e3 * form->prefillLayer.seconds);
  return text;
}

} // namespace

extern const Generator kFlexGenThroughputGenerator;
const Generator kFlexGenThroughputGenerator = {
    .name = "flexgen-throughput",
    .summary = "FlexGen's own: shares of weights, KV and hidden states by --percent, or by its linear programme "
               "(attention by --attention)",
    .onePlacement = true,
    .takesPercent = true,
    .splitsCaches = true,
    .colour = 13,
    .requests = requests,
    .candidates = candidates,
    .why = why,
};

} // namespace headrace::compiler
