// SPDX-License-Identifier: Apache-2.0
#include "compiler/evaluate/LayOutHost.h"

#include <algorithm>
#include <optional>
#include <set>

#include "compiler/evaluate/Steps.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {

HostLayout layOutHost(const std::vector<const Candidate *> &candidates, const model::WeightLayout &layout,
                      const Target &target, const model::ModelSpec &spec, bool all) {
  HostLayout host;
  std::set<algorithms::Movable> away; // in any placement, caches apart
  host.kv.blocks = target.kvBlocks;
  host.kv.blockBytes = target.kvBlockBytes;
  for (const Candidate *candidate : candidates) {
    for (const algorithms::Extent &extent : candidate->residency.away)
      away.insert(extent.of);
    if (const std::optional<int64_t> kv = candidate->residency.firstKvBlockAway())
      host.kv.mirror = std::min(host.kv.mirror.value_or(*kv), *kv);
  }
  host.kv.interleaved = host.kv.mirror.has_value();
  const uint64_t mirrored = // of a cache
      static_cast<uint64_t>(host.kv.blocks - host.kv.mirror.value_or(host.kv.blocks)) * host.kv.blockBytes;
  for (const StepBuffer &of : movableBuffers(spec, layout, target)) {
    const bool isCache = of.is(algorithms::MovableKind::Kv);
    const algorithms::Written written = of.traits().written;
    if (isCache                                        ? !host.kv.mirror
        : written == algorithms::Written::Whole        ? false
        : written == algorithms::Written::Never && all ? false
                                                       : !away.contains(of.of))
      continue;
    if (written != algorithms::Written::Never)
      host.bytes = model::alignUp(host.bytes);
    const uint64_t bytes = isCache ? mirrored : of.bytes;
    host.at[of.key()] = host.bytes;
    host.bytes += bytes;
    host.kvBytes += isCache ? bytes : 0;
  }
  for (const StepBuffer &of : stagingBuffers(spec, target)) {
    if (!host.staging)
      host.staging = host.bytes = model::alignUp(host.bytes);
    host.bytes += of.bytes;
  }
  return host;
}

} // namespace headrace::compiler
