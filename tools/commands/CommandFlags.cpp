// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/CommandFlags.h"

#include <string>

#include "absl/strings/str_format.h"
#include "compiler/search/generators/Generators.h"
#include "runtime/base/Text.h"
#include "tools/commands/Devices.h"
#include "tools/commands/FlagGroups.h"
#include "tools/commands/Options.h"
#include "tools/timeline/Timeline.h"

namespace headrace::tools {
namespace {

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
  headrace timeline out.plan --variant 2 -o timeline.svg
  headrace run out.plan --prompt-ids 1,2,3 --timeline run.json                     (open it in ui.perfetto.dev)
  headrace timeline out.plan --measured run.json -o both.svg)";
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
  headrace bench tinyllama-1.1b --hardware host --synthetic-weights 1 --h2d-bandwidth 4GB/s \
      --policies none,select-n,headrace --tpot 200ms)";

constexpr const char *kBenchServeHelp = R"(Example:
  headrace bench serve opt-13b --hardware h100 --device sim --dataset-name sharegpt --request-rate 10 --svg serve.svg
  headrace bench serve opt-13b --hardware h100 --device sim --dataset-name sharegpt --request-rate 2,4,8,16 \
                       --goodput ttft:500 tpot:100 --svg rates.svg
  headrace bench serve out.plan --synthetic-weights 1 --random-input-len 64 --num-prompts 20 --request-rate 2 --json
  headrace bench serve out.plan --dataset-name trace --dataset-path requests.jsonl)";

constexpr const char *kDriftHelp = R"(Example:
  headrace drift ./qwen2.5-0.5b --weight-encoding q4 --prompt-file text.txt --svg drift.svg
  headrace drift ./qwen2.5-0.5b --weight-encoding "qkv=q8,up=q4,down=q4" --prompt-ids "1,2,3;4,5" --each
  headrace drift tinyllama-1.1b --hardware host --weight-encoding q8 --synthetic-weights 1 --random-input-len 256 --json)";

constexpr const char *kProfileHelp = R"(Example:
  headrace profile ./qwen2.5-0.5b --hardware host -o record.toml    (this machine's CPU; run it again to continue it)
  headrace profile opt-6.7b --hardware a10 --device sim -o a10.toml
  headrace profile llama-3.1-8b --hardware h100 --batches 1,2,4,8 --sequences 128,256,512 -o h100.toml
  headrace profile opt-30b --hardware rtx4090 --device sim --activations -o opt.toml
  headrace profile --cpu --threads 8                                (threads' bandwidth, and what kernels make of it))";
constexpr const char *kRecordHelp = R"(Example:
  headrace record show record.toml
  headrace record show record.toml --slo 50ms
  headrace record show record.toml --slo-factor 1.5 --json | jq '.table.decode')";

constexpr const char *kFleetHelp = R"(Example:
  headrace fleet examples/fleets/two-on-one-bus.toml --each
  headrace fleet fleet.toml --policy flexgen --placements 1 --no-coordinator     (a baseline: nobody adapts)
  headrace fleet fleet.toml --device host --synthetic-weights 1 --json)";

// What profile and drift take of a job: the model, the hardware, and what the memory is for.
bool takesModelAndMemory(const KeyFlag &flag) {
  return flag.section == "shape" || flag.section == "hardware" || flag.key == "device_memory" ||
         flag.key == "kv_dtype" || flag.key == "block_tokens";
}

// What each policy is, a line each.
std::string policiesHelp() {
  std::string text = "Policies:\n";
  for (const compiler::Generator *policy : compiler::allPolicies())
    absl::StrAppendFormat(&text, "  %-18s  %s\n", policy->name, policy->summary);
  return text;
}

// What a command that makes up requests has of its own.
bool isLength(const KeyFlag &flag) { return flag.key == "input_len" || flag.key == "output_len"; }

constexpr int64_t kMostRunTokens = int64_t{1} << 31;

