// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/RunSetup.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <vector>

#include <sched.h>
#include <unistd.h>

#include "runtime/base/FileIo.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/model/ModelSpec.h"
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
        cat(folder.empty() ? plan.model->name : folder,
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

namespace {

void pinLanes(core::DeviceOptions &options) {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0)
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set))
        cores.push_back(core);
  if (cores.empty())
    return;
  options.computeCore = cores[0];
  options.transferCore = cores[std::min<size_t>(1, cores.size() - 1)];
}

} // namespace

absl::Status setLanes(const RunOptions &options, const core::Device &device, core::DeviceOptions &deviceOptions) {
  if (options.pin)
    pinLanes(deviceOptions);
  if (options.lowLatency && device.kind() != "host")
    return badUsage(cat("--low-latency: expected the host device, whose lanes are threads; this is ", device.kind()));
  deviceOptions.lowLatency = options.lowLatency;
  return absl::OkStatus();
}

} // namespace headrace::tools
