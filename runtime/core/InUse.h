// SPDX-License-Identifier: Apache-2.0
//
// How much of the KV cache a launch may use, and what its resizable copies (plan::Step::resizable) copy of it. Size and
// start belong to their launch: of two launches of one graph in flight each keeps its own.
//
//   blocks      | 4    5    6    7    8    9    10   11 |     what the plan lets it copy, in 256 shares
//   in use      | - - - - - - - - - -|                        blocks below 6.5, say
//   is copied   | = = = = = = = = = = =|                      the first shares that hold them, at least one
//   written     |         - - -|                              dirtyOnly: blocks that the launch's own rows are in
//   is copied   |        = = = =|                             the shares that hold them, the first where there are none
//
// What is copied beside the blocks asked for is the rest of a share: whoever writes to the home of such a block other
// than by a launch does so with no launch in flight that copies there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "absl/types/span.h"
#include "kernels/IterationMeta.h"

namespace headrace::core {

// Of one mini-batch.
struct InUse {
  // KV blocks that may be in use, a layer, the scratch block 0 included: those below this number.
  int64_t kvBlocks = std::numeric_limits<int64_t>::max();
  // Blocks that rows of this launch are written to lie in [writtenBegin, writtenEnd), the scratch block left out; none
  // are where it is empty. What is not in use is not written either.
  int64_t writtenBegin = 0, writtenEnd = std::numeric_limits<int64_t>::max();
  int64_t rows = std::numeric_limits<int64_t>::max(); // of the launch: so many tokens it computes
  // Activation blocks that may be in use, a layer: so many from the first on.
  int64_t actBlocks = std::numeric_limits<int64_t>::max();
};

// Of a launch: one of each mini-batch, or one for all of them. Holds them without allocating.
class LaunchInUse {
public:
  LaunchInUse(const InUse &all = {}) { each_[0] = all; } // implicit: most plans have one mini-batch
  // One a mini-batch, 1 to kMostMiniBatches of them.
  explicit LaunchInUse(absl::Span<const InUse> each);

  const InUse &of(uint32_t miniBatch) const { return each_[count_ == 1 ? 0 : miniBatch]; }

private:
  std::array<InUse, kernels::kMostMiniBatches> each_;
  size_t count_ = 1;
};

// A copy of a layer's KV blocks from `firstBlock` on, of which a launch may do a part; or of a residual stream, whose
// blocks are rows.
struct SizedCopy {
  int64_t firstBlock = 0;
  uint64_t blockBytes = 0;  // above 0
  uint64_t bytes = 0;       // of all its blocks: the most that is copied; below 2^55
  bool wholeBlocks = false; // rounded to blocks, else to kSizeAlign bytes
  bool dirtyOnly = false;   // the blocks written; else those in use from the first on
  uint32_t miniBatch = 0;   // whose blocks they are
  bool ofRows = false;      // the launch's; else the blocks in use, or written
  bool ofAct = false;       // activation blocks in use
};

inline constexpr uint32_t kShares = 256;    // a copy's part is a number of 256ths of it
inline constexpr uint64_t kSizeAlign = 256; // and a multiple of this, but where it goes to the end

// 256ths [begin, end) of a copy: begin < end, there is no copy of nothing.
struct Shares {
  uint32_t begin = 0, end = kShares;
  bool operator==(const Shares &) const = default;
};
// The fewest shares that hold the blocks in use, from the first share on; of a dirtyOnly copy the fewest that hold the
// blocks written. Where there is no such block in it, the first share.
Shares sharesInUse(const SizedCopy &copy, const InUse &inUse);
inline Shares sharesInUse(const SizedCopy &copy, const LaunchInUse &inUse) {
  return sharesInUse(copy, inUse.of(copy.miniBatch));
}

// Bytes [offset, offset + bytes) of a copy; the offset is a multiple of kSizeAlign, of blocks where wholeBlocks.
struct CopyRun {
  uint64_t offset = 0, bytes = 0;
  bool operator==(const CopyRun &) const = default;
};
// The bytes of so many 256ths: at most all, at least those of the blocks they were asked for.
CopyRun runOf(const SizedCopy &copy, Shares shares);

inline CopyRun runInUse(const SizedCopy &copy, const LaunchInUse &inUse) {
  return runOf(copy, sharesInUse(copy, inUse));
}
inline uint64_t bytesInUse(const SizedCopy &copy, const LaunchInUse &inUse) { return runInUse(copy, inUse).bytes; }

} // namespace headrace::core
