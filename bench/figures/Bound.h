// SPDX-License-Identifier: Apache-2.0
//
// A measured time beside the least that the hardware needs for it: bytes by its memory's bandwidth or arithmetic by its
// peak, whichever takes longer.
#pragma once

#include "bench/figures/Report.h"

namespace headrace::bench {

// What has to be done, each byte once.
struct Work {
  double bytes = 0; // of device memory, read and written
  double flops = 0;
};
// The data sheet's.
struct Peaks {
  double bytesPerSecond = 0, flopsPerSecond = 0;
};

double boundUs(const Work &work, const Peaks &peaks);
// "us", "bound us", what it is bound by, the rate reached in that, and bound / measured as "share".
Json besideBound(double us, const Work &work, const Peaks &peaks);

} // namespace headrace::bench
