// SPDX-License-Identifier: Apache-2.0
//
// HybridServe on the host device, in wall time: weights and caches on the host, a paced link, decode; keys and values
// alone, activations alone, and the share that the compiler chooses, in turns.
//
//   ratio = iteration / max(bytes / bandwidth, its compute lane), median                            at most 1.05
//   gain  = keys and values alone / the chosen share, by what was predicted                        at least 0.95
//
// The profile's arithmetic is set so that activations alone are predicted to compute as long as they were measured to;
// the chosen share, and what it gains, are held out.
//
// Of each plan, what the device holds (DevicePeak.h), and in virtual time what is lost by not packing mini-batches anew
// in each iteration (RepackLoss.h): both exact, whatever the machine.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

#include <nlohmann/json.hpp>

#include "bench/run/DevicePeak.h"
#include "bench/run/HybridBench.h"
#include "bench/run/Player.h"
#include "bench/run/RepackLoss.h"
#include "compiler/Compile.h"
#include "runtime/cost/HybridServe.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::bench {
namespace {

constexpr double kBandwidth = 0.5e9;
constexpr Load kLoad{.name = "decode 4", .sequences = 4, .context = 512};

unsigned long long count(uint64_t bytes) { return bytes; }

// A wide cache beside few weights: F32 keys and values of 8 layers of 512, 4 KiB a token and layer.
model::ModelSpec wideCache() {
  model::ModelSpec spec{.name = "opt-8x512", .layers = 8, .hidden = 512, .heads = 8, .kvHeads = 8, .headDim = 64};
  spec.intermediate = 2048;
  spec.vocab = 1024;
  spec.maxPositions = 512;
  spec.rope.enabled = true;
  spec.dtype = model::DType::BF16;
  return spec;
}

plan::Plan compile(model::Hardware hardware, double arithmetic, std::optional<model::ActRatio> share,
                   const Load &load = kLoad) {
  compiler::CompileRequest request;
  request.model = wideCache();
  request.modelHash = "synthetic";
  request.hardware = std::move(hardware);
  request.hardware.linkEfficiency = 1;
  request.hardware.h2dBandwidth = request.hardware.d2hBandwidth = kBandwidth;
  request.hardware.duplexBandwidth = 2 * kBandwidth;
  request.hardware.flopsF32 *= arithmetic;
  request.hardware.flopsF16 *= arithmetic;
  request.goal.deviceMemory = uint64_t{1} << 30;
  request.goal.batch = load.sequences;
  request.goal.context = load.context;
  request.goal.kvEncoding = model::DType::F32;
  request.policy.name = "hybridserve";
  request.policy.actRatio = share;
  request.policy.actHome = model::ActHome::Host;
  request.buckets = {.newTokens = {load.sequences}, .sequences = {load.sequences}, .contexts = {load.context}};
  return take(compiler::compile(request));
}

// Of each turn's last iteration, whose compute lane was traced.
double ratioToLimit(const Player &player, double linkNs) {
  std::vector<double> ratios;
  for (size_t turn = 0; turn < player.computeNs.size(); ++turn)
    ratios.push_back(static_cast<double>(player.lastGapNs[turn]) /
                     std::max(linkNs, static_cast<double>(player.computeNs[turn])));
  std::sort(ratios.begin(), ratios.end());
  return ratios[ratios.size() / 2];
}

// The paper's Figure 11: what rebuild_kv and both kinds of loads take is a line in the tokens. Fitted to four counts,
// and three that lie between are predicted. Of each count the fastest turn, which a neighbour disturbs least.
void benchLines(const model::Hardware &hardware, const host::HostOptions &device, const KeptWeights &weights, int turns,
                nlohmann::json &results) {
  constexpr int kKinds = 3;
  const char *const names[kKinds] = {"rebuild_kv", "loads of activations", "loads of keys and values"};
  std::vector<cost::TokenSample> fitted[kKinds], heldOut[kKinds];
  const int64_t contexts[] = {128, 192, 256, 320, 384, 448, 512};
  std::vector<std::unique_ptr<Player>> players;
  for (const int64_t context : contexts) {
    Load load = kLoad;
    load.context = context;
    players.push_back(
        std::make_unique<Player>(compile(hardware, 1, model::ActRatio{1, 2}, load), device, kBandwidth, weights, load));
  }
  for (int turn = 0; turn < turns; ++turn)
    for (const std::unique_ptr<Player> &player : players)
      player->play();
  for (size_t i = 0; i < players.size(); ++i) {
    const std::vector<int64_t> *const times[kKinds] = {&players[i]->rebuildNs, &players[i]->loadActNs,
                                                       &players[i]->loadKvNs};
    for (int kind = 0; kind < kKinds; ++kind)
      (contexts[i] % 128 == 0 ? fitted : heldOut)[kind].push_back(
          {kLoad.sequences * contexts[i] / 2,
           static_cast<double>(*std::min_element(times[kind]->begin(), times[kind]->end()))});
  }
  for (int kind = 0; kind < kKinds; ++kind) {
    const absl::StatusOr<cost::Line> fit = cost::fitLine(fitted[kind], names[kind]);
    if (!fit.ok()) {
      std::printf("hybrid/line, refused: %s\n", std::string(fit.status().message()).c_str());
      results.push_back(
          {{"name", std::string("hybrid/line, ") + names[kind]}, {"refused", std::string(fit.status().message())}});
      continue;
    }
    const cost::Line &line = *fit;
    double worst = 0;
    for (const cost::TokenSample &sample : heldOut[kind])
      worst = std::max(worst, std::abs(sample.ns / cost::lineNs(line, sample.tokens) - 1));
    std::printf("hybrid/line, %-24s R^2 %.4f, three counts held out: within %.1f%%\n", names[kind], line.r2,
                worst * 100);
    results.push_back({{"name", std::string("hybrid/line, ") + names[kind]},
                       {"r2", line.r2},
                       {"r2_target", 0.98},
                       {"held_out_worst", worst}});
  }
}

// What a plan's arena is made of, and that the device takes exactly that.
nlohmann::json benchPeak(const char *name, const plan::Plan &plan, const host::HostOptions &options) {
  const DevicePeak peak = devicePeak(plan, 0);
  const std::unique_ptr<core::Device> device = host::makeHostDevice(options);
  check(device->open(plan, {}));
  const uint64_t taken = device->counters().peakDeviceBytes;
  const std::byte one{};
  const bool ends = device->writeDevice(taken - 1, {&one, 1}).ok() && !device->writeDevice(taken, {&one, 1}).ok();
  std::printf("hybrid/peak, %-22s resident %llu (weights %llu, caches %llu, io %llu) + slots %llu + beside them %llu + "
              "padding %llu = %llu bytes: the device takes %llu\n",
              name, count(peak.resident()), count(peak.weights), count(peak.caches), count(peak.io), count(peak.slots),
              count(peak.transients), count(peak.padding), count(peak.total()), count(taken));
  if (peak.total() != taken || peak.total() != plan.arenaBytes || !ends)
    fail(std::string("hybrid/peak, ") + name + ": the device's arena is not what lies in it");
  return {{"name", std::string("hybrid/peak, ") + name},
          {"weights_bytes", peak.weights},
          {"cache_bytes", peak.caches},
          {"io_bytes", peak.io},
          {"slot_bytes", peak.slots},
          {"transient_bytes", peak.transients},
          {"padding_bytes", peak.padding},
          {"device_bytes", taken}};
}

void benchRepack(nlohmann::json &results) {
  const plan::Plan plan = take(repackPlan(take(model::openModel("opt-6.7b")).spec, 64, 1024));
  double served = 0; // requests/s, where all come at once
  for (const RepackLoad &load : repackLoads())
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      const RepackRun run = take(playRepack(plan, load, served, seed));
      if (load.rate == 0 && served == 0)
        served = static_cast<double>(load.requests) / run.seconds;
      const RepackSums &sums = run.sums;
      const double iterations = static_cast<double>(sums.iterations);
      std::printf("hybrid/repack, %-24s seed %llu: %5.0f iterations of %7.2f ms, packed %7.2f, spread %7.2f; blocks "
                  "%+.2f%%, time %+.2f%%, lanes %+.2f%%\n",
                  std::string(load.name).c_str(), count(seed), iterations,
                  static_cast<double>(sums.launchedNs) / iterations * 1e-6,
                  static_cast<double>(sums.packedNs) / iterations * 1e-6,
                  static_cast<double>(sums.spreadNs) / iterations * 1e-6, run.byteLoss() * 100, run.loss() * 100,
                  run.lanesLoss() * 100);
      std::fflush(stdout);
      results.push_back({{"name", "hybrid/repack, " + std::string(load.name) + ", seed " + std::to_string(seed)},
                         {"iterations", sums.iterations},
                         {"launched_ns", sums.launchedNs},
                         {"packed_ns", sums.packedNs},
                         {"spread_ns", sums.spreadNs},
                         {"least_ns", sums.leastNs},
                         {"blocks_brought_bytes", sums.launchedBytes},
                         {"blocks_needed_bytes", sums.neededBytes},
                         {"byte_loss", run.byteLoss()},
                         {"loss", run.loss()},
                         {"lanes_loss", run.lanesLoss()},
                         {"target", kMostRepackLoss}});
    }
}

} // namespace

