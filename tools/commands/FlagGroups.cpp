// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/FlagGroups.h"

#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_replace.h"
#include "compiler/search/generators/Generators.h"
#include "tools/commands/Devices.h"
#include "tools/commands/Options.h"

namespace headrace::tools {
namespace {

constexpr int64_t kMostTopK = std::numeric_limits<int32_t>::max();
constexpr const char *kLowLatencyHelp =
    "host: lanes that take their cores at once, and cores that do not halt; refused where the system does not grant it";

constexpr const char *kThreadsHelp =
    "host: threads that compute together, which plans made here are priced for; cuda: those of --attention cpu, beside "
    "a "
    "plan (default: HEADRACE_THREADS, else all cores that this process may use; priced for 1)";

// What there is to choose from is asked of who knows it.
std::string helpOf(const KeyFlag &flag) {
  std::string text(flag.help);
  if (flag.section == "policy" && flag.key == "name")
    text += ": " + absl::StrReplaceAll(compiler::policyNames(), {{"\"", ""}});
  return text;
}

} // namespace

void addIgnoreAdapter(CLI::App &app, model::FolderOptions &folder) {
  app.add_flag("--ignore-adapter", folder.ignoreAdapter,
               "take a folder's model without the adapter (adapter_config.json) beside it, which is refused else");
}

void addKeys(CLI::App &app, JobInput &input, const char *source, bool (*takes)(const KeyFlag &)) {
  app.add_option("source", input.source, source)->type_name("");
  app.add_option("--model", input.modelFlag, "a model for a job file: folder, shape .toml, or a shipped shape's name");
  app.add_option("--hardware", input.hardwareFlag,
                 "a profile's .toml, or a shipped one's name (default: this machine's)");
  addIgnoreAdapter(app, input.folder);
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
           name, [&input, name](const std::string &value) { input.flags[name] = value; }, helpOf(flag))
        ->group(groups.at(flag.section));
  }
}

void addJob(CLI::App &app, JobInput &input, const char *source, bool (*takes)(const KeyFlag &)) {
  addKeys(app, input, source, takes);
  for (const KeyFlag &flag : keyFlags()) {
    if (takes != nullptr && !takes(flag))
      continue;
    const std::string name(flag.flag);
    std::string synonyms(flag.synonyms);
    while (!synonyms.empty()) {
      const std::string synonym = synonyms.substr(0, synonyms.find(','));
      synonyms.erase(0, synonym.size() + 1);
      if (app.get_option_no_throw(synonym) != nullptr) // the command has a flag of its own of this name
        continue;
      app.add_option_function<std::string>(
             synonym, [&input, synonym](const std::string &value) { input.synonyms[synonym] = value; },
             "the same as " + name)
          ->group(kOtherEngines);
    }
  }
  app.add_option("--gpu-memory-utilization", input.gpuMemoryUtilization,
                 "--device-memory as a share of the hardware's memory")
      ->group(kOtherEngines);
  app.add_option("--cpu-offload-gb", input.cpuOffloadGb, "--offload-layers as GiB of weights, at most")
      ->group(kOtherEngines);
  app.add_option("--kv-offloading-size", input.kvOffloadingSize, "--kv-host-memory; a number without a unit is GiB")
      ->group(kOtherEngines);
  app.add_option("--n-gpu-layers,--gpu-layers", input.gpuLayers, "--offload-layers as layers that stay (also -ngl)")
      ->group(kOtherEngines);
}

void addAllowMissed(CLI::App &app, JobInput &input) {
  app.add_flag("--allow-missed", input.allowMissed,
               "take a plan that misses its objectives, as that of a policy that does not choose by them may (else "
               "exit status 1)")
      ->group("Goal");
}

CLI::Option *addSeed(CLI::App &app, const char *flag, uint64_t &seed, const char *help) {
  return addInteger<uint64_t>(app, flag, seed, help, 0)->default_str("0");
}
void addSyntheticWeights(CLI::App &app, std::optional<uint64_t> &seed) {
  addInteger<uint64_t>(app, "--synthetic-weights", seed, "weights from this seed, for a shape without any", 0);
}

void addScheduler(CLI::App &app, SchedulerFlags &flags) {
  constexpr const char *kGroup = "Engine";
  addChoice<serve::Batching>(app, "--scheduler", flags.batching,
                             "vllm: sequences join and leave at any iteration; static: batch after batch, prompts "
                             "padded to the longest",
                             {{"vllm", serve::Batching::Continuous}, {"static", serve::Batching::Static}})
      ->group(kGroup);
  addInteger<int64_t>(app, "--max-num-seqs", flags.maxNumSeqs,
                      "sequences with rows in one iteration, at most; of a job without a batch its batch", 1,
                      int64_t{1} << 20)
      ->group(kGroup);
  addInteger<int64_t>(app, "--max-num-batched-tokens", flags.maxNumBatchedTokens,
                      "new rows of an iteration that has rows of prompts, at most", 1, int64_t{1} << 24)
      ->group(kGroup);
  app.add_flag("!--no-chunked-prefill", flags.chunkedPrefill, "prompts whole, and decodes wait for them")
      ->group(kGroup);
  app.add_option("--swap-space", flags.swapSpace,
                 "pinned host memory for the KV blocks of preempted sequences; a number without a unit is GiB "
                 "(default: none)")
      ->group(kGroup);
  addChoice<serve::Preemption>(app, "--preemption-mode", flags.preemption,
                               "what becomes of a preempted sequence: recompute: its tokens are prefilled anew; swap: "
                               "its KV blocks go to --swap-space and come back; auto: as is predicted to be cheaper",
                               {{"auto", serve::Preemption::Auto},
                                {"recompute", serve::Preemption::Recompute},
                                {"swap", serve::Preemption::Swap}})
      ->group(kGroup);
}

