// SPDX-License-Identifier: Apache-2.0
//
// What the steps of a launch take and move: of resizable copies what is in use of KV, or what the launch has written
// (core/InUse.h), of compute steps what ran of the bucket, where that is known, of all others what the plan says.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/types/span.h"
#include "runtime/core/InUse.h"
#include "runtime/cost/CostModel.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/plan/value/Plan.h"
#include "runtime/sim/RowPrices.h"

namespace headrace::sim {

struct LaunchedSteps {
  std::vector<uint64_t> ns;        // a step, alone on its lane
  std::vector<uint64_t> linkBytes; // a step, over the link
};

// Prices launches of a plan's variants and transitions, one by one.
class LaunchPrices {
public:
  // The plan outlives it. `linkBandwidth`: bytes/s a direction in place of the profile's; 0: the plan's own.
  explicit LaunchPrices(const plan::Plan &plan, double linkBandwidth = 0);
  LaunchPrices(const LaunchPrices &) = delete;
  LaunchPrices &operator=(const LaunchPrices &) = delete;

  // `rows`: what ran, by mini-batch (RowPrices.h); none: all of the variant's bucket.
  LaunchedSteps of(uint32_t variant, const core::LaunchInUse &inUse, absl::Span<const cost::Rows> rows = {});
  LaunchedSteps ofTransition(uint32_t transition, const core::LaunchInUse &inUse) const;

private:
  LaunchedSteps paced(const plan::Schedule &schedule, const std::vector<uint64_t> &durationsNs) const;
  // `newTokens`: of the bucket; 0 of a transition.
  void sizeCopies(const plan::Schedule &schedule, int64_t newTokens, const core::LaunchInUse &inUse,
                  LaunchedSteps &launched) const;

  const plan::Plan &plan_;
  const double linkBandwidth_;
  const model::WeightLayout layout_;
  const cost::Roofline roofline_;
  std::map<uint32_t, RowPrices> prices_; // by variant, once it was asked for
};

} // namespace headrace::sim
