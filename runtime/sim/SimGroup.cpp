// SPDX-License-Identifier: Apache-2.0
#include "runtime/sim/SimGroup.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/sim/BusPlayer.h"
#include "runtime/sim/SimDeviceBase.h"

namespace headrace::sim {
namespace {

class GroupGraph final : public SimGraph {
public:
  explicit GroupGraph(TimedSchedule schedule) : schedule(std::move(schedule)) {}
  const TimedSchedule schedule;
};

class GroupDevice final : public SimDeviceBase {
public:
  GroupDevice(BusPlayer &player, size_t index) : player_(player), index_(index) {}

  absl::Status open(const plan::Plan &plan, const core::DeviceOptions &options) override {
    if (options.pricing != core::Pricing::Bucket)
      return absl::InvalidArgumentError("sim: a device of a group takes what its plan says of the bucket, not of the "
                                        "rows that run: bounds of a fleet count on it");
    RETURN_IF_ERROR(drain());
    RETURN_IF_ERROR(SimDeviceBase::open(plan, options));
    player_.open(index_, mostSteps(), options.trace, sharing());
    return absl::OkStatus();
  }
  absl::Status drain() override { return player_.passUntilIdle(index_) ? absl::OkStatus() : stuck(); }
  int64_t nowNs() const override { return player_.nowNs(); }
  absl::Status waitUntil(int64_t ns) override {
    player_.passUntilAny({}, ns);
    return absl::OkStatus();
  }
  core::DeviceCounters counters() const override {
    core::DeviceCounters counters = SimDeviceBase::counters();
    counters.stallNs = player_.stallNs(index_);
    return counters;
  }
  absl::Span<const core::StepTime> lastTimes() const override { return player_.trace(index_); }

  // When the tokens of an iteration are visible. FailedPrecondition if it was not launched, OutOfRange if they are
  // gone.
  absl::StatusOr<const int64_t *> visible(uint64_t iteration) const {
    RETURN_IF_ERROR(core::checkAwaited("sim", iteration, iterations()));
    return &times(iteration).visibleNs;
  }

private:
  std::unique_ptr<SimGraph> prepare(const core::GraphSource &source, std::vector<uint64_t> durationsNs,
                                    const std::vector<SizedTime> &sized) override {
    return std::make_unique<GroupGraph>(TimedSchedule(*source.schedule, durationsNs,
                                                      linkRates(plan()->hardware, options().linkBandwidth), sized,
                                                      plan()->hardware.kind == model::DeviceKind::Host));
  }
  void play(SimGraph &graph, const Launch &launch) override {
    player_.launch(index_, static_cast<const GroupGraph &>(graph).schedule, launch.times, launch.inUse);
  }
  absl::Status passTo(const int64_t &moment) override { return player_.passUntil(moment) ? absl::OkStatus() : stuck(); }
  uint64_t playBeside(absl::Span<const core::BlockCopy> copies, const LinkRates &link) override {
    return player_.copyBeside(index_, copies, link);
  }
  uint64_t ticketsGiven() const override { return player_.beside(index_).given(); }
  const int64_t &besideEndNs(uint64_t ticket) override { return player_.beside(index_).endNs(ticket); }
  absl::Status passToBeside(uint64_t ticket) override { return passTo(besideEndNs(ticket)); }
  static absl::Status stuck() {
    return absl::InternalError("sim: steps of a launch wait for each other: the plan's edges form a cycle");
  }

  BusPlayer &player_;
  const size_t index_;
};

class SimGroup final : public core::DeviceGroup {
public:
  SimGroup(size_t devices, const core::PathLimits &bus) : player_(devices, bus), moments_(devices) {
    devices_.reserve(devices);
    for (size_t i = 0; i < devices; ++i)
      devices_.emplace_back(player_, i);
  }
  size_t size() const override { return devices_.size(); }
  core::Device &device(size_t index) override { return devices_[index]; }

  absl::StatusOr<size_t> waitAny(absl::Span<const uint64_t> awaited, int64_t untilNs) override {
    RETURN_IF_ERROR(core::checkWait("sim", awaited, size(), untilNs));
    for (size_t i = 0; i < awaited.size(); ++i) {
      moments_[i] = nullptr;
      if (awaited[i] == 0)
        continue;
      ASSIGN_OR_RETURN(visible, devices_[i].visible(awaited[i]));
      moments_[i] = visible;
    }
    return player_.passUntilAny(moments_, untilNs);
  }
  int64_t nowNs() const override { return player_.nowNs(); }

  absl::Status setBusBandwidth(double bytesPerSecond) override {
    RETURN_IF_ERROR(core::checkBandwidth("sim", bytesPerSecond));
    player_.setBusBandwidth(bytesPerSecond);
    return absl::OkStatus();
  }
  double sampleBusBandwidth() override { return player_.sampleBusBandwidth(); }

private:
  BusPlayer player_;
  std::vector<GroupDevice> devices_;
  std::vector<const int64_t *> moments_; // scratch of waitAny()
};

} // namespace

absl::StatusOr<std::unique_ptr<core::DeviceGroup>> makeSimGroup(size_t devices, const core::PathLimits &bus) {
  if (devices == 0)
    return absl::InvalidArgumentError("sim: a group of no devices");
  for (const double limit : {bus.h2d, bus.d2h, bus.both})
    if (!(limit > 0))
      return absl::InvalidArgumentError(
          absl::StrCat("sim: bus bandwidth ", limit, ", expected bytes per second above zero"));
  return std::make_unique<SimGroup>(devices, bus);
}

} // namespace headrace::sim
