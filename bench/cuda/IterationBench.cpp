// SPDX-License-Identifier: Apache-2.0
//
// Whole iterations of real shapes through core::Runtime, at several offloading intervals, against what bounds them:
//
//   ratio = iteration / max(the same iteration with everything resident, bytes / bandwidth)        at most 1.03
//
// The next iteration is launched before the tokens of this one are read, as a server does; an iteration's time is the
// gap between two iterations' tokens. Bandwidth is that of the very chunks in a graph of copies alone.
#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "bench/cuda/Report.h"
#include "compiler/Compile.h"
#include "runtime/core/MetaWriter.h"
#include "runtime/core/Runtime.h"
#include "runtime/cuda/CudaDevice.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightSource.h"
#include "tests/support/SourceDir.h"

namespace headrace::bench {
namespace {

constexpr int kWarmUp = 4;
constexpr int kLeastIterations = 20;
constexpr double kSeconds = 3;                           // of a cell, whichever of the two comes first
constexpr int64_t kIntervals[] = {0, 16, 8, 4, 3, 2, 1}; // 0: everything resident, measured first

struct Cell {
  int64_t sequences, tokens, context; // new tokens of each sequence; tokens in its cache once they are in
  std::string name() const {
    return tokens == 1 ? "decode " + std::to_string(sequences) + " at " + std::to_string(context)
                       : "prefill " + std::to_string(tokens);
  }
};
constexpr Cell kCells[] = {{1, 1, 256},   {32, 1, 256},   {128, 1, 256},   {1, 1, 2048},
                           {32, 1, 2048}, {128, 1, 2048}, {1, 1024, 1024}, {1, 4096, 4096}};

template <typename T> T take(absl::StatusOr<T> value) {
  if (!value.ok())
    fail(std::string(value.status().message()));
  return *std::move(value);
}
void check(const absl::Status &status) {
  if (!status.ok())
    fail(std::string(status.message()));
}

// Every layer gets the first layer's weights: they are made once, and copied from then on.
class LayerWeights final : public model::WeightSource {
public:
  absl::Status fill(const model::Unit &unit, model::MatrixOrder order, absl::Span<std::byte> out) const override {
    std::vector<std::byte> &kept = kept_[unit.role];
    if (kept.size() != out.size()) {
      kept.resize(out.size());
      if (absl::Status status = source_->fill(unit, order, absl::MakeSpan(kept)); !status.ok())
        return status;
    }
    std::copy(kept.begin(), kept.end(), out.begin());
    return absl::OkStatus();
  }

private:
  std::unique_ptr<model::WeightSource> source_ = model::syntheticWeights(1);
  mutable std::map<model::UnitRole, std::vector<std::byte>> kept_;
};

struct Measured {
  std::vector<double> ms;     // gaps between tokens
  std::vector<double> hostUs; // choose and launch
};

class Model {
public:
  Model(Report &report, const Budget &budget, const std::string &name, const LayerWeights &weights)
      : report_(report), budget_(budget), name_(name), weights_(weights),
        spec_(take(model::openModel(sourceDir() + "/examples/models/" + name + ".toml")).spec) {
    size_t free = 0, total = 0;
    must(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    memory_ = static_cast<uint64_t>(static_cast<double>(free) * 0.9);
    const double weightBytes = static_cast<double>(model::layoutWeights(spec_).totalBytes());
    for (const Cell &cell : kCells) {
      const double kv = static_cast<double>(cell.sequences * cell.context * spec_.layers * 2 * spec_.kvRows()) * 2;
      if (cell.context > spec_.maxPositions)
        report_.figure(name_ + ", " + cell.name(), {{"left out", "the model has fewer positions"}});
      else if (weightBytes + kv > 0.95 * static_cast<double>(memory_))
        report_.figure(name_ + ", " + cell.name(), {{"left out", "its cache does not fit"}});
      else
        cells_.push_back(cell);
    }
  }

  void run(const std::string &filter) {
    for (const int64_t interval : kIntervals) {
      const std::string placement = interval == 0 ? "resident" : "interval " + std::to_string(interval);
      if (interval != 0 && (name_ + ", " + placement).find(filter) == std::string::npos)
        continue;
      if (budget_.left() < 20) {
        report_.figure(name_ + ", " + placement, {{"left out", "no time left"}});
        continue;
      }
      play(interval, placement);
    }
  }

private:
  plan::Plan compile(int64_t interval) const {
    compiler::CompileRequest request;
    request.model = spec_;
    request.modelHash = "synthetic";
    request.hardware = take(model::openHardware(sourceDir() + "/examples/hardware/h200.toml"));
    request.goal.deviceMemory = memory_;
    std::set<int64_t> newTokens, sequences, contexts;
    int64_t kvTokens = 0;
    for (const Cell &cell : cells_) {
      if (cell.tokens > 1)
        newTokens.insert(cell.tokens);
      sequences.insert(cell.sequences);
      contexts.insert(cell.context);
      // Whole blocks of every sequence, and one more.
      kvTokens = std::max(kvTokens, cell.sequences * (cell.context + request.goal.blockTokens));
    }
    request.goal.kvTokens = std::max(kvTokens, *contexts.rbegin());
    request.buckets = {.newTokens = {newTokens.begin(), newTokens.end()},
                       .sequences = {sequences.begin(), sequences.end()},
                       .contexts = {contexts.begin(), contexts.end()}};
    request.policy.none = interval == 0;
    if (interval != 0)
      request.policy.interval = interval;
    request.policy.offloadEmbedding = request.policy.offloadHead = model::AutoOnOff::Off;
    return take(compiler::compile(request));
  }

  void play(int64_t interval, const std::string &placement) {
    const auto plan = std::make_unique<plan::Plan>(compile(interval));
    const std::unique_ptr<core::Device> device = take(cuda::makeCudaDevice({}));
    double at = nowSeconds();
    const std::unique_ptr<core::Runtime> runtime = take(core::Runtime::load(*plan, *device, {}, &weights_, {}));
    report_.figure(name_ + ", " + placement + ", load", {{"seconds", nowSeconds() - at},
                                                         {"variants", plan->variants.size()},
                                                         {"arena bytes", plan->arenaBytes},
                                                         {"pinned bytes", plan->hostBytes}});
    for (const Cell &cell : cells_) {
      if (budget_.left() < 5) {
        report_.figure(name_ + ", " + placement + ", " + cell.name(), {{"left out", "no time left"}});
        continue;
      }
      const uint32_t variant = take(runtime->choose(cell.sequences * cell.tokens, cell.sequences, cell.context));
      const Measured measured = iterate(*plan, *device, *runtime, cell);
      describe(*plan, variant, interval, placement, cell, measured);
    }
    check(device->drain());
  }

  Measured iterate(const plan::Plan &plan, core::Device &device, core::Runtime &runtime, const Cell &cell) {
    const int64_t blocksEach = (cell.context + plan.blockTokens - 1) / plan.blockTokens;
    std::vector<int32_t> blocks(static_cast<size_t>(cell.sequences * blocksEach));
    for (size_t i = 0; i < blocks.size(); ++i)
      blocks[i] = static_cast<int32_t>(i + 1);
    std::vector<int32_t> ids(static_cast<size_t>(cell.tokens));
    for (size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<int32_t>(i * 37 % static_cast<size_t>(spec_.vocab));
    std::vector<core::SequenceRows> rows;
    for (int64_t s = 0; s < cell.sequences; ++s)
      rows.push_back({.tokens = ids,
                      .firstPosition = cell.context - cell.tokens,
                      .blocks = absl::MakeConstSpan(blocks).subspan(static_cast<size_t>(s * blocksEach),
                                                                    static_cast<size_t>(blocksEach)),
                      .sample = true,
                      .requestSlot = static_cast<int32_t>(s)});
    Measured measured;
    const double startedAt = nowSeconds();
    int64_t previousNs = 0;
    uint64_t awaited = runtime.launched();
    const uint64_t first = awaited;
    for (int i = 0;; ++i) {
      const bool last = i >= kWarmUp + kLeastIterations && nowSeconds() - startedAt > kSeconds;
      const bool enough = last || (i > kWarmUp + 2 && nowSeconds() - startedAt > 4 * kSeconds);
      if (!enough) {
        check(core::writeMeta(plan.metaLayout, plan.blockTokens, rows, device.meta()));
        const double at = nowSeconds();
        check(runtime.launch(take(runtime.choose(cell.sequences * cell.tokens, cell.sequences, cell.context))));
        if (i >= kWarmUp)
          measured.hostUs.push_back((nowSeconds() - at) * 1e6);
      }
      while (awaited + (enough ? 0 : 1) < runtime.launched()) { // one stays in flight
        (void)take(runtime.awaitTokens());
        const int64_t seenNs = device.tokensVisibleNs(++awaited);
        if (awaited > first + kWarmUp)
          measured.ms.push_back(static_cast<double>(seenNs - previousNs) * 1e-6);
        previousNs = seenNs;
      }
      if (enough)
        return measured;
    }
  }

  // The schedule's chunks, one behind another in each direction, in a graph of nothing else: bytes a second.
  double chunkBandwidth(const plan::Schedule &schedule) const {
    constexpr size_t kWindow = size_t{1} << 30;
    const PinnedBuffer host(kWindow);
    const DeviceBuffer device(kWindow);
    Timer timer;
    BenchGraph graph;
    cudaGraphNode_t last = nullptr;
    uint64_t bytes = 0;
    for (const plan::Step &step : schedule.steps)
      if (step.kind == plan::StepKind::Copy && step.lane == plan::Lane::H2D) {
        const size_t from = (bytes % (kWindow / 2)) / 256 * 256, length = std::min<size_t>(step.linkBytes, kWindow / 2);
        last = graph.copy(last, device.as() + from, host.as() + from, length, cudaMemcpyHostToDevice);
        bytes += length;
      }
    graph.build(timer.stream());
    const double ms = medianMs(timer, 3, [&](cudaStream_t stream) { graph.launch(stream); });
    return static_cast<double>(bytes) / ms * 1e3;
  }

  void describe(const plan::Plan &plan, uint32_t number, int64_t interval, const std::string &placement,
                const Cell &cell, const Measured &measured) {
    const plan::Variant &variant = plan.variants[number];
    const plan::Schedule &schedule = plan.schedules[variant.schedule];
    const double ms = median(measured.ms), predicted = static_cast<double>(variant.predictedNs) * 1e-6;
    if (interval == 0)
      alone_[cell.name()] = ms;
    const double alone = alone_.contains(cell.name()) ? alone_[cell.name()] : ms;
    const auto bytes = static_cast<double>(plan::linkBytes(schedule).h2d);
    if (bytes > 0 && !bandwidth_.contains(interval))
      bandwidth_[interval] = chunkBandwidth(schedule);
    const double link = bytes > 0 ? bytes / bandwidth_[interval] * 1e3 : 0;
    const double bound = std::max(alone, link);
    report_.figure(name_ + ", " + placement + ", " + cell.name(),
                   {{"ms", ms},
                    {"p99 ms", quantile(measured.ms, 0.99)},
                    {"iterations", measured.ms.size()},
                    {"alone ms", alone},
                    {"link ms", link},
                    {"h2d bytes", bytes},
                    {"link GB/s", bytes > 0 ? bandwidth_[interval] * 1e-9 : 0.0},
                    {"ratio", ms / bound},
                    {"bound by", link > alone ? "link" : "compute"},
                    {"predicted ms", predicted},
                    {"measured over predicted", ms / predicted},
                    {"host us", median(measured.hostUs)},
                    {"steps", schedule.steps.size()}});
  }

  Report &report_;
  const Budget &budget_;
  const std::string name_;
  const LayerWeights &weights_;
  const model::ModelSpec spec_;
  uint64_t memory_ = 0;
  std::vector<Cell> cells_;
  std::map<std::string, double> alone_; // by cell: milliseconds with everything resident
  std::map<int64_t, double> bandwidth_; // by interval
};

} // namespace

void measureIterations(Report &report, const Budget &budget, const std::string &filter) {
  report.part("iterations",
              "core::Runtime on synthetic weights, one iteration in flight beside the one whose tokens are awaited; "
              "median gap between tokens of at least 20 iterations after 4; alone: the resident plan's same cell; "
              "link: the schedule's chunks in a graph of copies alone; host us: choose + launch");
  for (const char *name : {"opt-6.7b", "llama-3.1-8b"}) {
    const LayerWeights weights;
    Model(report, budget, name, weights).run(filter);
  }
}

} // namespace headrace::bench
