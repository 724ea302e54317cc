// SPDX-License-Identifier: Apache-2.0
//
// Where the caches of a plan have their homes if they are split by block number: the first blocks, if there are any, on
// the device, interleaved with those of the other layers (Plan::kvStride), the others, the tail, on the host. For plans
// without a structure fault.
//
//   placement       blocks of a layer
//   a               0 1 2 3 | 4 5 6 7        device | host: four of eight are resident
//   b               0 1 | 2 3 4 5            of six two
//   c               0 1 2 3 4 5              of six all
//   mirrored            2 3 4 5 6 7          from the fewest resident on of placements that have a tail; with a fourth
//                                            placement that has none on the device: from block 0 on
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/plan/value/Plan.h"

namespace headrace::plan {

class CacheHomes {
public:
  explicit CacheHomes(const Plan &plan);

  // Some cache is interleaved on the device or has blocks at home on the host, so all are split, in all placements.
  // Else there are none to be asked for below.
  bool split() const { return split_; }
  uint64_t blockBytes() const { return blockBytes_; }
  // Bytes of each cache at home on the device in a placement: whole blocks, from block 0 on; 0: all are on the host.
  uint64_t residentBytes(uint32_t placement) const { return homes_[placement].resident; }
  // The most of any placement.
  uint64_t mostResidentBytes() const;
  // Bytes of each cache that exist in a placement, on the device or on the host.
  uint64_t bytes(uint32_t placement) const { return homes_[placement].bytes; }
  // Bytes of each cache that may be in use while a schedule runs.
  uint64_t bytesInUse(const Schedule &schedule) const {
    return schedule.kvBlocks > 0 ? static_cast<uint64_t>(schedule.kvBlocks) * blockBytes_ : bytes(schedule.placement);
  }

  // Mirrored bytes of each cache, [mirrorBegin, mirrorEnd): in some placement their home is on the host, so their home
  // there is kept current in all, as they are written or by copies behind that. Empty if no placement has a tail.
  uint64_t mirrorBegin() const { return mirrorBegin_; }
  uint64_t mirrorEnd() const { return mirrorEnd_; }
  bool mirrors() const { return mirrorBegin_ < mirrorEnd_; }
  // Where byte 0 of a mirrored cache would be in the host slab, modulo 2^64.
  uint64_t slabBase(uint32_t buffer) const { return slab_[buffer]; }

  // The device range of all caches: from the lowest address of one, as many bytes as all of them have there.
  uint64_t regionBegin(uint32_t placement) const { return homes_[placement].base; }
  uint64_t regionBytes(uint32_t placement) const { return homes_[placement].resident * caches_; }

private:
  struct Home {
    uint64_t base = 0, resident = 0, bytes = 0;
  };
  uint64_t blockBytes_, caches_;
  bool split_ = false;
  std::vector<Home> homes_; // by placement
  uint64_t mirrorBegin_ = 0, mirrorEnd_ = 0;
  std::vector<uint64_t> slab_; // by buffer
};

} // namespace headrace::plan
