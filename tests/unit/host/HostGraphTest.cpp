// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/HostGraph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/TinyPlan.h"

namespace headrace::host {
namespace {

using testing::HasSubstr;

// A plan with one variant whose schedule is compute steps ("c"), copies in ("i") and out ("o"), and a publish ("p").
plan::Plan planOf(const std::string &steps, const std::vector<plan::Edge> &edges) {
  plan::Plan plan = core::tinyPlan({.spec = core::tinyLlama(1)});
  plan.hostBytes = 4096;
  plan::Schedule &schedule = plan.schedules[0];
  schedule.steps.clear();
  schedule.operands.clear();
  schedule.edges = edges;
  for (char kind : steps) {
    plan::Step step;
    step.kind = kind == 'c' ? plan::StepKind::Compute : kind == 'p' ? plan::StepKind::Publish : plan::StepKind::Copy;
    if (step.kind == plan::StepKind::Copy) {
      step.lane = kind == 'i' ? plan::Lane::H2D : plan::Lane::D2H;
      step.firstOperand = static_cast<uint32_t>(schedule.operands.size());
      step.operandCount = 2;
      const plan::Operand host{.space = plan::Space::Host, .bytes = 256}, device{.bytes = 256};
      schedule.operands.push_back(kind == 'i' ? host : device);
      schedule.operands.push_back(kind == 'i' ? device : host);
    }
    schedule.steps.push_back(step);
  }
  return plan;
}

class Build {
public:
  explicit Build(plan::Plan plan) : plan_(std::move(plan)), binding_(plan_, kernels::Order::Panel16) {
    graph = buildGraph({.plan = plan_,
                        .binding = binding_,
                        .bases = {reinterpret_cast<std::byte *>(uintptr_t{1} << 40),
                                  reinterpret_cast<std::byte *>(uintptr_t{1} << 41)},
                        .options = {.replaceKernels = kernels::wholeKernel<[](const void *) {}>()}},
                       {.transition = false, .index = 0});
  }
  const LaneStep &step(size_t lane, size_t index) const { return (*graph)->lanes[lane][index]; }
  std::string refusal() const {
    EXPECT_EQ(graph.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(graph.status().message());
  }
  absl::StatusOr<std::unique_ptr<HostGraph>> graph;

private:
  const plan::Plan plan_;
  const core::BindContext binding_;
};

TEST(HostGraph, SeveralEdgesFromALaneAreOneThreshold) {
  //              0 1 2 3 4
  const Build b(planOf("iiicp", {{0, 3}, {1, 3}}));
  ASSERT_TRUE(b.graph.ok()) << b.graph.status();
  ASSERT_EQ(b.step(0, 0).waitCount, 1);
  EXPECT_EQ(b.step(0, 0).waits[0].counter, Counter::H2D);
  EXPECT_EQ(b.step(0, 0).waits[0].threshold, 2u); // two copies have ended
  EXPECT_FALSE(b.step(1, 0).signals);
  EXPECT_TRUE(b.step(1, 1).signals);
  EXPECT_FALSE(b.step(1, 2).signals);
}

TEST(HostGraph, WhatAnEarlierStepHasWaitedForIsNotWaitedForAgain) {
  //              0 1 2 3 4
  const Build b(planOf("iiccp", {{1, 2}, {0, 3}}));
  ASSERT_TRUE(b.graph.ok()) << b.graph.status();
  EXPECT_EQ(b.step(0, 0).waitCount, 1);
  EXPECT_EQ(b.step(0, 1).waitCount, 0);
  EXPECT_FALSE(b.step(1, 0).signals); // nobody waits for the first copy alone
}

TEST(HostGraph, EachLaneHasItsOwnThreshold) {
  //              0 1 2 3 4
  const Build b(planOf("icoip", {{1, 2}, {1, 3}, {2, 3}, {2, 4}, {3, 4}}));
  ASSERT_TRUE(b.graph.ok()) << b.graph.status();
  EXPECT_EQ(b.step(2, 0).waitCount, 1); // out waits for compute
  EXPECT_EQ(b.step(1, 1).waitCount, 2); // the second copy in for compute and out
  EXPECT_EQ(b.step(0, 1).waitCount, 2); // publish for in and out
  EXPECT_TRUE(b.step(0, 0).signals);
  EXPECT_TRUE(b.step(2, 0).signals);
}

TEST(HostGraph, EveryEdgeOfAPlanIsKept) {
  const plan::Plan plan =
      core::tinyPlan({.spec = core::tinyLlama(6), .offloaded = {0, 1, 3, 4}, .wrap = true, .slots = 2});
  const Build b(plan);
  ASSERT_TRUE(b.graph.ok()) << b.graph.status();
  const plan::Schedule &schedule = plan.schedules[0];
  // The threshold that each step has waited for by the time it starts, per lane.
  std::vector<std::array<uint64_t, kHostLanes>> waited(schedule.steps.size());
  std::vector<uint64_t> position(schedule.steps.size());
  for (const auto &lane : (*b.graph)->lanes) {
    std::array<uint64_t, kHostLanes> sum{};
    for (size_t i = 0; i < lane.size(); ++i) {
      for (uint8_t w = 0; w < lane[i].waitCount; ++w) {
        uint64_t &threshold = sum[static_cast<size_t>(lane[i].waits[w].counter)];
        EXPECT_GT(lane[i].waits[w].threshold, threshold); // none is implied
        threshold = lane[i].waits[w].threshold;
      }
      waited[lane[i].step] = sum;
      position[lane[i].step] = i;
    }
  }
  ASSERT_FALSE(schedule.edges.empty());
  for (const plan::Edge &edge : schedule.edges)
    EXPECT_GE(waited[edge.to][static_cast<size_t>(schedule.steps[edge.from].lane)], position[edge.from] + 1);
}

TEST(HostGraphRefuses, WhatTheHostHasNot) {
  plan::Plan plan = planOf("cip", {});
  plan.schedules[0].steps[1].lane = plan::Lane::Cpu;
  EXPECT_THAT(Build(plan).refusal(), HasSubstr("whose sides are not those of its direction"));
  plan = planOf("ccp", {});
  plan.schedules[0].steps[1].lane = plan::Lane::D2H;
  EXPECT_THAT(Build(plan).refusal(), HasSubstr("step 1: compute in lane 'd2h'"));
  plan = planOf("cp", {});
  plan.schedules[0].steps[1].lane = plan::Lane::H2D;
  EXPECT_THAT(Build(plan).refusal(), HasSubstr("step 1: publish in lane 'h2d'"));
}

TEST(HostGraphRefuses, AnIterationThatDoesNotPublishOnce) {
  EXPECT_THAT(Build(planOf("cc", {})).refusal(), HasSubstr("0 publish steps, expected 1"));
  EXPECT_THAT(Build(planOf("cpp", {})).refusal(), HasSubstr("2 publish steps, expected 1"));
}

TEST(HostGraphRefuses, CopiesWhoseSidesDoNotFit) {
  plan::Plan plan = planOf("ip", {});
  plan.schedules[0].operands[1].bytes = 128;
  EXPECT_THAT(Build(plan).refusal(), HasSubstr("step 0: a copy of 256 bytes to 128"));
  plan = planOf("ip", {});
  plan.schedules[0].operands[0].space = plan::Space::Device;
  EXPECT_THAT(Build(plan).refusal(), HasSubstr("a copy in lane 'h2d' whose sides are not those of its direction"));
  plan = planOf("op", {});
  plan.schedules[0].operands[1].address = 4000;
  EXPECT_THAT(Build(plan).refusal(), HasSubstr("bytes [4000, +256) are outside the host slab of 4096"));
  plan = planOf("ip", {});
  plan.schedules[0].operands[1].address = ~uint64_t{0} - 100;
  EXPECT_THAT(Build(plan).refusal(), HasSubstr("are outside the arena of"));
  plan = planOf("ip", {});
  plan.schedules[0].steps[0].operandCount = 1;
  EXPECT_THAT(Build(plan).refusal(), HasSubstr("a copy has 2 operands, this one 1"));
}

TEST(HostGraphRefuses, EdgesBackwardsOrOutside) {
  EXPECT_THAT(Build(planOf("icp", {{1, 0}})).refusal(), HasSubstr("edge from step 1 to 0"));
  EXPECT_THAT(Build(planOf("icp", {{0, 9}})).refusal(), HasSubstr("edge from step 0 to 9"));
}

TEST(HostGraphRefuses, IndicesThatThePlanHasNot) {
  plan::Plan plan = planOf("cp", {});
  plan.variants[0].schedule = 7;
  EXPECT_THAT(Build(plan).refusal(), HasSubstr("variant 0: schedule 7, the plan has 2"));
  plan.variants.clear();
  EXPECT_THAT(Build(plan).refusal(), HasSubstr("variant 0 to build, the plan has 0"));
}

} // namespace
} // namespace headrace::host
