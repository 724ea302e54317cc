// SPDX-License-Identifier: Apache-2.0
//
// The one form of an error about what was given:
//
//   WHERE: KEY = FOUND: expected EXPECTED            command line: --batch = 0: expected an integer from 1 to 1048576
//   WHERE: KEY = FOUND: WHY: expected EXPECTED       job.toml:3: goal.batch = 0: expected an integer from 1 to 1048576
//
// WHERE is a file and its line, or "command line"; KEY a key as the file spells it, or the flag.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "runtime/base/Text.h"

namespace headrace::tools {

inline constexpr std::string_view kCommandLine = "command line";

// What was given as text, quoted and cut to a printable length.
std::string quoted(std::string_view text);

// "command line: <flag> = <value>: [<why>: ]expected <expected>".
absl::Status badNumber(std::string_view flag, const absl::AlphaNum &value, std::string_view expected);
absl::Status badFlag(std::string_view flag, std::string_view value, std::string_view expected);
absl::Status badFlag(std::string_view flag, std::string_view value, std::string_view why, std::string_view expected);
// What is about no one flag's value: "command line: <message>".
absl::Status badUsage(std::string_view message);

// Of flags that stand for others which messages name: what was typed, by the flag it stands for.
using TypedFlags = std::map<std::string, std::string, std::less<>>;

// An error as a command says it: on standard error for people, and with --json on standard output as
// {"error": {"message": ..., "exit_status": ...}}. The flag that it is about is called as it was typed. Gives the exit
// status.
int reportError(const absl::Status &status, bool json, const TypedFlags &typed = {});
// The status of a command that has printed its own object already; reportError() then prints none.
absl::Status withReport(absl::Status status);

} // namespace headrace::tools
