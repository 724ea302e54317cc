// SPDX-License-Identifier: Apache-2.0
#include "bench/figures/Bound.h"

#include <algorithm>

namespace headrace::bench {

double boundUs(const Work &work, const Peaks &peaks) {
  return std::max(work.bytes / peaks.bytesPerSecond, work.flops / peaks.flopsPerSecond) * 1e6;
}

Json besideBound(double us, const Work &work, const Peaks &peaks) {
  const bool memory = work.bytes / peaks.bytesPerSecond >= work.flops / peaks.flopsPerSecond;
  const double bound = boundUs(work, peaks);
  return {{"us", us},
          {"bound us", bound},
          {"bound by", memory ? "memory" : "arithmetic"},
          {memory ? "GB/s" : "TFLOP/s", memory ? work.bytes / us * 1e-3 : work.flops / us * 1e-6},
          {"share", bound / us}};
}

} // namespace headrace::bench
