// SPDX-License-Identifier: Apache-2.0
//
// What direct steps move over the link. The plan says how much at most (Step::linkBytes); how much it is in an
// iteration follows from the iteration's rows.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/IterationMeta.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::core {

struct DirectBytes {
  uint64_t readPerRow = 0; // host to device
  // Device to host, of rows whose slot in the KV cache is in [firstSlot, endSlot).
  uint64_t writtenPerRow = 0, firstSlot = 0, endSlot = 0;

  uint64_t metaOffset = 0; // of its mini-batch's header from the first one's

  bool any() const { return readPerRow != 0 || writtenPerRow != 0; }
  // `first`: the header of the first mini-batch, which those of the others lie behind.
  uint64_t read(const kernels::IterationMeta &first) const;
  uint64_t written(const kernels::IterationMeta &first) const;
};

// Of one step, whose operands are those of its op. Embed reads its tables' rows, FetchRows what attention on the CPU
// left of each row; RopeAppend writes keys and values to their home.
DirectBytes directBytes(const plan::Plan &plan, const plan::Schedule &schedule, const plan::Step &step);

// Of all steps: one for each range of slots of a mini-batch, which is one for all of its steps.
std::vector<DirectBytes> directBytes(const plan::Plan &plan, const plan::Schedule &schedule);

} // namespace headrace::core
