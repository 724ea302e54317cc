// SPDX-License-Identifier: Apache-2.0
//
// How long a sequence waits between two tokens: from the moment at which one iteration's tokens are visible to that of
// the next one's. Between them lie what the first still copies behind its tokens, the transitions to what the second
// begins with, and the second up to its tokens:
//
//   iteration u     [        head        | tail ]
//   transitions                                 [  way  ]
//   iteration v                                         [        head        | tail ]
//   tokens                               ^                                   ^
//   gap(u, v)                            |-----------------------------------|
//
// While one variant follows itself the gap is its iteration. Behind a prompt it is not: there stands a change of
// placement, or the ring that decoding begins with.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "runtime/core/TransitionPaths.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::sim {

class TokenGaps {
public:
  // The plan outlives it, and core::TransitionPaths::check() accepts it. `linkBandwidth`: bytes/s a direction in place
  // of the profile's; 0: the profile's, so that all times are those that the plan predicts.
  explicit TokenGaps(const plan::Plan &plan, double linkBandwidth = 0);

  struct Times {
    uint64_t iterationNs = 0; // until its last step ends
    uint64_t headNs = 0;      // until its tokens are visible
    uint64_t tailNs() const { return iterationNs - headNs; }
  };
  const Times &of(uint32_t variant) const { return times_[variant]; }
  // The transitions from what `from` leaves on the device to what `to` begins with; none if nothing leads there.
  std::optional<uint64_t> wayNs(uint32_t from, uint32_t to) const;
  // Those transitions in their order, without such as take nothing; wayNs must exist.
  std::vector<uint32_t> way(uint32_t from, uint32_t to) const { return path(exitOf(from), entryOf(to)); }
  // From a launch with this placement's homes on the device and nothing in its slots to the tokens of `to`.
  std::optional<uint64_t> firstNs(uint32_t placement, uint32_t to) const;
  // The transitions before `to`; firstNs must exist.
  std::vector<uint32_t> firstWay(uint32_t placement, uint32_t to) const {
    return path(paths_.config(placement, 0), entryOf(to));
  }
  // wayNs must exist.
  uint64_t gapNs(uint32_t from, uint32_t to) const { return of(from).tailNs() + *wayNs(from, to) + of(to).headNs; }

  struct Longest {
    uint64_t ns = 0; // 0: no iteration is followed by one of this bucket
    uint32_t from = plan::kNone, to = plan::kNone;
  };
  // The longest gap before the tokens of each bucket, where every bucket is served in one placement: `chosen` has a
  // variant for each bucket, in the placement that serves it. Of decode buckets; 0 for those with prompts, whose gaps
  // lie inside a batch's prefill. Bounds every order of iterations in which a batch's sequences only become fewer once
  // its last prompt has ended, whichever variant the runtime takes to spare a transition (core::VariantTable).
  std::vector<Longest> longest(absl::Span<const uint32_t> chosen) const;

private:
  using Config = core::TransitionPaths::Config;
  // A variant that may serve a bucket.
  struct Server {
    uint32_t variant;
    int64_t sequences; // what follows it has at most so many
  };
  bool decodes(uint32_t variant) const;
  Config entryOf(uint32_t variant) const;
  Config exitOf(uint32_t variant) const;
  std::vector<uint32_t> path(Config from, Config to) const;
  uint64_t pathNs(Config from, Config to) const;
  // Those that may serve the bucket of `chosen` where the device holds `now`: whatever is in use of KV, or so little
  // that variants for fewer blocks may.
  std::vector<uint32_t> servers(uint32_t chosen, Config now) const;
  std::vector<uint32_t> servers(uint32_t chosen, Config now, bool anyInUse) const;

  const plan::Plan &plan_;
  core::TransitionPaths paths_;
  std::vector<Times> times_;           // by variant
  std::vector<uint64_t> transitionNs_; // by transition
};

} // namespace headrace::sim
