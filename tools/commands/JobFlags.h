// SPDX-License-Identifier: Apache-2.0
//
// A job from a model or a job file and the flags beside it.
//
//   job.toml, shape, profile -> values;  flags -> the same keys' values (KeyFlags.h), laid over them;  validate
//
// Flags win over the file. A refusal about a flag names the flag, one about a file the file, line and key.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/job/JobFile.h"
#include "tools/commands/KeyFlags.h"

namespace headrace::tools {

struct JobInput {
  std::string source;       // a model's folder, shape or shipped name, or a job file; may be empty
  std::string modelFlag;    // --model: wins over the job file's
  std::string hardwareFlag; // --hardware
  std::string device;       // --device: where no hardware is named, that of this device
  FlagTexts flags;
  model::FolderOptions folder;                 // --ignore-adapter
  std::map<std::string, std::string> synonyms; // other engines' flags for exactly one of ours, by their name
  // Other engines' flags that need the model or the hardware to be understood, or have units of their own.
  std::optional<std::string> gpuMemoryUtilization; // vLLM: share of the device's memory
  std::optional<std::string> cpuOffloadGb;         // vLLM: GiB of weights in host memory, at most
  std::optional<std::string> gpuLayers;            // llama.cpp -ngl: layers on the device
  // vLLM: host memory for KV blocks; a number without a unit is GiB.
  std::optional<std::string> kvOffloadingSize;
  bool isJob = false;       // the source is a job file; set where it is read
  bool allowMissed = false; // a plan that misses its objectives is taken as it is

  // --threads is the device's as well, and stands beside a plan.
  bool deviceThreads = false;

  bool any() const; // beside `source`, but for that
};

struct AssembledJob {
  JobInput input;                 // as given, flags of other engines translated
  model::Job job;                 // model and hardware are set
  std::string device;             // that runs it where --device does not say
  std::vector<std::string> notes; // what flags of other engines were taken for, one line each
};

// What runs plans for hardware of a kind: "host", "cuda".
std::string deviceFor(model::DeviceKind kind);

// The job that file, model and flags describe. Hardware is this machine's (Machine.h) unless said otherwise, which a
// note then says.
absl::StatusOr<AssembledJob> assembleJob(const JobInput &input);

// A refusal of "goal.batch = ..." (or "hardware: memory = ...") with where that was given: the flag, or the job's file
// and the key.
absl::Status aboutInput(const JobInput &input, const absl::Status &status);

// Whether a file is a job (it has one of a job's sections) and not a shape.
bool looksLikeJob(std::string_view text);

} // namespace headrace::tools
