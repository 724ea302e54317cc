// SPDX-License-Identifier: Apache-2.0
//
// drift: what packing does to a model. The same prompts go through it and through the model in full precision, chunk
// by chunk beside each other, and of each position the logits are compared; no more of them are kept than of a chunk.
//
//   prompts --+--> packed          --> logits of a chunk --+--> PositionDrift, one a position --> report, picture
//             '--> full precision  --> logits of a chunk --'
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/core/Runtime.h"
#include "runtime/model/KvEncoding.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/model/WeightSource.h"
#include "runtime/serve/engine/ForcedRows.h"
#include "tools/commands/Commands.h"
#include "tools/commands/Compiling.h"
#include "tools/commands/Devices.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/Outputs.h"
#include "tools/commands/Progress.h"
#include "tools/commands/RunPrompts.h"
#include "tools/commands/RunSetup.h"
#include "tools/commands/RunSource.h"
#include "tools/commands/Terminal.h"
#include "tools/report/DriftReport.h"
#include "tools/report/Format.h"

namespace headrace::tools {
namespace {

using model::cat;

// One of the two models, loaded.
class Side {
public:
  Side(const char *name, AssembledJob assembled) : name_(name), assembled_(std::move(assembled)) {}

  absl::Status compile() {
    absl::StatusOr<plan::Plan> plan = compileToHold(assembled_);
    if (!plan.ok())
      return aboutInput(assembled_.input, plan.status());
    plan_ = *std::move(plan);
    return absl::OkStatus();
  }
  absl::Status load(const DriftOptions &options) {
    ASSIGN_OR_RETURN(device, makeDevice(options.device.deviceOr(assembled_.device), options.device));
    device_ = std::move(device);
    ASSIGN_OR_RETURN(weights, openWeights(options.weights, weightsOf(assembled_.job)));
    ASSIGN_OR_RETURN(runtime, loadRuntime(plan_, *device_, {}, weights, {}));
    runtime_ = std::move(runtime);
    ASSIGN_OR_RETURN(rows, serve::ForcedRows::create(*runtime_));
    rows_.emplace(std::move(rows));
    return absl::OkStatus();
  }

  void restart() { rows_->restart(); }
  // The logits of the next rows of a prompt, one behind the other.
  absl::Status next(size_t prompt, absl::Span<const int32_t> ids, int64_t count) {
    logits_.clear();
    const absl::Status status = rows_->next(ids, count, logits_);
    return status.ok() ? status : absl::Status(status.code(), cat(name_, ": prompt ", prompt, ", ", status.message()));
  }
  absl::Span<const float> logits(int64_t row) const {
    const auto vocab = static_cast<size_t>(plan_.model->vocab);
    return absl::MakeConstSpan(logits_).subspan(static_cast<size_t>(row) * vocab, vocab);
  }

  uint64_t bytes() const { return plan_.arenaBytes + plan_.hostBytes; }
  const core::Device &device() const { return *device_; }
  DriftSide report() const {
    const model::ModelSpec &spec = plan_.model;
    const std::string packed = model::weightEncodingText(spec);
    return {packed.empty() ? std::string(model::dtypeName(spec.dtype)) : packed,
            model::layoutWeights(spec).totalBytes(), model::kvEncodingText(plan_.kvEncoding)};
  }

private:
  const char *name_;
  AssembledJob assembled_;
  plan::Plan plan_;
  std::unique_ptr<core::Device> device_;
  std::unique_ptr<core::Runtime> runtime_;
  std::optional<serve::ForcedRows> rows_;
  std::vector<float> logits_; // of a chunk
};

class Drift {
public:
  explicit Drift(const DriftOptions &options) : options_(options) {}

  absl::Status run() {
    RETURN_IF_ERROR(open());
    for (Side *side : {&*packed_, &*full_})
      RETURN_IF_ERROR(side->compile());
    RETURN_IF_ERROR(checkMemory());
    for (Side *side : {&*packed_, &*full_})
      RETURN_IF_ERROR(side->load(options_));
    RETURN_IF_ERROR(compare());
    return report();
  }

private:
  // Everything that can be refused before the work starts.
  absl::Status open() {
    if (isPlanFile(options_.job.source))
      return badFlag("model", options_.job.source, "a plan, which holds its model one way", "a model, or a job file");
    RETURN_IF_ERROR(checkWeightFlags(options_.weights));
    RETURN_IF_ERROR(checkPromptFlags(options_.prompts, options_.text));
    ASSIGN_OR_RETURN(assembled, assembleJob(options_.job));
    outputs_.emplace(options_.overwrite);
    outputs_->add("--svg", options_.svg, OutputKind::Bench);
    outputs_->addInputs(assembled.job.files);
    outputs_->addInput(options_.weights.folder);
    addInputs(options_.prompts, options_.text, *outputs_);
    RETURN_IF_ERROR(outputs_->check());
    say(assembled.notes);
    ASSIGN_OR_RETURN(device, makeDevice(options_.device.deviceOr(assembled.device), options_.device));
    if (!device->holdsData())
      return absl::FailedPreconditionError(
          cat("drift: the ", device->kind(), " device holds no data: use --device host"));
    const model::Job &job = assembled.job;
    if (!job.model->spec->encodings.any() && !job.goal.kvEncoding)
      return badUsage("drift: nothing is packed, so nothing drifts from full precision: expected --weight-encoding, "
                      "such as q8, or --kv-dtype");
    RETURN_IF_ERROR(readPrompts(job));
    model_ = job.model->spec->name;
    hardware_ = job.hardware->name;
    shared_ = job.sharedMemory;
    packed_.emplace("packed", sideOf(assembled));
    model::ModelSpec spec = job.model->spec;
    spec.encodings = {};
    assembled.job.model->spec = std::move(spec);
    assembled.job.goal.kvEncoding.reset();
    full_.emplace("full precision", sideOf(assembled));
    return absl::OkStatus();
  }

