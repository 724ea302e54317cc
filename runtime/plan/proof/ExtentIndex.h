// SPDX-License-Identifier: Apache-2.0
//
// Where the bytes of an operand have their home in a placement. For plans without a structure fault.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/plan/value/Plan.h"

namespace headrace::plan {

class ExtentIndex {
public:
  ExtentIndex(const Plan &plan, const Placement &placement)
      : placement_(placement), blockBytes_(plan.kvBlockBytes()), stride_(plan.kvStride()) {
    first_.assign(plan.buffers.size() + 1, 0);
    for (const Extent &extent : placement.extents)
      ++first_[extent.buffer + 1];
    for (size_t i = 1; i < first_.size(); ++i)
      first_[i] += first_[i - 1];
  }

  // The extent of a persistent buffer that holds the operand's first byte.
  const Extent &of(const Operand &operand) const {
    const Extent *begin = placement_.extents.data() + first_[operand.buffer];
    const Extent *end = placement_.extents.data() + first_[operand.buffer + 1];
    return *std::prev(std::upper_bound(begin, end, operand.bufferOffset,
                                       [](uint64_t offset, const Extent &e) { return offset < e.bufferOffset; }));
  }

  const Extent &first(uint32_t buffer) const { return placement_.extents[first_[buffer]]; } // of a persistent buffer

  // The operand names bytes of its buffer's home, one run (or blocks of one that are interleaved), in the operand's
  // space.
  bool atHome(const Operand &operand) const {
    if (operand.buffer + size_t{1} >= first_.size())
      return false;
    const Extent &e = of(operand);
    const uint64_t offset = operand.bufferOffset - e.bufferOffset;
    if (e.space != operand.space || e.interleaved != operand.interleaved || offset > e.bytes ||
        operand.bytes > e.bytes - offset)
      return false;
    return operand.address - e.address == (e.interleaved ? offset / blockBytes_ * stride_ : offset);
  }

private:
  const Placement &placement_;
  const uint64_t blockBytes_, stride_;
  std::vector<uint32_t> first_; // by buffer, into the placement's extents
};

} // namespace headrace::plan
