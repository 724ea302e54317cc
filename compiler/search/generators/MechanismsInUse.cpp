// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/generators/MechanismsInUse.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/search/generators/Generators.h"
#include "runtime/job/Expansion.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {

std::vector<model::MechanismInUse> mechanismsInUse(const CompileRequest &request, const Generator &policy) {
  using model::Mechanism;
  const model::Goal &goal = request.goal;
  const model::Policy &asked = request.policy;
  std::vector<model::MechanismInUse> used;
  const auto add = [&](bool inUse, Mechanism what, const std::string &said, std::string otherwise = "") {
    if (inUse)
      used.push_back({what, said, std::move(otherwise)});
  };
  const auto is = [](absl::string_view key, std::string_view value) {
    return absl::StrCat(key, " = \"", absl::string_view(value.data(), value.size()), "\"");
  };
  const std::string byPolicy = is("policy.name", policy.name);
  if (goal.kvDeviceMemory)
    add(true, Mechanism::KvOnHost, absl::StrCat("goal.kv_device_memory = ", *goal.kvDeviceMemory));
  else
    add(policy.keepsActivations, Mechanism::KvOnHost, byPolicy);
  if (goal.expansion)
    add(true, Mechanism::Expansion, absl::StrCat("goal.expansion = ", model::expansionText(*goal.expansion)));
  if (asked.kvPlaces)
    add(true, Mechanism::KvPlaces, absl::StrCat("policy.kv_places = ", *asked.kvPlaces));
  const std::string writeBack = is("policy.kv_write_back", model::kvWriteBackName(asked.kvWriteBack));
  add(asked.kvWriteBack != model::KvWriteBack::Auto, Mechanism::WriteBack, writeBack);
  add(asked.kvWriteBack == model::KvWriteBack::Mirror || asked.kvWriteBack == model::KvWriteBack::Dirty,
      Mechanism::WriteBackInPart, writeBack);
  add(policy.swapsLayers, Mechanism::SwappedLayers, byPolicy, "another policy");
  if (asked.actRatio && (asked.actRatio->any() || asked.actRatio->isAuto()))
    add(true, Mechanism::ActBlocks, absl::StrCat("policy.act_ratio = ", model::actRatioText(*asked.actRatio)));
  else
    add(policy.keepsActivations && !asked.actRatio, Mechanism::ActBlocks, byPolicy);
  add(asked.actHome == model::ActHome::Host, Mechanism::ActsOnHost, is("policy.act_home", "host"));
  add(asked.residuals == model::Residuals::Host, Mechanism::ResidualsOnHost, is("policy.residuals", "host"));
  add(asked.attention != model::Attention::Device, Mechanism::AttentionOnCpu,
      is("policy.attention", model::attentionName(asked.attention)));
  add(request.model->isStage(), Mechanism::Stages, "stages", "one device");
  add(goal.miniBatches > 1, Mechanism::MiniBatches, absl::StrCat("goal.mini_batches = ", goal.miniBatches));
  add(goal.elasticKv == model::AutoOnOff::On, Mechanism::ElasticKv, "goal.elastic_kv = true",
      "elastic_kv \"auto\" or off");
  add(goal.instances == model::Instances::Apart, Mechanism::InstancesApart, is("goal.instances", "apart"),
      "instances \"together\"");
  add(!policy.splitsCaches, Mechanism::WeightsOnly, byPolicy, absl::StrCat("policy ", splittingPolicyNames()));
  add(asked.startRule != model::StartRule::Eager, Mechanism::ItemByItem,
      is("policy.start_rule", model::startRuleName(asked.startRule)), "start rule eager");
  add(policy.startsItemByItem, Mechanism::ItemByItem, byPolicy, "another policy");
  return used;
}

} // namespace headrace::compiler
