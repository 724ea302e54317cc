// SPDX-License-Identifier: Apache-2.0
//
// Where a block of a layer's cache lies between iterations: what hand-over and swapping ask. kernels/KvSegments.h says
// it to the kernels. While a state is dirty (DirtyStates.h) the home of a block of a tail may be behind what a slot has
// of it: Runtime::flushKv() comes first.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/plan/value/Plan.h"

namespace headrace::core {

// Every current copy of a block: the one that is read, and the mirror of one that is on the device, where the plan
// keeps one.
struct KvPlaces {
  plan::Space space = plan::Space::Device; // of the block's home
  uint64_t address = 0;
  bool mirrored = false; // at home on the device, and kept current on the host
  uint64_t mirror = 0;   // in the host slab
};

// Made once a plan and placement; asking it allocates nothing.
class KvLayout {
public:
  KvLayout(const plan::Plan &plan, uint32_t placement);

  uint64_t blockBytes() const { return block_; }
  int64_t blocks() const { return blocks_; } // that the placement has, the scratch block included
  int64_t layers() const { return static_cast<int64_t>(caches_.size()) / miniBatches_; }
  // On the device: where the ids of the tokens of a mini-batch's block are, and how many bytes of them.
  uint64_t ids(int64_t block, uint32_t miniBatch = 0) const {
    return ids_ + miniBatch * idsRange_ + static_cast<uint64_t>(block) * idBytes_;
  }
  uint64_t idBytes() const { return idBytes_; }
  // Of a mini-batch's block below blocks().
  KvPlaces of(int64_t layer, int64_t block, uint32_t miniBatch = 0) const;

private:
  struct Cache {
    uint64_t device = 0; // of block 0
    uint64_t host = 0;   // where block 0 would lie, modulo 2^64
  };
  uint64_t block_ = 0, stride_ = 0;
  uint64_t ids_ = 0, idsRange_ = 0, idBytes_ = 0;
  int64_t blocks_ = 0, resident_ = 0, mirrored_ = 0; // from this block on there is a copy on the host
  int64_t miniBatches_;
  std::vector<Cache> caches_; // by layer, in it by mini-batch
};

} // namespace headrace::core
