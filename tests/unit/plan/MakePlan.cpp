// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/plan/MakePlan.h"

#include <algorithm>

#include "kernels/Kernels.h"
#include "tests/unit/plan/PlacementBuilder.h"

namespace headrace::plan::test {
namespace {

using model::alignUp;

// Units that the placement with the most blocks on the device offloads come first behind the caches, which take their
// room there; the others follow. Of options that say how many blocks there are.
CacheHomes cacheHomes(const Plan &plan, const model::WeightLayout &layout, const PlanOptions &options) {
  CacheHomes homes;
  const auto resident = [&](const PlacementOptions &p) {
    return p.allBlocksAway ? 0 : p.blocksOnDevice > 0 ? p.blocksOnDevice : p.kvBlocks;
  };
  for (const PlacementOptions &p : options.placements)
    if (resident(p) < p.kvBlocks) {
      homes.mirroredFrom = homes.mirrored ? std::min(homes.mirroredFrom, resident(p)) : resident(p);
      homes.mirrored = true;
    }
  const PlacementOptions *most = &options.placements.front();
  for (const PlacementOptions &p : options.placements)
    if (resident(p) > resident(*most))
      most = &p;
  const auto makesRoom = [&](int64_t layer) {
    return std::find(most->layers.begin(), most->layers.end(), layer) != most->layers.end();
  };
  for (const PlacementOptions &p : options.placements)
    if (p.layers.empty() || p.layers != most->layers)
      homes.weightsFrom = std::max(homes.weightsFrom, resident(p));
  if (homes.weightsFrom == 0)
    homes.weightsFrom = resident(*most);
  homes.unitAt.resize(layout.units.size());
  const auto behind = [&](int64_t blocks) {
    return alignUp(static_cast<uint64_t>(blocks) * plan.kvStride()) -
           static_cast<uint64_t>(homes.weightsFrom) * plan.kvStride();
  };
  uint64_t at = behind(homes.weightsFrom);
  for (const bool first : {true, false}) {
    for (size_t unit = 0; unit < layout.units.size(); ++unit)
      if (makesRoom(layout.units[unit].layer) == first) {
        homes.unitAt[unit] = at;
        at += layout.units[unit].bytes;
      }
    at = std::max(at, behind(resident(*most)));
  }
  for (uint64_t cache = 0; cache < plan.kvCaches(); ++cache)
    homes.position.push_back(options.lastLayerFirst ? plan.kvCaches() - 1 - cache : cache);
  return homes;
}

// Beside activation blocks there may be fewer KV blocks than options speak of: what has a tail keeps at least a block
// of it.
void keepTail(PlacementOptions &p) {
  if (p.blocksOnDevice == 0 && !p.allBlocksAway)
    return;
  p.blocksOnDevice = std::min(p.blocksOnDevice, p.kvBlocks - 1);
  p.cutBlocks = std::min(p.cutBlocks, p.kvBlocks - p.blocksOnDevice - 1);
  p.allBlocksAway = p.blocksOnDevice == 0;
  if (p.allBlocksAway)
    std::erase_if(p.limits, [](const LimitOptions &limits) { return limits.withoutTail; });
}

} // namespace

Plan makePlan(const PlanOptions &given) {
  PlanOptions options = given;
  Plan plan;
  plan.compilerVersion = "test";
  plan.model = options.model;
  plan.kvEncoding = options.kvEncoding;
  plan.miniBatches = options.miniBatches;
  plan.goal.miniBatches = options.miniBatches;
  plan.hardware.kind = model::DeviceKind::Host;
  plan.modelHash = "00";
  plan.hardware.name = "test";
  plan.hardware.flopsF32 = plan.hardware.flopsF16 = plan.hardware.memoryBandwidth = 1e10;
  plan.hardware.flopsEfficiency = plan.hardware.memoryEfficiency = 1;
  plan.hardware.h2dBandwidth = plan.hardware.d2hBandwidth = 1e9;
  plan.hardware.duplexBandwidth = 2e9;
  plan.reason = "put together by hand";
  plan.limitingResource = "link h2d";
  model::WeightLayout layout = model::layoutWeights(plan.model);
  std::erase_if(layout.units, [](const model::Unit &unit) { return unit.absent(); });
  // The limits over all schedules; each schedule is no larger in any of them.
  LimitOptions largest{IterationClass::Mixed, 1, 1, 1};
  for (const PlacementOptions &placement : options.placements)
    for (const LimitOptions &limits : placement.limits) {
      largest.tokens = std::max(largest.tokens, limits.tokens);
      largest.sequences = std::max(largest.sequences, limits.sequences);
      largest.context = std::max(largest.context, limits.context);
    }
  plan.maxContext = largest.context;
  plan.blockTokens = options.blockTokens;
  const int64_t blocks = (largest.context + plan.blockTokens - 1) / plan.blockTokens;
  plan.metaLayout = {largest.tokens, largest.sequences, blocks};
  int64_t needed = largest.sequences * blocks; // KV blocks
  if (options.acts.share.any()) {
    plan.actRatio = options.acts.share;
    plan.contextBlocks = options.acts.contextBlocks > 0 ? options.acts.contextBlocks : needed;
    const model::BlocksOfKinds kinds =
        model::blocksOfKinds(plan.actRatio, plan.contextBlocks, largest.sequences, blocks);
    needed = kinds.kv;
    plan.actBlocks = kinds.act + options.acts.spare;
    plan.metaLayout.firstActBlock = 1 + needed;
    plan.metaLayout.maxActBlocks = plan.actBlocks;
  }
  for (PlacementOptions &placement : options.placements) {
    if (placement.kvBlocks == 0 || plan.actBlocks > 0)
      placement.kvBlocks = 1 + needed;
    if (plan.actBlocks > 0)
      keepTail(placement);
    plan.kvBlocks = std::max(plan.kvBlocks, placement.kvBlocks);
  }
  for (uint32_t index = plan.receives() ? 1 : 0; const model::Unit &unit : layout.units)
    plan.buffers.push_back({unit.name, BufferKind::Weight, unit.layer, unit.bytes, index++});
  const auto kv = static_cast<uint64_t>(plan.kvBlocks * plan.blockTokens) * keysAndValuesBytes(plan);
  const uint32_t count = options.miniBatches;
  for (int32_t layer = 0; layer < plan.model->layers; ++layer)
    for (uint32_t i = 0; i < count; ++i)
      plan.buffers.push_back({"kv." + std::to_string(layer) + (count > 1 ? "." + std::to_string(i) : ""),
                              BufferKind::Kv, layer, alignUp(kv), i});
  for (int32_t layer = 0; layer < plan.model->layers && plan.actBlocks > 0; ++layer)
    for (uint32_t i = 0; i < count; ++i)
      plan.buffers.push_back(
          {"act." + std::to_string(layer) + (count > 1 ? "." + std::to_string(i) : ""), BufferKind::Act, layer,
           alignUp(static_cast<uint64_t>(plan.actBlocks * plan.blockTokens * plan.model->hidden) * 4), i});
  plan.buffers.push_back({"meta", BufferKind::Io, -1, kernels::metaBytes(plan.metaLayout, count)});
  const auto ids = [](int64_t number) { return alignUp(static_cast<uint64_t>(number) * 4); };
  plan.buffers.push_back({"sampled", BufferKind::Io, -1, count * ids(largest.sequences), 1});
  plan.buffers.push_back({"output", BufferKind::Io, -1, ids(count * largest.sequences), 2});
  plan.buffers.push_back(
      {"history", BufferKind::Io, -1, count * ids((plan.kvBlocks + plan.actBlocks) * plan.blockTokens), 3});
  for (uint32_t i = 0; i < count && (options.residualsLeave || plan.model->isStage()); ++i)
    plan.buffers.push_back({"residual" + (count > 1 ? "." + std::to_string(i) : ""), BufferKind::Residual, -1,
                            alignUp(static_cast<uint64_t>(largest.tokens * plan.model->hidden) * 4), i});
  const auto onCpu = [](const PlacementOptions &p) {
    return std::any_of(p.limits.begin(), p.limits.end(), [](const LimitOptions &l) { return l.attendsOnCpu; });
  };
  if (std::any_of(options.placements.begin(), options.placements.end(), onCpu))
    plan.metaOnHost = hostAddress(plan, static_cast<uint32_t>(plan.buffers.size())); // behind all homes
  plan.states.push_back({});
  uint64_t fixed = 0; // io, activation blocks, and caches that are whole, where they are on the device
  for (const Buffer &buffer : plan.buffers)
    if (buffer.kind == BufferKind::Io || (buffer.kind == BufferKind::Act && !areOnHost(options.acts, buffer)) ||
        (buffer.kind == BufferKind::Kv && !options.interleaved))
      fixed += buffer.bytes;
  const CacheHomes homes = options.interleaved ? cacheHomes(plan, layout, options) : CacheHomes{};
  for (uint32_t i = 0; i < options.placements.size(); ++i) {
    PlacementBuilder builder(plan, layout, options.placements[i], i, fixed, largest, options.switches,
                             options.interleaved ? &homes : nullptr, options.acts);
    builder.addPlacement();
    builder.addSchedules();
    builder.addTransitions();
  }
  if (options.switches)
    for (uint32_t from = 0; from < plan.placements.size(); ++from)
      for (uint32_t to = 0; to < plan.placements.size(); ++to)
        addSwitch(plan, from, to);
  if (plan.metaOnHost != kNowhere)
    plan.hostBytes = std::max(plan.hostBytes, plan.metaOnHost + plan.buffers[plan.ioBuffer(Io::Meta)].bytes);
  for (const Schedule &s : plan.schedules)
    for (const Local &l : s.locals)
      if (l.hostAddress != kNowhere)
        plan.hostBytes = std::max(plan.hostBytes, l.hostAddress + l.buffer.bytes);
  plan.deviceMemory = plan.arenaBytes;
  plan.hardware.memoryBytes = plan.deviceMemory;
  sortVariants(plan);
  return plan;
}

} // namespace headrace::plan::test
