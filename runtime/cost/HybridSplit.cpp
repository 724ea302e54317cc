// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/HybridSplit.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"

namespace headrace::cost {
namespace {

constexpr int64_t kMostSplitBytes = int64_t{1} << 62;
constexpr double kAsFast = 1e-9; // of a layer's time: rounding, not a faster split

int64_t mostKvOnDevice(const SplitLimits &limits) {
  return std::min(limits.deviceBytes, limits.kvDeviceBytes) / limits.block.kv;
}

absl::Status checkSplit(const HybridTimes &times, int64_t blocks, const SplitLimits &limits) {
  RETURN_IF_ERROR(checkTimes(times));
  if (blocks < 0)
    return absl::InvalidArgumentError(model::cat(blocks, " blocks of context: expected at least 0"));
  if (limits.block.kv < 1 || limits.block.act < 1)
    return absl::InvalidArgumentError(model::cat("a KV block of ", limits.block.kv, " bytes, an ACT block of ",
                                                 limits.block.act, ": expected at least 1"));
  if (limits.hostBytes < 0 || limits.deviceBytes < 0)
    return absl::InvalidArgumentError(model::cat("limits of ", limits.hostBytes, " bytes in host memory and ",
                                                 limits.deviceBytes, " on the device: expected at least 0"));
  if (limits.kvDeviceBytes < 0)
    return absl::InvalidArgumentError(
        model::cat("a limit of ", limits.kvDeviceBytes, " bytes for KV on the device: expected at least 0"));
  const int64_t larger = std::max(limits.block.kv, limits.block.act);
  if (blocks > kMostSplitBytes / times.blockTokens || larger > kMostSplitBytes / std::max<int64_t>(blocks, 1))
    return absl::InvalidArgumentError(model::cat(blocks, " blocks of up to ", larger, " bytes and ", times.blockTokens,
                                                 " tokens: expected at most ", kMostSplitBytes, " of either"));
  const int64_t smaller = std::min(limits.block.kv, limits.block.act);
  const int64_t host = limits.hostBytes / smaller;
  // KV blocks where they are the smaller ones, as many as may be there, and ACT blocks.
  const int64_t kvDevice = limits.block.kv < limits.block.act ? mostKvOnDevice(limits) : 0;
  const int64_t device = kvDevice + (limits.deviceBytes - kvDevice * limits.block.kv) / limits.block.act;
  if (blocks > device && blocks - device > host)
    return absl::ResourceExhaustedError(model::cat(blocks, " blocks of context, each of at least ", smaller,
                                                   " bytes: expected at most the ", host, " that host memory holds in ",
                                                   limits.hostBytes, " bytes and the ", device,
                                                   " that the device holds in ", limits.deviceBytes));
  return absl::OkStatus();
}

// Inclusive; empty where last < first.
struct ActRange {
  int64_t first, last;
};

class Splitter {
public:
  Splitter(const HybridTimes &times, int64_t blocks, const SplitLimits &limits)
      : times(times), blocks(blocks), limits(limits) {}

  std::optional<HybridSplit> best() {
    const int64_t mostOnDevice = std::min(blocks, mostKvOnDevice(limits));
    for (int64_t kvDevice = 0; kvDevice <= mostOnDevice; ++kvDevice) {
      // With `room` ACT blocks the device is full; up to there each takes a KV block's load away, beyond it is itself
      // loaded.
      const int64_t left = blocks - kvDevice;
      const int64_t room = std::min(left, (limits.deviceBytes - kvDevice * limits.block.kv) / limits.block.act);
      tryRange(kvDevice, room, onDevice(left, room));
      tryRange(kvDevice, room, beyond(left, room));
    }
    return found;
  }

private:
  // The numbers of ACT blocks, all on the device, with which the KV blocks fit the host.
  ActRange onDevice(int64_t left, int64_t room) const {
    return {std::max<int64_t>(0, left - limits.hostBytes / limits.block.kv), room};
  }

