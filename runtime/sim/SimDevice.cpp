// SPDX-License-Identifier: Apache-2.0
#include "runtime/sim/SimDevice.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/StatusMacros.h"
#include "runtime/cost/CostModel.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/sim/RowPrices.h"
#include "runtime/sim/SimDeviceBase.h"
#include "runtime/sim/Simulator.h"

namespace headrace::sim {
namespace {

// A schedule's timeline under one variant's (or transition's) durations, or under those of what a launch runs of it.
class LoneGraph final : public SimGraph {
public:
  // `prices`: null where all launches take `durationsNs` but for their sizes. With `steps` the timeline has the times
  // of all steps, else only where it takes them to know when an iteration ends.
  LoneGraph(const plan::Plan &plan, const plan::Schedule &schedule, std::vector<uint64_t> durationsNs,
            const cost::Sharing &sharing, bool resizable, std::unique_ptr<RowPrices> prices, bool steps)
      : sharing_(sharing), prices_(std::move(prices)), simulator_(plan, schedule),
        durationsNs_(std::move(durationsNs)) {
    simulator_.run(durationsNs_, sharing_, timeline_);
    addsUp_ = prices_ != nullptr && !resizable && !steps &&
              std::all_of(schedule.steps.begin(), schedule.steps.end(),
                          [](const plan::Step &s) { return s.lane == plan::Lane::Compute; });
  }

  // Made anew where a price or a size is not that of the launch before. `meta`: of an iteration.
  const Timeline &timeline(const core::LaunchInUse &inUse, const kernels::IterationMeta *meta) {
    bool changed = prices_ != nullptr && prices_->price(*meta);
    changed |= besides_;
    besides_ = false;
    if (changed && addsUp_) { // one lane: a step follows the other
      timeline_.iterationNs = prices_->sumNs();
      timeline_.publishNs = prices_->publishNs();
      return timeline_;
    }
    if (changed && prices_ != nullptr)
      prices_->writeTo(absl::MakeSpan(durationsNs_));
    changed |= setSizes(inUse);
    if (changed)
      simulator_.run(durationsNs_, sharing_, timeline_);
    return timeline_;
  }

  // The same with copies beside it, from startNs on.
  const Timeline &timeline(const core::LaunchInUse &inUse, const kernels::IterationMeta *meta, BesideCopies &beside,
                           int64_t startNs) {
    if (prices_ != nullptr) {
      prices_->price(*meta);
      prices_->writeTo(absl::MakeSpan(durationsNs_));
    }
    setSizes(inUse);
    simulator_.run(durationsNs_, sharing_, beside, startNs, timeline_);
    besides_ = true;
    return timeline_;
  }

private:
  // Whether one is not that of the launch before.
  bool setSizes(const core::LaunchInUse &inUse) {
    bool changed = false;
    for (const SizedTime &copy : sized) {
      const uint64_t ns = copy.nsOf(core::bytesInUse(copy.size, inUse));
      changed |= ns != durationsNs_[copy.step];
      durationsNs_[copy.step] = ns;
    }
    return changed;
  }

  const cost::Sharing sharing_;
  const std::unique_ptr<RowPrices> prices_;
  bool addsUp_ = false;
  bool besides_ = false; // the last timeline is one of a launch with copies beside it
  const Simulator simulator_;
  std::vector<uint64_t> durationsNs_; // of the launch before
  Timeline timeline_;
};

// Nobody shares its link: a launch looks its timeline up.
class SimDevice final : public SimDeviceBase {
public:
  absl::Status open(const plan::Plan &plan, const core::DeviceOptions &options) override {
    RETURN_IF_ERROR(SimDeviceBase::open(plan, options));
    rows_.reset();
    if (options.pricing == core::Pricing::Rows)
      rows_.emplace(plan, options.linkBandwidth);
    now_ = free_ = computeFree_ = stallNs_ = cpuWaitNs_ = besideNs_ = 0;
    beside_.clear();
    laneRates_ = LaneRates(sharing());
    lastTimes_.clear();
    if (options.trace)
      lastTimes_.reserve(mostSteps());
    return absl::OkStatus();
  }
  absl::Status drain() override {
    RETURN_IF_ERROR(passTo(free_));
    besideNs_ = beside_.playAlone(besideNs_, kNeverNs, laneRates_);
    return passTo(beside_.lastEndNs());
  }
  int64_t nowNs() const override { return now_; }
  absl::Status waitUntil(int64_t ns) override { return passTo(ns); }
  core::DeviceCounters counters() const override {
    core::DeviceCounters counters = SimDeviceBase::counters();
    counters.stallNs = stallNs_;
    counters.cpuWaitNs = cpuWaitNs_;
    return counters;
  }
  absl::Span<const core::StepTime> lastTimes() const override { return lastTimes_; }

private:
  // What all variants of the open plan are priced with.
  struct RowPricing {
    RowPricing(const plan::Plan &plan, double linkBandwidth)
        : layout(model::layoutWeights(plan.model)),
          roofline(plan.model, overLink(plan.hardware, linkBandwidth), plan.activationDtype, plan.kvEncoding) {}
    model::WeightLayout layout;
    cost::Roofline roofline;
  };

