// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/JobToml.h"

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/Text.h"
#include "runtime/base/Units.h"

namespace headrace::tools {
namespace {

std::string number(int64_t value) { return absl::StrFormat("%d", value); }
std::string boolean(bool value) { return value ? "true" : "false"; }
std::string text(std::string_view value) { return tomlText(std::string(value)); }

std::string list(const std::vector<int64_t> &values) { return model::cat("[", absl::StrJoin(values, ", "), "]"); }

} // namespace

TomlEntries goalEntries(const model::Goal &goal) {
  TomlEntries e;
  if (goal.deviceMemory)
    e.emplace_back("device_memory", text(model::bytesText(*goal.deviceMemory)));
  if (goal.batch)
    e.emplace_back("batch", number(*goal.batch));
  if (goal.context)
    e.emplace_back("context", number(*goal.context));
  if (goal.kvTokens)
    e.emplace_back("kv_tokens", number(*goal.kvTokens));
  if (goal.kvDtype)
    e.emplace_back("kv_dtype", text(model::dtypeName(*goal.kvDtype)));
  e.emplace_back("block_tokens", number(goal.blockTokens));
  if (goal.elasticKv != model::Choice::Auto)
    e.emplace_back("elastic_kv", boolean(goal.elasticKv == model::Choice::On));
  for (const auto &[key, ns] : {std::pair("ttft", goal.ttftNs), std::pair("tpot", goal.tpotNs)})
    if (ns)
      e.emplace_back(key, text(model::durationText(*ns)));
  if (goal.sloFactor)
    e.emplace_back("slo_factor", tomlNumber(*goal.sloFactor));
  if (goal.instances != model::Instances::Together)
    e.emplace_back("instances", text(model::instancesName(goal.instances)));
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
  if (policy.startRuleStated) // only then: policies other than interval have a rule of their own
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