void addOverwrite(CLI::App &app, bool &overwrite) {
  app.add_flag("--overwrite", overwrite, "replace output files that headrace did not write, too; never an input");
}

void addThreads(CLI::App &app, const std::function<void(const std::string &)> &take) {
  app.add_option_function<std::string>("--threads", take, kThreadsHelp);
}
void addDevice(CLI::App &app, DeviceFlags &flags, JobInput &job, const char *byDefault) {
  app.add_option("--device", flags.device, deviceNames() + " (default: " + byDefault + ")")
      ->each([&job](const std::string &device) { job.device = device; });
}
void addGraphBuild(CLI::App &app, DeviceFlags &flags) {
  addChoice<bool>(app, "--graph-build", flags.captureGraphs, "how CUDA graphs are made: explicit or capture",
                  {{"explicit", false}, {"capture", true}});
  app.add_option("--cuda-libraries", flags.cudaLibraries,
                 "folders of cublasLt and CUPTI, separated by colons, before those that are searched anyway");
  app.add_option("--cuda-algorithms", flags.cudaAlgorithms,
                 "a file of cublasLt's algorithms by shape (default: what profile wrote beside the record, "
                 "RECORD.cublaslt); without one, or of another version of the library, its own first choice");
  addChoice<cuda::TraceBy>(
      app, "--trace-by", flags.traceBy, "what measures steps on a GPU: auto, cupti or stamps",
      {{"auto", cuda::TraceBy::Auto}, {"cupti", cuda::TraceBy::Cupti}, {"stamps", cuda::TraceBy::Stamps}});
}
void addLanes(CLI::App &app, DeviceFlags &flags, JobInput &job) {
  app.remove_option(app.get_option("--threads"));
  addThreads(app, [&flags, &job](const std::string &value) {
    flags.threads = value;
    job.flags["--threads"] = value;
    job.deviceThreads = true;
  });
  app.add_flag("--pin", flags.pin, "each lane's thread on a core of its own");
  app.add_flag("--low-latency", flags.lowLatency, kLowLatencyHelp);
}

void addWeights(CLI::App &app, WeightFlags &flags, const char *folderHelp) {
  app.add_option("--weights", flags.folder, folderHelp);
  addSyntheticWeights(app, flags.synthetic);
}

void addTexts(CLI::App &app, const char *flags, std::vector<std::string> &texts, const char *help) {
  app.add_option(flags, texts, help)->allow_extra_args(false)->type_name("TEXT");
}

namespace {

constexpr const char *kTextGroup = "Text";

} // namespace

void addPromptText(CLI::App &app, TextFlags &flags) {
  app.add_option("--system", flags.system,
                 "a system message in front of the conversation; texts are a user's messages then")
      ->group(kTextGroup);
  app.add_flag("--lossy", flags.lossy, "U+FFFD for what is not UTF-8 in a prompt")->group(kTextGroup);
  app.add_option("--tokenizer", flags.tokenizer, "a folder with the tokenizer (default: the model's)")
      ->group(kTextGroup);
  app.add_option("--chat-template", flags.chatTemplate, "a Jinja file (default: the tokenizer's)")->group(kTextGroup);
  app.add_option("--chat-template-kwargs", flags.templateVariables,
                 "variables of the chat template, as a JSON object: '{\"enable_thinking\": false}'")
      ->group(kTextGroup);
}

void addText(CLI::App &app, TextFlags &flags) {
  addPromptText(app, flags);
  app.add_option("--stop", flags.stops, "a text that ends a reply, and is not shown; may be given several times")
      ->allow_extra_args(false)
      ->group(kTextGroup);
  app.add_flag("--special", flags.special, "show special tokens, too")->group(kTextGroup);
  app.add_flag("--ignore-eos", flags.ignoreEos, "go on after the model's end ids")->group(kTextGroup);
  app.add_flag("-q,--quiet", flags.quiet, "replies and errors, nothing else")->group(kTextGroup);
}

void addSampling(CLI::App &app, SamplingFlags &flags) {
  addNumber(app, "--temperature,--temp", flags.temperature,
            "0 is greedy (default: 0, and for text what the model's generation_config.json says; so for those below)",
            "0 or more", [](double t) { return t >= 0 && t <= 1e30; });
  addNumber(app, "--top-p", flags.topP, "share of probability to sample from", "more than 0 and at most 1",
            [](double p) { return p > 0 && p <= 1; })
      ->default_str("1");
  addInteger<int64_t>(app, "--top-k", flags.topK, "so many likeliest tokens to sample from; 0 or -1: all", -1,
                      kMostTopK)
      ->default_str("0");
  addNumber(app, "--min-p", flags.minP, "least probability to sample from, as a share of the likeliest token's",
            "0 to 1", [](double p) { return p >= 0 && p <= 1; })
      ->default_str("0");
  addNumber(app, "--repetition-penalty,--repeat-penalty", flags.repetitionPenalty,
            "tokens of the prompt and generated ones: logits above 0 are divided by it, others multiplied",
            "1e-6 to 1e6", [](double p) { return p >= 1e-6 && p <= 1e6; })
      ->default_str("1");
  const auto twoAtMost = [](double p) { return p >= -2 && p <= 2; };
  addNumber(app, "--presence-penalty", flags.presencePenalty, "taken off the logits of tokens that were generated",
            "-2 to 2", twoAtMost)
      ->default_str("0");
  addNumber(app, "--frequency-penalty", flags.frequencyPenalty, "the same, once for each time that they were",
            "-2 to 2", twoAtMost)
      ->default_str("0");
}

} // namespace headrace::tools
