// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/CacheHomes.h"

#include <algorithm>

#include "runtime/model/ModelSpec.h"

namespace headrace::plan {

CacheHomes::CacheHomes(const Plan &plan)
    : blockBytes_(plan.kvBlockBytes()), layers_(static_cast<uint64_t>(plan.model->layers)) {
  for (const Placement &placement : plan.placements) {
    Home home;
    for (const Extent &e : placement.extents)
      if (e.interleaved) {
        home.base = std::min(home.base, e.address);
        home.resident = e.bytes; // of every layer the same
      }
    interleaved_ = home.resident > 0;
    if (!interleaved_)
      return; // nor is any in another placement
    homes_.push_back(home);
  }
}

uint64_t CacheHomes::mostResidentBytes() const {
  uint64_t most = 0;
  for (const Home &home : homes_)
    most = std::max(most, home.resident);
  return most;
}

} // namespace headrace::plan
