// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/JobFile.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "runtime/base/FileIo.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/base/TomlReader.h"
#include "runtime/job/Examples.h"
#include "runtime/job/TomlText.h"
#include "runtime/model/HfConfig.h"
#include "runtime/model/Shape.h"

namespace headrace::model {
namespace {

constexpr int64_t kMaxBatch = 1 << 20;
constexpr int64_t kMaxKvTokens = int64_t{1} << 40;
constexpr int64_t kMaxBlockTokens = 4096;
constexpr int64_t kMaxSlots = 1 << 16;
constexpr double kMaxSloFactor = 1e6;
constexpr double kMaxSloSeconds = 1e6; // longer than the longest step a cost model states

absl::StatusOr<ModelSource> openModelAt(const std::string &path) {
  ModelSource source;
  source.path = path;
  if (isDirectory(path)) {
    absl::StatusOr<ModelSpec> spec = readHfFolder(path, &source.notes);
    if (!spec.ok())
      return spec.status();
    source.spec = *std::move(spec);
    source.hasWeights = hasCheckpoint(path);
    return source;
  }
  if (!path.ends_with(".toml"))
    return absl::InvalidArgumentError(cat(path, ": expected a Hugging Face model folder, or a shape's .toml file"));
  absl::StatusOr<ModelSpec> spec = readShape(path);
  if (!spec.ok())
    return spec.status();
  source.spec = *std::move(spec);
  return source;
}

// A refusal of what a key of the file led to, with the key in front.
absl::Status behind(const std::string &where, const absl::Status &status) {
  return absl::Status(status.code(), cat(where, ": ", status.message()));
}

absl::StatusOr<ModelSource> parseModel(TomlReader &table, const std::string &path) {
  for (std::string_view key : {"path", "shape"}) {
    if (!table.has(key))
      continue;
    const std::optional<std::string> given = table.text(key);
    if (absl::Status status = table.finish(); !status.ok()) // also refuses any key beside it
      return status;
    absl::StatusOr<std::string> resolved = resolveExample(folderOf(path), *given, "models");
    if (!resolved.ok())
      return behind(table.where(key), resolved.status());
    if (key == "shape" && isDirectory(*resolved)) {
      table.refuse(key, "a shape's .toml file: a folder is given as path");
      return table.finish();
    }
    absl::StatusOr<ModelSource> source = openModelAt(*resolved);
    return source.ok() ? source : behind(table.where(key), source.status());
  }
  // A key that is none of a shape's says more than the family that is missing.
  std::vector<std::string> known = {"path", "shape", "qk_norm", "rope_theta", "rope_scaling"};
  for (const auto &[key, value] : shapeEntries(ModelSpec{}))
    if (std::find(known.begin(), known.end(), key) == known.end())
      known.push_back(key);
  RETURN_IF_ERROR(table.unknownKey(known));
  absl::StatusOr<ModelSpec> spec = parseShapeTable(table, path, "inline");
  if (!spec.ok())
    return spec.status();
  ModelSource source;
  source.spec = *std::move(spec);
  return source;
}

absl::StatusOr<Hardware> parseHardwareOf(TomlReader &table, const std::string &path, std::vector<std::string> &files) {
  std::optional<Hardware> base;
  if (const std::optional<std::string> file = table.text("file")) {
    absl::StatusOr<std::string> resolved = resolveExample(folderOf(path), *file, "hardware");
    if (!resolved.ok())
      return behind(table.where("file"), resolved.status());
    absl::StatusOr<Hardware> read = readHardware(*resolved);
    if (!read.ok())
      return behind(table.where("file"), read.status());
    base = *std::move(read);
    files.push_back(*std::move(resolved));
  }
  return parseHardwareTable(table, path, "inline", base);
}

// A time in whole nanoseconds, at least one.
std::optional<uint64_t> parseSlo(TomlReader &table, std::string_view key) {
  const std::optional<double> seconds = table.seconds(key);
  if (!seconds)
    return std::nullopt;
  if (!(*seconds >= 0.5e-9 && *seconds <= kMaxSloSeconds)) { // not NaN either
    table.refuse(key, "a time above zero such as \"50ms\", at most 1e6 s");
    return std::nullopt;
  }
  return static_cast<uint64_t>(std::llround(*seconds * 1e9));
}

Choice parseChoice(TomlReader &table, std::string_view key) {
  const TomlValue *value = table.value(key);
  if (value != nullptr && value->kind == TomlValue::Kind::Boolean)
    return value->boolean ? Choice::On : Choice::Off;
  return table.oneOf(key, choiceFromName, "auto, on or off").value_or(Choice::Auto);
}

absl::StatusOr<Goal> parseGoal(TomlReader &table, const std::string &path) {
  Goal goal;
  goal.deviceMemory = table.bytes("device_memory");
  goal.batch = table.integer("batch", 1, kMaxBatch);
  goal.context = table.integer("context", 1, kMaxDimension);
  goal.kvTokens = table.integer("kv_tokens", 1, kMaxKvTokens);
  goal.elasticKv = parseChoice(table, "elastic_kv");
  goal.blockTokens = table.integer("block_tokens", 1, kMaxBlockTokens).value_or(goal.blockTokens);
  const std::optional<std::string> kvDtype = table.text("kv_dtype");
  if (kvDtype && *kvDtype != "auto") {
    goal.kvDtype = dtypeFromName(*kvDtype);
    if (!goal.kvDtype)
      table.refuse("kv_dtype", "\"auto\", \"f32\", \"f16\" or \"bf16\"");
  }
  goal.ttftNs = parseSlo(table, "ttft");
  goal.tpotNs = parseSlo(table, "tpot");
  goal.sloFactor = table.number("slo_factor");
  if (goal.sloFactor && !(*goal.sloFactor >= 1 && *goal.sloFactor <= kMaxSloFactor))
    table.refuse("slo_factor", "a factor of the time without offloading, from 1 to 1e6");
  goal.instances = table.oneOf("instances", instancesFromName, "\"together\" or \"apart\"").value_or(goal.instances);
  goal.busDevices = table.integer("bus_devices", 1, kMaxBusDevices).value_or(goal.busDevices);
  if (const std::optional<std::string> record = table.text("record")) {
    if (record->empty())
      table.refuse("record", "a performance record's file");
    goal.record = joinPath(folderOf(path), *record);
  }
  RETURN_IF_ERROR(table.finish());
  return goal;
}

absl::StatusOr<Policy> parsePolicy(TomlReader &table) {
  Policy policy;
  policy.name = table.text("name").value_or(policy.name);
  if (const TomlValue *interval = table.value("interval")) {
    if (interval->kind == TomlValue::Kind::String && interval->text == "none")
      policy.none = true;
    else if (const auto every = interval->whole(); every && *every >= 1 && *every <= kMaxLayers)
      policy.interval = every;
    else
      table.refuse("interval", cat("an integer from 1 to ", kMaxLayers,
                                   " (at most the model's layers), or "
                                   "\"none\""));
  }
  policy.offloadLayers = table.integer("offload_layers", 0, kMaxLayers);
  if (const auto rule = table.oneOf("start_rule", startRuleFromName, "\"paper\" or \"eager\"")) {
    policy.startRule = *rule;
    policy.startRuleStated = true;
  }
  policy.slots = table.integer("slots", 1, kMaxSlots);
  policy.offloadEmbedding = parseChoice(table, "offload_embedding");
  policy.offloadHead = parseChoice(table, "offload_head");
  policy.placements = table.integer("placements", 1, kMaxPlacements);
  RETURN_IF_ERROR(table.finish());
  return policy;
}

absl::StatusOr<Buckets> parseBuckets(TomlReader &table) {
  Buckets buckets;
  const auto read = [&](std::string_view key, std::vector<int64_t> &out) {
    const std::optional<std::vector<int64_t>> values = table.integers(key, 1, kMaxDimension);
    if (values && values->empty())
      table.refuse(key, "at least one size");
    out = values.value_or(std::vector<int64_t>{});
  };
  read("new_tokens", buckets.newTokens);
  read("sequences", buckets.sequences);
  read("contexts", buckets.contexts);
  RETURN_IF_ERROR(table.finish());
  return buckets;
}

// Records the first contradiction.
class Contradictions {
public:
  explicit Contradictions(std::string_view where) : where_(where) {}
  void require(bool holds, std::string_view key, const absl::AlphaNum &value, std::string_view expected) {
    if (!holds && status_.ok())
      status_ = absl::InvalidArgumentError(cat(where_, ": ", key, " = ", value, ": expected ", expected));
  }
  absl::Status status() const { return status_; }

private:
  std::string_view where_;
  absl::Status status_;
};

void checkBucket(Contradictions &check, std::string_view key, const std::vector<int64_t> &sizes) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    check.require(sizes[i] >= 1, key, sizes[i], "sizes of at least 1");
    if (i > 0)
      check.require(sizes[i] > sizes[i - 1], key, sizes[i], cat("ascending sizes, it follows ", sizes[i - 1]));
  }
}

} // namespace

