// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/JobSections.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "runtime/base/FileIo.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/base/Units.h"
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

// A key of a section: how it is read over what stands there, and how what stands there is written.
using Written = std::optional<std::string>; // a TOML value; none: what a section without the key has
template <typename Section> struct SectionKey {
  std::string_view name;
  void (*read)(TomlReader &table, std::string_view key, Section &section);
  Written (*write)(const Section &section);
};

// A key that is missing, or was refused, leaves what stands there.
template <class Read, class Field> void lay(const std::optional<Read> &read, Field &field) {
  if (read)
    field = *read;
}

Written number(const std::optional<int64_t> &value) { return value ? Written(cat(*value)) : std::nullopt; }
Written named(bool byDefault, std::string_view name) { return byDefault ? std::nullopt : Written(tomlText(name)); }

template <typename Section, std::optional<uint64_t> Section::*kField>
constexpr SectionKey<Section> bytesKey(std::string_view name) {
  return {name,
          [](TomlReader &table, std::string_view key, Section &section) { lay(table.bytes(key), section.*kField); },
          [](const Section &section) -> Written {
            return section.*kField ? Written(tomlText(bytesText(*(section.*kField)))) : std::nullopt;
          }};
}

template <typename Section, std::optional<int64_t> Section::*kField, int64_t kLeast, int64_t kMost>
constexpr SectionKey<Section> countKey(std::string_view name) {
  return {name,
          [](TomlReader &table, std::string_view key, Section &section) {
            lay(table.integer(key, kLeast, kMost), section.*kField);
          },
          [](const Section &section) { return number(section.*kField); }};
}

// Of what a section without the key has a value for.
template <typename Section, int64_t Section::*kField, int64_t kMost>
constexpr SectionKey<Section> definiteCountKey(std::string_view name) {
  return {name,
          [](TomlReader &table, std::string_view key, Section &section) {
            lay(table.integer(key, 1, kMost), section.*kField);
          },
          [](const Section &section) {
            return section.*kField == Section().*kField ? std::nullopt : number(section.*kField);
          }};
}

// A time in whole nanoseconds, at least one.
template <std::optional<std::chrono::nanoseconds> Goal::*kField>
constexpr SectionKey<Goal> objectiveKey(std::string_view name) {
  return {name,
          [](TomlReader &table, std::string_view key, Goal &goal) {
            const std::optional<double> seconds = table.seconds(key);
            if (seconds && *seconds >= 0.5e-9 && *seconds <= kMaxSloSeconds) // not NaN either
              goal.*kField = std::chrono::nanoseconds(std::llround(*seconds * 1e9));
            else if (seconds)
              table.refuse(key, "a time above zero such as \"50ms\", at most 1e6 s");
          },
          [](const Goal &goal) -> Written {
            return goal.*kField ? Written(tomlText(durationText(*(goal.*kField)))) : std::nullopt;
          }};
}

std::optional<AutoOnOff> parseChoice(TomlReader &table, std::string_view key) {
  const TomlValue *value = table.value(key);
  if (value != nullptr && value->kind == TomlValue::Kind::Boolean)
    return value->boolean ? AutoOnOff::On : AutoOnOff::Off;
  return table.oneOf(key, autoOnOffFromName, "auto, on or off");
}

template <typename Section, AutoOnOff Section::*kField> constexpr SectionKey<Section> choiceKey(std::string_view name) {
  return {
      name,
      [](TomlReader &table, std::string_view key, Section &section) { lay(parseChoice(table, key), section.*kField); },
      [](const Section &section) { return named(section.*kField == AutoOnOff::Auto, autoOnOffName(section.*kField)); }};
}

bool isAuto(const TomlValue &value) { return value.kind == TomlValue::Kind::String && value.text == "auto"; }

