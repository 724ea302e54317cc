// SPDX-License-Identifier: Apache-2.0
//
// The subcommands: what main.cpp parsed goes in, an exit status (ExitCode.h) comes out. Results go to standard output,
// everything else (errors, progress, notes) to standard error; an output file is whole or not there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/cuda/CudaDevice.h"
#include "runtime/serve/engine/Scheduler.h"
#include "tools/commands/BenchJob.h"
#include "tools/commands/JobFlags.h"

namespace headrace::tools {

struct CompileOptions {
  JobInput job;
  std::string output;
  std::string dumpIr;                // a folder for the IR's text, phase by phase; empty: none
  bool dumpEachPass = false;         // pass by pass instead
  std::optional<std::string> stages; // how many devices, or auto; none: one, and no stages
  bool peerCopies = false;           // rows go from device to device without the host: refused, with its price
  bool verifyWeights = false;
  bool dryRun = false;
  bool explain = false;   // beside: LM-Offload's closed form of it
  bool beside = false;    // instead: what does not stand beside what
  bool overwrite = false; // files that are not of the output's kind (Outputs.h); so in every command that writes
  bool all = false;       // tables whole
  bool json = false;
};

struct InspectOptions {
  std::string plan;
  bool all = false;     // tables whole
  bool mapping = false; // where layers' caches are, iteration by iteration
  bool json = false;
};

enum class TimelineFormat : uint8_t; // timeline/Timeline.h

struct TimelineOptions {
  std::string plan;
  std::optional<uint32_t> variant;      // unset: the one that was measured, else the first that may use any KV block
  std::optional<uint32_t> phase;        // of the variant's cycle; unset: the variant's own
  std::optional<TimelineFormat> format; // unset: what the output's name says, else text
  std::string output;                   // empty or "-": standard output
  bool overwrite = false;
  std::string measured; // a trace of `run --trace`; empty: planned lanes only
  int width = 0;        // columns of text; 0: the terminal's, or 120
};

// --- parts that commands which run a plan have in common -----------------------------------------------------------

// Which device runs it, and how its lanes do (Devices.h, RunSetup.h).
struct DeviceFlags {
  std::string device; // host, sim, cuda, cuda:N; empty: what the plan, or the hardware, is for
  bool captureGraphs = false;
  cuda::TraceBy traceBy = cuda::TraceBy::Auto;
  std::string cudaLibraries;  // folders of cublasLt and CUPTI, separated by colons; tried first
  std::string cudaAlgorithms; // a file of cublasLt's algorithms; empty: the one beside a plan's record, if any
  bool pin = false, lowLatency = false;
  std::string threads; // of the host device, as JobInput's flag of that name; empty: HEADRACE_THREADS, else all cores

