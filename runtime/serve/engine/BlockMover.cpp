// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/engine/BlockMover.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::serve {

BlockMover::BlockMover(const plan::Plan &plan)
    : plan_(plan), layers_(plan.model->layers), row_(static_cast<uint64_t>(plan.blockTokens) * sizeof(int32_t)) {
  for (uint32_t p = 0; p < plan.placements.size(); ++p)
    layouts_.emplace_back(plan, p);
  if (plan.actBlocks == 0)
    return;
  acts_.resize(plan.kvCaches());
  for (const plan::Extent &extent : plan.placements[0].extents) // as in all placements
    if (const plan::Buffer &buffer = plan.buffers[extent.buffer]; buffer.kind == plan::BufferKind::Act) {
      if (extent.space != plan::Space::Host) {
        acts_.clear();
        return;
      }
      acts_[plan.cacheNumber(buffer)] = extent.address;
    }
}

absl::StatusOr<uint64_t> BlockMover::move(uint32_t placement, uint32_t miniBatch, int32_t from, int32_t to,
                                          core::Device &device) {
  const core::KvLayout &layout = layouts_[placement];
  const uint64_t block = layout.blockBytes(), actBlock = plan_.actBlockBytes();
  const bool act = from >= plan_.kvBlocks;
  uint64_t linkBytes = 0;
  for (int64_t layer = 0; layer < layers_; ++layer) {
    if (act) {
      const uint64_t first = acts_[static_cast<uint64_t>(layer) * plan_.miniBatches + miniBatch];
      const auto at = [&](int32_t number) { return first + static_cast<uint64_t>(number - plan_.kvBlocks) * actBlock; };
      if (device.holdsData())
        std::copy_n(device.hostSlab().begin() + static_cast<std::ptrdiff_t>(at(from)), actBlock,
                    device.hostSlab().begin() + static_cast<std::ptrdiff_t>(at(to)));
      continue;
    }
    const core::KvPlaces source = layout.of(layer, from, miniBatch), target = layout.of(layer, to, miniBatch);
    if (source.space != plan::Space::Host)
      return absl::InvalidArgumentError(
          absl::StrCat("KV block ", from, " is at home on the device, expected one of the host"));
    const bool onDevice = target.space == plan::Space::Device;
    linkBytes += onDevice ? block : 0;
    if (!device.holdsData())
      continue;
    const absl::Span<std::byte> slab = device.hostSlab(), bytes = slab.subspan(source.address, block);
    if (onDevice)
      RETURN_IF_ERROR(device.writeDevice(target.address, bytes));
    if (!onDevice || target.mirrored)
      std::copy(bytes.begin(), bytes.end(),
                slab.begin() + static_cast<std::ptrdiff_t>(onDevice ? target.mirror : target.address));
  }
  // Without data there are none to read, and the device is told all the same.
  if (const absl::Status read = device.readDevice(layout.ids(from, miniBatch), absl::MakeSpan(row_));
      device.holdsData())
    RETURN_IF_ERROR(read);
  RETURN_IF_ERROR(device.writeDevice(layout.ids(to, miniBatch), row_));
  if (!device.holdsData() && linkBytes > 0) {
    const model::Hardware &hardware = plan_.hardware;
    const double seconds = static_cast<double>(linkBytes) / (hardware.h2dBandwidth * hardware.linkEfficiency) +
                           static_cast<double>(layers_) * hardware.copyLatency;
    RETURN_IF_ERROR(device.waitUntil(device.nowNs() + static_cast<int64_t>(seconds * 1e9)));
  }
  return linkBytes;
}

} // namespace headrace::serve
