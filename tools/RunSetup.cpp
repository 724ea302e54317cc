// SPDX-License-Identifier: Apache-2.0
#include "tools/RunSetup.h"

#include <algorithm>
#include <vector>

#include <sched.h>

#include "runtime/cuda/CudaDevice.h"
#include "runtime/host/HostDevice.h"
#include "runtime/model/FileIo.h"
#include "runtime/model/Text.h"
#include "runtime/sim/SimDevice.h"
#include "tools/ModelHash.h"

namespace headrace::tools {
namespace {

using model::cat;

absl::Status bad(const std::string &message) { return absl::InvalidArgumentError(cat("command line: ", message)); }

} // namespace

absl::StatusOr<std::unique_ptr<core::Device>> makeDevice(const std::string &name, const RunOptions &options) {
  const std::string &graphBuild = options.graphBuild, &traceBy = options.traceBy;
  if (graphBuild != "explicit" && graphBuild != "capture")
    return bad(cat("--graph-build ", model::escaped(graphBuild, 40), ": expected explicit or capture"));
  if (traceBy != "auto" && traceBy != "cupti" && traceBy != "stamps")
    return bad(cat("--trace-by ", model::escaped(traceBy, 40), ": expected auto, cupti or stamps"));
  if (name == "host")
    return host::makeHostDevice();
  if (name == "sim")
    return sim::makeSimDevice();
  if (absl::StatusOr<int> index = cuda::deviceIndex(name); index.ok())
    return cuda::makeCudaDevice({.index = *index,
                                 .capture = graphBuild == "capture",
                                 .traceBy = traceBy == "cupti"    ? cuda::TraceBy::Cupti
                                            : traceBy == "stamps" ? cuda::TraceBy::Stamps
                                                                  : cuda::TraceBy::Auto,
                                 .libraries = options.cudaLibraries});
  return bad(cat("--device ", model::escaped(name, 40), ": expected host, sim or cuda, or cuda:1 for the second GPU"));
}

std::string defaultDevice(const plan::Plan &plan) {
  return plan.hardware.kind == model::DeviceKind::Cuda ? "cuda" : "host";
}

absl::StatusOr<std::unique_ptr<model::WeightSource>> openWeights(const RunOptions &options, const plan::Plan &plan) {
  if (options.syntheticWeights) {
    if (!options.weights.empty())
      return bad("--weights beside --synthetic-weights: expected one of them");
    return model::syntheticWeights(*options.syntheticWeights);
  }
  const std::string folder = options.weights.empty() ? plan.modelPath : options.weights;
  if (!options.weights.empty() && !model::isDirectory(folder))
    return absl::NotFoundError(cat("--weights ", folder, ": no such folder: expected the model's folder"));
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
  if (absl::Status status = checkWeightsMatch(plan, *source); !status.ok())
    return status;
  return model::openCheckpoint(folder, plan.model, model::layoutWeights(plan.model));
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
    return absl::InvalidArgumentError(
        cat("--low-latency: expected the host device, whose lanes are threads; this is ", device.kind()));
  deviceOptions.lowLatency = options.lowLatency;
  return absl::OkStatus();
}

} // namespace headrace::tools