void addPrompts(CLI::App &app, PromptFlags &flags) {
  addTexts(app, "-p,--prompt", flags.texts, "a text to go on with; may be given several times");
  addTexts(app, "-f,--prompt-file", flags.textFiles,
           "a file that is a prompt, without the newline at its end (- is standard input); likewise");
  addTexts(app, "--prompts", flags.lists,
           "a file of prompts, one a line: texts, or JSON such as {\"prompt\": \"a text\"}; likewise");
  addTexts(app, "--messages", flags.messages,
           "a file of a conversation, as JSON, that the chat template makes a prompt of; likewise");
  app.add_option("--prompt-ids", flags.ids, "token ids, \"1,2,3;4,5\" for two prompts, or a file of them");
  app.add_option("--prompt-ids-file", flags.idsFile, "a file of token ids, a prompt a line (or ; between)");
  addInteger<int64_t>(app, "--random-input-len", flags.randomLength, "random prompts of this many tokens", 1,
                      kMostRunTokens);
  addInteger<int64_t>(app, "--num-prompts", flags.count, "how many random prompts", 1, kMostRunTokens)
      ->default_str("1");
}

void addGraphLimits(CLI::App &app, RunOptions &options) {
  addBytes(app, "--graph-memory", options.graphMemory,
           "device memory that graphs may take beside the plan's; small buckets beyond it are left out");
  addNumber(app, "--graph-seconds", options.graphSeconds, "the same for the time that building them takes",
            "seconds, 0 for no limit", [](double t) { return t >= 0 && t <= 1e9; });
}

// What run and simulate share.
void addGenerate(CLI::App &app, RunOptions &options) {
  addScheduler(app, options.scheduler);
  addJob(app, options.job, "a plan, a model (folder, shape .toml, shipped shape's name), or a job file");
  addAllowMissed(app, options.job);
  addPrompts(app, options.prompts);
  addText(app, options.text);
  addInteger<int64_t>(app, "--max-new-tokens,--n-predict,--random-output-len", options.maxNewTokens,
                      "tokens to generate a prompt, at most (default: 16; after text 128, or what the context holds)",
                      1, kMostRunTokens);
  addSampling(app, options.sampling);
  addSeed(app, "--seed", options.seed, "of sampling and of random prompts; prompt r samples with seed + r");
  app.add_option("--stop-ids", options.sampling.stopIds, "token ids that end a sequence, \"2,50256\"");
  addInteger<uint32_t>(
      app, "--placement", options.placement,
      "one of the plan's placements for all iterations (default: the one chosen for each, else the first)", 0);
  addBandwidth(app, "--link-bandwidth", options.linkBandwidth, "pace copies to this in each direction, such as 12GB/s");
  addGraphLimits(app, options);
  app.add_option("--trace", options.trace, "the same as --timeline FILE.json, whatever the file's name");
  app.add_option("--timeline", options.timeline,
                 "write planned and measured lanes of a representative iteration: .svg, .txt, or .json (for "
                 "ui.perfetto.dev and timeline --measured)");
  addOverwrite(app, options.overwrite);
  app.add_flag("--separate-prefill", options.separatePrefill, "all prompts first, then decode: no mixed iterations");
  app.add_flag("--json", options.json, "one JSON object on standard output");
}

} // namespace

CLI::App *addCompile(CLI::App &app, CompileOptions &options) {
  CLI::App *command = app.add_subcommand("compile", "make a plan for a model under a memory budget");
  addJob(*command, options.job, "a model (folder, shape .toml, shipped shape's name), or a job file");
  addAllowMissed(*command, options.job);
  command->add_option("-o,--output", options.output, "the plan file to write");
  command->add_option("--dump-ir", options.dumpIr, "a folder for the IR's text after each phase");
  command->add_flag("--dump-each-pass", options.dumpEachPass,
                    "--dump-ir after each pass; one that changed nothing says (unchanged)");
  command->add_flag("--verify-weights", options.verifyWeights,
                    "read all weights and keep a hash of them in the plan, for run --verify-weights");
  addOverwrite(*command, options.overwrite);
  command->add_option("--stages", options.stages,
                      "cut the model into so many stages, a device of this hardware for each, or into the fewest that "
                      "will do (auto): --output is a file that names their plans, X.0.plan and so on beside X.stages");
  command->add_flag("--peer-copies", options.peerCopies,
                    "rows of --stages go from device to device without the host: priced by --peer-bandwidth, and "
                    "refused until a GPU has shown it");
  command->add_flag("--dry-run", options.dryRun, "print the chosen settings, write nothing");
  command->add_flag(
      "--explain", options.explain,
      "also LM-Offload's closed form: a layer's tasks, T_pf, T_gen, T, and whether to pack weights and KV, "
      "beside the time that was played");
  command->add_flag("--beside", options.beside, "instead: which mechanisms do not stand side by side, and why");
  command->add_flag("--all", options.all, kAllHelp);
  command->add_flag("--json", options.json, "one JSON object on standard output");
  command->footer(policiesHelp() + "\n" + kCompileHelp);
  return command;
}

