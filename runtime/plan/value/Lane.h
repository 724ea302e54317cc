// SPDX-License-Identifier: Apache-2.0
//
// The lanes of a device, and what each may run. Who asks "may this step be here?" or "which way does this copy go?"
// asks here, and never compares lanes one by one.
#pragma once

#include <cstdint>

#include "runtime/base/EnumCount.h"

namespace headrace::plan {

// An in-order queue of work on a device.
enum class Lane : uint8_t { Compute = 0, H2D = 1, D2H = 2, Cpu = 3 };
inline constexpr int kLanes = model::enumCount<Lane>();

// What does a lane's work.
enum class Engine : uint8_t { Kernels, CopyIn, CopyOut, HostThreads };
// Which way a lane's copies cross the link between host and device.
enum class LinkDirection : uint8_t { None, ToDevice, ToHost };

struct LaneTraits {
  Lane lane;
  const char *name;
  Engine engine;
  bool computes;   // kernels, and publish
  bool prefetches; // copies that bring bytes to the device
  bool evicts;     // copies that write bytes back from it
  LinkDirection link;
};
inline constexpr LaneTraits kLaneTraits[] = {
    {Lane::Compute, "compute", Engine::Kernels, true, false, false, LinkDirection::None},
    {Lane::H2D, "h2d", Engine::CopyIn, false, true, false, LinkDirection::ToDevice},
    {Lane::D2H, "d2h", Engine::CopyOut, false, false, true, LinkDirection::ToHost},
    {Lane::Cpu, "cpu", Engine::HostThreads, true, false, false, LinkDirection::None},
};
constexpr const LaneTraits &traitsOf(Lane lane) { return kLaneTraits[static_cast<int>(lane)]; }
constexpr bool everyLaneHasTraits() {
  for (int i = 0; i < kLanes; ++i)
    if (traitsOf(static_cast<Lane>(i)).lane != static_cast<Lane>(i))
      return false;
  return sizeof(kLaneTraits) / sizeof(kLaneTraits[0]) == kLanes;
}
static_assert(everyLaneHasTraits());

constexpr const char *laneName(Lane lane) { return traitsOf(lane).name; } // "compute", "h2d", ...
constexpr bool computes(Lane lane) { return traitsOf(lane).computes; }
constexpr bool toDevice(Lane lane) { return traitsOf(lane).link == LinkDirection::ToDevice; }
constexpr bool toHost(Lane lane) { return traitsOf(lane).link == LinkDirection::ToHost; }

} // namespace headrace::plan
