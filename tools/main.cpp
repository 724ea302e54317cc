// SPDX-License-Identifier: Apache-2.0
//
// The command line: which subcommand is called, and the exit status. Their flags are in commands/CommandFlags.cpp, what
// they do in commands/<Name>Command.cpp.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "absl/strings/str_join.h"
#include "runtime/base/Nearest.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "tools/commands/CommandFlags.h"
#include "tools/commands/Commands.h"
#include "tools/commands/EngineFlags.h"
#include "tools/commands/ExitCode.h"
#include "tools/commands/FlagGroups.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/Options.h"
#include "tools/commands/OutOfMemory.h"
#include "tools/commands/Outputs.h"
#include "tools/commands/Progress.h"
#include "tools/commands/Terminal.h"

namespace {

using namespace headrace::tools;

// llama.cpp's flags of several letters behind one dash, which would otherwise be read letter by letter.
std::string spelledOut(const std::string &word) {
  static const std::map<std::string, std::string> kLongNames = {{"-ngl", "--n-gpu-layers"}, {"-np", "--parallel"},
                                                                {"-c", "--ctx-size"},       {"-n", "--max-new-tokens"},
                                                                {"-ctk", "--cache-type-k"}, {"-ctv", "--cache-type-v"}};
  const auto found = kLongNames.find(word);
  return found == kLongNames.end() ? word : found->second;
}

// Flags of a command that were given by another name than messages have for them.
TypedFlags typedFlags(const CLI::App &command, const std::vector<std::string> &words) {
  TypedFlags typed;
  for (const std::string &word : words) {
    const std::string flag = word.substr(0, word.find('=')), longer = spelledOut(flag); // -o is no other name
    const CLI::Option *option = longer.starts_with("--") ? command.get_option_no_throw(longer) : nullptr;
    if (option == nullptr)
      continue;
    const std::string name = firstName(*option);
    if (option->get_group() == kOtherEngines)
      typed.emplace(meantBy(name), flag);
    else if (flag != name)
      typed.emplace(name, flag);
    else
      typed[name] = flag; // whatever else stands for it
  }
  return typed;
}

// --pin=3: CLI11 takes a number or a word such as "yes" for true or false.
absl::Status checkFlagValues(const CLI::App &command, const std::vector<std::string> &words) {
  for (const std::string &word : words) {
    if (word == "--")
      break;
    const size_t at = word.find('=');
    if (!word.starts_with("--") || at == std::string::npos)
      continue;
    const CLI::Option *option = command.get_option_no_throw(word.substr(0, at));
    if (option != nullptr && option->get_items_expected_max() == 0)
      return badFlag(word.substr(0, at), word.substr(at + 1), "no value: this flag is there, or is not");
  }
  return absl::OkStatus();
}

// The application with its subcommands, and what each of them was asked for.
class Headrace {
public:
  Headrace() {
    app.footer("Each subcommand's --help has an example. Exit status: 0 done, 1 it cannot be met or failed, 2 usage or "
               "bad input.");
    app.require_subcommand(1);
    app.set_version_flag("--version", kVersion);
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
    add(addDrift, drift_, driftCommand);
    add(addProfile, profile_, profileCommand);
    add(addRecordShow, record_, recordShowCommand);
    add(addFleet, fleet_, fleetCommand);
    CLI::App *help = app.add_subcommand("help", "what a command does, and its flags: the same as its --help");
    help->add_option("command", helpOf_, "such as run, or bench serve")->type_name("");
    commands_.push_back({help, [this] { return this->help(); }});
    commands_.push_back({app.add_subcommand("version", "the same as --version"), [] {
                           std::puts(kVersion);
                           return absl::OkStatus();
                         }});
  }

  CLI::App app{"headrace: language models beyond device memory. Compiles a model to a plan that brings weights to the "
               "device before a layer needs them, shows the plan, and runs it.",
               "headrace"};

