// SPDX-License-Identifier: Apache-2.0
#include "compiler/evaluate/MemoryUse.h"

namespace headrace::compiler {

MemoryUse memoryUseOf(const Steps &steps) {
  MemoryUse use;
  use.units.resize(static_cast<size_t>(steps.firstUnit), {0, -1, -1});
  for (const StepBuffer &buffer : steps.buffers)
    if (buffer.unit >= 0)
      use.units.push_back({buffer.bytes, -1, -1});
  std::vector<size_t> transientOf(steps.buffers.size(), SIZE_MAX);
  int64_t now = 0;
  const auto touch = [&](BufferIndex index) {
    if (index == kNoBuffer || !steps.buffer(index).isTransient())
      return;
    size_t &transient = transientOf[static_cast<size_t>(index)];
    if (transient == SIZE_MAX) {
      transient = use.transients.size();
      use.transients.push_back({steps.buffer(index).bytes, now, now});
    }
    use.transients[transient].last = now;
  };
  for (const Step &step : steps.steps) {
    if (step.unit != kNoBuffer && step.op != kernels::Op::Embed) { // a table away from the device is read directly
      MemoryUse::Unit &unit = use.units[static_cast<size_t>(steps.buffer(step.unit).unit)];
      unit.firstUse = unit.firstUse < 0 ? now : unit.firstUse;
      unit.lastUse = now;
    }
    for (const BufferIndex read : {step.x, step.rebuilt, step.inPlace ? step.y : kNoBuffer})
      touch(read);
    if (step.workspaceBytes > 0)
      use.transients.push_back({step.workspaceBytes, now, now});
    touch(step.y);
    ++now;
  }
  return use;
}

} // namespace headrace::compiler
