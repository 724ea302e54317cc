// SPDX-License-Identifier: Apache-2.0
//
// The command line: which subcommand is called, and the exit status. Their flags are in commands/CommandFlags.cpp, what
// they do in commands/<Name>Command.cpp.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <sys/resource.h>

#include <CLI/CLI.hpp>

#include "tools/commands/CommandFlags.h"
#include "tools/commands/Commands.h"
#include "tools/commands/ExitCode.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/Options.h"
#include "tools/commands/OutOfMemory.h"
#include "tools/commands/Outputs.h"
#include "tools/commands/Progress.h"
#include "tools/commands/Terminal.h"

namespace {

using namespace headrace::tools;

// llama.cpp's flags of several letters behind one dash, which would otherwise be read letter by letter.
std::vector<std::string> spelledOut(int argc, char **argv) {
  const std::map<std::string, std::string> longNames = {
      {"-ngl", "--n-gpu-layers"}, {"-np", "--parallel"}, {"-c", "--ctx-size"}, {"-n", "--max-new-tokens"}};
  std::vector<std::string> arguments;
  for (int i = argc - 1; i > 0; --i) { // CLI11 takes them last first
    const auto found = longNames.find(argv[i]);
    arguments.push_back(found == longNames.end() ? argv[i] : found->second);
  }
  return arguments;
}

// The application with its subcommands, and what each of them was asked for.
class Headrace {
public:
  Headrace() {
    app.footer("Each subcommand's --help has an example. Exit status: 0 done, 1 it cannot be met or failed, 2 usage or "
               "bad input.");
    app.require_subcommand(1);
    app.set_version_flag("--version", "headrace " HEADRACE_VERSION);
    add(addCompile, compile_, compileCommand);
    add(addInspect, inspect_, inspectCommand);
    add(addTimeline, timeline_, timelineCommand);
    add(addRun, run_, runCommand);
    add(addSimulate, simulate_, runCommand);
    add(addChat, chat_, chatCommand);
    add(addTokenize, tokenize_, tokenizeCommand);
    add(addDetokenize, detokenize_, detokenizeCommand);
    add(addBench, bench_, benchCommand);
    add(addBenchServe, benchServe_, benchServeCommand);
    add(addProfile, profile_, profileCommand);
    add(addRecordShow, record_, recordShowCommand);
    add(addFleet, fleet_, fleetCommand);
  }

  CLI::App app{"headrace: language models beyond device memory. Compiles a model to a plan that brings weights to the "
               "device before a layer needs them, shows the plan, and runs it.",
               "headrace"};

  // Of the subcommand that was parsed; of one within another, which comes behind it, that one.
  absl::Status run() const {
    for (auto command = commands_.rbegin(); command != commands_.rend(); ++command)
      if (*command->app)
        return command->run();
    return absl::InternalError("no subcommand was parsed"); // require_subcommand
  }

private:
  struct Command {
    CLI::App *app;
    std::function<absl::Status()> run;
  };
  template <class Options>
  void add(CLI::App *(*flags)(CLI::App &, Options &), Options &options, absl::Status (*run)(const Options &)) {
    commands_.push_back({flags(app, options), [&options, run] { return run(options); }});
  }

  CompileOptions compile_;
  InspectOptions inspect_;
  TimelineOptions timeline_;
  RunOptions run_, simulate_;
  ChatOptions chat_;
  TokenizeOptions tokenize_, detokenize_;
  BenchOptions bench_;
  BenchServeOptions benchServe_;
  ProfileOptions profile_;
  RecordOptions record_;
  FleetOptions fleet_;
  std::vector<Command> commands_;
};

// A first word that is neither a subcommand nor a flag.
bool namesNoSubcommand(CLI::App &app, const std::string &word) {
  const std::vector<CLI::App *> all = app.get_subcommands([](CLI::App *) { return true; });
  return !word.starts_with('-') &&
         std::none_of(all.begin(), all.end(), [&](CLI::App *one) { return one->get_name() == word; });
}

// Known before anything is parsed, so that an error of parsing is an object, too.
bool asksForJson(int argc, char **argv) {
  return std::any_of(argv + 1, argv + argc, [](const char *word) { return std::string(word) == "--json"; });
}

int run(int argc, char **argv) {
  Headrace headrace;
  const bool asJson = asksForJson(argc, argv);
  const std::string first = argc > 1 ? argv[1] : "-";
  if (namesNoSubcommand(headrace.app, first))
    return reportError(badFlag("command", first,
                               "bench, chat, compile, detokenize, fleet, inspect, profile, record, run, simulate, "
                               "timeline or tokenize"),
                       asJson);
  try {
    headrace.app.parse(spelledOut(argc, argv));
  } catch (const CLI::ParseError &error) {
    if (error.get_exit_code() == 0) // --help, --version
      return headrace.app.exit(error);
    std::string command = first.starts_with('-') ? "headrace" : "headrace " + first;
    if (first == "bench" && argc > 2 && std::string(argv[2]) == "serve")
      command += " serve";
    return reportError(usageError(error, command), asJson);
  }
  if (asJson)
    silenceProgress();
  if (const absl::Status status = headrace.run(); !status.ok())
    return reportError(status, asJson);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) { // what did not fit the buffer failed before
    say("error: standard output: cannot write");
    return kExitFailed;
  }
  return kExitOk;
}

// A template or a file may nest as deep as its reader allows, which takes up to a quarter of this.
absl::Status checkStack() {
  constexpr rlim_t kLeast = rlim_t{1} << 20;
  rlimit stack{};
  if (::getrlimit(RLIMIT_STACK, &stack) != 0 || stack.rlim_cur >= kLeast)
    return absl::OkStatus();
  return absl::ResourceExhaustedError("a stack of " + std::to_string(stack.rlim_cur) + " bytes: expected at least " +
                                      std::to_string(kLeast) + " (ulimit -s " + std::to_string(kLeast / 1024) + ")");
}

} // namespace

int main(int argc, char **argv) {
  removePartFilesOnSignals();
  endWhereMemoryEnds(asksForJson(argc, argv));
  absl::Status failed = checkStack();
  if (failed.ok())
    try {
      return run(argc, argv);
    } catch (const std::exception &error) {
      failed = absl::InternalError(error.what());
    }
  return reportError(failed, asksForJson(argc, argv));
}
