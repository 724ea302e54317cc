// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/RunSetup.h"

#include <cstdio>
#include <set>

#include <unistd.h>

#include "runtime/base/FileIo.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/model/FolderContents.h"
#include "runtime/model/ModelSpec.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/ModelHash.h"
#include "tools/commands/Progress.h"
#include "tools/commands/Terminal.h"

namespace headrace::tools {
namespace {

using model::cat;

} // namespace

void warnOnce(const std::string &warning) {
  static std::set<std::string> said;
  if (said.insert(warning).second)
    say("warning: " + warning);
}

WantedWeights weightsOf(const plan::Plan &plan, const model::FolderOptions &options) {
  return {&*plan.model, plan.modelHash, plan.modelPath, plan.weightHashes, nullptr, options};
}

WantedWeights weightsOf(const model::Job &job) {
  return {&*job.model->spec, modelHash(*job.model), job.model->path, {}, &*job.model, job.model->options};
}

absl::Status checkWeightFlags(const WeightFlags &flags) {
  if (flags.synthetic && !flags.folder.empty())
    return badUsage("--weights beside --synthetic-weights: expected one of them");
  if (flags.synthetic && flags.verify)
    return badUsage("--verify-weights beside --synthetic-weights: expected one of them");
  if (!flags.folder.empty() && !model::isDirectory(flags.folder))
    return badFlag("--weights", flags.folder, "no such folder", "the model's folder");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<model::WeightSource>> openWeights(const WeightFlags &flags,
                                                                 const WantedWeights &wanted) {
  if (flags.synthetic)
    return model::syntheticWeights(*flags.synthetic);
  const std::string folder = flags.folder.empty() ? wanted.folder : flags.folder;
  if (folder.empty() || model::isTomlPath(folder))
    return absl::InvalidArgumentError(
        cat(folder.empty() ? wanted.model->name : folder,
            ": a shape has no weights: expected --synthetic-weights SEED, or --weights FOLDER"));
  if (!model::isDirectory(folder))
    return absl::NotFoundError(cat(folder, ": no such folder; the plan was made from it: expected --weights FOLDER, "
                                           "where the model's weights are now"));
  std::optional<model::ModelSource> other;
  if (wanted.opened == nullptr || !flags.folder.empty()) {
    ASSIGN_OR_RETURN(opened, model::openModel(folder, wanted.options));
    other = std::move(opened);
  }
  const model::ModelSource &source = other ? *other : *wanted.opened;
  if (!source.checkpoint)
    return absl::NotFoundError(cat(model::missingWeightsText(folder), "; or --synthetic-weights SEED"));
  RETURN_IF_ERROR(checkWeightsMatch(*wanted.model, wanted.modelHash, source));
  for (const std::string &note : source.notes)
    warnOnce(note);
  if (flags.verify)
    RETURN_IF_ERROR(verifyWeights(*wanted.model, wanted.hashes, source));
  return model::openCheckpoint(source.checkpoint, model::layoutWeights(*wanted.model), warnOnce);
}

absl::StatusOr<std::unique_ptr<core::Runtime>> loadRuntime(const plan::Plan &plan, core::Device &device,
                                                           const core::DeviceOptions &options,
                                                           std::unique_ptr<model::WeightSource> &weights,
                                                           core::LoadOptions loading) {
  RETURN_IF_ERROR(cuda::useAlgorithmsBeside(device, plan.goal.record));
  Progress progress("loading", Amount::Bytes);
  loading.progress = [&](uint64_t done, uint64_t total) { progress.update(done, total); };
  absl::StatusOr<std::unique_ptr<core::Runtime>> runtime =
      core::Runtime::load(plan, device, options, weights.get(), loading);
  if (runtime.ok())
    weights.reset();
  return runtime;
}

} // namespace headrace::tools