CLI::App *addInspect(CLI::App &app, InspectOptions &options) {
  CLI::App *command = app.add_subcommand("inspect", "what is where, why, how many bytes move, peak memory, variants");
  command->add_option("plan", options.plan, "a plan file")->required();
  command->add_flag("--all", options.all, kAllHelp);
  command->add_flag(
      "--mapping", options.mapping,
      "instead: which layer's KV cache is in which place, iteration by iteration, and what is swapped when");
  command->add_flag("--json", options.json, "one JSON object");
  command->footer(kInspectHelp);
  return command;
}

CLI::App *addTimeline(CLI::App &app, TimelineOptions &options) {
  CLI::App *command = app.add_subcommand("timeline", "one iteration's lanes, planned and measured");
  command->add_option("plan", options.plan, "a plan file, or a file of stages")->required();
  addInteger<uint32_t>(
      *command, "--variant", options.variant,
      "which of the plan's variants (default: the one that was measured, else the first that may use any KV block)", 0);
  addInteger<uint32_t>(
      *command, "--phase", options.phase,
      "which iteration of the variant's cycle, where tails of KV cycle through places (default: the variant's own)", 0);
  addChoice<std::optional<TimelineFormat>>(
      *command, "--format", options.format,
      "text, json (Chrome's trace events, for Perfetto) or svg (default: what the output's name says, else text)",
      {{"text", TimelineFormat::Text}, {"json", TimelineFormat::Json}, {"svg", TimelineFormat::Svg}});
  command->add_option("-o,--output", options.output, "a file, in place of standard output");
  addOverwrite(*command, options.overwrite);
  command->add_option("--measured", options.measured,
                      "a .json of run's --timeline or --trace, to stand beside the plan");
  addInteger<int>(*command, "--width", options.width, "columns of text (default: the terminal's)", 40, 2000);
  command->footer(kTimelineHelp);
  return command;
}

CLI::App *addFleet(CLI::App &app, FleetOptions &options) {
  CLI::App *command = app.add_subcommand("fleet", "requests with objectives on several devices that share a bus");
  command->add_option("file", options.file, "devices, bus and requests, as TOML")->required();
  command->add_option("--device", options.device, deviceNames(/*groups=*/true))->capture_default_str();
  command->add_option("--policy", options.policy, "over the policy of every job; not for devices that have a plan");
  command->add_option("--placements", options.placements, "over the placements of every job; likewise");
  command->add_flag("!--no-coordinator", options.coordinate,
                    "admit everything, one placement a device; measured against the same objectives");
  addThreads(*command, [&options](const std::string &value) { options.threads = value; });
  addSyntheticWeights(*command, options.syntheticWeights);
  addIgnoreAdapter(*command, options.folder);
  command->add_flag("--each", options.each, "a line for each request");
  command->add_flag("--all", options.all, kAllHelp);
  command->add_flag("--json", options.json, "one JSON object on standard output");
  command->footer(kFleetHelp);
  return command;
}

CLI::App *addRun(CLI::App &app, RunOptions &options) {
  CLI::App *command = app.add_subcommand("run", "generate tokens; report times, bytes and stalls");
  addGenerate(*command, options);
  addDevice(*command, options.device, options.job, "the plan's");
  addGraphBuild(*command, options.device);
  addWeights(*command, options.weights, "the folder of the weights (default: the one the plan was made from)");
  command->add_flag("--verify-weights", options.weights.verify,
                    "refuse weights whose values are not those that the plan has hashes of");
  command->add_option("--logits", options.logits,
                      "write logits.<prompt>, F32 [new tokens, vocab], as safetensors: the model's, before penalties");
  addLanes(*command, options.device, options.job);
  command->footer(kRunHelp);
  return command;
}

