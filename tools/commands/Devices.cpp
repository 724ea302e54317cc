// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/Devices.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <sched.h>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/cuda/CudaDevice.h"
#include "runtime/host/HostDevice.h"
#include "runtime/host/HostGroup.h"
#include "runtime/sim/SimDevice.h"
#include "runtime/sim/SimGroup.h"
#include "tools/commands/InputErrors.h"

namespace headrace::tools {
namespace {

struct DeviceFactory {
  std::string_view kind;    // core::Device::kind()
  std::string_view spelled; // what --device may be for it
  bool (*answersTo)(const std::string &name);
  absl::StatusOr<std::unique_ptr<core::Device>> (*make)(const std::string &name, const DeviceFlags &flags);
  // So many of them on a bus of so many bytes/s; null: there are no groups of it.
  absl::StatusOr<std::unique_ptr<core::DeviceGroup>> (*makeGroup)(size_t devices, const core::PathLimits &bus);
};

using MadeDevice = absl::StatusOr<std::unique_ptr<core::Device>>;
using MadeGroup = absl::StatusOr<std::unique_ptr<core::DeviceGroup>>;

MadeDevice makeCuda(const std::string &name, const DeviceFlags &flags) {
  const absl::StatusOr<int> index = cuda::deviceIndex(name);
  if (!index.ok())
    return index.status();
  return cuda::makeCudaDevice(
      {.index = *index, .capture = flags.captureGraphs, .traceBy = flags.traceBy, .libraries = flags.cudaLibraries});
}

void pinLanes(host::HostOptions &options) {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0)
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set))
        cores.push_back(core);
  if (cores.empty())
    return;
  options.computeCore = cores[0];
  options.transferCore = cores[std::min<size_t>(1, cores.size() - 1)];
}

MadeDevice makeHost(const std::string &, const DeviceFlags &flags) {
  host::HostOptions made{.lowLatency = flags.lowLatency};
  if (flags.pin)
    pinLanes(made);
  return host::makeHostDevice(made);
}

const DeviceFactory kDevices[] = {
    {"host", "host", [](const std::string &name) { return name == "host"; }, makeHost,
     [](size_t devices, const core::PathLimits &bus) -> MadeGroup {
       return host::makeHostGroup(std::vector<host::HostOptions>(devices), bus);
     }},
    {"sim", "sim", [](const std::string &name) { return name == "sim"; },
     [](const std::string &, const DeviceFlags &) -> MadeDevice { return sim::makeSimDevice(); },
     [](size_t devices, const core::PathLimits &bus) -> MadeGroup { return sim::makeSimGroup(devices, bus); }},
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
  return factory->make(name, flags);
}

absl::Status checkDeviceGroup(const std::string &name) {
  return factoryFor(name, /*group=*/true) != nullptr ? absl::OkStatus()
                                                     : badFlag("--device", name, deviceNames(/*groups=*/true));
}

absl::StatusOr<std::unique_ptr<core::DeviceGroup>> makeDeviceGroup(const std::string &name, size_t devices,
                                                                   const core::PathLimits &bus) {
  RETURN_IF_ERROR(checkDeviceGroup(name));
  return factoryFor(name, /*group=*/true)->makeGroup(devices, bus);
}

} // namespace headrace::tools