  const std::string &deviceOr(const std::string &otherwise) const { return device.empty() ? otherwise : device; }
};

// Where its weights come from (RunSetup.h).
struct WeightFlags {
  std::string folder; // in place of the plan's; empty: the plan's
  std::optional<uint64_t> synthetic;
  bool verify = false; // against the hashes in the plan
};

// The prompts: one way of these.
struct PromptFlags {
  std::optional<std::string> ids; // an empty text is no prompt, and not a flag that was not given
  std::string idsFile;
  std::vector<std::string> texts, textFiles; // each a prompt, in this order
  std::vector<std::string> lists;            // files of texts, one a line (PromptLines.h)
  std::vector<std::string> messages;         // files, each a conversation that the chat template makes a prompt of
  std::optional<int64_t> randomLength;       // random ones of this length, `count` of them
  std::optional<int64_t> count;              // unset: 1
};

// Who is in the next iteration (serve::EngineOptions).
struct SchedulerFlags {
  serve::Batching batching = serve::Batching::Continuous;
  std::optional<int64_t> maxNumSeqs, maxNumBatchedTokens; // unset: the plan's
  bool chunkedPrefill = true;
  serve::Preemption preemption = serve::Preemption::Auto;
  std::string swapSpace; // EngineSetup.h; empty: none
};

// Text in, text out (TextModel.h).
struct TextFlags {
  std::string tokenizer;             // a folder; empty: the model's
  std::string chatTemplate;          // a file; empty: the tokenizer's folder's
  std::string templateVariables;     // a JSON object
  std::optional<std::string> system; // what stands first in a conversation
  std::vector<std::string> stops;    // texts that end a reply
  bool special = false;              // show special tokens
  bool ignoreEos = false;
  bool lossy = false; // U+FFFD for what is not UTF-8
  bool quiet = false; // replies and errors, nothing else
};

// How the next token is taken. Unset: generation_config.json's where text comes in, else serve::Sampling's, which take
// the likeliest token of the logits as they are.
struct SamplingFlags {
  std::optional<double> temperature; // 0: the likeliest
  std::optional<int64_t> topK;       // -1 and 0: all
  std::optional<double> topP, minP;
  std::optional<double> repetitionPenalty, presencePenalty, frequencyPenalty;
  std::string stopIds;
};

// --------------------------------------------------------------------------------------------------------------------

struct RunOptions {
  JobInput job; // source: a plan, a model or a job
  DeviceFlags device;
  WeightFlags weights;
  PromptFlags prompts;
  TextFlags text;
  SamplingFlags sampling;
  SchedulerFlags scheduler;
  uint64_t seed = 0;                   // of sampling and of random prompts
  std::optional<int64_t> maxNewTokens; // unset: 16 after ids, at most 128 after text
  std::optional<uint32_t> placement;   // unset: the one chosen for each bucket, else the first
  double linkBandwidth = 0;            // bytes/s that copies are paced to; 0: as they come
  std::optional<uint64_t> graphMemory; // bytes that graphs may take beside the arena; unset: no limit
  double graphSeconds = 0;             // what building them may take; 0: no limit
  std::string logits, trace, timeline; // output files
  bool overwrite = false;
  bool separatePrefill = false;
  bool json = false;
};

struct BenchOptions {
  JobInput job;
  DeviceFlags device;
  WeightFlags weights;
  uint64_t seed = 0; // of the random prompts
  std::string policies = "none,deepspeed,accelerate,vllm-prefetch,flexgen,select-n,headrace,joint";
  std::string batches; // "1,8,32"; empty: the job's, or 8
  bool fill = false;   // in their place the largest batch of each policy that fits and holds
  model::Instances instances = model::Instances::Apart;
  BenchRole phase = BenchRole::Both;                // of instances apart
  std::optional<int64_t> inputLength, outputLength; // unset: the job's, or 256 and 32
  int64_t maxNumBatchedTokens = 0;                  // as BenchLoad's
  int64_t rounds = 3;                               // that count; one more comes first
  std::string svg, output;                          // output files: bars, JSON
  bool overwrite = false;
  bool all = false; // tables whole
  bool json = false;
};

enum class Dataset : uint8_t { Random, ShareGpt, Alpaca, Trace };

// Which requests come, and when.
struct TrafficFlags {
  Dataset dataset = Dataset::Random;
  std::string path;                                 // of a trace
  std::optional<int64_t> inputLength, outputLength; // of random ones; unset: the goal's, or serve::RandomLengths'
  std::optional<double> rangeRatio;
  std::optional<int64_t> count;     // unset: 1000; of a trace all
  std::optional<std::string> rates; // requests/s: "4", "1,2,inf"; unset: inf; of a trace its own times
  std::optional<double> burstiness; // unset: 1
  uint64_t seed = 0;                // of lengths, prompts and arrivals, and of sampling
};

struct BenchServeOptions {
  JobInput job; // source: a plan, a model or a job
  DeviceFlags device;
  WeightFlags weights;
  SamplingFlags sampling;
  TrafficFlags traffic;
  std::optional<int64_t> maxConcurrency; // requests in the engine at a time; unset: all
  bool ignoreEos = false;
  std::vector<std::string> goodput;  // "ttft:200"
  std::string percentiles = "50,99"; // --metric-percentiles
  std::string metrics;               // --percentile-metrics; empty: all
  SchedulerFlags scheduler;
  std::optional<uint32_t> placement; // as RunOptions has it
  double linkBandwidth = 0;
  std::string svg, output; // output files: the picture, the JSON
  bool overwrite = false;
  bool detailed = false; // --save-detailed: each request in the JSON
  bool all = false;      // tables whole
  bool json = false;
};

// What packing does to a model's logits.
struct DriftOptions {
  JobInput job; // a model, or a job; what is packed is its --weight-encoding and --kv-dtype
  DeviceFlags device;
  WeightFlags weights;
  PromptFlags prompts;
  TextFlags text;
  uint64_t seed = 0;                // of random prompts
  int64_t maxNumBatchedTokens = 64; // rows of a prompt that go through at a time
  std::string svg;                  // output file
  bool overwrite = false;
  bool each = false; // a line a position
  bool json = false;
};

struct ProfileOptions {
  JobInput job;
  DeviceFlags device;
  uint64_t seed = 0; // of random prompts and, for a shape, of weights
  std::string output;
  bool overwrite = false;
  std::string batches, sequences; // "1,2,4"; empty: the default grid's
  double secondsPerPair = 2;
  bool all = false;         // pairs that need not be measured as well
  bool activations = false; // lines of what activation blocks take as well
  bool force = false;       // measure anew, whatever the file holds
  bool cpu = false;         // the machine's processor instead of a model on a device (CpuProfile.h)
  bool json = false;
};

struct RecordOptions {
  std::string record;
  std::string slo; // a time such as 50ms; empty: none
  std::optional<double> sloFactor;
  bool json = false;
};

// A conversation, turn by turn.
struct ChatOptions {
  JobInput job; // source: a plan, a model or a job
  DeviceFlags device;
  WeightFlags weights;
  TextFlags text;
  SamplingFlags sampling;
  uint64_t seed = 0;
  std::optional<int64_t> maxNewTokens; // of a reply; unset: as many as the context holds
  std::optional<uint32_t> placement;   // as RunOptions has it
  double linkBandwidth = 0;
  bool json = false; // an object a turn
};

// Ids of a text, and text of ids.
struct TokenizeOptions {
  std::string source;               // a folder
  std::optional<std::string> input; // what to tokenize or detokenize; unset: `file`
  std::string file;                 // "-" or empty: standard input
  std::string messages;             // tokenize: a conversation's file, in place of a text
  bool noSpecial = false;           // tokenize: no special tokens around the text; detokenize: hide them
  bool pieces = false;              // tokenize: a line a token
  bool lossy = false;               // tokenize
  bool json = false;
};

struct FleetOptions {
  std::string file;               // a fleet's TOML
  std::string device = "sim";     // sim, host
  std::string threads;            // as DeviceFlags', of all devices together
  std::string policy, placements; // over the jobs' own
  model::FolderOptions folder;    // as JobInput has it, of all devices
  bool coordinate = true;
  std::optional<uint64_t> syntheticWeights;
  bool each = false; // a line a request
  bool all = false;  // however many
  bool json = false;
};

absl::Status compileCommand(const CompileOptions &options);
absl::Status inspectCommand(const InspectOptions &options);
absl::Status timelineCommand(const TimelineOptions &options);
absl::Status runCommand(const RunOptions &options);
absl::Status chatCommand(const ChatOptions &options);
absl::Status tokenizeCommand(const TokenizeOptions &options);
absl::Status detokenizeCommand(const TokenizeOptions &options);
absl::Status benchCommand(const BenchOptions &options);
absl::Status benchServeCommand(const BenchServeOptions &options);
absl::Status fleetCommand(const FleetOptions &options);
absl::Status driftCommand(const DriftOptions &options);
absl::Status profileCommand(const ProfileOptions &options);
absl::Status recordShowCommand(const RecordOptions &options);

} // namespace headrace::tools
