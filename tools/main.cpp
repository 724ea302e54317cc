// SPDX-License-Identifier: Apache-2.0
//
// The command line: what each subcommand takes, and the exit status. What they do is in <Name>Command.cpp.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "tools/commands/Commands.h"
#include "tools/commands/Devices.h"
#include "tools/commands/ExitCode.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/Options.h"
#include "tools/commands/Outputs.h"
#include "tools/commands/Progress.h"

namespace {

using namespace headrace::tools;

constexpr const char *kCompileHelp = R"(Example:
  headrace compile ./llama-3.1-8b --hardware rtx4090 --device-memory 8GiB --batch 8 --context 2048 -o out.plan
  headrace compile opt-30b --hardware a10 --batch 4 --context 512 --dry-run       (a shipped shape; nothing is written)
  headrace compile job.toml --interval 4 -o out.plan                             (flags win over the file)
  headrace compile opt-6.7b --hardware a10 --batch 16 --context 64 --tpot 60ms --dry-run       (a latency objective)
  headrace compile opt-6.7b --hardware a10 --batch 16 --context 64 --policy select-n --slo-factor 1.5 --dry-run)";
constexpr const char *kInspectHelp = R"(Example:
  headrace inspect out.plan
  headrace inspect out.plan --json | jq '.variants[].h2d_bytes')";
constexpr const char *kTimelineHelp = R"(Example:
  headrace timeline out.plan
  headrace timeline out.plan --variant 2 --format svg -o timeline.svg
  headrace run out.plan --prompt-ids 1,2,3 --timeline run.json                     (open it in ui.perfetto.dev)
  headrace timeline out.plan --measured run.json --format svg -o both.svg)";
constexpr const char *kLowLatencyHelp =
    "host: lanes that take their cores at once, and cores that do not halt; refused where the system does not grant it";

constexpr const char *kAllHelp = "tables with all their rows: of more than 24 only the first and last are shown";
constexpr const char *kRunHelp = R"(Example:
  headrace run ./qwen2.5-0.5b --device-memory 400MiB --prompt-ids "1,2,3;4,5" --max-new-tokens 32
  headrace run out.plan --prompt-ids prompts.txt --json --logits logits.safetensors
  headrace run examples/jobs/tiny-on-host.toml --synthetic-weights 1 --random-input-len 16 --timeline run.svg)";
constexpr const char *kSimulateHelp = R"(Example:
  headrace simulate opt-30b --hardware a10 --device-memory 20GiB --random-input-len 512 --num-prompts 8 --max-new-tokens 64
  headrace simulate out.plan --prompt-ids "1,2,3;4,5" --link-bandwidth 12GB/s)";

constexpr const char *kBenchHelp = R"(Example:
  headrace bench opt-6.7b --hardware a10 --device sim --batches 8,32 --input-len 64 --slo-factor 1.5 --svg bench.svg
  headrace bench tinyllama-1.1b --synthetic-weights 1 --h2d-bandwidth 4GB/s --policies none,select-n,headrace --tpot 200ms)";

constexpr const char *kProfileHelp = R"(Example:
  headrace profile ./qwen2.5-0.5b -o record.toml                    (this machine's CPU; run it again to continue it)
  headrace profile opt-6.7b --hardware a10 --device sim -o a10.toml
  headrace profile llama-3.1-8b --hardware h100 --batches 1,2,4,8 --sequences 128,256,512 -o h100.toml)";
constexpr const char *kRecordHelp = R"(Example:
  headrace record show record.toml
  headrace record show record.toml --slo 50ms
  headrace record show record.toml --slo-factor 1.5 --json | jq '.table.decode')";

// What a profile takes of a job: the model, the hardware, and what the memory is for.
bool profileTakes(const KeyFlag &flag) {
  return flag.section == "shape" || flag.section == "hardware" || flag.key == "device_memory" ||
         flag.key == "kv_dtype" || flag.key == "block_tokens";
}

