// SPDX-License-Identifier: Apache-2.0
#include "compiler/evaluate/ElasticKv.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::compiler {
namespace {

class KvGrowth {
public:
  KvGrowth(int64_t mostBlocks, plan::Plan &plan) : mostBlocks_(mostBlocks), plan_(plan) {
    base_ = std::numeric_limits<uint64_t>::max();
    for (const plan::Extent &e : plan.placements[0].extents)
      if (plan.buffers[e.buffer].kind == plan::BufferKind::Kv) {
        base_ = std::min(base_, e.address);
        end_ = std::max(end_, e.address + e.bytes);
      }
  }

  void run() {
    std::vector<uint64_t> lifts;
    std::vector<int64_t> blocks;
    for (uint32_t p = 0; p < plan_.placements.size(); ++p) {
      lifts.push_back(liftOf(p));
      blocks.push_back(std::min(mostBlocks_, static_cast<int64_t>((end_ - base_ + lifts[p]) / plan_.kvStride())));
    }
    if (const int64_t most = *std::max_element(blocks.begin(), blocks.end()); most > plan_.kvBlocks)
      plan_.kvBlocks = most;
    else
      return;
    for (uint32_t p = 0; p < plan_.placements.size(); ++p) {
      plan_.placements[p].kvBlocks = blocks[p];
      lift(p, lifts[p]);
    }
    interleaveKv(plan_);
  }

private:
  uint64_t lowestHome(uint32_t placement) const {
    uint64_t lowest = plan_.arenaBytes;
    for (const plan::Extent &e : plan_.placements[placement].extents)
      if (e.space == plan::Space::Device && e.address >= end_)
        lowest = std::min(lowest, e.address);
    return lowest;
  }

  // How far what lies between caches and homes can move up: to the placement's lowest home.
  uint64_t liftOf(uint32_t placement) const {
    uint64_t top = end_;
    for (const plan::Slot &slot : plan_.placements[placement].slots)
      top = std::max(top, slot.address + slot.bytes);
    for (const plan::Schedule &schedule : plan_.schedules)
      if (schedule.placement == placement)
        for (const plan::Local &local : schedule.locals)
          top = std::max(top, local.address + local.buffer.bytes);
    const uint64_t lowest = lowestHome(placement);
    return lowest > top ? (lowest - top) / model::kAlign * model::kAlign : 0;
  }

  void lift(uint32_t placement, uint64_t by) {
    const uint64_t lowest = lowestHome(placement); // what stays, from there on
    for (plan::Slot &slot : plan_.placements[placement].slots)
      slot.address += by;
    for (plan::State &state : plan_.states)
      if (state.placement == placement)
        for (plan::Content &content : state.contents)
          content.address += by;
    for (plan::Schedule &schedule : plan_.schedules) {
      if (schedule.placement != placement)
        continue;
      for (plan::Local &local : schedule.locals)
        local.address += by;
      for (plan::Operand &operand : schedule.operands)
        if (operand.space == plan::Space::Device && operand.address >= end_ && operand.address < lowest)
          operand.address += by;
    }
  }

  const int64_t mostBlocks_;
  plan::Plan &plan_;
  uint64_t base_ = 0, end_ = 0; // of the caches, one behind the other
};

} // namespace

void interleaveKv(plan::Plan &plan) {
  const uint64_t block = plan.kvBlockBytes();
  std::vector<uint64_t> bytes; // at home on the device, by placement
  uint64_t base = std::numeric_limits<uint64_t>::max();
  for (const plan::Placement &placement : plan.placements) {
    uint64_t end = static_cast<uint64_t>(placement.kvBlocks) * block;
    for (const plan::Extent &e : placement.extents)
      if (plan.buffers[e.buffer].kind == plan::BufferKind::Kv) {
        if (e.space == plan::Space::Device)
          base = std::min(base, e.address);
        else
          end = e.bufferOffset;
      }
    bytes.push_back(end);
  }
  const auto place = [&](auto &range, uint32_t placement) {
    range.interleaved = true;
    range.bytes = bytes[placement];
    range.address = base + plan.cacheNumber(plan.buffers[range.buffer]) * block;
  };
  for (plan::Buffer &buffer : plan.buffers)
    if (buffer.kind == plan::BufferKind::Kv)
      buffer.bytes = model::alignUp(static_cast<uint64_t>(plan.kvBlocks) * block);
  for (uint32_t p = 0; p < plan.placements.size(); ++p)
    for (plan::Extent &extent : plan.placements[p].extents)
      if (plan.buffers[extent.buffer].kind == plan::BufferKind::Kv && extent.space == plan::Space::Device)
        place(extent, p);
  for (plan::Schedule &schedule : plan.schedules)
    for (plan::Operand &operand : schedule.operands)
      if (operand.arg == plan::Arg::Kv)
        place(operand, schedule.placement);
}

void growKv(int64_t mostBlocks, plan::Plan &plan) { KvGrowth(mostBlocks, plan).run(); }

} // namespace headrace::compiler
