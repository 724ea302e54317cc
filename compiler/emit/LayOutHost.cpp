// SPDX-License-Identifier: Apache-2.0
#include "compiler/emit/LayOutHost.h"

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
  for (size_t unit = 0; unit < layout.units.size(); ++unit) {
    host.units.push_back(host.bytes);
    host.bytes += away[unit] ? layout.units[unit].bytes : 0;
  }
  const uint64_t mirrored = // of a cache
      static_cast<uint64_t>(host.kv.blocks - host.kv.mirror.value_or(host.kv.blocks)) * host.kv.blockBytes;
  for (int64_t cache = 0; cache < target.caches(spec.layers) && host.kv.mirror; ++cache) {
    const uint64_t begin = model::alignUp(host.bytes);
    host.kv.hostAddresses.push_back(static_cast<int64_t>(begin));
    host.bytes = begin + mirrored;
    host.kvBytes += mirrored;
  }
  if (target.actLayersAway > 0)
    host.act.assign(static_cast<size_t>(target.caches(spec.layers)), 0);
  for (const int32_t layer : target.actAway(spec.layers))
    for (int64_t i = 0; i < target.miniBatches; ++i) {
      uint64_t &address = host.act[static_cast<size_t>(layer * target.miniBatches + i)];
      address = model::alignUp(host.bytes);
      host.bytes = address + target.actBytes;
    }
  for (int64_t i = 0; i < target.miniBatches && target.residualsLeave; ++i) {
    host.residuals.push_back(model::alignUp(host.bytes));
    host.bytes = host.residuals.back() + target.residualBytes(spec.hidden);
  }
  return host;
}

} // namespace headrace::compiler
