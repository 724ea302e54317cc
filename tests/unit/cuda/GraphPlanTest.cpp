// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/GraphPlan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/cuda/TinyGraph.h"

namespace headrace::cuda {
namespace {

using core::tinyLlama;
using core::tinyOpt;
using testing::HasSubstr;

std::string refusal(const TinyGraph &tiny, const core::GraphKey &key = {}) {
  const auto graph = tiny.make(key);
  EXPECT_EQ(graph.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(graph.status().message());
}

size_t count(const GraphPlan &graph, NodeKind kind) {
  return static_cast<size_t>(
      std::count_if(graph.nodes.begin(), graph.nodes.end(), [&](const GraphNode &node) { return node.kind == kind; }));
}

TEST(GraphPlan, OwnStepsAreOneNodeEach) {
  const TinyGraph tiny({.spec = tinyLlama(2), .offloaded = {1}});
  const GraphPlan graph = tiny.variant(0);
  EXPECT_EQ(graph.nodes.size(), tiny.plan.schedules[0].steps.size()); // no bias, so no second nodes
  EXPECT_EQ(count(graph, NodeKind::Copy), 4u);
  EXPECT_EQ(count(graph, NodeKind::Library), 9u); // 4 a layer and the head
  for (uint32_t i = 0; i < graph.nodes.size(); ++i)
    EXPECT_EQ(graph.nodes[i].step, i);
  EXPECT_EQ(graph.name, "variant 0 (layers 1, 3 tokens x 3 sequences x 40)");
}

// qkv and up of each layer have 16-bit results and biases, out and down add to the F32 stream, the head has no bias.
TEST(GraphPlan, BiasesAddNoNodeWhereTheLibraryFuses) {
  core::TinyPlanOptions options{.spec = tinyOpt(2)}; // BF16, biases on all four
  const TinyGraph tiny(options);
  EXPECT_EQ(tiny.variant(1).nodes.size(), tiny.plan.schedules[1].steps.size());
  // Not fused: one each.
  const TinyGraph unfused(options, FusePolicy::None);
  EXPECT_EQ(unfused.variant(1).nodes.size(), tiny.plan.schedules[1].steps.size() + 8);
  options.spec.dtype = model::DType::F32;
  const TinyGraph f32(options);
  EXPECT_EQ(f32.variant(1).nodes.size(), f32.plan.schedules[1].steps.size());
}

TEST(GraphPlan, EdgesOfAStepWithTwoNodesEnterTheFirstAndLeaveTheLast) {
  const TinyGraph tiny({.spec = tinyOpt(3), .offloaded = {0, 1, 2}, .slots = 1}, FusePolicy::None);
  const GraphPlan graph = tiny.variant(0);
  for (uint32_t n = 0; n + 1 < graph.nodes.size(); ++n)
    if (graph.nodes[n].step == graph.nodes[n + 1].step) {
      EXPECT_FALSE(graph.nodes[n].signals) << n;
      EXPECT_TRUE(graph.nodes[n + 1].waits.empty()) << n;
    }
  bool waited = false;
  for (const GraphNode &node : graph.nodes)
    for (uint32_t before : node.waits)
      waited |= graph.nodes[before].lane == plan::Lane::Compute && graph.nodes[before].kind == NodeKind::Kernel;
  EXPECT_TRUE(waited); // a copy waits for the second node of the linear that read its range
}

TEST(GraphPlan, WaitsAreTheEdgesThatLaneOrderDoesNotImply) {
  TinyGraph tiny({.spec = tinyLlama(3), .offloaded = {0, 1, 2}, .slots = 1});
  plan::Schedule &schedule = tiny.plan.schedules[0];
  const size_t before = [&] {
    size_t waits = 0;
    for (const GraphNode &node : tiny.variant(0).nodes)
      waits += node.waits.size();
    return waits;
  }();
  EXPECT_EQ(before, schedule.edges.size());
  schedule.edges.push_back(schedule.edges.back()); // the same again: nothing more to wait for
  size_t after = 0;
  for (const GraphNode &node : tiny.variant(0).nodes)
    after += node.waits.size();
  EXPECT_EQ(after, before);
}

TEST(GraphPlan, CopiesAreOneDimensionalBetweenSlabAndArena) {
  const TinyGraph tiny({.spec = tinyLlama(2), .offloaded = {1}, .wrap = true});
  const GraphPlan graph = tiny.transition(0);
  ASSERT_EQ(graph.nodes.size(), 4u);
  EXPECT_TRUE(graph.transition);
  EXPECT_EQ(graph.name, "transition 0 (state 0 to 1)");
  for (const GraphNode &node : graph.nodes) {
    EXPECT_EQ(node.kind, NodeKind::Copy);
    EXPECT_TRUE(node.copy.toDevice);
    EXPECT_GE(node.copy.source, tiny.memory().bases.host);
    EXPECT_LE(node.copy.source + node.copy.bytes, tiny.memory().bases.host + tiny.plan.hostBytes);
  }
}

TEST(GraphPlan, ArgumentsAreTheKernelsOnlyParameter) {
  const TinyGraph tiny({.spec = tinyLlama(1)});
  const GraphPlan graph = tiny.variant(0);
  const GraphNode &embed = graph.nodes[0];
  ASSERT_EQ(embed.kernel.args.size(), sizeof(kernels::EmbedArgs));
  kernels::EmbedArgs args;
  std::memcpy(&args, embed.kernel.args.data(), sizeof(args));
  EXPECT_EQ(args.hidden, 64);
  EXPECT_EQ(embed.kernel.pointers[0].address, args.meta);
  const GraphNode &publish = graph.nodes.back();
  ASSERT_EQ(publish.kernel.args.size(), sizeof(kernels::PublishArgs));
  kernels::PublishArgs published;
  std::memcpy(&published, publish.kernel.args.data(), sizeof(published));
  EXPECT_EQ(published.tokens, tiny.memory().publishedTokens);
  EXPECT_EQ(published.maxSequences, 3);
}

TEST(GraphPlan, RotaryFrequenciesAreTheDevicesOwn) {
  const TinyGraph tiny({.spec = tinyLlama(1)});
  int seen = 0;
  for (const GraphNode &node : tiny.variant(0).nodes)
    for (const NamedPointer &pointer : node.kernel.pointers)
      if (std::string_view(pointer.field) == "inverseFrequencies") {
        EXPECT_EQ(pointer.address, tiny.memory().frequencies);
        ++seen;
      }
  EXPECT_EQ(seen, 1);
}

TEST(GraphPlan, RefusesWhatThePlanDoesNotHave) {
  const TinyGraph tiny({.spec = tinyLlama(1)});
  EXPECT_EQ(refusal(tiny, {.transition = false, .index = 2}), "variant 2 to build, the plan has 2");
  EXPECT_EQ(refusal(tiny, {.transition = true, .index = 0}), "transition 0 to build, the plan has 0");
}

TEST(GraphPlan, RefusesOtherLanesAndCopiesInTheWrongOne) {
  TinyGraph tiny({.spec = tinyLlama(2), .offloaded = {1}});
  std::vector<plan::Step> &steps = tiny.plan.schedules[0].steps;
  const auto copy = std::find_if(steps.begin(), steps.end(),
                                 [](const plan::Step &step) { return step.kind == plan::StepKind::Copy; });
  copy->lane = plan::Lane::Cpu;
  EXPECT_THAT(refusal(tiny), HasSubstr("a copy in lane 'cpu' whose sides are not those of its direction"));
  copy->lane = plan::Lane::D2H;
  EXPECT_THAT(refusal(tiny), HasSubstr("whose sides are not those of its direction"));
  copy->lane = plan::Lane::Compute;
  EXPECT_THAT(refusal(tiny), HasSubstr("whose sides are not those of its direction"));
  copy->lane = plan::Lane::H2D;
  steps[0].lane = plan::Lane::H2D;
  EXPECT_THAT(refusal(tiny), HasSubstr("compute in lane 'h2d'"));
}

TEST(GraphPlan, RefusesCopiesBeyondTheirMemory) {
  TinyGraph tiny({.spec = tinyLlama(2), .offloaded = {1}});
  plan::Schedule &schedule = tiny.plan.schedules[0];
  const auto copy = std::find_if(schedule.steps.begin(), schedule.steps.end(),
                                 [](const plan::Step &step) { return step.kind == plan::StepKind::Copy; });
  plan::Operand *operands = &schedule.operands[copy->firstOperand];
  operands[0].address = tiny.plan.hostBytes;
  EXPECT_THAT(refusal(tiny), HasSubstr("are outside the host slab"));
  operands[0].address = 0;
  operands[1].address = ~uint64_t{0} - 8;
  EXPECT_THAT(refusal(tiny), HasSubstr("are outside the arena"));
  operands[1].bytes = 256;
  EXPECT_THAT(refusal(tiny), HasSubstr("to 256"));
}

TEST(GraphPlan, RefusesAnIterationThatPublishesNothing) {
  TinyGraph tiny({.spec = tinyLlama(1)});
  tiny.plan.schedules[0].steps.pop_back();
  EXPECT_THAT(refusal(tiny), HasSubstr("0 publish steps, expected 1"));
}

TEST(GraphPlan, RefusesTypesThatTheLibraryDoesNotTakeNamingTheVariant) {
  TinyGraph tiny({.spec = tinyOpt(1)}); // BF16 matrices
  tiny.plan.activationDtype = model::DType::F32;
  EXPECT_THAT(refusal(tiny), HasSubstr("variant 0 (none, 3 tokens x 3 sequences x 40): schedule 'decode', step 2: a "
                                       "matrix of bf16 times activations of f32"));
}

} // namespace
} // namespace headrace::cuda
