// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/LayOutArena.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <rapidcheck/gtest.h>

namespace headrace::algorithms {
namespace {

using ::testing::ElementsAre;

// Slots 0 to count - 1 of so many bytes, in use from entry to exit.
std::vector<SlotUse> inUse(uint32_t count, uint64_t bytes) {
  std::vector<SlotUse> uses;
  for (uint32_t slot = 0; slot < count; ++slot)
    uses.push_back({slot, 0, bytes, 0, kToTheEnd});
  return uses;
}

TEST(LayOutArena, StacksIoKvTransientsSlotsAndWeights) {
  // 1024 of io and KV; decode needs 512 of transients, mixed 768; two slots of 2048 in use to the end.
  std::vector<ArenaIteration> iterations{{{{512, 0, 3}}, inUse(2, 2048)}, {{{768, 0, 3}}, inUse(2, 2048)}};
  ArenaLayout layout = layOutArena({{1024}}, iterations, {2048, 2048}, {4096, 256});
  EXPECT_THAT(layout.transients, ElementsAre(ElementsAre(1024), ElementsAre(1024)));
  EXPECT_THAT(layout.slots, ElementsAre(1024 + 768, 1024 + 768 + 2048));
  EXPECT_THAT(layout.persistent, ElementsAre(5888, 9984)); // 1792 + 2 x 2048
  EXPECT_EQ(layout.top, 10240u);
}

TEST(LayOutArena, TransientsOfTheHeadGrowIntoASlotThatIsFree) {
  // The slot holds layers until step 5; the logits (4096) live from step 6 on, the residual stream (512) all through.
  // 512 + max(2048, 4096), not their sum.
  std::vector<ArenaIteration> iterations{{{{512, 0, 8}, {4096, 6, 8}}, {{0, 0, 2048, 0, 5}}}};
  ArenaLayout layout = layOutArena({}, iterations, {2048}, {});
  EXPECT_EQ(layout.slots[0], 512u);
  EXPECT_EQ(layout.transients[0][0], 0u);
  EXPECT_EQ(layout.transients[0][1], 512u);
  EXPECT_EQ(layout.top, 4608u);
}

TEST(LayOutArena, ASlotHeldOnExitIsNotShared) {
  std::vector<ArenaIteration> iterations{{{{512, 0, 8}, {4096, 6, 8}}, inUse(1, 2048)}};
  EXPECT_EQ(layOutArena({}, iterations, {2048}, {}).top, 512u + 4096 + 2048);
}

TEST(LayOutArena, AnIterationThatLeavesASlotAloneMayUseIt) {
  std::vector<ArenaIteration> iterations{{{{256, 0, 8}}, {{0, 0, 2048, 0, 8}}}, {{{4096, 0, 8}}, {}}};
  EXPECT_EQ(layOutArena({}, iterations, {2048}, {}).top, 4096u);
}

TEST(LayOutArena, TheSlotThatIsFreeFirstLiesLowest) {
  std::vector<ArenaIteration> iterations{{{{256, 0, 9}, {1024, 5, 9}}, {{0, 0, 1024, 0, 9}, {1, 0, 1024, 0, 4}}}};
  ArenaLayout layout = layOutArena({}, iterations, {1024, 1024}, {});
  EXPECT_EQ(layout.slots[1], 256u);
  EXPECT_EQ(layout.slots[0], 1280u);
  EXPECT_EQ(layout.top, 2304u); // the late transient takes the free slot's place
}

TEST(LayOutArena, TransientsUseWhatOfASlotIsNotInUse) {
  // A head of 4096 and layers of 1024 share one slot; the layers' transients (2048) are gone when the head is copied
  // (step 6), the logits (256) come after that: max(1024 + 2048, 4096 + 256), not 4096 + 2048.
  std::vector<ArenaIteration> iterations{{{{2048, 1, 5}, {256, 7, 8}}, {{0, 0, 1024, 0, 5}, {0, 0, 4096, 6, 8}}}};
  EXPECT_EQ(layOutArena({}, iterations, {4096}, {}).top, 4352u);
}

TEST(LayOutArena, NothingOffloaded) {
  std::vector<ArenaIteration> iterations{{{{512, 0, 3}}, {}}};
  ArenaLayout layout = layOutArena({{256}}, iterations, {}, {1024});
  EXPECT_EQ(layout.top, 256u + 512 + 1024);
}

RC_GTEST_PROP(LayOutArena, TransientsStayClearOfSlotsInUse, ()) {
  const size_t slots = *rc::gen::inRange<size_t>(0, 4);
  std::vector<uint64_t> slotBytes;
  for (size_t i = 0; i < slots; ++i)
    slotBytes.push_back(256 * *rc::gen::inRange<uint64_t>(1, 20));
  std::vector<ArenaIteration> iterations(*rc::gen::inRange<size_t>(1, 3));
  for (ArenaIteration &iteration : iterations) {
    const int count = *rc::gen::inRange(0, 20);
    for (int i = 0; i < count; ++i) {
      int64_t first = *rc::gen::inRange<int64_t>(0, 20);
      iteration.transients.push_back(
          {*rc::gen::inRange<uint64_t>(1, 4000), first, first + *rc::gen::inRange<int64_t>(0, 8)});
    }
    for (uint32_t i = 0; i < slots; ++i)
      if (*rc::gen::arbitrary<bool>()) {
        const uint64_t offset = 256 * *rc::gen::inRange<uint64_t>(0, slotBytes[i] / 256);
        const uint64_t bytes = 256 * *rc::gen::inRange<uint64_t>(1, (slotBytes[i] - offset) / 256 + 1);
        iteration.slotUses.push_back(
            {i, offset, bytes, *rc::gen::element<int64_t>(0, 5), *rc::gen::element<int64_t>(6, 10, 19, kToTheEnd)});
      }
  }
  ArenaLayout layout = layOutArena({{512}}, iterations, slotBytes, {256});
  for (size_t i = 0; i < iterations.size(); ++i)
    for (size_t t = 0; t < iterations[i].transients.size(); ++t) {
      const LiveRange &item = iterations[i].transients[t];
      const uint64_t begin = layout.transients[i][t], end = begin + item.bytes;
      RC_ASSERT(begin >= 512u);
      RC_ASSERT(end <= layout.persistent[0]);
      for (const SlotUse &use : iterations[i].slotUses)
        if (item.first <= use.last && use.first <= item.last) {
          const uint64_t used = layout.slots[use.slot] + use.offset;
          RC_ASSERT(end <= used || begin >= used + use.bytes);
        }
    }
  for (size_t s = 0; s < slots; ++s)
    RC_ASSERT(layout.slots[s] + slotBytes[s] <= layout.persistent[0]);
}

} // namespace
} // namespace headrace::algorithms
