// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/InputsText.h"

#include <algorithm>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/base/TomlReader.h"
#include "runtime/job/JobSections.h"
#include "runtime/job/TomlText.h"
#include "runtime/model/Shape.h"

namespace headrace::model {
namespace {

std::string section(std::string_view name, TomlEntries entries) {
  std::sort(entries.begin(), entries.end());
  return cat("[", name, "]\n", toToml(entries));
}

} // namespace

std::string inputsText(const ModelSpec &spec, const Hardware &hardware, const Goal &goal, const Policy &policy) {
  return section("model", shapeEntries(spec)) + section("hardware", hardwareEntries(hardware)) +
         section("goal", goalEntries(goal)) + section("policy", policyEntries(policy));
}

absl::StatusOr<Inputs> parseInputs(std::string_view text, const std::string &where) {
  ASSIGN_OR_RETURN(document, parseToml(text, where));
  TomlReader file(document, where, "");
  const TomlValue *sections[4] = {};
  constexpr std::string_view kNames[4] = {"model", "hardware", "goal", "policy"};
  for (size_t i = 0; i < 4; ++i) {
    sections[i] = file.value(kNames[i]);
    if (sections[i] == nullptr || sections[i]->kind != TomlValue::Kind::Table)
      return absl::InvalidArgumentError(cat(where, ": no section [", kNames[i], "]"));
  }
  RETURN_IF_ERROR(file.finish());
  Inputs inputs;
  TomlReader shape(*sections[0], where, kNames[0]), profile(*sections[1], where, kNames[1]);
  TomlReader goal(*sections[2], where, kNames[2]), policy(*sections[3], where, kNames[3]);
  ASSIGN_OR_RETURN(model, parseShapeTable(shape, where, ""));
  ASSIGN_OR_RETURN(hardware, parseHardwareTable(profile, where, "", std::nullopt));
  RETURN_IF_ERROR(readGoal(goal, "", inputs.goal));
  RETURN_IF_ERROR(readPolicy(policy, inputs.policy));
  inputs.model = std::move(model);
  inputs.hardware = std::move(hardware);
  if (inputsText(inputs.model, inputs.hardware, inputs.goal, inputs.policy) != text)
    return absl::InvalidArgumentError(cat(where, ": not as headrace writes them"));
  return inputs;
}

} // namespace headrace::model
