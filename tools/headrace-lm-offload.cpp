// SPDX-License-Identifier: Apache-2.0
//
// LM-Offload's closed form and thread control of cases in JSON on standard input, a list of them, as JSON on standard
// output: for tests, and for reading what the formulas give (examples/lm-offload).
//
//   {"model": "opt-30b", "machine": {"h2d": 25e9, ...}, "runtime": {"serial": true, "unpack_per_mini_batch": true},
//    "settings": [{"block": 640, "mini_batches": 10, "prompt": 64, "output": 128, "weights": "q4", "kv": "",
//                  "attention": "cpu", "percent": "55 45 0 100 0 100", "midpoints": true}, ...]}
//   {"threads": 112, "ops": [{"name": "scores", "after": [0], "record": [[1, 5000], [2, 2600], ...]}, ...],
//    "transfers": [0, 0, 0, 0, 0], "h2d": 25e9, "d2h": 25e9}
//
// With "midpoints" weights are placed by whole tensors, as FlexGen does for the percent that is asked for. Exit status
// 2: bad input, with a message; what a case refuses is in its answer.
#include <cstdio>
#include <iostream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/JsonReader.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/cost/lm_offload/ClosedForm.h"
#include "runtime/cost/lm_offload/Decisions.h"
#include "runtime/cost/lm_offload/FlexGenShares.h"
#include "runtime/cost/lm_offload/Midpoints.h"
#include "runtime/cost/lm_offload/Parallelism.h"
#include "runtime/job/JobFile.h"

