// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/HostGroup.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/Kernels.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/host/LaneDevice.h"

namespace headrace::host {
namespace {

class HostGroup final : public core::DeviceGroup {
public:
  HostGroup(absl::Span<const HostOptions> devices, const core::PathLimits &bus)
      : transfer_(devices.size(), bus), pool_(devices.size(), mostThreads(devices)) {
    for (size_t i = 0; i < devices.size(); ++i)
      devices_.push_back(std::make_unique<LaneDevice>(devices[i], transfer_, pool_, i, &bell_));
    wants_.reserve(devices.size());
  }
  size_t size() const override { return devices_.size(); }
  core::Device &device(size_t index) override { return *devices_[index]; }

  absl::StatusOr<size_t> waitAny(absl::Span<const uint64_t> awaited, int64_t untilNs) override {
    RETURN_IF_ERROR(core::checkWait("host group", awaited, size(), untilNs));
    wants_.clear();
    for (size_t i = 0; i < awaited.size(); ++i) {
      if (awaited[i] == 0)
        continue;
      ASSIGN_OR_RETURN(want, devices_[i]->published(awaited[i]));
      wants_.push_back(want);
    }
    for (;;) {
      const int64_t now = threads::monotonicNs();
      if (const size_t first = firstPublished(awaited); first != size() || now >= untilNs)
        return first;
      Signals::waitAny(Thread::Caller, bell_, wants_, untilNs, /*spins=*/false);
    }
  }
  int64_t nowNs() const override { return threads::monotonicNs(); }

  absl::Status setBusBandwidth(double bytesPerSecond) override {
    RETURN_IF_ERROR(core::checkBandwidth("host group", bytesPerSecond));
    transfer_.setBusBandwidth(bytesPerSecond);
    return absl::OkStatus();
  }
  double sampleBusBandwidth() override { return transfer_.sampleBusBandwidth(); }

private:
  static int mostThreads(absl::Span<const HostOptions> devices) {
    const auto fewer = [](const HostOptions &a, const HostOptions &b) { return a.threads < b.threads; };
    return std::max_element(devices.begin(), devices.end(), fewer)->threads;
  }

  // Of the awaited ones whose tokens can be read, the device whose came first; size() if there is none.
  size_t firstPublished(absl::Span<const uint64_t> awaited) const {
    size_t first = size();
    int64_t firstNs = core::kForeverNs;
    size_t next = 0;
    for (size_t i = 0; i < awaited.size(); ++i) {
      if (awaited[i] == 0)
        continue;
      const Signals::WantOf &want = wants_[next++];
      if (!want.signals->reached(want.want))
        continue;
      const int64_t visibleNs = devices_[i]->tokensVisibleNs(awaited[i]);
      if (visibleNs < firstNs) {
        first = i;
        firstNs = visibleNs;
      }
    }
    return first;
  }

  Bell bell_; // the caller's
  TransferThread transfer_;
  threads::ThreadPool pool_;
  std::vector<std::unique_ptr<LaneDevice>> devices_;
  std::vector<Signals::WantOf> wants_; // scratch of waitAny()
};

} // namespace

absl::StatusOr<std::unique_ptr<core::DeviceGroup>> makeHostGroup(absl::Span<const HostOptions> devices,
                                                                 const core::PathLimits &bus) {
  if (devices.empty())
    return absl::InvalidArgumentError("host group: no devices");
  for (const double limit : {bus.h2d, bus.d2h, bus.both})
    if (!(limit > 0))
      return absl::InvalidArgumentError(
          absl::StrCat("host group: bus bandwidth ", limit, ", expected bytes per second above zero"));
  return std::make_unique<HostGroup>(devices, bus);
}

absl::StatusOr<std::unique_ptr<core::DeviceGroup>> makeHostGroup(absl::Span<const HostOptions> devices,
                                                                 double busBandwidth) {
  return makeHostGroup(devices, core::PathLimits{.h2d = busBandwidth});
}

} // namespace headrace::host
