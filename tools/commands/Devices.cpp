// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/Devices.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/cuda/CudaDevice.h"
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
  // So many of them on a bus of so many bytes/s; null: there are no groups of it.
  absl::StatusOr<std::unique_ptr<core::DeviceGroup>> (*makeGroup)(const DeviceFlags &flags, size_t devices,
                                                                  const core::PathLimits &bus);
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

absl::StatusOr<cuda::CpuLaneOptions> cpuLaneOptions(const DeviceFlags &flags) {
  ASSIGN_OR_RETURN(threads, threadsOf(flags));
  cuda::CpuLaneOptions made;
  made.threads = threads;
  if (flags.pin) {
    const std::vector<int> cores = coresOf(threads, "all of them of the CPU's lane");
    made.core = cores.front();
    made.helperCores.assign(cores.begin() + 1, cores.end());
  }
  return made;
}

MadeDevice makeCuda(const std::string &name, const DeviceFlags &flags) {
  ASSIGN_OR_RETURN(index, cuda::deviceIndex(name));
  ASSIGN_OR_RETURN(cpu, cpuLaneOptions(flags));
  cuda::CudaOptions options;
  options.index = index;
  options.capture = flags.captureGraphs;
  options.traceBy = flags.traceBy;
  options.libraries = flags.cudaLibraries;
  options.cpu = std::move(cpu);
  options.algorithms = flags.cudaAlgorithms;
  options.notice = warnOnce;
  options.pinning = [step = std::shared_ptr<Progress>()](uint64_t done, uint64_t total) mutable {
    if (step == nullptr)
      step = std::make_shared<Progress>("pinning host memory", Amount::Bytes);
    step->update(done, total);
    if (done == total)
      step.reset();
  };
  return cuda::makeCudaDevice(options);
}

MadeDevice makeHost(const std::string &, const DeviceFlags &flags) {
  ASSIGN_OR_RETURN(options, hostOptions(flags));
  return host::makeHostDevice(options);
}

const DeviceFactory kDevices[] = {
    {"host", "host", [](const std::string &name) { return name == "host"; }, makeHost,
     [](const DeviceFlags &flags, size_t devices, const core::PathLimits &bus) -> MadeGroup {
       ASSIGN_OR_RETURN(options, hostOptions(flags));
       return host::makeHostGroup(std::vector<host::HostOptions>(devices, options), bus);
     }},
    {"sim", "sim", [](const std::string &name) { return name == "sim"; },
     [](const std::string &, const DeviceFlags &) -> MadeDevice { return sim::makeSimDevice(); },
     [](const DeviceFlags &, size_t devices, const core::PathLimits &bus) -> MadeGroup {
       return sim::makeSimGroup(devices, bus);
     }},
    {"cuda", "cuda, or cuda:1 for the second GPU", [](const std::string &name) { return cuda::deviceIndex(name).ok(); },
     makeCuda, nullptr},
};

const DeviceFactory *factoryFor(const std::string &name, bool group) {
  for (const DeviceFactory &factory : kDevices)
    if ((!group || factory.makeGroup != nullptr) && factory.answersTo(name))
      return &factory;
  return nullptr;
}

} // namespace

std::string deviceNames(bool groups) {
  std::vector<std::string_view> names;
  for (const DeviceFactory &factory : kDevices)
    if (!groups || factory.makeGroup != nullptr)
      names.push_back(factory.spelled);
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    text += model::cat(i == 0 ? "" : i + 1 == names.size() ? " or " : ", ", names[i]);
  return text;
}

absl::StatusOr<std::unique_ptr<core::Device>> makeDevice(const std::string &name, const DeviceFlags &flags) {
  const DeviceFactory *factory = factoryFor(name, /*group=*/false);
  if (factory == nullptr)
    return badFlag("--device", name, deviceNames());
  if (flags.lowLatency && factory->kind != "host")
    return badUsage(
        model::cat("--low-latency: expected the host device, whose lanes are threads; this is ", factory->kind));
  if (flags.pin && factory->kind == "sim")
    warnOnce("--pin: is for devices that have threads; this is sim, and nothing is pinned");
  return factory->make(name, flags);
}

absl::Status checkDeviceGroup(const std::string &name) {
  return factoryFor(name, /*group=*/true) != nullptr ? absl::OkStatus()
                                                     : badFlag("--device", name, deviceNames(/*groups=*/true));
}

absl::StatusOr<std::unique_ptr<core::DeviceGroup>> makeDeviceGroup(const std::string &name, const DeviceFlags &flags,
                                                                   size_t devices, const core::PathLimits &bus) {
  RETURN_IF_ERROR(checkDeviceGroup(name));
  return factoryFor(name, /*group=*/true)->makeGroup(flags, devices, bus);
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
