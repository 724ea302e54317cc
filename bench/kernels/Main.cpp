// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>

#include "bench/kernels/Bounds.h"

int main(int argc, char **argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv))
    return 2;
  char text[64];
  std::snprintf(text, sizeof text, "%.2f", headrace::bench::calibrateReading() / 1e9);
  benchmark::AddCustomContext("one_thread_read_GB_per_s", text);
  std::snprintf(text, sizeof text, "%.1f", headrace::bench::sgemmPeakFlops() / 1e9);
  benchmark::AddCustomContext("one_thread_sgemm_peak_GFLOP_per_s", text);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