// The model and the hardware, and a flag for every key of a job file that `takes` names (all if it is null).
void addKeys(CLI::App &app, JobInput &input, const char *source, bool (*takes)(const KeyFlag &) = nullptr) {
  app.add_option("source", input.source, source)->type_name("");
  app.add_option("--model", input.modelFlag, "a model for a job file: folder, shape .toml, or a shipped shape's name");
  app.add_option("--hardware", input.hardwareFlag, "a profile's .toml, or a shipped one's name (default: host)");
  const std::map<std::string_view, const char *> groups = {{"goal", "Goal"},
                                                           {"policy", "Policy"},
                                                           {"buckets", "Buckets"},
                                                           {"shape", "Shape of a model without weights"},
                                                           {"hardware", "Hardware figures (over the profile's)"}};
  for (const KeyFlag &flag : keyFlags()) {
    if (takes != nullptr && !takes(flag))
      continue;
    const std::string name(flag.flag);
    app.add_option_function<std::string>(
           name, [&input, name](const std::string &value) { input.flags[name] = value; }, std::string(flag.help))
        ->group(groups.at(flag.section));
  }
}

constexpr const char *kFleetHelp = R"(Example:
  headrace fleet examples/fleets/two-on-one-bus.toml --each
  headrace fleet fleet.toml --policy flexgen --placements 1 --no-coordinator     (a baseline: nobody adapts)
  headrace fleet fleet.toml --device host --synthetic-weights 1 --json)";

// Every key of a job file, the source, and other engines' flags.
void addJob(CLI::App &app, JobInput &input, const char *source, bool (*takes)(const KeyFlag &) = nullptr) {
  addKeys(app, input, source, takes);
  constexpr const char *kOthers = "Words of vLLM and llama.cpp";
  for (const KeyFlag &flag : keyFlags()) {
    const std::string name(flag.flag);
    std::string synonyms(flag.synonyms);
    while (!synonyms.empty()) {
      const std::string synonym = synonyms.substr(0, synonyms.find(','));
      synonyms.erase(0, synonym.size() + 1);
      app.add_option_function<std::string>(
             synonym, [&input, synonym](const std::string &value) { input.synonyms[synonym] = value; },
             "the same as " + name)
          ->group(kOthers);
    }
  }
  app.add_option("--gpu-memory-utilization", input.gpuMemoryUtilization,
                 "--device-memory as a share of the hardware's memory")
      ->group(kOthers);
  app.add_option("--cpu-offload-gb", input.cpuOffloadGb, "--offload-layers as GiB of weights, at most")->group(kOthers);
  app.add_option("--n-gpu-layers,--gpu-layers", input.gpuLayers, "--offload-layers as layers that stay (also -ngl)")
      ->group(kOthers);
}

CLI::Option *addSeed(CLI::App &app, const char *flag, uint64_t &seed, const char *help) {
  return addInteger<uint64_t>(app, flag, seed, help, 0)->default_str("0");
}
void addSyntheticWeights(CLI::App &app, std::optional<uint64_t> &seed) {
  addInteger<uint64_t>(app, "--synthetic-weights", seed, "weights from this seed, for a shape without any", 0);
}

void addOverwrite(CLI::App &app, bool &overwrite) {
  app.add_flag("--overwrite", overwrite, "replace output files that headrace did not write, too; never an input");
}

