// SPDX-License-Identifier: Apache-2.0
#include "tools/JobToml.h"

#include <charconv>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/model/Text.h"
#include "runtime/model/Units.h"

namespace headrace::tools {
namespace {

std::string number(double value) { return tomlNumber(value); }
std::string number(int64_t value) { return absl::StrFormat("%d", value); }
std::string number(uint64_t value) { return absl::StrFormat("%d", value); }
std::string boolean(bool value) { return value ? "true" : "false"; }
std::string text(std::string_view value) { return tomlText(std::string(value)); }

std::string list(const std::vector<int64_t> &values) { return model::cat("[", absl::StrJoin(values, ", "), "]"); }

} // namespace

std::string tomlText(const std::string &value) {
  std::string out = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\')
      out += '\\';
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<unsigned>(c));
    else
      out += c;
  }
  return out + "\"";
}

std::string tomlNumber(double value) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof(text), value).ptr);
}

std::string toToml(const TomlEntries &entries) {
  std::string out;
  for (const auto &[key, value] : entries)
    out.append(key).append(" = ").append(value).append("\n");
  return out;
}

TomlEntries shapeEntries(const model::ModelSpec &spec) {
  TomlEntries e = {{"name", text(spec.name)},
                   {"family", text(model::familyName(spec.family))},
                   {"layers", number(spec.layers)},
                   {"hidden", number(spec.hidden)},
                   {"heads", number(spec.heads)},
                   {"kv_heads", number(spec.kvHeads)},
                   {"head_dim", number(spec.headDim)},
                   {"intermediate", number(spec.intermediate)},
                   {"vocab", number(spec.vocab)},
                   {"max_positions", number(spec.maxPositions)},
                   {"dtype", text(model::dtypeName(spec.dtype))},
                   {"norm", text(model::normName(spec.norm))},
                   {"norm_eps", number(spec.normEps)},
                   {"activation", text(model::activationName(spec.activation))},
                   {"qkv_bias", boolean(spec.qkvBias)},
                   {"out_bias", boolean(spec.outBias)},
                   {"mlp_bias", boolean(spec.mlpBias)},
                   {"tied_embeddings", boolean(spec.tiedEmbeddings)},
                   {"learned_positions", boolean(spec.learnedPositions)},
                   {"position_offset", number(spec.positionOffset)}};
  if (spec.rope.enabled) {
    e.emplace_back("rope_theta", number(spec.rope.theta));
    std::string scaling = model::cat("{ type = ", text(model::ropeScalingName(spec.rope.scaling)));
    if (spec.rope.scaling != model::RopeScalingKind::None)
      scaling += ", factor = " + number(spec.rope.factor);
    if (spec.rope.scaling == model::RopeScalingKind::Llama3)
      scaling += ", low_freq_factor = " + number(spec.rope.lowFreqFactor) +
                 ", high_freq_factor = " + number(spec.rope.highFreqFactor) +
                 ", original_max_positions = " + number(spec.rope.originalMaxPositions);
    e.emplace_back("rope_scaling", scaling + " }");
  }
  return e;
}

TomlEntries hardwareEntries(const model::Hardware &hardware) {
  return {{"name", text(hardware.name)},
          {"kind", text(model::deviceKindName(hardware.kind))},
          {"memory", number(hardware.memoryBytes)},
          {"host_memory", number(hardware.hostMemoryBytes)},
          {"flops_f32", number(hardware.flopsF32)},
          {"flops_f16", number(hardware.flopsF16)},
          {"memory_bandwidth", number(hardware.memoryBandwidth)},
          {"h2d_bandwidth", number(hardware.h2dBandwidth)},
          {"d2h_bandwidth", number(hardware.d2hBandwidth)},
          {"duplex_bandwidth", number(hardware.duplexBandwidth)},
          {"copy_latency", number(hardware.copyLatency)},
          {"launch_overhead", number(hardware.launchOverhead)},
          {"flops_efficiency", number(hardware.flopsEfficiency)},
          {"memory_efficiency", number(hardware.memoryEfficiency)},
          {"link_efficiency", number(hardware.linkEfficiency)}};
}

TomlEntries goalEntries(const model::Goal &goal) {
  TomlEntries e;
  if (goal.deviceMemory)
    e.emplace_back("device_memory", number(*goal.deviceMemory));
  if (goal.batch)
    e.emplace_back("batch", number(*goal.batch));
  if (goal.context)
    e.emplace_back("context", number(*goal.context));
  if (goal.kvTokens)
    e.emplace_back("kv_tokens", number(*goal.kvTokens));
  if (goal.kvDtype)
    e.emplace_back("kv_dtype", text(model::dtypeName(*goal.kvDtype)));
  e.emplace_back("block_tokens", number(goal.blockTokens));
  for (const auto &[key, ns] : {std::pair("ttft", goal.ttftNs), std::pair("tpot", goal.tpotNs)})
    if (ns)
      e.emplace_back(key, text(model::durationText(*ns)));
  if (goal.sloFactor)
    e.emplace_back("slo_factor", number(*goal.sloFactor));
  if (goal.busDevices != 1)
    e.emplace_back("bus_devices", number(goal.busDevices));
  if (!goal.record.empty())
    e.emplace_back("record", text(goal.record));
  return e;
}

TomlEntries policyEntries(const model::Policy &policy) {
  TomlEntries e = {{"name", text(policy.name)}};
  if (policy.none)
    e.emplace_back("interval", text("none"));
  if (policy.interval)
    e.emplace_back("interval", number(*policy.interval));
  if (policy.offloadLayers)
    e.emplace_back("offload_layers", number(*policy.offloadLayers));
  e.emplace_back("start_rule", text(model::startRuleName(policy.startRule)));
  if (policy.slots)
    e.emplace_back("slots", number(*policy.slots));
  if (policy.offloadEmbedding != model::Choice::Auto)
    e.emplace_back("offload_embedding", boolean(policy.offloadEmbedding == model::Choice::On));
  if (policy.offloadHead != model::Choice::Auto)
    e.emplace_back("offload_head", boolean(policy.offloadHead == model::Choice::On));
  if (policy.placements)
    e.emplace_back("placements", number(*policy.placements));
  return e;
}

TomlEntries bucketEntries(const model::Buckets &buckets) {
  TomlEntries e;
  if (!buckets.newTokens.empty())
    e.emplace_back("new_tokens", list(buckets.newTokens));
  if (!buckets.sequences.empty())
    e.emplace_back("sequences", list(buckets.sequences));
  if (!buckets.contexts.empty())
    e.emplace_back("contexts", list(buckets.contexts));
  return e;
}

} // namespace headrace::tools
