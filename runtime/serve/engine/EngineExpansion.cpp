// SPDX-License-Identifier: Apache-2.0
//
// The engine's part of adaptive expansion: what it sees of an iteration, and the blocks that are offered for it.
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "runtime/model/ModelSpec.h"
#include "runtime/serve/engine/Engine.h"
#include "runtime/serve/engine/Expansion.h"

namespace headrace::serve {
namespace {

// The blocks of a mini-batch: those at home on the device in this placement, or what the longest sequence takes where
// that is more; and all of the placement's. Without the scratch block.
ExpansionBounds boundsOf(const plan::Plan &plan, uint32_t placement, int64_t resident) {
  const int64_t most = plan.placements[placement].kvBlocks - 1;
  return {std::min(most, std::max(resident - 1, plan.metaLayout.maxBlocksPerSequence)), most};
}

// By the number of their blocks, where placements differ in that (Pie's places); else empty.
std::vector<uint32_t> placementsByBlocks(const plan::Plan &plan) {
  std::vector<uint32_t> order(plan.placements.size());
  std::iota(order.begin(), order.end(), 0);
  const auto blocksOf = [&](uint32_t placement) { return plan.placements[placement].kvBlocks; };
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return blocksOf(a) < blocksOf(b); });
  return blocksOf(order.front()) == blocksOf(order.back()) ? std::vector<uint32_t>() : order;
}

int64_t nsOf(uint64_t bytes, double bytesPerSecond) {
  return static_cast<int64_t>(static_cast<double>(bytes) / bytesPerSecond * 1e9);
}

} // namespace

void Engine::beginExpansion() {
  if (!options_.adaptsExpansion || isStatic() || on_.isStaged() || plan_.goal.expansion != model::kAutoExpansion)
    return;
  byBlocks_ = placementsByBlocks(plan_);
  std::vector<int64_t> levels; // a sequence fits into each
  for (const uint32_t placement : byBlocks_)
    if (const int64_t blocks = plan_.placements[placement].kvBlocks - 1;
        blocks >= plan_.metaLayout.maxBlocksPerSequence && (levels.empty() || blocks > levels.back()))
      levels.push_back(blocks);
  if (levels.empty())
    byBlocks_.clear();
  expansion_ = levels.empty()
                   ? std::make_unique<Expansion>(boundsOf(plan_, runtime_.placement(), resident()), options_.expansion)
                   : std::make_unique<Expansion>(levels, options_.expansion);
  for (MiniBatch &one : miniBatches_)
    one.blocks->setOffered(expansion_->offered());
  counters_.blocksOffered = expansion_->offered();
  const core::DeviceCounters counters = device_.counters();
  counted_ = {counters.h2dBytes, counters.d2hBytes, counters.stallNs, device_.nowNs()};
}

// Once tokens have been read. The device may have counted some of the next iteration, too: over a window that evens
// out.
void Engine::adapt(const EngineIteration &iteration) {
  if (!expansion_)
    return;
  const core::DeviceCounters now = device_.counters();
  const model::Hardware &hardware = plan_.hardware;
  const int64_t in = nsOf(now.h2dBytes - counted_.h2dBytes, hardware.h2dBandwidth * hardware.linkEfficiency),
                out = nsOf(now.d2hBytes - counted_.d2hBytes, hardware.d2hBandwidth * hardware.linkEfficiency);
  IterationWaits seen;
  seen.ns = iteration.visibleNs - std::max(counted_.endNs, iteration.launchNs);
  seen.waitNs = now.stallNs - counted_.stallNs; // 0 where that is not counted (CUDA graphs): tokens/s say it then
  seen.linkNs = std::max({in, out, static_cast<int64_t>(static_cast<double>(in + out) / hardware.duplexShare())});
  seen.prefill = iteration.prefill;
  for (const MiniBatch &one : miniBatches_) {
    seen.used = std::max(seen.used, one.blocks->used());
    seen.away = std::max(seen.away, one.blocks->endOfUse() - resident());
    seen.settled &= one.blocks->used() <= one.blocks->offered();
  }
  seen.settled &= !wantsCompaction() && (byBlocks_.empty() || iteration.placement == placementForBlocks());
  seen.wanted = !waiting_.empty() && static_cast<int64_t>(running()) < maxNumSeqs_;
  counted_ = {now.h2dBytes, now.d2hBytes, now.stallNs, iteration.visibleNs};
  if (byBlocks_.empty())
    expansion_->setBounds(boundsOf(plan_, runtime_.placement(), resident()));
  expansion_->saw(seen);
  counters_.blocksOffered = expansion_->offered();
  counters_.expansionsGrown = expansion_->grown();
  counters_.expansionsShrunk = expansion_->shrunk();
  for (MiniBatch &one : miniBatches_)
    if (one.blocks->offered() != expansion_->offered())
      one.blocks->setOffered(expansion_->offered());
}

// The placement with the fewest blocks that has those that are offered, and those that are in use.
uint32_t Engine::placementForBlocks() const {
  int64_t most = expansion_->offered();
  for (const MiniBatch &one : miniBatches_)
    most = std::max(most, one.blocks->endOfUse() - 1);
  for (const uint32_t placement : byBlocks_)
    if (plan_.placements[placement].kvBlocks - 1 >= most)
      return placement;
  return byBlocks_.back();
}

// The oldest has all blocks that are offered and needs one more: it goes on, as it would alone. False: there is none.
bool Engine::offerMore(const MiniBatch &of) {
  core::KvBlocks &pool = *of.blocks;
  const int64_t offered = pool.offered();
  pool.setOffered(std::max(offered, pool.used() + 1));
  if (pool.freeBlocks() > 0)
    return true;
  pool.setOffered(offered);
  return false;
}

} // namespace headrace::serve
