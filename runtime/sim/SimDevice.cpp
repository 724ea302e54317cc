// SPDX-License-Identifier: Apache-2.0
#include "runtime/sim/SimDevice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/core/LaunchChecks.h"
#include "runtime/cost/CostModel.h"
#include "runtime/sim/Simulator.h"

namespace headrace::sim {
namespace {

// A schedule's timeline under one variant's (or transition's) durations, and what a launch of it counts.
class SimGraph final : public core::Graph {
public:
  Timeline timeline;
  plan::LinkBytes bytes;
  core::Bucket bucket;         // the variant's
  const void *owner = nullptr; // the device that built it,
  uint64_t opening = 0;        // and which of its open() calls it belongs to
  bool transition = false;
  bool uploaded = false;
};

constexpr uint64_t kInFlight = 2; // iterations, each with a staging copy and an output of its own

class SimDevice final : public core::Device {
public:
  std::string_view kind() const override { return "sim"; }
  kernels::Order matrixOrder() const override { return kernels::Order::RowMajor; }
  bool holdsData() const override { return false; }

  absl::Status open(const plan::Plan &plan, const core::DeviceOptions &options) override;
  absl::Span<std::byte> hostSlab() override { return {}; }
  absl::Status writeDevice(uint64_t address, absl::Span<const std::byte> bytes) override;
  absl::Status readDevice(uint64_t address, absl::Span<std::byte> bytes) override;
  absl::StatusOr<std::unique_ptr<core::Graph>> build(const core::GraphKey &key) override;
  absl::Status upload(core::Graph &graph) override;
  kernels::IterationMeta *meta() override;
  absl::Status launch(core::Graph &graph) override;
  absl::StatusOr<absl::Span<const int32_t>> awaitTokens(uint64_t iteration) override;
  int64_t tokensVisibleNs(uint64_t iteration) const override;
  absl::Status drain() override;
  int64_t nowNs() const override { return now_; }
  core::DeviceCounters counters() const override { return counters_; }
  absl::Span<const core::StepTime> lastTimes() const override { return lastTimes_; }

private:
  struct Iteration {
    std::vector<uint64_t> staging; // the iteration buffer, in words so that it is aligned
    std::vector<int32_t> tokens;
    size_t tokenCount = 0;
    int64_t visibleNs = 0, endNs = 0;
    kernels::IterationMeta *meta() { return reinterpret_cast<kernels::IterationMeta *>(staging.data()); }
  };

  absl::Status checkOpen() const {
    return plan_ == nullptr ? absl::FailedPreconditionError("sim: no plan is open") : absl::OkStatus();
  }
  absl::Status checkGraph(const core::Graph &graph) const;
  Iteration &iteration(uint64_t number) { return iterations_[number % kInFlight]; }
  const Iteration &iteration(uint64_t number) const { return iterations_[number % kInFlight]; }
  bool held(uint64_t number) const { return core::tokensHeld(number, launched_); }
  void makeUpTokens(Iteration &it) const;

