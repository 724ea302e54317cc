// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/generators/FlexGen.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/search/GeneratorInputs.h"
#include "runtime/cost/SelectN.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

constexpr const char *kUnitNames[model::kUnitsPerLayer] = {"qkv", "out", "up", "down"};

model::Hardware peakOf(model::Hardware hardware, int64_t busDevices) {
  hardware.flopsEfficiency = hardware.memoryEfficiency = 1;
  hardware.classes = {};
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
    std::vector<int32_t> units;
    uint64_t bytes = 0;
    for (int64_t layer = 0; layer < spec_.layers; ++layer)
      for (int unit = 0; unit < model::kUnitsPerLayer; ++unit)
        if ((set >> unit) & 1U) {
          units.push_back(layout_.layerUnit(layer, model::UnitRole::Qkv) + unit);
          bytes += layout_.units[static_cast<size_t>(units.back())].bytes;
        }
    for (int unit = 0; unit < model::kUnitsPerLayer; ++unit)
      if ((set >> unit) & 1U)
        absl::StrAppend(&candidate.name, candidate.name.empty() ? "" : "+", kUnitNames[unit]);
    candidate.name += " of every layer";
    candidate.residency.setWeightsAway(units);
    candidate.residency.start = algorithms::kPaper;
    candidate.residency.weights().setSlots(2);
    found.emplace_back(bytes, std::move(candidate));
  }
  std::stable_sort(found.begin(), found.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
  std::vector<Candidate> candidates(1);
  candidates[0].name = "none";
  for (auto &[bytes, candidate] : found)
    candidates.push_back(std::move(candidate));
  return candidates;
}

double FlexGen::estimateNs(const Candidate &candidate, const cost::Bucket &bucket) const {
  double layers = 0, rest = 0;
  for (const PricedStep &step : steps_)
    (step.inLayer ? layers : rest) += static_cast<double>(peak_.computeNs(step.site, bucket, /*direct=*/false));
  double transfer = 0; // of all layers
  for (const int32_t unit : candidate.residency.weightsAway())
    transfer += static_cast<double>(peak_.copyNs(layout_.units[static_cast<size_t>(unit)].bytes, true));
  const auto count = static_cast<double>(spec_.layers);
  const cost::LayerTimes times{spec_.layers, layers / count, transfer / count, rest};
  return candidate.offloadsNothing() ? cost::residentNs(times) : cost::emptyStartNs(times, 1);
}

bool FlexGen::meets(const Candidate &candidate, const Objective &objective, const model::Goal &goal) const {
  const double limit = goal.sloFactor ? *goal.sloFactor * estimateNs(Candidate(), objective.bucket)
                                      : static_cast<double>(objective.limit());
  return estimateNs(candidate, objective.bucket) <= limit;
}

namespace {

FlexGen estimator(const GeneratorInputs &in, bool wholeBus) {
  return {in.request.model, in.layout, in.request.hardware,
          in.target,        in.steps,  wholeBus ? 1 : in.request.goal.busDevices};
}

template <bool wholeBus> std::vector<Candidate> candidates(const GeneratorInputs &in) {
  return estimator(in, wholeBus).candidates();
}

template <bool wholeBus> Generator::Opinion opinion(const GeneratorInputs &in) {
  return [estimate = estimator(in, wholeBus), &goal = in.request.goal](const Candidate &candidate,
                                                                       const Objective &objective) {
    return estimate.meets(candidate, objective, goal);
  };
}

constexpr std::string_view kOpinionText =
    "the largest share of every layer that its estimate from peak performance allows, or the smallest that fits";

} // namespace

extern const Generator kFlexGenGenerator;
const Generator kFlexGenGenerator = {
    .name = "flexgen",
    .summary = "the same units of every layer, as much as peak performance and 1 / bus_devices of the bus suggest",
    .order = Order::MostFreed,
    .startsItemByItem = true,
    .colour = 2,
    .candidates = candidates<false>,
    .opinion = opinion<false>,
    .opinionText = kOpinionText,
};

extern const Generator kFlexGenNoBusGenerator;
const Generator kFlexGenNoBusGenerator = {
    .name = "flexgen-nobus",
    .summary = "the same with the whole bus assumed",
    .order = Order::MostFreed,
    .startsItemByItem = true,
    .colour = 9,
    .candidates = candidates<true>,
    .opinion = opinion<true>,
    .opinionText = kOpinionText,
};

} // namespace headrace::compiler
