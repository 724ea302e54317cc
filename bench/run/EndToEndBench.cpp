// SPDX-License-Identifier: Apache-2.0
//
// Whole iterations on the host device, in wall time, against what bounds them:
//
//   bench_run [--json FILE] [--iterations N] [--compute-core N] [--transfer-core N] [--filter TEXT]
//
//   decode         an eager plan at intervals 1, 2, 4, 8 over a paced link, one sequence
//                  ratio = iteration / max(resident iteration, h2d bytes / bandwidth)              at most 1.05
//   compute-bound  a prefill of 64 tokens, and decode of 32 sequences, with half the layers offloaded
//                  ratio = iteration / resident iteration                                          at most 1.05
//   kv             decode of 8 sequences at a context of 1,024, none, a half and three quarters of the KV blocks on the
//                  device, with and without half the layers offloaded: blocks come back, rows that are appended are
//                  written to the host as they are made
//                  ratio = iteration / max(resident iteration + d2h bytes / bandwidth,
//                                          h2d bytes / bandwidth, bytes / duplex bandwidth)        at most 1.05
//   both           the same with tails that are copied home behind the append, all that is in use: both directions;
//                  links of 2 GB/s each way that do 4 or 3 GB/s both ways
//                  ratio = iteration / max(resident iteration, h2d bytes / bandwidth, d2h bytes / bandwidth,
//                                          bytes / duplex bandwidth)                               at most 1.05
//   mini-batches   decode of 4 mini-batches with all weights away, each layer's brought once an iteration, which is
//                  counted to the byte; with their KV on the device, or on the host and copied there and back; with
//                  residuals that leave between layers, of prompts
//                  ratio = as `both`                                                               at most 1.05
//   hybrid         HybridBench.cpp
//
// The resident plan and the offloaded one are loaded side by side, their lanes pinned to the same cores, and take turns
// of a few iterations, so that whatever else the machine does meets both. An iteration's time is the gap between two
// iterations' tokens, as a reader of tokens sees it: what wrap-around copies behind the tokens is part of the next gap.
// Every turn's first iterations are left out (caches, and slots that hold nothing yet).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/Lanes.h"
#include "bench/run/HybridBench.h"
#include "bench/run/Player.h"
#include "compiler/Compile.h"
#include "compiler/choice/KvOnDevice.h"
#include "runtime/core/Runtime.h"
#include "runtime/host/HostDevice.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightSource.h"

namespace headrace::bench {
namespace {

constexpr int64_t kBatch = 32;
constexpr int64_t kPrefill = 64;
constexpr double kTarget = 1.05;

struct Settings {
  std::string json, filter;
  int iterations = 30;
  host::HostOptions device;
};

// 16 layers of 11.3 M parameters and a small vocabulary: 363 MB of layers in BF16.
model::ModelSpec shape() {
  model::ModelSpec spec{
      .name = "llama-16x1024", .layers = 16, .hidden = 1024, .heads = 16, .kvHeads = 4, .headDim = 64};
  spec.intermediate = 2816;
  spec.vocab = 4096;
  spec.maxPositions = 2048;
  spec.rope.enabled = true;
  spec.dtype = model::DType::BF16;
  return spec;
}

double least(const std::vector<int64_t> &values) {
  return static_cast<double>(*std::min_element(values.begin(), values.end()));
}

class Bench {
public:
  explicit Bench(const Settings &settings) : settings_(settings) {
    hardware_ = take(model::openHardware("host"));
    hardware_.linkEfficiency = 1;
  }

