// SPDX-License-Identifier: Apache-2.0
//
// What the compute steps of an iteration take by what runs of their bucket (core::Pricing::Rows).
//
//   op               follows                                        on a plan for
//   attention        each sequence's rows and its own context       host, cuda
//   matrix products  the rows, those of the head the sampled ones   host
//                    the bucket: padded rows are computed           cuda (runtime/cuda/MatMul.h)
//   rebuild_kv     the earlier tokens of activation blocks        host
//                    the bucket's                                   cuda
//   all else         the rows, or the sampled ones                  host, cuda: kernels read how many there are
//
// Steps of the same op, price, place in the model and mini-batch are one kind: all layers are alike, so a kind is
// priced once an iteration.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "kernels/IterationMeta.h"
#include "kernels/Kernels.h"
#include "runtime/cost/ScaledPrice.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::sim {

// Slots of the KV cache whose rows are written to the host as well: [first, end).
struct HomeSlots {
  uint64_t first = 0, end = 0;
};
inline constexpr int64_t kNoSlot = std::numeric_limits<int64_t>::max();
// What runs in an iteration. Slots from `firstActSlot` on are of activation blocks.
cost::Rows rowsOf(const kernels::IterationMeta &meta, HomeSlots home, int64_t firstActSlot = kNoSlot);

// What runs in each mini-batch of an iteration of one schedule.
class RowCounter {
public:
  RowCounter(const plan::Plan &plan, const plan::Schedule &schedule); // neither needs to outlive it
  // `first`: the header of the first mini-batch, which those of the others lie behind.
  void count(const kernels::IterationMeta &first, std::vector<cost::Rows> &byMiniBatch) const;

private:
  kernels::MetaLayout layout_;
  int64_t firstActSlot_;
  std::vector<HomeSlots> homeSlots_; // by mini-batch
};

// The profile that rooflines are of where the link has `linkBandwidth` bytes/s a direction; 0: the profile's.
model::Hardware overLink(model::Hardware hardware, double linkBandwidth);

class RowPrices {
public:
  // Of a variant of the plan, whose steps take `durationsNs` where all of its bucket runs. `layout`: of the plan's
  // model. The roofline, over the plan's model and types, outlives it.
  RowPrices(const plan::Plan &plan, const model::WeightLayout &layout, const cost::Roofline &roofline,
            const plan::Variant &variant, absl::Span<const uint64_t> durationsNs);

  // Prices an iteration, each step by the rows of its own mini-batch, as RowCounter counts them. False: all prices are
  // those of the call before.
  bool price(const kernels::IterationMeta &first);
  bool price(absl::Span<const cost::Rows> byMiniBatch);

  // Of the last iteration priced; before the first, of the bucket.
  uint64_t sumNs() const { return sumNs_; }             // of all steps
  uint64_t publishNs() const { return publishNs_; }     // of those up to the last Publish, of all without one
  void writeTo(absl::Span<uint64_t> durationsNs) const; // of the steps that follow rows; leaves the others

private:
  struct KindKey {
    kernels::Op op;
    model::UnitRole unit;
    cost::How how;
    uint8_t miniBatch;
    uint64_t pricedNs;
    bool operator==(const KindKey &) const = default;
  };
  struct Kind {
    cost::ScaledPrice price;
    uint32_t miniBatch = 0;
    uint64_t steps = 0, untilPublish = 0;
    uint64_t ns = 0; // of one step
  };
  void addUp();

  std::vector<Kind> kinds_;
  std::vector<std::pair<uint32_t, uint32_t>> steps_; // those that follow rows, and the kind of each
  uint64_t otherNs_ = 0, otherUntilPublishNs_ = 0;   // of the others
  uint64_t sumNs_ = 0, publishNs_ = 0;
  RowCounter counter_;
  std::vector<cost::Rows> rows_; // of the iteration being priced
};

} // namespace headrace::sim