std::string_view startRuleName(StartRule rule) { return rule == StartRule::Paper ? "paper" : "eager"; }
std::optional<StartRule> startRuleFromName(std::string_view name) {
  for (StartRule rule : {StartRule::Paper, StartRule::Eager})
    if (startRuleName(rule) == name)
      return rule;
  return std::nullopt;
}

std::string_view choiceName(Choice choice) {
  return choice == Choice::Auto ? "auto" : choice == Choice::On ? "on" : "off";
}
std::optional<Choice> choiceFromName(std::string_view name) {
  for (Choice choice : {Choice::Auto, Choice::On, Choice::Off})
    if (choiceName(choice) == name)
      return choice;
  return std::nullopt;
}

std::string_view instancesName(Instances instances) { return instances == Instances::Together ? "together" : "apart"; }
std::optional<Instances> instancesFromName(std::string_view name) {
  for (Instances instances : {Instances::Together, Instances::Apart})
    if (instancesName(instances) == name)
      return instances;
  return std::nullopt;
}

std::string policyNames() {
  std::string list;
  for (const std::string_view name : kPolicyNames)
    list += cat(list.empty() ? "" : name == std::end(kPolicyNames)[-1] ? " or " : ", ", "\"", name, "\"");
  return list;
}

std::string_view effectivePolicy(const Policy &policy, const Goal &goal) {
  if (policy.name != "auto")
    return policy.name;
  return goal.hasSlo() && !policy.statesPlacement() ? "headrace" : "interval";
}