CLI::App *addSimulate(CLI::App &app, RunOptions &options) {
  options.device.device = "sim";
  CLI::App *command = app.add_subcommand("simulate", "the same in virtual time, without data: any size of model");
  addGenerate(*command, options);
  command->footer(kSimulateHelp);
  return command;
}

CLI::App *addBench(CLI::App &app, BenchOptions &options) {
  CLI::App *command = app.add_subcommand("bench", "compare policies on one machine in one run");
  addJob(*command, options.job, "a model (folder, shape .toml, shipped shape's name), or a job file",
         [](const KeyFlag &flag) { // it has ones of its own
           return flag.key != "instances" && !(flag.section == "policy" && flag.key == "name") && !isLength(flag);
         });
  command
      ->add_option("--policies", options.policies, "which, in this order; interval=3 and layers=10 state a placement")
      ->capture_default_str();
  command->add_option("--batches", options.batches, "prompts at once, such as 1,8,32 (default: --batch, or 8)");
  command->add_flag("--fill", options.fill,
                    "for every policy the largest batch that fits the memory and holds the objective");
  addChoice<model::Instances>(*command, "--instances", options.instances,
                              "apart: prefill on one instance, decode on another; together: both on one",
                              {{"apart", model::Instances::Apart}, {"together", model::Instances::Together}});
  addChoice<BenchRole>(*command, "--phase", options.phase, "of instances apart: prefill, decode or both",
                       {{"both", BenchRole::Both}, {"prefill", BenchRole::Prefill}, {"decode", BenchRole::Decode}});
  constexpr int64_t kMostTokens = int64_t{1} << 24;
  addInteger<int64_t>(*command, "--input-len,--random-input-len", options.inputLength,
                      "tokens of each prompt (default: the job's goal.input_len, or 256)", 2, kMostTokens);
  addInteger<int64_t>(*command, "--output-len,--random-output-len,--max-new-tokens", options.outputLength,
                      "tokens to generate a prompt (default: the job's goal.output_len, or 32)", 2, kMostTokens);
  addInteger<int64_t>(*command, "--max-num-batched-tokens", options.maxNumBatchedTokens,
                      "rows of an iteration with prompts, at most, but two a prompt (default: all prompts in one; with "
                      "--instances together the plan's)",
                      1, kMostTokens);
  addInteger<int64_t>(*command, "--rounds", options.rounds, "how often each is run, in turn; one more comes first", 1)
      ->default_str("3");
  addDevice(*command, options.device, options.job, "the hardware's");
  addWeights(*command, options.weights, "the folder of the weights (default: the model's)");
  addSeed(*command, "--seed", options.seed, "of the random prompts");
  command->add_option("--svg", options.svg, "write the comparison as bars");
  command->add_option("-o,--output", options.output, "write the JSON to this file, beside the table");
  addOverwrite(*command, options.overwrite);
  addLanes(*command, options.device, options.job);
  command->add_flag("--all", options.all, kAllHelp);
  command->add_flag("--json", options.json, "one JSON object on standard output");
  command->footer(kBenchHelp);
  return command;
}

