// SPDX-License-Identifier: Apache-2.0
//
// Every rule accepts the graphs of plans, and refuses a graph that breaks it by its name.
#include "runtime/cuda/GraphRules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/cuda/TinyGraph.h"

namespace headrace::cuda {
namespace {

using core::tinyLlama;
using core::tinyOpt;
using plan::Lane;
using testing::HasSubstr;

std::string text(const std::vector<GraphFault> &faults) {
  std::string all;
  for (const GraphFault &fault : faults)
    all += std::string(graphRuleName(fault.rule)) + ": " + fault.message + "\n";
  return all;
}

TEST(GraphRules, AcceptTheGraphsOfPlans) {
  for (const model::ModelSpec &spec : {tinyLlama(5), tinyOpt(5)})
    for (const std::vector<int64_t> &offloaded :
         std::vector<std::vector<int64_t>>{{}, {1, 3}, {0, 2, 4}, {0, 1, 2, 3, 4}})
      for (bool wrap : {false, true})
        for (int64_t slots : {1, 2}) {
          const TinyGraph tiny({.spec = spec, .offloaded = offloaded, .wrap = wrap, .slots = slots});
          for (bool stamps : {false, true})
            for (uint32_t variant : {0, 1})
              EXPECT_EQ(text(findFaults(tiny.recorded({.transition = false, .index = variant}, stamps))), "");
          if (!tiny.plan.transitions.empty()) {
            EXPECT_EQ(text(findFaults(tiny.recorded({.transition = true, .index = 0}))), "");
          }
        }
}

// Three layers take turns in one slot, so that copies have edges in both directions.
class BrokenGraph : public testing::Test {
protected:
  BrokenGraph() : graph(tiny.recorded({})) {
    for (uint32_t i = 0; i < graph.nodes.size(); ++i)
      (graph.nodes[i].lane == Lane::H2D ? copies : computes).push_back(i);
  }
  void expect(GraphRule rule, const std::string &message) {
    const std::vector<GraphFault> faults = findFaults(graph, 1000);
    EXPECT_TRUE(std::any_of(faults.begin(), faults.end(),
                            [&](const GraphFault &fault) {
                              return fault.rule == rule && fault.message.find(message) != std::string::npos;
                            }))
        << "wanted " << graphRuleName(rule) << ": " << message << "; found\n"
        << text(faults);
    const absl::Status status = checkGraph(graph);
    if (rule == GraphRule::SmallCopy) {
      EXPECT_TRUE(status.ok()) << status;
    } else {
      EXPECT_THAT(std::string(status.message()), HasSubstr("variant 0 (layers 3, 3 tokens x 3 sequences x 40): "));
    }
  }
  // Takes away the edge into `to` from the other lane.
  uint32_t cut(uint32_t to) {
    auto &after = graph.nodes[to].after;
    const auto edge = std::find_if(after.begin(), after.end(),
                                   [&](uint32_t from) { return graph.nodes[from].lane != graph.nodes[to].lane; });
    EXPECT_NE(edge, after.end());
    const uint32_t from = *edge;
    after.erase(edge);
    return from;
  }
  bool crossed(uint32_t to) const {
    return std::any_of(graph.nodes[to].after.begin(), graph.nodes[to].after.end(),
                       [&](uint32_t from) { return graph.nodes[from].lane != graph.nodes[to].lane; });
  }

