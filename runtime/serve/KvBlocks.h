// SPDX-License-Identifier: Apache-2.0
//
// Which KV blocks are whose. One number names a block in every layer's cache. Block 0 is the scratch block of padded
// rows and never given out; of the free ones the lowest is given first, so that blocks in use stay together at the
// front.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace headrace::serve {

class KvBlocks {
public:
  // `blocks` a layer, the scratch block included.
  KvBlocks(int64_t blocks, int64_t blockTokens);

  int64_t freeBlocks() const { return static_cast<int64_t>(free_.size()); }
  int64_t blocksFor(int64_t tokens) const { return (tokens + blockTokens_ - 1) / blockTokens_; }

  // Appends blocks to `table` until it holds `tokens` tokens. ResourceExhausted, with nothing taken, if too few are
  // free. Allocates nothing if the table has the capacity.
  absl::Status grow(std::vector<int32_t> &table, int64_t tokens);
  // Takes back all blocks of `table` and empties it.
  void release(std::vector<int32_t> &table);

private:
  int64_t blockTokens_;
  std::vector<int32_t> free_; // a heap, lowest block on top
};

} // namespace headrace::serve