void readExpansion(TomlReader &table, std::string_view key, Goal &goal) {
  const TomlValue *value = table.value(key);
  if (value == nullptr)
    return;
  const bool whole = value->kind == TomlValue::Kind::Integer, number = whole || value->kind == TomlValue::Kind::Float;
  const double stated = whole ? static_cast<double>(value->integer) : value->number;
  goal.expansion = number ? stated : kAutoExpansion;
  if (!isAuto(*value) && !(number && stated != kAutoExpansion && isExpansion(stated)))
    table.refuse(key, std::string(kExpansions));
}
Written writeExpansion(const Goal &goal) {
  if (!goal.expansion)
    return std::nullopt;
  return *goal.expansion == kAutoExpansion ? tomlText("auto") : tomlNumber(*goal.expansion);
}

void readMiniBatches(TomlReader &table, std::string_view key, Goal &goal) {
  const TomlValue *value = table.value(key);
  if (value == nullptr)
    return;
  goal.autoMiniBatches = isAuto(*value);
  const std::optional<int64_t> stated = value->whole();
  goal.miniBatches = stated.value_or(1);
  if (!goal.autoMiniBatches && !(stated && *stated >= 1 && *stated <= kMaxMiniBatches))
    table.refuse(key, cat("an integer from 1 to ", kMaxMiniBatches, ", or \"auto\""));
}
Written writeMiniBatches(const Goal &goal) {
  if (goal.autoMiniBatches)
    return tomlText("auto");
  return goal.miniBatches == 1 ? std::nullopt : number(goal.miniBatches);
}

void readKvTokens(TomlReader &table, std::string_view key, Goal &goal) {
  const TomlValue *value = table.value(key);
  if (value == nullptr)
    return;
  goal.autoKvTokens = isAuto(*value);
  if (goal.autoKvTokens)
    goal.kvTokens.reset();
  else
    lay(table.integer(key, 1, kMaxKvTokens), goal.kvTokens);
}
Written writeKvTokens(const Goal &goal) { return goal.autoKvTokens ? tomlText("auto") : number(goal.kvTokens); }

void readKvDtype(TomlReader &table, std::string_view key, Goal &goal) {
  const std::optional<std::string> text = table.text(key);
  if (!text)
    return;
  goal.kvEncoding = kvEncodingFromText(*text);
  if (!goal.kvEncoding && *text != "auto")
    table.refuse(key, std::string(kKvEncodings));
}
Written writeKvDtype(const Goal &goal) {
  return goal.kvEncoding ? Written(tomlText(kvEncodingText(*goal.kvEncoding))) : std::nullopt;
}

void readAllowQuantized(TomlReader &table, std::string_view key, Goal &goal) {
  lay(table.oneOf(key, allowQuantizedFromName, "nothing, weights, kv or both"), goal.allowQuantized);
}
Written writeAllowQuantized(const Goal &goal) {
  return named(goal.allowQuantized == AllowQuantized::Nothing, allowQuantizedName(goal.allowQuantized));
}

void readSloFactor(TomlReader &table, std::string_view key, Goal &goal) {
  lay(table.number(key), goal.sloFactor);
  if (table.has(key) && !(goal.sloFactor >= 1 && goal.sloFactor <= kMaxSloFactor))
    table.refuse(key, "a factor of the time without offloading, from 1 to 1e6");
}
Written writeSloFactor(const Goal &goal) {
  return goal.sloFactor ? Written(tomlNumber(*goal.sloFactor)) : std::nullopt;
}

void readInstances(TomlReader &table, std::string_view key, Goal &goal) {
  lay(table.oneOf(key, instancesFromName, "\"together\" or \"apart\""), goal.instances);
}
Written writeInstances(const Goal &goal) {
  return named(goal.instances == Instances::Together, instancesName(goal.instances));
}

