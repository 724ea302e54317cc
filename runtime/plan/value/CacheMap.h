// SPDX-License-Identifier: Apache-2.0
//
// The map of a plan's caches: where a block of a layer is between iterations. kernels/KvSegments.h says it to the
// kernels. For plans without a structure fault.
//
//   kv.0, kv.1 of five blocks     device                                    host
//   whole                         kv.0: 0 1 2 3 4  kv.1: 0 1 2 3 4
//   split, two resident           0:kv.0 0:kv.1 1:kv.0 1:kv.1               kv.0: 2 3 4  kv.1: 2 3 4
//   split, four resident          0:kv.0 0:kv.1 1:kv.0 ... 3:kv.1           kv.0: 2 3 4  kv.1: 2 3 4
//
// Of a plan with both of the last, blocks 2 and 3 are kept current on the host where they are at home on the device:
// they are mirrored. While a state is dirty (core/DirtyStates.h) the home of a block on the host may be behind what a
// slot has of it: core::Runtime::flushKv() comes first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/plan/value/Plan.h"

namespace headrace::plan {

// Every current copy of a part of a block; one at least. What is on the device is at home there, and read there.
struct BlockPlace {
  std::optional<uint64_t> device; // in the arena
  std::optional<uint64_t> host;   // in the slab
  bool operator==(const BlockPlace &) const = default;
};

// A part of one block of a list: a layer's, or behind the last layer the ids of its tokens.
struct BlockPart {
  int64_t layer = 0;
  size_t index = 0; // into the list
  bool operator==(const BlockPart &) const = default;
};

// Of one placement. Made once; asking it allocates nothing.
class CacheMap {
public:
  CacheMap(const Plan &plan, const Placement &placement);

  int64_t layers() const { return static_cast<int64_t>(caches_.size()) / miniBatches_; }
  int64_t blocks() const { return blocks_; } // KV blocks of a layer, the scratch block included
  // KV blocks below this number are at home on the device, the others on the host.
  int64_t resident() const { return resident_; }
  bool split() const { return resident_ < blocks_; }
  // Whether, in any placement, all layers' blocks of a number lie together on the device, number by number.
  bool byNumber() const { return byNumber_; }
  // There are activation blocks, and all of them are at home on the host.
  bool actsOnHost() const { return actsOnHost_; }

  // Bytes of a part; of all of them.
  uint64_t bytesOf(int64_t layer, int64_t block) const {
    return layer == layers() ? idBytes_ : isAct(block) ? actBlock_ : block_;
  }
  uint64_t bytesOf(int64_t block) const {
    return static_cast<uint64_t>(layers()) * bytesOf(0, block) + bytesOf(layers(), block);
  }
  // Of a mini-batch's KV block below blocks(), or of an activation block, numbered as in tables of blocks.
  BlockPlace of(int64_t layer, int64_t block, uint32_t miniBatch = 0) const;

private:
  struct Cache {
    uint64_t device = 0; // of KV block 0
    uint64_t host = 0;   // where KV block 0 would lie, modulo 2^64
    BlockPlace act;      // of the first activation block
  };
  bool isAct(int64_t block) const { return block >= firstAct_; }

  uint64_t block_, pitch_, actBlock_, idBytes_;
  uint64_t ids_ = 0, idsRange_ = 0;
  int64_t blocks_, resident_, mirrored_; // from this block on there is a copy on the host
  int64_t firstAct_, miniBatches_;
  bool byNumber_ = false, actsOnHost_ = false;
  std::vector<Cache> caches_; // by layer, in it by mini-batch
};

// Of all placements.
std::vector<CacheMap> cacheMaps(const Plan &plan);

// The least KV block that is at home on the host in any placement; kvBlocks where none is.
int64_t firstBlockOnHost(const Plan &plan);

// Bytes of a KV block in all layers, with the ids of its tokens: what has to be moved of it.
uint64_t movedBlockBytes(const Plan &plan);

// The parts of a list of so many blocks, from 0 on: `byNumber` says whether those of a block or those of a layer follow
// each other; the ids come last.
BlockPart blockPart(uint64_t number, int64_t layers, size_t blocks, bool byNumber);

} // namespace headrace::plan
