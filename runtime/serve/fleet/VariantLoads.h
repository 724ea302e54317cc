// SPDX-License-Identifier: Apache-2.0
//
// What the variants of a plan take and copy where so much of the KV cache is in use. Of a copy of a cache's tail only
// that is copied (core::InUse), so an iteration moves less, and may be shorter, than the plan predicts of all blocks:
//
//   blocks in use    12 of 100, 40 on the device      70             100
//   runs             the variant without tails        the one with   the same
//   copies           weights                          half of tails  all of them
//
// Copies to the host are counted likewise: one that writes back only what was written (Step::dirtyOnly) by what is in
// use as well, as its rows may lie anywhere in that. A link may have less for both directions together than for each:
// where a plan's variants copy to the host every copy is then as long as it is while the other direction copies too,
// so times hold whichever copies meet. Rows that an append writes to the host directly are in its step's price; they
// are told apart, as what others have of the bus.
//
// The schedules of a cycle (Schedule::phase) have variants of their own; those of one bucket are its phases, of which
// the runtime takes the one whose entry is what is there.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/core/InUse.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::serve {

struct VariantLoad {
  uint64_t ns = 0;          // an iteration's time, at the plan's rates
  plan::LinkBytes bytes;    // that it copies
  uint64_t headNs = 0;      // up to its tokens
  uint64_t tailNs = 0;      // behind them
  plan::LinkBytes tail;     // that the tokens do not wait for
  uint64_t directBytes = 0; // written to the host without a copy
};

class VariantLoads {
public:
  // The plan outlives it.
  explicit VariantLoads(const plan::Plan &plan);

  using Loads = std::vector<VariantLoad>; // of each variant
  // Whatever is in use.
  const Loads &all() const { return all_; }
  // With KV blocks below this number in use, the scratch block included; rounded up to 256ths of the cache. Of one
  // thread at a time: what is asked for the first time is worked out then.
  const Loads &with(int64_t kvBlocks) const;

  // A placement's variants, as the runtime prefers them.
  const std::vector<uint32_t> &of(uint32_t placement) const { return of_[placement]; }
  // Whether a variant may run with blocks below this number in use.
  bool serves(uint32_t variant, int64_t kvBlocks) const;
  // The one of the same bucket without tails; none if there is none.
  std::optional<uint32_t> withoutTails(uint32_t variant) const;
  // What a transition copies with so much in use.
  plan::LinkBytes transitionBytes(uint32_t transition, int64_t kvBlocks) const;
  // The variants of the same bucket and KV blocks, this one among them: several where it is of a cycle.
  const std::vector<uint32_t> &phasesOf(uint32_t variant) const { return phases_[variant]; }
  // What the runtime chooses by (core::VariantTable): the plan's time, of a cycle the mean of its phases.
  uint64_t chosenByNs(uint32_t variant) const;

  // What a direction has of its rate while both are at work, at most 1.
  double bothShare() const { return bothShare_; }
  // Whether times are those of copies at that share: variants copy in both directions.
  bool bothWays() const { return bothWays_; }
  bool split() const { return split_; }               // blocks of caches are away somewhere
  uint64_t mostCopies() const { return mostCopies_; } // to the device, of an iteration

private:
  Loads loadsOf(std::optional<int64_t> kvBlocks) const;
  VariantLoad loadOf(const plan::Variant &variant, std::optional<int64_t> kvBlocks) const;

  const plan::Plan &plan_;
  double bothShare_ = 1;
  bool bothWays_ = false;
  bool split_ = false;
  uint64_t mostCopies_ = 0;
  Loads all_;
  std::vector<std::vector<uint32_t>> of_, phases_; // by placement, by variant
  static constexpr int64_t kLoadShares = 64;       // of all blocks that may be in use
  mutable std::array<std::unique_ptr<const Loads>, kLoadShares + 1> shares_;
};

} // namespace headrace::serve
