// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/KeyFlags.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/base/Units.h"
#include "runtime/job/JobFile.h"
#include "runtime/model/Family.h"
#include "tools/commands/InputErrors.h"

namespace headrace::tools {
namespace {

using model::TomlValue;

constexpr FlagKind kText = FlagKind::Text, kPlain = FlagKind::Plain, kAmount = FlagKind::Amount, kList = FlagKind::List,
                   kChoice = FlagKind::Choice;
constexpr KeyFlag kKeyFlags[] = {
    {"goal", "device_memory", "--device-memory", kAmount, "device memory the plan may use, such as 8GiB"},
    {"goal", "batch", "--batch", kPlain, "sequences at once", "--max-num-seqs,--parallel"},
    {"goal", "mini_batches", "--mini-batches", kPlain,
     "parts of the batch that each layer is passed for in turn, its weights brought once: 1 to 64, and divides the "
     "batch, or auto (up to 16, what the largest decode bucket is fastest with); buckets are of one of them (default: "
     "1)"},
    {"goal", "context", "--context", kPlain,
     "longest prompt + output, in tokens (default: 2048, or the model's longest where that is less)",
     "--max-model-len,--ctx-size"},
    {"goal", "kv_tokens", "--kv-tokens", kPlain,
     "tokens the KV cache holds, or auto: what memory the weights leave (default: batch x context; of bench serve: "
     "auto)"},
    {"goal", "kv_device_memory", "--kv-device-memory", kAmount,
     "device memory that KV may take, such as 3GiB, slots for blocks on the host included; 0B: no block stays, slots "
     "take "
     "what they take (default: what fits)"},
    {"goal", "kv_host_memory", "--kv-host-memory", kAmount,
     "host memory that KV blocks may take, such as 40GiB; 0B: none leave the device (default: what the host has)"},
    {"goal", "expansion", "--expansion", kPlain,
     "all KV by what KV takes of the device, such as 1.5: with --kv-device-memory it says how much KV there is, else "
     "how "
     "much of it the device has; auto: found while it runs"},
    {"goal", "kv_dtype", "--kv-dtype", kText, "auto, f32, f16, bf16, q8 or q4 (also -ctk, -ctv)",
     "--kv-cache-dtype,--cache-type-k,--cache-type-v"},
    {"goal", "allow_quantized", "--allow-quantized", kText,
     "what may be held in 8 or 4 bits where that is better: nothing (default), weights, kv or both"},
    {"goal", "block_tokens", "--block-tokens", kPlain, "tokens per KV block", "--block-size"},
    {"goal", "elastic_kv", "--elastic-kv", kChoice,
     "KV blocks in memory that offloaded weights leave, in plans of several placements: auto (which is on), on or off"},
    {"goal", "ttft", "--ttft", kAmount,
     "time to a request's first token, to the end of its whole prompt, such as 500ms"},
    {"goal", "tpot", "--tpot", kAmount, "time per output token that an iteration of decode keeps, such as 50ms"},
    {"goal", "slo_factor", "--slo-factor", kPlain, "both as a factor of the iteration without offloading, such as 1.5"},
    {"goal", "input_len", "--input-len", kPlain,
     "tokens of the prompt that --ttft is held for (default: the longest that context and output leave)"},
    {"goal", "output_len", "--output-len", kPlain, "tokens of its output (default: 1)"},
    {"goal", "instances", "--instances", kText,
     "together: one device prefills and decodes, so objectives hold with the change between them (default); or apart"},
    {"goal", "bus_devices", "--bus-devices", kPlain, "devices that share the bus, for policies that plan with a share"},
    {"goal", "record", "--record", kText, "a performance record to price steps with"},
    {"policy", "name", "--policy", kText, "how placements are chosen"},
    {"policy", "placements", "--placements", kPlain, "how many placements the plan has, for a range to switch in"},
    {"policy", "interval", "--interval", FlagKind::Interval, "of every N layers offload the last; or none"},
    {"policy", "offload_layers", "--offload-layers", kPlain, "offload N whole layers, evenly spread"},
    {"policy", "start_rule", "--start-rule", kText, "when a copy may start: eager or paper"},
    {"policy", "slots", "--slots", kPlain, "layer-sized slots that offloaded layers take turns in"},
    {"policy", "kv_write_back", "--kv-write-back", kText,
     "how rows get home that are appended to KV blocks on the host: mirror, all, dirty, or auto (what takes least "
     "time)"},
    {"policy", "kv_places", "--kv-places", kPlain,
     "places that KV blocks at home on the host cycle through, fewer than layers: what fits stays over iterations"},
    {"policy", "residuals", "--residuals", kText,
     "where a mini-batch's residual stream waits between its layers: device, or host (it leaves and comes back)"},
    {"policy", "attention", "--attention", kText,
     "who attends for rows that decode: device, or cpu, with --kv-device-memory 0B: then neither keys nor values "
     "cross the link; auto: whichever is faster (policies joint and lm-offload)"},
    {"policy", "act_ratio", "--act-ratio", kText,
     "share of each sequence's blocks that keep activations, from which keys and values are rebuilt: 0 to 1, 1/3, "
     "or "
     "auto (what the largest decode bucket is fastest with)"},
    {"policy", "act_home", "--act-home", kText,
     "where activation blocks are between iterations: device, host or auto (on the host as many layers' as is "
     "fastest)"},
    {"policy", "percent", "--percent", kText,
     "of policy flexgen-throughput: percents of weights, KV and hidden states on the device and on the host, as "
     "FlexGen's: \"55 45 0 100 0 100\" is wg wc cg cc hg hc (default: what its linear programme finds)"},
    {"policy", "prefer", "--prefer", kText,
     "what policy joint goes by within the memory and the objectives: latency; memory, and then latency; or "
     "throughput, "
     "for which it finds the batch of up to --batch that makes the most tokens a second"},
    {"policy", "offload_embedding", "--offload-embedding", kChoice, "auto, on or off"},
    {"policy", "offload_head", "--offload-head", kChoice, "auto, on or off"},
    {"buckets", "new_tokens", "--new-tokens", kList,
     "sizes of new tokens per iteration, such as 1,8,512 (default: to 2048, beyond where --input-len makes it worth "
     "it)"},
    {"buckets", "sequences", "--sequences", kList, "sizes of sequences per iteration"},
    {"buckets", "contexts", "--contexts", kList, "sizes of context"},
    {"shape", "name", "--model-name", kText, "the shape's name"},
    {"shape", "family", "--family", kText, model::kFamilyNames},
    {"shape", "layers", "--layers", kPlain, "decoder layers"},
    {"shape", "hidden", "--hidden", kPlain, "width of the residual stream"},
    {"shape", "heads", "--heads", kPlain, "query heads"},
    {"shape", "kv_heads", "--kv-heads", kPlain, "key and value heads"},
    {"shape", "head_dim", "--head-dim", kPlain, "width of a head"},
    {"shape", "intermediate", "--intermediate", kPlain, "width of the MLP"},
    {"shape", "vocab", "--vocab", kPlain, "tokens in the vocabulary"},
    {"shape", "max_positions", "--max-positions", kPlain, "longest context of the model"},
    {"shape", "dtype", "--dtype", kText, "of the weights: f32, f16 or bf16"},
    {"shape", "weight_encoding", "--weight-encoding", kText,
     "pack weights, of a folder's model too: q8 or q4, a scale and a minimum for each 64 of them (q4:32, q4:128), or "
     "by "
     "what they are of, such as qkv=q4,head=q8; the embedding, and a head tied to it, stay as they are"},
    {"shape", "norm", "--norm", kText, "layernorm or rmsnorm"},
    {"shape", "norm_eps", "--norm-eps", kPlain, "epsilon of the normalisation"},
    {"shape", "activation", "--activation", kText, "relu, gelu, gelu_tanh or silu_gate"},
    {"shape", "qkv_bias", "--qkv-bias", kPlain, "true or false"},
    {"shape", "out_bias", "--out-bias", kPlain, "true or false"},
    {"shape", "mlp_bias", "--mlp-bias", kPlain, "true or false"},
    {"shape", "qk_norm", "--qk-norm", kPlain, "RMSNorm of each head of q and k: true or false"},
    {"shape", "tied_embeddings", "--tied-embeddings", kPlain, "true or false"},
    {"shape", "learned_positions", "--learned-positions", kPlain, "true or false"},
    {"shape", "position_offset", "--position-offset", kPlain, "rows before position 0 in a learned table"},
    {"shape", "rope_theta", "--rope-theta", kPlain, "base of the rotary embedding"},
    {"shape", "rope_scaling", "--rope-scaling", FlagKind::Table, "such as type=llama3,factor=8,..."},
    {"hardware", "name", "--hardware-name", kText, "the profile's name"},
    {"hardware", "kind", "--hardware-kind", kText, "cuda or host"},
    {"hardware", "memory", "--memory", kAmount, "device memory there is"},
    {"hardware", "reserve", "--reserve", kAmount,
     "of --memory, left to the context, graphs and libraries where --device-memory is not given"},
    {"hardware", "host_memory", "--host-memory", kAmount, "host memory there is"},
    {"hardware", "flops_f32", "--flops-f32", kAmount, "such as 31.2TFLOP/s"},
    {"hardware", "flops_f16", "--flops-f16", kAmount, "such as 125TFLOP/s"},
    {"hardware", "memory_bandwidth", "--memory-bandwidth", kAmount, "such as 600GB/s"},
    {"hardware", "h2d_bandwidth", "--h2d-bandwidth", kAmount,
     "host to device, such as 24GB/s; the two below scale with it unless given"},
    {"hardware", "d2h_bandwidth", "--d2h-bandwidth", kAmount, "device to host"},
    {"hardware", "duplex_bandwidth", "--duplex-bandwidth", kAmount, "both directions together"},
    {"hardware", "copy_latency", "--copy-latency", kAmount, "before a copy's first byte, such as 10us"},
    {"hardware", "launch_overhead", "--launch-overhead", kAmount, "of a compute step, such as 2us"},
    {"hardware", "flops_efficiency", "--flops-efficiency", kPlain, "share of peak flops that is reached"},
    {"hardware", "memory_efficiency", "--memory-efficiency", kPlain, "share of memory bandwidth that is reached"},
    {"hardware", "link_efficiency", "--link-efficiency", kPlain, "share of link bandwidth that is reached"},
    {"hardware", "product_flops_efficiency", "--product-flops-efficiency", kPlain,
     "of matrix products; this and those below where not as of all steps"},
    {"hardware", "product_memory_efficiency", "--product-memory-efficiency", kPlain, "of matrix products"},
    {"hardware", "prefill_attention_flops_efficiency", "--prefill-attention-flops-efficiency", kPlain,
     "of attention over prompts"},
    {"hardware", "prefill_attention_ramp", "--prefill-attention-ramp", kAmount,
     "such as 64us: attention whose arithmetic takes so long takes twice as long"},
    {"hardware", "decode_attention_memory_efficiency", "--decode-attention-memory-efficiency", kPlain,
     "of attention that decodes"},
    {"hardware", "attention_overhead", "--attention-overhead", kAmount, "of an attention step, such as 12us"},
    {"hardware", "plain_attention_flops_efficiency", "--plain-attention-flops-efficiency", kPlain,
     "share of --flops-f32 of attention that no tensor core computes, as of head size 256"},
    {"hardware", "row_memory_efficiency", "--row-memory-efficiency", kPlain,
     "of norms, rotation, activations and the like"},
    {"hardware", "read_kv_flops_efficiency", "--read-kv-flops-efficiency", kPlain,
     "of keys and values that attention reads, two flops each, whatever their queries"},
    {"hardware", "unpack_flops_efficiency", "--unpack-flops-efficiency", kPlain,
     "of codes of packed weights and caches made values, two flops each"},
    {"hardware", "cpu_cores", "--cpu-cores", kPlain, "of the CPU beside a CUDA device, which may attend"},
    {"hardware", "cpu_flops", "--cpu-flops", kAmount, "F32, of all its cores"},
    {"hardware", "cpu_memory_bandwidth", "--cpu-memory-bandwidth", kAmount,
     "of host memory, for its cores and the link's copies together"},
    {"hardware", "cpu_core_bandwidth", "--cpu-core-bandwidth", kAmount, "of host memory, what one core reaches"},
    {"hardware", "peer_bandwidth", "--peer-bandwidth", kAmount,
     "of a copy from one device to another, where they reach each other without the host"},
    {"hardware", "threads", "--threads", kPlain, "host: threads that compute together, which plans are priced for"},
    {"hardware", "memory_bandwidth_limit", "--memory-bandwidth-limit", kAmount, "host: of all threads together"},
};

TomlValue textValue(const std::string &text) {
  TomlValue value;
  value.kind = TomlValue::Kind::String;
  value.text = text;
  return value;
}

TomlValue booleanValue(bool boolean) {
  TomlValue value;
  value.kind = TomlValue::Kind::Boolean;
  value.boolean = boolean;
  return value;
}

// A number or a truth value; anything else as text, for the reader to refuse by what it is.
TomlValue plainValue(const std::string &text) {
  if (text == "true" || text == "false")
    return booleanValue(text == "true");
  TomlValue value;
  if (text.find_first_not_of("0123456789+-.eE") != std::string::npos)
    return textValue(text);
  if (absl::SimpleAtoi(text, &value.integer)) {
    value.kind = TomlValue::Kind::Integer;
    return value;
  }
  // Beyond 2^53 a float is not what was given, and its digits are no integer's.
  if (!absl::SimpleAtod(text, &value.number) || !(std::abs(value.number) <= 9e15))
    return textValue(text);
  value.kind = TomlValue::Kind::Float;
  return value;
}

// "1,8": spaces beside commas are nothing.
std::vector<std::string> partsOf(std::string text) {
  std::erase(text, ' ');
  return absl::StrSplit(text, ',');
}

TomlValue listValue(const std::string &text) {
  TomlValue list;
  list.kind = TomlValue::Kind::Array;
  if (!text.empty())
    for (const std::string &part : partsOf(text))
      list.items.push_back(plainValue(part));
  return list;
}

// "key=value,key=value".
absl::StatusOr<TomlValue> tableValue(const KeyFlag &flag, const std::string &text) {
  TomlValue table;
  for (const std::string &part : partsOf(text)) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos || equals == 0 ||
        part.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != equals)
      return badFlag(flag.flag, text, "key=value,key=value");
    const std::string key = part.substr(0, equals);
    if (table.find(key) != nullptr)
      return badFlag(flag.flag, text, model::cat(key, " is given twice"), "key=value,key=value");
    table.keys.push_back(key);
    table.items.push_back(plainValue(part.substr(equals + 1)));
  }
  return table;
}

