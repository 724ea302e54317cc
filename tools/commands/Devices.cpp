// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/Devices.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/cuda/CudaDevice.h"
#include "runtime/cuda/CudaGroup.h"
#include "runtime/cuda/Gpus.h"
#include "runtime/host/Cores.h"
#include "runtime/host/HostDevice.h"
#include "runtime/host/HostGroup.h"
#include "runtime/sim/SimDevice.h"
#include "runtime/sim/SimGroup.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/Progress.h"
#include "tools/commands/RunSetup.h"

namespace headrace::tools {
namespace {

struct DeviceFactory {
  std::string_view kind;    // core::Device::kind()
  std::string_view spelled; // what --device may be for it
  bool (*answersTo)(const std::string &name);
  absl::StatusOr<std::unique_ptr<core::Device>> (*make)(const std::string &name, const DeviceFlags &flags);
  // So many of them on a bus of so many bytes/s.
  absl::StatusOr<std::unique_ptr<core::DeviceGroup>> (*makeGroup)(const std::string &name, const DeviceFlags &flags,
                                                                  size_t devices, const core::PathLimits &bus);
  bool pacesBus; // its groups can be on such a bus
};

using MadeDevice = absl::StatusOr<std::unique_ptr<core::Device>>;
using MadeGroup = absl::StatusOr<std::unique_ptr<core::DeviceGroup>>;

// A core for each of so many threads, `of` them in words, as far as there are: the last one again beyond.
std::vector<int> coresOf(int threads, const std::string &of) {
  std::vector<int> cores = host::usableCores();
  const auto count = static_cast<size_t>(threads);
  if (count > cores.size())
    warnOnce(model::cat("--pin: this process may use ", cores.size(), cores.size() == 1 ? " core" : " cores", ": ",
                        count - cores.size() + 1, " of ", threads, " threads (", of, ") share core ", cores.back()));
  cores.resize(count, cores.back());
  return cores;
}

absl::StatusOr<host::HostOptions> hostOptions(const DeviceFlags &flags) {
  ASSIGN_OR_RETURN(threads, threadsOf(flags));
  host::HostOptions made{.threads = threads, .lowLatency = flags.lowLatency};
  if (flags.pin) {
    const std::vector<int> cores = coresOf(threads + 1, model::cat(threads, " of compute, 1 of copies"));
    made.computeCore = cores.front();
    made.helperCores.assign(cores.begin() + 1, cores.end() - 1);
    made.transferCore = cores.back();
  }
  return made;
}

// Of so many devices, which compute on the CPU at the same time: each has its part of the threads.
absl::StatusOr<std::vector<cuda::CpuLaneOptions>> cpuLaneOptions(const DeviceFlags &flags, size_t devices) {
  ASSIGN_OR_RETURN(all, threadsOf(flags));
  const int threads = std::max(1, all / static_cast<int>(devices));
  std::vector<cuda::CpuLaneOptions> made(devices, {.threads = threads});
  if (!flags.pin)
    return made;
  const std::vector<int> cores = coresOf(threads * static_cast<int>(devices), "all of them of the CPU's lane");
  auto core = cores.begin();
  for (cuda::CpuLaneOptions &lane : made) {
    lane.core = *core;
    lane.helperCores.assign(core + 1, core + threads);
    core += threads;
  }
  return made;
}

absl::StatusOr<std::vector<cuda::CudaOptions>> cudaOptions(const std::vector<int> &indices, const DeviceFlags &flags) {
  ASSIGN_OR_RETURN(lanes, cpuLaneOptions(flags, indices.size()));
  std::vector<cuda::CudaOptions> made;
  for (size_t i = 0; i < indices.size(); ++i) {
    cuda::CudaOptions &options = made.emplace_back();
    options.index = indices[i];
    options.capture = flags.captureGraphs;
    options.traceBy = flags.traceBy;
    options.libraries = flags.cudaLibraries;
    options.cpu = std::move(lanes[i]);
    options.algorithms = flags.cudaAlgorithms;
    options.notice = warnOnce;
    options.pinning = [step = std::shared_ptr<Progress>()](uint64_t done, uint64_t total) mutable {
      if (step == nullptr)
        step = std::make_shared<Progress>("pinning host memory", Amount::Bytes);
      step->update(done, total);
      if (done == total)
        step.reset();
    };
  }
  return made;
}

MadeDevice makeCuda(const std::string &name, const DeviceFlags &flags) {
  const absl::StatusOr<int> index = cuda::deviceIndex(name);
  if (!index.ok())
    return badFlag("--device", name, deviceNames());
  ASSIGN_OR_RETURN(options, cudaOptions({*index}, flags));
  return cuda::makeCudaDevice(options.front());
}

MadeGroup makeCudaGroup(const std::string &name, const DeviceFlags &flags, size_t devices,
                        const core::PathLimits &bus) {
  if (std::isfinite(bus.h2d) || std::isfinite(bus.d2h) || std::isfinite(bus.both))
    return badFlag("--device", name, "host or sim: a bus of GPUs is the machine's own, and no bandwidth is set of it");
  const absl::StatusOr<std::vector<int>> indices = cuda::deviceIndices(name, devices);
  if (!indices.ok())
    return absl::InvalidArgumentError(model::cat("command line: --device = ", indices.status().message()));
  ASSIGN_OR_RETURN(there, cuda::gpus());
  if (!there.empty() && there.size() < devices) // none at all is said as of one device
    return absl::InvalidArgumentError(
        model::cat("cuda device: expected ", devices, " GPUs, one for each device, and ",
                   there.size() == 1 ? "there is 1" : model::cat("there are ", there.size()),
                   ": --device sim runs them in virtual time"));
  ASSIGN_OR_RETURN(options, cudaOptions(*indices, flags));
  return cuda::makeCudaGroup(options);
}

MadeDevice makeHost(const std::string &, const DeviceFlags &flags) {
  ASSIGN_OR_RETURN(options, hostOptions(flags));
  return host::makeHostDevice(options);
}

const DeviceFactory kDevices[] = {
    {"host", "host", [](const std::string &name) { return name == "host"; }, makeHost,
     [](const std::string &, const DeviceFlags &flags, size_t devices, const core::PathLimits &bus) -> MadeGroup {
       ASSIGN_OR_RETURN(options, hostOptions(flags));
       return host::makeHostGroup(std::vector<host::HostOptions>(devices, options), bus);
     },
     /*pacesBus=*/true},
    {"sim", "sim", [](const std::string &name) { return name == "sim"; },
     [](const std::string &, const DeviceFlags &) -> MadeDevice { return sim::makeSimDevice(); },
     [](const std::string &, const DeviceFlags &, size_t devices, const core::PathLimits &bus) -> MadeGroup {
       return sim::makeSimGroup(devices, bus);
     },
     /*pacesBus=*/true},
    {"cuda", "cuda, or cuda:1 for the second GPU",
     [](const std::string &name) { return name == "cuda" || name.rfind("cuda:", 0) == 0; }, makeCuda, makeCudaGroup,
     /*pacesBus=*/false},
};

const DeviceFactory *factoryFor(const std::string &name) {
  for (const DeviceFactory &factory : kDevices)
    if (factory.answersTo(name))
      return &factory;
  return nullptr;
}

// What flags ask of lanes that the device has not.
absl::Status checkLanes(const DeviceFactory &factory, const DeviceFlags &flags) {
  if (flags.lowLatency && factory.kind != "host")
    return badUsage(
        model::cat("--low-latency: expected the host device, whose lanes are threads; this is ", factory.kind));
  if (flags.pin && factory.kind == "sim")
    warnOnce("--pin: is for devices that have threads; this is sim, and nothing is pinned");
  return absl::OkStatus();
}

} // namespace

std::string deviceNames(bool groups) {
  std::vector<std::string_view> names;
  for (const DeviceFactory &factory : kDevices)
    if (!groups || factory.pacesBus)
      names.push_back(factory.spelled);
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    text += model::cat(i == 0 ? "" : i + 1 == names.size() ? " or " : ", ", names[i]);
  return text;
}

absl::StatusOr<std::unique_ptr<core::Device>> makeDevice(const std::string &name, const DeviceFlags &flags) {
  const DeviceFactory *factory = factoryFor(name);
  if (factory == nullptr)
    return badFlag("--device", name, deviceNames());
  RETURN_IF_ERROR(checkLanes(*factory, flags));
  return factory->make(name, flags);
}

absl::Status checkDeviceGroup(const std::string &name) {
  const DeviceFactory *factory = factoryFor(name);
  return factory != nullptr && factory->pacesBus ? absl::OkStatus()
                                                 : badFlag("--device", name, deviceNames(/*groups=*/true));
}

absl::StatusOr<std::unique_ptr<core::DeviceGroup>> makeDeviceGroup(const std::string &name, const DeviceFlags &flags,
                                                                   size_t devices, const core::PathLimits &bus) {
  const DeviceFactory *factory = factoryFor(name);
  if (factory == nullptr)
    return badFlag("--device", name, "host, sim or cuda, or cuda:0,1 for the first GPU and the second");
  RETURN_IF_ERROR(checkLanes(*factory, flags));
  return factory->makeGroup(name, flags, devices, bus);
}

std::string describeDevice(const std::string &name, const core::Device &device) {
  const std::string text = name.empty() ? std::string(device.kind()) : name;
  return device.threads() > 1 ? model::cat(text, ", ", device.threads(), " threads") : text;
}

absl::StatusOr<int> threadsOf(const DeviceFlags &flags) {
  const char *const variable = std::getenv("HEADRACE_THREADS");
  const bool stated = !flags.threads.empty();
  const std::string text = stated ? flags.threads : variable != nullptr ? variable : "";
  if (text.empty())
    return host::defaultThreads();
  int64_t threads = 0;
  const std::string expected = model::cat("an integer from 1 to ", model::kMostThreads);
  const bool digits = text.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || !absl::SimpleAtoi(text, &threads) || threads < 1 || threads > model::kMostThreads)
    return stated ? badFlag("--threads", text, expected)
                  : absl::InvalidArgumentError(model::cat("environment: HEADRACE_THREADS = \"", model::escaped(text),
                                                          "\": expected ", expected));
  if (const int cores = host::defaultThreads(); threads > cores)
    warnOnce(model::cat(stated ? "--threads " : "HEADRACE_THREADS=", threads, ": this process may use ", cores,
                        cores == 1 ? " core" : " cores", ", which more threads share"));
  return static_cast<int>(threads);
}

} // namespace headrace::tools
