// SPDX-License-Identifier: Apache-2.0
//
// Every key of a job file as a flag, and the flags of other engines that mean the same.
//
//   job.toml  [goal] device_memory = "8GiB"      headrace compile MODEL --device-memory 8GiB
//
// Flags win over the file: the section's keys as they stand, with the flags' laid over them, are read again by the same
// readers, so that a flag is checked exactly as its key is.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/job/JobFile.h"
#include "tools/commands/JobToml.h"

namespace headrace::tools {

// How a flag's value becomes TOML: Text is quoted, Plain is a number or a truth value, Amount a text with a unit, Time
// that or a number of seconds, List is "1,8", Interval a number or none, Choice auto, on or off, Table
// "key=value,key=value".
enum class FlagKind : uint8_t { Text, Plain, Amount, Time, List, Interval, Choice, Table };

struct KeyFlag {
  std::string_view section; // "shape", "hardware", "goal", "policy", "buckets"
  std::string_view key;     // in that section
  std::string_view flag;    // with its dashes
  FlagKind kind;
  std::string_view help;
  std::string_view synonyms{}; // other engines' flags for exactly this, "--a,--b"
};
absl::Span<const KeyFlag> keyFlags();

struct JobInput {
  std::string source;                          // a model's folder, shape or shipped name, or a job file; may be empty
  std::string modelFlag;                       // --model: wins over the job file's
  std::string hardwareFlag;                    // --hardware
  std::map<std::string, std::string> flags;    // by KeyFlag::flag
  std::map<std::string, std::string> synonyms; // other engines' flags for exactly one of ours, by their name
  // Other engines' flags that need the model or the hardware to be understood.
  std::optional<std::string> gpuMemoryUtilization; // vLLM: share of the device's memory
  std::optional<std::string> cpuOffloadGb;         // vLLM: GiB of weights in host memory, at most
  std::optional<std::string> gpuLayers;            // llama.cpp -ngl: layers on the device

  bool any() const; // beside `source`
};

struct AssembledJob {
  JobInput input;                 // as given, flags of other engines translated
  model::Job job;                 // model and hardware are set
  std::vector<std::string> notes; // what flags of other engines were taken for, one line each
};

// The job that file, model and flags describe. Hardware is the shipped profile "host" unless said otherwise.
absl::StatusOr<AssembledJob> assembleJob(const JobInput &input);

// A refusal of "goal.batch = ..." with where that was given: the flag, or the job's file and the key.
absl::Status aboutInput(const JobInput &input, const absl::Status &status);

// The flags of a section ("shape", "hardware") for those keys whose value in `wanted` is not the one in `base`: flag
// and value, in the order of keyFlags().
std::vector<std::pair<std::string, std::string>> differingFlags(std::string_view section, const TomlEntries &base,
                                                                const TomlEntries &wanted);

// Whether a file is a job (it has one of a job's sections) and not a shape.
bool looksLikeJob(std::string_view text);

} // namespace headrace::tools
