// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/JobSections.h"

#include <chrono>
#include <cmath>

#include "runtime/base/FileIo.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/job/Expansion.h"
#include "runtime/model/KvEncoding.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::model {
namespace {

constexpr int64_t kMaxBatch = 1 << 20;
constexpr int64_t kMaxKvTokens = int64_t{1} << 40;
constexpr int64_t kMaxBlockTokens = 4096;
constexpr int64_t kMaxSlots = 1 << 16;
constexpr double kMaxSloSeconds = 1e6; // longer than the longest step a cost model states

// A key that is missing, or was refused, leaves what stands there.
template <class Read, class Field> void lay(const std::optional<Read> &read, Field &field) {
  if (read)
    field = *read;
}

// A time in whole nanoseconds, at least one.
std::optional<std::chrono::nanoseconds> parseSlo(TomlReader &table, std::string_view key) {
  const std::optional<double> seconds = table.seconds(key);
  if (!seconds)
    return std::nullopt;
  if (!(*seconds >= 0.5e-9 && *seconds <= kMaxSloSeconds)) { // not NaN either
    table.refuse(key, "a time above zero such as \"50ms\", at most 1e6 s");
    return std::nullopt;
  }
  return std::chrono::nanoseconds(std::llround(*seconds * 1e9));
}

std::optional<AutoOnOff> parseChoice(TomlReader &table, std::string_view key) {
  const TomlValue *value = table.value(key);
  if (value != nullptr && value->kind == TomlValue::Kind::Boolean)
    return value->boolean ? AutoOnOff::On : AutoOnOff::Off;
  return table.oneOf(key, autoOnOffFromName, "auto, on or off");
}

void readExpansion(TomlReader &table, Goal &goal) {
  const TomlValue *value = table.value("expansion");
  if (value == nullptr)
    return;
  const bool automatic = value->kind == TomlValue::Kind::String && value->text == "auto";
  const bool whole = value->kind == TomlValue::Kind::Integer, number = whole || value->kind == TomlValue::Kind::Float;
  const double stated = whole ? static_cast<double>(value->integer) : value->number;
  goal.expansion = number ? stated : kAutoExpansion;
  if (!automatic && !(number && stated != kAutoExpansion && isExpansion(stated)))
    table.refuse("expansion", std::string(kExpansions));
}

void readMiniBatches(TomlReader &table, Goal &goal) {
  const TomlValue *value = table.value("mini_batches");
  if (value == nullptr)
    return;
  goal.autoMiniBatches = value->kind == TomlValue::Kind::String && value->text == "auto";
  const std::optional<int64_t> stated = value->whole();
  goal.miniBatches = stated.value_or(1);
  if (!goal.autoMiniBatches && !(stated && *stated >= 1 && *stated <= kMaxMiniBatches))
    table.refuse("mini_batches", cat("an integer from 1 to ", kMaxMiniBatches, ", or \"auto\""));
}

void readKvTokens(TomlReader &table, Goal &goal) {
  const TomlValue *value = table.value("kv_tokens");
  if (value == nullptr)
    return;
  goal.autoKvTokens = value->kind == TomlValue::Kind::String && value->text == "auto";
  if (goal.autoKvTokens)
    goal.kvTokens.reset();
  else
    lay(table.integer("kv_tokens", 1, kMaxKvTokens), goal.kvTokens);
}

// A number from 0 to 1, or such a fraction as a text.
void readActRatio(TomlReader &table, Policy &policy) {
  const TomlValue *value = table.value("act_ratio");
  if (value == nullptr)
    return;
  const std::string text = value->kind == TomlValue::Kind::String    ? value->text
                           : value->kind == TomlValue::Kind::Integer ? cat(value->integer)
                           : value->kind == TomlValue::Kind::Float   ? cat(value->number)
                                                                     : std::string();
  policy.actRatio = actRatioFromText(text);
  if (!policy.actRatio)
    table.refuse("act_ratio", std::string(kActRatios));
}

void readInterval(TomlReader &table, Policy &policy) {
  const TomlValue *interval = table.value("interval");
  if (interval == nullptr)
    return;
  policy.none = interval->kind == TomlValue::Kind::String && interval->text == "none";
  policy.interval.reset();
  if (policy.none)
    return;
  if (const auto every = interval->whole(); every && *every >= 1 && *every <= kMaxLayers)
    policy.interval = every;
  else
    table.refuse("interval", cat("an integer from 1 to ", kMaxLayers, " (at most the model's layers), or \"none\""));
}

} // namespace

