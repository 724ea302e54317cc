// SPDX-License-Identifier: Apache-2.0
#include "compiler/evaluate/LayOutHost.h"

#include <algorithm>
#include <optional>

#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {

HostLayout layOutHost(const std::vector<const Candidate *> &candidates, const model::WeightLayout &layout,
                      const Target &target, const model::ModelSpec &spec, bool all) {
  HostLayout host;
  std::vector<bool> away(layout.units.size(), all);
  host.kv.blocks = target.kvBlocks;
  host.kv.blockBytes = target.kvBlockBytes;
  for (const Candidate *candidate : candidates) {
    for (const int32_t unit : candidate->residency.weightsAway())
      away[static_cast<size_t>(unit)] = true;
    if (const std::optional<int64_t> kv = candidate->residency.firstKvBlockAway())
      host.kv.mirror = std::min(host.kv.mirror.value_or(*kv), *kv);
  }
  host.kv.interleaved = host.kv.mirror.has_value();
  const auto place = [&](algorithms::MovableKind kind, int64_t index, int64_t miniBatch, uint64_t bytes) {
    host.at[{{kind, static_cast<int32_t>(index)}, static_cast<int32_t>(miniBatch)}] = host.bytes;
    host.bytes += bytes;
  };
  for (size_t unit = 0; unit < layout.units.size(); ++unit)
    if (away[unit])
      place(algorithms::MovableKind::Weight, static_cast<int64_t>(unit), 0, layout.units[unit].bytes);
  const auto placeAligned = [&](algorithms::MovableKind kind, int64_t index, int64_t miniBatch, uint64_t bytes) {
    host.bytes = model::alignUp(host.bytes);
    place(kind, index, miniBatch, bytes);
  };
  const uint64_t mirrored = // of a cache
      static_cast<uint64_t>(host.kv.blocks - host.kv.mirror.value_or(host.kv.blocks)) * host.kv.blockBytes;
  for (int64_t layer = 0; layer < spec.layers && host.kv.mirror; ++layer)
    for (int64_t i = 0; i < target.choice.miniBatches; ++i) {
      placeAligned(algorithms::MovableKind::Kv, layer, i, mirrored);
      host.kvBytes += mirrored;
    }
  for (const int32_t layer : target.choice.residency.actAway())
    for (int64_t i = 0; i < target.choice.miniBatches; ++i)
      placeAligned(algorithms::MovableKind::Act, layer, i, target.actBytes);
  for (int64_t i = 0; i < target.choice.miniBatches && target.choice.residency.residualsLeave(); ++i)
    placeAligned(algorithms::MovableKind::Residual, i, i, target.residualBytes(spec.hidden));
  return host;
}

} // namespace headrace::compiler
