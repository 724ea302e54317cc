// SPDX-License-Identifier: Apache-2.0
//
// Resizable copies and copies in rows, as nodes of a graph: blocks [4, 20) of 1 KiB of two layers (KvCopies.h).
#include "runtime/cuda/CopySizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/cuda/GraphRules.h"
#include "tests/support/KvCopies.h"
#include "tests/unit/cuda/TinyGraph.h"

namespace headrace::cuda {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t kAll = 16 * 1024;

TinyGraph withCopies(bool interleaved, int64_t blocks = 16, core::CopiedBack back = core::CopiedBack::Nothing) {
  TinyGraph tiny({.spec = core::tinyLlama(2)});
  tiny.plan.kvEncoding = model::DType::F32; // a block is 2 x 2 heads x 4 tokens x 16 elements
  core::KvCopies copies{.blocks = blocks, .interleaved = interleaved, .back = back};
  core::addKvCopies(tiny.plan, copies);
  return tiny;
}

struct Set {
  uint32_t node;
  uint64_t bytes;
  bool operator==(const Set &) const = default;
};
std::vector<Set> setTo(CopySizes &sizes, int64_t kvBlocks) {
  std::vector<Set> set;
  EXPECT_TRUE(sizes
                  .set(core::InUse{.kvBlocks = kvBlocks},
                       [&](uint32_t node, const core::CopySides &copy, core::CopyRun run) {
                         EXPECT_EQ(copy.bytes, kAll);
                         EXPECT_EQ(run.offset, 0u);
                         set.push_back({node, run.bytes});
                         return absl::OkStatus();
                       })
                  .ok());
  return set;
}

TEST(CopySizes, OnlyWhatHasChangedIsSet) {
  CopySizes sizes(withCopies(/*interleaved=*/false).transition(0));
  EXPECT_TRUE(sizes.change());
  EXPECT_EQ(sizes.bytes().h2d, 2 * kAll);
  EXPECT_THAT(setTo(sizes, 20), ElementsAre()); // as they were built
  EXPECT_THAT(setTo(sizes, 12), ElementsAre(Set{0, kAll / 2}, Set{1, kAll / 2}));
  EXPECT_EQ(sizes.bytes().h2d, kAll);
  EXPECT_EQ(sizes.bytes().d2h, 0u);
  EXPECT_THAT(setTo(sizes, 12), ElementsAre());
  EXPECT_THAT(setTo(sizes, 0), ElementsAre(Set{0, 256}, Set{1, 256}));
  EXPECT_THAT(setTo(sizes, 4), ElementsAre());
  EXPECT_THAT(setTo(sizes, 99), ElementsAre(Set{0, kAll}, Set{1, kAll}));
}

TEST(CopySizes, WhatWasRefusedIsTriedAgain) {
  CopySizes sizes(withCopies(/*interleaved=*/false).transition(0));
  const auto refuse = [](uint32_t node, const core::CopySides &, core::CopyRun) {
    return node == 1 ? absl::InternalError("no") : absl::OkStatus();
  };
  EXPECT_EQ(sizes.set(core::InUse{.kvBlocks = 12}, refuse).message(), "no");
  EXPECT_EQ(sizes.bytes().h2d, kAll / 2 + kAll);
  EXPECT_THAT(setTo(sizes, 12), ElementsAre(Set{1, kAll / 2}));
}

// What two layers bring, and what a launch has written of it back: each where its start or its size is another.
TEST(CopySizes, WhereACopyStartsIsSetAsItsSizeIs) {
  const TinyGraph tiny = withCopies(/*interleaved=*/false, 16, core::CopiedBack::Written);
  const GraphPlan graph = tiny.variant(0);
  const auto back = static_cast<uint32_t>(graph.nodes.size()) - 2; // the last two nodes
  CopySizes sizes(graph);
  EXPECT_EQ(sizes.bytes().d2h, 2 * kAll);
  const auto set = [&](const core::LaunchInUse &inUse) {
    std::vector<std::pair<uint32_t, core::CopyRun>> runs;
    const auto add = [&](uint32_t node, const core::CopySides &copy, core::CopyRun run) {
      EXPECT_EQ(copy.toDevice, node < back);
      runs.emplace_back(node, run);
      return absl::OkStatus();
    };
    EXPECT_TRUE(sizes.set(inUse, add).ok());
    return runs;
  };
  using Runs = std::vector<std::pair<uint32_t, core::CopyRun>>;
  const core::CopyRun two{5 * 1024, 2 * 1024}, later{7 * 1024, 2 * 1024}, first{0, 256};
  EXPECT_EQ(set(core::InUse{.writtenBegin = 9, .writtenEnd = 11}), (Runs{{back, two}, {back + 1, two}}));
  EXPECT_EQ(sizes.bytes().d2h, 2 * 2048u);
  EXPECT_EQ(set(core::InUse{.writtenBegin = 9, .writtenEnd = 11}), (Runs{}));
  EXPECT_EQ(set(core::InUse{.writtenBegin = 11, .writtenEnd = 13}),
            (Runs{{back, later}, {back + 1, later}})); // as large
  EXPECT_EQ(sizes.bytes().d2h, 2 * 2048u);
  EXPECT_EQ(set(core::InUse{.writtenBegin = 0, .writtenEnd = 0}),
            (Runs{{back, first}, {back + 1, first}})); // not where it was
  EXPECT_EQ(sizes.bytes().d2h, 2 * 256u);
  EXPECT_EQ(sizes.bytes().h2d, 2 * kAll);
}

TEST(CopySizes, AGraphWithoutResizableCopiesHasNoneToSet) {
  const TinyGraph tiny({.spec = core::tinyLlama(2), .offloaded = {1}});
  CopySizes sizes(tiny.variant(0));
  EXPECT_FALSE(sizes.change());
  EXPECT_EQ(sizes.bytes().h2d, plan::linkBytes(tiny.plan.schedules[0]).h2d);
}

// 2 layers: a block every 2 KiB, the last row begins at 15 x 2 KiB.
TEST(CopiesInRows, AreOneNodeOfOneSize) {
  const TinyGraph tiny = withCopies(/*interleaved=*/true);
  const GraphPlan graph = tiny.transition(0);
  ASSERT_EQ(graph.nodes.size(), 2u);
  for (const GraphNode &node : graph.nodes) {
    EXPECT_EQ(node.copy.rows(), 16u);
    EXPECT_EQ(node.copy.pitch, 2048u);
    EXPECT_FALSE(node.copy.sized.has_value());
    EXPECT_EQ(node.accesses[1].end - node.accesses[1].begin, 15u * 2048 + 1024);
    EXPECT_EQ(node.accesses[0].rowBytes, 0u); // the host's side
  }
  const RecordedGraph recorded = tiny.recorded({.transition = true, .index = 0});
  EXPECT_THAT(toText(recorded), HasSubstr("copy h2d 16384 bytes in 16 rows every 2048 of the device H+0x0 -> D+0x"));
  EXPECT_TRUE(checkGraph(recorded).ok()) << checkGraph(recorded);
  RecordedGraph other = recorded;
  other.nodes[0].copy.pitch = 4096;
  EXPECT_THAT(differences(recorded, other),
              ElementsAre(HasSubstr("listed 'copy h2d 16384 bytes in 16 rows every 4096 of the device")));
  EXPECT_THAT(std::string(checkGraph(other).message()), HasSubstr("copies 16 rows every 4096 bytes of the device"));
}

TEST(CopiesInRows, OfOneBlockIsOneRun) {
  const TinyGraph tiny = withCopies(/*interleaved=*/true, /*blocks=*/1);
  for (const GraphNode &node : tiny.transition(0).nodes)
    EXPECT_FALSE(node.copy.inRows());
  const RecordedGraph recorded = tiny.recorded({.transition = true, .index = 0});
  EXPECT_THAT(toText(recorded), HasSubstr("copy h2d 1024 bytes H+0x0 -> D+0x"));
  EXPECT_TRUE(checkGraph(recorded).ok()) << checkGraph(recorded);
}

// With no path between them only bytes that both have are a conflict.
TEST(CopiesInRows, ConflictWhereTheirRowsDo) {
  RecordedGraph graph = withCopies(/*interleaved=*/true).recorded({.transition = true, .index = 0});
  graph.nodes[1].after.clear();
  const auto conflicts = [&] {
    int count = 0;
    for (const GraphFault &fault : findFaults(graph))
      count += fault.rule == GraphRule::WriteAfterWrite;
    return count;
  };
  EXPECT_EQ(conflicts(), 0);
  for (uint64_t *end : {&graph.nodes[1].accesses[1].begin, &graph.nodes[1].accesses[1].end})
    *end -= 1; // into the other layer's rows
  EXPECT_EQ(conflicts(), 1);
}

} // namespace
} // namespace headrace::cuda
