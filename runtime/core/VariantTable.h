// SPDX-License-Identifier: Apache-2.0
//
// The variants of a plan by placement and entry configuration, each list by predicted time: the first that holds a
// bucket is the cheapest there. Made when a plan is loaded; choosing looks at one placement only and allocates nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/core/TransitionPaths.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::core {

class VariantTable {
public:
  VariantTable() = default;
  // `built[i]`: variant i may be chosen.
  VariantTable(const plan::Plan &plan, const TransitionPaths &paths, const std::vector<bool> &built);

  struct Bucket {
    int64_t tokens = 0, sequences = 0, context = 0;
    int64_t kvBlocks = 0; // in use, or that may be: those below this number
  };
  struct Chosen {
    uint32_t variant = plan::kNone; // kNone: none holds the size or can be reached
    uint64_t excessNs = 0;          // what it takes beyond the fastest that holds the size, paths left out
  };
  // The variant of the placement that holds the size and takes the least time, with what of the path to it is beyond
  // `owedNs`; of several the first in the plan.
  //
  // A path is paid once, the time that it saves comes back at every iteration. `owedNs` is what was lost so far by not
  // taking one (the excess of the iterations since the last), so a path is taken once that is as long as itself, and
  // never is more than twice the least possible lost. No choice takes longer, its path included, than the fastest
  // variant f would with the path to f: let v be chosen. If path(v) > path(f), f is no worse in both, and v is f. Else
  //   ns(v) + max(0, path(v) - owed) <= ns(f) + max(0, path(f) - owed)
  // gives ns(v) + path(v) <= ns(f) + path(f) where both paths are beyond owed; the same, as path(v) <= owed, where only
  // path(f) is; and where neither is, ns(v) <= ns(f).
  //
  // Where a placement attends on the CPU, an iteration that such a variant holds is one, whatever others take: that no
  // keys and values cross the link was asked for.
  //
  // Of a cycle (plan::Schedule::period) the time of a phase is the mean of all: whoever goes round it takes that. What
  // enters with what is there goes before every other phase of its cycle, however fast: the fast ones come round.
  Chosen cheapest(uint32_t placement, const Bucket &bucket, const TransitionPaths &paths, TransitionPaths::Config now,
                  uint64_t owedNs) const;
  // The largest buckets of a placement, each for itself.
  Bucket largest(uint32_t placement) const { return placements_[placement].largest; }

private:
  struct Item {
    Bucket bucket;
    uint64_t ns; // of a phase, the mean of its cycle's
    uint32_t variant;
    bool oneRowEach; // decode: as many tokens as sequences
    bool onDevice;   // attends there
    // The lowest entry of the cycle that it is of, which cycles of several classes may share. kNone: of none.
    TransitionPaths::Config cycle;
  };
  struct Group { // of one entry configuration
    TransitionPaths::Config entry;
    std::vector<Item> items; // ascending by (onDevice, ns, variant)
  };
  // Null where none does; those of cycle `notOf` are left out (kNone: none are).
  static const Item *firstThatHolds(const Group &group, const Bucket &bucket, TransitionPaths::Config notOf);
  struct OfPlacement {
    std::vector<Group> groups;
    Bucket largest;
  };
  std::vector<OfPlacement> placements_;
};

} // namespace headrace::core
