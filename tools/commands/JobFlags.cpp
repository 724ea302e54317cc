// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/JobFlags.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "runtime/base/FileIo.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/base/Units.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/Shape.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::tools {
namespace {

using model::cat;
constexpr std::string_view kWhere = "command line";

constexpr FlagKind kText = FlagKind::Text, kPlain = FlagKind::Plain, kAmount = FlagKind::Amount, kTime = FlagKind::Time,
                   kList = FlagKind::List, kChoice = FlagKind::Choice;
constexpr KeyFlag kKeyFlags[] = {
    {"goal", "device_memory", "--device-memory", kAmount, "device memory the plan may use, such as 8GiB"},
    {"goal", "batch", "--batch", kPlain, "sequences at once", "--max-num-seqs,--parallel"},
    {"goal", "context", "--context", kPlain, "longest prompt + output, in tokens", "--max-model-len,--ctx-size"},
    {"goal", "kv_tokens", "--kv-tokens", kPlain, "tokens the KV cache holds (default: batch x context)"},
    {"goal", "kv_dtype", "--kv-dtype", kText, "auto, f32, f16 or bf16", "--kv-cache-dtype"},
    {"goal", "block_tokens", "--block-tokens", kPlain, "tokens per KV block", "--block-size"},
    {"goal", "elastic_kv", "--elastic-kv", kChoice,
     "KV blocks in memory that offloaded weights leave: auto (plans of several placements for the host), on or off"},
    {"goal", "ttft", "--ttft", kTime,
     "time to first token that an iteration with prefill keeps, such as 500ms (a bare number: seconds)"},
    {"goal", "tpot", "--tpot", kTime,
     "time per output token that an iteration of decode keeps, such as 50ms (a bare number: seconds)"},
    {"goal", "slo_factor", "--slo-factor", kPlain, "both as a factor of the iteration without offloading, such as 1.5"},
    {"goal", "instances", "--instances", kText,
     "together: one device prefills and decodes, so objectives hold with the change between them (default); or apart"},
    {"goal", "bus_devices", "--bus-devices", kPlain, "devices that share the bus, for policies that plan with a share"},
    {"goal", "record", "--record", kText, "a performance record to price steps with"},
    {"policy", "name", "--policy", kText,
     "how placements are chosen: auto, interval, none, deepspeed, flexgen, flexgen-nobus, select-n or headrace"},
    {"policy", "placements", "--placements", kPlain, "how many placements the plan has, for a range to switch in"},
    {"policy", "interval", "--interval", FlagKind::Interval, "of every N layers offload the last; or none"},
    {"policy", "offload_layers", "--offload-layers", kPlain, "offload N whole layers, evenly spread"},
    {"policy", "start_rule", "--start-rule", kText, "when a copy may start: eager or paper"},
    {"policy", "slots", "--slots", kPlain, "layer-sized slots that offloaded layers take turns in"},
    {"policy", "offload_embedding", "--offload-embedding", kChoice, "auto, on or off"},
    {"policy", "offload_head", "--offload-head", kChoice, "auto, on or off"},
    {"buckets", "new_tokens", "--new-tokens", kList, "sizes of new tokens per iteration, such as 1,8,512"},
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
    {"hardware", "host_memory", "--host-memory", kAmount, "host memory there is"},
    {"hardware", "flops_f32", "--flops-f32", kAmount, "such as 31.2TFLOP/s"},
    {"hardware", "flops_f16", "--flops-f16", kAmount, "such as 125TFLOP/s"},
    {"hardware", "memory_bandwidth", "--memory-bandwidth", kAmount, "such as 600GB/s"},
    {"hardware", "h2d_bandwidth", "--h2d-bandwidth", kAmount,
     "host to device, such as 24GB/s; the two below scale with it unless given"},
    {"hardware", "d2h_bandwidth", "--d2h-bandwidth", kAmount, "device to host"},
    {"hardware", "duplex_bandwidth", "--duplex-bandwidth", kAmount, "both directions together"},
    {"hardware", "copy_latency", "--copy-latency", kTime, "before a copy's first byte, such as 10us"},
    {"hardware", "launch_overhead", "--launch-overhead", kTime, "of a compute step, such as 2us"},
    {"hardware", "flops_efficiency", "--flops-efficiency", kPlain, "share of peak flops that is reached"},
    {"hardware", "memory_efficiency", "--memory-efficiency", kPlain, "share of memory bandwidth that is reached"},
    {"hardware", "link_efficiency", "--link-efficiency", kPlain, "share of link bandwidth that is reached"},
};

absl::Status bad(std::string message) { return absl::InvalidArgumentError(message); }

// A number in TOML's spelling, a truth value as it stands, anything else as text, for the reader to refuse by what it
// is.
std::string plainValue(const std::string &value) {
  if (value == "true" || value == "false")
    return value;
  int64_t integer = 0;
  double real = 0;
  if (value.find_first_not_of("0123456789+-.eE") != std::string::npos)
    return tomlText(value);
  if (absl::SimpleAtoi(value, &integer))
    return cat(integer);
  // Beyond 2^53 a float is not what was given, and its digits are no TOML integer.
  return absl::SimpleAtod(value, &real) && std::abs(real) <= 9e15 ? tomlNumber(real) : tomlText(value);
}

std::vector<std::string> splitAt(const std::string &text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator)
      parts.emplace_back();
    else if (c != ' ')
      parts.back() += c;
  }
  return parts;
}

