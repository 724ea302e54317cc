// SPDX-License-Identifier: Apache-2.0
#include "compiler/choose/FlexGen.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/cost/SelectN.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

constexpr const char *kUnitNames[model::kUnitsPerLayer] = {"qkv", "out", "up", "down"};

model::Hardware peakOf(model::Hardware hardware, int64_t busDevices) {
  hardware.flopsEfficiency = hardware.memoryEfficiency = 1;
  for (double *rate : {&hardware.h2dBandwidth, &hardware.d2hBandwidth, &hardware.duplexBandwidth})
    *rate /= static_cast<double>(busDevices);
  return hardware;
}

} // namespace

FlexGen::FlexGen(const model::ModelSpec &spec, const model::WeightLayout &layout, const model::Hardware &hardware,
                 const Target &target, std::vector<PricedStep> steps, int64_t busDevices)
    : spec_(spec), layout_(layout), steps_(std::move(steps)),
      peak_(spec, peakOf(hardware, busDevices), target.activation, target.kv) {}

std::vector<Candidate> FlexGen::candidates() const {
  std::vector<std::pair<uint64_t, Candidate>> found;
  for (unsigned set = 1; set < 1U << model::kUnitsPerLayer; ++set) {
    Candidate candidate;
    uint64_t bytes = 0;
    for (int64_t layer = 0; layer < spec_.layers; ++layer)
      for (int unit = 0; unit < model::kUnitsPerLayer; ++unit)
        if ((set >> unit) & 1U) {
          candidate.units.push_back(layout_.layerUnit(layer, model::UnitRole::Qkv) + unit);
          bytes += layout_.units[static_cast<size_t>(candidate.units.back())].bytes;
        }
    for (int unit = 0; unit < model::kUnitsPerLayer; ++unit)
      if ((set >> unit) & 1U)
        absl::StrAppend(&candidate.name, candidate.name.empty() ? "" : "+", kUnitNames[unit]);
    candidate.name += " of every layer";
    candidate.layers = spec_.layers;
    candidate.startRule = model::StartRule::Paper;
    candidate.slots = 2;
    found.emplace_back(bytes, std::move(candidate));
  }
  std::stable_sort(found.begin(), found.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
  std::vector<Candidate> candidates(1);
  candidates[0].name = "none";
  for (auto &[bytes, candidate] : found)
    candidates.push_back(std::move(candidate));
  return candidates;
}

double FlexGen::estimateNs(const Candidate &candidate, const cost::Shape &shape) const {
  double layers = 0, rest = 0;
  for (const PricedStep &step : steps_)
    (step.inLayer ? layers : rest) += static_cast<double>(peak_.computeNs(step.site, shape, /*direct=*/false));
  double transfer = 0; // of all layers
  for (const int32_t unit : candidate.units)
    transfer += static_cast<double>(peak_.copyNs(layout_.units[static_cast<size_t>(unit)].bytes, true));
  const auto count = static_cast<double>(spec_.layers);
  const cost::LayerTimes times{spec_.layers, layers / count, transfer / count, rest};
  return candidate.units.empty() ? cost::residentNs(times) : cost::emptyStartNs(times, 1);
}

bool FlexGen::meets(const Candidate &candidate, const Objective &bucket, const model::Goal &goal) const {
  const double limit =
      goal.sloFactor ? *goal.sloFactor * estimateNs(Candidate(), bucket.shape) : static_cast<double>(bucket.limit());
  return estimateNs(candidate, bucket.shape) <= limit;
}

} // namespace headrace::compiler
