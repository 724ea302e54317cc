// SPDX-License-Identifier: Apache-2.0
//
// Every key of a job file as a flag.
//
//   job.toml  [goal] device_memory = "8GiB"      headrace compile MODEL --device-memory 8GiB
//
// A flag's text becomes the value that its key would have in a file, and the section's reader reads it from there: a
// flag is checked exactly as its key is, and refused by the flag's name.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/base/TomlReader.h"
#include "runtime/job/Hardware.h"
#include "runtime/job/TomlText.h"

namespace headrace::tools {

// What a flag's text stands for: Text and Amount (with a unit) a text, Plain a number or a truth value, List "1,8",
// Interval a number or none, Choice auto, on or off, Table "key=value,key=value".
enum class FlagKind : uint8_t { Text, Plain, Amount, List, Interval, Choice, Table };

struct KeyFlag {
  std::string_view section; // "shape", "hardware", "goal", "policy", "buckets"
  std::string_view key;     // in that section
  std::string_view flag;    // with its dashes
  FlagKind kind;
  std::string_view help;
  std::string_view synonyms{}; // other engines' flags for exactly this, "--a,--b"
};
absl::Span<const KeyFlag> keyFlags();

// The flag of a key; null: there is none.
const KeyFlag *flagOf(std::string_view section, std::string_view key);
// The flag that another engine's flag stands for; null: there is none.
const KeyFlag *flagOfSynonym(std::string_view synonym);

using FlagTexts = std::map<std::string, std::string>; // by KeyFlag::flag

// What a suffix was taken for, which engines read differently: "8000" of --context 8k, "8GiB" of --device-memory 8G; of
// a list each. Empty where there is none.
std::string suffixMeaning(const KeyFlag &flag, const std::string &text);

// The flags of one section as a table of its keys, without any if there are none.
absl::StatusOr<model::TomlValue> flagTable(const FlagTexts &flags, std::string_view section);
// Reads such a table; it must outlive the reader. Refusals name the flag: "command line: --batch = ...".
model::TomlReader flagReader(const model::TomlValue &table, std::string_view section);

// The flags of a section ("shape", "hardware") for those keys whose value in `wanted` is not the one in `base`: flag
// and value, in the order of keyFlags().
std::vector<std::pair<std::string, std::string>>
differingFlags(std::string_view section, const model::TomlEntries &base, const model::TomlEntries &wanted);

// `--hardware` and the flags that make its profile this hardware; one that no name stands for is spelled out over the
// profile of the host.
std::vector<std::pair<std::string, std::string>> hardwareFlags(const model::Hardware &hardware);

// A word of a command line, quoted where a shell would take it apart.
std::string shellWord(const std::string &word);

} // namespace headrace::tools
