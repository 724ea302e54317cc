// SPDX-License-Identifier: Apache-2.0
#include "compiler/emit/ElasticKv.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::compiler {
namespace {

uint64_t up(uint64_t bytes, uint64_t page) { return (bytes + page - 1) / page * page; }

class KvGrowth {
public:
  KvGrowth(uint64_t pageBytes, int64_t mostBlocks, plan::Plan &plan)
      : page_(pageBytes), mostBlocks_(mostBlocks), plan_(plan), layers_(static_cast<size_t>(plan.model->layers)),
        ownBytes_(up(plan.buffers[plan.kvBuffer(0)].bytes, pageBytes)), arena_(up(plan.arenaBytes, pageBytes)) {}

  void run() {
    if (arena_ > plan_.deviceMemory || mostBlocks_ <= plan_.kvBlocks)
      return;
    findFreePages();
    std::vector<int64_t> blocks;
    for (size_t p = 0; p < plan_.placements.size(); ++p)
      blocks.push_back(blocksOf(p));
    const int64_t most = *std::max_element(blocks.begin(), blocks.end());
    if (most <= plan_.kvBlocks)
      return;
    for (size_t p = 0; p < plan_.placements.size(); ++p)
      plan_.placements[p].kvBlocks = blocks[p];
    plan_.kvBlocks = most;
    plan_.pageBytes = page_;
    plan_.arenaBytes = arena_;
    moveCaches();
  }

private:
  // Pages of the arena that the placement with the most free pages has nothing in, in the order of their use.
  void findFreePages() {
    const size_t pages = arena_ / page_;
    free_.assign(plan_.placements.size(), std::vector<bool>(pages, true));
    const auto take = [&](size_t placement, uint64_t address, uint64_t bytes) {
      for (uint64_t i = address / page_; i < up(address + bytes, page_) / page_; ++i)
        free_[placement][i] = false;
    };
    for (size_t p = 0; p < plan_.placements.size(); ++p) {
      for (const plan::Extent &e : plan_.placements[p].extents)
        if (e.space == plan::Space::Device)
          take(p, e.address, plan_.buffers[e.buffer].kind == plan::BufferKind::Kv ? ownBytes_ : e.bytes);
      for (const plan::Slot &slot : plan_.placements[p].slots)
        take(p, slot.address, slot.bytes);
    }
    for (const plan::Schedule &schedule : plan_.schedules)
      for (const plan::Local &local : schedule.locals)
        take(schedule.placement, local.address, local.buffer.bytes);
    std::vector<size_t> placements(free_.size()), count;
    std::iota(placements.begin(), placements.end(), 0);
    for (const std::vector<bool> &free : free_)
      count.push_back(static_cast<size_t>(std::count(free.begin(), free.end(), true)));
    std::stable_sort(placements.begin(), placements.end(), [&](size_t a, size_t b) { return count[a] < count[b]; });
    // From which of the placements on, in that order, a page is free in all.
    std::vector<size_t> from(pages, placements.size());
    for (uint32_t i = 0; i < pages; ++i) {
      while (from[i] > 0 && free_[placements[from[i] - 1]][i])
        --from[i];
      if (from[i] < placements.size())
        order_.push_back(i);
    }
    std::stable_sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) { return from[a] < from[b]; });
    // The n-th page of each layer beyond its own: order_[n * layers .. (n + 1) * layers).
    const uint64_t wanted = up(static_cast<uint64_t>(mostBlocks_) * plan_.kvBlockBytes(), page_);
    const uint64_t more = wanted > ownBytes_ ? (wanted - ownBytes_) / page_ : 0;
    order_.resize(std::min<uint64_t>(order_.size() / layers_, more) * layers_);
  }

  // Those in the caches' own pages and in the pages up to the first that the placement has something in.
  int64_t blocksOf(size_t placement) const {
    const auto taken = std::find_if(order_.begin(), order_.end(), [&](uint32_t i) { return !free_[placement][i]; });
    const uint64_t pages = static_cast<uint64_t>(taken - order_.begin()) / layers_;
    return std::min(mostBlocks_, static_cast<int64_t>((ownBytes_ + pages * page_) / plan_.kvBlockBytes()));
  }

  // One behind the other after the arena, a page that is mapped to nothing before each.
  void moveCaches() {
    const uint64_t bytes = model::alignUp(static_cast<uint64_t>(plan_.kvBlocks) * plan_.kvBlockBytes());
    const uint64_t more = up(bytes, page_) > ownBytes_ ? (up(bytes, page_) - ownBytes_) / page_ : 0;
    uint64_t address = arena_;
    for (size_t layer = 0; layer < layers_; ++layer) {
      address += page_;
      const uint32_t buffer = plan_.kvBuffer(static_cast<int64_t>(layer));
      map(address, plan_.placements[0].extents[buffer].address, std::min(ownBytes_, up(bytes, page_)));
      for (uint64_t n = 0; n < more; ++n)
        map(address + ownBytes_ + n * page_, order_[n * layers_ + layer] * page_, page_);
      plan_.buffers[buffer].bytes = bytes;
      for (plan::Placement &placement : plan_.placements) {
        placement.extents[buffer].bytes = bytes;
        placement.extents[buffer].address = address;
      }
      for (plan::Schedule &schedule : plan_.schedules)
        for (plan::Operand &operand : schedule.operands)
          if (operand.buffer == buffer) {
            operand.bytes = bytes;
            operand.address = address;
          }
      address += up(bytes, page_);
    }
  }

  void map(uint64_t address, uint64_t arenaAddress, uint64_t bytes) {
    if (!plan_.aliases.empty())
      if (plan::Alias &last = plan_.aliases.back();
          last.address + last.bytes == address && last.arenaAddress + last.bytes == arenaAddress) {
        last.bytes += bytes;
        return;
      }
    plan_.aliases.push_back({address, arenaAddress, bytes});
  }

  const uint64_t page_;
  const int64_t mostBlocks_;
  plan::Plan &plan_;
  const size_t layers_;
  const uint64_t ownBytes_;             // a layer's cache in whole pages
  const uint64_t arena_;                // in whole pages
  std::vector<std::vector<bool>> free_; // by placement and page
  std::vector<uint32_t> order_;
};

} // namespace

uint64_t kvPageBytes(model::DeviceKind kind) {
  return kind == model::DeviceKind::Host ? uint64_t{4} << 10 : uint64_t{2} << 20;
}

void growKv(uint64_t pageBytes, int64_t mostBlocks, plan::Plan &plan) { KvGrowth(pageBytes, mostBlocks, plan).run(); }

} // namespace headrace::compiler
