// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/JobFlags.h"

#include <algorithm>

#include "compiler/search/generators/Generators.h"
#include "runtime/base/FileIo.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/base/Units.h"
#include "runtime/job/JobSections.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/Shape.h"
#include "tools/commands/EngineFlags.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/Machine.h"

namespace headrace::tools {
namespace {

using model::cat;

absl::Status readSource(const JobInput &input, model::Job &job) {
  std::string modelName = input.modelFlag;
  std::string text;
  if (model::isTomlPath(input.source) && model::isRegularFile(input.source)) {
    ASSIGN_OR_RETURN(read, model::readTextFile(input.source));
    text = std::move(read);
  }
  if (looksLikeJob(text)) {
    ASSIGN_OR_RETURN(read, model::parseJob(text, input.source, input.folder));
    job = std::move(read);
    job.files.push_back(input.source);
  } else if (!input.source.empty() && !modelName.empty()) {
    return badUsage(cat("--model ", modelName, " beside the model ", input.source, ": expected one of them"));
  } else if (!input.source.empty()) {
    modelName = input.source;
  }
  if (modelName.empty())
    return absl::OkStatus();
  absl::StatusOr<model::ModelSource> opened = model::openModel(modelName, input.folder);
  if (!opened.ok())
    return input.modelFlag.empty()
               ? opened.status()
               : absl::Status(opened.status().code(), cat(kCommandLine, ": --model: ", opened.status().message()));
  job.model = *std::move(opened);
  return absl::OkStatus();
}

// A message about a key, "policy.attention = "cpu": expected goal.kv_device_memory = "0B" beside it", with all keys
// behind the first as the flags that set them: where those were given, or no file is there that could set them.
std::string keysAsFlags(const JobInput &input, const std::string &message) {
  constexpr std::string_view kOfKeys = "abcdefghijklmnopqrstuvwxyz0123456789_";
  std::string text;
  for (size_t at = 0; at < message.size();) {
    const size_t first = message.find_first_of(kOfKeys, at), end = message.find_first_not_of(kOfKeys, first);
    if (first == std::string::npos)
      return text + message.substr(at);
    text += message.substr(at, first - at);
    at = std::min(end, message.size());
    const std::string section = message.substr(first, at - first);
    // Behind "FILE: " it is that file's.
    const bool begins = first > 1 && message[first - 1] == ' ' && message[first - 2] != ':' && at < message.size() &&
                        message[at] == '.';
    const size_t last = begins ? std::min(message.find_first_not_of(kOfKeys, at + 1), message.size()) : at;
    const KeyFlag *flag = begins ? flagOf(section, message.substr(at + 1, last - at - 1)) : nullptr;
    if (flag != nullptr && (!input.isJob || input.flags.contains(std::string(flag->flag)))) {
      text += flag->flag;
      at = last;
    } else {
      text += section;
    }
  }
  return text;
}

// A message about a key, "goal.batch = 0: ..." or "hardware: memory = 0: ...": its flag, and the rest behind the key.
struct Refused {
  const KeyFlag *flag;
  std::string rest;
  std::string text() const { return cat(kCommandLine, ": ", flag->flag, rest); }
};
std::optional<Refused> refusedOf(const std::string &message) {
  const size_t point = message.find_first_of(".:");
  if (point == std::string::npos)
    return std::nullopt;
  const size_t key = message[point] == '.' ? point + 1 : point + 2;
  const size_t end = message.find(' ', key);
  if (end == std::string::npos)
    return std::nullopt;
  const std::string section = message.substr(0, point);
  // The compiler calls a shape "model".
  const KeyFlag *flag = flagOf(section == "model" ? "shape" : section, message.substr(key, end - key));
  return flag == nullptr ? std::nullopt : std::optional(Refused{flag, message.substr(end)});
}

// Of a shape or a profile with flags over it, which was right without them: the flag that would say it otherwise.
absl::Status aboutFlags(const absl::Status &status) {
  const std::optional<Refused> refused = refusedOf(std::string(status.message()));
  return refused ? absl::Status(status.code(), refused->text()) : status;
}

absl::Status applyShape(const JobInput &input, model::Job &job) {
  ASSIGN_OR_RETURN(values, flagTable(input.flags, "shape"));
  if (values.keys.empty())
    return absl::OkStatus();
  if (job.model && model::isDirectory(job.model->path))
    for (const std::string &key : values.keys)
      if (key != "weight_encoding") // which no folder says
        return badUsage(cat(flagOf("shape", key)->flag, ": the folder ", job.model->path,
                            " says what its model is: expected shape flags beside a shape only"));
  std::optional<model::ModelSpec> base;
  if (job.model)
    base = *job.model->spec;
  model::TomlReader table = flagReader(values, "shape");
  absl::StatusOr<model::ModelSpec> spec = model::parseShapeTable(table, "shape", "model", base ? &*base : nullptr);
  if (!spec.ok())
    return aboutFlags(spec.status());
  if (!job.model)
    job.model.emplace();
  else if (!job.model->ofPath)
    job.model->ofPath.emplace(*base);
  job.model->spec = *std::move(spec);
  return absl::OkStatus();
}

// The machine's own, where neither the command line nor a job file has one.
absl::Status findHardware(const std::string &device, AssembledJob &out) {
  ASSIGN_OR_RETURN(machine, thisMachine());
  ASSIGN_OR_RETURN(found, machineHardware(machine, device));
  out.job.hardware = std::move(found.hardware);
  out.job.sharedMemory = found.sharedMemory;
  out.device = std::move(found.device);
  out.notes.push_back(std::move(found.said));
  return absl::OkStatus();
}

// A file's link that is slower than any that is built: a unit was meant otherwise. What a flag says is meant.
void noteSlowLink(const JobInput &input, AssembledJob &out) {
  constexpr double kSlowest = 250e6; // bytes/s: one lane of PCIe 1.0
  const model::Hardware &hardware = *out.job.hardware;
  const bool up = hardware.h2dBandwidth < kSlowest;
  const double slow = up ? hardware.h2dBandwidth : hardware.d2hBandwidth;
  const std::string key = up ? "h2d_bandwidth" : "d2h_bandwidth";
  if (slow >= kSlowest || input.flags.contains(up ? "--h2d-bandwidth" : "--d2h-bandwidth"))
    return;
  out.notes.push_back(cat("warning: hardware ", hardware.name, ": ", key, " = ", model::bandwidthText(slow),
                          ": slower than one lane of PCIe 1.0, 250 MB/s"));
}

absl::Status applyHardware(const JobInput &input, AssembledJob &out) {
  model::Job &job = out.job;
  if (!input.hardwareFlag.empty()) {
    absl::StatusOr<model::Hardware> opened = model::openHardware(input.hardwareFlag);
    if (!opened.ok())
      return absl::Status(opened.status().code(), cat(kCommandLine, ": --hardware: ", opened.status().message()));
    job.files.push_back(input.hardwareFlag); // a shipped one's name is no file
    job.hardware = *std::move(opened);
  } else if (!job.hardware) {
    RETURN_IF_ERROR(findHardware(input.device, out));
  }
  noteSlowLink(input, out);
  FlagTexts flags = input.flags;
  if (input.deviceThreads && job.hardware->kind == model::DeviceKind::Cuda &&
      (input.device.empty() || input.device == deviceFor(model::DeviceKind::Cuda)))
    flags.erase("--threads"); // of the CPU's lane, no figure of the card
  ASSIGN_OR_RETURN(values, flagTable(flags, "hardware"));
  if (values.keys.empty())
    return absl::OkStatus();
  model::TomlReader table = flagReader(values, "hardware");
  absl::StatusOr<model::Hardware> changed = model::parseHardwareTable(table, "hardware", "", job.hardware);
  if (!changed.ok())
    return aboutFlags(changed.status());
  job.hardware = *std::move(changed);
  if (input.flags.contains("--memory") || input.flags.contains("--host-memory"))
    job.sharedMemory.reset(); // what there is of each is said
  return absl::OkStatus();
}

absl::Status applyGoal(const JobInput &input, model::Goal &goal) {
  // A factor on the command line replaces the file's times, and the other way round.
  const bool factor = input.flags.contains("--slo-factor");
  const bool time = input.flags.contains("--ttft") || input.flags.contains("--tpot");
  if (factor && !time)
    goal.ttft = goal.tpot = std::nullopt;
  if (time && !factor)
    goal.sloFactor.reset();
  ASSIGN_OR_RETURN(values, flagTable(input.flags, "goal"));
  model::TomlReader table = flagReader(values, "goal");
  return model::readGoal(table, /*folder=*/"", goal);
}

absl::Status applyPolicy(const JobInput &input, model::Policy &policy) {
  const auto named = input.flags.find("--policy"), interval = input.flags.find("--interval"), none = input.flags.end();
  const bool layers = input.flags.contains("--offload-layers");
  // What states the placement replaces the file's policy that would choose one, and the file's other way to state it.
  if ((interval != none || layers) && named == none)
    policy.name = model::Policy{}.name;
  if (interval != none && !layers)
    policy.offloadLayers.reset();
  if (interval == none && layers) {
    policy.interval.reset();
    policy.none = false;
  }
  if (interval != none && interval->second == "none")
    policy.offloadEmbedding = policy.offloadHead = model::AutoOnOff::Auto;
  // So does the policy that a flag names, which has a start rule of its own, replace the file's.
  if (named != none && !compiler::policyNamed(named->second).statesPlacement) {
    policy.startRule = model::Policy{}.startRule;
    policy.startRuleStated = false;
  }
  ASSIGN_OR_RETURN(values, flagTable(input.flags, "policy"));
  model::TomlReader table = flagReader(values, "policy");
  return model::readPolicy(table, policy);
}

absl::Status applyBuckets(const JobInput &input, model::Buckets &buckets) {
  ASSIGN_OR_RETURN(values, flagTable(input.flags, "buckets"));
  model::TomlReader table = flagReader(values, "buckets");
  return model::readBuckets(table, buckets);
}

} // namespace

std::string deviceFor(model::DeviceKind kind) { return kind == model::DeviceKind::Cuda ? "cuda" : "host"; }

absl::Status aboutInput(const JobInput &input, const absl::Status &status) {
  const std::string message = keysAsFlags(input, std::string(status.message()));
  const std::optional<Refused> refused = refusedOf(message);
  if (!refused)
    return message == status.message() ? status : absl::Status(status.code(), message);
  const bool given = input.flags.contains(std::string(refused->flag->flag));
  const bool profile = refused->flag->section == "hardware" && !input.hardwareFlag.empty();
  std::string where = refused->text();
  if (!given && profile)
    where = cat(kCommandLine, ": --hardware ", input.hardwareFlag, ": ", message);
  else if (!given && input.isJob)
    where = cat(input.source, ": ", message);
  else if (!given) // what follows from others
    where = cat(kCommandLine, ": ", refused->flag->flag, " is not given and comes to",
                refused->rest.starts_with(" =") ? refused->rest.substr(2) : refused->rest);
  return absl::Status(status.code(), where);
}

bool JobInput::any() const {
  return !modelFlag.empty() || !hardwareFlag.empty() || flags.size() > (deviceThreads ? 1 : 0) || !synonyms.empty() ||
         gpuMemoryUtilization || cpuOffloadGb || gpuLayers || kvOffloadingSize || allowMissed;
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
  model::Job &job = out.job;
  RETURN_IF_ERROR(readSource(input, job));
  input.isJob = !job.files.empty();
  RETURN_IF_ERROR(applyShape(input, job));
  if (!job.model)
    return input.source.empty()
               ? badUsage("no model: expected a folder, a shape, or a job file")
               : absl::InvalidArgumentError(cat(input.source, ": no [model]: expected one, or --model"));
  RETURN_IF_ERROR(applyHardware(input, out));
  if (out.device.empty())
    out.device = deviceFor(job.hardware->kind);
  RETURN_IF_ERROR(translateEngineFlags(input, job, out.notes));
  for (const auto &[name, text] : input.flags)
    for (const KeyFlag &flag : keyFlags())
      if (const std::string meaning = flag.flag == name ? suffixMeaning(flag, text) : std::string(); !meaning.empty())
        out.notes.push_back(cat(name, " ", text, " means ", meaning));
  RETURN_IF_ERROR(applyGoal(input, job.goal));
  RETURN_IF_ERROR(applyPolicy(input, job.policy));
  RETURN_IF_ERROR(applyBuckets(input, job.buckets));
  if (absl::Status status = model::validate(job, /*where=*/""); !status.ok())
    return aboutInput(input, status);
  // What the compiler would refuse in the end is refused before work starts. One that is not named may yet be (bench).
  if (out.job.policy.name != model::Policy().name)
    if (absl::Status status = compiler::checkPolicy(out.job.policy, out.job.goal); !status.ok())
      return aboutInput(input, status);
  out.input = std::move(input);
  for (const std::string &file : {job.model->path, job.goal.record})
    if (!file.empty())
      job.files.push_back(file);
  return out;
}

} // namespace headrace::tools