// In the order in which a faulty key is said first. `record`, a path, is beside them.
constexpr SectionKey<Goal> kGoalKeys[] = {
    bytesKey<Goal, &Goal::deviceMemory>("device_memory"),
    countKey<Goal, &Goal::batch, 1, kMaxBatch>("batch"),
    {"mini_batches", readMiniBatches, writeMiniBatches},
    countKey<Goal, &Goal::context, 1, kMaxDimension>("context"),
    {"kv_tokens", readKvTokens, writeKvTokens},
    bytesKey<Goal, &Goal::kvDeviceMemory>("kv_device_memory"),
    bytesKey<Goal, &Goal::kvHostMemory>("kv_host_memory"),
    {"expansion", readExpansion, writeExpansion},
    choiceKey<Goal, &Goal::elasticKv>("elastic_kv"),
    definiteCountKey<Goal, &Goal::blockTokens, kMaxBlockTokens>("block_tokens"),
    {"kv_dtype", readKvDtype, writeKvDtype},
    {"allow_quantized", readAllowQuantized, writeAllowQuantized},
    objectiveKey<&Goal::ttft>("ttft"),
    objectiveKey<&Goal::tpot>("tpot"),
    countKey<Goal, &Goal::inputLen, 1, kMaxDimension>("input_len"),
    countKey<Goal, &Goal::outputLen, 1, kMaxDimension>("output_len"),
    {"slo_factor", readSloFactor, writeSloFactor},
    {"instances", readInstances, writeInstances},
    definiteCountKey<Goal, &Goal::busDevices, kMaxBusDevices>("bus_devices"),
};

void readName(TomlReader &table, std::string_view key, Policy &policy) { lay(table.text(key), policy.name); }
Written writeName(const Policy &policy) { return tomlText(policy.name); }

void readInterval(TomlReader &table, std::string_view key, Policy &policy) {
  const TomlValue *interval = table.value(key);
  if (interval == nullptr)
    return;
  policy.none = interval->kind == TomlValue::Kind::String && interval->text == "none";
  policy.interval.reset();
  if (policy.none)
    return;
  if (const auto every = interval->whole(); every && *every >= 1 && *every <= kMaxLayers)
    policy.interval = every;
  else
    table.refuse(key, cat("an integer from 1 to ", kMaxLayers, " (at most the model's layers), or \"none\""));
}
Written writeInterval(const Policy &policy) { return policy.none ? tomlText("none") : number(policy.interval); }

void readStartRule(TomlReader &table, std::string_view key, Policy &policy) {
  const auto rule = table.oneOf(key, startRuleFromName, "\"paper\" or \"eager\"");
  lay(rule, policy.startRule);
  policy.startRuleStated |= rule.has_value();
}
Written writeStartRule(const Policy &policy) {
  return named(policy.startRule == Policy().startRule, startRuleName(policy.startRule));
}

void readWriteBack(TomlReader &table, std::string_view key, Policy &policy) {
  lay(table.oneOf(key, kvWriteBackFromName, "auto, mirror, all or dirty"), policy.kvWriteBack);
}
Written writeWriteBack(const Policy &policy) {
  return named(policy.kvWriteBack == KvWriteBack::Auto, kvWriteBackName(policy.kvWriteBack));
}

void readResiduals(TomlReader &table, std::string_view key, Policy &policy) {
  lay(table.oneOf(key, residualsFromName, "device or host"), policy.residuals);
}
Written writeResiduals(const Policy &policy) {
  return named(policy.residuals == Residuals::Device, residualsName(policy.residuals));
}

void readAttention(TomlReader &table, std::string_view key, Policy &policy) {
  const auto attention = table.oneOf(key, attentionFromName, "device, cpu or auto");
  lay(attention, policy.attention);
  policy.attentionStated |= attention.has_value();
}
Written writeAttention(const Policy &policy) {
  return named(policy.attention == Attention::Device, attentionName(policy.attention));
}

// A number from 0 to 1, or such a fraction as a text.
void readActRatio(TomlReader &table, std::string_view key, Policy &policy) {
  const TomlValue *value = table.value(key);
  if (value == nullptr)
    return;
  const std::string text = value->kind == TomlValue::Kind::String    ? value->text
                           : value->kind == TomlValue::Kind::Integer ? cat(value->integer)
                           : value->kind == TomlValue::Kind::Float   ? cat(value->number)
                                                                     : std::string();
  policy.actRatio = actRatioFromText(text);
  if (!policy.actRatio)
    table.refuse(key, std::string(kActRatios));
}
Written writeActRatio(const Policy &policy) {
  return policy.actRatio ? Written(tomlText(actRatioText(*policy.actRatio))) : std::nullopt;
}

