// SPDX-License-Identifier: Apache-2.0
//
// What a step takes where less runs than the bucket it was priced for: the price, measured or not, in the proportions
// of the roofline.
//
//   launch + (priced - launch) x share        share: roofline of what runs / of the bucket, both without the launch
//
// to the nearest nanosecond or the one beside it, as it is reckoned from the roofline's whole nanoseconds: what that
// says of what runs, and the share of what the price is above it. So a step that was priced by this roofline takes what
// it says of what runs, to the nanosecond.
#pragma once

#include <cstdint>

#include "runtime/cost/CostModel.h"

namespace headrace::cost {

class ScaledPrice {
public:
  // `pricedNs`: where all of the bucket runs. One that is no longer than the launch, or for which the roofline has
  // nothing to do or no rate, is the price of whatever runs. The roofline outlives it.
  ScaledPrice(const Roofline &roofline, const OpSite &site, How how, const Bucket &bucket, uint64_t pricedNs);

  uint64_t ns(const Rows &rows) const;

private:
  const Roofline *roofline_;
  OpSite site_;
  How how_ = How::OnDevice;
  bool fixed_ = false;
  uint64_t pricedNs_ = 0;
  double bucketSeconds_ = 0;
  double overNs_ = 0; // what the price is above the roofline's; below zero: under it
};

} // namespace headrace::cost
