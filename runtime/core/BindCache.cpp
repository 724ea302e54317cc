// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/BindCache.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/BlockRuns.h"
#include "runtime/plan/value/CacheMap.h"

namespace headrace::core {
namespace {

using plan::argName;
using plan::Operand;
using plan::Space;

// Blocks [first, end) of a cache.
struct Blocks {
  uint64_t first = 0, end = 0;
};

template <typename... Parts> absl::Status refuse(const Operand &operand, const Parts &...parts) {
  return absl::InvalidArgumentError(absl::StrCat("operand ", argName(operand.arg), " ", parts...));
}

absl::Status inSpace(const Operand &operand, Space space) {
  if (operand.space != space)
    return refuse(operand, "is in ", operand.space == Space::Host ? "host" : "device", " memory, expected ",
                  space == Space::Host ? "host" : "device", " memory");
  return absl::OkStatus();
}

absl::StatusOr<Blocks> wholeBlocks(const Operand &operand, uint64_t blockBytes) {
  if (operand.bytes == 0 || operand.bytes % blockBytes != 0 || operand.bufferOffset % blockBytes != 0)
    return refuse(operand, "is bytes [", operand.bufferOffset, ", +", operand.bytes,
                  ") of the cache, expected whole blocks of ", blockBytes);
  const uint64_t first = operand.bufferOffset / blockBytes;
  return Blocks{first, first + operand.bytes / blockBytes};
}

absl::StatusOr<Blocks> oneBehindTheOther(const Operand &operand, Space space, uint64_t blockBytes) {
  RETURN_IF_ERROR(inSpace(operand, space));
  if (operand.interleaved)
    return refuse(operand, "is interleaved, expected blocks one behind the other");
  return wholeBlocks(operand, blockBytes);
}

// Blocks below this number may be in use; of a schedule by hand without a placement none are known.
uint64_t blocksInUse(const plan::Plan &plan, const plan::Schedule &schedule) {
  return schedule.placement < plan.placements.size() ? static_cast<uint64_t>(plan::kvBlocksOf(plan, schedule))
                                                     : static_cast<uint64_t>(schedule.kvBlocks);
}

// The number of blocks at home on the device.
absl::StatusOr<uint64_t> residentBlocks(const plan::Plan &plan, const CacheOperands &operands) {
  if (operands.kv == nullptr)
    return 0;
  const Operand &kv = *operands.kv;
  const uint64_t blockBytes = plan.kvBlockBytes();
  RETURN_IF_ERROR(inSpace(kv, Space::Device));
  if (kv.bufferOffset != 0)
    return refuse(kv, "begins at byte ", kv.bufferOffset, " of the cache, expected 0");
  if (!kv.interleaved && operands.tail == nullptr)
    return std::min(kv.bytes / blockBytes, static_cast<uint64_t>(plan.kvBlocks));
  ASSIGN_OR_RETURN(blocks, wholeBlocks(kv, blockBytes));
  return blocks.end;
}

} // namespace

absl::StatusOr<BoundCache> bindCache(const plan::Plan &plan, const plan::Schedule &schedule,
                                     const CacheOperands &operands) {
  // What segments count: elements, or of packed caches bytes.
  const uint64_t elementBytes = plan.kvEncoding.packed() ? 1 : model::dtypeBytes(plan.kvEncoding.element);
  const uint64_t blockBytes = plan.kvBlockBytes();
  const uint64_t inUse = blocksInUse(plan, schedule);
  const Operand *const kv = operands.kv;
  ASSIGN_OR_RETURN(resident, residentBlocks(plan, operands));
  uint64_t end = resident;
  BoundCache out;
  out.address = UINT64_MAX;
  for (const Operand *run : {kv, operands.tail, operands.rebuilt})
    if (run != nullptr)
      out.address = std::min(out.address, run->address);
  if (operands.tail != nullptr) {
    const Operand &tail = *operands.tail;
    ASSIGN_OR_RETURN(blocks, oneBehindTheOther(tail, Space::Device, blockBytes));
    if (blocks.first != resident)
      return refuse(tail, "begins at block ", blocks.first, ", expected block ", resident, ", where kv ends");
    end = blocks.end;
    if (kv != nullptr && (tail.address - kv->address) % elementBytes != 0)
      return refuse(tail, "is at ", tail.address, " and kv at ", kv->address, ", expected whole elements of ",
                    elementBytes, " bytes between them");
  }
  if (end < inUse)
    return refuse(operands.tail != nullptr ? *operands.tail : *kv, "ends at block ", end, ", blocks below ", inUse,
                  " may be in use");

  const auto elements = [&](uint64_t bytes) { return static_cast<int64_t>(bytes / elementBytes); };
  kernels::KvSegments &segments = out.segments;
  if (kv != nullptr) {
    const uint64_t stride = kv->interleaved ? plan.kvStride() : blockBytes;
    segments.start = elements(kv->address - out.address);
    segments.stride = elements(stride);
    segments.end = segments.start + elements((resident - 1) * stride + blockBytes);
  }
  if (operands.tail != nullptr) {
    segments.tail = elements(operands.tail->address - out.address);
    segments.tailStride = elements(blockBytes);
    segments.split = static_cast<int32_t>(resident);
    segments.end = std::max(segments.end, segments.tail + elements(operands.tail->bytes));
  }

  if (operands.rebuilt != nullptr) {
    const Operand &act = *operands.rebuilt;
    RETURN_IF_ERROR(inSpace(act, Space::Device));
    const uint64_t bytes = static_cast<uint64_t>(plan.actBlocks) * blockBytes;
    if (plan.actBlocks == 0 || act.bytes < bytes)
      return refuse(act, "has ", act.bytes, " bytes, expected the ", bytes, " of ", plan.actBlocks,
                    " activation blocks");
    const uint64_t cache = kv != nullptr ? kv->address : operands.tail->address;
    if ((act.address - cache) % elementBytes != 0)
      return refuse(act, "is at ", act.address, " and the cache at ", cache, ", expected whole elements of ",
                    elementBytes, " bytes between them");
    segments.act = elements(act.address - out.address);
    segments.actStride = elements(blockBytes);
    segments.firstAct = static_cast<int32_t>(plan.kvBlocks);
    segments.end = std::max(segments.end, segments.act + elements(bytes));
  }

  if (operands.home != nullptr) {
    const Operand &home = *operands.home;
    ASSIGN_OR_RETURN(blocks, oneBehindTheOther(home, Space::Host, blockBytes));
    if (blocks.first == 0 && plan::firstBlockOnHost(plan) > 0)
      return refuse(home, "begins at block 0, the scratch block, which has no home on the host");
    if (blocks.first > resident)
      return refuse(home, "begins at block ", blocks.first, ", expected at most block ", resident, ", where kv ends");
    if (blocks.end < inUse && blocks.end != resident)
      return refuse(home, "ends at block ", blocks.end, ", expected block ", resident, ", where kv ends, or all below ",
                    inUse, ", which may be in use");
    out.homeFirst = static_cast<int64_t>(blocks.first);
    out.homeEnd = static_cast<int64_t>(blocks.end);
    out.homeStride = elements(blockBytes);
  }
  return out;
}

} // namespace headrace::core
