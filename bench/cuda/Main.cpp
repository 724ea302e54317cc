// SPDX-License-Identifier: Apache-2.0
//
// Measures a CUDA device, part by part:
//
//   bench_cuda [--part link|graphs|kernels|iterations]... [--json FILE] [--seconds N] [--filter TEXT] [--device N]
//   bench_cuda --table FILE        what FILE holds, as Markdown
//
// Every figure stands beside its bound, measured in the same process (README.md). FILE is written after each figure.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "bench/cuda/Report.h"

namespace headrace::bench {
namespace {

int usage() {
  std::fprintf(stderr, "usage: bench_cuda [--part link|graphs|kernels|iterations]... [--json FILE] [--seconds N] "
                       "[--filter TEXT] [--device N]\n");
  return 2;
}

void describe(Report &report, int device) {
  cudaDeviceProp properties{};
  must(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  int driver = 0, runtime = 0, clock = 0, memoryClock = 0, bus = 0;
  must(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  must(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  must(cudaDeviceGetAttribute(&clock, cudaDevAttrClockRate, device), "cudaDeviceGetAttribute");
  must(cudaDeviceGetAttribute(&memoryClock, cudaDevAttrMemoryClockRate, device), "cudaDeviceGetAttribute");
  must(cudaDeviceGetAttribute(&bus, cudaDevAttrGlobalMemoryBusWidth, device), "cudaDeviceGetAttribute");
  report.fact("device", properties.name);
  report.fact("compute capability", std::to_string(properties.major) + "." + std::to_string(properties.minor));
  report.fact("multiprocessors", properties.multiProcessorCount);
  report.fact("memory bytes", properties.totalGlobalMem);
  report.fact("driver", driver);
  report.fact("runtime", runtime);
  report.fact("clock kHz", clock);
  report.fact("memory clock kHz", memoryClock);
  // Two transfers a clock.
  report.fact("datasheet memory GB/s", 2.0 * memoryClock * 1e3 * bus / 8 * 1e-9);
}

int main(int argc, char **argv) {
  std::vector<std::string> parts;
  std::string json, filter;
  Budget budget{.seconds = 480, .startedAt = nowSeconds()};
  int device = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (i + 1 == argc)
      return usage();
    const char *value = argv[++i];
    if (flag == "--part")
      parts.emplace_back(value);
    else if (flag == "--json")
      json = value;
    else if (flag == "--filter")
      filter = value;
    else if (flag == "--seconds")
      budget.seconds = std::atof(value);
    else if (flag == "--device")
      device = std::atoi(value);
    else if (flag == "--table") {
      std::fputs(Report::table(value).c_str(), stdout);
      return 0;
    } else
      return usage();
  }
  if (parts.empty())
    parts = {"link", "graphs", "kernels", "iterations"};
  for (const std::string &part : parts)
    if (part != "link" && part != "graphs" && part != "kernels" && part != "iterations")
      return usage();
  int devices = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&devices); error != cudaSuccess || device >= devices)
    fail(std::string("no CUDA device ") + std::to_string(device) + ": " +
         (error == cudaSuccess ? std::to_string(devices) + " answer" : cudaGetErrorString(error)));
  must(cudaSetDevice(device), "cudaSetDevice");
  Report report(json);
  describe(report, device);
  for (const std::string &part : parts) {
    if (part == "link")
      measureLink(report);
    else if (part == "graphs")
      measureGraphs(report);
    else if (part == "kernels")
      measureKernels(report);
    else
      measureIterations(report, budget, filter);
  }
  return 0;
}

} // namespace
} // namespace headrace::bench

int main(int argc, char **argv) { return headrace::bench::main(argc, argv); }
