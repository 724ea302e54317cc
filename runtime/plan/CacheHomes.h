// SPDX-License-Identifier: Apache-2.0
//
// Where the caches of a plan have their homes if blocks of one lie apart: the first ones on the device, interleaved
// with those of the other layers (Plan::kvStride). For plans without a structure fault.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/plan/Plan.h"

namespace headrace::plan {

class CacheHomes {
public:
  explicit CacheHomes(const Plan &plan);

  // Some cache is interleaved, so all are, in all placements. Else nothing below means anything.
  bool interleaved() const { return interleaved_; }
  uint64_t blockBytes() const { return blockBytes_; }
  // Bytes of each cache at home on the device in a placement: whole blocks, from block 0 on.
  uint64_t residentBytes(uint32_t placement) const { return homes_[placement].resident; }
  // The most of any placement.
  uint64_t mostResidentBytes() const;
  // The device range of all caches: from the lowest address of one, as many bytes as all of them have.
  uint64_t regionBegin(uint32_t placement) const { return homes_[placement].base; }
  uint64_t regionBytes(uint32_t placement) const { return homes_[placement].resident * layers_; }

private:
  struct Home {
    uint64_t base = UINT64_MAX, resident = 0;
  };
  uint64_t blockBytes_, layers_;
  bool interleaved_ = false;
  std::vector<Home> homes_; // by placement
};

} // namespace headrace::plan
