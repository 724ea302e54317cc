// SPDX-License-Identifier: Apache-2.0
//
// The devices of the conformance suites. A new one joins by a line in kDevices.
#pragma once

#include <algorithm>
#include <atomic>
#include <iterator>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/core/DeviceGroup.h"
#include "tests/support/LongRun.h"
#ifdef HEADRACE_EMULATED_TESTS // in the program that runs recorded graphs
#include "tests/unit/cuda/EmulatedGraphDevice.h"
#elif !defined(HEADRACE_STAND_IN_TESTS)
#include "runtime/host/HostDevice.h"
#include "runtime/host/HostGroup.h"
#include "runtime/sim/SimDevice.h"
#include "runtime/sim/SimGroup.h"
#endif
// In the program of tests that need a GPU, and in that of the stand-in of CUDA's runtime.
#if defined(HEADRACE_GPU_TESTS) || defined(HEADRACE_STAND_IN_TESTS)
#include "runtime/cuda/CudaDevice.h"
#endif

namespace headrace::core {

struct DeviceUnderTest {
  const char *name;
  std::shared_ptr<Device> (*make)();
  bool pacesCopies = true; // to DeviceOptions::linkBandwidth
  model::DeviceKind plansFor = model::DeviceKind::Host;
  bool keepsData = true; // in device memory that only the exit state names
  bool sizesRows = true; // of resizable copies in rows
  bool holdsData = true;
  int kvBits = 0; // of caches that are packed (PackedCaches.h); 0: they are not
};

#ifdef HEADRACE_EMULATED_TESTS
inline const DeviceUnderTest kDevices[] = {
    {.name = "emulatedGraphs",
     .make = [] { return std::shared_ptr<Device>(cuda::makeEmulatedGraphDevice({})); },
     .pacesCopies = false,
     .plansFor = model::DeviceKind::Cuda,
     .sizesRows = false},
};
#else
#ifndef HEADRACE_STAND_IN_TESTS
// The first of a group, which lives as long.
inline std::shared_ptr<Device> firstOf(absl::StatusOr<std::unique_ptr<DeviceGroup>> made) {
  const std::shared_ptr<DeviceGroup> group = std::move(made).value();
  return {group, &group->device(0)};
}

inline constexpr double kNoBus = std::numeric_limits<double>::infinity(); // limits nothing

inline std::shared_ptr<Device> hostWith(const host::HostOptions &options) { return host::makeHostDevice(options); }
// Each with another number of threads, every step cut as finely as it goes.
inline std::shared_ptr<Device> hostWithThreads() {
  static std::atomic<size_t> made{0};
  static constexpr int kThreads[] = {2, 3, 5, 8};
  return hostWith({.threads = kThreads[made++ % std::size(kThreads)], .unpaced = true, .unitNs = 0});
}
inline std::shared_ptr<Device> firstOfHosts(size_t devices) {
  return firstOf(host::makeHostGroup(std::vector<host::HostOptions>(devices), kNoBus));
}
#endif
inline const DeviceUnderTest kDevices[] = {
#ifndef HEADRACE_STAND_IN_TESTS
    {"host", [] { return hostWith({}); }},
    {"hostUnpaced", [] { return hostWith({.unpaced = true}); }, /*pacesCopies=*/false},
    {.name = "hostPoison", .make = [] { return hostWith({.poison = true}); }, .pacesCopies = false, .keepsData = false},
    {.name = "hostThreads", .make = hostWithThreads, .pacesCopies = false},
    {"hostGroupOfOne", [] { return firstOfHosts(1); }},
    {"hostFirstOfTwo", [] { return firstOfHosts(2); }},
    {.name = "sim", .make = [] { return std::shared_ptr<Device>(sim::makeSimDevice()); }, .holdsData = false},
    {.name = "simGroupOfOne", .make = [] { return firstOf(sim::makeSimGroup(1, {})); }, .holdsData = false},
    {.name = "simFirstOfTwo", .make = [] { return firstOf(sim::makeSimGroup(2, {})); }, .holdsData = false},
#endif
#if defined(HEADRACE_GPU_TESTS) || defined(HEADRACE_STAND_IN_TESTS)
    {.name = "cudaExplicit",
     .make = [] { return std::shared_ptr<Device>(*cuda::makeCudaDevice({.compare = true})); },
     .pacesCopies = false,
     .plansFor = model::DeviceKind::Cuda,
     .sizesRows = false},
    {.name = "cudaCapture",
     .make =
         [] {
           return std::shared_ptr<Device>(
               *cuda::makeCudaDevice({.capture = true, .compare = true, .traceBy = cuda::TraceBy::Stamps}));
         },
     .pacesCopies = false,
     .plansFor = model::DeviceKind::Cuda,
     .sizesRows = false},
#endif
};
#endif

inline std::vector<DeviceUnderTest> devicesWithData() {
  std::vector<DeviceUnderTest> out;
  for (const DeviceUnderTest &device : kDevices)
    if (device.holdsData)
      out.push_back(device);
  return out;
}

// The same, and the host with packed caches: of suites that ask for them (DeviceUnderTest::kvBits).
inline std::vector<DeviceUnderTest> devicesWithPackedKvToo() {
  std::vector<DeviceUnderTest> out = devicesWithData();
#if !defined(HEADRACE_EMULATED_TESTS) && !defined(HEADRACE_STAND_IN_TESTS)
  out.push_back({.name = "hostPoisonPackedKv",
                 .make = [] { return hostWith({.poison = true}); },
                 .pacesCopies = false,
                 .keepsData = false,
                 .kvBits = 4});
  out.push_back({.name = "hostThreadsPackedKv", .make = hostWithThreads, .pacesCopies = false, .kvBits = 8});
#endif
  return out;
}

// Of these, for suites of whole plans: all with HEADRACE_LONG, else those that run steps in ways of their own: on paced
// lanes, one by one over poison, by several threads. conformance_test has the others always.
inline std::vector<DeviceUnderTest> devicesOfPlans(std::vector<DeviceUnderTest> all) {
  constexpr std::string_view kAlike[] = {"hostUnpaced", "hostGroupOfOne", "hostFirstOfTwo", "hostThreadsPackedKv"};
  if (!longRun())
    std::erase_if(all, [&](const DeviceUnderTest &device) {
      return std::find(std::begin(kAlike), std::end(kAlike), device.name) != std::end(kAlike);
    });
  return all;
}

// Those that compute nothing, and whose times are made up.
inline std::vector<DeviceUnderTest> devicesInVirtualTime() {
  std::vector<DeviceUnderTest> out;
  for (const DeviceUnderTest &device : kDevices)
    if (!device.holdsData)
      out.push_back(device);
  return out;
}

} // namespace headrace::core
