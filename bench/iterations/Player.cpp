// SPDX-License-Identifier: Apache-2.0
#include "bench/iterations/Player.h"

#include <algorithm>
#include <random>

#include "bench/figures/Report.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::bench {

absl::StatusOr<std::unique_ptr<CellRows>> CellRows::take(core::Runtime &runtime, const Cell &cell) {
  const plan::Plan &plan = runtime.plan();
  std::unique_ptr<CellRows> own(new CellRows(runtime));
  const int64_t blocksEach = (cell.context + plan.blockTokens - 1) / plan.blockTokens;
  // Blocks of any sequence and in any order; those that keep activations have their places in each table.
  if (plan.actBlocks == 0) {
    RETURN_IF_ERROR(runtime.kvBlocks().grow(own->blocks_, cell.sequences * blocksEach * plan.blockTokens));
    std::shuffle(own->blocks_.begin(), own->blocks_.end(), std::mt19937(1));
  } else {
    for (int64_t s = 0; s < cell.sequences; ++s) {
      std::vector<int32_t> table;
      RETURN_IF_ERROR(runtime.kvBlocks().grow(table, cell.context));
      own->blocks_.insert(own->blocks_.end(), table.begin(), table.end());
    }
  }
  for (int64_t i = 0; i < cell.tokens; ++i)
    own->ids_.push_back(static_cast<int32_t>(i * 37 % plan.model->vocab));
  for (int64_t s = 0; s < cell.sequences; ++s)
    own->rows_.push_back({.tokens = own->ids_,
                          .firstPosition = cell.context - cell.tokens,
                          .blocks = absl::MakeConstSpan(own->blocks_)
                                        .subspan(static_cast<size_t>(s * blocksEach), static_cast<size_t>(blocksEach)),
                          .sample = true,
                          .requestSlot = static_cast<int32_t>(s)});
  return own;
}

absl::StatusOr<Played> play(core::Runtime &runtime, uint32_t placement, const Cell &cell, const PlayLimits &limits,
                            const std::function<absl::Status()> &each) {
  core::Device &device = runtime.device();
  const plan::Plan &plan = runtime.plan();
  ASSIGN_OR_RETURN(rows, CellRows::take(runtime, cell));
  Played played;
  const int64_t startNs = device.nowNs();
  const auto late = [&] { return static_cast<double>(device.nowNs() - startNs) * 1e-9 > limits.seconds; };
  const uint64_t first = runtime.launched();
  uint64_t awaited = first;
  int64_t previousNs = 0;
  core::DeviceCounters before;
  const auto counted = [&] { return static_cast<int>(runtime.launched() - first) - limits.warmUp; };
  for (bool enough = false;;) {
    enough = enough || counted() >= limits.most || (counted() >= 2 && late());
    if (!enough) {
      RETURN_IF_ERROR(core::writeMeta(plan.metaLayout, plan.blockTokens, rows->rows(), device.meta()));
      const double at = nowSeconds();
      ASSIGN_OR_RETURN(variant,
                       runtime.chooseIn(placement, cell.sequences * cell.tokens, cell.sequences, cell.context));
      const double chosen = nowSeconds();
      if (counted() == 0)
        before = device.counters();
      RETURN_IF_ERROR(runtime.launch(variant));
      played.variant = variant;
      if (counted() > 0) {
        played.chooseUs.push_back((chosen - at) * 1e6);
        played.launchUs.push_back((nowSeconds() - chosen) * 1e6);
      }
    }
    const uint64_t stay = enough ? 0 : static_cast<uint64_t>(limits.inFlight - 1);
    while (awaited + stay < runtime.launched()) {
      RETURN_IF_ERROR(runtime.awaitTokens().status());
      const int64_t seenNs = device.tokensVisibleNs(++awaited);
      if (awaited > first + static_cast<uint64_t>(limits.warmUp)) {
        if (previousNs != 0)
          played.ms.push_back(static_cast<double>(seenNs - previousNs) * 1e-6);
        if (each)
          RETURN_IF_ERROR(each());
      }
      previousNs = seenNs;
    }
    if (enough)
      break;
  }
  RETURN_IF_ERROR(device.drain());
  const core::DeviceCounters after = device.counters();
  const auto iterations = static_cast<uint64_t>(counted());
  played.h2dBytes = (after.h2dBytes - before.h2dBytes) / iterations;
  played.d2hBytes = (after.d2hBytes - before.d2hBytes) / iterations;
  return played;
}

} // namespace headrace::bench
