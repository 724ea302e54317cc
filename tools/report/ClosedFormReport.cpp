// SPDX-License-Identifier: Apache-2.0
#include "tools/report/ClosedFormReport.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/cost/lm_offload/FittingShares.h"
#include "runtime/cost/lm_offload/MachineOf.h"
#include "runtime/model/KvEncoding.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "tools/report/Format.h"

namespace headrace::tools {
namespace {

using Json = nlohmann::ordered_json;
using cost::ClosedForm;
using cost::LayerTasks;

std::string seconds(double s) { return formatNs(static_cast<uint64_t>(std::llround(1e9 * s))); }

// The first placement's with the most sequences and the longest context; null: the plan has none.
const plan::Variant *largestDecode(const plan::Plan &plan) {
  const plan::Variant *found = nullptr;
  for (const plan::Variant &variant : plan.variants) {
    const plan::Schedule &schedule = plan.schedules[variant.schedule];
    if (variant.placement == 0 && schedule.iterationClass == plan::IterationClass::Decode && schedule.kvBlocks == 0 &&
        (found == nullptr ||
         std::pair(variant.sequences, variant.context) > std::pair(found->sequences, found->context)))
      found = &variant;
  }
  return found;
}

double deviceShare(uint64_t device, uint64_t host) {
  return device + host == 0 ? 100 : 100 * static_cast<double>(device) / static_cast<double>(device + host);
}

model::Percent percentOf(const plan::Plan &plan) {
  uint64_t device = 0, host = 0; // of layers' weights
  for (const plan::Extent &extent : plan.placements.front().extents) {
    const plan::Buffer &buffer = plan.buffers[extent.buffer];
    if (buffer.kind == plan::BufferKind::Weight && buffer.layer >= 0)
      (extent.space == plan::Space::Device ? device : host) += extent.bytes;
  }
  const plan::HomeBytes kv = plan::kvBytesByHome(plan, 0);
  model::Percent percent;
  percent.wg = deviceShare(device, host);
  percent.cg = deviceShare(kv.device, kv.host);
  percent.hg = plan.residualsLeave() ? 0 : 100;
  percent.wc = 100 - percent.wg;
  percent.cc = 100 - percent.cg;
  percent.hc = 100 - percent.hg;
  return percent;
}

std::vector<std::pair<std::string, double LayerTasks::*>> taskNames() {
  return {{"load weights", &LayerTasks::loadWeights},
          {"load KV", &LayerTasks::loadCache},
          {"load hidden states", &LayerTasks::loadHidden},
          {"store KV", &LayerTasks::storeCache},
          {"store hidden states", &LayerTasks::storeHidden}};
}
std::vector<std::pair<std::string, double LayerTasks::*>> computeNames() {
  return {{"unpack weights", &LayerTasks::unpackWeights},
          {"unpack KV", &LayerTasks::unpackCache},
          {"pack KV", &LayerTasks::packCache},
          {"linear ops", &LayerTasks::linear},
          {"attention", &LayerTasks::deviceAttention},
          {"starts of ops", &LayerTasks::overhead},
          {"attention on the CPU", &LayerTasks::cpuAttention}};
}
double computeOf(const LayerTasks &tasks) { return tasks.device() + tasks.cpu(); }

std::string limitText(const cost::LayerTime &time) {
  return absl::StrCat(seconds(time.seconds), " (", std::string(cost::limitingLaneName(time.limit)), ")");
}

// "yes, 19.8 tokens/s (device); without it 5.59 (h2d)".
std::string decisionText(const cost::Decisions &decisions, const cost::Decision &decision) {
  const bool yes = decision.yes == decisions.best;
  const auto side = [&](const std::optional<size_t> &i) -> std::string {
    if (!i)
      return "nothing fits";
    const ClosedForm &form = *decisions.forms[*i];
    return absl::StrCat(formatRate(form.tokensPerSecond), " tokens/s (",
                        std::string(cost::limitingLaneName(form.decodeLayer.limit)), ")");
  };
  return absl::StrCat(yes ? "yes, " : "no, ", side(yes ? decision.yes : decision.no), yes ? "; without " : "; with it ",
                      side(yes ? decision.no : decision.yes));
}

Json decisionJson(const cost::Decisions &decisions, const cost::Decision &decision) {
  const auto side = [&](const std::optional<size_t> &i) -> Json {
    if (!i)
      return nullptr;
    const ClosedForm &form = *decisions.forms[*i];
    return {{"tokens_per_second", form.tokensPerSecond},
            {"limited_by", std::string(cost::limitingLaneName(form.decodeLayer.limit))}};
  };
  return {{"decided", decision.yes == decisions.best}, {"yes", side(decision.yes)}, {"no", side(decision.no)}};
}

} // namespace

absl::StatusOr<ClosedFormReport> reportClosedForm(const plan::Plan &plan, const cost::MeasuredLoading &loading) {
  const plan::Variant *const decode = largestDecode(plan);
  if (decode == nullptr)
    return absl::InvalidArgumentError("--explain: the plan has no iteration of decode");
  const model::ModelSpec &spec = plan.model;
  const cost::OffloadModel model = cost::plannedModel(spec, plan.hardware);
  const model::Encoding packed = model::Encoding::groups(4);
  const std::optional<model::Encoding> packedKv = model::kvEncodingFor(packed, spec.headDim);
  ClosedFormReport report;
  cost::OffloadSetting &setting = report.setting;
  setting.block = decode->sequences * plan.miniBatches;
  setting.miniBatches = plan.miniBatches;
  setting.weights = spec.encodings[model::UnitRole::Up];
  if (plan.kvEncoding.packed())
    setting.kv = plan.kvEncoding;
  setting.percent = percentOf(plan);
  const auto machineOf = [&](const std::optional<model::Encoding> &weights) {
    return cost::offloadMachine(plan.hardware, spec, weights, setting.kv ? setting.kv : packedKv, plan.deviceMemory);
  };
  cost::OffloadMachine machine = machineOf(setting.weights);
  if (loading.measured())
    machine.load = loading.bytesPerSecond();
  report.weighsCpu = machine.cpuAttention > 0;
  if (plan.policy.attention == model::Attention::Cpu && report.weighsCpu)
    setting.attention = cost::AttentionPlace::kCpu;
  const auto formOf = [&](int64_t prompt, int64_t output) {
    cost::OffloadSetting of = setting;
    of.prompt = prompt;
    of.output = output;
    return cost::closedForm(model, machine, cost::kPlannedRuntime, of);
  };
  setting.prompt = plan.goal.inputLen.value_or(std::max<int64_t>(1, decode->context / 2));
  setting.output = std::max<int64_t>(2, plan.goal.outputLen.value_or(decode->context - setting.prompt));
  ASSIGN_OR_RETURN(form, formOf(setting.prompt, setting.output));
  report.form = form;
  report.context = decode->context;
  ASSIGN_OR_RETURN(there, formOf(std::max<int64_t>(1, decode->context - 2), 2));
  report.formSeconds = there.iteration;
  report.playedSeconds = static_cast<double>(decode->predictedNs) / 1e9;

  std::vector<cost::OffloadSetting> settings;
  for (const cost::AttentionPlace place : {cost::AttentionPlace::kDevice, cost::AttentionPlace::kCpu})
    for (const bool weights : {false, true})
      for (const bool kv : {false, true}) {
        if ((place == cost::AttentionPlace::kCpu && !report.weighsCpu) || (kv && !packedKv))
          continue;
        cost::OffloadSetting of = setting;
        of.attention = place;
        of.weights = weights ? std::optional(packed) : std::nullopt;
        of.kv = kv ? packedKv : std::nullopt;
        const auto percent = cost::fastestShares(model, machineOf(of.weights), cost::kPlannedRuntime, of);
        if (!percent)
          continue;
        of.percent = *percent;
        settings.push_back(of);
      }
  // What is packed decides how fast a card unpacks it; of what is not packed nothing is unpacked.
  auto decisions = cost::decide(model, machineOf(packed), cost::kPlannedRuntime, settings);
  if (decisions.ok())
    report.decisions = *std::move(decisions);
  return report;
}

std::string closedFormText(const plan::Plan &plan, const ClosedFormReport &report) {
  const cost::OffloadSetting &s = report.setting;
  const ClosedForm &form = report.form;
  std::string out = absl::StrFormat(
      "\nclosed form    %d sequences in %d mini-batch%s, %d + %d tokens; on the device %.1f%% of layers' weights, "
      "%.1f%% of KV, %s hidden states; rates of %s\n",
      s.block, s.miniBatches, s.miniBatches == 1 ? "" : "es", s.prompt, s.output, s.percent.wg, s.percent.cg,
      s.percent.hg == 100 ? "all" : "no", plan.hardware.name);
  std::vector<std::vector<std::string>> rows = {{"of a layer", "prompts", "a token"}};
  for (const auto &[name, task] : taskNames())
    rows.push_back({name, seconds(form.prefill.*task), seconds(form.decode.*task)});
  rows.push_back({"compute", seconds(computeOf(form.prefill)), seconds(computeOf(form.decode))});
  for (const auto &[name, task] : computeNames())
    if (form.prefill.*task > 0 || form.decode.*task > 0)
      rows.push_back({"  of it " + name, seconds(form.prefill.*task), seconds(form.decode.*task)});
  rows.push_back({"longest", limitText(form.prefillLayer), limitText(form.decodeLayer)});
  out += formatTable(rows);
  const int64_t layers = plan.model->layers;
  const auto line = [&](const char *name, const std::string &value) {
    absl::StrAppendFormat(&out, "%-14s %s\n", name, value);
  };
  line("T", absl::StrFormat(
                "%s = %s%d x T_pf %s + %d x %d x T_gen %s, %s tokens/s%s", seconds(form.total()),
                form.init ? "T_init " + seconds(*form.init) + " + " : "", layers, seconds(form.prefillLayer.seconds),
                layers, s.output - 1, seconds(form.decodeLayer.seconds), formatRate(form.tokensPerSecond),
                form.init ? " once loaded" : "; T_init is not measured: a record of the model's folder has it"));
  line("played", absl::StrFormat("decode at context %d in %s; by the closed form %s (%.2f x)", report.context,
                                 seconds(report.playedSeconds), seconds(report.formSeconds),
                                 report.formSeconds / report.playedSeconds));
  if (!report.decisions) {
    line("decisions", "none: by the closed form nothing fits");
    return out;
  }
  line("pack weights", decisionText(*report.decisions, report.decisions->packWeights));
  line("pack KV", decisionText(*report.decisions, report.decisions->packKv));
  line("attend on CPU", report.weighsCpu ? decisionText(*report.decisions, report.decisions->attendOnCpu)
                                         : "not weighed: the profile has no rate for it");
  return out;
}

nlohmann::ordered_json closedFormJson(const ClosedFormReport &report) {
  const cost::OffloadSetting &s = report.setting;
  const ClosedForm &form = report.form;
  const auto layer = [](const LayerTasks &tasks, const cost::LayerTime &time) {
    Json json = {{"load_weights_s", tasks.loadWeights}, {"load_kv_s", tasks.loadCache},
                 {"load_hidden_s", tasks.loadHidden},   {"store_kv_s", tasks.storeCache},
                 {"store_hidden_s", tasks.storeHidden}, {"compute_s", computeOf(tasks)}};
    json["compute"] = {{"unpack_weights_s", tasks.unpackWeights},
                       {"unpack_kv_s", tasks.unpackCache},
                       {"pack_kv_s", tasks.packCache},
                       {"linear_s", tasks.linear},
                       {"attention_s", tasks.deviceAttention},
                       {"starts_s", tasks.overhead},
                       {"cpu_attention_s", tasks.cpuAttention}};
    json["seconds"] = time.seconds;
    json["limited_by"] = std::string(cost::limitingLaneName(time.limit));
    return json;
  };
  Json json = {
      {"block", s.block},
      {"mini_batches", s.miniBatches},
      {"prompt", s.prompt},
      {"output", s.output},
      {"percent", {s.percent.wg, s.percent.wc, s.percent.cg, s.percent.cc, s.percent.hg, s.percent.hc}},
      {"prefill_layer", layer(form.prefill, form.prefillLayer)},
      {"decode_layer", layer(form.decode, form.decodeLayer)},
      {"t_pf_s", form.prefillLayer.seconds},
      {"t_gen_s", form.decodeLayer.seconds},
      {"t_init_s", form.init ? Json(*form.init) : Json(nullptr)},
      {"t_s", form.total()},
      {"tokens_per_second", form.tokensPerSecond},
      {"decode",
       {{"context", report.context}, {"closed_form_s", report.formSeconds}, {"played_s", report.playedSeconds}}}};
  if (report.decisions)
    json["decisions"] = {{"pack_weights", decisionJson(*report.decisions, report.decisions->packWeights)},
                         {"pack_kv", decisionJson(*report.decisions, report.decisions->packKv)},
                         {"attend_on_cpu", report.weighsCpu
                                               ? decisionJson(*report.decisions, report.decisions->attendOnCpu)
                                               : Json(nullptr)}};
  return json;
}

} // namespace headrace::tools
