// SPDX-License-Identifier: Apache-2.0
//
// Measures a CUDA device, part by part: usage() below. Every figure stands beside its bound, measured in the same
// process (docs/bench.md).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "bench/cuda/Gpu.h"
#include "bench/cuda/Parts.h"
#include "bench/cuda/Session.h"

namespace headrace::bench {
namespace {

struct Part {
  const char *name;
  const char *what;
  void (*measure)(const Context &);
};
constexpr Part kParts[] = {
    {"same-tokens", "replies of two models, the same wherever weights live and however graphs are built",
     measureSameTokens},
    {"link", "copies by chunk size: alone, both ways, beside kernels", measureLink},
    {"graphs", "what graphs take to make, hold and launch; of real plans too", measureGraphs},
    {"kernels", "attention and products against device memory and tensor cores", measureKernels},
    {"steps", "norms, rotation, sampling, attention of mixed contexts, cublasLt's candidates, programmatic edges",
     measureSteps},
    {"handshake", "what a running graph takes to ask the host and be answered", measureHandshake},
    {"overlap", "one iteration's copies beside its kernels; builders, directions, queues", measureOverlap},
    {"caches", "long contexts with half of their KV on the host", measureSplitCaches},
    {"hybrid", "OPT-30B within 24 GB: activations in place of keys and values", measureHybridCaches},
    {"switch", "from one variant or placement to another, tokens read or not", measureSwitches},
    {"sizes", "changing copies' sizes before a launch", measureSizes},
    {"direct", "new KV rows written to mapped host memory", measureDirectWrites},
    {"mapped", "a product that reads mapped host memory against one behind a copy", measureMappedReads},
    {"tracing", "what CUPTI and time stamps cost", measureTracing},
    {"spread", "how much each layer's compute time varies", measureSpread},
    {"iterations", "whole iterations of five models at up to seven placements", measureIterations},
    {"furthest", "the iterations furthest from their limit: in turns with resident ones, and step by step",
     measureFurthest}};

std::string partNames() {
  std::string names;
  for (const Part &part : kParts)
    names += (names.empty() ? "" : ", ") + std::string(part.name);
  return names;
}

void help(std::FILE *to) {
  std::fputs(
      "usage: bench_cuda [--part NAME]... [--json FILE] [--seconds N] [--filter TEXT] [--device N]\n"
      "       bench_cuda --table FILE\n\n"
      "Measures a GPU. Figures are in FILE as soon as they are measured; what FILE has is not measured again.\n\n"
      "  --part NAME    this part, and others that are named so; without: all\n",
      to);
  for (const Part &part : kParts)
    std::fprintf(to, "                   %-11s %s\n", part.name, part.what);
  std::fputs("  --json FILE    where figures are kept; without: only printed\n"
             "  --seconds N    starts no figure that would not end in time (480)\n"
             "  --filter TEXT  of steps and iterations: those whose name has TEXT, and of these everything resident\n"
             "  --device N     which GPU (0)\n"
             "  --table FILE   prints FILE as Markdown\n\n"
             "Exit status: 0 all measured, 75 not all in time (call again), 77 what is left needs what is not there,\n"
             "1 something failed, 2 usage.\n\n"
             "  bench_cuda --part link --part iterations --seconds 300 --json figures.json\n",
             to);
}

int usage(const std::string &message) {
  std::fprintf(stderr, "bench_cuda: %s; --help has more\n", message.c_str());
  return 2;
}

// True, and `number`, for a whole text that is one of at least `least`.
bool parse(const char *text, double least, double &number) {
  char *end = nullptr;
  number = std::strtod(text, &end);
  return end != text && *end == '\0' && number >= least && number < 1e9;
}

struct Arguments {
  std::vector<const Part *> parts;
  std::string json, filter, table;
  double seconds = 480, device = 0;
  bool help = false;
};

// Empty, or what is wrong.
std::string read(int argc, char **argv, Arguments &out) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--help" || flag == "-h") {
      out.help = true;
      return "";
    }
    if (flag != "--part" && flag != "--json" && flag != "--filter" && flag != "--seconds" && flag != "--device" &&
        flag != "--table")
      return flag + ": expected --part, --json, --seconds, --filter, --device, --table or --help";
    if (++i == argc)
      return flag + ": expected a value behind it";
    const char *value = argv[i];
    if (flag == "--part") {
      const Part *found = nullptr;
      for (const Part &part : kParts)
        if (std::string_view(part.name) == value)
          found = &part;
      if (found == nullptr)
        return "--part " + std::string(value) + ": expected one of " + partNames();
      out.parts.push_back(found);
    } else if (flag == "--seconds") {
      if (!parse(value, 0, out.seconds))
        return "--seconds " + std::string(value) + ": expected a number of seconds";
    } else if (flag == "--device") {
      if (!parse(value, 0, out.device) || out.device != static_cast<int>(out.device))
        return "--device " + std::string(value) + ": expected a GPU's number";
    } else {
      (flag == "--json" ? out.json : flag == "--filter" ? out.filter : out.table) = value;
    }
  }
  if (out.parts.empty())
    for (const Part &part : kParts)
      out.parts.push_back(&part);
  return "";
}

