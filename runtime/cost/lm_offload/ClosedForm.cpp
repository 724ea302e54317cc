// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/lm_offload/ClosedForm.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"

namespace headrace::cost {
namespace {

absl::Status unfitSetting(std::string_view what, const std::string &message) {
  return absl::InvalidArgumentError(model::cat(what, ": ", message));
}

double real(int64_t value) { return static_cast<double>(value); }

// Bytes by the bytes of the elements that they stand for.
double encodedShare(const std::optional<model::Encoding> &encoding, int64_t elementBytes) {
  if (!encoding || !encoding->packed())
    return 1;
  return static_cast<double>(encoding->groupBytes()) / real(encoding->group * elementBytes);
}

absl::Status checkMachine(const OffloadMachine &machine) {
  for (const auto &[name, rate] : {std::pair{"h2dBandwidth", machine.h2dBandwidth},
                                   {"d2hBandwidth", machine.d2hBandwidth},
                                   {"duplexBandwidth", machine.duplexBandwidth},
                                   {"deviceFlops", machine.deviceFlops},
                                   {"deviceBandwidth", machine.deviceBandwidth},
                                   {"devicePacking", machine.devicePacking}}) {
    if (!(rate > 0 && std::isfinite(rate)))
      return unfitSetting(name, model::cat(rate, ": expected a positive rate"));
  }
  for (const auto &[name, rate] : {std::pair{"cachePacking", machine.cachePacking},
                                   {"cpuAttention", machine.cpuAttention},
                                   {"cpuPackedAttention", machine.cpuPackedAttention},
                                   {"load", machine.load}}) {
    if (!(rate >= 0 && std::isfinite(rate)))
      return unfitSetting(name, model::cat(rate, ": expected a positive rate, or 0 where there is none"));
  }
  return absl::OkStatus();
}

absl::Status checkSetting(const OffloadModel &model, const OffloadMachine &machine, const OffloadSetting &setting) {
  if (setting.block < 1)
    return unfitSetting("block", model::cat(setting.block, " sequences: expected at least 1"));
  if (setting.miniBatches < 1 || setting.miniBatches > setting.block)
    return unfitSetting("mini-batches",
                        model::cat(setting.miniBatches, ": expected 1 to ", setting.block, ", one for each sequence"));
  if (setting.prompt < 1)
    return unfitSetting("prompt", model::cat(setting.prompt, " tokens: expected at least 1"));
  if (setting.output < 2)
    return unfitSetting("output", model::cat(setting.output,
                                             " tokens: expected at least 2, the first is the prefill's and nothing "
                                             "would be decoded"));
  if (setting.prompt > model.longestContext - setting.output)
    return unfitSetting("context", model::cat(setting.prompt, " + ", setting.output,
                                              " tokens: expected at most the model's ", model.longestContext));
  RETURN_IF_ERROR(model::checkPercent(setting.percent, "percent"));
  if (setting.attention == AttentionPlace::kCpu && machine.cpuAttention == 0)
    return unfitSetting("attention", "on the CPU: the machine has no rate for it");
  if (setting.attention == AttentionPlace::kCpu && setting.kv && setting.percent.cc > 0 &&
      machine.cpuPackedAttention == 0)
    return unfitSetting("attention", "on the CPU with packed K and V: the machine has no rate for it");
  return absl::OkStatus();
}

double cachePacking(const OffloadMachine &machine) {
  return machine.cachePacking > 0 ? machine.cachePacking : machine.devicePacking;
}

int64_t orElements(int64_t bytes, const OffloadModel &model) { return bytes > 0 ? bytes : model.elementBytes; }

// Bytes of one layer, of all sequences of the block. `Packed`: as they are held.
struct LayerBytes {
  double weights = 0, packedWeights = 0;
  double token = 0, packedToken = 0; // K and V of one more token a sequence
  double hidden = 0, attended = 0;   // of one token: the residual stream; q, or what attention gives
  double wc = 0, cc = 0, cg = 0, hc = 0;