absl::StatusOr<std::string> tomlValue(const KeyFlag &flag, const std::string &value) {
  switch (flag.kind) {
  case FlagKind::Text:
  case FlagKind::Amount: // a number without a unit is shown as it was given when it is refused
    return tomlText(value);
  case FlagKind::Plain:
  case FlagKind::Time:
    return plainValue(value);
  case FlagKind::Interval:
    return value == "none" ? tomlText(value) : plainValue(value);
  case FlagKind::Choice:
    return value == "on" || value == "off" ? std::string(value == "on" ? "true" : "false") : plainValue(value);
  case FlagKind::List: {
    std::string out;
    for (const std::string &part : splitAt(value, ','))
      out += (out.empty() ? "" : ", ") + plainValue(part);
    return value.empty() ? std::string("[]") : "[" + out + "]";
  }
  case FlagKind::Table: {
    std::string out;
    for (const std::string &part : splitAt(value, ',')) {
      const size_t equals = part.find('=');
      if (equals == std::string::npos || equals == 0 ||
          part.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != equals)
        return bad(
            cat(kWhere, ": ", flag.flag, " = \"", model::escaped(value, 80), "\": expected key=value,key=value"));
      out += (out.empty() ? "" : ", ") + part.substr(0, equals) + " = " + plainValue(part.substr(equals + 1));
    }
    return "{ " + out + " }";
  }
  }
  return tomlText(value);
}

// The flags of one section laid over `entries`; whether there were any.
absl::StatusOr<bool> overlay(const JobInput &input, std::string_view section, TomlEntries &entries) {
  bool any = false;
  for (const KeyFlag &flag : kKeyFlags) {
    const auto given = input.flags.find(std::string(flag.flag));
    if (flag.section != section || given == input.flags.end())
      continue;
    absl::StatusOr<std::string> value = tomlValue(flag, given->second);
    if (!value.ok())
      return value.status();
    any = true;
    const auto at =
        std::find_if(entries.begin(), entries.end(), [&](const auto &entry) { return entry.first == flag.key; });
    if (at == entries.end())
      entries.emplace_back(std::string(flag.key), *value);
    else
      at->second = *value;
  }
  return any;
}

void dropKey(TomlEntries &entries, std::string_view key) {
  std::erase_if(entries, [&](const auto &entry) { return entry.first == key; });
}

// "command line:3: goal.batch = ..." -> "goal.batch = ...": the text that was read is nobody's file. Nothing for a
// message about a real one.
std::optional<std::string> withoutWhere(std::string message) {
  if (message.rfind(kWhere, 0) != 0)
    return std::nullopt;
  size_t end = kWhere.size();
  if (end < message.size() && message[end] == ':')
    for (++end; end < message.size() && message[end] >= '0' && message[end] <= '9';)
      ++end;
  if (end > kWhere.size() + 1 && message.compare(end, 1, ":") == 0) // a line's number
    ++end;
  return message.substr(std::min(message.find_first_not_of(' ', end), message.size()));
}

