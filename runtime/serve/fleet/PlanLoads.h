// SPDX-License-Identifier: Apache-2.0
//
// A plan's placements as the coordinator of a bus sees them (Contention.h), for one request: which variants its
// iterations run, what these compute and copy, what the changes between them copy, and what the request does once
// before it decodes.
//
//   role      first stage (TTFT)                                   iteration (TPOT; of a prefill instance: TTFT)
//   Prefill   -                                                    transition + all iterations of the prompts
//   Decode    transition + arrival of the KV cache                 one token a sequence
//   Both      transition + all iterations of the prompts           one token a sequence
//
// Times are bounds at every rate up to the plan's link (planPlacement): the variant that the runtime picks takes, with
// the transition before it, no longer than the cheapest one that holds the size with the transition before that. They
// are those of the slowest iterations (Plan::slowestPermille); what the bus adds to them, it adds to these.
//
// From token to token a sequence waits
//
//   gap(u, v) = tail(u) + transitions + head(v)
//
// with head(v) the iteration until its tokens are visible and tail(u) what the one before it still copies then, for the
// iteration after it. Of two iterations of one variant that is an iteration's length. Alone on the bus it is what the
// plan's durations give (BusStage::soloNs). Beside others a tail may be as long as all copies take that tokens do not
// wait for: behind another variant these are counted as copied while nothing computes.
//
// Where schedules go round in a cycle, each of its variants counts: what is held is held in the worst phase.
//
// Of KV caches that are split what the request has in use at its end is counted (VariantLoads.h).
//
// Where requests join those that decode (RunningBatch) each placement stands once for each budget of its mixed buckets:
// a larger one brings the prompts in fewer iterations, each of which is a longer gap to those that decode beside it.
//
//   budget    iterations of prompts of 120 tokens beside 8 sequences      each, at most
//     16      ceil(120 / (16 - 8)) = 15                                    the variant of 16 tokens, 9 sequences
//     64      ceil(120 / (64 - 8)) =  3                                    the variant of 64 tokens, 9 sequences
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/core/TransitionPaths.h"
#include "runtime/plan/value/Plan.h"
#include "runtime/serve/fleet/Contention.h"
#include "runtime/serve/fleet/VariantLoads.h"

namespace headrace::serve {

// What an instance does with requests: their prompts, their decoding, or all of them.
enum class Role : uint8_t { Prefill = 0, Decode = 1, Both = 2 };
const char *roleName(Role role); // "prefill", "decode", "both"

// A batch: all prompts first, then one row a sequence and iteration.
struct BatchWork {
  std::vector<int64_t> promptTokens; // one a sequence
  int64_t newTokens = 1;             // of each sequence
  bool mayStopEarly = false;         // stop tokens may end sequences before that
};

// What an instance serves at a time, until another request joins: sequences that decode and may end at any time, and
// those that join them.
struct RunningBatch {
  int64_t sequences = 0;        // in one iteration at most, those that join included
  int64_t context = 0;          // the longest that any of them reaches
  int64_t kvEnd = 0;            // KV blocks below this number may come into use
  std::vector<int64_t> joining; // tokens of the prompts to bring, one a sequence that joins
  // KV caches that are handed over beside iterations: their bytes, and the copies that these come in at most.
  uint64_t arrivingBytes = 0, arrivingCopies = 0;
};

// Makes the iterations of a placement those of a stage, which also write so much to the host directly.
void setIteration(BusPlacement &placement, const BusStage &stage, uint64_t directBytes);

class PlanLoads {
public:
  // The plan outlives it. `linkBandwidth`: the device's link, bytes/s; 0: the plan's hardware. A link faster than the
  // plan's is counted as the plan's.
  PlanLoads(const plan::Plan &plan, double linkBandwidth);

  double linkBandwidth() const { return link_; }
  double d2hBandwidth() const { return d2hLink_; }           // of its link, bytes/s
  double bothShare() const { return variants_.bothShare(); } // of each direction's rate while both are at work
  bool copiesBack() const { return variants_.bothWays(); }   // variants have copies to the host
  uint64_t residentBytes() const { return residentBytes_; }  // weights
  uint64_t freedBytes(uint32_t placement) const { return freedBytes_[placement]; } // less slots

