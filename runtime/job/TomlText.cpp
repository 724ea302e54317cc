// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/TomlText.h"

#include <charconv>

#include "runtime/base/Text.h"
#include "runtime/base/Units.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::model {
namespace {

std::string number(double value) { return tomlNumber(value); }
std::string number(int64_t value) { return cat(value); }
std::string boolean(bool value) { return value ? "true" : "false"; }
std::string text(std::string_view value) { return tomlText(value); }

} // namespace

std::string tomlText(std::string_view value) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += {'\\', c};
    else if (byte < 0x20 || byte == 0x7f)
      out += cat("\\u00", std::string{kHex[byte >> 4], kHex[byte & 15]});
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

TomlEntries shapeEntries(const ModelSpec &spec) {
  TomlEntries e = {{"name", text(spec.name)},
                   {"family", text(familyName(spec.family))},
                   {"layers", number(spec.layers)},
                   {"hidden", number(spec.hidden)},
                   {"heads", number(spec.heads)},
                   {"kv_heads", number(spec.kvHeads)},
                   {"head_dim", number(spec.headDim)},
                   {"intermediate", number(spec.intermediate)},
                   {"vocab", number(spec.vocab)},
                   {"max_positions", number(spec.maxPositions)},
                   {"dtype", text(dtypeName(spec.dtype))},
                   {"norm", text(normName(spec.norm))},
                   {"norm_eps", number(spec.normEps)},
                   {"activation", text(activationName(spec.activation))},
                   {"qkv_bias", boolean(spec.qkvBias)},
                   {"out_bias", boolean(spec.outBias)},
                   {"mlp_bias", boolean(spec.mlpBias)},
                   {"tied_embeddings", boolean(spec.tiedEmbeddings)},
                   {"learned_positions", boolean(spec.learnedPositions)},
                   {"position_offset", number(spec.positionOffset)}};
  if (spec.qkNorm || spec.family == Family::Qwen3) // whose default it is; elsewhere absent as it has always been
    e.emplace_back("qk_norm", boolean(spec.qkNorm));
  if (spec.encodings.any()) // elsewhere absent: no checkpoint says it
    e.emplace_back("weight_encoding", text(weightEncodingText(spec)));
  if (spec.isStage()) {
    e.emplace_back("stage_first_layer", number(spec.stage.first));
    e.emplace_back("stage_of_layers", number(spec.stage.of));
    e.emplace_back("stage_tied_head", boolean(spec.stage.tied));
  }
  if (spec.rope.enabled) {
    e.emplace_back("rope_theta", number(spec.rope.theta));
    std::string scaling = cat("{ type = ", text(ropeScalingName(spec.rope.scaling)));
    if (spec.rope.scaling != RopeScalingKind::None)
      scaling += ", factor = " + number(spec.rope.factor);
    if (spec.rope.scaling == RopeScalingKind::Llama3)
      scaling += ", low_freq_factor = " + number(spec.rope.lowFreqFactor) +
                 ", high_freq_factor = " + number(spec.rope.highFreqFactor) +
                 ", original_max_positions = " + number(spec.rope.originalMaxPositions);
    e.emplace_back("rope_scaling", scaling + " }");
  }
  return e;
}

TomlEntries hardwareEntries(const Hardware &hardware) {
  TomlEntries e = {{"name", text(hardware.name)},
                   {"kind", text(deviceKindName(hardware.kind))},
                   {"memory", text(bytesText(hardware.memoryBytes))}};
  if (hardware.reserveBytes > 0)
    e.emplace_back("reserve", text(bytesText(hardware.reserveBytes)));
  if (hardware.hostMemoryBytes > 0)
    e.emplace_back("host_memory", text(bytesText(hardware.hostMemoryBytes)));
  const TomlEntries rates = {{"flops_f32", text(flopsText(hardware.flopsF32))},
                             {"flops_f16", text(flopsText(hardware.flopsF16))},
                             {"memory_bandwidth", text(bandwidthText(hardware.memoryBandwidth))},
                             {"h2d_bandwidth", text(bandwidthText(hardware.h2dBandwidth))},
                             {"d2h_bandwidth", text(bandwidthText(hardware.d2hBandwidth))},
                             {"duplex_bandwidth", text(bandwidthText(hardware.duplexBandwidth))},
                             {"copy_latency", text(secondsText(hardware.copyLatency))},
                             {"launch_overhead", text(secondsText(hardware.launchOverhead))},
                             {"flops_efficiency", number(hardware.flopsEfficiency)},
                             {"memory_efficiency", number(hardware.memoryEfficiency)},
                             {"link_efficiency", number(hardware.linkEfficiency)}};
  e.insert(e.end(), rates.begin(), rates.end());
  // What is missing is what most profiles have.
  for (const ClassKey &key : classKeys())
    if (const double value = hardware.classes.*key.field; value > 0)
      e.emplace_back(key.key, key.time ? text(secondsText(value)) : number(value));
  if (const Cpu &cpu = hardware.cpu; cpu.known()) {
    e.emplace_back("cpu_cores", number(cpu.cores));
    e.emplace_back("cpu_flops", text(flopsText(cpu.flops)));
    e.emplace_back("cpu_memory_bandwidth", text(bandwidthText(cpu.memoryBandwidth)));
    e.emplace_back("cpu_core_bandwidth", text(bandwidthText(cpu.coreBandwidth)));
  }
  if (hardware.peerBandwidth > 0)
    e.emplace_back("peer_bandwidth", text(bandwidthText(hardware.peerBandwidth)));
  if (hardware.threads != Hardware().threads)
    e.emplace_back("threads", number(hardware.threads));
  if (hardware.memoryBandwidthLimit > 0)
    e.emplace_back("memory_bandwidth_limit", text(bandwidthText(hardware.memoryBandwidthLimit)));
  return e;
}

} // namespace headrace::model