  void run() {
    std::printf("%-54s %9s %9s %9s %9s %7s %7s %9s %7s %7s\n", "", "measured", "resident", "link", "bound", "ratio",
                "best", "predicted", "meas/pr", "outside");
    const Load decode{.name = "decode 1"};
    for (const double bandwidth : {2e9, 1e9, 0.5e9})
      for (const int64_t interval : {1, 2, 4, 8})
        compare({"decode", decode, interval, bandwidth, true});
    compare({"compute-bound", {.name = "prefill 64", .tokens = kPrefill}, 2, 2e9, false});
    compare({"compute-bound", {.name = "decode 32", .sequences = kBatch}, 2, 2e9, false});
    for (const int64_t interval : {0, 2})
      for (const int64_t quarters : {0, 2, 3})
        compare({"kv", {.name = "decode 8", .sequences = 8, .context = 1024}, interval, 2e9, true, quarters});
    for (const double duplex : {2.0, 1.5})
      for (const int64_t interval : {0, 2})
        for (const int64_t quarters : {0, 2})
          compare({"both",
                   {.name = "decode 8", .sequences = 8, .context = 1024},
                   interval,
                   2e9,
                   true,
                   quarters,
                   model::KvWriteBack::All,
                   duplex});
    const Load mini{.name = "decode 4 x 2", .sequences = 2, .miniBatches = 4};
    for (const double bandwidth : {4e9, 2e9})
      compare({"mini-batches", mini, 1, bandwidth, true});
    for (const double duplex : {2.0, 1.5})
      compare({"mini-batches",
               {.name = "decode 4 x 2", .sequences = 2, .context = 1024, .miniBatches = 4},
               1,
               2e9,
               true,
               0,
               model::KvWriteBack::All,
               duplex});
    for (const int64_t interval : {0, 1})
      compare({"mini-batches",
               {.name = "prefill 4 x 32", .tokens = 32, .miniBatches = 4},
               interval,
               2e9,
               true,
               4,
               model::KvWriteBack::Auto,
               2,
               true});
    if (std::string_view("hybrid").find(settings_.filter) != std::string_view::npos)
      for (const nlohmann::json &result : benchHybrid(settings_.device, settings_.iterations))
        results_.push_back(result);
    if (settings_.json.empty())
      return;
    std::ofstream out(settings_.json);
    out << nlohmann::json{{"benchmarks", results_}}.dump(1) << "\n";
    if (!out.flush())
      fail(settings_.json + ": cannot be written");
  }

private:
  struct Case {
    const char *group;
    Load load;
    int64_t interval; // 0: no weights are offloaded
    double bandwidth;
    bool linkBounds;      // the link may be what bounds an iteration; else it is to be hidden whatever it costs
    int64_t quarters = 4; // of the KV blocks on the device
    model::KvWriteBack writeBack = model::KvWriteBack::Mirror;
    double duplex = 2; // both directions together, of one direction's bandwidth
    bool residualsLeave = false;
    bool mirrors() const { return writeBack == model::KvWriteBack::Mirror; }
    std::string name() const {
      char name[112];
      if (quarters == 4)
        std::snprintf(name, sizeof(name), "%s/%s/interval %d/%.1f GB/s%s", group, load.name, static_cast<int>(interval),
                      bandwidth * 1e-9, residualsLeave ? ", residuals leave" : "");
      else
        std::snprintf(name, sizeof(name), "%s/%s/%d of 4 resident/%s/%.1f GB/s%s", group, load.name,
                      static_cast<int>(quarters),
                      interval == 0   ? "weights stay"
                      : interval == 1 ? "all weights away"
                                      : "half the weights away",
                      bandwidth * 1e-9,
                      mirrors()     ? ""
                      : duplex == 2 ? ", twice both ways"
                                    : ", 1.5 x both ways");
      return name;
    }
  };

  plan::Plan compile(const Case &of, int64_t interval, int64_t quarters) {
    const auto &[load, bandwidth] = std::tie(of.load, of.bandwidth);
    compiler::CompileRequest request;
    request.model = shape();
    request.modelHash = "synthetic";
    request.hardware = hardware_;
    request.hardware.h2dBandwidth = request.hardware.d2hBandwidth = bandwidth;
    request.hardware.duplexBandwidth = of.duplex * bandwidth;
    request.goal.deviceMemory = uint64_t{8} << 30;
    request.goal.batch = load.sequences * load.miniBatches;
    request.goal.miniBatches = load.miniBatches;
    request.goal.context = load.context;
    request.policy.none = interval == 0;
    if (interval != 0)
      request.policy.interval = interval;
    if (of.residualsLeave)
      request.policy.residuals = model::Residuals::Host;
    request.policy.offloadEmbedding = request.policy.offloadHead = model::AutoOnOff::Off;
    request.buckets = {
        .newTokens = {load.sequences * load.tokens}, .sequences = {load.sequences}, .contexts = {load.context}};
    if (quarters < 4) { // of those behind the scratch block
      const plan::Plan whole = take(compiler::compile(request));
      const compiler::KvOnDevice kv = {static_cast<int64_t>(whole.kvCaches()), whole.kvBlocks, whole.kvBlockBytes()};
      request.goal.kvDeviceMemory = kv.splitBytes(1 + (whole.kvBlocks - 1) / 4 * quarters,
                                                  compiler::rangesOfSlots(kv.caches, algorithms::kKvSlots));
      request.policy.kvWriteBack = of.writeBack;
    }
    return take(compiler::compile(request));
  }

  static uint64_t weightsAway(const plan::Plan &plan) { return plan::weightBytesByHome(plan, 0).host; }
  // Bytes of weights that an iteration copies.
  static uint64_t weightsBrought(const Player &player) {
    uint64_t bytes = 0;
    for (const plan::Step &step : player.schedule().steps)
      if (step.kind == plan::StepKind::Copy && !step.resizable)
        bytes += step.linkBytes;
    return bytes;
  }