nlohmann::json benchHybrid(const host::HostOptions &device, int iterations) {
  const model::Hardware hardware = take(model::openHardware("host"));
  KeptWeights weights;
  const model::ActRatio none{0, 1}, all{1, 1};
  double arithmetic = 1;
  {
    Player first(compile(hardware, 1, all), device, kBandwidth, weights, kLoad);
    first.play();
    arithmetic = static_cast<double>(first.variant().computeAloneNs) / median(first.computeNs);
  }
  Player kv(compile(hardware, arithmetic, none), device, kBandwidth, weights, kLoad);
  Player act(compile(hardware, arithmetic, all), device, kBandwidth, weights, kLoad);
  Player chosen(compile(hardware, arithmetic, std::nullopt), device, kBandwidth, weights, kLoad);
  for (int turn = 0; turn * kTurn < iterations; ++turn)
    for (Player *player : {&kv, &act, &chosen})
      player->play();
  nlohmann::json results = nlohmann::json::array();
  const double kvNs = median(kv.gapsNs), kvPredicted = static_cast<double>(kv.variant().predictedNs);
  for (const auto &[name, player] : {std::pair<const char *, Player *>{"keys and values alone", &kv},
                                     {"activations alone", &act},
                                     {"the chosen share", &chosen}}) {
    const plan::LinkBytes moved = plan::linkBytes(player->schedule());
    const double ns = median(player->gapsNs), predicted = static_cast<double>(player->variant().predictedNs);
    const double link = static_cast<double>(moved.h2d) / kBandwidth * 1e9, compute = median(player->computeNs);
    const double gain = kvNs / ns, gainPredicted = kvPredicted / predicted;
    const double ratio = ratioToLimit(*player, link);
    std::printf("hybrid/%-22s share %-6s %8.2f ms, link %8.2f, compute %8.2f: ratio %5.3f; predicted %8.2f; gain %5.3f "
                "of %5.3f predicted: %5.3f\n",
                name, model::actRatioText(player->plan().actRatio).c_str(), ns * 1e-6, link * 1e-6, compute * 1e-6,
                ratio, predicted * 1e-6, gain, gainPredicted, gain / gainPredicted);
    results.push_back({{"name", std::string("hybrid/") + name},
                       {"share", model::actRatioText(player->plan().actRatio)},
                       {"iterations", player->gapsNs.size()},
                       {"real_time", ns * 1e-6},
                       {"time_unit", "ms"},
                       {"link_ms", link * 1e-6},
                       {"compute_ms", compute * 1e-6},
                       {"ratio", ratio},
                       {"target", 1.05},
                       {"predicted_ms", predicted * 1e-6},
                       {"gain", gain},
                       {"gain_over_predicted", gain / gainPredicted},
                       {"gain_target", 0.95},
                       {"arena_bytes", player->plan().arenaBytes},
                       {"arithmetic", arithmetic}});
    results.push_back(benchPeak(name, player->plan(), device));
  }
  benchRepack(results);
  benchLines(hardware, device, weights, std::max(iterations / kTurn, 8), results);
  return results;
}

} // namespace headrace::bench
