// SPDX-License-Identifier: Apache-2.0
//
// The lane by itself: threads that post steps and threads that run them. It is small enough for the thread sanitizer.
#include "runtime/cuda/CpuLane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "runtime/model/ModelSpec.h"
#include "tests/unit/kernels/KernelTest.h"

namespace headrace::cuda {
namespace {

using plan::Lane;
using testing::HasSubstr;

constexpr int64_t kHeads = 4, kKvHeads = 2, kHeadDim = 16, kBlockTokens = 4;
uint64_t workspaceBytes() { return kernels::attentionWorkspaceBytes(kernels::Backend::Host, 2, kHeads, kHeadDim, 40); }

// All that the lane asks of a plan: the model's heads, and a step of the CPU's with a workspace.
plan::Plan planWithSteps() {
  model::ModelSpec spec;
  spec.heads = kHeads, spec.kvHeads = kKvHeads, spec.headDim = kHeadDim;
  plan::Plan plan;
  plan.model = spec;
  plan::Schedule &schedule = plan.schedules.emplace_back();
  schedule.operands.push_back({.arg = plan::Arg::Workspace, .bytes = workspaceBytes()});
  schedule.steps.push_back({.lane = Lane::Cpu, .operandCount = 1});
  return plan;
}

std::atomic<int> ran{0};
std::atomic<std::thread::id> byThread{};
void note(const void *) {
  ++ran;
  byThread = std::this_thread::get_id();
}
kernels::HostKernel noting(kernels::Op) { return kernels::wholeKernel<note>(); }

// An append of a bucket of two sequences of one token, up to 40 tokens long.
class OneStep {
public:
  OneStep() : meta_({{0, 1, {1}}, {3, 1, {2}}}, 4, 10) {
    graph_.name = "variant 0 (tiny)";
    graph_.bucket = {2, 2, 40};
    graph_.nodes.push_back({.step = 7, .lane = Lane::Cpu, .kind = NodeKind::Host});
    graph_.nodes.back().host = hostCall({kernels::Op::Append, kernels::AppendArgs{.meta = meta_.get()}});
  }
  kernels::TestMeta &meta() { return meta_; }
  CpuSteps of(CpuLane &lane) const { return lane.stepsOf(graph_); }

private:
  kernels::TestMeta meta_;
  GraphPlan graph_;
};

TEST(CpuLane, RunsStepsOnAThreadOfItsOwnAndReturnsOnceTheyHaveEnded) {
  OneStep step;
  CpuLane lane({.threads = 2, .kernelOf = noting});
  const plan::Plan plan = planWithSteps();
  ASSERT_EQ(lane.start(plan), absl::OkStatus());
  const CpuSteps steps = step.of(lane);
  EXPECT_EQ(steps[0]->name, "variant 0 (tiny), step 7 (append)");
  ran = 0;
  for (int i = 1; i <= 1000; ++i) {
    CpuLane::callback(steps[0].get());
    ASSERT_EQ(ran, i);
  }
  EXPECT_NE(byThread.load(), std::this_thread::get_id());
  EXPECT_GE(steps[0]->time.endNs, steps[0]->time.startNs);
  EXPECT_GT(steps[0]->time.startNs, 0);
}

TEST(CpuLane, WhatDoesNotFitTheVariantFailsItByNameAndNothingIsRunAnyMore) {
  OneStep step;
  CpuLane lane({.kernelOf = noting});
  const plan::Plan plan = planWithSteps();
  ASSERT_EQ(lane.start(plan), absl::OkStatus());
  const CpuSteps steps = step.of(lane);
  ran = 0;
  CpuLane::callback(steps[0].get());
  EXPECT_EQ(lane.failed(), absl::OkStatus());
  step.meta().ints(step.meta()->contextLength)[1] = 41;
  CpuLane::callback(steps[0].get());
  EXPECT_EQ(lane.failed().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(lane.failed().message()),
              HasSubstr("variant 0 (tiny), step 7 (append): sequence 1 of 2 is 41 tokens long"));
  step.meta().ints(step.meta()->contextLength)[1] = 4;
  CpuLane::callback(steps[0].get());
  EXPECT_EQ(ran, 1);
  EXPECT_FALSE(lane.failed().ok());
}

TEST(CpuLane, IsStartedForPlansThatHaveStepsOfTheCpusAlone) {
  plan::Plan without = planWithSteps();
  without.schedules.clear();
  const plan::Plan with = planWithSteps();
  CpuLane none({.threads = 0});
  EXPECT_EQ(none.start(without), absl::OkStatus());
  EXPECT_FALSE(none.started());
  EXPECT_EQ(none.start(with).message(), "cuda device: threads = 0, expected at least 1");
  CpuLane elsewhere({.core = 100000});
  EXPECT_THAT(std::string(elsewhere.start(with).message()), HasSubstr("pinning the cpu lane to core 100000"));
  CpuLane here({.threads = 3});
  EXPECT_EQ(here.start(with), absl::OkStatus());
  EXPECT_TRUE(here.started());
}

// Drivers' threads come and go, the lane's and its helpers spin and sleep; the numbers are those of one thread.
TEST(CpuLane, AnyThreadsPostAndAnyHelp) {
  kernels::TestMeta meta({{39, 1, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}, {3, 1, {11}}}, kBlockTokens, 10);
  const kernels::KvSegments segments = kernels::oneRun(12, kernels::kvBlockElements(kKvHeads, kBlockTokens, kHeadDim));
  const auto run = [&](int threads) {
    kernels::Floats qkv = kernels::randomFloats(2 * (kHeads + 2 * kKvHeads) * kHeadDim, 1);
    kernels::Floats out(2 * kHeads * kHeadDim), kv(static_cast<size_t>(segments.end), 0.25f);
    kernels::Floats workspace(workspaceBytes() / sizeof(float));
    GraphPlan graph;
    graph.bucket = {2, 2, 40};
    graph.nodes.resize(2, {.lane = Lane::Cpu, .kind = NodeKind::Host});
    graph.nodes[0].host = hostCall({kernels::Op::Append, kernels::AppendArgs{.meta = meta.get(),
                                                                             .qkv = qkv.data(),
                                                                             .kv = kv.data(),
                                                                             .segments = segments,
                                                                             .heads = kHeads,
                                                                             .kvHeads = kKvHeads,
                                                                             .headDim = kHeadDim,
                                                                             .blockTokens = kBlockTokens}});
    graph.nodes[1].host = hostCall({kernels::Op::Attention, kernels::AttentionArgs{.meta = meta.get(),
                                                                                   .qkv = qkv.data(),
                                                                                   .kv = kv.data(),
                                                                                   .segments = segments,
                                                                                   .out = out.data(),
                                                                                   .workspace = workspace.data(),
                                                                                   .heads = kHeads,
                                                                                   .kvHeads = kKvHeads,
                                                                                   .headDim = kHeadDim,
                                                                                   .blockTokens = kBlockTokens,
                                                                                   .maxContext = 40,
                                                                                   .scale = 0.25f}});
    CpuLane lane({.threads = threads, .unitNs = 0});
    EXPECT_EQ(lane.start(planWithSteps()), absl::OkStatus());
    const CpuSteps steps = lane.stepsOf(graph);
    for (int i = 0; i < 200; ++i) {
      std::thread driver([&] {
        for (const auto &step : steps)
          CpuLane::callback(step.get());
      });
      driver.join();
      if (i % 50 == 0) // all asleep
        std::this_thread::sleep_for(std::chrono::nanoseconds(4 * threads::kPoolSpinNs));
      for (size_t j = 0; j < out.size(); ++j) // as the next layer would
        qkv[j] += 0.125f * out[j];
    }
    EXPECT_EQ(lane.failed(), absl::OkStatus());
    return kernels::bitsOf(qkv);
  };
  const auto alone = run(1);
  for (const int threads : {2, 3, 4})
    EXPECT_EQ(run(threads), alone) << threads;
}

} // namespace
} // namespace headrace::cuda