  void compare(const Case &of) {
    const std::string name = of.name();
    if (name.find(settings_.filter) == std::string::npos)
      return;
    const double bandwidth = of.bandwidth;
    Case whole = of;
    whole.residualsLeave = false;
    Player resident(compile(whole, 0, 4), settings_.device, bandwidth, weights_, of.load);
    Player offloaded(compile(of, of.interval, of.quarters), settings_.device, bandwidth, weights_, of.load);
    for (int turn = 0; turn * kTurn < settings_.iterations; ++turn) {
      resident.play();
      offloaded.play();
    }
    const double measured = median(offloaded.gapsNs);
    const plan::LinkBytes moved = plan::linkBytes(offloaded.schedule());
    if (offloaded.h2dBytes != moved.h2d || weightsBrought(offloaded) != weightsAway(offloaded.plan()))
      fail(name + ": an iteration brings other bytes than each weight that is away once, and the KV in use");
    const auto ns = [&](uint64_t bytes, double rate) { return static_cast<double>(bytes) / rate * 1e9; };
    const double direct = of.mirrors() ? ns(moved.d2h, bandwidth) : 0; // rows that the compute lane writes to the host
    const double link = std::max({ns(moved.h2d, bandwidth), of.mirrors() ? 0 : ns(moved.d2h, bandwidth),
                                  ns(moved.h2d + moved.d2h, of.duplex * bandwidth)});
    const double alone = median(resident.gapsNs) + direct;
    const double bound = of.linkBounds ? std::max(alone, link) : alone;
    // Of the fastest iterations, which whatever else runs on the machine has disturbed least.
    const double bestAlone = least(resident.gapsNs) + direct;
    const double best = least(offloaded.gapsNs) / (of.linkBounds ? std::max(bestAlone, link) : bestAlone);
    const double predicted = static_cast<double>(offloaded.variant().predictedNs);
    // What an iteration takes beside its kernels, where nothing is waited for.
    const double outside = 1 - median(resident.computeNs) / median(resident.lastGapNs);
    const double kernelsBeside = median(offloaded.computeNs) / median(resident.computeNs);
    const double ms = 1e-6;
    std::printf("%-54s %6.2f ms %6.2f ms %6.2f ms %6.2f ms %7.3f %7.3f %6.2f ms %7.2f %6.2f%%\n", name.c_str(),
                measured * ms, alone * ms, link * ms, bound * ms, measured / bound, best, predicted * ms,
                measured / predicted, outside * 100);
    std::fflush(stdout);
    results_.push_back(
        {{"name", name},
         {"iterations", offloaded.gapsNs.size()},
         {"real_time", measured * ms},
         {"time_unit", "ms"},
         {"resident_ms", alone * ms},
         {"link_ms", link * ms},
         {"h2d_bytes", moved.h2d},
         {"d2h_bytes", moved.d2h},
         {"bound", link > alone && of.linkBounds ? "link" : "compute"},
         {"bound_ms", bound * ms},
         {"ratio", measured / bound},
         {"best_ratio", best},
         {"target", kTarget},
         {"predicted_ms", predicted * ms},
         {"measured_over_predicted", measured / predicted},
         {"resident_predicted_ms", static_cast<double>(resident.variant().predictedNs) * ms},
         {"share_outside_kernels", outside},
         {"kernels_over_resident_kernels", kernelsBeside},
         {"stall_ms_per_iteration", static_cast<double>(offloaded.stallNs) * ms /
                                        static_cast<double>(offloaded.gapsNs.size() / kTurn * (kTurn + kWarmUp))}});
  }

  const Settings &settings_;
  model::Hardware hardware_;
  KeptWeights weights_;
  nlohmann::json results_ = nlohmann::json::array();
};

int usage() {
  std::fprintf(stderr, "usage: bench_run [--json FILE] [--iterations N >= 6] [--compute-core N] [--transfer-core N] "
                       "[--filter TEXT]\n");
  return 2;
}

int main(int argc, char **argv) {
  Settings settings;
  pinToFirstCores(settings.device);
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    constexpr std::string_view kOut = "--benchmark_out=";
    if (flag.starts_with(kOut)) {
      settings.json = flag.substr(kOut.size());
      continue;
    }
    if (flag.starts_with("--benchmark_")) // for the others that are run beside this one
      continue;
    if (i + 1 == argc)
      return usage();
    const char *value = argv[++i];
    if (flag == "--json")
      settings.json = value;
    else if (flag == "--filter")
      settings.filter = value;
    else if (flag == "--iterations")
      settings.iterations = std::atoi(value);
    else if (!takeLaneFlag(flag, value, settings.device))
      return usage();
  }
  if (settings.iterations < kTurn)
    return usage();
  const threads::AwakeCores awake = askLowLatency("bench_run", settings.device);
  Bench(settings).run();
  return 0;
}

} // namespace
} // namespace headrace::bench

int main(int argc, char **argv) { return headrace::bench::main(argc, argv); }
