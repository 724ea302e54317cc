// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/InUse.h"

#include <algorithm>

namespace headrace::core {
namespace {

constexpr uint64_t divideUp(uint64_t a, uint64_t b) { return a / b + (a % b != 0); }

// ceil(whole * share / kShares), for a share of at most kShares: no product is larger than `whole`.
constexpr uint64_t partOf(uint64_t whole, uint32_t share) {
  return whole / kShares * share + divideUp(whole % kShares * share, kShares);
}

} // namespace

uint32_t shareInUse(const SizedCopy &copy, const InUse &inUse) {
  if (inUse.kvBlocks <= copy.firstBlock)
    return 1;
  const uint64_t blocks = static_cast<uint64_t>(inUse.kvBlocks) - static_cast<uint64_t>(copy.firstBlock);
  if (blocks >= divideUp(copy.bytes, copy.blockBytes))
    return kShares;
  return static_cast<uint32_t>(divideUp(blocks * copy.blockBytes * kShares, copy.bytes));
}

uint64_t shareBytes(const SizedCopy &copy, uint32_t share) {
  if (copy.wholeBlocks)
    return std::min(copy.bytes, partOf(divideUp(copy.bytes, copy.blockBytes), share) * copy.blockBytes);
  return std::min(copy.bytes, divideUp(partOf(copy.bytes, share), kSizeAlign) * kSizeAlign);
}

} // namespace headrace::core
