// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/HybridAllocation.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"

namespace headrace::cost {
namespace {

constexpr int64_t kMostBlocks = int64_t{1} << 44; // times the tokens of a block below 2^62

absl::Status checkAllocation(const HybridTimes &times, int64_t actDevice, const HostCapacity &host) {
  RETURN_IF_ERROR(checkTimes(times));
  if (actDevice < 0 || actDevice > kMostBlocks)
    return absl::InvalidArgumentError(
        model::cat("ACT blocks on the device: ", actDevice, ": expected 0 to ", kMostBlocks));
  if (host.block.kv < 1 || host.block.act < 1)
    return absl::InvalidArgumentError(model::cat("a KV block of ", host.block.kv, " bytes, an ACT block of ",
                                                 host.block.act, ": expected at least 1"));
  if (host.weightBytes < 0 || host.weightBytes > host.bytes)
    return absl::InvalidArgumentError(model::cat("host memory of ", host.bytes, " bytes: expected at least the ",
                                                 host.weightBytes, " of the weights, and those at least 0"));
  const int64_t most = (host.bytes - host.weightBytes) / std::min(host.block.kv, host.block.act);
  if (most > kMostBlocks)
    return absl::InvalidArgumentError(model::cat("host memory for ", most, " blocks: expected at most ", kMostBlocks));
  return absl::OkStatus();
}

// A line in blocks, with the intercept that lineNs() counts.
struct PerBlock {
  double start, slope;
};
PerBlock perBlock(const Line &line, int64_t blockTokens) {
  return {std::max(0.0, line.interceptNs), line.slopeNsPerToken * static_cast<double>(blockTokens)};
}

// The number of ACT blocks, real, at which both lanes take equally long on the line S_ACT a + S_KV k = room; not finite
// where they are parallel.
double crossing(const HybridTimes &times, double actDevice, double room, const BlockBytes &bytes) {
  const PerBlock kv = perBlock(times.loadKv, times.blockTokens), act = perBlock(times.loadAct, times.blockTokens);
  const PerBlock gen = perBlock(times.kvGen, times.blockTokens), forward = perBlock(times.forward, times.blockTokens);
  const double kvPerAct = static_cast<double>(bytes.act) / static_cast<double>(bytes.kv);
  const double allKv = room / static_cast<double>(bytes.kv);
  // T_compute - T_pcie at a = 0, and how it grows with a, which takes the room of kvPerAct KV blocks.
  const double atNone = gen.start + gen.slope * actDevice + forward.start + forward.slope * (actDevice + allKv) -
                        times.loadWeightsNs - kv.start - kv.slope * allKv - act.start;
  const double growth = gen.slope + forward.slope - act.slope + (kv.slope - forward.slope) * kvPerAct;
  return -atNone / growth;
}

Binding bindingOf(const HybridTimes &times, const HybridAllocation &chosen) {
  const double forward = times.forward.slopeNsPerToken;
  if (chosen.actHost + chosen.kvHost == 0)
    return Binding::kNothing;
  if (balanced(chosen.lanes))
    return Binding::kBalanced;
  if (chosen.lanes.gapNs() > 0) {
    if (chosen.actHost > 0)
      return Binding::kBlocksTooCoarse;
    return times.loadKv.slopeNsPerToken > forward ? Binding::kHostMemory : Binding::kAllKv;
  }
  if (times.loadAct.slopeNsPerToken >= times.loadKv.slopeNsPerToken)
    return Binding::kActLoadsMore;
  if (chosen.kvHost > 0)
    return Binding::kBlocksTooCoarse;
  return times.kvGen.slopeNsPerToken + forward > times.loadAct.slopeNsPerToken ? Binding::kHostMemory
                                                                               : Binding::kAllAct;
}

} // namespace

absl::StatusOr<PrintedAllocation> allocatePrinted(const HybridTimes &times, int64_t actDevice,
                                                  const HostCapacity &host) {
  RETURN_IF_ERROR(checkAllocation(times, actDevice, host));
  const double tokens = static_cast<double>(times.blockTokens);
  const double genSlope = times.kvGen.slopeNsPerToken * tokens, kvSlope = times.loadKv.slopeNsPerToken * tokens;
  for (const auto &[name, slope] : {std::pair<const char *, double>{"kvGen", genSlope}, {"loadKv", kvSlope}}) {
    if (slope <= 0)
      return absl::InvalidArgumentError(
          model::cat(name, ": a slope of ", slope, " ns a block: expected more than 0, which Algorithm 1 divides by"));
  }
  const double genStart = times.kvGen.interceptNs, kvStart = times.loadKv.interceptNs;
  const double sAct = static_cast<double>(host.block.act), sKv = static_cast<double>(host.block.kv);
  PrintedAllocation out;
  const double budget = times.loadWeightsNs - lineNs(times.kvGen, actDevice * times.blockTokens); // line 13
  if (budget >= 0)
    out.actInit = (budget - genStart) / genSlope;
  else
    out.kvInit = (-budget - kvStart) / kvSlope;
  const double remaining =
      static_cast<double>(host.bytes - host.weightBytes) - (sAct * out.actInit + sKv * out.kvInit); // lines 22, 23
  // Lines 25, 26: remaining = sAct a + sKv k, genStart + genSlope a = kvStart + kvSlope k.
  const double startKv = (genStart - kvStart) / kvSlope, kvPerAct = genSlope / kvSlope;
  out.actRemain = (remaining - sKv * startKv) / (sAct + sKv * kvPerAct);
  out.kvRemain = startKv + kvPerAct * out.actRemain;
  out.actHost = static_cast<int64_t>(std::floor(out.actInit + out.actRemain));
  out.kvHost = static_cast<int64_t>(std::floor(out.kvInit + out.kvRemain));
  return out;
}

absl::StatusOr<HybridAllocation> allocateHybrid(const HybridTimes &times, int64_t actDevice, const HostCapacity &host) {
  RETURN_IF_ERROR(checkAllocation(times, actDevice, host));
  const int64_t room = host.bytes - host.weightBytes;
  const int64_t mostAct = room / host.block.act, mostKv = room / host.block.kv;
  std::vector<std::pair<int64_t, int64_t>> candidates = {{0, mostKv}}; // ACT, KV
  const bool actLoadsLess = times.loadAct.slopeNsPerToken < times.loadKv.slopeNsPerToken;
  if (actLoadsLess) {
    // As many of the larger blocks, and what is left filled with the smaller ones: no split that fills the memory has
    // another form.
    const bool kvLarger = host.block.kv >= host.block.act;
    const auto fill = [&](int64_t larger) {
      larger = std::clamp<int64_t>(larger, 0, kvLarger ? mostKv : mostAct);
      if (kvLarger)
        candidates.emplace_back((room - larger * host.block.kv) / host.block.act, larger);
      else
        candidates.emplace_back(larger, (room - larger * host.block.act) / host.block.kv);
    };
    candidates.emplace_back(mostAct, 0);
    // Next to the ends too: an intercept is paid from the first block on.
    for (int64_t larger : {int64_t{0}, int64_t{1}, mostAct - 1, mostAct, mostKv - 1, mostKv})
      fill(larger);
    const double act = crossing(times, static_cast<double>(actDevice), static_cast<double>(room), host.block);
    if (act > 0 && act < static_cast<double>(mostAct)) {
      const auto whole = static_cast<int64_t>(act);
      const int64_t larger = kvLarger ? (room - whole * host.block.act) / host.block.kv : whole;
      for (int64_t step = -2; step <= 2; ++step)
        fill(larger + step);
    }
  }
  const auto gap = [&](const std::pair<int64_t, int64_t> &c) {
    return correctedLanes(times, {c.second, c.first, actDevice, 0}).gapNs();
  };
  const bool anyShort = std::any_of(candidates.begin(), candidates.end(), [&](const auto &c) { return gap(c) <= 0; });
  const bool anyLong = std::any_of(candidates.begin(), candidates.end(), [&](const auto &c) { return gap(c) >= 0; });
  // Without a crossing the end that has the least of the longer lane.
  std::pair<int64_t, int64_t> chosen = candidates.front();
  if (anyShort && anyLong)
    chosen = *std::min_element(candidates.begin(), candidates.end(),
                               [&](const auto &a, const auto &b) { return std::abs(gap(a)) < std::abs(gap(b)); });
  else if (anyShort && actLoadsLess)
    chosen = {mostAct, 0};
  HybridAllocation best;
  best.actHost = chosen.first;
  best.kvHost = chosen.second;
  best.lanes = correctedLanes(times, {best.kvHost, best.actHost, actDevice, 0});
  best.binding = bindingOf(times, best);
  return best;
}

} // namespace headrace::cost
