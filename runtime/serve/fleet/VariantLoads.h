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

#include "runtime/core/InUse.h"
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

  using Loads = std::vector<VariantLoad>; // of each variant
  // Whatever is in use.
  const Loads &all() const { return all_; }
  // With KV blocks below this number in use, the scratch block included; rounded up to 64ths of the cache. Of one
  // thread at a time: what is asked for the first time is worked out then.
  const Loads &with(int64_t kvBlocks) const;

  // A placement's variants, as the runtime prefers them.
  const std::vector<uint32_t> &of(uint32_t placement) const { return of_[placement]; }
  // Whether a variant may run with blocks below this number in use.
  bool serves(uint32_t variant, int64_t kvBlocks) const;
  // The one of the same bucket without tails; none if there is none.
  std::optional<uint32_t> withoutTails(uint32_t variant) const;
  // Host to device, of a transition with so much in use.
  uint64_t transitionBytes(uint32_t transition, int64_t kvBlocks) const;

private:
  Loads loadsOf(std::optional<int64_t> kvBlocks) const;
  VariantLoad loadOf(const plan::Variant &variant, std::optional<int64_t> kvBlocks) const;

  const plan::Plan &plan_;
  bool split_ = false; // blocks of caches are away somewhere
  Loads all_;
  std::vector<std::vector<uint32_t>> of_;                                      // by placement
  mutable std::array<std::unique_ptr<const Loads>, core::kShares + 1> shares_; // by 64ths in use
};

} // namespace headrace::serve