void addRun(CLI::App &app, RunOptions &options) {
  addJob(app, options.job, "a plan, a model (folder, shape .toml, shipped shape's name), or a job file");
  app.add_option("--prompt-ids", options.promptIds, "token ids, \"1,2,3;4,5\" for two prompts, or a file of them");
  app.add_option("--prompt-ids-file", options.promptIdsFile, "a file of token ids, a prompt a line (or ; between)");
  constexpr int64_t kMostTokens = int64_t{1} << 31;
  addInteger<int64_t>(app, "--random-input-len", options.randomInputLength, "random prompts of this many tokens", 1,
                      kMostTokens);
  addInteger<int64_t>(app, "--num-prompts", options.numPrompts, "how many random prompts", 1, kMostTokens)
      ->default_str("1");
  addInteger<int64_t>(app, "--max-new-tokens,--n-predict,--random-output-len", options.maxNewTokens,
                      "tokens to generate a prompt", 1, kMostTokens)
      ->default_str("16");
  addNumber(app, "--temperature,--temp", options.temperature, "0 is greedy", "0 or more",
            [](double t) { return t >= 0 && t <= 1e30; });
  addNumber(app, "--top-p", options.topP, "share of probability to sample from", "more than 0 and at most 1",
            [](double p) { return p > 0 && p <= 1; });
  addSeed(app, "--seed", options.seed, "of sampling and of random prompts; prompt r samples with seed + r");
  app.add_option("--stop-ids", options.stopIds, "token ids that end a sequence, \"2,50256\"");
  addInteger<uint32_t>(
      app, "--placement", options.placement,
      "one of the plan's placements for all iterations (default: the one chosen for each, else the first)", 0);
  app.add_option("--link-bandwidth", options.linkBandwidth, "pace copies to this in each direction, such as 12GB/s");
  app.add_option("--graph-memory", options.graphMemory,
                 "device memory that graphs may take beside the plan's; small buckets beyond it are left out");
  addNumber(app, "--graph-seconds", options.graphSeconds, "the same for the time that building them takes",
            "seconds, 0 for no limit", [](double t) { return t >= 0 && t <= 1e9; });
  app.add_option("--trace", options.trace, "the same as --timeline FILE.json, whatever the file's name");
  app.add_option("--timeline", options.timeline,
                 "write planned and measured lanes of a representative iteration: .svg, .txt, or .json (for "
                 "ui.perfetto.dev and timeline --measured)");
  addOverwrite(app, options.overwrite);
  app.add_flag("--separate-prefill", options.separatePrefill, "all prompts first, then decode: no mixed iterations");
  app.add_flag("--json", options.json, "one JSON object on standard output");
}

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

