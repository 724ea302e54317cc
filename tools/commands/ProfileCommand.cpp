// SPDX-License-Identifier: Apache-2.0
//
// profile: a model on a device -> record.toml.
//
//   job -> grid (chooseGrid: compiles the resident plan) -> record on disk, if any: is it of this? -> analyze
//                                                              |
//                                     written after each pair: whole at any time, continued by the next run
//
// On a GPU the algorithms of cublasLt that it was measured with are written beside it, for all who plan with it.
// With --activations then measureLines, on a plan of its own, and the record once more. With --cpu none of this, but
// the machine's processor (CpuProfile.h).
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
#include "runtime/profile/AnalyzerLines.h"
#include "tools/commands/Commands.h"
#include "tools/commands/CpuProfile.h"
#include "tools/commands/Devices.h"
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
  request.goal.kvEncoding = identity.kv;
  request.goal.blockTokens = job.goal.blockTokens;
  request.policy.none = true;
  if (sizes.activations) {
    request.policy.actRatio = model::ActRatio{1, 1};
    request.policy.actHome = model::ActHome::Device;
  }
  request.buckets = {.newTokens = {sizes.newTokens}, .sequences = {sizes.batch}, .contexts = {sizes.context}};
  return compiler::compile(request);
}

std::string listOf(const std::vector<int64_t> &axis) {
  std::string text;
  for (const int64_t n : axis)
    text += cat(text.empty() ? "[" : ", ", n);
  return text + "]";
}

// Lines apart.
bool isWhole(const cost::Record &record, bool all) {
  return cost::checkComplete(record, "").ok() && profile::cellsLeft(record, all).empty() &&
         record.spread.repetitions > 0;
}