absl::Status readGoal(TomlReader &table, const std::string &folder, Goal &goal) {
  lay(table.bytes("device_memory"), goal.deviceMemory);
  lay(table.integer("batch", 1, kMaxBatch), goal.batch);
  readMiniBatches(table, goal);
  lay(table.integer("context", 1, kMaxDimension), goal.context);
  readKvTokens(table, goal);
  lay(table.bytes("kv_device_memory"), goal.kvDeviceMemory);
  lay(table.bytes("kv_host_memory"), goal.kvHostMemory);
  readExpansion(table, goal);
  lay(parseChoice(table, "elastic_kv"), goal.elasticKv);
  lay(table.integer("block_tokens", 1, kMaxBlockTokens), goal.blockTokens);
  if (const std::optional<std::string> kvDtype = table.text("kv_dtype")) {
    goal.kvEncoding = kvEncodingFromText(*kvDtype);
    if (!goal.kvEncoding && *kvDtype != "auto")
      table.refuse("kv_dtype", std::string(kKvEncodings));
  }
  lay(parseSlo(table, "ttft"), goal.ttft);
  lay(parseSlo(table, "tpot"), goal.tpot);
  lay(table.integer("input_len", 1, kMaxDimension), goal.inputLen);
  lay(table.integer("output_len", 1, kMaxDimension), goal.outputLen);
  lay(table.number("slo_factor"), goal.sloFactor);
  if (table.has("slo_factor") && !(goal.sloFactor >= 1 && goal.sloFactor <= kMaxSloFactor))
    table.refuse("slo_factor", "a factor of the time without offloading, from 1 to 1e6");
  lay(table.oneOf("instances", instancesFromName, "\"together\" or \"apart\""), goal.instances);
  lay(table.integer("bus_devices", 1, kMaxBusDevices), goal.busDevices);
  if (const std::optional<std::string> record = table.text("record")) {
    if (record->empty())
      table.refuse("record", "a performance record's file");
    goal.record = joinPath(folder, *record);
  }
  return table.finish();
}

absl::Status readPolicy(TomlReader &table, Policy &policy) {
  lay(table.text("name"), policy.name);
  readInterval(table, policy);
  lay(table.integer("offload_layers", 0, kMaxLayers), policy.offloadLayers);
  if (const auto rule = table.oneOf("start_rule", startRuleFromName, "\"paper\" or \"eager\"")) {
    policy.startRule = *rule;
    policy.startRuleStated = true;
  }
  lay(table.integer("slots", 1, kMaxSlots), policy.slots);
  lay(table.oneOf("kv_write_back", kvWriteBackFromName, "auto, mirror, all or dirty"), policy.kvWriteBack);
  lay(parseChoice(table, "offload_embedding"), policy.offloadEmbedding);
  lay(parseChoice(table, "offload_head"), policy.offloadHead);
  lay(table.integer("placements", 1, kMaxPlacements), policy.placements);
  lay(table.integer("kv_places", kLeastKvPlaces, kMaxLayers), policy.kvPlaces);
  lay(table.oneOf("residuals", residualsFromName, "device or host"), policy.residuals);
  readActRatio(table, policy);
  if (const auto prefer = table.oneOf("prefer", preferFromName, "latency, memory or throughput")) {
    policy.prefer = *prefer;
    policy.preferStated = true;
  }
  lay(table.oneOf("act_home", actHomeFromName, "auto, device or host"), policy.actHome);
  return table.finish();
}

absl::Status readBuckets(TomlReader &table, Buckets &buckets) {
  const auto read = [&](std::string_view key, std::vector<int64_t> &out) {
    const std::optional<std::vector<int64_t>> values = table.integers(key, 1, kMaxDimension);
    if (values && values->empty())
      table.refuse(key, "at least one size");
    lay(values, out);
  };
  read("new_tokens", buckets.newTokens);
  read("sequences", buckets.sequences);
  read("contexts", buckets.contexts);
  return table.finish();
}

} // namespace headrace::model
