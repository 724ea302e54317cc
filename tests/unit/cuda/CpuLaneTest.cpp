// SPDX-License-Identifier: Apache-2.0
//
// Steps of the CPU's beside CUDA: graphs have a host node for each, rules know what such a node may be, and recorded
// graphs make the same bits in every order of nodes that edges allow, by any number of threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/cuda/GraphRules.h"
#include "tests/support/TinyPlan.h"
#include "tests/unit/cuda/CpuPlan.h"
#include "tests/unit/cuda/EmulatedGraphDevice.h"
#include "tests/unit/cuda/TinyGraph.h"

namespace headrace::cuda {
namespace {

using core::tinyLlama;
using core::tinyOpt;
using plan::Lane;
using testing::HasSubstr;

std::vector<model::ModelSpec> specs() {
  std::vector<model::ModelSpec> out = {tinyLlama(2), tinyOpt(2)}; // F32, BF16
  out.push_back(tinyLlama(2));
  out.back().dtype = model::DType::F16;
  return out;
}

TEST(CpuLaneGraph, HasAHostNodeForEachStepOfTheCpus) {
  for (const int64_t miniBatches : {1, 2}) {
    const TinyGraph tiny(planOnCpu(tinyLlama(2), "weights=1-8 slots=2 wrap", miniBatches));
    const uint32_t variant = decoding(tiny.plan);
    const plan::Schedule &schedule = tiny.plan.schedules[tiny.plan.variants[variant].schedule];
    ASSERT_EQ(cpuSteps(schedule), static_cast<uint64_t>(2 * 2 * miniBatches)); // append and attention a layer
    for (const bool stamps : {false, true}) {
      const RecordedGraph graph = tiny.recorded({.transition = false, .index = variant}, stamps);
      EXPECT_EQ(checkGraph(graph), absl::OkStatus());
      EXPECT_EQ(static_cast<uint64_t>(std::count_if(graph.nodes.begin(), graph.nodes.end(),
                                                    [](const RecordedNode &node) {
                                                      return node.kind == RecordedKind::Host && node.lane == Lane::Cpu;
                                                    })),
                cpuSteps(schedule));
      const std::string text = toText(graph);
      EXPECT_THAT(text, HasSubstr("fork cpu\n"));
      EXPECT_THAT(text, testing::ContainsRegex(" cpu step [0-9]+: host append meta H\\+0x[0-9a-f]+ qkv H\\+0x"));
      EXPECT_THAT(text, testing::ContainsRegex(" cpu step [0-9]+: host attention meta H\\+0x[0-9a-f]+ qkv H\\+0x"));
      EXPECT_THAT(text, HasSubstr("join cpu\n"));
    }
  }
}

// Of iterations with prompts the device attends.
TEST(CpuLaneGraph, OfPromptsHasNone) {
  const TinyGraph tiny(planOnCpu(tinyLlama(2)));
  uint32_t without = 0;
  for (uint32_t i = 0; i < tiny.plan.variants.size(); ++i)
    if (cpuSteps(tiny.plan.schedules[tiny.plan.variants[i].schedule]) == 0) {
      ++without;
      EXPECT_THAT(toText(tiny.recorded({.transition = false, .index = i})), testing::Not(HasSubstr("fork cpu")));
    }
  EXPECT_GT(without, 0u);
}

class BrokenCpuGraph : public testing::Test {
protected:
  BrokenCpuGraph() : graph(tiny.recorded({.transition = false, .index = decoding(tiny.plan)})) {
    for (uint32_t i = 0; i < graph.nodes.size(); ++i)
      if (graph.nodes[i].kind == RecordedKind::Host)
        host.push_back(i);
  }
  std::vector<std::string> faults() const {
    std::vector<std::string> out;
    for (const GraphFault &fault : findFaults(graph, 1000))
      out.push_back(std::string(graphRuleName(fault.rule)) + ": " + fault.message);
    return out;
  }
  // Takes away the edges into a node from that lane.
  void cut(uint32_t to, Lane lane) {
    std::erase_if(graph.nodes[to].after, [&](uint32_t from) { return graph.nodes[from].lane == lane; });
  }

