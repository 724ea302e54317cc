// SPDX-License-Identifier: Apache-2.0
#include "bench/run/RepackedDevice.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "bench/run/SpreadRows.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/core/GraphSteps.h"
#include "runtime/core/MetaWriter.h"
#include "runtime/sim/SimDevice.h"

namespace headrace::bench {
namespace {

// One of a graph, on each device that plays it.
struct GraphOfAll final : core::Graph {
  std::unique_ptr<core::Graph> on, launched, packed;
  core::GraphKey key;
};

struct Played {
  int64_t ns = 0;
  double linkNs = 0, computeNs = 0; // of the lanes alone
};

// The rows of an iteration's sequences, from the buffer of a mini-batch.
std::vector<RowsOf> rowsIn(const kernels::IterationMeta &meta, const plan::Plan &plan) {
  std::vector<RowsOf> all;
  const auto *start = meta.array<int32_t>(meta.queryStart);
  const auto *context = meta.array<int32_t>(meta.contextLength);
  const auto *samples = meta.array<int32_t>(meta.sampleRow);
  for (int32_t s = 0; s < meta.numSequences; ++s) {
    RowsOf one{.rows = start[s + 1] - start[s]};
    one.before = context[s] - one.rows;
    one.samples = std::find(samples, samples + meta.numSampled, start[s + 1] - 1) != samples + meta.numSampled;
    const int64_t blocks = (one.before + plan.blockTokens - 1) / plan.blockTokens;
    one.act = plan.actBlocks > 0 ? plan.actRatio.of(blocks) : 0;
    one.kv = blocks - one.act;
    all.push_back(one);
  }
  return all;
}

// The blocks that hold what is in `rows`, from the first on, behind the scratch block.
core::InUse needed(const std::vector<RowsOf> &rows) {
  core::InUse out{.kvBlocks = 1, .rows = 0, .actBlocks = 0};
  for (const RowsOf &one : rows) {
    out.kvBlocks += one.kv;
    out.actBlocks += one.act;
    out.rows += one.rows;
  }
  return out;
}

core::LaunchInUse neededBy(const Grouping &groups) {
  std::vector<core::InUse> each;
  for (const std::vector<RowsOf> &rows : groups)
    each.push_back(needed(rows));
  return core::LaunchInUse(absl::MakeConstSpan(each));
}

} // namespace

RepackSums &RepackSums::operator+=(const RepackSums &other) {
  for (uint64_t RepackSums::*one : {&RepackSums::iterations, &RepackSums::spreadFaster, &RepackSums::launchedBytes,
                                    &RepackSums::neededBytes, &RepackSums::h2dBytes})
    this->*one += other.*one;
  for (int64_t RepackSums::*one :
       {&RepackSums::launchedNs, &RepackSums::packedNs, &RepackSums::spreadNs, &RepackSums::leastNs})
    this->*one += other.*one;
  launchedLanesNs += other.launchedLanesNs;
  neededLanesNs += other.neededLanesNs;
  return *this;
}

struct RepackedDevice::Repacked {
  const plan::Plan &plan;
  const std::unique_ptr<core::Device> launched = sim::makeSimDevice(), packed = sim::makeSimDevice(),
                                      spread = sim::makeSimDevice();
  std::vector<std::unique_ptr<core::Graph>> spreadGraphs; // by variant; null: not yet built
  std::vector<std::vector<core::SizedCopy>> loads;        // of each schedule, to the device, of caches
  SpreadRows spreadRows;
  RepackSums sums;

  explicit Repacked(const plan::Plan &plan) : plan(plan), spreadGraphs(plan.variants.size()), spreadRows(plan) {}

