// SPDX-License-Identifier: Apache-2.0
#include "compiler/evaluate/GrowCaches.h"

#include <algorithm>

#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {

std::vector<int64_t> grownBlocks(const CompileRequest &request, const Target &target, const HostLayout &host,
                                 const std::vector<PlacedCandidate> &placed, uint64_t arenaBytes) {
  if (host.kv.mirror || placed.size() < 2 || request.goal.elasticKv == model::AutoOnOff::Off ||
      target.mostKvBlocks <= target.kvBlocks)
    return {};
  const uint64_t stride = static_cast<uint64_t>(target.caches(request.model->layers)) * target.kvBlockBytes;
  std::vector<int64_t> blocks;
  for (const PlacedCandidate &each : placed) {
    uint64_t top = each.arena.top; // of all below homes, as they are alone
    for (const auto &[unit, bytes] : each.homes.units)
      top -= bytes;
    const uint64_t lowest =
        each.homeAddress.empty() ? arenaBytes : *std::min_element(each.homeAddress.begin(), each.homeAddress.end());
    const uint64_t room = each.cachesEnd - each.cachesBegin + lowest / model::kAlign * model::kAlign - top;
    blocks.push_back(std::min(target.mostKvBlocks, static_cast<int64_t>(room / stride)));
  }
  return blocks;
}

} // namespace headrace::compiler