int run(int argc, char **argv) {
  CLI::App app{"headrace: language models beyond device memory. Compiles a model to a plan that brings weights to the "
               "device before a layer needs them, shows the plan, and runs it.",
               "headrace"};
  app.footer(
      "Each subcommand's --help has an example. Exit status: 0 done, 1 it cannot be met or failed, 2 usage or bad "
      "input.");
  app.require_subcommand(1);
  app.set_version_flag("--version", "headrace " HEADRACE_VERSION);

  CompileOptions compile;
  CLI::App *compileApp = app.add_subcommand("compile", "make a plan for a model under a memory budget");
  addJob(*compileApp, compile.job, "a model (folder, shape .toml, shipped shape's name), or a job file");
  compileApp->add_option("-o,--output", compile.output, "the plan file to write");
  compileApp->add_option("--dump-ir", compile.dumpIr, "a folder for the IR's text after each phase");
  compileApp->add_flag("--dump-each-pass", compile.dumpEachPass,
                       "--dump-ir after each pass; one that changed nothing says (unchanged)");
  compileApp->add_flag("--verify-weights", compile.verifyWeights,
                       "read all weights and keep a hash of them in the plan, for run --verify-weights");
  addOverwrite(*compileApp, compile.overwrite);
  compileApp->add_flag("--dry-run", compile.dryRun, "print the chosen settings, write nothing");
  compileApp->add_flag("--all", compile.all, kAllHelp);
  compileApp->add_flag("--json", compile.json, "one JSON object on standard output");
  compileApp->footer(kCompileHelp);

  InspectOptions inspect;
  CLI::App *inspectApp =
      app.add_subcommand("inspect", "what is where, why, how many bytes move, peak memory, variants");
  inspectApp->add_option("plan", inspect.plan, "a plan file")->required();
  inspectApp->add_flag("--all", inspect.all, kAllHelp);
  inspectApp->add_flag("--json", inspect.json, "one JSON object");
  inspectApp->footer(kInspectHelp);

  TimelineOptions timeline;
  CLI::App *timelineApp = app.add_subcommand("timeline", "one iteration's lanes, planned and measured");
  timelineApp->add_option("plan", timeline.plan, "a plan file")->required();
  addInteger<uint32_t>(*timelineApp, "--variant", timeline.variant,
                       "which of the plan's variants (default: the one that was measured, else the first)", 0);
  addChoice(*timelineApp, "--format", timeline.format, "text, json (Chrome's trace events, for Perfetto) or svg",
            {"text", "json", "svg"});
  timelineApp->add_option("-o,--output", timeline.output, "a file, in place of standard output");
  addOverwrite(*timelineApp, timeline.overwrite);
  timelineApp->add_option("--measured", timeline.measured,
                          "a .json of run's --timeline or --trace, to stand beside the plan");
  addInteger<int>(*timelineApp, "--width", timeline.width, "columns of text (default: the terminal's)", 40, 2000);
  timelineApp->footer(kTimelineHelp);

  RunOptions run;
  CLI::App *runApp = app.add_subcommand("run", "generate tokens; report times, bytes and stalls");
  addRun(*runApp, run);
  runApp->add_option("--device", run.device, deviceNames() + " (default: the plan's)");
  runApp->add_option("--graph-build", run.graphBuild, "how CUDA graphs are made: explicit or capture")
      ->capture_default_str();
  runApp->add_option("--cuda-libraries", run.cudaLibraries,
                     "folders of cublasLt and CUPTI, separated by colons, before those that are searched anyway");
  runApp->add_option("--trace-by", run.traceBy, "what measures steps on a GPU: auto, cupti or stamps")
      ->capture_default_str();
  runApp->add_option("--weights", run.weights, "the folder of the weights (default: the one the plan was made from)");
  addSyntheticWeights(*runApp, run.syntheticWeights);
  runApp->add_flag("--verify-weights", run.verifyWeights,
                   "refuse weights whose values are not those that the plan has hashes of");
  runApp->add_option("--logits", run.logits, "write logits.<prompt>, F32 [new tokens, vocab], as safetensors");
  runApp->add_flag("--pin", run.pin, "each lane's thread on a core of its own");
  runApp->add_flag("--low-latency", run.lowLatency, kLowLatencyHelp);
  runApp->footer(kRunHelp);

  RunOptions simulate;
  simulate.device = "sim";
  CLI::App *simulateApp = app.add_subcommand("simulate", "the same in virtual time, without data: any size of model");
  addRun(*simulateApp, simulate);
  simulateApp->footer(kSimulateHelp);

  BenchOptions bench;
  CLI::App *benchApp = app.add_subcommand("bench", "compare policies on one machine in one run");
  addJob(*benchApp, bench.run.job, "a model (folder, shape .toml, shipped shape's name), or a job file",
         [](const KeyFlag &flag) { // it has ones of its own
           return flag.key != "instances" && !(flag.section == "policy" && flag.key == "name");
         });
  benchApp->add_option("--policies", bench.policies, "which, in this order; interval=3 and layers=10 state a placement")
      ->capture_default_str();
  benchApp->add_option("--batches", bench.batches, "prompts at once, such as 1,8,32 (default: --batch, or 8)");
  benchApp->add_flag("--fill", bench.fill,
                     "for every policy the largest batch that fits the memory and holds the objective");
  benchApp
      ->add_option("--instances", bench.instances,
                   "apart: prefill on one instance, decode on another; together: both on one")
      ->capture_default_str();
  benchApp->add_option("--phase", bench.phase, "of instances apart: prefill, decode or both")->capture_default_str();
  constexpr int64_t kMostTokens = int64_t{1} << 24;
  addInteger<int64_t>(*benchApp, "--input-len,--random-input-len", bench.inputLength, "tokens of each prompt", 2,
                      kMostTokens)
      ->default_str("256");
  addInteger<int64_t>(*benchApp, "--output-len,--random-output-len,--max-new-tokens", bench.outputLength,
                      "tokens to generate a prompt", 2, kMostTokens)
      ->default_str("32");
  addInteger<int64_t>(*benchApp, "--rounds", bench.rounds, "how often each is run, in turn; one more comes first", 1)
      ->default_str("3");
  benchApp->add_option("--device", bench.run.device, deviceNames() + " (default: the hardware's)");
  benchApp->add_option("--weights", bench.run.weights, "the folder of the weights (default: the model's)");
  addSyntheticWeights(*benchApp, bench.run.syntheticWeights);
  addSeed(*benchApp, "--seed", bench.run.seed, "of the random prompts");
  benchApp->add_option("--svg", bench.svg, "write the comparison as bars");
  benchApp->add_option("-o,--output", bench.output, "write the JSON to this file, beside the table");
  addOverwrite(*benchApp, bench.run.overwrite);
  benchApp->add_flag("--pin", bench.run.pin, "each lane's thread on a core of its own");
  benchApp->add_flag("--low-latency", bench.run.lowLatency, kLowLatencyHelp);
  benchApp->add_flag("--all", bench.all, kAllHelp);
  benchApp->add_flag("--json", bench.run.json, "one JSON object on standard output");
  benchApp->footer(kBenchHelp);

  ProfileOptions profile;
  RunOptions &profiled = profile.run;
  CLI::App *profileApp = app.add_subcommand("profile", "measure a model on a device: what an iteration's parts and "
                                                       "copies take, as a performance record");
  addKeys(*profileApp, profiled.job, "a model (folder, shape .toml, shipped shape's name), or a job file",
          profileTakes);
  profileApp->add_option("-o,--output", profile.output, "the record to write; one that was begun is continued");
  addOverwrite(*profileApp, profiled.overwrite);
  profileApp->add_option("--device", profiled.device, deviceNames() + " (default: the hardware's kind)");
  profileApp->add_option("--batches", profile.batches, "powers of two, \"1,2,4\" (default: 1 to 128)");
  profileApp->add_option("--sequences", profile.sequences,
                         "powers of two, tokens a sequence (default: 64 to the model's positions)");
  addNumber(*profileApp, "--seconds-per-pair", profile.secondsPerPair,
            "how long a pair is repeated at most until its median is stable", "a time above 0 and at most 3600",
            [](double t) { return t > 0 && t <= 3600; });
  addSeed(*profileApp, "--seed", profiled.seed, "of random prompts and, for a shape, of weights");
  profileApp->add_option("--graph-build", profiled.graphBuild, "how CUDA graphs are made: explicit or capture")
      ->capture_default_str();
  profileApp->add_option("--cuda-libraries", profiled.cudaLibraries,
                         "folders of cublasLt and CUPTI, separated by colons, before those that are searched anyway");
  profileApp->add_option("--trace-by", profiled.traceBy, "what measures steps on a GPU: auto, cupti or stamps")
      ->capture_default_str();
  profileApp->add_flag("--pin", profiled.pin, "each lane's thread on a core of its own");
  profileApp->add_flag("--low-latency", profiled.lowLatency, kLowLatencyHelp);
  profileApp->add_flag("--all", profile.all,
                       "measure pairs beyond one whose layer computes longer than it is copied, too");
  profileApp->add_flag("--force", profile.force, "measure anew, whatever the record holds");
  profileApp->add_flag("--json", profiled.json, "one JSON object on standard output");
  profileApp->footer(kProfileHelp);

  RecordOptions record;
  CLI::App *recordApp = app.add_subcommand("record", "look at a performance record");
  CLI::App *showApp =
      recordApp->add_subcommand("show", "what it is of, what copies take, and the intervals for an SLO");
  recordApp->require_subcommand(1);
  recordApp->footer(kRecordHelp);
  showApp->add_option("record", record.record, "a record of headrace profile")->required();
  showApp->add_option("--slo", record.slo,
                      "intervals for this latency of an iteration, such as 50ms (a bare number: seconds)");
  addNumber(*showApp, "--slo-factor", record.sloFactor, "the same as a multiple of the time without offloading",
            "a finite factor of at least 1", [](double factor) { return factor >= 1; });
  showApp->add_flag("--json", record.json, "one JSON object");
  showApp->footer(kRecordHelp);

  FleetOptions fleet;
  CLI::App *fleetApp = app.add_subcommand("fleet", "requests with objectives on several devices that share a bus");
  fleetApp->add_option("file", fleet.file, "devices, bus and requests, as TOML")->required();
  fleetApp->add_option("--device", fleet.device, deviceNames(/*groups=*/true))->capture_default_str();
  fleetApp->add_option("--policy", fleet.policy, "over the policy of every job; not for devices that have a plan");
  fleetApp->add_option("--placements", fleet.placements, "over the placements of every job; likewise");
  fleetApp->add_flag("!--no-coordinator", fleet.coordinate,
                     "admit everything, one placement a device; measured against the same objectives");
  addSyntheticWeights(*fleetApp, fleet.syntheticWeights);
  fleetApp->add_flag("--each", fleet.each, "a line for each request");
  fleetApp->add_flag("--all", fleet.all, kAllHelp);
  fleetApp->add_flag("--json", fleet.json, "one JSON object on standard output");
  fleetApp->footer(kFleetHelp);

  // Said before anything is parsed, so that an error of parsing is an object, too.
  const bool asJson =
      std::any_of(argv + 1, argv + argc, [](const char *word) { return std::string(word) == "--json"; });
  const std::vector<CLI::App *> all = app.get_subcommands([](CLI::App *) { return true; });
  if (argc > 1 && argv[1][0] != '-' &&
      std::none_of(all.begin(), all.end(), [&](CLI::App *one) { return one->get_name() == argv[1]; }))
    return reportError(badFlag("command", argv[1],
                               "bench, compile, fleet, inspect, profile, record, timeline, run or "
                               "simulate"),
                       asJson);
  try {
    app.parse(spelledOut(argc, argv));
  } catch (const CLI::ParseError &error) {
    if (error.get_exit_code() == 0) // --help, --version
      return app.exit(error);
    const std::string command = argc > 1 && argv[1][0] != '-' ? std::string("headrace ") + argv[1] : "headrace";
    return reportError(usageError(error, command), asJson);
  }
  if (compile.json || bench.run.json || profile.run.json || fleet.json || run.json || simulate.json)
    silenceProgress();
  const absl::Status status = *compileApp    ? compileCommand(compile)
                              : *inspectApp  ? inspectCommand(inspect)
                              : *timelineApp ? timelineCommand(timeline)
                              : *runApp      ? runCommand(run)
                              : *benchApp    ? benchCommand(bench)
                              : *fleetApp    ? fleetCommand(fleet)
                              : *profileApp  ? profileCommand(profile)
                              : *showApp     ? recordShowCommand(record)
                                             : runCommand(simulate);
  if (!status.ok())
    return reportError(status, asJson);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) { // what did not fit the buffer failed before
    std::fprintf(stderr, "headrace: error: standard output: cannot write\n");
    return kExitFailed;
  }
  return kExitOk;
}

} // namespace

int main(int argc, char **argv) {
  removePartFilesOnSignals();
  try {
    return run(argc, argv);
  } catch (const std::exception &error) { // out of memory, say
    std::fprintf(stderr, "headrace: error: %s\n", error.what());
    return kExitFailed;
  }
}
