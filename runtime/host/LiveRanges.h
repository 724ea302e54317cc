// SPDX-License-Identifier: Apache-2.0
//
// Which bytes of the arena hold nothing, when the steps of a schedule run one by one: what the debug mode fills with
// NaNs.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/plan/value/Plan.h"

namespace headrace::host {

struct ByteRange {
  uint64_t begin = 0;
  uint64_t end = 0; // exclusive
};

struct DeadRanges {
  std::vector<ByteRange> before;             // all that neither a home nor the entry state covers
  std::vector<std::vector<ByteRange>> after; // per step: what was used for the last time and is not live otherwise
};

// Live are homes on the device (in a change of placement, those that both placements have there, and what is copied to
// its home from then on); what entry state and copies put into slots, until its last reader or its overwriting,
// and to the end if the exit state names it; transient buffers from their first to their last use. Logits stay to the
// end: an engine that keeps them reads them when the iteration has ended.
DeadRanges deadRanges(const plan::Plan &plan, const plan::Schedule &schedule);

} // namespace headrace::host