  LayerBytes(const OffloadModel &m, const OffloadSetting &s)
      : weights(real(m.layerWeights * m.elementBytes)),
        token(2 * real(m.kvRows * orElements(m.kvBytes, m)) * real(s.block)),
        hidden(real(m.hidden * orElements(m.hiddenBytes, m)) * real(s.block)),
        attended(real(m.qRows * orElements(m.kvBytes, m)) * real(s.block)), wc(s.percent.wc / 100),
        cc(s.percent.cc / 100), cg(s.percent.cg / 100), hc(s.percent.hc / 100) {
    packedWeights = weights * encodedShare(s.weights, m.elementBytes);
    packedToken = token * encodedShare(s.kv, orElements(m.kvBytes, m));
  }
};

// What both phases have, of `tokens` new tokens a sequence.
LayerTasks commonTasks(const OffloadModel &model, const OffloadMachine &machine, const FlexGenRuntime &runtime,
                       const OffloadSetting &setting, const LayerBytes &bytes, double tokens) {
  LayerTasks tasks;
  const double parts = real(setting.miniBatches);
  tasks.loadWeights = bytes.wc * bytes.packedWeights / machine.h2dBandwidth;
  tasks.loadHidden = bytes.hc * bytes.hidden * tokens / machine.h2dBandwidth;
  tasks.storeHidden = bytes.hc * bytes.hidden * tokens / machine.d2hBandwidth;
  tasks.storeCache = bytes.cc * bytes.packedToken * tokens / machine.d2hBandwidth;
  const double rows = real(setting.block) / parts * tokens; // of a product
  const bool asTheyAre = setting.weights && rows <= real(machine.packedProductRows);
  if (setting.weights && !asTheyAre)
    tasks.unpackWeights = (runtime.unpackPerMiniBatch ? parts : 1) * bytes.weights / machine.devicePacking;
  if (setting.kv)
    tasks.packCache = bytes.token * tokens / cachePacking(machine);
  tasks.overhead = parts * (machine.passOverhead + (tasks.unpackWeights > 0 ? machine.unpackOverhead : 0));
  const double flops = 2 * real(model.layerWeights) * rows;
  tasks.linear = parts * std::max(flops / machine.deviceFlops,
                                  (asTheyAre ? bytes.packedWeights : bytes.weights) / machine.deviceBandwidth);
  return tasks;
}

LayerTasks prefillTasks(const OffloadModel &model, const OffloadMachine &machine, const FlexGenRuntime &runtime,
                        const OffloadSetting &setting, const LayerBytes &bytes) {
  const double tokens = real(setting.prompt);
  LayerTasks tasks = commonTasks(model, machine, runtime, setting, bytes, tokens);
  // Scores and weighted sums, 2 operations each, of the tokens up to each one.
  tasks.deviceAttention = 4 * real(model.qRows) * real(setting.block) * tokens * (tokens + 1) / 2 / machine.deviceFlops;
  return tasks;
}

// One token a sequence that attends to `context` tokens, itself included.
LayerTasks decodeTasks(const OffloadModel &model, const OffloadMachine &machine, const FlexGenRuntime &runtime,
                       const OffloadSetting &setting, const LayerBytes &bytes, double context) {
  LayerTasks tasks = commonTasks(model, machine, runtime, setting, bytes, 1);
  const bool onCpu = setting.attention == AttentionPlace::kCpu;
  const double onDevice = onCpu ? bytes.cg : 1;
  if (onCpu) {
    tasks.cpuAttention =
        bytes.cc * bytes.token * context / (setting.kv ? machine.cpuPackedAttention : machine.cpuAttention) +
        real(setting.miniBatches) * machine.cpuOverhead;
    tasks.storeHidden += bytes.cc * bytes.attended / machine.d2hBandwidth;
    tasks.loadHidden += bytes.cc * bytes.attended / machine.h2dBandwidth;
  } else {
    tasks.loadCache = bytes.cc * bytes.packedToken * (context - 1) / machine.h2dBandwidth;
  }
  if (setting.kv)
    tasks.unpackCache = onDevice * bytes.token * (context - 1) / cachePacking(machine);
  tasks.deviceAttention =
      onDevice * (machine.attendsPacked ? bytes.packedToken : bytes.token) * context / machine.deviceBandwidth;
  return tasks;
}

} // namespace

OffloadModel offloadModel(const model::ModelSpec &spec) {
  OffloadModel m;
  m.layers = spec.layers;
  m.hidden = spec.hidden;
  m.qRows = spec.qRows();
  m.kvRows = spec.kvRows();
  m.layerWeights = spec.hidden * (spec.qkvRows() + spec.qRows() + spec.upRows() + spec.intermediate);
  m.outsideWeights = spec.vocab * spec.hidden * (spec.tiedEmbeddings ? 1 : 2);
  if (spec.learnedPositions)
    m.outsideWeights += (spec.maxPositions + spec.positionOffset) * spec.hidden;
  m.longestContext = spec.longestContext();
  m.elementBytes = static_cast<int64_t>(model::dtypeBytes(spec.dtype));
  return m;
}

std::string_view attentionPlaceName(AttentionPlace place) {
  return place == AttentionPlace::kDevice ? "device" : "cpu";
}

std::string_view limitingLaneName(LimitingLane lane) {
  switch (lane) {
  case LimitingLane::kH2d:
    return "h2d";
  case LimitingLane::kD2h:
    return "d2h";
  case LimitingLane::kDuplex:
    return "both directions";
  case LimitingLane::kDevice:
    return "device";
  case LimitingLane::kCpu:
    return "cpu";
  case LimitingLane::kSerial:
    return "one after the other";
  }
  return "unknown";
}

LayerTime layerTime(const LayerTasks &tasks, const OffloadMachine &machine, const FlexGenRuntime &runtime) {
  const double both =
      (tasks.h2d() * machine.h2dBandwidth + tasks.d2h() * machine.d2hBandwidth) / machine.duplexBandwidth;
  LayerTime time{tasks.h2d(), LimitingLane::kH2d};
  const auto lane = [&](double seconds, LimitingLane limit) {
    if (seconds > time.seconds)
      time = {seconds, limit};
  };
  lane(tasks.d2h(), LimitingLane::kD2h);
  lane(both, LimitingLane::kDuplex);
  if (runtime.serial) {
    lane(tasks.h2d() + tasks.device() + tasks.cpu(), LimitingLane::kSerial);
  } else {
    lane(tasks.device(), LimitingLane::kDevice);
    lane(tasks.cpu(), LimitingLane::kCpu);
  }
  return time;
}

absl::StatusOr<ClosedForm> closedForm(const OffloadModel &model, const OffloadMachine &machine,
                                      const FlexGenRuntime &runtime, const OffloadSetting &setting) {
  RETURN_IF_ERROR(checkMachine(machine));
  RETURN_IF_ERROR(checkSetting(model, machine, setting));
  const LayerBytes bytes(model, setting);
  ClosedForm form;
  form.prefill = prefillTasks(model, machine, runtime, setting, bytes);
  form.prefillLayer = layerTime(form.prefill, machine, runtime);
  const double iterations = real(setting.output - 1), layers = real(model.layers);
  double sum = 0;
  for (int64_t token = 1; token < setting.output; ++token) {
    const LayerTime time =
        layerTime(decodeTasks(model, machine, runtime, setting, bytes, real(setting.prompt + token)), machine, runtime);
    sum += time.seconds;
    form.decodeLayer.limit = time.limit;
  }
  form.decodeLayer.seconds = sum / iterations;
  // Tasks are linear in the context, whose mean is s + n / 2.
  form.decode = decodeTasks(model, machine, runtime, setting, bytes, real(setting.prompt) + real(setting.output) / 2);
  form.iteration = layers * form.decodeLayer.seconds;
  form.generate = layers * form.prefillLayer.seconds + iterations * form.iteration;
  form.tokensPerSecond = real(setting.block * setting.output) / form.generate;
  if (machine.load > 0)
    form.init = (layers * bytes.packedWeights + real(model.outsideWeights * model.elementBytes)) / machine.load;
  return form;
}

OffloadBytes offloadBytes(const OffloadModel &model, const OffloadSetting &setting) {
  const LayerBytes bytes(model, setting);
  const double layers = real(model.layers), tokens = real(setting.prompt + setting.output);
  const double part = tokens / real(setting.miniBatches), prompts = bytes.hidden * real(setting.prompt);
  double device = layers * ((1 - bytes.wc) * bytes.packedWeights + bytes.cg * bytes.packedToken * tokens) +
                  real(model.outsideWeights * model.elementBytes) + (1 - bytes.hc) * prompts;
  device += 2 * bytes.wc * bytes.packedWeights + (setting.weights ? bytes.weights : 0);
  if (setting.attention == AttentionPlace::kDevice)
    device += 2 * bytes.cc * bytes.packedToken * part;
  if (setting.kv && (setting.attention == AttentionPlace::kDevice || bytes.cg > 0))
    device += bytes.token * part;
  const double host =
      layers * (bytes.wc * bytes.packedWeights + bytes.cc * bytes.packedToken * tokens) + bytes.hc * prompts;
  return {static_cast<uint64_t>(std::llround(device)), static_cast<uint64_t>(std::llround(host))};
}

absl::Status checkFits(const OffloadModel &model, const OffloadMachine &machine, const OffloadSetting &setting) {
  const OffloadBytes bytes = offloadBytes(model, setting);
  for (const auto &[name, need, have] :
       {std::tuple{"host", bytes.host, machine.hostBytes}, {"device", bytes.device, machine.deviceBytes}}) {
    if (need > have)
      return absl::ResourceExhaustedError(model::cat(need, " bytes of ", name, " memory: the machine has ", have));
  }
  return absl::OkStatus();
}

} // namespace headrace::cost