// The key that a message begins with, as a flag: "goal.batch = ...", or in a known section "h2d_bandwidth = ...".
const KeyFlag *flagOf(const std::string &message, std::string_view section) {
  for (const KeyFlag &flag : kKeyFlags) {
    const std::string key = section.empty() ? cat(flag.section, ".", flag.key) : std::string(flag.key);
    if ((section.empty() || flag.section == section) && message.rfind(key + " ", 0) == 0)
      return &flag;
  }
  return nullptr;
}

// Keys of a shape or a profile are given by flags alone: their files have been read.
absl::Status aboutFlags(const absl::Status &status, std::string_view section) {
  const std::optional<std::string> message = withoutWhere(std::string(status.message()));
  if (!message)
    return status;
  const KeyFlag *flag = flagOf(*message, section);
  return absl::Status(status.code(), cat(kWhere, ": ", flag == nullptr ? "" : flag->flag,
                                         flag == nullptr ? *message : message->substr(message->find(' '))));
}

absl::Status readSource(const JobInput &input, model::Job &job) {
  std::string modelName = input.modelFlag;
  if (!input.source.empty()) {
    bool isJob = false;
    if (input.source.ends_with(".toml") && model::isRegularFile(input.source)) {
      absl::StatusOr<std::string> text = model::readTextFile(input.source);
      if (!text.ok())
        return text.status();
      isJob = looksLikeJob(*text);
    }
    if (isJob) {
      absl::StatusOr<model::Job> read = model::readJob(input.source);
      if (!read.ok())
        return read.status();
      job = *std::move(read);
    } else if (!modelName.empty()) {
      return bad(cat(kWhere, ": --model ", modelName, " beside the model ", input.source, ": expected one of them"));
    } else {
      modelName = input.source;
    }
  }
  if (modelName.empty())
    return absl::OkStatus();
  absl::StatusOr<model::ModelSource> opened = model::openModel(modelName);
  if (!opened.ok())
    return input.modelFlag.empty()
               ? opened.status()
               : absl::Status(opened.status().code(), cat(kWhere, ": --model: ", opened.status().message()));
  job.model = *std::move(opened);
  return absl::OkStatus();
}

absl::Status applyShape(const JobInput &input, model::Job &job) {
  TomlEntries entries = job.model ? shapeEntries(job.model->spec) : TomlEntries{{"name", tomlText("model")}};
  absl::StatusOr<bool> any = overlay(input, "shape", entries);
  if (!any.ok() || !*any)
    return any.status();
  if (job.model && model::isDirectory(job.model->path))
    for (const KeyFlag &flag : kKeyFlags)
      if (flag.section == "shape" && input.flags.contains(std::string(flag.flag)))
        return bad(cat(kWhere, ": ", flag.flag, ": the folder ", job.model->path,
                       " says what its model is: expected shape flags beside a shape only"));
  absl::StatusOr<model::ModelSpec> spec = model::parseShape(toToml(entries), std::string(kWhere));
  if (!spec.ok())
    return aboutFlags(spec.status(), "shape");
  if (!job.model)
    job.model.emplace();
  job.model->spec = *std::move(spec);
  return absl::OkStatus();
}

absl::Status applyHardware(const JobInput &input, model::Job &job) {
  if (!input.hardwareFlag.empty() || !job.hardware) {
    const std::string name = input.hardwareFlag.empty() ? "host" : input.hardwareFlag;
    absl::StatusOr<model::Hardware> opened = model::openHardware(name);
    if (!opened.ok())
      return absl::Status(opened.status().code(), cat(kWhere, ": --hardware: ", opened.status().message()));
    job.files.push_back(name); // a shipped one's name is no file
    job.hardware = *std::move(opened);
  }
  TomlEntries entries;
  absl::StatusOr<bool> any = overlay(input, "hardware", entries);
  if (!any.ok() || !*any)
    return any.status();
  absl::StatusOr<model::Hardware> parsed = model::parseHardware(toToml(entries), std::string(kWhere), job.hardware);
  if (!parsed.ok())
    return aboutFlags(parsed.status(), "hardware");
  job.hardware = *std::move(parsed);
  return absl::OkStatus();
}