  // Those with some in host memory: room + t with t act + (left - room - t) kv <= host bytes.
  ActRange beyond(int64_t left, int64_t room) const {
    const int64_t most = left - room, over = most * limits.block.kv - limits.hostBytes;
    const int64_t saved = limits.block.kv - limits.block.act; // by a block that changes its kind
    int64_t least = 1, mostFit = most;
    if (saved > 0 && over > 0)
      least = std::max<int64_t>(1, (over + saved - 1) / saved);
    else if (saved < 0)
      mostFit = over > 0 ? 0 : std::min(most, -over / -saved);
    else if (saved == 0 && over > 0)
      mostFit = 0;
    return {room + least, room + mostFit};
  }

  HybridSplit at(int64_t kvDevice, int64_t room, int64_t act) const {
    HybridSplit split;
    split.blocks.kvDevice = kvDevice;
    split.blocks.actDevice = std::min(act, room);
    split.blocks.actHost = act - split.blocks.actDevice;
    split.blocks.kvHost = blocks - kvDevice - act;
    split.lanes = correctedLanes(times, split.blocks);
    return split;
  }

  void tryAt(int64_t kvDevice, int64_t room, int64_t act) {
    const HybridSplit split = at(kvDevice, room, act);
    if (!found || split.lanes.layerNs() < found->lanes.layerNs() * (1 - kAsFast))
      found = split;
  }

  void tryRange(int64_t kvDevice, int64_t room, ActRange range) {
    if (range.last < range.first)
      return;
    // The first number with which compute is the longer. Where an ACT block takes more of the link than a KV block the
    // fewest are best, which is range.first.
    int64_t below = range.first, above = range.last;
    while (below < above) {
      const int64_t middle = below + (above - below) / 2;
      if (at(kvDevice, room, middle).lanes.gapNs() >= 0)
        above = middle;
      else
        below = middle + 1;
    }
    for (int64_t act : {range.first, below - 1, below, range.last}) // an intercept may go at the end
      if (act >= range.first)
        tryAt(kvDevice, room, act);
  }

  const HybridTimes &times;
  const int64_t blocks;
  const SplitLimits &limits;
  std::optional<HybridSplit> found;
};

Binding bindingOf(const HybridTimes &times, const HybridSplit &split, const SplitLimits &limits) {
  const HybridBlocks &b = split.blocks;
  if (b.total() == 0)
    return Binding::kNothing;
  if (balanced(split.lanes))
    return Binding::kBalanced;
  const int64_t hostLeft = limits.hostBytes - b.kvHost * limits.block.kv - b.actHost * limits.block.act;
  if (split.lanes.gapNs() > 0) {
    if (b.act() == 0)
      return Binding::kAllKv;
    // An ACT block that becomes a KV block in host memory: one of the device's does where that frees enough there.
    const int64_t freed = b.actHost > 0 ? limits.block.act : 0;
    return hostLeft + freed >= limits.block.kv ? Binding::kBlocksTooCoarse : Binding::kHostMemory;
  }
  if (b.kvHost + b.actHost == 0)
    return Binding::kOnlyWeights;
  const int64_t deviceLeft = limits.deviceBytes - b.kvDevice * limits.block.kv - b.actDevice * limits.block.act;
  if (b.kvHost > 0 && deviceLeft >= limits.block.act)
    return Binding::kBlocksTooCoarse;
  if (times.loadAct.slopeNsPerToken >= times.loadKv.slopeNsPerToken && b.actHost > 0 &&
      hostLeft + limits.block.act < limits.block.kv)
    return Binding::kHostMemory; // they are ACT for want of memory
  if (b.kvHost == 0)
    return Binding::kAllAct;
  HybridBlocks changed = b;
  --changed.kvHost;
  ++changed.actHost;
  if (correctedLanes(times, changed).pcieNs >= split.lanes.pcieNs) // with its start
    return Binding::kActLoadsMore;
  return hostLeft + limits.block.kv >= limits.block.act ? Binding::kBlocksTooCoarse : Binding::kHostMemory;
}

} // namespace

absl::StatusOr<HybridSplit> bestSplit(const HybridTimes &times, int64_t blocks, const SplitLimits &limits) {
  RETURN_IF_ERROR(checkSplit(times, blocks, limits));
  std::optional<HybridSplit> best = Splitter(times, blocks, limits).best();
  if (!best)
    return absl::InternalError(model::cat("no split of ", blocks, " blocks, which fit"));
  best->binding = bindingOf(times, *best, limits);
  return *best;
}

} // namespace headrace::cost
