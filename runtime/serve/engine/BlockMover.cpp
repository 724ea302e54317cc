// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/engine/BlockMover.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::serve {

BlockMover::BlockMover(const plan::Plan &plan)
    : plan_(plan), layers_(plan.model->layers), block_(plan.kvBlockBytes()),
      idBytes_(static_cast<uint64_t>(plan.blockTokens) * sizeof(int32_t)), row_(idBytes_) {
  const uint32_t history = plan.ioBuffer(plan::Io::History);
  idsRange_ = plan.ioRangeBytes(plan.buffers[history]);
  for (uint32_t p = 0; p < plan.placements.size(); ++p) {
    layouts_.emplace_back(plan, p);
    ids_.push_back(0);
    for (const plan::Extent &extent : plan.placements[p].extents)
      if (extent.buffer == history)
        ids_.back() = extent.address;
  }
}

absl::StatusOr<uint64_t> BlockMover::move(uint32_t placement, uint32_t miniBatch, int32_t from, int32_t to,
                                          core::Device &device) {
  const core::KvLayout &layout = layouts_[placement];
  const auto ids = [&](int32_t block) {
    return ids_[placement] + miniBatch * idsRange_ + static_cast<uint64_t>(block) * idBytes_;
  };
  uint64_t linkBytes = 0;
  for (int64_t layer = 0; layer < layers_; ++layer) {
    const core::KvPlaces source = layout.of(layer, from, miniBatch), target = layout.of(layer, to, miniBatch);
    if (source.space != plan::Space::Host)
      return absl::InvalidArgumentError(
          absl::StrCat("KV block ", from, " is at home on the device, expected one of the host"));
    const bool onDevice = target.space == plan::Space::Device;
    linkBytes += onDevice ? block_ : 0;
    if (!device.holdsData())
      continue;
    const absl::Span<std::byte> slab = device.hostSlab(), bytes = slab.subspan(source.address, block_);
    if (onDevice)
      RETURN_IF_ERROR(device.writeDevice(target.address, bytes));
    if (!onDevice || target.mirrored)
      std::copy(bytes.begin(), bytes.end(),
                slab.begin() + static_cast<std::ptrdiff_t>(onDevice ? target.mirror : target.address));
  }
  // Without data there are none to read, and the device is told all the same.
  if (const absl::Status read = device.readDevice(ids(from), absl::MakeSpan(row_)); device.holdsData())
    RETURN_IF_ERROR(read);
  RETURN_IF_ERROR(device.writeDevice(ids(to), row_));
  if (!device.holdsData() && linkBytes > 0) {
    const model::Hardware &hardware = plan_.hardware;
    const double seconds = static_cast<double>(linkBytes) / (hardware.h2dBandwidth * hardware.linkEfficiency) +
                           static_cast<double>(layers_) * hardware.copyLatency;
    RETURN_IF_ERROR(device.waitUntil(device.nowNs() + static_cast<int64_t>(seconds * 1e9)));
  }
  return linkBytes;
}

} // namespace headrace::serve
