// SPDX-License-Identifier: Apache-2.0
//
// Resizable copies of KV blocks for a plan that has none (TinyPlan.h), for tests of devices: nothing reads what they
// bring, and the plan is not one that could be verified.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/plan/Plan.h"

namespace headrace::core {

struct KvCopies {
  int64_t firstBlock = 4, blocks = 16; // of every layer
  bool interleaved = false;            // on the device
  // Where addKvCopies() has put them, a layer each.
  std::vector<uint64_t> host, device;
};

// Every schedule begins with a resizable copy a layer of the blocks that `copies` says, from the host to memory that
// the exit state names (interleaved: that is an extent). Each takes the profile's latency and a nanosecond a byte. One
// more transition, the last, has these copies alone.
void addKvCopies(plan::Plan &plan, KvCopies &copies);

} // namespace headrace::core