absl::Status applySections(const JobInput &input, model::Job &job) {
  std::string text;
  bool changed = false;
  for (const std::string_view section : {"goal", "policy", "buckets"}) {
    TomlEntries entries = section == "goal"     ? goalEntries(job.goal)
                          : section == "policy" ? policyEntries(job.policy)
                                                : bucketEntries(job.buckets);
    const bool interval = input.flags.contains("--interval"), layers = input.flags.contains("--offload-layers");
    // What states the placement replaces the file's policy that would choose one.
    if (section == "policy" && (interval || layers) && !input.flags.contains("--policy"))
      dropKey(entries, "name");
    // So does the policy that a flag names, which has a start rule of its own, replace the file's.
    if (const auto named = input.flags.find("--policy"); section == "policy" && named != input.flags.end() &&
                                                         named->second != "auto" && named->second != "interval" &&
                                                         !input.flags.contains("--start-rule"))
      dropKey(entries, "start_rule");
    if (section == "policy" && interval != layers) // either says how much; a flag replaces the file's other one
      dropKey(entries, interval ? "offload_layers" : "interval");
    if (section == "policy" && interval && input.flags.at("--interval") == "none") {
      dropKey(entries, "offload_embedding");
      dropKey(entries, "offload_head");
    }
    // A factor on the command line replaces the file's times, and the other way round.
    const bool factor = input.flags.contains("--slo-factor");
    const bool time = input.flags.contains("--ttft") || input.flags.contains("--tpot");
    if (section == "goal" && factor && !time) {
      dropKey(entries, "ttft");
      dropKey(entries, "tpot");
    }
    if (section == "goal" && time && !factor)
      dropKey(entries, "slo_factor");
    absl::StatusOr<bool> any = overlay(input, section, entries);
    if (!any.ok())
      return any.status();
    changed = changed || *any;
    text += cat("[", section, "]\n", toToml(entries));
  }
  if (!changed)
    return absl::OkStatus();
  absl::StatusOr<model::Job> parsed = model::parseJob(text, std::string(kWhere));
  if (!parsed.ok())
    return aboutInput(input, parsed.status());
  job.goal = parsed->goal;
  job.policy = parsed->policy;
  job.buckets = parsed->buckets;
  return absl::OkStatus();
}

// A flag of another engine becomes one of ours, unless ours was given as well.
absl::Status translate(JobInput &input, const std::string &alias, const std::string &flag, const std::string &value,
                       std::vector<std::string> &notes) {
  const auto [at, added] = input.flags.emplace(flag, value);
  if (!added && at->second != value)
    return bad(cat(kWhere, ": ", alias, " means ", flag, " ", value, ", and ", flag, " ", at->second,
                   " is given: expected one of them"));
  notes.push_back(cat(alias, " means ", flag, " ", value));
  return absl::OkStatus();
}

absl::Status translateAliases(JobInput &input, const model::Job &job, std::vector<std::string> &notes) {
  for (const KeyFlag &flag : kKeyFlags)
    for (const std::string &synonym : splitAt(std::string(flag.synonyms), ','))
      if (const auto given = input.synonyms.find(synonym); given != input.synonyms.end())
        if (absl::Status status =
                translate(input, cat(synonym, " ", given->second), std::string(flag.flag), given->second, notes);
            !status.ok())
          return status;
  if (input.gpuMemoryUtilization) {
    double share = 0;
    if (!absl::SimpleAtod(*input.gpuMemoryUtilization, &share) || !(share > 0 && share <= 1))
      return bad(cat(kWhere, ": --gpu-memory-utilization = \"", model::escaped(*input.gpuMemoryUtilization, 40),
                     "\": expected a share above 0 and at most 1"));
    const auto bytes = static_cast<uint64_t>(share * static_cast<double>(job.hardware->memoryBytes));
    if (absl::Status status = translate(input,
                                        cat("--gpu-memory-utilization ", *input.gpuMemoryUtilization, " (of the ",
                                            job.hardware->memoryBytes, " bytes of ", job.hardware->name, ")"),
                                        "--device-memory", model::bytesText(bytes), notes);
        !status.ok())
      return status;
  }
  const model::ModelSpec &spec = job.model->spec;
  if (input.gpuLayers) {
    int64_t onDevice = 0;
    if (!absl::SimpleAtoi(*input.gpuLayers, &onDevice) || onDevice < -1)
      return bad(cat(kWhere, ": --n-gpu-layers = \"", model::escaped(*input.gpuLayers, 40),
                     "\": expected a number of layers, or -1 for all"));
    const int64_t offloaded = onDevice < 0 ? 0 : std::max<int64_t>(0, spec.layers - onDevice);
    if (absl::Status status = translate(input, cat("--n-gpu-layers ", onDevice, " (of ", spec.layers, ")"),
                                        "--offload-layers", cat(offloaded), notes);
        !status.ok())
      return status;
  }
  if (input.cpuOffloadGb) {
    double gib = 0;
    if (!absl::SimpleAtod(*input.cpuOffloadGb, &gib) || !(gib >= 0 && gib < 1e9))
      return bad(cat(kWhere, ": --cpu-offload-gb = \"", model::escaped(*input.cpuOffloadGb, 40),
                     "\": expected GiB of weights, 0 or more"));
    const uint64_t layerBytes = model::layoutWeights(spec).layerBytes(0);
    const auto layers =
        static_cast<int64_t>(gib * static_cast<double>(uint64_t{1} << 30) / static_cast<double>(layerBytes));
    if (gib > 0 && layers == 0)
      return bad(cat(kWhere, ": --cpu-offload-gb = ", *input.cpuOffloadGb, ": expected 0, or at least the ", layerBytes,
                     " bytes of one layer of ", spec.name));
    if (absl::Status status =
            translate(input, cat("--cpu-offload-gb ", *input.cpuOffloadGb, " (", layerBytes, " bytes a layer)"),
                      "--offload-layers", cat(std::min(layers, spec.layers)), notes);
        !status.ok())
      return status;
  }
  return absl::OkStatus();
}

} // namespace

