// SPDX-License-Identifier: Apache-2.0
//
// What the steps of a lane may be. Plans say the same of their lanes (runtime/plan/value/Lane.h);
// compiler/lower/Mirrors.h holds the two together.
#pragma once

#include "ir/Enums.h"

namespace headrace::ir {

struct LaneWork {
  bool computes;   // kernels, and publish
  bool prefetches; // copies that bring bytes to the device
  bool evicts;     // copies that write bytes back from it
};

constexpr LaneWork workOf(Lane lane) {
  switch (lane) {
  case Lane::Compute:
  case Lane::Cpu:
    return {true, false, false};
  case Lane::H2D:
    return {false, true, false};
  case Lane::D2H:
    return {false, false, true};
  }
  return {};
}
constexpr bool computes(Lane lane) { return workOf(lane).computes; }
constexpr bool prefetches(Lane lane) { return workOf(lane).prefetches; }
constexpr bool evicts(Lane lane) { return workOf(lane).evicts; }

} // namespace headrace::ir
