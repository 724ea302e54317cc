// SPDX-License-Identifier: Apache-2.0
#include "bench/run/DevicePeak.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/model/WeightLayout.h"

namespace headrace::bench {
namespace {

using Range = std::pair<uint64_t, uint64_t>; // [first, second)

uint64_t unionOf(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end());
  uint64_t bytes = 0, end = 0;
  for (const auto &[first, second] : ranges) {
    bytes += second - std::min(second, std::max(first, end));
    end = std::max(end, second);
  }
  return bytes;
}

} // namespace

DevicePeak devicePeak(const plan::Plan &plan, uint32_t index) {
  const plan::Placement &placement = plan.placements[index];
  DevicePeak peak;
  const auto padding = [](uint64_t bytes) { return model::alignUp(bytes) - bytes; };
  for (const plan::Extent &extent : placement.extents) {
    if (extent.space != plan::Space::Device)
      continue;
    const plan::BufferKind kind = plan.buffers[extent.buffer].kind;
    (kind == plan::BufferKind::Weight ? peak.weights
     : kind == plan::BufferKind::Io   ? peak.io
                                      : peak.caches) += extent.bytes;
    peak.padding += padding(extent.bytes);
  }
  std::vector<Range> slots, exact, padded;
  for (const plan::Slot &slot : placement.slots) {
    peak.slots += slot.bytes;
    peak.padding += padding(slot.bytes);
    slots.emplace_back(slot.address, slot.address + model::alignUp(slot.bytes));
  }
  exact = padded = slots;
  for (const plan::Schedule &schedule : plan.schedules)
    if (schedule.placement == index)
      for (const plan::Local &local : schedule.locals) {
        if (local.address == plan::kNowhere)
          continue;
        exact.emplace_back(local.address, local.address + local.buffer.bytes);
        padded.emplace_back(local.address, local.address + model::alignUp(local.buffer.bytes));
      }
  const uint64_t inSlots = unionOf(std::move(slots));
  peak.transients = unionOf(std::move(exact)) - inSlots;
  peak.padding += unionOf(std::move(padded)) - inSlots - peak.transients;
  return peak;
}

} // namespace headrace::bench
