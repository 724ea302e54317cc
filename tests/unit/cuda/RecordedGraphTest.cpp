// SPDX-License-Identifier: Apache-2.0
//
// The text of recorded graphs, against files under golden/ (HEADRACE_UPDATE_GOLDENS=1 writes them), and comparison.
#include "runtime/cuda/RecordedGraph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "runtime/cuda/GraphOrder.h"
#include "runtime/cuda/RecordingBuilder.h"
#include "tests/support/SourceDir.h"
#include "tests/unit/cuda/TinyGraph.h"

namespace headrace::cuda {
namespace {

using core::tinyLlama;
using core::tinyOpt;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

void expectGolden(const std::string &name, const std::string &text) {
  const std::string path = sourceDir() + "/tests/unit/cuda/golden/" + name + ".txt";
  if (std::getenv("HEADRACE_UPDATE_GOLDENS") != nullptr) {
    std::ofstream(path) << text;
    return;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  std::stringstream wanted;
  wanted << file.rdbuf();
  EXPECT_EQ(text, wanted.str()) << path;
}

constexpr core::GraphKey kDecode{.transition = false, .index = 0}, kMixed{.transition = false, .index = 1},
    kTransition{.transition = true, .index = 0};

TEST(RecordedGraph, Llama) {
  const TinyGraph tiny({.spec = tinyLlama(2), .offloaded = {1}, .wrap = true, .slots = 1});
  expectGolden("llama-decode", toText(tiny.recorded(kDecode)));
  expectGolden("llama-mixed", toText(tiny.recorded(kMixed)));
  expectGolden("llama-transition", toText(tiny.recorded(kTransition)));
}

TEST(RecordedGraph, OptWithBiasesAndOneSlot) {
  const TinyGraph tiny({.spec = tinyOpt(3), .offloaded = {0, 1, 2}, .slots = 1});
  expectGolden("opt-decode", toText(tiny.recorded(kDecode)));
}

TEST(RecordedGraph, Instrumented) {
  const TinyGraph tiny({.spec = tinyLlama(1), .offloaded = {0}, .slots = 1});
  expectGolden("llama-instrumented", toText(tiny.recorded(kDecode, /*stamps=*/true)));
}

TEST(RecordedGraph, StampsEncloseTheirStepAndNothingElse) {
  const TinyGraph tiny({.spec = tinyOpt(3), .offloaded = {0, 1, 2}, .slots = 1});
  const RecordedGraph graph = tiny.recorded(kDecode, /*stamps=*/true);
  std::vector<int> seen(Stamps::count(static_cast<uint32_t>(tiny.plan.schedules[0].steps.size())));
  for (const RecordedNode &node : graph.nodes)
    if (node.kind == RecordedKind::Stamp)
      ++seen[node.event];
  for (size_t event = 0; event < seen.size(); ++event)
    EXPECT_EQ(seen[event], 1) << event;
  // A node follows the start of its own step alone (waits stand before the stamp), or its step's first node.
  for (const RecordedNode &node : graph.nodes)
    if (node.kind != RecordedKind::Stamp) {
      ASSERT_EQ(node.after.size(), 1u);
      const RecordedNode &before = graph.nodes[node.after[0]];
      EXPECT_TRUE(before.kind == RecordedKind::Stamp ? before.event == Stamps::start(node.step)
                                                     : before.step == node.step);
    }
}

TEST(RecordedGraph, ALaneWaitsOnlyForNodesThatAreThere) {
  const GraphPlan plan = TinyGraph({.spec = tinyLlama(1)}).variant(0);
  RecordingBuilder builder(plan);
  EXPECT_EQ(builder.wait(plan::Lane::H2D, 3).code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(builder.fork(plan::Lane::H2D).ok());
  EXPECT_EQ(builder.fork(plan::Lane::H2D).code(), absl::StatusCode::kInternal);
}

class Differences : public testing::Test {
protected:
  const TinyGraph tiny{{.spec = tinyLlama(2), .offloaded = {1}, .slots = 1}};
  const RecordedGraph recorded = tiny.recorded(kDecode);
  RecordedGraph listed = recorded;
  uint32_t first(RecordedKind kind) const {
    for (uint32_t i = 0; i < recorded.nodes.size(); ++i)
      if (recorded.nodes[i].kind == kind)
        return i;
    return 0;
  }
};

TEST_F(Differences, NoneBetweenTheSame) { EXPECT_THAT(differences(recorded, listed), IsEmpty()); }

TEST_F(Differences, NoneInAnotherOrderOfNodes) {
  const uint32_t count = static_cast<uint32_t>(listed.nodes.size());
  std::reverse(listed.nodes.begin(), listed.nodes.end());
  for (RecordedNode &node : listed.nodes)
    for (uint32_t &before : node.after)
      before = count - 1 - before;
  EXPECT_THAT(differences(recorded, listed), IsEmpty());
}

TEST_F(Differences, AMissingNodeIsNamed) {
  listed.nodes.pop_back();
  EXPECT_THAT(differences(recorded, listed), testing::Contains(HasSubstr("node 27: 1 recorded, 0 listed")));
}

TEST_F(Differences, ANodeMoreIsNamed) {
  listed.nodes.push_back({.kind = RecordedKind::Other, .otherKind = "memset"});
  EXPECT_THAT(differences(recorded, listed), ElementsAre("unplanned memset node: not recorded, 1 listed"));
}

TEST_F(Differences, ParametersAreCompared) {
  const uint32_t copy = first(RecordedKind::Copy), kernel = first(RecordedKind::Kernel);
  listed.nodes[copy].copy.bytes += 256;
  listed.nodes[kernel].kernel.launch.grid[0] += 1;
  EXPECT_EQ(differences(recorded, listed).size(), 2u);
  EXPECT_THAT(differences(recorded, listed), testing::Contains(HasSubstr("copy h2d")));
  listed = recorded;
  listed.nodes[kernel].kernel.pointers[1].address = listed.memory.bases.device + 3;
  EXPECT_THAT(differences(recorded, listed), ElementsAre(HasSubstr("table D+0x3")));
  listed = recorded;
  listed.nodes[first(RecordedKind::Library)].matmul.shape.m += 1;
  EXPECT_THAT(differences(recorded, listed), ElementsAre(HasSubstr("library m 3")));
}

// Edges that others imply may be there or not: every path of two edges as one of its own, none of either.
TEST_F(Differences, EdgesAreComparedByWhereTheyLead) {
  size_t implied = 0;
  for (uint32_t node = 0; node < listed.nodes.size(); ++node) {
    std::set<uint32_t> after(recorded.nodes[node].after.begin(), recorded.nodes[node].after.end());
    for (const uint32_t before : recorded.nodes[node].after)
      for (const uint32_t earlier : recorded.nodes[before].after)
        implied += after.insert(earlier).second;
    listed.nodes[node].after.assign(after.begin(), after.end());
  }
  EXPECT_GT(implied, 10u);
  EXPECT_THAT(differences(recorded, listed), IsEmpty());
  EXPECT_THAT(differences(listed, recorded), IsEmpty());
}

// A reader of what a copy brings: without its edge from the copy nothing holds it back.
TEST_F(Differences, AnEdgeThatNothingImpliesIsMissed) {
  uint32_t reader = 0, copy = 0;
  for (uint32_t node = 0; node < listed.nodes.size(); ++node)
    for (const uint32_t before : listed.nodes[node].after)
      if (listed.nodes[node].kind != RecordedKind::Copy && listed.nodes[before].kind == RecordedKind::Copy)
        reader = node, copy = before;
  ASSERT_NE(reader, copy);
  std::erase(listed.nodes[reader].after, copy);
  EXPECT_THAT(differences(recorded, listed), ElementsAre(HasSubstr("recorded, not listed")));
  EXPECT_THAT(differences(listed, recorded), ElementsAre(HasSubstr("listed, not recorded")));
}

TEST_F(Differences, AnEdgeBetweenWhatMayRunBesideEachOtherIsNamed) {
  const GraphOrder order(recorded);
  for (uint32_t a = 0; a < listed.nodes.size(); ++a)
    for (uint32_t b = a + 1; b < listed.nodes.size(); ++b)
      if (!order.before(a, b) && !order.before(b, a)) {
        listed.nodes[b].after.push_back(a);
        EXPECT_THAT(differences(recorded, listed), ElementsAre(HasSubstr("listed, not recorded")));
        return;
      }
  FAIL() << "all nodes are in order";
}

// A cycle has no order: its edges are compared as they are.
TEST_F(Differences, OfAGraphWithACycleEveryEdgeIsCompared) {
  listed.nodes[0].after.push_back(static_cast<uint32_t>(listed.nodes.size()) - 1);
  EXPECT_THAT(differences(recorded, listed), testing::Contains(HasSubstr("listed, not recorded")));
}

} // namespace
} // namespace headrace::cuda