  std::unique_ptr<SimGraph> prepare(const core::GraphSource &source, std::vector<uint64_t> durationsNs,
                                    const std::vector<SizedTime> &sized) override {
    std::unique_ptr<RowPrices> prices;
    if (rows_ && source.variant != nullptr)
      prices = std::make_unique<RowPrices>(*plan(), rows_->layout, rows_->roofline, *source.variant, durationsNs);
    return std::make_unique<LoneGraph>(*plan(), *source.schedule, std::move(durationsNs), sharing(), !sized.empty(),
                                       std::move(prices), options().trace);
  }

  void play(SimGraph &graph, const Launch &launch) override {
    const int64_t start = std::max(now_, free_);
    playBesideTo(start);
    auto &own = static_cast<LoneGraph &>(graph);
    const Timeline &timeline = beside_.idle() ? own.timeline(launch.inUse, launch.meta)
                                              : own.timeline(launch.inUse, launch.meta, beside_, start);
    stallNs_ += std::max<int64_t>(0, free_ - std::max(now_, computeFree_)); // for copies of the launch before
    computeFree_ = start + static_cast<int64_t>(timeline.computeEndNs);
    besideNs_ = free_ = start + static_cast<int64_t>(timeline.iterationNs);
    if (launch.times != nullptr)
      *launch.times = {start + static_cast<int64_t>(timeline.publishNs), free_};
    stallNs_ += static_cast<int64_t>(timeline.stallNs);
    cpuWaitNs_ += static_cast<int64_t>(timeline.cpuWaitNs);
    if (options().trace) {
      lastTimes_.resize(timeline.steps.size());
      for (size_t i = 0; i < lastTimes_.size(); ++i)
        lastTimes_[i] = {start + static_cast<int64_t>(timeline.steps[i].startNs),
                         start + static_cast<int64_t>(timeline.steps[i].endNs)};
    }
  }

  absl::Status passTo(const int64_t &moment) override {
    now_ = std::max(now_, moment);
    return absl::OkStatus();
  }

  // All launches made before copies are asked for are timed, so what overlaps those is known as they are: copies are
  // played with each launch as it is made, and alone in between.
  uint64_t playBeside(absl::Span<const core::BlockCopy> copies, const LinkRates &link) override {
    const int64_t readyNs = std::max(now_, free_);
    playBesideTo(readyNs);
    return beside_.ask(copies, link, 0, readyNs, now_);
  }
  uint64_t ticketsGiven() const override { return beside_.given(); }
  const int64_t &besideEndNs(uint64_t ticket) override {
    playBesideTo(now_);
    return beside_.endNs(ticket);
  }
  absl::Status passToBeside(uint64_t ticket) override {
    if (beside_.endNs(ticket) == kUnknownNs)
      besideNs_ = beside_.playAlone(besideNs_, kNeverNs, laneRates_, ticket);
    return passTo(beside_.endNs(ticket));
  }
  void playBesideTo(int64_t ns) {
    if (besideNs_ < ns)
      besideNs_ = beside_.playAlone(besideNs_, ns, laneRates_);
  }

  std::optional<RowPricing> rows_; // with core::Pricing::Rows
  std::vector<core::StepTime> lastTimes_;
  int64_t now_ = 0;                       // the caller's time
  int64_t free_ = 0;                      // when the last launch ends
  int64_t stallNs_ = 0, computeFree_ = 0; // the latter: the end of the last launch's compute
  int64_t cpuWaitNs_ = 0;
  BesideCopies beside_;
  int64_t besideNs_ = 0; // they are played up to here
  LaneRates laneRates_{cost::Sharing()};
};

} // namespace

std::unique_ptr<core::Device> makeSimDevice() { return std::make_unique<SimDevice>(); }

int32_t madeUpToken(uint64_t seed, uint32_t position, int64_t vocab) {
  // SplitMix64's finaliser over a counter of both.
  uint64_t z = seed * 0x9e3779b97f4a7c15u + position + 1;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return static_cast<int32_t>(z % static_cast<uint64_t>(vocab));
}

std::vector<uint64_t> pacedDurations(const plan::Schedule &schedule, absl::Span<const uint64_t> durationsNs,
                                     const model::Hardware &hardware, double linkBandwidth) {
  std::vector<uint64_t> paced(durationsNs.begin(), durationsNs.end());
  if (linkBandwidth <= 0)
    return paced;
  for (size_t i = 0; i < paced.size(); ++i) {
    const plan::Step &step = schedule.steps[i];
    const bool copy = step.kind == plan::StepKind::Copy;
    if (!copy && !step.direct)
      continue;
    const bool writes = plan::directToHost(schedule, step);
    const double profile = plan::toHost(step.lane) || writes ? hardware.d2hBandwidth : hardware.h2dBandwidth;
    const auto priced = static_cast<double>(paced[i]);
    const double fixedNs = std::min((copy ? hardware.copyLatency : hardware.launchOverhead) * 1e9, priced);
    const double slower = profile * hardware.linkEfficiency / linkBandwidth;
    const double bytesNs = static_cast<double>(step.linkBytes) / linkBandwidth * 1e9; // at linkBandwidth
    const bool computes = writes && priced > fixedNs + bytesNs / slower + 1;          // prices are whole nanoseconds
    const double ns = computes ? std::max(priced, fixedNs + bytesNs) : fixedNs + (priced - fixedNs) * slower;
    paced[i] =
        ns < static_cast<double>(cost::kLongestStepNs) ? static_cast<uint64_t>(std::llround(ns)) : cost::kLongestStepNs;
  }
  return paced;
}

} // namespace headrace::sim
