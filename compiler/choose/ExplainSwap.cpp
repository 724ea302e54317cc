// SPDX-License-Identifier: Apache-2.0
#include "compiler/choose/ExplainSwap.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "compiler/choose/Explain.h"
#include "passes/algorithms/RotationOf.h"
#include "runtime/plan/Plan.h"

namespace headrace::compiler {
namespace {

// Of the paper's protocol, in which swaps go on over the edges of iterations.
std::string protocolText(int64_t layers, int64_t places, const SwapTimes &times) {
  const algorithms::SwapVisits visits = times.visits();
  const bool shared = times.both < 1000;
  const auto whole = [](uint64_t ns) { return std::max<int64_t>(1, static_cast<int64_t>(ns)); };
  const algorithms::KvSwapProblem problem = {
      static_cast<int32_t>(layers), static_cast<int32_t>(places),
      shared
          ? algorithms::KvSwapTimes{whole(times.computeNs), whole(times.inAloneNs), whole(times.outAloneNs), times.both}
          : algorithms::KvSwapTimes{1, visits.in, visits.out}};
  const bool waits = algorithms::kvSwapWaits(problem);
  std::string text = absl::StrCat("the protocol ", waits ? "waits" : "never waits");
  if (shared)
    absl::StrAppend(&text, ", played on the link that both directions share");
  else if (visits.in == visits.out)
    absl::StrAppend(&text, ", ", visits.in, " x (", layers - places, " + 2) ", waits ? "> " : "<= ", layers - 1);
  return text;
}

// Of the plan, in which they end with their iteration.
std::string planText(const algorithms::Residency &residency, int64_t layers) {
  const algorithms::SwapWay way = algorithms::swapWayOf(residency, layers);
  if (way.turning > 0) {
    const int64_t stay = residency.kv().places() - way.turning;
    const std::string others = stay > 0 ? absl::StrCat(", and ", stay, stay == 1 ? " stays" : " stay") : "";
    return absl::StrCat(
        "; as planned ", stay > 0 ? "" : "all ", layers - stay, " layers take turns in ", way.turning,
        way.turning == 1 ? " place, one comes once another is home" : " places, one goes while another comes", others);
  }
  const std::optional<algorithms::KvSwapCycle> cycle =
      algorithms::kvSwapCycle(algorithms::kvSwapProblem(residency, layers), plan::kMostPhases * 4);
  if (!cycle)
    return "";
  return absl::StrCat("; with no swap over an iteration's edge, as planned, compute ",
                      cycle->waited == 0 ? std::string("never waits")
                                         : absl::StrCat("waits for ", cycle->waited, " layers' time in ", cycle->period,
                                                        " iterations"));
}

} // namespace

std::string explainSwap(const model::ModelSpec &model, const algorithms::Residency &residency, const SwapTimes &times,
                        uint64_t placeBytes) {
  if (!residency.kv().fifo())
    return "";
  const int64_t n = model.layers, places = residency.kv().places(), m = n - places;
  const algorithms::SwapVisits visits = times.visits();
  // Of the link: t_swap m = t_compute n.
  const double most = static_cast<double>(times.computeNs) * static_cast<double>(n) /
                      static_cast<double>(std::max<uint64_t>(1, std::max(times.inNs, times.outNs)));
  return absl::StrCat("Caches of ", m, " of ", n, " layers are away at a time, ", places, " places of ",
                      bytesText(placeBytes), " on the device hold the others and what is under way: expansion ",
                      absl::StrFormat("%.2f", static_cast<double>(n) / static_cast<double>(places)),
                      " (printed: (n + 4) / (n - m + 2) = ",
                      absl::StrFormat("%.2f", static_cast<double>(n + 4) / static_cast<double>(places + 2)),
                      "). A swap takes ", visits.in, visits.in == 1 ? " layer's" : " layers'", " compute in and ",
                      visits.out, " out (", msText(times.inNs), " and ", msText(times.outNs), " of ",
                      msText(times.computeNs), "): ", protocolText(n, places, times), "; the link alone would do for ",
                      absl::StrFormat("%.1f", std::min(most, static_cast<double>(n))), " away", planText(residency, n));
}

std::string explainExpansions(const std::vector<Candidate> &swaps, int64_t layers) {
  std::vector<std::string> each;
  each.reserve(swaps.size());
  for (const Candidate &swap : swaps) {
    const algorithms::Residency &residency = swap.residency;
    const int64_t places = residency.kv().fifo() ? residency.kv().places() : layers;
    each.push_back(
        absl::StrCat(absl::StrFormat("%.2f", static_cast<double>(layers) / static_cast<double>(places)), " (",
                     residency.kv().fifo() ? absl::StrCat(places, " places") : std::string("all on the device"), ", ",
                     swap.kvBlocks, each.empty() ? " blocks a layer)" : ")"));
  }
  return absl::StrCat("Expansion is found while the plan runs, among ", absl::StrJoin(each, ", "));
}

} // namespace headrace::compiler
