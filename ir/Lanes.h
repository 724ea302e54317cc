// SPDX-License-Identifier: Apache-2.0
//
// What the steps of a lane may be. Plans say the same of their lanes (runtime/plan/Lane.h); compiler/lower/Mirrors.h
// holds the two together.
#pragma once

#include "ir/Enums.h"

namespace headrace::ir {

constexpr bool computes(Lane lane) { // kernels, and publish
  switch (lane) {
  case Lane::Compute:
  case Lane::Cpu:
    return true;
  case Lane::H2D:
  case Lane::D2H:
  case Lane::P2P:
  case Lane::Disk:
    break;
  }
  return false;
}
constexpr bool prefetches(Lane lane) { // copies that bring bytes to the device
  switch (lane) {
  case Lane::H2D:
  case Lane::P2P:
  case Lane::Disk:
    return true;
  case Lane::Compute:
  case Lane::D2H:
  case Lane::Cpu:
    break;
  }
  return false;
}
constexpr bool evicts(Lane lane) { // copies that write bytes back from it
  switch (lane) {
  case Lane::D2H:
  case Lane::P2P:
  case Lane::Disk:
    return true;
  case Lane::Compute:
  case Lane::H2D:
  case Lane::Cpu:
    break;
  }
  return false;
}

} // namespace headrace::ir