absl::StatusOr<TomlValue> valueOf(const KeyFlag &flag, const std::string &text) {
  switch (flag.kind) {
  case FlagKind::Text:
  case FlagKind::Amount: // a number without a unit is shown as it was given when it is refused
    return textValue(text);
  case FlagKind::Plain:
  case FlagKind::Interval:
    return plainValue(text);
  case FlagKind::Choice:
    return text == "on" || text == "off" ? booleanValue(text == "on") : plainValue(text);
  case FlagKind::List:
    return listValue(text);
  case FlagKind::Table:
    return tableValue(flag, text);
  }
  return textValue(text);
}

} // namespace

absl::Span<const KeyFlag> keyFlags() { return kKeyFlags; }

const KeyFlag *flagOf(std::string_view section, std::string_view key) {
  const auto *const at = std::find_if(std::begin(kKeyFlags), std::end(kKeyFlags),
                                      [&](const KeyFlag &flag) { return flag.section == section && flag.key == key; });
  return at == std::end(kKeyFlags) ? nullptr : at;
}

const KeyFlag *flagOfSynonym(std::string_view synonym) {
  for (const KeyFlag &flag : kKeyFlags)
    for (const absl::string_view name : absl::StrSplit(std::string(flag.synonyms), ',', absl::SkipEmpty()))
      if (synonym == std::string_view(name.data(), name.size()))
        return &flag;
  return nullptr;
}

