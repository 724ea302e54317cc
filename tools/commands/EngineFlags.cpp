// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/EngineFlags.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/base/Units.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "tools/commands/InputErrors.h"

namespace headrace::tools {
namespace {

using model::cat;

class Translation {
public:
  Translation(JobInput &input, const model::Job &job, std::vector<std::string> &notes)
      : input_(input), job_(job), spec_(job.model->spec), notes_(notes) {}

  absl::Status run() {
    for (const auto &[name, value] : input_.synonyms)
      RETURN_IF_ERROR(means(cat(name, " ", value), flagOfSynonym(name)->flag, value));
    if (input_.gpuMemoryUtilization)
      RETURN_IF_ERROR(memoryShare(*input_.gpuMemoryUtilization));
    if (input_.gpuLayers)
      RETURN_IF_ERROR(layersOnDevice(*input_.gpuLayers));
    if (input_.cpuOffloadGb)
      RETURN_IF_ERROR(gibOnHost(*input_.cpuOffloadGb));
    if (input_.kvOffloadingSize)
      RETURN_IF_ERROR(kvOnHost(*input_.kvOffloadingSize));
    return absl::OkStatus();
  }

private:
  absl::Status means(const std::string &alias, std::string_view flag, const std::string &value) {
    const auto [at, added] = input_.flags.emplace(flag, value);
    if (!added && at->second != value)
      return badUsage(
          cat(alias, " means ", flag, " ", value, ", and ", flag, " ", at->second, " is given: expected one of them"));
    notes_.push_back(cat(alias, " means ", flag, " ", value));
    return absl::OkStatus();
  }

  absl::Status memoryShare(const std::string &text) {
    double share = 0;
    if (!absl::SimpleAtod(text, &share) || !(share > 0 && share <= 1))
      return badFlag("--gpu-memory-utilization", text, "a share above 0 and at most 1");
    const uint64_t memory = job_.hardware->memoryBytes;
    const auto bytes = static_cast<uint64_t>(share * static_cast<double>(memory));
    return means(cat("--gpu-memory-utilization ", text, " (of the ", memory, " bytes of ", job_.hardware->name, ")"),
                 "--device-memory", model::bytesText(bytes));
  }

  absl::Status layersOnDevice(const std::string &text) {
    int64_t onDevice = 0;
    if (!absl::SimpleAtoi(text, &onDevice) || onDevice < -1)
      return badFlag("--n-gpu-layers", text, "a number of layers, or -1 for all");
    const int64_t offloaded = onDevice < 0 ? 0 : std::max<int64_t>(0, spec_.layers - onDevice);
    return means(cat("--n-gpu-layers ", onDevice, " (of ", spec_.layers, ")"), "--offload-layers", cat(offloaded));
  }

  absl::Status gibOnHost(const std::string &text) {
    double gib = 0;
    if (!absl::SimpleAtod(text, &gib) || !(gib >= 0 && gib < 1e9))
      return badFlag("--cpu-offload-gb", text, "GiB of weights, 0 or more");
    const uint64_t layerBytes = model::layoutWeights(spec_).layerBytes(0);
    const auto layers =
        static_cast<int64_t>(gib * static_cast<double>(uint64_t{1} << 30) / static_cast<double>(layerBytes));
    if (gib > 0 && layers == 0)
      return badNumber("--cpu-offload-gb", text,
                       cat("0, or at least the ", layerBytes, " bytes of one layer of ", spec_.name));
    return means(cat("--cpu-offload-gb ", text, " (", layerBytes, " bytes a layer)"), "--offload-layers",
                 cat(std::min(layers, spec_.layers)));
  }

  absl::Status kvOnHost(const std::string &text) {
    const bool bare = text.find_first_not_of("0123456789.") == std::string::npos;
    const absl::StatusOr<uint64_t> bytes = model::parseBytes(bare ? text + "GiB" : text, "");
    if (!bytes.ok())
      return badFlag("--kv-offloading-size", text, "GiB such as 40 or 0.5, or bytes with their unit, below 2^63");
    return means(cat("--kv-offloading-size ", text), "--kv-host-memory", model::bytesText(*bytes));
  }

  JobInput &input_;
  const model::Job &job_;
  const model::ModelSpec &spec_;
  std::vector<std::string> &notes_;
};

struct Meant {
  std::string_view theirs, ours;
};
constexpr Meant kShares[] = {{"--gpu-memory-utilization", "--device-memory"},
                             {"--cpu-offload-gb", "--offload-layers"},
                             {"--n-gpu-layers", "--offload-layers"},
                             {"--kv-offloading-size", "--kv-host-memory"}};

} // namespace

std::string_view meantBy(std::string_view flag) {
  if (const KeyFlag *key = flagOfSynonym(flag))
    return key->flag;
  for (const Meant &share : kShares)
    if (share.theirs == flag)
      return share.ours;
  return {};
}

absl::Status translateEngineFlags(JobInput &input, const model::Job &job, std::vector<std::string> &notes) {
  return Translation(input, job, notes).run();
}

} // namespace headrace::tools