  absl::Status open(const core::DeviceOptions &options) {
    core::DeviceOptions traced = options;
    traced.trace = true;
    for (core::Device *device : {launched.get(), packed.get(), spread.get()})
      RETURN_IF_ERROR(device->open(plan, traced));
    for (const plan::Schedule &schedule : plan.schedules) {
      loads.emplace_back();
      for (uint32_t i = 0; i < schedule.steps.size(); ++i)
        if (schedule.steps[i].resizable && schedule.steps[i].lane == plan::Lane::H2D) {
          ASSIGN_OR_RETURN(copy, core::sizedCopy(plan, schedule, i));
          if (!copy.ofRows)
            loads.back().push_back(copy);
        }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Played> play(core::Device &device, core::Graph &graph, uint32_t variant,
                              const core::LaunchInUse &inUse) const {
    const int64_t beganNs = device.nowNs();
    RETURN_IF_ERROR(device.launch(graph, inUse));
    RETURN_IF_ERROR(device.drain());
    Played played{.ns = device.nowNs() - beganNs};
    const plan::Schedule &schedule = plan.schedules[plan.variants[variant].schedule];
    for (size_t i = 0; i < schedule.steps.size(); ++i) {
      const core::StepTime &time = device.lastTimes()[i];
      const auto ns = static_cast<double>(time.endNs - time.startNs);
      played.linkNs += schedule.steps[i].lane == plan::Lane::H2D ? ns : 0;
      played.computeNs += schedule.steps[i].lane == plan::Lane::Compute ? ns : 0;
    }
    return played;
  }

  void copyMeta(const kernels::IterationMeta *from, core::Device &to) const {
    std::memcpy(static_cast<void *>(to.meta()), from, kernels::metaBytes(plan.metaLayout, plan.miniBatches));
  }

  absl::Status iteration(const GraphOfAll &graph, const kernels::IterationMeta *meta, const core::LaunchInUse &inUse) {
    const uint32_t variant = graph.key.index;
    Grouping groups;
    for (uint32_t i = 0; i < plan.miniBatches; ++i)
      groups.push_back(rowsIn(*kernels::metaOf(plan.metaLayout, meta, i), plan));
    copyMeta(meta, *launched);
    copyMeta(meta, *packed);
    const uint64_t broughtBefore = launched->counters().h2dBytes;
    ASSIGN_OR_RETURN(asLaunched, play(*launched, *graph.launched, variant, inUse));
    ASSIGN_OR_RETURN(asPacked, play(*packed, *graph.packed, variant, neededBy(groups)));
    ASSIGN_OR_RETURN(asSpread, playSpread(groups));
    ++sums.iterations;
    sums.spreadFaster += asSpread.ns < asPacked.ns;
    sums.h2dBytes += launched->counters().h2dBytes - broughtBefore;
    sums.launchedNs += asLaunched.ns;
    sums.packedNs += asPacked.ns;
    sums.spreadNs += asSpread.ns;
    sums.leastNs += std::min(asPacked.ns, asSpread.ns);

    uint64_t launchedBytes = 0, neededBytes = 0, packedBytes = 0;
    const core::LaunchInUse byNeed = neededBy(groups);
    for (const core::SizedCopy &copy : loads[plan.variants[variant].schedule]) {
      const core::InUse &need = byNeed.of(copy.miniBatch);
      launchedBytes += core::bytesInUse(copy, inUse);
      packedBytes += core::bytesInUse(copy, byNeed);
      // The scratch block is of no sequence: of a tail that begins with it one block less.
      const int64_t blocks = copy.ofAct ? need.actBlocks : need.kvBlocks - std::max<int64_t>(1, copy.firstBlock);
      neededBytes += static_cast<uint64_t>(std::max<int64_t>(0, blocks)) * copy.blockBytes;
    }
    sums.launchedBytes += launchedBytes;
    sums.neededBytes += neededBytes;
    sums.launchedLanesNs += std::max(asLaunched.linkNs, asLaunched.computeNs);
    // What packing rounds up to 256ths is not needed.
    const double rounded = static_cast<double>(packedBytes - neededBytes) /
                           (plan.hardware.h2dBandwidth * plan.hardware.linkEfficiency) * 1e9;
    sums.neededLanesNs += std::max(asPacked.linkNs - rounded, std::min(asPacked.computeNs, asSpread.computeNs));
    return absl::OkStatus();
  }

  absl::StatusOr<Played> playSpread(const Grouping &groups) {
    ASSIGN_OR_RETURN(chosen, spreadRows.choose(groups));
    std::unique_ptr<core::Graph> &graph = spreadGraphs[chosen.variant];
    if (graph == nullptr) {
      ASSIGN_OR_RETURN(built, spread->build({.index = chosen.variant}));
      RETURN_IF_ERROR(spread->upload(*built));
      graph = std::move(built);
    }
    RETURN_IF_ERROR(spreadRows.writeTo(chosen.groups, spread->meta()));
    return play(*spread, *graph, chosen.variant, neededBy(chosen.groups));
  }
};

RepackedDevice::RepackedDevice() : on_(sim::makeSimDevice()) {}
RepackedDevice::~RepackedDevice() = default;
const RepackSums &RepackedDevice::sums() const { return repacked_->sums; }

absl::Status RepackedDevice::open(const plan::Plan &plan, const core::DeviceOptions &options) {
  repacked_ = std::make_unique<Repacked>(plan);
  RETURN_IF_ERROR(repacked_->open(options));
  return on_->open(plan, options);
}

absl::StatusOr<std::unique_ptr<core::Graph>> RepackedDevice::build(const core::GraphKey &key) {
  auto graph = std::make_unique<GraphOfAll>();
  graph->key = key;
  ASSIGN_OR_RETURN(on, on_->build(key));
  ASSIGN_OR_RETURN(launched, repacked_->launched->build(key));
  ASSIGN_OR_RETURN(packed, repacked_->packed->build(key));
  graph->on = std::move(on);
  graph->launched = std::move(launched);
  graph->packed = std::move(packed);
  return graph;
}

absl::Status RepackedDevice::upload(core::Graph &graph) {
  auto &all = static_cast<GraphOfAll &>(graph);
  RETURN_IF_ERROR(on_->upload(*all.on));
  RETURN_IF_ERROR(repacked_->launched->upload(*all.launched));
  return repacked_->packed->upload(*all.packed);
}

absl::Status RepackedDevice::launch(core::Graph &graph, const core::LaunchInUse &inUse) {
  const auto &all = static_cast<const GraphOfAll &>(graph);
  if (!all.key.transition)
    RETURN_IF_ERROR(repacked_->iteration(all, on_->meta(), inUse));
  return on_->launch(*all.on, inUse);
}

} // namespace headrace::bench
