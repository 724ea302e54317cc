// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/Kernels.h"
#include "tests/unit/plan/PlacementBuilder.h"

namespace headrace::plan::test {

bool areOnHost(const ActOptions &acts, const Buffer &buffer) {
  return buffer.kind == BufferKind::Act &&
         std::find(acts.onHost.begin(), acts.onHost.end(), buffer.layer) != acts.onHost.end();
}

Extent PlacementBuilder::actHome(uint32_t buffer) const {
  return {buffer, Space::Host, true, 0, plan_.buffers[buffer].bytes, hostAddress(buffer)};
}

// The slots before those of residuals, turn by turn.
void PlacementBuilder::rememberActs() {
  const std::vector<Slot> &slots = placement().slots;
  const size_t first = slots.size() - residualSlots() - actSlots();
  for (uint32_t buffer = 0, turn = 0; buffer < plan_.buffers.size(); ++buffer)
    if (actsOnHost(buffer))
      slotAddress_[buffer] = slots[first + turn++ % actSlots()].address;
}

// Once what the slot held has been read; where the rows of the iteration are kept before that, behind them.
void PlacementBuilder::addCopiesOfActs() {
  for (int use = 0; use < static_cast<int>(computes_.size()); ++use) {
    const Step &step = computes_[static_cast<size_t>(use)].step;
    if (step.kind != StepKind::Compute || step.op != kernels::Op::RebuildKv)
      continue;
    const uint32_t acts = actBuffer(plan_, step.layer, step.miniBatch);
    if (!actsOnHost(acts))
      continue;
    PlannedCopy copy{acts, 0, actBytes(), slotAddress_.at(acts), hostAddress(acts)};
    copy.after = lastReader(copy.address, copy.bytes, use);
    for (int i = 0; i < use; ++i)
      for (const Operand &o : computes_[static_cast<size_t>(i)].operands)
        if (o.buffer == acts && o.space == Space::Host)
          copy.after = std::max(copy.after, i);
    copy.neededBy = use;
    copy.resizable = options_.resizable;
    copies_.push_back(copy);
  }
  sortCopiesByUse();
}

} // namespace headrace::plan::test
