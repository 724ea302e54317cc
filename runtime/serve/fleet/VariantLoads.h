// SPDX-License-Identifier: Apache-2.0
//
// What the variants of a plan take and copy where so much of the KV cache is in use. Of a copy of a cache's tail only
// that is copied (core::InUse), so an iteration moves less, and may be shorter, than the plan predicts of all blocks:
//
//   blocks in use    12 of 100, 40 on the device      70             100
//   runs             the variant without tails        the one with   the same
//   copies           weights                          half of tails  all of them
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/plan/Plan.h"

namespace headrace::serve {

struct VariantLoad {
  uint64_t ns = 0;        // an iteration's time, at the plan's rate
  uint64_t h2dBytes = 0;  // that it copies
  uint64_t headNs = 0;    // up to its tokens
  uint64_t tailNs = 0;    // behind them
  uint64_t tailBytes = 0; // host to device, that the tokens do not wait for
};

class VariantLoads {
public:
  // The plan outlives it.
  explicit VariantLoads(const plan::Plan &plan);

  struct View {
    std::vector<VariantLoad> of;                // each variant
    std::vector<std::vector<uint32_t>> serving; // of each placement those that may run, as the runtime prefers them
  };
  // Whatever is in use.
  const View &all() const { return all_; }
  // With KV blocks below this number in use, the scratch block included; rounded up to 64ths of the cache. Of one
  // thread at a time: what is asked for the first time is worked out then.
  const View &with(int64_t kvBlocks) const;

private:
  static constexpr int64_t kShares = 64;
  View viewOf(std::optional<int64_t> kvBlocks) const;
  VariantLoad loadOf(const plan::Variant &variant, std::optional<int64_t> kvBlocks) const;

  const plan::Plan &plan_;
  bool split_ = false; // blocks of caches are away somewhere
  View all_;
  mutable std::array<std::unique_ptr<const View>, kShares + 1> views_; // by 64ths in use
};

} // namespace headrace::serve