absl::Span<const KeyFlag> keyFlags() { return kKeyFlags; }

absl::Status aboutInput(const JobInput &input, const absl::Status &status) {
  std::string message(status.message());
  if (const std::optional<std::string> bare = withoutWhere(message))
    message = *bare;
  const KeyFlag *flag = flagOf(message, "");
  if (flag == nullptr)
    return status;
  const bool given = input.flags.contains(std::string(flag->flag));
  const bool profile = flag->section == "hardware" && !input.hardwareFlag.empty();
  std::string where = cat(kWhere, ": ", flag->flag, message.substr(message.find(' ')));
  if (!given && profile)
    where = cat(kWhere, ": --hardware ", input.hardwareFlag, ": ", message);
  else if (!given && input.source.ends_with(".toml"))
    where = cat(input.source, ": ", message);
  return absl::Status(status.code(), where);
}

bool JobInput::any() const {
  return !modelFlag.empty() || !hardwareFlag.empty() || !flags.empty() || !synonyms.empty() || gpuMemoryUtilization ||
         cpuOffloadGb || gpuLayers;
}

std::vector<std::pair<std::string, std::string>> differingFlags(std::string_view section, const TomlEntries &base,
                                                                const TomlEntries &wanted) {
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

bool looksLikeJob(std::string_view text) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t start = line.find_first_not_of(" \t[");
    if (start == std::string_view::npos)
      continue;
    line.remove_prefix(start);
    for (const std::string_view section : {"model", "hardware", "goal", "policy", "buckets"}) {
      const std::string_view rest = line.substr(0, section.size()) == section ? line.substr(section.size()) : "";
      const size_t next = rest.find_first_not_of(" \t");
      if (next != std::string_view::npos && (rest[next] == ']' || rest[next] == '.' || rest[next] == '='))
        return true;
    }
  }
  return false;
}

absl::StatusOr<AssembledJob> assembleJob(const JobInput &given) {
  JobInput input = given;
  AssembledJob out;
  for (const auto &step : {readSource, applyShape})
    RETURN_IF_ERROR(step(input, out.job));
  if (!out.job.model)
    return bad(input.source.empty() ? cat(kWhere, ": no model: expected a folder, a shape, or a job file")
                                    : cat(input.source, ": no [model]: expected one, or --model"));
  RETURN_IF_ERROR(applyHardware(input, out.job));
  RETURN_IF_ERROR(translateAliases(input, out.job, out.notes));
  RETURN_IF_ERROR(applySections(input, out.job));
  if (absl::Status status = model::validate(out.job, kWhere); !status.ok())
    return aboutInput(input, status);
  out.input = std::move(input);
  for (const std::string &file : {out.job.model->path, out.job.goal.record})
    if (!file.empty())
      out.job.files.push_back(file);
  return out;
}

} // namespace headrace::tools