  // One for each placement that has variants and KV blocks for the batch and can be reached from `from`, a placement.
  // Of Decode, kvBytes arrive first; of Prefill, so many leave when the prompts are through. NotFound naming the size
  // and the largest buckets if there is none.
  absl::StatusOr<std::vector<BusPlacement>> placements(const BatchWork &batch, Role role, uint32_t from,
                                                       uint64_t kvBytes = 0) const;
  // The same of a batch with who joins it: one or several for each placement, by BusPlacement::budget. The first stage
  // is what brings the prompts, and the change from `from` before that.
  absl::StatusOr<std::vector<BusPlacement>> placements(const RunningBatch &batch, uint32_t from) const;
  struct Bucket {
    int64_t tokens = 0, sequences = 0, context = 0;
  };
  // The fastest variant of a placement that holds the size, whatever is in use of KV; none if none does.
  std::optional<uint32_t> cheapest(uint32_t placement, const Bucket &bucket) const;
  // Behind the tokens: no tail of the variant is longer than these take.
  const plan::LinkBytes &tail(uint32_t variant) const { return variants_.all()[variant].tail; }
  const plan::LinkBytes &mostTail(uint32_t placement) const { return mostTail_[placement]; }
  // From whatever slots of the one placement hold to any entry of the other one's variants: the most of each.
  const TransitionCost &change(uint32_t from, uint32_t to) const { return changes_[from * mixedTokens_.size() + to]; }

private:
  struct Iterations { // of a stage, one after the other or the worst of them
    double computeNs = 0, ns = 0;
    plan::LinkBytes link, exposed;
    uint64_t direct = 0;  // written to the host without a copy: others' bus has less, its own time has it
    double exposedNs = 0; // of changes, beside their bytes
    double soloNs = 0;
    BusStage stage(const BusRates &rates) const;
  };
  // What a request has in use: loads with so much, and KV blocks below this number at its end.
  struct Use {
    const VariantLoads::Loads &loads;
    int64_t end;
  };
  std::optional<uint32_t> cheapest(int64_t kvBlocks, uint32_t placement, const Bucket &bucket) const;
  std::optional<std::vector<uint32_t>> prefillVariants(int64_t kvBlocks, uint32_t placement,
                                                       const BatchWork &batch) const;
  std::optional<std::vector<uint32_t>> decodeVariants(int64_t kvBlocks, uint32_t placement,
                                                      const BatchWork &batch) const;
  // Beside the variants of a request at its end those that ran in their place while less was in use.
  std::vector<uint32_t> withEarlier(std::vector<uint32_t> variants, int64_t kvBlocks) const;
  // The most in use when tails begin to be brought: each sequence takes a block at a time.
  int64_t inUseBetween(uint32_t before, uint32_t after, const BatchWork &batch, int64_t end) const;
  std::optional<BusPlacement> placement(uint32_t placement, const BatchWork &batch, Role role, uint32_t from,
                                        uint64_t kvBytes) const;
  // Of a batch (PlanLoadsBatch.cpp).
  struct Edge { // the most that any variant before leaves to copy, and the way from there copies
    plan::LinkBytes bytes;
    double fixedNs = 0;
    bool possible = true;
  };
  Edge edgeBefore(const Use &use, uint32_t placement, uint32_t variant) const;
  std::vector<int64_t> budgets(uint32_t placement, const RunningBatch &batch) const;
  std::optional<BusPlacement> placement(uint32_t placement, const RunningBatch &batch, uint32_t from,
                                        int64_t budget) const;
  double soloNs(const Use &use, uint32_t placement, const std::vector<uint32_t> &variants) const;
  void addArrival(const Use &use, uint32_t placement, const std::vector<uint32_t> &variants, const RunningBatch &batch,
                  Iterations &each) const;
  absl::Status noneFor(int64_t sequences, int64_t context) const;
  double soloNs(const Use &use, uint32_t placement, const BatchWork &batch, const std::vector<uint32_t> &tokens,
                const std::vector<uint32_t> &prompts) const;
  TransitionCost mostOfChange(uint32_t from, uint32_t to) const;
  // With KV blocks below this number in use.
  TransitionCost path(core::TransitionPaths::Config from, core::TransitionPaths::Config to,
                      int64_t kvBlocks = std::numeric_limits<int64_t>::max()) const;
  core::TransitionPaths::Config entryOf(uint32_t variant) const;
  core::TransitionPaths::Config exitOf(uint32_t variant) const;
  // Whether behind `before` a cycle goes on with another phase of the variant's bucket.
  bool goesOnElsewhere(uint32_t before, uint32_t variant) const;
  std::vector<uint32_t> withPhases(std::vector<uint32_t> variants) const;
  BusRates rates() const; // that times are for
  double nsOf(const TransitionCost &way) const;

  const plan::Plan &plan_;
  double link_ = 0, d2hLink_ = 0;
  core::TransitionPaths paths_;
  VariantLoads variants_;
  std::vector<int64_t> mixedTokens_;               // of each placement: the largest bucket of several rows a sequence
  std::vector<plan::LinkBytes> mostTail_;          // of each placement: of the exit states; of copies behind tokens
  std::vector<uint64_t> freedBytes_, deviceBytes_; // of each placement
  std::vector<TransitionCost> changes_;            // [from][to]
  std::vector<uint32_t> permille_;                 // of each placement: plan::slowestPermille()
  uint64_t residentBytes_ = 0;
};

} // namespace headrace::serve
