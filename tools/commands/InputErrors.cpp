// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/InputErrors.h"

#include <algorithm>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "tools/commands/ExitCode.h"
#include "tools/commands/Terminal.h"

namespace headrace::tools {

using model::cat;

std::string quoted(std::string_view text) {
  constexpr size_t kMost = 200;
  return cat("\"", model::escaped(text, kMost), text.size() > kMost ? "..." : "", "\"");
}

absl::Status badUsage(std::string_view message) { return absl::InvalidArgumentError(cat(kCommandLine, ": ", message)); }

absl::Status badNumber(std::string_view flag, const absl::AlphaNum &value, std::string_view expected) {
  return badUsage(cat(flag, " = ", value, ": expected ", expected));
}

absl::Status badFlag(std::string_view flag, std::string_view value, std::string_view expected) {
  return badUsage(cat(flag, " = ", quoted(value), ": expected ", expected));
}

absl::Status badFlag(std::string_view flag, std::string_view value, std::string_view why, std::string_view expected) {
  return badUsage(cat(flag, " = ", quoted(value), ": ", why, ": expected ", expected));
}

namespace {
constexpr char kReported[] = "headrace/reported";

// "command line: --context = ..." as "command line: --max-model-len = ...", where that is what was typed.
std::string asTyped(std::string message, const TypedFlags &typed) {
  const size_t begin = kCommandLine.size() + 2;
  if (!message.starts_with(cat(kCommandLine, ": --")))
    return message;
  const size_t end = std::min(message.find_first_of(" =:,", begin), message.size());
  const auto found = typed.find(std::string_view(message).substr(begin, end - begin));
  return found == typed.end() ? message : message.replace(begin, end - begin, found->second);
}
} // namespace

absl::Status withReport(absl::Status status) {
  status.SetPayload(kReported, absl::Cord());
  return status;
}

int reportError(const absl::Status &status, bool json, const TypedFlags &typed) {
  const std::string message = asTyped(std::string(status.message()), typed);
  const int exitStatus = exitCodeOf(status);
  say("error: " + message);
  if (json && !status.GetPayload(kReported)) {
    using Json = nlohmann::ordered_json;
    const Json object = {{"error", {{"message", message}, {"exit_status", exitStatus}}}};
    print(object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  std::fflush(stdout);
  return exitStatus;
}

} // namespace headrace::tools
