// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/ScaledPrice.h"

#include <cmath>

namespace headrace::cost {

ScaledPrice::ScaledPrice(const Roofline &roofline, const OpSite &site, How how, const Bucket &bucket, uint64_t pricedNs)
    : roofline_(&roofline), site_(site), how_(how), pricedNs_(pricedNs),
      bucketSeconds_(roofline.seconds(site, rowsOf(bucket), how)),
      overNs_(static_cast<double>(pricedNs) - static_cast<double>(roofline.ns(site, bucket, how))) {
  fixed_ = static_cast<double>(pricedNs) <= roofline.launchSeconds(site.op, how) * 1e9 || !(bucketSeconds_ > 0) ||
           !std::isfinite(bucketSeconds_);
}

// The roofline of what runs and its share of what the price is above the roofline: what the proportion comes to, and
// the roofline without rounding where the price is the roofline's.
uint64_t ScaledPrice::ns(const Rows &rows) const {
  if (fixed_)
    return pricedNs_;
  const double seconds = roofline_->seconds(site_, rows, how_);
  return wholeNs((seconds + roofline_->launchSeconds(site_.op, how_)) * 1e9 + overNs_ * (seconds / bucketSeconds_));
}

} // namespace headrace::cost
