// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/JobFile.h"

#include <algorithm>
#include <iterator>

#include "runtime/base/FileIo.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/base/TomlReader.h"
#include "runtime/job/Examples.h"
#include "runtime/job/JobSections.h"
#include "runtime/job/TomlText.h"
#include "runtime/model/HfConfig.h"
#include "runtime/model/Shape.h"

namespace headrace::model {
namespace {

absl::StatusOr<ModelSource> openModelAt(const std::string &path, const FolderOptions &options) {
  ModelSource source;
  source.path = path;
  source.options = options;
  if (isDirectory(path)) {
    ASSIGN_OR_RETURN(folder, readHfFolder(path, options));
    source.spec = folder.spec;
    source.checkpoint = std::move(folder.checkpoint);
    source.notes = std::move(folder.notes);
    return source;
  }
  if (const std::string text = modelFileText(path); !text.empty())
    return absl::InvalidArgumentError(text);
  if (!isTomlPath(path))
    return absl::InvalidArgumentError(cat(path, ": expected a Hugging Face model folder, or a shape's .toml file"));
  ASSIGN_OR_RETURN(text, readExample(path));
  ASSIGN_OR_RETURN(spec, parseShape(text, path));
  source.spec = spec;
  return source;
}

absl::StatusOr<Hardware> openHardwareAt(const std::string &path) {
  ASSIGN_OR_RETURN(text, readExample(path));
  return parseHardware(text, path);
}

// A refusal of what a key of the file led to, with the key in front.
absl::Status behind(const std::string &where, const absl::Status &status) {
  return absl::Status(status.code(), cat(where, ": ", status.message()));
}

absl::Status packWeights(const std::string &text, const std::string &where, ModelSource &model) {
  ModelSpec spec = model.spec;
  std::string expected;
  const std::optional<WeightEncodings> encodings = weightEncodingsFromText(text, spec, expected);
  if (!encodings)
    return absl::InvalidArgumentError(
        cat(where, ": model.weight_encoding = \"", escaped(text, 80), "\": expected ", expected));
  spec.encodings = *encodings;
  RETURN_IF_ERROR(validate(spec, where));
  model.ofPath.emplace(model.spec);
  model.spec = std::move(spec);
  return absl::OkStatus();
}

absl::Status readModel(TomlReader &table, const std::string &path, const FolderOptions &options, Job &job) {
  for (std::string_view key : {"path", "shape"}) {
    if (!table.has(key))
      continue;
    const std::optional<std::string> given = table.text(key), encoding = table.text("weight_encoding");
    if (absl::Status status = table.finish(); !status.ok()) // also refuses any key beside it
      return status;
    absl::StatusOr<std::string> resolved = resolveExample(folderOf(path), *given, "models");
    if (!resolved.ok())
      return behind(table.where(key), resolved.status());
    if (key == "shape" && isDirectory(*resolved)) {
      table.refuse(key, "a shape's .toml file: a folder is given as path");
      return table.finish();
    }
    absl::StatusOr<ModelSource> source = openModelAt(*resolved, options);
    if (!source.ok())
      return behind(table.where(key), source.status());
    job.model = *std::move(source);
    return encoding ? packWeights(*encoding, path, *job.model) : absl::OkStatus();
  }
  // A key that is none of a shape's says more than the family that is missing.
  std::vector<std::string> known = {"path", "shape", "qk_norm", "weight_encoding", "rope_theta", "rope_scaling"};
  for (const auto &[key, value] : shapeEntries(ModelSpec{}))
    if (std::find(known.begin(), known.end(), key) == known.end())
      known.push_back(key);
  RETURN_IF_ERROR(table.unknownKey(known));
  ASSIGN_OR_RETURN(spec, parseShapeTable(table, path, "inline"));
  job.model.emplace().spec = spec;
  return absl::OkStatus();
}

absl::Status readHardwareOf(TomlReader &table, const std::string &path, Job &job) {
  std::optional<Hardware> base;
  if (const std::optional<std::string> file = table.text("file")) {
    absl::StatusOr<std::string> resolved = resolveExample(folderOf(path), *file, "hardware");
    if (!resolved.ok())
      return behind(table.where("file"), resolved.status());
    absl::StatusOr<Hardware> read = openHardwareAt(*resolved);
    if (!read.ok())
      return behind(table.where("file"), read.status());
    base = *std::move(read);
    job.files.push_back(*std::move(resolved));
  }
  ASSIGN_OR_RETURN(hardware, parseHardwareTable(table, path, "inline", base));
  job.hardware = std::move(hardware);
  return absl::OkStatus();
}

} // namespace

std::string_view startRuleName(StartRule rule) {
  switch (rule) {
  case StartRule::Paper:
    return "paper";
  case StartRule::Eager:
    return "eager";
  case StartRule::Ahead:
    break;
  }
  return "ahead";
}
std::optional<StartRule> startRuleFromName(std::string_view name) {
  for (StartRule rule : {StartRule::Paper, StartRule::Eager})
    if (startRuleName(rule) == name)
      return rule;
  return std::nullopt;
}

std::string_view autoOnOffName(AutoOnOff choice) {
  return choice == AutoOnOff::Auto ? "auto" : choice == AutoOnOff::On ? "on" : "off";
}
std::optional<AutoOnOff> autoOnOffFromName(std::string_view name) {
  for (AutoOnOff choice : {AutoOnOff::Auto, AutoOnOff::On, AutoOnOff::Off})
    if (autoOnOffName(choice) == name)
      return choice;
  return std::nullopt;
}

std::string_view kvWriteBackName(KvWriteBack choice) {
  switch (choice) {
  case KvWriteBack::Auto:
    return "auto";
  case KvWriteBack::Mirror:
    return "mirror";
  case KvWriteBack::All:
    return "all";
  case KvWriteBack::Dirty:
    break;
  }
  return "dirty";
}
std::optional<KvWriteBack> kvWriteBackFromName(std::string_view name) {
  for (KvWriteBack choice : {KvWriteBack::Auto, KvWriteBack::Mirror, KvWriteBack::All, KvWriteBack::Dirty})
    if (kvWriteBackName(choice) == name)
      return choice;
  return std::nullopt;
}

std::string_view attentionName(Attention attention) {
  switch (attention) {
  case Attention::Device:
    return "device";
  case Attention::Cpu:
    return "cpu";
  case Attention::Auto:
    return "auto";
  }
  return "";
}
std::optional<Attention> attentionFromName(std::string_view name) {
  for (Attention attention : {Attention::Device, Attention::Cpu, Attention::Auto})
    if (attentionName(attention) == name)
      return attention;
  return std::nullopt;
}
std::string_view residualsName(Residuals residuals) { return residuals == Residuals::Device ? "device" : "host"; }
std::optional<Residuals> residualsFromName(std::string_view name) {
  for (Residuals residuals : {Residuals::Device, Residuals::Host})
    if (residualsName(residuals) == name)
      return residuals;
  return std::nullopt;
}

std::string_view actHomeName(ActHome home) {
  switch (home) {
  case ActHome::Auto:
    return "auto";
  case ActHome::Device:
    return "device";
  case ActHome::Host:
    break;
  }
  return "host";
}
std::optional<ActHome> actHomeFromName(std::string_view name) {
  for (ActHome home : {ActHome::Auto, ActHome::Device, ActHome::Host})
    if (actHomeName(home) == name)
      return home;
  return std::nullopt;
}

std::string_view preferName(Prefer prefer) {
  switch (prefer) {
  case Prefer::Latency:
    return "latency";
  case Prefer::Memory:
    return "memory";
  case Prefer::Throughput:
    return "throughput";
  }
  return "latency";
}
std::optional<Prefer> preferFromName(std::string_view name) {
  for (Prefer prefer : {Prefer::Latency, Prefer::Memory, Prefer::Throughput})
    if (preferName(prefer) == name)
      return prefer;
  return std::nullopt;
}

std::string_view instancesName(Instances instances) { return instances == Instances::Together ? "together" : "apart"; }
std::optional<Instances> instancesFromName(std::string_view name) {
  for (Instances instances : {Instances::Together, Instances::Apart})
    if (instancesName(instances) == name)
      return instances;
  return std::nullopt;
}

std::string_view allowQuantizedName(AllowQuantized allowed) {
  switch (allowed) {
  case AllowQuantized::Nothing:
    break;
  case AllowQuantized::Weights:
    return "weights";
  case AllowQuantized::Kv:
    return "kv";
  case AllowQuantized::Both:
    return "both";
  }
  return "nothing";
}
std::optional<AllowQuantized> allowQuantizedFromName(std::string_view name) {
  for (AllowQuantized allowed :
       {AllowQuantized::Nothing, AllowQuantized::Weights, AllowQuantized::Kv, AllowQuantized::Both})
    if (allowQuantizedName(allowed) == name)
      return allowed;
  return std::nullopt;
}

absl::StatusOr<ModelSource> openModel(const std::string &pathOrName, const FolderOptions &options) {
  absl::StatusOr<std::string> path = resolveExample("", pathOrName, "models");
  if (!path.ok())
    return path.status();
  return openModelAt(*path, options);
}

absl::StatusOr<Hardware> openHardware(const std::string &pathOrName) {
  absl::StatusOr<std::string> path = resolveExample("", pathOrName, "hardware");
  if (!path.ok())
    return path.status();
  return openHardwareAt(*path);
}

absl::StatusOr<Job> parseJob(std::string_view text, const std::string &path, const FolderOptions &options) {
  absl::StatusOr<TomlValue> document = parseToml(text, path);
  if (!document.ok())
    return document.status();
  TomlReader file(*document, path, "");
  Job job;
  absl::Status status;
  // One section into its part of the job.
  const auto section = [&](std::string_view name, auto read) {
    const TomlValue *table = file.value(name);
    if (table == nullptr || !status.ok())
      return;
    TomlReader reader(*table, path, name);
    status = reader.ok() ? read(reader) : reader.finish();
  };
  section("model", [&](TomlReader &table) { return readModel(table, path, options, job); });
  section("hardware", [&](TomlReader &table) { return readHardwareOf(table, path, job); });
  section("goal", [&](TomlReader &table) { return readGoal(table, folderOf(path), job.goal); });
  section("policy", [&](TomlReader &table) { return readPolicy(table, job.policy); });
  section("buckets", [&](TomlReader &table) { return readBuckets(table, job.buckets); });
  RETURN_IF_ERROR(status);
  if (absl::Status unknown = file.finish(); !unknown.ok())
    return unknown;
  if (absl::Status contradiction = validate(job, path); !contradiction.ok())
    return contradiction;
  return job;
}

absl::StatusOr<Job> readJob(const std::string &path) {
  absl::StatusOr<std::string> text = readTextFile(path);
  if (!text.ok())
    return text.status();
  absl::StatusOr<Job> job = parseJob(*text, path);
  if (job.ok())
    job->files.push_back(path);
  return job;
}

} // namespace headrace::model
