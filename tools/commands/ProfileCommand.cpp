// SPDX-License-Identifier: Apache-2.0
//
// profile: a model on a device -> record.toml.
//
//   job -> grid (chooseGrid: compiles the resident plan) -> record on disk, if any: is it of this? -> analyze
//                                                              |
//                                     written after each pair: whole at any time, continued by the next run
#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>

#include "compiler/Compile.h"
#include "runtime/base/FileIo.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/cost/RecordFile.h"
#include "runtime/profile/Analyzer.h"
#include "tools/commands/Commands.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/Outputs.h"
#include "tools/commands/Progress.h"
#include "tools/commands/PromptIds.h"
#include "tools/commands/RunSetup.h"
#include "tools/commands/Terminal.h"
#include "tools/report/RecordCosts.h"
#include "tools/report/RecordReport.h"

namespace headrace::tools {
namespace {

using model::cat;
using Clock = std::chrono::steady_clock;

// Pairs of virtual time take microseconds: not each of them is worth a file.
constexpr auto kWriteEvery = std::chrono::milliseconds(200);

// "1,2,4"; nothing for an empty text.
absl::StatusOr<std::vector<int64_t>> readAxis(const std::string &text, const char *flag) {
  std::vector<int64_t> axis;
  if (text.empty())
    return axis;
  absl::StatusOr<std::vector<int32_t>> numbers = parseIds(text, cat("command line: ", flag));
  if (!numbers.ok())
    return numbers.status();
  axis.assign(numbers->begin(), numbers->end());
  bool valid = axis.front() >= 1;
  for (size_t i = 0; valid && i < axis.size(); ++i)
    valid = (axis[i] & (axis[i] - 1)) == 0 && axis[i] <= int64_t{1} << 30 && (i == 0 || axis[i] == 2 * axis[i - 1]);
  if (!valid)
    return badFlag(flag, text, "powers of two, each twice the one before");
  return axis;
}

absl::StatusOr<plan::Plan> compileResident(const model::Job &job, const cost::Identity &identity,
                                           const profile::PlanSizes &sizes) {
  compiler::CompileRequest request;
  request.model = sizes.model;
  request.modelHash = identity.modelHash;
  request.modelPath = job.model->path;
  request.hardware = *job.hardware;
  request.goal.deviceMemory = sizes.deviceMemory;
  request.goal.batch = sizes.batch;
  request.goal.context = sizes.context;
  request.goal.kvTokens = sizes.kvTokens;
  request.goal.kvDtype = identity.kv;
  request.goal.blockTokens = job.goal.blockTokens;
  request.policy.none = true;
  request.buckets = {.newTokens = {sizes.newTokens}, .sequences = {sizes.batch}, .contexts = {sizes.context}};
  return compiler::compile(request);
}

std::string listOf(const std::vector<int64_t> &axis) {
  std::string text;
  for (const int64_t n : axis)
    text += cat(text.empty() ? "[" : ", ", n);
  return text + "]";
}

// Whether what is on disk can be continued as `wanted`: it is of the same model, device and grid.
absl::Status checkResumable(const cost::Record &there, const cost::Record &wanted, bool all, const std::string &path) {
  absl::Status status = cost::checkIdentity(there, wanted.identity, path);
  if (status.ok())
    status = checkSameHardware(there, wanted.hardware, path);
  if (!status.ok())
    return absl::InvalidArgumentError(cat(status.message(), "; --force measures anew"));
  const auto differs = [&](std::string_view key, const std::string &has, const std::string &wants) {
    return absl::InvalidArgumentError(cat(path, ": grid.", key, " = ", has, ": this record has another grid, expected ",
                                          wants, "; --force measures anew"));
  };
  if (there.batches != wanted.batches)
    return differs("batch", listOf(there.batches), listOf(wanted.batches));
  if (there.sequences != wanted.sequences)
    return differs("sequence", listOf(there.sequences), listOf(wanted.sequences));
  for (const cost::Phase phase : {cost::Phase::Prefill, cost::Phase::Decode})
    if (const auto p = static_cast<size_t>(phase); there.mostTokens[p] != wanted.mostTokens[p])
      return differs(cat(cost::phaseName(phase), "_tokens"), cat(there.mostTokens[p]), cat(wanted.mostTokens[p]));
  if (there.layersRun != wanted.layersRun)
    return differs("layers_run", cat(there.layersRun), cat(wanted.layersRun));
  if (cost::checkComplete(there, path).ok() && profile::cellsLeft(there, all).empty() && there.spread.repetitions > 0)
    return absl::InvalidArgumentError(cat(path, ": is a complete record of this already; --force measures anew"));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<model::WeightSource>> openProfileWeights(const model::Job &job,
                                                                        const model::ModelSpec &run, uint64_t seed) {
  if (job.model->hasWeights)
    return model::openCheckpoint(job.model->path, run, model::layoutWeights(run));
  return model::syntheticWeights(seed); // no kernel's time depends on values
}

// After each step of the analysis, but not more often than is useful.
class Writer {
public:
  explicit Writer(std::string path) : path_(std::move(path)) {}
  absl::Status write(const cost::Record &record) {
    if (last_ && Clock::now() - *last_ < kWriteEvery)
      return absl::OkStatus();
    return writeNow(record);
  }
  absl::Status writeNow(const cost::Record &record) {
    last_ = Clock::now();
    return cost::writeRecord(record, path_);
  }

private:
  std::string path_;
  std::optional<Clock::time_point> last_;
};

void noteLeftOut(const profile::Grid &grid) {
  for (const cost::Phase phase : {cost::Phase::Prefill, cost::Phase::Decode})
    if (const auto p = static_cast<size_t>(phase); grid.memoryBound[p])
      std::fprintf(stderr,
                   "headrace: %s: pairs of more than %lld tokens are left out: they do not fit the device memory\n",
                   std::string(cost::phaseName(phase)).c_str(), static_cast<long long>(grid.mostTokens[p]));
}

} // namespace

absl::Status profileCommand(const ProfileOptions &options) {
  const RunOptions &run = options.run;
  if (options.output.empty())
    return badUsage("no --output FILE: expected one, the record to write");
  absl::StatusOr<std::vector<int64_t>> batches = readAxis(options.batches, "--batches");
  absl::StatusOr<std::vector<int64_t>> sequences = readAxis(options.sequences, "--sequences");
  for (const absl::Status &status : {batches.status(), sequences.status()})
    if (!status.ok())
      return status;
  absl::StatusOr<AssembledJob> assembled = assembleJob(run.job);
  if (!assembled.ok())
    return assembled.status();
  for (const std::string &note : assembled->notes)
    std::fprintf(stderr, "headrace: %s\n", note.c_str());
  const model::Job &job = assembled->job;
  Outputs outputs(run.overwrite);
  outputs.add("--output", options.output, OutputKind::Record);
  outputs.addInputs(job.files);
  RETURN_IF_ERROR(outputs.check());
  const std::string deviceName = !run.device.empty()                             ? run.device
                                 : job.hardware->kind == model::DeviceKind::Cuda ? "cuda"
                                                                                 : "host";
  absl::StatusOr<std::unique_ptr<core::Device>> device = makeDevice(deviceName, run);
  if (!device.ok())
    return device.status();
  absl::StatusOr<cost::Identity> identity = recordIdentity(job, (*device)->kind() == "sim");
  if (!identity.ok())
    return identity.status();

  std::optional<cost::Record> there;
  // With --overwrite what is there need not be a record.
  if (!options.force && model::isRegularFile(options.output) && holdsKind(options.output, OutputKind::Record)) {
    absl::StatusOr<cost::Record> read = cost::readRecord(options.output);
    if (!read.ok())
      return absl::InvalidArgumentError(cat(read.status().message(), "; --force measures anew"));
    there = *std::move(read);
  }
  std::optional<Progress> progress(std::in_place, "choosing what to measure");
  profile::GridRequest request;
  request.model = job.model->spec;
  request.hardware = *job.hardware;
  request.activation = identity->activation;
  request.kv = identity->kv;
  request.deviceMemory = job.goal.deviceMemory.value_or(job.hardware->memoryBytes);
  request.blockTokens = job.goal.blockTokens;
  request.all = options.all;
  request.batches = *std::move(batches);
  request.sequences = *std::move(sequences);
  request.plans = [&](const profile::PlanSizes &sizes) { return compileResident(job, *identity, sizes); };
  absl::StatusOr<profile::Grid> grid = profile::chooseGrid(request);
  if (!grid.ok())
    return grid.status();
  progress.reset();
  cost::Record record = profile::emptyRecord(*grid, *identity, job.model->spec);
  if (there) {
    RETURN_IF_ERROR(checkResumable(*there, record, options.all, options.output));
    record = *std::move(there);
    std::fprintf(stderr, "headrace: %s: continued; %zu sizes of copies and %zu pairs are there already\n",
                 options.output.c_str(), record.transfers.size(), record.cells.size());
  }
  if (grid->plan.model->layers < job.model->spec->layers)
    std::fprintf(stderr, "headrace: %lld of the %lld layers are run: more leave no room for batches and contexts\n",
                 static_cast<long long>(grid->plan.model->layers), static_cast<long long>(job.model->spec->layers));
  noteLeftOut(*grid);

  std::unique_ptr<model::WeightSource> weights;
  if ((*device)->holdsData()) {
    absl::StatusOr<std::unique_ptr<model::WeightSource>> opened = openProfileWeights(job, grid->plan.model, run.seed);
    if (!opened.ok())
      return opened.status();
    weights = *std::move(opened);
  }
  Writer writer(options.output);
  profile::AnalyzerOptions analyzer;
  analyzer.secondsPerPair = options.secondsPerPair;
  analyzer.all = options.all;
  analyzer.seed = run.seed;
  analyzer.weights = weights.get();
  RETURN_IF_ERROR(setLanes(run, **device, analyzer.device));
  bool measuring = false;
  progress.emplace("loading", Amount::Bytes);
  analyzer.loading = [&](uint64_t done, uint64_t total) { progress->update(done, total); };
  analyzer.measuring = [&](uint64_t done, uint64_t total) {
    if (!measuring)
      progress.emplace("measuring copies and pairs, at most");
    measuring = true;
    progress->update(done, total);
  };
  analyzer.onProgress = [&](const cost::Record &now) { return writer.write(now); };
  absl::StatusOr<cost::Record> measured = profile::analyze(std::move(record), *grid, **device, analyzer);
  progress.reset();
  if (!measured.ok())
    return measured.status();
  RETURN_IF_ERROR(writer.writeNow(*measured));
  show(run.json ? recordReportJson(*measured, options.output, std::nullopt)
                : recordReportText(*measured, options.output, std::nullopt),
       run.json);
  return absl::OkStatus();
}

} // namespace headrace::tools