// Whether what is on disk can be continued as `wanted`: it is of the same model, device and grid.
absl::Status checkResumable(const cost::Record &there, const cost::Record &wanted, const ProfileOptions &options) {
  const std::string &path = options.output;
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
  if (isWhole(there, options.all) && (!options.activations || there.lines.measured()))
    return absl::InvalidArgumentError(cat(path, ": is a complete record of this already; --force measures anew"));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<model::WeightSource>> openProfileWeights(const model::Job &job,
                                                                        const model::ModelSpec &run, uint64_t seed) {
  if (job.model->checkpoint)
    return model::openCheckpoint(job.model->checkpoint, model::layoutWeights(run));
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
      say(cat(cost::phaseName(phase), ": pairs of more than ", grid.mostTokens[p],
              " tokens are left out: they do not fit the device memory"));
}

class Profiling {
public:
  explicit Profiling(const ProfileOptions &options) : options_(options), outputs_(options.overwrite) {}

  absl::Status run() {
    RETURN_IF_ERROR(open());
    RETURN_IF_ERROR(readThere());
    RETURN_IF_ERROR(chooseGrid());
    ASSIGN_OR_RETURN(record, begin());
    ASSIGN_OR_RETURN(measured, measure(std::move(record)));
    if (const std::string algorithms = cuda::algorithmsOf(*device_); !algorithms.empty())
      RETURN_IF_ERROR(outputs_.write(cuda::algorithmsBeside(options_.output), algorithms));
    show(options_.json ? recordReportJson(measured, options_.output, std::nullopt)
                       : recordReportText(measured, options_.output, std::nullopt),
         options_.json);
    return absl::OkStatus();
  }

private:
  // Everything that can be refused before the work starts: flags alone, then beside the model and its device.
  absl::Status open() {
    if (options_.output.empty())
      return badUsage("no --output FILE: expected one, the record to write");
    ASSIGN_OR_RETURN(batches, readAxis(options_.batches, "--batches"));
    ASSIGN_OR_RETURN(sequences, readAxis(options_.sequences, "--sequences"));
    request_.batches = std::move(batches);
    request_.sequences = std::move(sequences);
    ASSIGN_OR_RETURN(assembled, assembleJob(options_.job));
    say(assembled.notes);
    job_ = std::move(assembled.job);
    outputs_.add("--output", options_.output, OutputKind::Record);
    const std::string name = options_.device.deviceOr(assembled.device);
    if (cuda::deviceIndex(name).ok())
      outputs_.add("--output", cuda::algorithmsBeside(options_.output), OutputKind::Algorithms);
    outputs_.addInputs(job_.files);
    RETURN_IF_ERROR(outputs_.check());
    ASSIGN_OR_RETURN(device, makeDevice(name, options_.device));
    device_ = std::move(device);
    if (device_->kind() == "host") // what is measured is what so many threads take
      job_.hardware->threads = device_->threads();
    identity_ = recordIdentity(job_, device_->kind() == "sim");
    return absl::OkStatus();
  }

  // The record that is to be continued, if there is one. With --overwrite what is there need not be a record.
  absl::Status readThere() {
    if (options_.force || !model::isRegularFile(options_.output) || !holdsKind(options_.output, OutputKind::Record))
      return absl::OkStatus();
    absl::StatusOr<cost::Record> read = cost::readRecord(options_.output);
    if (!read.ok())
      return absl::InvalidArgumentError(cat(read.status().message(), "; --force measures anew"));
    there_ = *std::move(read);
    return cuda::useAlgorithmsBeside(*device_, options_.output); // as it was measured so far
  }

  absl::Status chooseGrid() {
    Progress progress("choosing what to measure");
    request_.model = job_.model->spec;
    request_.hardware = *job_.hardware;
    request_.activation = identity_.activation;
    request_.kv = identity_.kv;
    request_.deviceMemory = job_.goal.deviceMemory.value_or(job_.hardware->defaultBudget());
    request_.blockTokens = job_.goal.blockTokens;
    request_.all = options_.all;
    request_.plans = [&](const profile::PlanSizes &sizes) { return compileResident(job_, identity_, sizes); };
    ASSIGN_OR_RETURN(grid, profile::chooseGrid(request_));
    grid_ = std::move(grid);
    if (options_.activations && !(there_ && there_->lines.measured())) {
      ASSIGN_OR_RETURN(lines, profile::chooseLinesPlan(request_, grid_, options_.secondsPerPair));
      lines_ = std::move(lines);
    }
    return absl::OkStatus();
  }

  // What is measured so far: nothing, or what is there.
  absl::StatusOr<cost::Record> begin() {
    cost::Record record = profile::emptyRecord(grid_, identity_, job_.model->spec);
    if (there_) {
      RETURN_IF_ERROR(checkResumable(*there_, record, options_));
      record = *std::move(there_);
      say(cat(options_.output, ": continued; ", record.transfers.size(), " sizes of copies and ", record.cells.size(),
              " pairs are there already"));
    }
    if (grid_.plan.model->layers < job_.model->spec->layers)
      say(cat(grid_.plan.model->layers, " of the ", job_.model->spec->layers,
              " layers are run: more leave no room for batches and contexts"));
    noteLeftOut(grid_);
    return record;
  }

  absl::StatusOr<cost::Record> measure(cost::Record record) {
    std::unique_ptr<model::WeightSource> weights;
    if (device_->holdsData()) {
      ASSIGN_OR_RETURN(opened, openProfileWeights(job_, grid_.plan.model, options_.seed));
      weights = std::move(opened);
    }
    Writer writer(options_.output);
    analyzer_.secondsPerPair = options_.secondsPerPair;
    analyzer_.all = options_.all;
    analyzer_.seed = options_.seed;
    analyzer_.weights = weights.get();
    analyzer_.fromFiles = job_.model->checkpoint != nullptr;
    if (isWhole(record, options_.all)) // but for lines
      return measureLines(std::move(record), writer);
    bool measuring = false;
    std::optional<Progress> progress(std::in_place, "loading", Amount::Bytes);
    analyzer_.loading = [&](uint64_t done, uint64_t total) { progress->update(done, total); };
    analyzer_.measuring = [&](uint64_t done, uint64_t total) {
      if (!measuring)
        progress.emplace("measuring copies and pairs, at most");
      measuring = true;
      progress->update(done, total);
    };
    analyzer_.onProgress = [&](const cost::Record &now) { return writer.write(now); };
    ASSIGN_OR_RETURN(measured, profile::analyze(std::move(record), grid_, *device_, analyzer_));
    RETURN_IF_ERROR(writer.writeNow(measured));
    progress.reset();
    return measureLines(std::move(measured), writer);
  }

  // Where they are asked for and missing. The record stands, whether they are lines or not.
  absl::StatusOr<cost::Record> measureLines(cost::Record record, Writer &writer) {
    if (!options_.activations || record.lines.measured())
      return record;
    std::unique_ptr<model::WeightSource> weights; // of as many layers as this plan has
    if (device_->holdsData()) {
      ASSIGN_OR_RETURN(opened, openProfileWeights(job_, lines_.plan.model, options_.seed));
      weights = std::move(opened);
    }
    Progress progress("measuring lines, of activations");
    analyzer_.weights = weights.get();
    analyzer_.loading = nullptr;
    analyzer_.measuring = [&](uint64_t done, uint64_t total) { progress.update(done, total); };
    ASSIGN_OR_RETURN(lines, profile::measureLines(lines_, *device_, analyzer_));
    record.lines = std::move(lines);
    RETURN_IF_ERROR(writer.writeNow(record));
    return record;
  }

  const ProfileOptions &options_;
  Outputs outputs_;
  model::Job job_;
  std::unique_ptr<core::Device> device_;
  cost::Identity identity_;
  std::optional<cost::Record> there_;
  profile::GridRequest request_;
  profile::Grid grid_;
  profile::LinesPlan lines_; // with --activations
  profile::AnalyzerOptions analyzer_;
};

absl::Status profileCpu(const ProfileOptions &options) {
  if (!options.job.source.empty() || options.job.any() || !options.output.empty())
    return badUsage("--cpu: expected no model, no --output and no key of a job beside it: it measures the machine");
  for (const auto &[flag, given] : {std::pair("--device", !options.device.device.empty()),
                                    {"--batches", !options.batches.empty()},
                                    {"--sequences", !options.sequences.empty()},
                                    {"--all", options.all},
                                    {"--activations", options.activations},
                                    {"--force", options.force}})
    if (given)
      return badUsage(cat("--cpu beside ", flag, ": expected it alone: it measures the machine's processor"));
  ASSIGN_OR_RETURN(threads, threadsOf(options.device));
  Progress progress("measuring threads");
  ASSIGN_OR_RETURN(figures, measureCpu(threads, options.secondsPerPair));
  show(options.json ? cpuJson(figures) : cpuText(figures), options.json);
  return absl::OkStatus();
}

} // namespace

absl::Status profileCommand(const ProfileOptions &options) {
  return options.cpu ? profileCpu(options) : Profiling(options).run();
}

} // namespace headrace::tools
