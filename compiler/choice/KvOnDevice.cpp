// SPDX-License-Identifier: Apache-2.0
#include "compiler/choice/KvOnDevice.h"

#include <algorithm>
#include <vector>

#include "passes/algorithms/AssignSlots.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::compiler {
namespace {

// Without what aligning adds, which is less than ranges + 1 times the alignment: what ascends with the blocks that
// stay.
uint64_t exactBytes(const KvOnDevice &of, int64_t resident, int64_t ranges) {
  return static_cast<uint64_t>(of.caches * resident + ranges * (of.blocks - resident)) * of.blockBytes;
}

} // namespace

uint64_t KvOnDevice::wholeBytes() const {
  return static_cast<uint64_t>(caches) * model::alignUp(static_cast<uint64_t>(blocks) * blockBytes);
}

uint64_t KvOnDevice::splitBytes(int64_t resident, int64_t ranges) const {
  return model::alignUp(static_cast<uint64_t>(caches * resident) * blockBytes) +
         static_cast<uint64_t>(ranges) * model::alignUp(static_cast<uint64_t>(blocks - resident) * blockBytes);
}

std::optional<int64_t> KvOnDevice::mostResident(uint64_t bytes, int64_t ranges, int64_t least) const {
  if (bytes >= wholeBytes())
    return blocks;
  if (ranges >= caches) // splitting frees nothing
    return std::nullopt;
  int64_t most = least - 1, beyond = blocks;
  while (beyond - most > 1) {
    const int64_t middle = most + (beyond - most) / 2;
    (exactBytes(*this, middle, ranges) <= bytes ? most : beyond) = middle;
  }
  while (most >= least && splitBytes(most, ranges) > bytes)
    --most;
  return most >= least ? std::optional(most) : std::nullopt;
}

uint64_t KvOnDevice::leastBytes(int64_t ranges) const {
  uint64_t least = wholeBytes();
  if (ranges >= caches)
    return least;
  for (int64_t resident = 1; resident < blocks && exactBytes(*this, resident, ranges) < least; ++resident)
    least = std::min(least, splitBytes(resident, ranges));
  return least;
}

int64_t rangesOfSlots(int64_t caches, int64_t slots) {
  const std::vector<uint64_t> tails(static_cast<size_t>(caches), 1);
  return static_cast<int64_t>(algorithms::assignSlotsInCircle(tails, slots).slotBytes.size());
}

} // namespace headrace::compiler
