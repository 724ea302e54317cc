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

// "\"a = 1\": expected \"a = 2\"".
std::string firstDifference(std::string_view text, std::string_view expected) {
  const auto at = static_cast<size_t>(
      std::mismatch(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(std::min(text.size(), expected.size())),
                    expected.begin())
          .first -
      text.begin());
  const auto line = [&](std::string_view of) {
    const size_t before = at == 0 ? std::string_view::npos : of.rfind('\n', at - 1);
    const size_t begin = before == std::string_view::npos ? 0 : before + 1;
    return cat("\"", escaped(std::string(of.substr(begin, of.find('\n', begin) - begin)), 80), "\"");
  };
  return cat(line(text), ": expected ", line(expected));
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
  ASSIGN_OR_RETURN(model, parseShapeTable(shape, where, "", nullptr, /*ofPlan=*/true));
  ASSIGN_OR_RETURN(hardware, parseHardwareTable(profile, where, "", std::nullopt));
  RETURN_IF_ERROR(readGoal(goal, "", inputs.goal));
  RETURN_IF_ERROR(readPolicy(policy, inputs.policy));
  inputs.model = std::move(model);
  inputs.hardware = std::move(hardware);
  if (const std::string own = inputsText(inputs.model, inputs.hardware, inputs.goal, inputs.policy); own != text)
    return absl::InvalidArgumentError(cat(where, ": not as headrace writes them: ", firstDifference(text, own)));
  return inputs;
}

} // namespace headrace::model