  const TinyGraph tiny{{.spec = tinyLlama(3), .offloaded = {0, 1, 2}, .slots = 1}};
  RecordedGraph graph;
  std::vector<uint32_t> copies, computes;
};

TEST_F(BrokenGraph, ACycleIsRefused) {
  graph.nodes[computes[0]].after.push_back(computes[5]);
  expect(GraphRule::Acyclic, "a cycle");
}
TEST_F(BrokenGraph, AnEdgeFromNowhereIsRefused) {
  graph.nodes[computes[3]].after.push_back(10000);
  expect(GraphRule::Acyclic, "not there");
}

TEST_F(BrokenGraph, ALaneThatIsNotForkedIsRefused) {
  graph.lanes[laneIndex(Lane::H2D)].forked = false;
  expect(GraphRule::LaneJoined, "lane h2d is not forked");
}
TEST_F(BrokenGraph, ALaneThatIsNotJoinedIsRefused) {
  graph.lanes[laneIndex(Lane::H2D)].joinedAt = 0;
  expect(GraphRule::LaneJoined, "lane h2d is not joined");
}
TEST_F(BrokenGraph, ALaneThatGoesOnAfterItsJoinIsRefused) {
  graph.lanes[laneIndex(Lane::H2D)].joinedAt = copies.back();
  expect(GraphRule::LaneJoined, "lane h2d is not joined after its last node");
}

TEST_F(BrokenGraph, ASilentlyMissingCopyIsRefused) {
  graph.nodes[copies[2]].planNode = kNoPlanNode;
  expect(GraphRule::NodeCount, "is there 0 times");
}
TEST_F(BrokenGraph, ANodeTwiceIsRefused) {
  graph.nodes[copies[2]].planNode = graph.nodes[copies[1]].planNode;
  expect(GraphRule::NodeCount, "is there 2 times");
}

TEST_F(BrokenGraph, MemoryNodesAreRefused) {
  graph.nodes.push_back({.kind = RecordedKind::Memory, .otherKind = "mem alloc", .after = {computes.back()}});
  expect(GraphRule::MemoryNode, "is a mem alloc node");
}
TEST_F(BrokenGraph, NodesThatThePlanDoesNotKnowAreRefused) {
  graph.nodes.push_back({.kind = RecordedKind::Other, .otherKind = "host", .after = {computes.back()}});
  expect(GraphRule::MemoryNode, "is a host node");
}

TEST_F(BrokenGraph, ACopyFromPageableMemoryIsRefused) {
  static std::byte pageable[4096];
  graph.nodes[copies[0]].copy.source = pageable;
  expect(GraphRule::PinnedCopy, "its host side is outside the pinned slab");
}
TEST_F(BrokenGraph, ACopyBeyondTheSlabsEndIsRefused) {
  core::CopySides &copy = graph.nodes[copies[0]].copy;
  copy.source = graph.memory.bases.host + graph.memory.slabBytes - copy.bytes + 1;
  expect(GraphRule::PinnedCopy, "its host side is outside the pinned slab");
}
TEST_F(BrokenGraph, ACopyOutsideTheArenaIsRefused) {
  graph.nodes[copies[0]].copy.destination = graph.memory.bases.device + graph.memory.arenaBytes;
  expect(GraphRule::PinnedCopy, "its device side is outside the arena");
}

TEST_F(BrokenGraph, ACopyInRowsOfWhatIsOneRunIsRefused) {
  core::CopySides &copy = graph.nodes[copies[0]].copy;
  copy.rowBytes = copy.pitch = copy.bytes / 2;
  expect(GraphRule::OneDimensional, "copies 2 rows every "); // which the plan's operands are not
}
TEST_F(BrokenGraph, ACopyOfNothingIsRefused) {
  graph.nodes[copies[0]].copy.bytes = 0;
  expect(GraphRule::ZeroLength, "copies no bytes");
}

TEST_F(BrokenGraph, APointerIntoOtherBytesIsRefused) {
  RecordedNode &node = graph.nodes[computes[1]];
  node.kernel.pointers.back().address = graph.memory.bases.device + graph.memory.arenaBytes - 1;
  expect(GraphRule::StrayPointer, "y points to bytes that the plan does not give it");
}
TEST_F(BrokenGraph, AStrayOperandOfALibraryCallIsRefused) {
  RecordedNode &node = graph.nodes[computes[2]];
  ASSERT_EQ(node.kind, RecordedKind::Library);
  node.matmul.w = nullptr;
  EXPECT_EQ(text(findFaults(graph)), ""); // null is no address
  node.matmul.w = graph.memory.bases.host + graph.memory.slabBytes;
  expect(GraphRule::StrayPointer, "w points to bytes");
}

TEST_F(BrokenGraph, CopiesOfOneDirectionWithoutAnOrderAreRefused) {
  graph.nodes[copies[1]].after.clear();
  expect(GraphRule::CopyOrder, "the next copy of its direction");
}
TEST_F(BrokenGraph, ACopyAgainstItsLaneIsRefused) {
  graph.nodes[copies[1]].copy.toDevice = false;
  expect(GraphRule::CopyOrder, "copies from the device in that lane");
}

TEST_F(BrokenGraph, AReadBeforeTheCopyIsDoneIsRefused) {
  const auto reader = std::find_if(computes.begin(), computes.end(), [&](uint32_t node) { return crossed(node); });
  ASSERT_NE(reader, computes.end());
  cut(*reader);
  expect(GraphRule::ReadAfterWrite, "no path from node ");
}
TEST_F(BrokenGraph, ACopyOverBytesThatAreStillReadIsRefused) {
  const auto writer = std::find_if(copies.begin(), copies.end(), [&](uint32_t node) { return crossed(node); });
  ASSERT_NE(writer, copies.end());
  cut(*writer);
  expect(GraphRule::WriteAfterRead, "no path from node ");
}
TEST_F(BrokenGraph, TwoWritersWithoutAnOrderAreRefused) {
  // The second layer's copies go to where the first one's went; without edges from compute nothing else orders them.
  for (uint32_t node : copies)
    graph.nodes[node].after.clear();
  for (uint32_t node : computes)
    graph.nodes[node].accesses.clear();
  expect(GraphRule::WriteAfterWrite, "no path from node ");
}

TEST_F(BrokenGraph, ASmallUrgentCopyBehindALargeOneIsRefused) {
  // A bulk copy whose bytes nobody in this iteration reads, ahead of a small one that the first layer needs.
  ASSERT_EQ(copies.size(), 12u);
  EXPECT_EQ(text(findFaults(graph)), "");
  const uint32_t bulk = copies[0], urgent = copies[1];
  for (NodeAccess &access : graph.nodes[bulk].accesses)
    if (access.space == plan::Space::Device) {
      access.begin = graph.memory.arenaBytes;
      access.end = access.begin + kSmallCopyBytes;
    }
  graph.nodes[bulk].copy.bytes = kSmallCopyBytes;
  graph.memory.slabBytes += kSmallCopyBytes;
  graph.memory.arenaBytes += kSmallCopyBytes;
  ASSERT_LT(graph.nodes[urgent].copy.bytes, kSmallCopyBytes);
  expect(GraphRule::SmallCopy, "wait for the 65536 bytes of node ");
  // Nor is it late where the step that needs it needs the large one too.
  const auto onDevice = [&](uint32_t node) {
    return *std::find_if(graph.nodes[node].accesses.begin(), graph.nodes[node].accesses.end(),
                         [](const NodeAccess &access) { return access.space == plan::Space::Device; });
  };
  const NodeAccess small = onDevice(urgent);
  const auto reader = std::find_if(computes.begin(), computes.end(), [&](uint32_t node) {
    return std::any_of(graph.nodes[node].accesses.begin(), graph.nodes[node].accesses.end(), [&](const NodeAccess &a) {
      return a.space == plan::Space::Device && a.begin < small.end && small.begin < a.end;
    });
  });
  ASSERT_NE(reader, computes.end());
  NodeAccess both = onDevice(bulk);
  both.access = plan::Access::Read;
  graph.nodes[*reader].accesses.push_back(both);
  EXPECT_EQ(text(findFaults(graph)), "");
  graph.nodes[*reader].accesses.pop_back();
  // Behind another small one it is not late.
  graph.nodes[bulk].copy.bytes = kSmallCopyBytes - 256;
  EXPECT_EQ(text(findFaults(graph)), "");
}

TEST(GraphRules, ReportAsManyAsAsked) {
  RecordedGraph graph = TinyGraph({.spec = tinyLlama(3), .offloaded = {0, 1, 2}}).recorded({});
  for (RecordedNode &node : graph.nodes)
    node.after.clear();
  EXPECT_EQ(findFaults(graph, 5).size(), 5u);
  EXPECT_GT(findFaults(graph, 1000).size(), 20u);
}

} // namespace
} // namespace headrace::cuda
