// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/RunSetup.h"

#include <cstdio>
#include <set>

#include <unistd.h>

#include "runtime/base/FileIo.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/ModelHash.h"

namespace headrace::tools {
namespace {

using model::cat;

} // namespace

std::string defaultDevice(const plan::Plan &plan) {
  return plan.hardware.kind == model::DeviceKind::Cuda ? "cuda" : "host";
}

void warnOnce(const std::string &warning) {
  static std::set<std::string> said;
  if (said.insert(warning).second)
    std::fprintf(stderr, "%sheadrace: warning: %s\n", ::isatty(STDERR_FILENO) == 1 ? "\r\x1b[K" : "", warning.c_str());
}

absl::StatusOr<std::unique_ptr<model::WeightSource>> openWeights(const RunOptions &options, const plan::Plan &plan) {
  if (options.syntheticWeights) {
    if (!options.weights.empty())
      return badUsage("--weights beside --synthetic-weights: expected one of them");
    if (options.verifyWeights)
      return badUsage("--verify-weights beside --synthetic-weights: expected one of them");
    return model::syntheticWeights(*options.syntheticWeights);
  }
  const std::string folder = options.weights.empty() ? plan.modelPath : options.weights;
  if (!options.weights.empty() && !model::isDirectory(folder))
    return badFlag("--weights", folder, "no such folder", "the model's folder");
  if (folder.empty() || folder.ends_with(".toml"))
    return absl::InvalidArgumentError(
        cat(folder.empty() ? plan.model.name : folder,
            ": a shape has no weights: expected --synthetic-weights SEED, or --weights FOLDER"));
  if (!model::isDirectory(folder))
    return absl::NotFoundError(cat(folder, ": no such folder; the plan was made from it: expected --weights FOLDER, "
                                           "where the model's weights are now"));
  absl::StatusOr<model::ModelSource> source = model::openModel(folder);
  if (!source.ok())
    return source.status();
  if (!source->hasWeights)
    return absl::NotFoundError(cat(folder,
                                   ": no model.safetensors or model.safetensors.index.json: expected weights, or "
                                   "--synthetic-weights SEED"));
  RETURN_IF_ERROR(checkWeightsMatch(plan, *source));
  for (const std::string &note : source->notes)
    warnOnce(note);
  if (options.verifyWeights)
    RETURN_IF_ERROR(verifyWeights(plan, *source));
  return model::openCheckpoint(folder, plan.model, model::layoutWeights(plan.model), warnOnce);
}

} // namespace headrace::tools
