// SPDX-License-Identifier: Apache-2.0
#include "tools/timeline/WatchedGroup.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"

namespace headrace::tools {

class WatchedGroup::WatchedDevice final : public core::Device {
public:
  WatchedDevice(WatchedGroup &group, size_t index) : group_(group), index_(index), on_(group.on_->device(index)) {}

  std::string_view kind() const override { return on_.kind(); }
  kernels::Order matrixOrder() const override { return on_.matrixOrder(); }
  bool holdsData() const override { return on_.holdsData(); }
  int threads() const override { return on_.threads(); }
  void each(int64_t count, absl::FunctionRef<void(int64_t)> f) override { on_.each(count, f); }
  absl::Status open(const plan::Plan &plan, const core::DeviceOptions &options) override {
    Watched &watched = *group_.watched_[index_];
    watched.plan = &plan;
    watched.options = options;
    watched.options.trace = true;
    return on_.open(plan, watched.options);
  }
  absl::Span<std::byte> hostSlab() override { return on_.hostSlab(); }
  absl::Status writeDevice(uint64_t address, absl::Span<const std::byte> bytes) override {
    return on_.writeDevice(address, bytes);
  }
  absl::Status readDevice(uint64_t address, absl::Span<std::byte> bytes) override {
    return on_.readDevice(address, bytes);
  }
  absl::StatusOr<std::unique_ptr<core::Graph>> build(const core::GraphKey &key) override {
    ASSIGN_OR_RETURN(graph, on_.build(key));
    keys_[graph.get()] = key;
    return graph;
  }
  absl::Status upload(core::Graph &graph) override { return on_.upload(graph); }
  kernels::IterationMeta *meta() override { return on_.meta(); }
  absl::Status launch(core::Graph &graph, const core::LaunchInUse &inUse) override {
    RETURN_IF_ERROR(group_.look(index_));
    const int64_t now = on_.nowNs();
    RETURN_IF_ERROR(on_.launch(graph, inUse));
    group_.made(index_, keys_.at(&graph), inUse, now);
    return absl::OkStatus();
  }
  absl::StatusOr<absl::Span<const int32_t>> awaitTokens(uint64_t iteration) override {
    ASSIGN_OR_RETURN(tokens, on_.awaitTokens(iteration));
    if (std::vector<Launch> &launches = group_.watched_[index_]->launches; iteration <= launches.size())
      launches[iteration - 1].visibleNs = on_.tokensVisibleNs(iteration);
    return tokens;
  }
  int64_t tokensVisibleNs(uint64_t iteration) const override { return on_.tokensVisibleNs(iteration); }
  absl::Status drain() override { return on_.drain(); }
  absl::Status reserveSwap(uint64_t bytes) override { return on_.reserveSwap(bytes); }
  absl::Span<std::byte> swapMemory() override { return on_.swapMemory(); }
  absl::StatusOr<uint64_t> copyBeside(absl::Span<const core::BlockCopy> copies) override {
    return on_.copyBeside(copies);
  }
  absl::StatusOr<bool> copied(uint64_t ticket) override { return on_.copied(ticket); }
  absl::Status awaitCopied(uint64_t ticket) override { return on_.awaitCopied(ticket); }
  absl::StatusOr<std::optional<core::WrongNumber>> findWrongNumber(uint32_t variant,
                                                                   const core::LaunchInUse &inUse) override {
    return on_.findWrongNumber(variant, inUse);
  }
  int64_t nowNs() const override { return on_.nowNs(); }
  absl::Status waitUntil(int64_t ns) override { return on_.waitUntil(ns); }
  core::DeviceCounters counters() const override { return on_.counters(); }
  absl::Span<const core::StepTime> lastTimes() const override { return on_.lastTimes(); }

private:
  WatchedGroup &group_;
  const size_t index_;
  core::Device &on_;
  std::map<const core::Graph *, core::GraphKey> keys_;
};

WatchedGroup::WatchedGroup(Make make, std::unique_ptr<core::DeviceGroup> on)
    : make_(std::move(make)), on_(std::move(on)) {
  for (size_t i = 0; i < on_->size(); ++i) {
    watched_.push_back(std::make_unique<Watched>());
    watched_.back()->device = std::make_unique<WatchedDevice>(*this, i);
  }
}
WatchedGroup::~WatchedGroup() = default;

absl::StatusOr<std::unique_ptr<WatchedGroup>> WatchedGroup::of(const Make &make) {
  ASSIGN_OR_RETURN(on, make());
  return std::unique_ptr<WatchedGroup>(new WatchedGroup(make, std::move(on)));
}

core::Device &WatchedGroup::device(size_t index) { return *watched_[index]->device; }

// At the last launch, where time is real, once it has ended.
absl::Status WatchedGroup::look(size_t device) {
  Watched &watched = *watched_[device];
  if (std::exchange(watched.looked, true) || !on_->device(device).holdsData())
    return absl::OkStatus();
  RETURN_IF_ERROR(on_->device(device).drain());
  const absl::Span<const core::StepTime> times = on_->device(device).lastTimes();
  watched.launches.back().steps.assign(times.begin(), times.end());
  return absl::OkStatus();
}

void WatchedGroup::made(size_t device, const core::GraphKey &key, const core::LaunchInUse &inUse, int64_t ns) {
  Watched &watched = *watched_[device];
  if (watched.launches.size() == kIterations)
    return;
  made_.push_back({device, key, inUse, ns});
  if (key.transition)
    return;
  watched.launches.push_back({.key = key, .inUse = inUse, .madeNs = ns});
  watched.looked = false;
}

absl::StatusOr<std::vector<core::StepTime>> WatchedGroup::stepsOf(size_t device, size_t launch) {
  RETURN_IF_ERROR(look(device));
  if (on_->device(device).holdsData())
    return watched_[device]->launches[launch].steps;
  std::map<std::tuple<size_t, bool, uint32_t>, std::unique_ptr<core::Graph>> graphs; // outlive the devices
  ASSIGN_OR_RETURN(group, make_());
  for (size_t i = 0; i < watched_.size(); ++i)
    if (watched_[i]->plan != nullptr)
      RETURN_IF_ERROR(group->device(i).open(*watched_[i]->plan, watched_[i]->options));
  size_t before = launch + 1; // of that device, are still to be made
  for (const Made &made : made_) {
    if (made.device == device && before == 0)
      continue;
    std::unique_ptr<core::Graph> &graph = graphs[{made.device, made.key.transition, made.key.index}];
    if (!graph) {
      ASSIGN_OR_RETURN(built, group->device(made.device).build(made.key));
      graph = std::move(built);
      RETURN_IF_ERROR(group->device(made.device).upload(*graph));
    }
    RETURN_IF_ERROR(group->device(made.device).waitUntil(made.ns));
    RETURN_IF_ERROR(group->device(made.device).launch(*graph, made.inUse));
    before -= made.device == device && !made.key.transition ? 1 : 0;
  }
  RETURN_IF_ERROR(group->device(device).drain());
  const absl::Span<const core::StepTime> times = group->device(device).lastTimes();
  return std::vector<core::StepTime>(times.begin(), times.end());
}

} // namespace headrace::tools