bool choosesByLatency(std::string_view policy) {
  return policy == "headrace" || policy == "select-n" || policy == "flexgen" || policy == "flexgen-nobus";
}

absl::StatusOr<ModelSource> openModel(const std::string &pathOrName) {
  absl::StatusOr<std::string> path = resolveExample("", pathOrName, "models");
  if (!path.ok())
    return path.status();
  return openModelAt(*path);
}

absl::StatusOr<Hardware> openHardware(const std::string &pathOrName) {
  absl::StatusOr<std::string> path = resolveExample("", pathOrName, "hardware");
  if (!path.ok())
    return path.status();
  return readHardware(*path);
}

absl::Status validate(const Job &job, std::string_view where) {
  Contradictions check(where);
  const Goal &goal = job.goal;
  const Policy &policy = job.policy;
  if (goal.deviceMemory)
    check.require(*goal.deviceMemory > 0, "goal.device_memory", *goal.deviceMemory, "a positive number of bytes");
  if (goal.batch)
    check.require(*goal.batch >= 1, "goal.batch", *goal.batch, "at least 1");
  if (goal.context)
    check.require(*goal.context >= 1, "goal.context", *goal.context, "at least 1");
  if (goal.kvTokens)
    check.require(*goal.kvTokens >= goal.context.value_or(1), "goal.kv_tokens", *goal.kvTokens,
                  goal.context ? cat("at least goal.context = ", *goal.context) : "at least 1");
  check.require(goal.blockTokens >= 1, "goal.block_tokens", goal.blockTokens, "at least 1");

  for (const auto &[key, ns] : {std::pair("goal.ttft", goal.ttftNs), std::pair("goal.tpot", goal.tpotNs)})
    if (ns) {
      check.require(*ns > 0, key, *ns, "a time above zero");
      check.require(!goal.sloFactor, key, cat(static_cast<double>(*ns) / 1e6, " ms"),
                    "either a time or goal.slo_factor, not both");
    }
  if (goal.sloFactor)
    check.require(*goal.sloFactor >= 1 && *goal.sloFactor <= kMaxSloFactor, "goal.slo_factor", *goal.sloFactor,
                  "a factor of the time without offloading, from 1 to 1e6");
  check.require(goal.busDevices >= 1 && goal.busDevices <= kMaxBusDevices, "goal.bus_devices", goal.busDevices,
                cat("1 to ", kMaxBusDevices));

  const std::string name = cat("\"", policy.name.substr(0, 80), "\"");
  check.require(std::find(std::begin(kPolicyNames), std::end(kPolicyNames), policy.name) != std::end(kPolicyNames),
                "policy.name", name, policyNames());
  check.require(!choosesByLatency(policy.name) || goal.hasSlo(), "policy.name", name,
                "goal.ttft, goal.tpot or goal.slo_factor beside it: it chooses by latency");
  check.require(policy.name == "auto" || policy.name == "interval" || !policy.statesPlacement(), "policy.name", name,
                "\"interval\" where policy.interval or policy.offload_layers state the placement");
  check.require(policy.name == "auto" || policy.name == "interval" || !policy.startRuleStated, "policy.start_rule",
                cat("\"", startRuleName(policy.startRule), "\""),
                cat("policy.name \"interval\" beside it: policy ", name, " has a rule of its own"));
  if (policy.placements)
    check.require(*policy.placements >= 1 && *policy.placements <= kMaxPlacements, "policy.placements",
                  *policy.placements, cat("1 to ", kMaxPlacements));
  if (policy.interval) {
    check.require(*policy.interval >= 1, "policy.interval", *policy.interval, "at least 1, or \"none\"");
    check.require(!policy.none, "policy.interval", *policy.interval, "no other interval beside \"none\"");
    check.require(!policy.offloadLayers, "policy.offload_layers", policy.offloadLayers.value_or(0),
                  cat("not to stand beside policy.interval = ", *policy.interval));
  }
  if (policy.offloadLayers) {
    check.require(*policy.offloadLayers >= 0, "policy.offload_layers", *policy.offloadLayers, "0 or more");
    check.require(!policy.none || *policy.offloadLayers == 0, "policy.offload_layers", *policy.offloadLayers,
                  "0 beside policy.interval = \"none\"");
  }
  if (policy.none) {
    constexpr std::string_view kNothing = "\"auto\" or false beside policy.interval = \"none\": nothing is offloaded";
    check.require(policy.offloadEmbedding != Choice::On, "policy.offload_embedding", "true", kNothing);
    check.require(policy.offloadHead != Choice::On, "policy.offload_head", "true", kNothing);
  }
  if (policy.slots)
    check.require(*policy.slots >= 1, "policy.slots", *policy.slots, "at least 1");

  checkBucket(check, "buckets.new_tokens", job.buckets.newTokens);
  checkBucket(check, "buckets.sequences", job.buckets.sequences);
  checkBucket(check, "buckets.contexts", job.buckets.contexts);

  if (job.model) {
    const ModelSpec &spec = job.model->spec;
    if (policy.interval)
      check.require(*policy.interval <= spec.layers, "policy.interval", *policy.interval,
                    cat("at most the ", spec.layers, " layers of ", spec.name, ", or \"none\""));
    if (policy.offloadLayers)
      check.require(*policy.offloadLayers <= spec.layers, "policy.offload_layers", *policy.offloadLayers,
                    cat("at most the ", spec.layers, " layers of ", spec.name));
    const std::string longest = cat("at most the ", spec.maxPositions, " positions of ", spec.name);
    if (goal.context)
      check.require(*goal.context <= spec.maxPositions, "goal.context", *goal.context, longest);
    for (int64_t context : job.buckets.contexts)
      check.require(context <= spec.maxPositions, "buckets.contexts", context, longest);
  }
  return check.status();
}

absl::StatusOr<Job> parseJob(std::string_view text, const std::string &path) {
  absl::StatusOr<TomlValue> document = parseToml(text, path);
  if (!document.ok())
    return document.status();
  TomlReader file(*document, path, "");
  Job job;
  absl::Status status;
  // One section into one part of the job.
  const auto section = [&](std::string_view name, auto parse, auto &part) {
    const TomlValue *table = file.value(name);
    if (table == nullptr || !status.ok())
      return;
    TomlReader reader(*table, path, name);
    if (!reader.ok()) {
      status = reader.finish();
      return;
    }
    auto parsed = parse(reader);
    if (parsed.ok())
      part = *std::move(parsed);
    else
      status = parsed.status();
  };
  section(
      "model", [&](TomlReader &table) { return parseModel(table, path); }, job.model);
  section(
      "hardware", [&](TomlReader &table) { return parseHardwareOf(table, path, job.files); }, job.hardware);
  section(
      "goal", [&](TomlReader &table) { return parseGoal(table, path); }, job.goal);
  section("policy", parsePolicy, job.policy);
  section("buckets", parseBuckets, job.buckets);
  if (!status.ok())
    return status;
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
