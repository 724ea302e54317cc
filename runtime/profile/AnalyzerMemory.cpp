// SPDX-License-Identifier: Apache-2.0
#include "runtime/profile/AnalyzerMemory.h"
#include "runtime/plan/value/Mirrors.h"

#include <algorithm>
#include <vector>

namespace headrace::profile {
namespace {

constexpr uint64_t kZeroBytes = uint64_t{16} << 20; // written at once

absl::Status zero(core::Device &device, uint64_t address, uint64_t bytes, const std::vector<std::byte> &zeros) {
  for (uint64_t at = 0; at < bytes; at += kZeroBytes)
    if (absl::Status status =
            device.writeDevice(address + at, absl::MakeConstSpan(zeros).first(std::min(kZeroBytes, bytes - at)));
        !status.ok())
      return status;
  return absl::OkStatus();
}

} // namespace

absl::Status fillMemory(const plan::Plan &plan, core::Device &device, const model::WeightSource *weights,
                        const std::function<void(uint64_t done, uint64_t total)> &progress) {
  if (!device.holdsData())
    return absl::OkStatus();
  if (weights == nullptr)
    return absl::InvalidArgumentError("the analyzer was given no weights for a device that holds data");
  const model::WeightLayout layout = model::layoutWeights(plan.model);
  const std::vector<std::byte> zeros(kZeroBytes);
  std::vector<std::byte> scratch; // a unit
  const auto each = [&device](int64_t count, absl::FunctionRef<void(int64_t)> f) { device.each(count, f); };
  uint64_t done = 0;
  for (const plan::Extent &extent : plan.placements[0].extents) {
    absl::Status status;
    const plan::Buffer &buffer = plan.buffers[extent.buffer];
    if (buffer.kind == plan::BufferKind::Weight) {
      const model::Unit &unit = layout.units[buffer.index];
      scratch.resize(unit.bytes);
      status = weights->fillBy(each, unit, plan::orderOf(device.matrixOrder()), absl::MakeSpan(scratch));
      if (status.ok())
        status =
            device.writeDevice(extent.address, absl::MakeConstSpan(scratch).subspan(extent.bufferOffset, extent.bytes));
      done += extent.bytes;
      if (progress)
        progress(done, layout.totalBytes());
    } else if (buffer.kind == plan::BufferKind::Kv || buffer.kind == plan::BufferKind::Act) {
      status = zero(device, extent.address, extent.bytes, zeros);
    }
    if (!status.ok())
      return status;
  }
  return absl::OkStatus();
}

} // namespace headrace::profile
