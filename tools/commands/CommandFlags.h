// SPDX-License-Identifier: Apache-2.0
//
// The subcommands' flags: one function a subcommand, which adds it to the application and fills its options once it is
// parsed. Values are checked as they are read; what concerns several flags is the command's to check.
#pragma once

#include <CLI/CLI.hpp>

#include "tools/commands/Commands.h"

namespace headrace::tools {

CLI::App *addCompile(CLI::App &app, CompileOptions &options);
CLI::App *addInspect(CLI::App &app, InspectOptions &options);
CLI::App *addTimeline(CLI::App &app, TimelineOptions &options);
CLI::App *addRun(CLI::App &app, RunOptions &options);
CLI::App *addChat(CLI::App &app, ChatOptions &options);
CLI::App *addTokenize(CLI::App &app, TokenizeOptions &options);
CLI::App *addDetokenize(CLI::App &app, TokenizeOptions &options);
CLI::App *addSimulate(CLI::App &app, RunOptions &options);
CLI::App *addBench(CLI::App &app, BenchOptions &options);
CLI::App *addBenchServe(CLI::App &app, BenchServeOptions &options); // `bench serve`; after addBench()
CLI::App *addDrift(CLI::App &app, DriftOptions &options);
CLI::App *addProfile(CLI::App &app, ProfileOptions &options);
CLI::App *addRecordShow(CLI::App &app, RecordOptions &options); // `record show`, of which `record` has only this one
CLI::App *addFleet(CLI::App &app, FleetOptions &options);

} // namespace headrace::tools
