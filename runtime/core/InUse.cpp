// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/InUse.h"

#include <algorithm>

namespace headrace::core {
namespace {

constexpr uint64_t divideUp(uint64_t a, uint64_t b) { return a / b + (a % b != 0); }

// whole * share / kShares, rounded down and up, for a share of at most kShares: no product is larger than `whole`, but
// for that of a remainder.
constexpr uint64_t partDown(uint64_t whole, uint32_t share) {
  return whole / kShares * share + whole % kShares * share / kShares;
}
constexpr uint64_t partUp(uint64_t whole, uint32_t share) {
  return whole / kShares * share + divideUp(whole % kShares * share, kShares);
}

uint64_t blocksOf(const SizedCopy &copy) { return divideUp(copy.bytes, copy.blockBytes); }

// How many of the copy's blocks lie below `block`.
uint64_t blocksBelow(const SizedCopy &copy, int64_t block) {
  if (block <= copy.firstBlock)
    return 0;
  return std::min(static_cast<uint64_t>(block) - static_cast<uint64_t>(copy.firstBlock), blocksOf(copy));
}

// Of the first so many blocks, not more than the copy has: the share that ends at or behind them.
uint32_t shareBehind(const SizedCopy &copy, uint64_t blocks) {
  if (blocks >= blocksOf(copy))
    return kShares;
  return static_cast<uint32_t>(divideUp(blocks * copy.blockBytes * kShares, copy.bytes));
}

} // namespace

LaunchInUse::LaunchInUse(absl::Span<const InUse> each) : count_(each.size()) {
  std::copy(each.begin(), each.end(), each_.begin());
}

Shares sharesInUse(const SizedCopy &copy, const InUse &inUse) {
  const uint64_t end = blocksBelow(copy, copy.ofRows      ? inUse.rows
                                         : copy.ofAct     ? inUse.actBlocks
                                         : copy.dirtyOnly ? std::min(inUse.writtenEnd, inUse.kvBlocks)
                                                          : inUse.kvBlocks);
  const uint64_t begin = copy.dirtyOnly ? blocksBelow(copy, inUse.writtenBegin) : 0;
  if (begin >= end)
    return {0, 1};
  // begin < end, so it lies below all of the copy's bytes.
  return {static_cast<uint32_t>(begin * copy.blockBytes * kShares / copy.bytes), shareBehind(copy, end)};
}

CopyRun runOf(const SizedCopy &copy, Shares shares) {
  if (copy.wholeBlocks) {
    const uint64_t blocks = blocksOf(copy), first = partDown(blocks, shares.begin) * copy.blockBytes;
    return {first, std::min(copy.bytes, partUp(blocks, shares.end) * copy.blockBytes) - first};
  }
  const uint64_t first = partDown(copy.bytes, shares.begin) / kSizeAlign * kSizeAlign;
  return {first, std::min(copy.bytes, divideUp(partUp(copy.bytes, shares.end), kSizeAlign) * kSizeAlign) - first};
}

} // namespace headrace::core
