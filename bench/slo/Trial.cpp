// SPDX-License-Identifier: Apache-2.0
#include "bench/slo/Trial.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "bench/slo/Profile.h"
#include "compiler/Compile.h"
#include "runtime/plan/PlacementTable.h"

namespace headrace::bench {
namespace {

using nlohmann::json;

constexpr int kTurn = 4;                           // iterations: what disturbs for longer meets both plans
constexpr int kProbe = 100;                        // iterations
constexpr int64_t kWarmUpNs = 6'000'000;           // before a turn
constexpr double kMostNoise = 1.15, kQuiet = 1.12; // p99 / median of the resident plan
constexpr int kMostProbes = 3;
constexpr std::chrono::milliseconds kPause(200); // after a probe that was not quiet

double noise(const Player &player) { return quantile(player.gapsNs, 0.99) / quantile(player.gapsNs, 0.5); }

// Already more slow iterations than may be among the slowest 1% of `count`: the rest of them would be in vain.
bool isDisturbed(const std::vector<int64_t> &gapsNs, int count) {
  const double most = gapsNs.empty() ? 0 : kMostNoise * quantile(gapsNs, 0.5);
  return std::count_if(gapsNs.begin(), gapsNs.end(), [&](int64_t gap) { return static_cast<double>(gap) > most; }) >
         count / 100;
}

// The resident plan's median, in a turn that nothing disturbs: neighbours on the machine come and go, and a moment when
// one is there is not one to begin at. None if they do not go.
std::optional<double> calibrate(Player &resident) {
  for (int probe = 1; probe <= kMostProbes; ++probe) {
    if (probe > 1)
      std::this_thread::sleep_for(kPause);
    resident.forget();
    resident.play(kWarmUpNs, kProbe);
    if (noise(resident) <= kQuiet)
      break;
  }
  const double median = quantile(resident.gapsNs, 0.5), seen = noise(resident);
  resident.forget();
  return seen <= kMostNoise ? std::optional(median) : std::nullopt;
}

compiler::CompileRequest requestOf(const Trial &trial) {
  const Case &c = trial.of;
  compiler::CompileRequest request;
  request.model = trial.spec;
  request.modelHash = kModelHash;
  request.hardware = trial.hardware;
  request.goal.deviceMemory = uint64_t{4} << 30u;
  request.goal.batch = c.batch;
  request.goal.context = c.context;
  request.buckets = {.newTokens = {c.tokens()}, .sequences = {c.batch}, .contexts = {c.context}};
  request.costs = &trial.costs;
  return request;
}

json describe(const Trial &trial) {
  const Case &c = trial.of;
  const cost::Bucket bucket{.tokens = c.tokens(), .sequences = c.batch, .context = c.context};
  const cost::TimeBounds layer = trial.costs.layerBounds(bucket);
  const double copyNs = static_cast<double>(trial.costs.copyNs(model::layoutWeights(trial.spec).layerBytes(0), true));
  const char *policy = c.selectN ? "select-n" : "headrace", *phase = c.prefill ? "prefill" : "decode";
  json row = {{"number", c.number},
              {"model", trial.spec.name},
              {"phase", phase},
              {"batch", c.batch},
              {"context", c.context},
              {"policy", policy},
              {"link_bytes_per_second", trial.hardware.h2dBandwidth},
              {"transfer_over_compute", 2 * copyNs / (layer.lowerNs + layer.upperNs)},
              {"compute_factor_beside_copies", trial.costs.interference().computeFactor},
              {"copy_start_ns", trial.costs.interference().wakeNs},
              {"slowest_factor", trial.costs.slowestFactor()},
              {"factor", c.factor}};
  std::printf("%4zu %-18s %-8s %3d %4d %-8s %5.2f %5.2f %6.3f | ", c.number, trial.spec.name.c_str(), phase,
              static_cast<int>(c.batch), static_cast<int>(c.context), policy,
              row["transfer_over_compute"].get<double>(), trial.hardware.h2dBandwidth * 1e-9, c.factor);
  return row;
}

json refused(const absl::Status &why, json row) {
  const std::string reason(why.message());
  const bool names = reason.find("minimum") != std::string::npos;
  std::printf("refused (resident predicted %.3f ms, objective %.3f ms)%s\n",
              row["resident_predicted_ns"].get<double>() * 1e-6, row["slo_ns"].get<double>() * 1e-6,
              names ? "" : ": names no minimum");
  row["outcome"] = "refused";
  row["reason"] = reason;
  row["names_minimum"] = names;
  return row;
}

json disturbed(json row) {
  std::printf("unmeasured\n");
  row["outcome"] = "unmeasured";
  return row;
}

json judge(const Player &resident, const Player &offloaded, double sloNs, json row) {
  const double median = quantile(offloaded.gapsNs, 0.5), p99 = quantile(offloaded.gapsNs, 0.99);
  const double alone = quantile(resident.gapsNs, 0.5), aloneP99 = quantile(resident.gapsNs, 0.99);
  const double predicted = static_cast<double>(offloaded.variant().predictedNs);
  const plan::Placement &placement = offloaded.plan().placements[offloaded.variant().placement];
  const int64_t freed = plan::freedBytes(offloaded.plan(), offloaded.variant().placement);
  const char *outcome = p99 / sloNs <= noise(resident) ? "held" : "missed";
  const Player::Parts parts = offloaded.parts(), aloneParts = resident.parts();
  const plan::Variant &variant = offloaded.variant();
  uint64_t copiesNs = 0;
  for (size_t step = 0; step < variant.durationsNs.size(); ++step)
    copiesNs += offloaded.schedule().steps[step].lane == plan::Lane::Compute ? 0 : variant.durationsNs[step];
  const double kernels = parts.kernelsNs / aloneParts.kernelsNs;
  const double copies = copiesNs == 0 ? 1 : parts.copiesNs / static_cast<double>(copiesNs);
  const double best = quantile(offloaded.gapsNs, 0.05), bestAlone = quantile(resident.gapsNs, 0.05);
  const double alonePredicted = static_cast<double>(resident.variant().predictedNs);
  const double ms = 1e-6;
  std::printf("%-22s %8.2f | %8.3f %8.3f %8.3f %6.3f | %8.3f %8.3f %6.3f %s (%.3f, %.3f, p5 %.3f %.3f, kernels %.3f "
              "%.3f copies %.3f lags %.3f %.3f)\n",
              placement.name.c_str(), static_cast<double>(freed) * 1e-6, predicted * ms, median * ms, p99 * ms,
              p99 / sloNs, alone * ms, aloneP99 * ms, noise(resident), outcome, median / predicted,
              alone / alonePredicted, best / predicted, bestAlone / alonePredicted,
              aloneParts.kernelsNs / alonePredicted, kernels, copies, parts.lagsNs / predicted,
              aloneParts.lagsNs / alone);
  row["placement"] = placement.name;
  row["freed_bytes"] = freed;
  row["h2d_bytes"] = plan::linkBytes(offloaded.schedule()).h2d;
  row["predicted_ns"] = offloaded.variant().predictedNs;
  row["link_alone_ns"] = offloaded.variant().linkAloneNs;
  row["iterations"] = offloaded.gapsNs.size();
  row["median_ns"] = median;
  row["p99_ns"] = p99;
  row["p5_ns"] = best;
  row["resident_median_ns"] = alone;
  row["resident_p99_ns"] = aloneP99;
  row["resident_p5_ns"] = bestAlone;
  row["resident_kernels_ns"] = aloneParts.kernelsNs;
  row["kernels_over_resident_kernels"] = kernels;
  row["copies_over_predicted"] = copies;
  row["lags_ns"] = parts.lagsNs;
  row["outcome"] = outcome;
  return row;
}

} // namespace

void printTrialNames() {
  std::printf("%4s %-18s %-8s %3s %4s %-8s %5s %5s %6s | %-22s %8s | %8s %8s %8s %6s | %8s %8s %6s %s\n", "case",
              "model", "phase", "b", "ctx", "policy", "ratio", "GB/s", "factor", "placement", "freed", "predict",
              "median", "p99", "/SLO", "resident", "p99", "noise", "");
}

json Trial::run() const {
  json row = describe(*this);
  const Load load{.sequences = of.batch, .rows = of.prefill ? of.context : 1, .context = of.context};
  compiler::CompileRequest none = requestOf(*this);
  none.policy.name = "none";
  Player resident(take(compiler::compile(none)), device, weights, load);
  row["resident_predicted_ns"] = resident.variant().predictedNs;
  const std::optional<double> calibrated = calibrate(resident);
  if (!calibrated)
    return disturbed(std::move(row));
  const auto sloNs = static_cast<uint64_t>(std::llround(of.factor * *calibrated));
  row["slo_ns"] = sloNs;
  compiler::CompileRequest chosen = requestOf(*this);
  chosen.policy.name = of.selectN ? "select-n" : "headrace";
  (of.prefill ? chosen.goal.ttft : chosen.goal.tpot) = std::chrono::nanoseconds(sloNs);
  absl::StatusOr<plan::Plan> plan = compiler::compile(chosen);
  if (plan.status().code() == absl::StatusCode::kResourceExhausted)
    return refused(plan.status(), std::move(row));
  // Where nothing is to be offloaded the variant is the resident one.
  std::optional<Player> second;
  if (const plan::Plan made = take(std::move(plan)); plan::weightBytesByHome(made, 0).host > 0)
    second.emplace(made, device, weights, load);
  while (resident.gapsNs.size() < static_cast<size_t>(iterations) && !isDisturbed(resident.gapsNs, iterations)) {
    resident.play(kWarmUpNs, kTurn);
    if (second)
      second->play(kWarmUpNs, kTurn);
  }
  if (noise(resident) > kMostNoise || static_cast<double>(sloNs) < kLeastFactor * quantile(resident.gapsNs, 0.5))
    return disturbed(std::move(row));
  return judge(resident, second ? *second : resident, static_cast<double>(sloNs), std::move(row));
}

} // namespace headrace::bench
