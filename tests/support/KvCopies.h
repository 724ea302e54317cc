// SPDX-License-Identifier: Apache-2.0
//
// Resizable copies of KV blocks for a plan that has none (TinyPlan.h), for tests of devices: nothing reads what they
// bring, and the plan is not one that could be verified.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/plan/value/Plan.h"

namespace headrace::core {

// What is copied back to the host: nothing, all that was brought, what is in use, or what a launch has written (of a
// transition what is in use).
enum class CopiedBack : uint8_t { Nothing, All, InUse, Written };

struct KvCopies {
  int64_t firstBlock = 4, blocks = 16; // of every layer
  bool interleaved = false;            // on the device
  CopiedBack back = CopiedBack::Nothing;
  // Where addKvCopies() has put them, a layer each; `backHost`: what is copied back goes elsewhere, so that it shows.
  std::vector<uint64_t> host, device, backHost;
};

// Every schedule begins with a resizable copy a layer of the blocks that `copies` says, from the host to memory that
// the exit state names (interleaved: that is an extent), and ends with those back, each as soon as its layer's is
// there. Each takes the profile's latency and a nanosecond a byte. One more transition, the last, has these copies
// alone.
void addKvCopies(plan::Plan &plan, KvCopies &copies);

} // namespace headrace::core