  // The command that these words begin with, "bench" or "bench serve"; the application itself where none is meant.
  const CLI::App &commandOf(const std::vector<std::string> &words) const {
    const CLI::App *command = &app;
    for (const std::string &word : words) {
      const CLI::App *next = subcommand(*command, word);
      if (next == nullptr)
        break;
      command = next;
    }
    return *command;
  }
  // "headrace bench serve".
  static std::string fullName(const CLI::App &command) {
    const CLI::App *outer = command.get_parent();
    return outer == nullptr ? command.get_name() : fullName(*outer) + " " + command.get_name();
  }
  // Refuses a first word that is neither a command nor a flag.
  absl::Status checkFirst(const std::string &word) const {
    if (word.starts_with('-') || subcommand(app, word) != nullptr)
      return absl::OkStatus();
    std::vector<std::string> names;
    for (const CLI::App *one : app.get_subcommands([](const CLI::App *) { return true; }))
      names.push_back(one->get_name());
    std::sort(names.begin(), names.end());
    return badFlag("command", word, detail::oneOf(names) + headrace::model::didYouMean(word, names));
  }

  // Of the subcommand that was parsed; of one within another, which comes behind it, that one.
  absl::Status run() const {
    for (auto command = commands_.rbegin(); command != commands_.rend(); ++command)
      if (*command->app)
        return command->run();
    return absl::InternalError("no subcommand was parsed"); // require_subcommand
  }

private:
  static constexpr const char *kVersion = "headrace " HEADRACE_VERSION;

  static const CLI::App *subcommand(const CLI::App &of, const std::string &name) {
    for (const CLI::App *one : of.get_subcommands([](const CLI::App *) { return true; }))
      if (one->get_name() == name)
        return one;
    return nullptr;
  }
  absl::Status help() const {
    if (!helpOf_.empty())
      RETURN_IF_ERROR(checkFirst(helpOf_[0]));
    const CLI::App &of = commandOf(helpOf_);
    const std::string name = fullName(of), asked = absl::StrJoin(helpOf_, " ");
    if (name != fullName(app) + (asked.empty() ? "" : " " + asked))
      return badUsage(
          headrace::model::cat("help ", asked, ": expected a command, such as help ", name.substr(name.find(' ') + 1)));
    std::fputs(of.get_formatter()->make_help(&of, name, CLI::AppFormatMode::Normal).c_str(), stdout);
    return absl::OkStatus();
  }

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
  DriftOptions drift_;
  ProfileOptions profile_;
  RecordOptions record_;
  FleetOptions fleet_;
  std::vector<std::string> helpOf_;
  std::vector<Command> commands_;
};

// Known before anything is parsed, so that an error of parsing is an object, too.
bool asksForJson(int argc, char **argv) {
  return std::any_of(argv + std::min(1, argc), argv + argc,
                     [](const char *word) { return std::string(word) == "--json"; });
}

int endOfOutput(int status) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) // what did not fit the buffer failed before
    return status;
  say("error: standard output: cannot write");
  return kExitFailed;
}

int run(int argc, char **argv) {
  Headrace headrace;
  const std::vector<std::string> words(argv + std::min(1, argc), argv + argc);
  const bool asJson = asksForJson(argc, argv);
  if (const absl::Status known = words.empty() ? absl::OkStatus() : headrace.checkFirst(words[0]); !known.ok())
    return reportError(known, asJson);
  const CLI::App &command = headrace.commandOf(words);
  const TypedFlags typed = typedFlags(command, words);
  if (const absl::Status valued = checkFlagValues(command, words); !valued.ok())
    return reportError(valued, asJson);
  try {
    std::vector<std::string> arguments;
    std::transform(words.rbegin(), words.rend(), std::back_inserter(arguments),
                   spelledOut); // CLI11 takes the last first
    headrace.app.parse(std::move(arguments));
  } catch (const CLI::ParseError &error) {
    if (error.get_exit_code() == 0) // --help, --version
      return endOfOutput(headrace.app.exit(error));
    return reportError(usageError(error, Headrace::fullName(command), command), asJson, typed);
  }
  if (asJson)
    silenceProgress();
  if (const absl::Status status = headrace.run(); !status.ok())
    return reportError(status, asJson, typed);
  return endOfOutput(kExitOk);
}

// A descriptor of a standard stream that is closed would be the next file's that is opened, and be read as what is
// typed or be overwritten by a report. It is one instead that every use of fails on.
void holdClosedStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF)
      (void)::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY); // the lowest that is free: this one
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
  holdClosedStreams();
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