// A text, or a list of numbers.
void readPercent(TomlReader &table, std::string_view key, Policy &policy) {
  const TomlValue *value = table.value(key);
  if (value == nullptr)
    return;
  std::string text = value->kind == TomlValue::Kind::String ? value->text : std::string();
  for (const TomlValue &item : value->items)
    text += item.kind == TomlValue::Kind::Integer ? cat(" ", item.integer)
            : item.kind == TomlValue::Kind::Float ? cat(" ", item.number)
                                                  : cat(" ", item.toString());
  std::string expected;
  policy.percent = percentFromText(text, expected);
  if (!policy.percent)
    table.refuse(key, expected);
}
Written writePercent(const Policy &policy) {
  return policy.percent ? Written(tomlText(percentText(*policy.percent))) : std::nullopt;
}

void readPrefer(TomlReader &table, std::string_view key, Policy &policy) {
  const auto prefer = table.oneOf(key, preferFromName, "latency, memory or throughput");
  lay(prefer, policy.prefer);
  policy.preferStated |= prefer.has_value();
}
Written writePrefer(const Policy &policy) { return named(policy.prefer == Prefer::Latency, preferName(policy.prefer)); }

void readActHome(TomlReader &table, std::string_view key, Policy &policy) {
  lay(table.oneOf(key, actHomeFromName, "auto, device or host"), policy.actHome);
}
Written writeActHome(const Policy &policy) {
  return named(policy.actHome == ActHome::Auto, actHomeName(policy.actHome));
}

constexpr SectionKey<Policy> kPolicyKeys[] = {
    {"name", readName, writeName},
    {"interval", readInterval, writeInterval},
    countKey<Policy, &Policy::offloadLayers, 0, kMaxLayers>("offload_layers"),
    {"start_rule", readStartRule, writeStartRule},
    countKey<Policy, &Policy::slots, 1, kMaxSlots>("slots"),
    {"kv_write_back", readWriteBack, writeWriteBack},
    choiceKey<Policy, &Policy::offloadEmbedding>("offload_embedding"),
    choiceKey<Policy, &Policy::offloadHead>("offload_head"),
    countKey<Policy, &Policy::placements, 1, kMaxPlacements>("placements"),
    countKey<Policy, &Policy::kvPlaces, kLeastKvPlaces, kMaxLayers>("kv_places"),
    {"residuals", readResiduals, writeResiduals},
    {"attention", readAttention, writeAttention},
    {"act_ratio", readActRatio, writeActRatio},
    {"percent", readPercent, writePercent},
    {"prefer", readPrefer, writePrefer},
    {"act_home", readActHome, writeActHome},
};

template <typename Section, size_t kKeys>
void readKeys(const SectionKey<Section> (&keys)[kKeys], TomlReader &table, Section &section) {
  for (const SectionKey<Section> &key : keys)
    key.read(table, key.name, section);
}

template <typename Section, size_t kKeys>
TomlEntries entriesOf(const SectionKey<Section> (&keys)[kKeys], const Section &section) {
  TomlEntries entries;
  for (const SectionKey<Section> &key : keys)
    if (Written value = key.write(section))
      entries.emplace_back(key.name, *std::move(value));
  return entries;
}

} // namespace

absl::Status readGoal(TomlReader &table, const std::string &folder, Goal &goal) {
  readKeys(kGoalKeys, table, goal);
  if (const std::optional<std::string> record = table.text("record")) {
    if (record->empty())
      table.refuse("record", "a performance record's file");
    goal.record = joinPath(folder, *record);
  }
  return table.finish();
}

absl::Status readPolicy(TomlReader &table, Policy &policy) {
  readKeys(kPolicyKeys, table, policy);
  return table.finish();
}

TomlEntries goalEntries(const Goal &goal) { return entriesOf(kGoalKeys, goal); }
TomlEntries policyEntries(const Policy &policy) { return entriesOf(kPolicyKeys, policy); }

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