std::string suffixMeaning(const KeyFlag &flag, const std::string &text) {
  if (flag.kind == FlagKind::Amount) {
    const bool letter = !text.empty() && std::string_view("KMGT").find(text.back()) != std::string_view::npos;
    const absl::StatusOr<uint64_t> bytes = model::parseBytes(letter ? text : std::string(), "");
    return bytes.ok() ? model::bytesText(*bytes) : std::string();
  }
  if (flag.kind != FlagKind::Plain && flag.kind != FlagKind::List)
    return "";
  std::vector<std::string> parts = partsOf(text);
  bool any = false;
  for (std::string &part : parts)
    if (const std::optional<int64_t> count = model::parseCount(part)) {
      part = model::cat(*count);
      any = true;
    }
  return any ? absl::StrJoin(parts, ",") : std::string();
}

absl::StatusOr<TomlValue> flagTable(const FlagTexts &flags, std::string_view section) {
  TomlValue table;
  for (const KeyFlag &flag : kKeyFlags) {
    const auto given = flags.find(std::string(flag.flag));
    if (flag.section != section || given == flags.end())
      continue;
    ASSIGN_OR_RETURN(value, valueOf(flag, given->second));
    table.keys.emplace_back(flag.key);
    table.items.push_back(std::move(value));
  }
  return table;
}

