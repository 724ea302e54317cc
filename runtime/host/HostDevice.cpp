// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/HostDevice.h"

#include "kernels/Kernels.h"
#include "runtime/host/LaneDevice.h"

namespace headrace::host {
namespace {

// Before the device and after it, as bases are.
struct OwnThreads {
  explicit OwnThreads(int threads) : pool(1, threads) {}
  TransferThread transfer{1, core::PathLimits{}};
  threads::ThreadPool pool;
};

// With a transfer thread and helpers of its own, and no bus but its link.
class HostDevice final : private OwnThreads, public LaneDevice {
public:
  explicit HostDevice(const HostOptions &options)
      : OwnThreads(options.threads), LaneDevice(options, transfer, pool, 0, nullptr) {}
};

} // namespace

std::unique_ptr<core::Device> makeHostDevice(const HostOptions &options) {
  return std::make_unique<HostDevice>(options);
}

} // namespace headrace::host
