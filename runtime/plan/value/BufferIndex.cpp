// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/value/BufferIndex.h"

#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::plan {

BufferIndex::BufferIndex(const Plan &plan)
    : miniBatches_(plan.miniBatches), weights_(static_cast<size_t>(model::unitCount(plan.model->layers)), kNone),
      kv_(static_cast<size_t>(plan.kvCaches()), kNone), act_(plan.actBlocks > 0 ? kv_.size() : 0, kNone),
      residuals_(plan.miniBatches, kNone) {
  io_.fill(kNone);
  const auto put = [](auto &table, size_t at, uint32_t buffer) {
    if (at < table.size() && table[at] == kNone)
      table[at] = buffer;
  };
  for (uint32_t i = 0; i < plan.buffers.size(); ++i) {
    const Buffer &buffer = plan.buffers[i];
    switch (buffer.kind) {
    case BufferKind::Weight:
      put(weights_, buffer.index, i);
      break;
    case BufferKind::Kv:
      if (buffer.layer >= 0 && buffer.index < miniBatches_)
        put(kv_, plan.cacheNumber(buffer), i);
      break;
    case BufferKind::Io:
      put(io_, buffer.index, i);
      break;
    case BufferKind::Residual:
      put(residuals_, buffer.index, i);
      break;
    case BufferKind::Act:
      if (buffer.layer >= 0 && buffer.index < miniBatches_)
        put(act_, plan.cacheNumber(buffer), i);
      break;
    case BufferKind::Activation:
    case BufferKind::Workspace:
      break;
    }
  }
}

} // namespace headrace::plan
