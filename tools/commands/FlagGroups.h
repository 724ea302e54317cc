// SPDX-License-Identifier: Apache-2.0
//
// Flags that several subcommands have, group by group; for CommandFlags.cpp only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "tools/commands/Commands.h"

namespace headrace::tools {

inline constexpr const char *kOtherEngines = "Words of vLLM and llama.cpp"; // their group in --help

// The model and the hardware, and a flag for every key of a job file that `takes` names (all if it is null).
void addKeys(CLI::App &app, JobInput &input, const char *source, bool (*takes)(const KeyFlag &) = nullptr);
// Every key of a job file, the source, and other engines' flags.
void addJob(CLI::App &app, JobInput &input, const char *source, bool (*takes)(const KeyFlag &) = nullptr);

// --allow-missed.
void addAllowMissed(CLI::App &app, JobInput &input);

CLI::Option *addSeed(CLI::App &app, const char *flag, uint64_t &seed, const char *help);
void addSyntheticWeights(CLI::App &app, std::optional<uint64_t> &seed);
void addWeights(CLI::App &app, WeightFlags &flags, const char *folderHelp);
void addSampling(CLI::App &app, SamplingFlags &flags);
// A text that may be given several times, each time one.
void addTexts(CLI::App &app, const char *flags, std::vector<std::string> &texts, const char *help);
// How a text becomes a prompt; addText() adds what becomes of the reply, too.
void addPromptText(CLI::App &app, TextFlags &flags);
void addText(CLI::App &app, TextFlags &flags);
// --scheduler, --max-num-seqs, --max-num-batched-tokens, --no-chunked-prefill, --swap-space, --preemption-mode.
void addScheduler(CLI::App &app, SchedulerFlags &flags);
void addOverwrite(CLI::App &app, bool &overwrite);
void addIgnoreAdapter(CLI::App &app, model::FolderOptions &folder); // addKeys() and addJob() add it, too

// Which device, and how its lanes run. A job that names no hardware is for the device that is named.
void addDevice(CLI::App &app, DeviceFlags &flags, JobInput &job, const char *byDefault);
void addGraphBuild(CLI::App &app, DeviceFlags &flags);
void addThreads(CLI::App &app, const std::function<void(const std::string &)> &take);
// After addJob(), whose --threads is the device's as well.
void addLanes(CLI::App &app, DeviceFlags &flags, JobInput &job);

} // namespace headrace::tools
