// SPDX-License-Identifier: Apache-2.0
//
// Steps of the CPU's allocate nothing, on any thread: this binary counts every call of the allocator.
#include <gtest/gtest.h>

#include "runtime/cuda/CpuLane.h"
#include "tests/support/CountAllocations.h"
#include "tests/support/TinyPlan.h"
#include "tests/unit/cuda/CpuPlan.h"
#include "tests/unit/kernels/KernelTest.h"

namespace headrace::cuda {
namespace {

TEST(CpuLaneAllocations, ThereAreNoneInSteps) {
  const plan::Plan plan = planOnCpu(core::tinyLlama(2));
  kernels::TestMeta meta({{39, 1, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}, {3, 1, {11}}}, 4, 10);
  const int64_t heads = 4, kvHeads = 2, headDim = 16;
  kernels::Floats qkv(2 * (heads + 2 * kvHeads) * headDim, 0.5f), out(2 * heads * headDim);
  kernels::Floats kv(12 * kernels::kvBlockElements(kvHeads, 4, headDim));
  kernels::Floats workspace(kernels::attentionWorkspaceBytes(kernels::Backend::Host, 2, heads, headDim, 40) /
                            sizeof(float));
  const kernels::AppendArgs append{.meta = meta.get(),
                                   .qkv = qkv.data(),
                                   .kv = kv.data(),
                                   .segments = kernels::oneRun(12, kernels::kvBlockElements(kvHeads, 4, headDim)),
                                   .heads = heads,
                                   .kvHeads = kvHeads,
                                   .headDim = headDim,
                                   .blockTokens = 4};
  const kernels::AttentionArgs attention{.meta = meta.get(),
                                         .qkv = qkv.data(),
                                         .kv = kv.data(),
                                         .segments = append.segments,
                                         .out = out.data(),
                                         .workspace = workspace.data(),
                                         .heads = heads,
                                         .kvHeads = kvHeads,
                                         .headDim = headDim,
                                         .blockTokens = 4,
                                         .maxContext = 40,
                                         .scale = 0.25f};
  GraphPlan graph;
  graph.bucket = {2, 2, 40};
  graph.nodes.resize(2, {.lane = plan::Lane::Cpu, .kind = NodeKind::Host});
  graph.nodes[0].host = hostCall({kernels::Op::Append, append});
  graph.nodes[1].host = hostCall({kernels::Op::Attention, attention});
  for (const int threads : {1, 4}) {
    CpuLane lane({.threads = threads, .unitNs = 0});
    ASSERT_EQ(lane.start(plan), absl::OkStatus());
    const CpuSteps steps = lane.stepsOf(graph);
    uint64_t before = 0;
    for (int i = 0; i < 2000; ++i) {
      if (i == 1000) // what the C library makes once a thread is there
        before = allocations.load();
      for (const auto &step : steps)
        CpuLane::callback(step.get());
    }
    EXPECT_EQ(allocations.load() - before, 0u) << threads;
    EXPECT_EQ(lane.failed(), absl::OkStatus());
  }
}

} // namespace
} // namespace headrace::cuda
