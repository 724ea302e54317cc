// SPDX-License-Identifier: Apache-2.0
#include "compiler/evaluate/PlanWrapAround.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "runtime/base/StatusMacros.h"

namespace headrace::compiler {
namespace {

// Of the buckets that a schedule serves, those that its cut is weighed for: so many spread evenly from the fastest
// iteration to the slowest, and so many whose two lanes are most nearly as long as each other, where a cut decides
// most.
constexpr size_t kSpread = 6;
constexpr size_t kBalanced = 12;

uint64_t stretched(uint64_t ns, double by) {
  return by == 1 ? ns : static_cast<uint64_t>(std::llround(static_cast<double>(ns) * by));
}

// How much longer copies to the device, and from it, take than each alone: as if the shorter of the two directions ran
// beside the other from its first byte to its last.
std::pair<double, double> slowedByEachOther(const algorithms::Movables &movables, Prices &prices) {
  double in = 0, out = 0;
  for (const algorithms::Moved &moved : movables.moved) {
    if (!moved.made)
      in += static_cast<double>(prices.copyNs(moved.bytes, /*hostToDevice=*/true));
    out += moved.writtenBack ? static_cast<double>(prices.copyNs(moved.bytes, /*hostToDevice=*/false)) : 0;
  }
  const double beside = std::max(1.0, 2 / prices.duplexShare()), shorter = std::min(in, out);
  if (shorter == 0)
    return {1, 1};
  return {1 + (beside - 1) * shorter / in, 1 + (beside - 1) * shorter / out};
}

// From which byte on a movable is not read by the step that uses it first.
uint64_t readLater(const Steps &steps, BufferIndex buffer, const algorithms::Moved &moved) {
  uint64_t from = moved.bytes;
  for (uint32_t index = moved.firstUse; index <= moved.lastUse; ++index)
    if (const Step &step = steps.steps[index]; step.unit == buffer && step.headNorms.bytes > 0)
      return index == moved.firstUse ? from : std::min(from, step.headNorms.offset);
  return from;
}

} // namespace

absl::StatusOr<WrapAround> wrapAroundOf(const Steps &steps, const Homes &homes,
                                        const std::vector<cost::Bucket> &buckets, Prices &prices) {
  ASSIGN_OR_RETURN(movables, movablesOf(steps, homes));
  const algorithms::RangeTimes times = algorithms::rangeTimes(movables);
  const bool cycles = homes.choice->residency.cycles();
  WrapAround wrap;
  algorithms::CutProblem &problem = wrap.problem;
  std::vector<int64_t> unitOf(movables.moved.size(), -1); // by movable
  for (size_t i = 0; i < movables.moved.size(); ++i) {
    const algorithms::Moved &moved = movables.moved[i];
    if (!moved.mayBeCarried() || (moved.resizable() && cycles))
      continue; // goes on within the iteration, or cycles by itself: the cut is of all else
    unitOf[i] = static_cast<int64_t>(problem.units.size());
    problem.units.push_back(
        {moved.bytes, moved.firstUse, times.freeAfter[i], times.tailFreeAfter[i], /*divides=*/!moved.resizable()});
    wrap.wholeFrom.push_back(readLater(steps, movables.buffers[i], moved));
    if (moved.writtenBack)
      problem.units.back().writtenBackAfter = moved.firstUse; // which appends to it
  }
  const auto unit = [&](int64_t number) { return number < 0 ? -1 : unitOf[static_cast<size_t>(number)]; };
  for (size_t i = 0; i < movables.moved.size(); ++i)
    if (unitOf[i] >= 0 && movables.moved[i].writtenBack) {
      algorithms::CutUnit &tail = problem.units[static_cast<size_t>(unitOf[i])];
      tail.heldBefore = unit(times.heldBefore[i]);
      tail.heldLast = unit(times.heldLast[i]);
    }
  const auto [stretchIn, stretchOut] = slowedByEachOther(movables, prices);
  problem.copyNs = [&prices, stretch = stretchIn](uint64_t bytes) {
    return stretched(prices.copyNs(bytes, /*hostToDevice=*/true), stretch);
  };
  problem.writeBackNs = [&prices, stretch = stretchOut](uint64_t bytes) {
    return stretched(prices.copyNs(bytes, /*hostToDevice=*/false), stretch);
  };
  problem.alignment = model::kAlign;

  const std::vector<bool> direct = directSteps(steps, homes);
  std::vector<std::vector<uint64_t>> &durations = wrap.durations;
  for (const cost::Bucket &bucket : buckets) {
    std::vector<uint64_t> &ns = durations.emplace_back();
    for (size_t i = 0; i < steps.steps.size(); ++i) {
      const std::optional<cost::OpSite> site = steps.steps[i].site();
      ns.push_back(site && steps.steps[i].onCpu() ? prices.cpuNs(*site, bucket)
                                                  : prices.computeNs(site, bucket, direct[i]));
    }
  }
  const auto total = [](const std::vector<uint64_t> &ns) { return std::accumulate(ns.begin(), ns.end(), uint64_t{0}); };
  std::stable_sort(durations.begin(), durations.end(),
                   [&](const auto &a, const auto &b) { return total(a) < total(b); });
  uint64_t link = 0;
  for (const algorithms::CutUnit &unit : problem.units)
    link += problem.copyNs(unit.bytes);
  const size_t last = durations.size() - 1;
  std::set<size_t> weighed;
  for (size_t i = 0; i < kSpread; ++i)
    weighed.insert(i * last / (kSpread - 1));
  const auto firstLonger = static_cast<size_t>(
      std::partition_point(durations.begin(), durations.end(), [&](const auto &ns) { return total(ns) < link; }) -
      durations.begin());
  for (size_t i = firstLonger - std::min(firstLonger, kBalanced / 2); i < firstLonger + kBalanced / 2 && i <= last; ++i)
    weighed.insert(i);
  for (const size_t bucket : weighed)
    problem.computeNs.push_back(durations[bucket]);
  return wrap;
}

absl::StatusOr<algorithms::Cut> planWrapAround(const Steps &steps, const Homes &homes,
                                               const std::vector<cost::Bucket> &buckets, Prices &prices) {
  ASSIGN_OR_RETURN(wrap, wrapAroundOf(steps, homes, buckets, prices));
  if (wrap.problem.units.empty())
    return algorithms::Cut();
  algorithms::Cut cut = algorithms::planCut(wrap.problem);
  if (cut.bytes > 0 && cut.bytes >= wrap.wholeFrom[cut.units])
    cut = {cut.units + 1, 0};
  return cut;
}

absl::Status decideCut(plan::IterationClass iterationClass, bool brings,
                       const std::function<absl::StatusOr<algorithms::Cut>()> &planned,
                       algorithms::Residency &residency) {
  algorithms::Wrap &wrap = residency.wrap;
  const bool decode = iterationClass == plan::IterationClass::Decode;
  std::optional<algorithms::Cut> &cut = decode ? wrap.decode : wrap.mixed;
  if (!wrap.around || !brings)
    return absl::OkStatus();
  if (!cut) {
    ASSIGN_OR_RETURN(found, planned());
    cut = found;
  }
  if (residency.cycles()) // what follows in a cycle may be of either class
    wrap.decode = wrap.mixed = cut;
  if (!decode && wrap.oneCut && wrap.decode &&
      std::tie(cut->units, cut->bytes) < std::tie(wrap.decode->units, wrap.decode->bytes))
    cut = wrap.decode;
  return absl::OkStatus();
}

} // namespace headrace::compiler
