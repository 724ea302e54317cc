// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/HostDevice.h"

#include "kernels/Kernels.h"
#include "runtime/host/LaneDevice.h"

namespace headrace::host {
namespace {

// Before the device and after it, as bases are.
struct OwnTransferThread {
  TransferThread transfer{1, core::PathLimits{}};
};

// With a transfer thread of its own, and no bus but its link.
class HostDevice final : private OwnTransferThread, public LaneDevice {
public:
  explicit HostDevice(const HostOptions &options) : LaneDevice(options, transfer, 0, nullptr) {}
};

} // namespace

std::unique_ptr<core::Device> makeHostDevice(const HostOptions &options) {
  return std::make_unique<HostDevice>(options);
}

} // namespace headrace::host