  const plan::Plan *plan_ = nullptr;
  core::DeviceOptions options_;
  std::array<Iteration, kInFlight> iterations_;
  std::vector<core::StepTime> lastTimes_;
  core::DeviceCounters counters_;
  uint64_t opening_ = 0;
  uint64_t launched_ = 0; // iterations
  int64_t now_ = 0;       // the caller's time
  int64_t free_ = 0;      // when the last launch ends
};

absl::Status SimDevice::open(const plan::Plan &plan, const core::DeviceOptions &options) {
  if (!std::isfinite(options.linkBandwidth) || options.linkBandwidth < 0)
    return absl::InvalidArgumentError(
        absl::StrCat("sim: link bandwidth ", options.linkBandwidth, ", expected bytes per second above zero"));
  const model::Hardware &hardware = plan.hardware;
  if (plan.arenaBytes > hardware.memoryBytes)
    return absl::ResourceExhaustedError(absl::StrCat("sim: the plan takes ", plan.arenaBytes,
                                                     " bytes of device memory, ", hardware.name, " has ",
                                                     hardware.memoryBytes));
  if (plan.hostBytes > hardware.hostMemoryBytes)
    return absl::ResourceExhaustedError(absl::StrCat("sim: the plan takes ", plan.hostBytes, " bytes of host memory, ",
                                                     hardware.name, " has ", hardware.hostMemoryBytes));
  const uint64_t opening = opening_ + 1; // graphs of an earlier plan are refused
  *this = SimDevice();
  opening_ = opening;
  plan_ = &plan;
  options_ = options;
  for (Iteration &it : iterations_) {
    it.staging.assign(kernels::metaBytes(plan.metaLayout) / sizeof(uint64_t), 0);
    kernels::initMeta(plan.metaLayout, it.meta());
    it.tokens.assign(static_cast<size_t>(plan.metaLayout.maxSequences), 0);
  }
  if (options.trace) {
    size_t steps = 0;
    for (const plan::Schedule &schedule : plan.schedules)
      steps = std::max(steps, schedule.steps.size());
    lastTimes_.reserve(steps);
  }
  counters_.peakDeviceBytes = plan.arenaBytes;
  counters_.hostBytes = plan.hostBytes;
  return absl::OkStatus();
}

absl::Status SimDevice::writeDevice(uint64_t address, absl::Span<const std::byte> bytes) {
  if (absl::Status status = checkOpen(); !status.ok())
    return status;
  if (bytes.size() > plan_->arenaBytes || address > plan_->arenaBytes - bytes.size())
    return absl::OutOfRangeError(
        absl::StrCat("sim: bytes [", address, ", +", bytes.size(), ") are outside the arena of ", plan_->arenaBytes));
  return absl::OkStatus(); // dropped: there is no data
}

absl::Status SimDevice::readDevice(uint64_t, absl::Span<std::byte>) {
  return absl::FailedPreconditionError("sim: the device holds no data to read");
}

absl::StatusOr<std::unique_ptr<core::Graph>> SimDevice::build(const core::GraphKey &key) {
  if (absl::Status status = checkOpen(); !status.ok())
    return status;
  const size_t count = key.transition ? plan_->transitions.size() : plan_->variants.size();
  if (key.index >= count)
    return absl::InvalidArgumentError(absl::StrCat("sim: ", key.transition ? "transition " : "variant ", key.index,
                                                   " to build, the plan has ", count));
  auto graph = std::make_unique<SimGraph>();
  graph->owner = this;
  graph->opening = opening_;
  graph->transition = key.transition;
  const std::vector<uint64_t> *durations;
  const plan::Schedule *schedule;
  if (key.transition) {
    const plan::Transition &transition = plan_->transitions[key.index];
    durations = &transition.durationsNs;
    schedule = &plan_->schedules[transition.schedule];
  } else {
    const plan::Variant &variant = plan_->variants[key.index];
    durations = &variant.durationsNs;
    schedule = &plan_->schedules[variant.schedule];
    graph->bucket = {variant.newTokens, variant.sequences};
  }
  const model::Hardware &hardware = plan_->hardware;
  const double duplexShare = hardware.duplexBandwidth / std::max(hardware.h2dBandwidth, hardware.d2hBandwidth);
  Simulator(*schedule).run(pacedDurations(*schedule, *durations, hardware, options_.linkBandwidth), duplexShare,
                           graph->timeline);
  graph->bytes = plan::linkBytes(*schedule);
  return graph;
}

absl::Status SimDevice::checkGraph(const core::Graph &graph) const {
  const auto *mine = dynamic_cast<const SimGraph *>(&graph);
  if (mine == nullptr || mine->owner != this || mine->opening != opening_)
    return absl::InvalidArgumentError("sim: the graph was built by another device or for another plan");
  return absl::OkStatus();
}

absl::Status SimDevice::upload(core::Graph &graph) {
  if (absl::Status status = checkGraph(graph); !status.ok())
    return status;
  static_cast<SimGraph &>(graph).uploaded = true;
  return absl::OkStatus();
}

kernels::IterationMeta *SimDevice::meta() {
  Iteration &it = iteration(launched_ + 1);
  now_ = std::max(now_, it.endNs); // the iteration that has this staging copy ends first
  return it.meta();
}

void SimDevice::makeUpTokens(Iteration &it) const {
  const kernels::IterationMeta &meta = *it.meta();
  const auto *seeds = meta.array<uint64_t>(meta.seed);
  const auto *positions = meta.array<int32_t>(meta.samplePosition);
  it.tokenCount = static_cast<size_t>(meta.numSampled);
  for (size_t s = 0; s < it.tokenCount; ++s)
    it.tokens[s] = madeUpToken(seeds[s], static_cast<uint32_t>(positions[s]), plan_->model.vocab);
}

absl::Status SimDevice::launch(core::Graph &graph) {
  if (absl::Status status = checkGraph(graph); !status.ok())
    return status;
  const auto &mine = static_cast<const SimGraph &>(graph);
  if (!mine.uploaded)
    return absl::FailedPreconditionError("sim: the graph was not uploaded");
  const Timeline &timeline = mine.timeline;
  if (!mine.transition) {
    Iteration &it = iteration(launched_ + 1);
    if (absl::Status status = core::checkFits("sim", mine.bucket, *it.meta()); !status.ok())
      return status;
    now_ = std::max(now_, it.endNs);
    ++launched_;
    it.meta()->iteration = launched_;
    makeUpTokens(it);
    it.visibleNs = std::max(now_, free_) + static_cast<int64_t>(timeline.publishNs);
    it.endNs = std::max(now_, free_) + static_cast<int64_t>(timeline.iterationNs);
  }
  const int64_t start = std::max(now_, free_);
  free_ = start + static_cast<int64_t>(timeline.iterationNs);
  ++counters_.launches;
  counters_.h2dBytes += mine.bytes.h2d;
  counters_.d2hBytes += mine.bytes.d2h;
  counters_.stallNs += static_cast<int64_t>(timeline.stallNs);
  if (options_.trace) {
    lastTimes_.resize(timeline.steps.size());
    for (size_t i = 0; i < lastTimes_.size(); ++i)
      lastTimes_[i] = {start + static_cast<int64_t>(timeline.steps[i].startNs),
                       start + static_cast<int64_t>(timeline.steps[i].endNs)};
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const int32_t>> SimDevice::awaitTokens(uint64_t number) {
  if (absl::Status status = core::checkAwaited("sim", number, launched_); !status.ok())
    return status;
  const Iteration &it = iteration(number);
  now_ = std::max(now_, it.visibleNs);
  return absl::MakeConstSpan(it.tokens.data(), it.tokenCount);
}

int64_t SimDevice::tokensVisibleNs(uint64_t number) const { return held(number) ? iteration(number).visibleNs : -1; }

absl::Status SimDevice::drain() {
  now_ = std::max(now_, free_);
  return absl::OkStatus();
}

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
    const double profile = step.lane == plan::Lane::D2H ? hardware.d2hBandwidth : hardware.h2dBandwidth;
    const double fixedNs =
        std::min((copy ? hardware.copyLatency : hardware.launchOverhead) * 1e9, static_cast<double>(paced[i]));
    const double ns =
        fixedNs + (static_cast<double>(paced[i]) - fixedNs) * (profile * hardware.linkEfficiency / linkBandwidth);
    paced[i] =
        ns < static_cast<double>(cost::kLongestStepNs) ? static_cast<uint64_t>(std::llround(ns)) : cost::kLongestStepNs;
  }
  return paced;
}

} // namespace headrace::sim
