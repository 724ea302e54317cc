// SPDX-License-Identifier: Apache-2.0
#include "runtime/threads/GuardedMemory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace headrace::threads {
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

// An interrupt while a model is loaded is not told when all memory is there, but in between: 160 MiB in 64, 64 and 32.
TEST(GuardedMemory, IsTakenInPartsBetweenWhichSignalsComeIn) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  EXPECT_EQ(partTakenAt(0, 160 * kMiB), 64 * kMiB);
  EXPECT_EQ(partTakenAt(64 * kMiB, 160 * kMiB), 64 * kMiB);
  EXPECT_EQ(partTakenAt(128 * kMiB, 160 * kMiB), 32 * kMiB);
  EXPECT_EQ(partTakenAt(160 * kMiB, 160 * kMiB), 0u);
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
} // namespace headrace::threads