model::TomlReader flagReader(const TomlValue &table, std::string_view section) {
  return {table, [section](std::string_view key) {
            const KeyFlag *flag = flagOf(section, key);
            return model::cat(kCommandLine, ": ", flag == nullptr ? key : flag->flag);
          }};
}

std::vector<std::pair<std::string, std::string>>
differingFlags(std::string_view section, const model::TomlEntries &base, const model::TomlEntries &wanted) {
  std::vector<std::pair<std::string, std::string>> flags;
  for (const KeyFlag &flag : kKeyFlags) {
    const auto named = [&](const auto &entry) { return entry.first == flag.key; };
    const auto value = std::find_if(wanted.begin(), wanted.end(), named);
    if (flag.section != section || value == wanted.end())
      continue;
    if (const auto had = std::find_if(base.begin(), base.end(), named);
        had != base.end() && had->second == value->second)
      continue;
    std::string text; // as a flag takes it: no quotes, and of tables neither braces nor spaces
    for (const char c : value->second)
      if (c != '"' && (flag.kind != FlagKind::Table || (c != '{' && c != '}' && c != ' ')))
        text += c;
    flags.emplace_back(std::string(flag.flag), text);
  }
  return flags;
}

std::string shellWord(const std::string &word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./,:=+%@";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos)
    return word;
  std::string out = "'";
  for (const char c : word)
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

namespace {

// What flags over `profile` need not say: its figures but those of classes that go with what is said of all ops, and
// what --h2d-bandwidth and --d2h-bandwidth scale.
model::TomlEntries impliedEntries(const model::Hardware &profile, const model::Hardware &wanted) {
  model::Hardware implied = impliedClasses(withH2dBandwidth(profile, wanted.h2dBandwidth), wanted);
  implied.h2dBandwidth = profile.h2dBandwidth;
  if (implied.d2hBandwidth != wanted.d2hBandwidth)
    implied.duplexBandwidth = 0; // to be said, whatever it is
  if (implied.memoryBytes != wanted.memoryBytes)
    implied.reserveBytes = 0; // likewise
  return hardwareEntries(implied);
}

} // namespace

std::vector<std::pair<std::string, std::string>> hardwareFlags(const model::Hardware &hardware) {
  absl::StatusOr<model::Hardware> profile = model::openHardware(hardware.name);
  if (!profile.ok())
    profile = model::openHardware("host");
  std::vector<std::pair<std::string, std::string>> flags = {{"--hardware", profile.ok() ? profile->name : "host"}};
  const model::TomlEntries base = profile.ok() ? impliedEntries(*profile, hardware) : model::TomlEntries{};
  for (auto &flag : differingFlags("hardware", base, model::hardwareEntries(hardware)))
    flags.push_back(std::move(flag));
  return flags;
}

} // namespace headrace::tools