namespace {

void addTraffic(CLI::App &app, TrafficFlags &flags) {
  constexpr const char *kGroup = "Traffic";
  constexpr int64_t kMostRequests = 10'000'000, kMostTokens = int64_t{1} << 24;
  addChoice<Dataset>(app, "--dataset-name", flags.dataset,
                     "lengths of prompts and outputs: random, sharegpt or alpaca (drawn from fits of these), or trace",
                     {{"random", Dataset::Random},
                      {"sharegpt", Dataset::ShareGpt},
                      {"alpaca", Dataset::Alpaca},
                      {"trace", Dataset::Trace}})
      ->group(kGroup);
  app.add_option("--dataset-path", flags.path, "a trace: JSON lines (ours, Mooncake's, Qwen-Bailian's), or Azure's CSV")
      ->group(kGroup);
  addInteger<int64_t>(app, "--random-input-len,--input-len", flags.inputLength,
                      "tokens of a random prompt (default: the job's goal.input_len, or 1024)", 1, kMostTokens)
      ->group(kGroup);
  addInteger<int64_t>(app, "--random-output-len,--output-len,--max-new-tokens", flags.outputLength,
                      "tokens to generate (default: the job's goal.output_len, or 128)", 1, kMostTokens)
      ->group(kGroup);
  addNumber(app, "--random-range-ratio", flags.rangeRatio, "random lengths are within this share of those above",
            "0 or more and less than 1", [](double ratio) { return ratio >= 0 && ratio < 1; })
      ->default_str("0")
      ->group(kGroup);
  addInteger<int64_t>(app, "--num-prompts", flags.count, "how many requests (default: 1000; of a trace all)", 1,
                      kMostRequests)
      ->group(kGroup);
  app.add_option(
         "--request-rate", flags.rates,
         "requests/s, or inf for all at once; several, \"1,2,4\", are run one after another (default: inf; of a "
         "trace its own times)")
      ->group(kGroup);
  addNumber(app, "--burstiness", flags.burstiness,
            "shape of the gamma distribution of gaps: 1 is Poisson's process, less comes in bursts, more is regular",
            "a number above 0", [](double shape) { return shape > 0; })
      ->default_str("1")
      ->group(kGroup);
  addSeed(app, "--seed", flags.seed, "of lengths, arrivals, prompts and sampling; request r samples with seed + r")
      ->group(kGroup);
}

} // namespace

CLI::App *addBenchServe(CLI::App &app, BenchServeOptions &options) {
  CLI::App *bench = app.get_subcommand("bench");
  CLI::App *command =
      bench->add_subcommand("serve", "requests that come and go: their latencies, and throughput, as vllm bench serve");
  for (CLI::Option *option : bench->get_options()) // it has its own, which stand behind it
    if (option != bench->get_help_ptr())
      command->excludes(option);
  addScheduler(*command, options.scheduler);
  addJob(*command, options.job, "a plan, a model (folder, shape .toml, shipped shape's name), or a job file",
         [](const KeyFlag &flag) { return !isLength(flag); }); // the traffic's are the goal's
  for (const auto &[flag, what] : {std::pair("--ttft", "TTFT"), std::pair("--tpot", "TPOT")})
    command->get_option(flag)->description(
        model::cat(what, " that placements are chosen for, such as 50ms; it admits and refuses no request"));
  addTraffic(*command, options.traffic);
  addInteger<int64_t>(*command, "--max-concurrency", options.maxConcurrency,
                      "requests in the engine at a time; others come when one has ended (default: no limit)", 1);
  addSampling(*command, options.sampling);
  command->add_option("--stop-ids", options.sampling.stopIds, "token ids that end a request, \"2,50256\"");
  command->add_flag("--ignore-eos", options.ignoreEos, "no token ends a request: so it is without --stop-ids");
  command
      ->add_option(
          "--goodput", options.goodput,
          "objectives of a request, \"ttft:200 tpot:50 e2el:5s\", in ms without a unit: those within all are counted")
      ->expected(1, -1);
  command->add_option("--metric-percentiles", options.percentiles, "which percentiles")->capture_default_str();
  command->add_option("--percentile-metrics", options.metrics,
                      "of what: ttft, tpot, itl, e2el, queueing (default: all of them)");
  addInteger<uint32_t>(
      *command, "--placement", options.placement,
      "one of the plan's placements for all iterations (default: the one chosen for each, else the first)", 0);
  addBandwidth(*command, "--link-bandwidth", options.linkBandwidth,
               "pace copies to this in each direction, such as 12GB/s");
  addDevice(*command, options.device, options.job, "the plan's");
  addGraphBuild(*command, options.device);
  addWeights(*command, options.weights, "the folder of the weights (default: the one the plan was made from)");
  addLanes(*command, options.device, options.job);
  command->add_option("--svg", options.svg,
                      "write a picture: requests over time; of several rates percentiles against them");
  command->add_option("-o,--output,--result-filename", options.output,
                      "write the JSON to this file, beside the report");
  command->add_flag("--save-detailed", options.detailed, "each request's times in the JSON");
  addOverwrite(*command, options.overwrite);
  command->add_flag("--all", options.all, kAllHelp);
  command->add_flag("--json", options.json, "one JSON object on standard output");
  command->footer(kBenchServeHelp);
  return command;
}

