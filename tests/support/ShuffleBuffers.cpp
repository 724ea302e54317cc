// SPDX-License-Identifier: Apache-2.0
#include "tests/support/ShuffleBuffers.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <tuple>

namespace headrace::plan::test {

Plan withShuffledBuffers(Plan plan, uint64_t seed) {
  std::vector<uint32_t> oldAt(plan.buffers.size()), newOf(plan.buffers.size());
  std::iota(oldAt.begin(), oldAt.end(), 0);
  std::mt19937_64 random(seed);
  for (size_t i = oldAt.size(); i > 1; --i)
    std::swap(oldAt[i - 1], oldAt[random() % i]);
  std::vector<Buffer> buffers;
  for (uint32_t i = 0; i < oldAt.size(); ++i) {
    newOf[oldAt[i]] = i;
    buffers.push_back(plan.buffers[oldAt[i]]);
  }
  plan.buffers = std::move(buffers);
  for (Placement &placement : plan.placements) {
    for (Extent &extent : placement.extents)
      extent.buffer = newOf[extent.buffer];
    std::sort(placement.extents.begin(), placement.extents.end(), [](const Extent &a, const Extent &b) {
      return std::tie(a.buffer, a.bufferOffset) < std::tie(b.buffer, b.bufferOffset);
    });
  }
  for (State &state : plan.states)
    for (Content &content : state.contents)
      content.buffer = newOf[content.buffer];
  for (Schedule &schedule : plan.schedules)
    for (Operand &operand : schedule.operands)
      if (operand.buffer < newOf.size())
        operand.buffer = newOf[operand.buffer];
  return plan;
}

} // namespace headrace::plan::test