namespace {

using headrace::model::JsonReader;
using nlohmann::json;
using namespace headrace::cost;

constexpr int64_t kMost = int64_t{1} << 40;

json refusal(const absl::Status &status) {
  return {{"refused", std::string(status.message())}, {"fits", !absl::IsResourceExhausted(status)}};
}

absl::StatusOr<const json *> child(JsonReader &reader, std::string_view key, bool list) {
  const json *value = reader.find(key);
  if (value == nullptr || (list ? !value->is_array() : !value->is_object())) {
    reader.refuse(key, list ? "a list" : "an object");
    return reader.status();
  }
  return value;
}

absl::StatusOr<OffloadMachine> machineOf(const json &object) {
  JsonReader reader(object, "machine");
  OffloadMachine machine;
  for (const auto &[key, field] : {std::pair{"h2d", &OffloadMachine::h2dBandwidth},
                                   {"d2h", &OffloadMachine::d2hBandwidth},
                                   {"duplex", &OffloadMachine::duplexBandwidth},
                                   {"device_flops", &OffloadMachine::deviceFlops},
                                   {"device_bandwidth", &OffloadMachine::deviceBandwidth},
                                   {"device_packing", &OffloadMachine::devicePacking},
                                   {"cpu_attention", &OffloadMachine::cpuAttention}})
    machine.*field = reader.number(key, std::nullopt);
  machine.deviceBytes = static_cast<uint64_t>(reader.integer("device_bytes", std::nullopt, 1, kMost));
  machine.hostBytes = static_cast<uint64_t>(reader.integer("host_bytes", std::nullopt, 1, kMost));
  RETURN_IF_ERROR(reader.status());
  return machine;
}

absl::StatusOr<std::optional<headrace::model::Encoding>> encodingOf(JsonReader &reader, std::string_view key) {
  const std::string text = reader.text(key, "");
  if (text.empty())
    return std::optional<headrace::model::Encoding>();
  const auto encoding = headrace::model::encodingFromText(text);
  if (!encoding || !encoding->packed()) {
    reader.refuse(key, "\"q4\", \"q8\", or one of them with its group");
    return reader.status();
  }
  return encoding;
}

absl::StatusOr<OffloadSetting> settingOf(const json &object, const headrace::model::ModelSpec &spec) {
  JsonReader reader(object, "setting");
  OffloadSetting setting;
  setting.block = reader.integer("block", std::nullopt, 1, kMost);
  setting.miniBatches = reader.integer("mini_batches", std::nullopt, 1, kMost);
  setting.prompt = reader.integer("prompt", std::nullopt, 1, kMost);
  setting.output = reader.integer("output", std::nullopt, 1, kMost);
  ASSIGN_OR_RETURN(weights, encodingOf(reader, "weights"));
  ASSIGN_OR_RETURN(kv, encodingOf(reader, "kv"));
  setting.weights = weights;
  setting.kv = kv;
  const std::string place = reader.text("attention", "device");
  if (place != "device" && place != "cpu")
    reader.refuse("attention", "\"device\" or \"cpu\"");
  setting.attention = place == "cpu" ? AttentionPlace::kCpu : AttentionPlace::kDevice;
  const std::string percent = reader.text("percent", std::nullopt);
  const bool midpoints = reader.boolean("midpoints", false);
  RETURN_IF_ERROR(reader.status());
  std::string expected;
  const auto shares = headrace::model::percentFromText(percent, expected);
  if (!shares)
    return absl::InvalidArgumentError("percent: expected " + expected);
  setting.percent = *shares;
  if (midpoints) {
    setting.percent.wg = reachedWeights(spec, setting.percent.wg);
    setting.percent.wc = 100 - setting.percent.wg;
  }
  return setting;
}

json tasksJson(const LayerTasks &t) {
  return {
      {"load_weights", t.loadWeights},         {"load_cache", t.loadCache},      {"load_hidden", t.loadHidden},
      {"store_cache", t.storeCache},           {"store_hidden", t.storeHidden},  {"unpack_weights", t.unpackWeights},
      {"unpack_cache", t.unpackCache},         {"pack_cache", t.packCache},      {"linear", t.linear},
      {"device_attention", t.deviceAttention}, {"cpu_attention", t.cpuAttention}};
}

json layerJson(const LayerTasks &tasks, const LayerTime &time) {
  return {{"tasks", tasksJson(tasks)}, {"seconds", time.seconds}, {"limit", std::string(limitingLaneName(time.limit))}};
}

json formJson(const OffloadModel &model, const OffloadMachine &machine, const FlexGenRuntime &runtime,
              const OffloadSetting &setting) {
  const absl::StatusOr<ClosedForm> form = closedForm(model, machine, runtime, setting);
  if (!form.ok())
    return refusal(form.status());
  const OffloadBytes bytes = offloadBytes(model, setting);
  const absl::Status fits = checkFits(model, machine, setting);
  json out = {{"wg", setting.percent.wg},
              {"prefill", layerJson(form->prefill, form->prefillLayer)},
              {"decode", layerJson(form->decode, form->decodeLayer)},
              {"iteration", form->iteration},
              {"generate", form->generate},
              {"tokens_per_second", form->tokensPerSecond},
              {"device_bytes", bytes.device},
              {"host_bytes", bytes.host},
              {"fits", fits.ok()}};
  if (!fits.ok())
    out["why"] = std::string(fits.message());
  return out;
}

absl::StatusOr<json> closedFormCase(JsonReader &reader) {
  const std::string name = reader.text("model", std::nullopt);
  ASSIGN_OR_RETURN(machineObject, child(reader, "machine", false));
  ASSIGN_OR_RETURN(runtimeObject, child(reader, "runtime", false));
  ASSIGN_OR_RETURN(list, child(reader, "settings", true));
  JsonReader runtimeReader(*runtimeObject, "runtime");
  const FlexGenRuntime runtime = {.serial = runtimeReader.boolean("serial", false),
                                  .unpackPerMiniBatch = runtimeReader.boolean("unpack_per_mini_batch", false)};
  RETURN_IF_ERROR(runtimeReader.status());
  ASSIGN_OR_RETURN(source, headrace::model::openModel(name));
  ASSIGN_OR_RETURN(machine, machineOf(*machineObject));
  const OffloadModel model = offloadModel(source.spec);
  std::vector<OffloadSetting> settings;
  json forms = json::array(), shares = json::array();
  for (const json &object : *list) {
    ASSIGN_OR_RETURN(setting, settingOf(object, source.spec));
    settings.push_back(setting);
    forms.push_back(formJson(model, machine, runtime, setting));
    const absl::StatusOr<FlexGenShares> found = flexGenShares(model, machine, setting);
    shares.push_back(found.ok() ? json{{"percent", percentText(found->percent)}, {"generate", found->generate}}
                                : refusal(found.status()));
  }
  const absl::StatusOr<Decisions> decisions = decide(model, machine, runtime, settings);
  json decided = decisions.ok() ? json{{"best", decisions->best}, {"text", decisionsText(*decisions)}}
                                : refusal(decisions.status());
  return json{{"layers", model.layers},
              {"layer_weight_bytes", model.layerWeights * model.elementBytes},
              {"outside_bytes", model.outsideWeights * model.elementBytes},
              {"token_bytes", 2 * model.kvRows * model.elementBytes},
              {"forms", std::move(forms)},
              {"shares", std::move(shares)},
              {"decisions", std::move(decided)}};
}

absl::StatusOr<json> parallelismCase(JsonReader &reader) {
  const int64_t threads = reader.integer("threads", std::nullopt, 1, kMost);
  TransferTasks transfers;
  transfers.h2dBandwidth = reader.number("h2d", std::nullopt);
  transfers.d2hBandwidth = reader.number("d2h", std::nullopt);
  ASSIGN_OR_RETURN(volumes, child(reader, "transfers", true));
  ASSIGN_OR_RETURN(list, child(reader, "ops", true));
  RETURN_IF_ERROR(reader.status());
  std::vector<GraphOp> ops;
  try {
    transfers.bytes = volumes->get<std::array<double, kTransferTasks>>();
    for (const json &object : *list) {
      GraphOp op{object.at("name"), object.at("after").get<std::vector<size_t>>(), {}};
      for (const auto &[count, ns] : object.at("record").get<std::vector<std::pair<int64_t, double>>>())
        op.record.push_back({count, ns});
      ops.push_back(std::move(op));
    }
  } catch (const json::exception &error) {
    return absl::InvalidArgumentError(error.what());
  }
  const absl::StatusOr<Parallelism> found = findParallelism(ops, transfers, threads);
  if (!found.ok())
    return refusal(found.status());
  return json{{"intra_op", found->intraOp},           {"inter_op_compute", found->interOpCompute},
              {"inter_op", found->interOp},           {"transfer_threads", found->transferThreads},
              {"compute_ns", found->computeNs},       {"transfer_ns", found->transferNs},
              {"levels", found->widths.levels},       {"concurrency", found->widths.concurrency},
              {"antichain", found->widths.antichain}, {"given_up", found->givenUp}};
}

absl::StatusOr<json> answers(const std::string &text) {
  ASSIGN_OR_RETURN(cases, headrace::model::parseJson(text, "standard input"));
  if (!cases.is_array())
    return absl::InvalidArgumentError("standard input: expected a list of cases");
  json out = json::array();
  for (const json &object : cases) {
    JsonReader reader(object, "case");
    absl::StatusOr<json> answer = reader.find("ops") == nullptr ? closedFormCase(reader) : parallelismCase(reader);
    if (!answer.ok())
      return answer.status();
    out.push_back(*std::move(answer));
  }
  return out;
}

} // namespace

int main() {
  const std::string text{std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  const absl::StatusOr<json> out = answers(text);
  if (!out.ok()) {
    std::fprintf(stderr, "headrace-lm-offload: error: %s\n", std::string(out.status().message()).c_str());
    return 2;
  }
  std::printf("%s\n", out->dump(1).c_str());
  return 0;
}
