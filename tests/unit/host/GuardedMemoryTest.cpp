// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/GuardedMemory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace headrace::host {
namespace {

using testing::HasSubstr;

TEST(GuardedMemory, IsExactlyAsLargeAsAskedForAndAligned) {
  for (uint64_t bytes : {uint64_t{0}, uint64_t{256}, uint64_t{4096}, uint64_t{3} * 4096 + 512}) {
    auto memory = GuardedMemory::take(bytes, 256, "arena", true);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ(memory->bytes().size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->bytes().data()) % 256, 0u);
    for (std::byte &b : memory->bytes())
      b = std::byte{1};
  }
}

TEST(GuardedMemory, MovesWithItsBytes) {
  auto taken = GuardedMemory::take(512, 256, "arena", false);
  ASSERT_TRUE(taken.ok());
  taken->bytes()[5] = std::byte{9};
  GuardedMemory moved = *std::move(taken);
  EXPECT_EQ(moved.bytes()[5], std::byte{9});
}

TEST(GuardedMemoryDeathTest, TheByteBehindTheLastFaults) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  auto memory = GuardedMemory::take(4096 + 256, 256, "arena", false);
  ASSERT_TRUE(memory.ok());
  volatile std::byte *end = memory->bytes().data() + memory->bytes().size();
  EXPECT_DEATH(*end = std::byte{1}, "");
  EXPECT_DEATH((void)*end, "");
}

TEST(GuardedMemoryDeathTest, ThePageBeforeTheFirstByteFaults) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  auto memory = GuardedMemory::take(8192, 256, "arena", false); // whole pages: no slack in front
  ASSERT_TRUE(memory.ok());
  volatile std::byte *before = memory->bytes().data() - 1;
  EXPECT_DEATH(*before = std::byte{1}, "");
}

// Two pages of arena; behind a page that is nobody's, the second page once more, then the first.
TEST(GuardedMemory, AnAliasIsASecondNameForTheSameBytes) {
  constexpr uint64_t kPage = 4096;
  auto memory = GuardedMemory::takeAliased(2 * kPage, {{3 * kPage, kPage, kPage}, {4 * kPage, 0, kPage}}, "arena");
  ASSERT_TRUE(memory.ok()) << memory.status();
  const absl::Span<std::byte> bytes = memory->bytes();
  ASSERT_EQ(bytes.size(), 5 * kPage);
  bytes[kPage + 7] = std::byte{1};
  bytes[4 * kPage + 9] = std::byte{2};
  EXPECT_EQ(bytes[3 * kPage + 7], std::byte{1});
  EXPECT_EQ(bytes[9], std::byte{2});
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(*const_cast<volatile std::byte *>(&bytes[2 * kPage]) = std::byte{1}, "");
  EXPECT_DEATH(*const_cast<volatile std::byte *>(bytes.data() + 5 * kPage) = std::byte{1}, "");
  EXPECT_DEATH(*const_cast<volatile std::byte *>(bytes.data() - 1) = std::byte{1}, "");
}

TEST(GuardedMemory, RefusesAliasesThatCannotBe) {
  constexpr uint64_t kPage = 4096;
  const auto refusal = [](uint64_t arena, GuardedMemory::Alias alias) {
    return std::string(GuardedMemory::takeAliased(arena, {alias}, "device arena").status().message());
  };
  EXPECT_THAT(refusal(kPage + 256, {2 * kPage, 0, kPage}), HasSubstr("expected whole pages of 4096 bytes"));
  EXPECT_THAT(refusal(2 * kPage, {2 * kPage, 256, kPage}), HasSubstr("expected whole pages of 4096 bytes"));
  EXPECT_THAT(refusal(2 * kPage, {kPage, 0, kPage}), HasSubstr("expected in order, behind 8192"));
  EXPECT_THAT(refusal(2 * kPage, {2 * kPage, kPage, 2 * kPage}), HasSubstr("and of 8192 bytes"));
  EXPECT_THAT(refusal(uint64_t{1} << 50, {uint64_t{1} << 50, 0, kPage}), HasSubstr("bytes of memory are available"));
}

TEST(GuardedMemory, RefusesWhatTheMachineHasNot) {
  EXPECT_GT(availableMemory(), 0u);
  for (uint64_t bytes : {uint64_t{1} << 50, ~uint64_t{0} - 255}) {
    auto memory = GuardedMemory::take(bytes, 256, "device arena", true);
    EXPECT_EQ(memory.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(memory.status().message()),
                HasSubstr("device arena: " + std::to_string(bytes) + " bytes wanted"));
  }
}

TEST(GuardedMemory, RefusesSizesThatAreNotAligned) {
  auto memory = GuardedMemory::take(100, 256, "host slab", false);
  EXPECT_EQ(memory.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(memory.status().message()), HasSubstr("host slab: 100 bytes, expected a multiple of 256"));
}

} // namespace
} // namespace headrace::host