CLI::App *addDrift(CLI::App &app, DriftOptions &options) {
  CLI::App *command = app.add_subcommand("drift", "what packed weights or KV do to a model: its logits, position by "
                                                  "position, beside those of full precision");
  addKeys(*command, options.job, "a model (folder, shape .toml, shipped shape's name), or a job file",
          takesModelAndMemory);
  addPrompts(*command, options.prompts);
  addPromptText(*command, options.text);
  addSeed(*command, "--seed", options.seed, "of random prompts");
  addInteger<int64_t>(*command, "--max-num-batched-tokens", options.maxNumBatchedTokens,
                      "positions that go through both models at a time, and whose logits are kept; the figures are the "
                      "same whatever it is",
                      1, int64_t{1} << 20)
      ->default_str("64");
  addDevice(*command, options.device, options.job, "the hardware's");
  addGraphBuild(*command, options.device);
  addWeights(*command, options.weights, "the folder of the weights (default: the model's)");
  addLanes(*command, options.device, options.job);
  command->add_option("--svg", options.svg, "write a picture over positions");
  addOverwrite(*command, options.overwrite);
  command->add_flag("--each", options.each, "every position as well");
  command->add_flag("--json", options.json, "one JSON object on standard output");
  command->footer(kDriftHelp);
  return command;
}

CLI::App *addProfile(CLI::App &app, ProfileOptions &options) {
  CLI::App *command = app.add_subcommand("profile", "measure a model on a device: what an iteration's parts and "
                                                    "copies take, as a performance record");
  addKeys(*command, options.job, "a model (folder, shape .toml, shipped shape's name), or a job file",
          takesModelAndMemory);
  command->add_option("-o,--output", options.output, "the record to write; one that was begun is continued");
  addOverwrite(*command, options.overwrite);
  addDevice(*command, options.device, options.job, "the hardware's kind");
  command->add_option("--batches", options.batches, "powers of two, \"1,2,4\" (default: 1 to 128)");
  command->add_option("--sequences", options.sequences,
                      "powers of two, tokens a sequence (default: 64 to the model's positions)");
  addNumber(*command, "--seconds-per-pair", options.secondsPerPair,
            "how long a pair is repeated at most until its median is stable", "a time above 0 and at most 3600",
            [](double t) { return t > 0 && t <= 3600; });
  addSeed(*command, "--seed", options.seed, "of random prompts and, for a shape, of weights");
  addGraphBuild(*command, options.device);
  addLanes(*command, options.device, options.job);
  command->add_flag("--all", options.all,
                    "measure pairs beyond one whose layer computes longer than it is copied, too");
  command->add_flag("--activations", options.activations,
                    "measure what activation blocks take, too: keys and values made again, and loads, as lines in the "
                    "tokens (off by default; see --act-ratio of compile)");
  command->add_flag("--force", options.force, "measure anew, whatever the record holds");
  command->add_flag("--cpu", options.cpu,
                    "no model: how fast this machine's memory is read by 1, 2, 4, ... --threads threads, and how near "
                    "to that the kernels come; with the keys of a hardware profile that follow");
  command->add_flag("--json", options.json, "one JSON object on standard output");
  command->footer(kProfileHelp);
  return command;
}

CLI::App *addRecordShow(CLI::App &app, RecordOptions &options) {
  CLI::App *record = app.add_subcommand("record", "look at a performance record");
  CLI::App *command = record->add_subcommand("show", "what it is of, what copies take, and the intervals for an SLO");
  record->require_subcommand(1);
  record->footer(kRecordHelp);
  command->add_option("record", options.record, "a record of headrace profile")->required();
  command->add_option("--slo", options.slo, "intervals for this latency of an iteration, such as 50ms");
  addNumber(*command, "--slo-factor", options.sloFactor, "the same as a multiple of the time without offloading",
            "a finite factor of at least 1", [](double factor) { return factor >= 1; });
  command->add_flag("--json", options.json, "one JSON object");
  command->footer(kRecordHelp);
  return command;
}

} // namespace headrace::tools