  absl::Status readPrompts(const model::Job &job) {
    const model::ModelSpec &spec = job.model->spec;
    const auto refuse = [&](std::string_view what, int64_t tokens, const std::string &expected) {
      return absl::InvalidArgumentError(
          cat(what, " of ", tokens, tokens == 1 ? " token" : " tokens", ": expected ", expected));
    };
    const std::string most = cat("at most ", model::longestContextText(spec));
    if (options_.prompts.randomLength.value_or(0) > spec.longestContext()) // before they are drawn
      return refuse("--random-input-len: prompt 0", *options_.prompts.randomLength, most);
    std::optional<TextModel> text;
    const std::string &weights = options_.weights.folder;
    ASSIGN_OR_RETURN(prompts, promptsOf(options_.prompts, options_.text, weights.empty() ? job.model->path : weights,
                                        spec, options_.seed, text));
    for (size_t p = 0; p < prompts.size(); ++p) {
      const auto tokens = static_cast<int64_t>(prompts[p].size());
      if (tokens < 2)
        return refuse(cat("prompt ", p), tokens, "at least 2, as logits are held against the token that follows");
      if (tokens > spec.longestContext())
        return refuse(cat("prompt ", p), tokens, most);
      for (const int32_t id : prompts[p])
        if (id >= spec.vocab)
          return absl::InvalidArgumentError(cat("prompt ", p, ": token id ", id, ": expected ids below ", spec.vocab,
                                                ", the vocabulary of ", spec.name));
      positions_ += tokens;
      longest_ = std::max(longest_, tokens);
    }
    prompts_ = std::move(prompts);
    return absl::OkStatus();
  }

  // A plan whose sequences are the rows of a chunk, all of them of one prompt. Of a job the model, the hardware, the
  // device memory and how KV is held count.
  AssembledJob sideOf(const AssembledJob &assembled) const {
    AssembledJob out = assembled;
    const model::Goal &given = assembled.job.goal;
    model::Goal goal;
    goal.deviceMemory = given.deviceMemory;
    goal.kvEncoding = given.kvEncoding;
    goal.blockTokens = given.blockTokens;
    goal.batch = chunk();
    goal.context = goal.kvTokens = longest_;
    out.job.goal = std::move(goal);
    out.job.policy = {};
    out.job.buckets = {{chunk()}, {chunk()}, {longest_}};
    return out;
  }
  int64_t chunk() const { return std::min(options_.maxNumBatchedTokens, longest_); }

  // Both lie in the machine's memory.
  absl::Status checkMemory() const {
    const uint64_t both = packed_->bytes() + full_->bytes();
    if (!shared_ || both <= *shared_)
      return absl::OkStatus();
    return absl::ResourceExhaustedError(
        cat("the model packed and in full precision takes ", both, " bytes (", formatBytes(both),
            "), both at a time, of which plans may have ", *shared_, " (", formatBytes(*shared_),
            "): what would do is a machine with more, or --hardware host with --memory and --host-memory"));
  }

  absl::Status compare() {
    Progress progress("comparing");
    for (size_t p = 0; p < prompts_.size(); ++p) {
      const absl::Span<const int32_t> ids = prompts_[p];
      const auto tokens = static_cast<int64_t>(ids.size());
      packed_->restart();
      full_->restart();
      for (int64_t at = 0, count = 0; at < tokens; at += count) {
        count = std::min(chunk(), tokens - at);
        RETURN_IF_ERROR(full_->next(p, ids, count));
        RETURN_IF_ERROR(packed_->next(p, ids, count));
        for (int64_t i = 0; i < count; ++i) {
          const int64_t position = at + i;
          PositionDrift drift =
              driftOf(full_->logits(i), packed_->logits(i),
                      position + 1 < tokens ? std::optional(ids[static_cast<size_t>(position) + 1]) : std::nullopt);
          drift.prompt = static_cast<int64_t>(p);
          drift.position = position;
          drifts_.push_back(drift);
        }
        progress.update(drifts_.size(), static_cast<uint64_t>(positions_));
      }
    }
    return absl::OkStatus();
  }

  absl::Status report() {
    DriftReport report;
    report.model = model_;
    report.hardware = hardware_;
    report.device = describeDevice(options_.device.device, packed_->device());
    report.packed = packed_->report();
    report.full = full_->report();
    report.prompts = static_cast<int64_t>(prompts_.size());
    report.positions = std::move(drifts_);
    if (!options_.svg.empty())
      RETURN_IF_ERROR(outputs_->write(options_.svg, report.svg()));
    show(options_.json ? report.json(options_.each) : report.text(options_.each), options_.json);
    return absl::OkStatus();
  }

  const DriftOptions &options_;
  std::optional<Outputs> outputs_;
  std::string model_, hardware_;
  std::optional<uint64_t> shared_; // bytes that plans have of the machine's memory
  Prompts prompts_;
  int64_t positions_ = 0, longest_ = 0; // of all prompts; tokens
  std::optional<Side> packed_, full_;
  std::vector<PositionDrift> drifts_;
};

} // namespace

absl::Status driftCommand(const DriftOptions &options) { return Drift(options).run(); }

} // namespace headrace::tools
