// SPDX-License-Identifier: Apache-2.0
//
// An iteration over stages costs no allocation: this binary counts every call of the allocator.
#include "tests/conformance/StagesUnderTest.h"
#include "tests/support/CountAllocations.h"

namespace headrace::core {
namespace {

void expectNone(bool virtualTime) {
  Served served({.sequences = 3, .interval = 1}, {0, 2, 4}, 3, virtualTime);
  std::vector<std::vector<int32_t>> blocks(3);
  std::vector<SequenceRows> rows(3);
  std::vector<absl::Span<const SequenceRows>> spans(3);
  std::vector<int64_t> at(3, 0);
  const int32_t id = 1;
  for (std::vector<int32_t> &of : blocks)
    of.reserve(kContext);
  const auto begin = [&](size_t m) {
    EXPECT_TRUE(served.stages().grow(0, blocks[m], at[m] + 1).ok());
    rows[m] = {.tokens = {&id, 1}, .firstPosition = at[m]++, .blocks = blocks[m], .sample = true};
    spans[m] = {&rows[m], 1};
    EXPECT_TRUE(served.stages().begin({&spans[m], 1}).ok());
  };
  for (size_t m = 0; m < 3; ++m)
    begin(m);
  uint64_t before = 0;
  for (int i = 0; i < 40; ++i) {
    if (i == 5) // what is made once has been
      before = allocations.load();
    for (size_t m = 0; m < 3; ++m) {
      EXPECT_TRUE(served.stages().await().ok());
      if (at[m] == kContext / 2) {
        served.stages().release(0, blocks[m]);
        at[m] = 0;
      }
      begin(m);
    }
  }
  EXPECT_EQ(allocations.load() - before, 0u);
  for (size_t m = 0; m < 3; ++m)
    EXPECT_TRUE(served.stages().await().ok());
}

TEST(StagesAllocation, NoneOnTheHost) { expectNone(false); }
TEST(StagesAllocation, NoneInVirtualTime) { expectNone(true); }

} // namespace
} // namespace headrace::core
