// SPDX-License-Identifier: Apache-2.0
//
// The subcommands: what main.cpp parsed goes in, an exit status (ExitCode.h) comes out. Results go to standard output,
// everything else (errors, progress, notes) to standard error; an output file is whole or not there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "tools/commands/JobFlags.h"

namespace headrace::tools {

struct CompileOptions {
  JobInput job;
  std::string output;
  std::string dumpIr;        // a folder for the IR's text, phase by phase; empty: none
  bool dumpEachPass = false; // pass by pass instead
  bool verifyWeights = false;
  bool dryRun = false;
  bool overwrite = false; // files that are not of the output's kind (Outputs.h); so in every command that writes
  bool all = false;       // tables whole
  bool json = false;
};

struct InspectOptions {
  std::string plan;
  bool all = false; // tables whole
  bool json = false;
};

struct TimelineOptions {
  std::string plan;
  std::optional<uint32_t> variant; // unset: the one that was measured, else the first
  std::string format = "text";     // text, json, svg
  std::string output;              // empty or "-": standard output
  bool overwrite = false;
  std::string measured; // a trace of `run --trace`; empty: planned lanes only
  int width = 0;        // columns of text; 0: the terminal's, or 120
};

struct RunOptions {
  JobInput job;       // source: a plan, a model or a job
  std::string device; // host, sim, cuda, cuda:N; empty: what the plan is for
  std::string graphBuild = "explicit";
  std::string traceBy = "auto";         // auto, cupti, stamps
  std::string cudaLibraries;            // folders of cublasLt and CUPTI, separated by colons; tried first
  std::optional<std::string> promptIds; // an empty text is no prompt, and not a flag that was not given
  std::string promptIdsFile;
  std::optional<int64_t> randomInputLength; // random prompts of this length, numPrompts of them
  std::optional<int64_t> numPrompts;        // unset: 1
  int64_t maxNewTokens = 16;
  double temperature = 0, topP = 1;
  uint64_t seed = 0;
  std::string stopIds;
  std::optional<uint32_t> placement; // unset: the one chosen for each bucket, else the first
  std::string linkBandwidth;
  std::string graphMemory; // what graphs may take beside the arena; empty: no limit
  double graphSeconds = 0; // what building them may take; 0: no limit
  std::string weights;     // a folder, in place of the plan's
  std::optional<uint64_t> syntheticWeights;
  bool verifyWeights = false;          // against the hashes in the plan
  std::string logits, trace, timeline; // output files
  bool overwrite = false;
  bool separatePrefill = false;
  bool pin = false, lowLatency = false;
  bool json = false;
};

struct BenchOptions {
  RunOptions run; // job, device, weights, seed, pin, lowLatency, overwrite, json; nothing of it that names prompts
  std::string policies = "none,deepspeed,accelerate,vllm-prefetch,flexgen,select-n,headrace";
  std::string batches; // "1,8,32"; empty: the job's, or 8
  bool fill = false;   // in their place the largest batch of each policy that fits and holds
  std::string instances = "apart", phase = "both";
  int64_t inputLength = 256, outputLength = 32;
  int64_t rounds = 3;      // that count; one more comes first
  std::string svg, output; // output files: bars, JSON
  bool all = false;        // tables whole
};

struct ProfileOptions {
  RunOptions run; // job, device, graphBuild, traceBy, cudaLibraries, seed, pin, lowLatency, overwrite, json
  std::string output;
  std::string batches, sequences; // "1,2,4"; empty: the default grid's
  double secondsPerPair = 2;
  bool all = false;   // pairs that need not be measured as well
  bool force = false; // measure anew, whatever the file holds
};

struct RecordOptions {
  std::string record;
  std::string slo; // a time such as 50ms; empty: none
  std::optional<double> sloFactor;
  bool json = false;
};

struct FleetOptions {
  std::string file;               // a fleet's TOML
  std::string device = "sim";     // sim, host
  std::string policy, placements; // over the jobs' own
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
absl::Status benchCommand(const BenchOptions &options);
absl::Status fleetCommand(const FleetOptions &options);
absl::Status profileCommand(const ProfileOptions &options);
absl::Status recordShowCommand(const RecordOptions &options);

} // namespace headrace::tools