  const TinyGraph tiny{planOnCpu(tinyLlama(2))};
  RecordedGraph graph;
  std::vector<uint32_t> host;
};

TEST_F(BrokenCpuGraph, AsItWasRecordedIsGood) { EXPECT_THAT(faults(), testing::IsEmpty()); }
TEST_F(BrokenCpuGraph, NodesOfTheCpusThatAreNotOrderedAreRefused) {
  cut(host[2], Lane::Cpu);
  cut(host[2], Lane::D2H); // which came behind what the first layer's attention was waited for
  EXPECT_THAT(faults(),
              testing::Contains(testing::MatchesRegex("CpuNode: no path from node .* to node .*, the CPU's next")));
}
TEST_F(BrokenCpuGraph, RowsThatAreReadBeforeTheyAreThereAreRefused) {
  cut(host[0], Lane::D2H);
  EXPECT_THAT(faults(), testing::Contains(testing::MatchesRegex("ReadAfterWrite: no path from node .*d2h.*cpu.*")));
}
TEST_F(BrokenCpuGraph, RowsThatAreFetchedBeforeTheyAreMadeAreRefused) {
  for (uint32_t i = 0; i < graph.nodes.size(); ++i)
    if (graph.nodes[i].lane == Lane::Compute)
      cut(i, Lane::Cpu);
  EXPECT_THAT(faults(), testing::Contains(testing::MatchesRegex("ReadAfterWrite: no path from node .*cpu.*compute.*")));
}
TEST_F(BrokenCpuGraph, ANodeOfTheCpusInAnotherLaneIsRefusedAndTheReverse) {
  graph.nodes[host[1]].lane = Lane::Compute;
  EXPECT_THAT(faults(), testing::Contains(HasSubstr("CpuNode: node " + std::to_string(host[1]) + " (compute, step")));
  graph.nodes[host[1]].lane = Lane::Cpu;
  graph.nodes[0].lane = Lane::Cpu;
  EXPECT_THAT(faults(), testing::Contains(testing::MatchesRegex("CpuNode: node 0 .* is not the CPU's")));
}
TEST_F(BrokenCpuGraph, DeviceMemoryIsNotTheCpus) {
  graph.nodes[host[0]].accesses[0].space = plan::Space::Device;
  EXPECT_THAT(faults(),
              testing::Contains(testing::MatchesRegex("CpuNode: node .* is given bytes of the arena from .*")));
  graph.nodes[host[0]].accesses[0].space = plan::Space::Host;
  graph.nodes[host[0]].host.pointers[1].address = graph.memory.bases.device;
  EXPECT_THAT(faults(),
              testing::Contains(testing::MatchesRegex("CpuNode: node .*: qkv points outside the pinned slab")));
}
TEST_F(BrokenCpuGraph, ALaneThatIsNotJoinedIsRefused) {
  graph.lanes[laneIndex(Lane::Cpu)].joinedAt = 0;
  EXPECT_THAT(faults(), testing::Contains(HasSubstr("lane cpu is not joined")));
}

TEST(CpuLaneGraph, OtherOpsOfTheCpusAreRefused) {
  TinyGraph tiny(planOnCpu(tinyLlama(2)));
  const uint32_t variant = decoding(tiny.plan);
  for (plan::Step &step : tiny.plan.schedules[tiny.plan.variants[variant].schedule].steps)
    if (step.op == kernels::Op::Append)
      step.op = kernels::Op::Rotate;
  EXPECT_THAT(std::string(tiny.make({.transition = false, .index = variant}).status().message()),
              HasSubstr("rotate in lane 'cpu': beside CUDA the CPU appends and attends"));
}

TEST(EmulatedCpuLane, BitsDependNeitherOnThreadsNorOnTheOrderOfNodesNorOnWhatElseIsAway) {
  uint64_t order = 0;
  for (const model::ModelSpec &spec : specs()) {
    const plan::Plan alone = planOnCpu(spec), away = planOnCpu(spec, "weights=1-8 slots=2 wrap");
    const Replies expected = replies(*makeEmulatedGraphDevice({}), alone, true);
    ASSERT_EQ(expected.tokens.size(), 4u);
    ASSERT_FALSE(expected.logits.empty());
    for (const int threads : {1, 2, 3, 4}) {
      const CpuLaneOptions cpu{.threads = threads, .unitNs = 0};
      EXPECT_EQ(
          replies(*makeEmulatedGraphDevice({.order = ++order, .cpu = cpu}), threads % 2 == 0 ? alone : away, true),
          expected)
          << spec.name << ", threads " << threads;
      EXPECT_EQ(replies(*makeEmulatedGraphDevice({.order = ++order, .cpu = cpu}), away, false).tokens, expected.tokens)
          << spec.name << ", threads " << threads << ", two in flight";
    }
    EXPECT_EQ(replies(*makeEmulatedGraphDevice({.order = ++order}), planOnCpu(spec, "", 2), false).tokens,
              expected.tokens)
        << spec.name << ", two mini-batches";
  }
}

// What the launch's rows are is poison then, where nothing has brought it yet.
TEST(EmulatedCpuLane, WithoutEdgesBetweenLanesItFails) {
  const plan::Plan plan = planOnCpu(tinyLlama(2));
  const auto made = generateReplies(*makeEmulatedGraphDevice({.order = 3, .dropCrossEdges = true}), plan, false);
  EXPECT_THAT(
      std::string(made.status().message()),
      testing::ContainsRegex("step [0-9]+ \\(append\\): -1 tokens of -1 sequences, .*: what the launch's rows are "
                             "has not come to the host as it was"));
}

} // namespace
} // namespace headrace::cuda
