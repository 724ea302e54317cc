// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/CudaGroup.h"

#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/core/LaunchChecks.h"
#include "runtime/cuda/CudaDeviceImpl.h"

namespace headrace::cuda {
namespace {

class CudaGroup final : public core::DeviceGroup {
public:
  explicit CudaGroup(std::vector<std::unique_ptr<CudaDevice>> devices)
      : devices_(std::move(devices)), lateNs_(devices_.size(), 0) {}
  size_t size() const override { return devices_.size(); }
  core::Device &device(size_t index) override { return *devices_[index]; }

  absl::StatusOr<size_t> waitAny(absl::Span<const uint64_t> awaited, int64_t untilNs) override {
    RETURN_IF_ERROR(core::checkWait("cuda group", awaited, size(), untilNs));
    for (size_t i = 0; i < awaited.size(); ++i)
      if (awaited[i] != 0) {
        RETURN_IF_ERROR(about(i, devices_[i]->checkAwaited(awaited[i])));
        lateNs_[i] = devices_[i]->lateAfterNs(awaited[i]);
      }
    const NvtxRange range(awaiting_);
    WaitPace pace(monotonicNs());
    for (;;) {
      const int64_t now = monotonicNs();
      if (const size_t first = firstVisible(awaited); first != size() || now >= untilNs)
        return first;
      sayLate(awaited, pace.waitedNs(now));
      if (pace.asks(now))
        for (size_t i = 0; i < awaited.size(); ++i)
          if (awaited[i] != 0)
            RETURN_IF_ERROR(about(i, devices_[i]->look(awaited[i])));
      pace.pause(now);
    }
  }
  int64_t nowNs() const override { return monotonicNs(); }

  absl::Status setBusBandwidth(double bytesPerSecond) override {
    RETURN_IF_ERROR(core::checkBandwidth("cuda group", bytesPerSecond));
    return absl::UnimplementedError("cuda group: the bus is the machine's own: its bandwidth cannot be set");
  }
  double sampleBusBandwidth() override { return 0; }

private:
  absl::Status about(size_t device, const absl::Status &status) const {
    return status.ok() ? status
                       : absl::Status(status.code(), absl::StrCat("GPU ", devices_[device]->gpu(), ": ",
                                                                  std::string(status.message())));
  }
  // Of the awaited ones whose tokens can be read, the device whose came first; size() if there is none.
  size_t firstVisible(absl::Span<const uint64_t> awaited) const {
    size_t first = size();
    int64_t firstNs = core::kForeverNs;
    for (size_t i = 0; i < awaited.size(); ++i) {
      const int64_t visibleNs = awaited[i] == 0 ? -1 : devices_[i]->tokensVisibleNs(awaited[i]);
      if (visibleNs >= 0 && visibleNs < firstNs) {
        first = i;
        firstNs = visibleNs;
      }
    }
    return first;
  }
  void sayLate(absl::Span<const uint64_t> awaited, int64_t waitedNs) {
    for (size_t i = 0; i < awaited.size(); ++i)
      if (awaited[i] != 0 && lateNs_[i] > 0 && waitedNs >= lateNs_[i])
        devices_[i]->sayLate(awaited[i], std::exchange(lateNs_[i], 0));
  }

  const NvtxName awaiting_{"await tokens"};
  std::vector<std::unique_ptr<CudaDevice>> devices_;
  std::vector<int64_t> lateNs_; // scratch of waitAny()
};

} // namespace

absl::StatusOr<std::unique_ptr<core::DeviceGroup>> makeCudaGroup(absl::Span<const CudaOptions> devices) {
  if (devices.empty())
    return absl::InvalidArgumentError("cuda group: no devices");
  std::set<int> gpus;
  for (const CudaOptions &options : devices)
    if (!gpus.insert(options.index).second)
      return absl::InvalidArgumentError(
          absl::StrCat("cuda group: GPU ", options.index, " twice: expected another GPU for each device"));
  std::vector<std::unique_ptr<CudaDevice>> made;
  for (const CudaOptions &options : devices) {
    ASSIGN_OR_RETURN(device, CudaDevice::make(options));
    made.push_back(std::move(device));
  }
  return std::make_unique<CudaGroup>(std::move(made));
}

} // namespace headrace::cuda