std::string describe(Report &report, int device) {
  cudaDeviceProp properties{};
  must(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  int driver = 0, runtime = 0, clock = 0, memoryClock = 0, bus = 0;
  must(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  must(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  must(cudaDeviceGetAttribute(&clock, cudaDevAttrClockRate, device), "cudaDeviceGetAttribute");
  must(cudaDeviceGetAttribute(&memoryClock, cudaDevAttrMemoryClockRate, device), "cudaDeviceGetAttribute");
  must(cudaDeviceGetAttribute(&bus, cudaDevAttrGlobalMemoryBusWidth, device), "cudaDeviceGetAttribute");
  report.sameFact("device", properties.name);
  report.fact("compute capability", std::to_string(properties.major) + "." + std::to_string(properties.minor));
  report.fact("multiprocessors", properties.multiProcessorCount);
  report.fact("memory bytes", properties.totalGlobalMem);
  report.fact("L2 bytes", properties.l2CacheSize);
  report.fact("driver", driver);
  report.fact("runtime", runtime);
  report.fact("clock kHz", clock);
  report.fact("memory clock kHz", memoryClock);
  // Two transfers a clock.
  report.fact("datasheet memory GB/s", 2.0 * memoryClock * 1e3 * bus / 8 * 1e-9);
  // What figures stand beside.
  const model::Hardware profile = openProfile(properties.name);
  const bool names =
      std::find(profile.gpus.begin(), profile.gpus.end(), std::string(properties.name)) != profile.gpus.end();
  report.fact("profile", profile.name + (names ? "" : ", which names another GPU"));
  report.fact("peak memory GB/s", profile.memoryBandwidth * 1e-9);
  report.fact("peak TFLOP/s, 16 bits", profile.flopsF16 * 1e-12);
  report.fact("link GB/s", profile.h2dBandwidth * 1e-9);
  return properties.name;
}

// Of a file; empty where there is none.
std::string folderOf(const std::string &file) {
  if (file.empty())
    return "";
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  return folder.empty() ? "." : folder.string();
}

int measure(const Arguments &arguments) {
  const int device = static_cast<int>(arguments.device);
  int devices = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&devices); error != cudaSuccess || device >= devices)
    fail("no CUDA device " + std::to_string(device) + ": " +
         (error == cudaSuccess ? std::to_string(devices) + " answer" : cudaGetErrorString(error)));
  must(cudaSetDevice(device), "cudaSetDevice");
  Report report(arguments.json, {.seconds = arguments.seconds, .startedAt = nowSeconds()});
  report.checkDevice = checkUsable;
  const Context context{report, device, describe(report, device), arguments.filter, folderOf(arguments.json)};
  try {
    for (const Part *part : arguments.parts)
      part->measure(context);
  } catch (const DeviceLost &lost) {
    report.lost(lost.what());
  }
  return report.exitStatus();
}

int main(int argc, char **argv) {
  Arguments arguments;
  if (const std::string wrong = read(argc, argv, arguments); !wrong.empty())
    return usage(wrong);
  if (arguments.help) {
    help(stdout);
    return 0;
  }
  try {
    if (arguments.table.empty())
      return measure(arguments);
    std::fputs(Report::table(arguments.table).c_str(), stdout);
    return 0;
  } catch (const std::exception &failure) {
    std::fprintf(stderr, "bench_cuda: %s\n", failure.what());
    return 1;
  }
}

} // namespace
} // namespace headrace::bench

int main(int argc, char **argv) { return headrace::bench::main(argc, argv); }
