// SPDX-License-Identifier: Apache-2.0
//
// A group of devices as it is, which keeps when each launch of its first iterations was made, when its tokens were
// there and what each of its steps took: what a picture of a model's stages is drawn from (StagesChart.h).
//
//   Stages -> WatchedGroup -> device 0: launch 0, 1, 2, ...       of a stage's launches the n-th is the n-th iteration
//                          -> device 1:    launch 0, 1, ...
//
// A device keeps the times of its last launch once that has ended. Where time is real, the launch before is waited for
// at each launch, as the device does by itself. In virtual time waiting would hold up the caller, which has other
// devices to serve: there launches are made again at their times, on a group of its own, up to the one that is asked
// for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/core/DeviceGroup.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::tools {

class WatchedGroup final : public core::DeviceGroup {
public:
  static constexpr uint64_t kIterations = 64; // are kept; the others run as if nobody watched

  using Make = std::function<absl::StatusOr<std::unique_ptr<core::DeviceGroup>>()>;
  // Of what `make` makes.
  static absl::StatusOr<std::unique_ptr<WatchedGroup>> of(const Make &make);

  struct Launch {
    core::GraphKey key;
    core::LaunchInUse inUse;
    int64_t madeNs = 0, visibleNs = -1; // tokens; -1: not awaited
    std::vector<core::StepTime> steps;  // where time is real
  };
  // Of variants, the first first. Transitions are not among them.
  const std::vector<Launch> &launches(size_t device) const { return watched_[device]->launches; }
  // Start and end of each step of a launch, on the group's clock. Once all have ended.
  absl::StatusOr<std::vector<core::StepTime>> stepsOf(size_t device, size_t launch);

  size_t size() const override { return on_->size(); }
  core::Device &device(size_t index) override;
  absl::StatusOr<size_t> waitAny(absl::Span<const uint64_t> awaited, int64_t untilNs) override {
    return on_->waitAny(awaited, untilNs);
  }
  int64_t nowNs() const override { return on_->nowNs(); }
  absl::Status setBusBandwidth(double bytesPerSecond) override { return on_->setBusBandwidth(bytesPerSecond); }
  double sampleBusBandwidth() override { return on_->sampleBusBandwidth(); }
  ~WatchedGroup() override;

private:
  class WatchedDevice;
  struct Watched {
    std::unique_ptr<WatchedDevice> device;
    const plan::Plan *plan = nullptr;
    core::DeviceOptions options;
    std::vector<Launch> launches;
    bool looked = true; // at the last of them
  };
  struct Made { // a launch of any device, transitions, too, in the order in which they were made
    size_t device = 0;
    core::GraphKey key;
    core::LaunchInUse inUse;
    int64_t ns = 0;
  };

  WatchedGroup(Make make, std::unique_ptr<core::DeviceGroup> on);
  absl::Status look(size_t device);
  void made(size_t device, const core::GraphKey &key, const core::LaunchInUse &inUse, int64_t ns);

  const Make make_;
  const std::unique_ptr<core::DeviceGroup> on_;
  std::vector<std::unique_ptr<Watched>> watched_;
  std::vector<Made> made_;
};

} // namespace headrace::tools
