// SPDX-License-Identifier: Apache-2.0
#include "compiler/PlanWrapAround.h"

#include <algorithm>
#include <numeric>

#include "compiler/LowerModel.h"
#include "passes/OffloadedUnits.h"

namespace headrace::compiler {
namespace {

// Shapes between the fastest and the slowest iteration that one cut is weighed for.
constexpr size_t kWeighed = 8;

} // namespace

absl::StatusOr<algorithms::Cut> planWrapAround(ir::IterationOp iteration, const std::vector<cost::Shape> &shapes,
                                               int64_t slots, Prices &prices) {
  mlir::FailureOr<passes::OffloadedUnits> offloaded = passes::findOffloadedUnits(iteration, slots);
  if (failed(offloaded))
    return absl::InternalError("planning the wrap-around: the offloaded units cannot be found");
  const passes::RangeTimes times = passes::rangeTimes(*offloaded);
  algorithms::CutProblem problem;
  for (size_t i = 0; i < offloaded->units.size(); ++i) {
    const passes::OffloadedUnit &unit = offloaded->units[i];
    problem.units.push_back({unit.bytes, unit.firstUse, times.freeAfter[i], times.tailFreeAfter[i]});
  }
  problem.copyNs = [&](uint64_t bytes) { return prices.copyNs(bytes, /*hostToDevice=*/true); };
  problem.alignment = model::kAlign;

  std::vector<cost::OpSite> sites;
  std::vector<bool> direct;
  for (mlir::Operation *step : offloaded->steps) {
    sites.push_back(opSite(step).value_or(cost::OpSite{kernels::Op::Count, model::UnitRole::Embedding}));
    direct.push_back(llvm::cast<ir::StepInterface>(step).stepInfo().direct);
  }
  std::vector<std::vector<uint64_t>> durations;
  for (const cost::Shape &shape : shapes) {
    std::vector<uint64_t> &ns = durations.emplace_back();
    for (size_t i = 0; i < sites.size(); ++i)
      ns.push_back(prices.computeNs(sites[i], shape, direct[i]));
  }
  // Shapes differ by how long they compute; those that are weighed span the range evenly, both ends included.
  const auto total = [](const std::vector<uint64_t> &ns) { return std::accumulate(ns.begin(), ns.end(), uint64_t{0}); };
  std::stable_sort(durations.begin(), durations.end(), [&](const auto &a, const auto &b) { return total(a) < total(b); });
  const size_t weighed = std::min(kWeighed, durations.size());
  for (size_t i = 0; i < weighed; ++i)
    problem.computeNs.push_back(durations[weighed == 1 ? 0 : i * (durations.size() - 1) / (weighed - 1)]);
  return algorithms::planCut(problem);
}

} // namespace headrace::compiler
