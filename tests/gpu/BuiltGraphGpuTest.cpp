// SPDX-License-Identifier: Apache-2.0
//
// What CUDA holds of a graph is what was planned: both builders' graphs of compiled plans are read back node by node
// and edge by edge, and compared with the recording. Both products' libraries, with stamps and without.
#include "compiler/Compile.h"
#include "runtime/cuda/CudaDevice.h"
#include "tests/support/SourceDir.h"
#include "tests/support/TinyPlan.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

struct Case {
  const char *name;
  bool capture, gemmEx, trace;
};

class BuiltGraph : public testing::TestWithParam<Case> {};

TEST_P(BuiltGraph, IsTheRecordedOne) {
  const auto hardware = model::openHardware(sourceDir() + "/examples/hardware/h200.toml");
  ASSERT_TRUE(hardware.ok()) << hardware.status();
  for (const model::StartRule rule : {model::StartRule::Paper, model::StartRule::Eager})
    for (const int64_t interval : {1, 2, 3}) {
      compiler::CompileRequest request;
      request.model = core::tinyLlama(6);
      request.model->dtype = model::DType::BF16;
      request.hardware = *hardware;
      request.goal.batch = 4;
      request.goal.context = 64;
      request.policy.interval = interval;
      request.policy.startRule = rule;
      const auto plan = compiler::compile(request);
      ASSERT_TRUE(plan.ok()) << plan.status();
      const auto device = cuda::makeCudaDevice({.capture = GetParam().capture,
                                                .gemmEx = GetParam().gemmEx,
                                                .compare = true,
                                                .traceBy = cuda::TraceBy::Stamps});
      ASSERT_TRUE(device.ok()) << device.status();
      ASSERT_TRUE((*device)->open(*plan, {.trace = GetParam().trace}).ok());
      for (uint32_t i = 0; i < plan->variants.size(); ++i) {
        const auto graph = (*device)->build({.index = i});
        EXPECT_TRUE(graph.ok()) << graph.status();
      }
      for (uint32_t i = 0; i < plan->transitions.size(); ++i) {
        const auto graph = (*device)->build({.transition = true, .index = i});
        EXPECT_TRUE(graph.ok()) << graph.status();
      }
      const auto costs = cuda::graphCosts(**device);
      ASSERT_TRUE(costs.ok()) << costs.status();
      EXPECT_EQ(costs->graphs, plan->variants.size() + plan->transitions.size());
    }
}

INSTANTIATE_TEST_SUITE_P(Builders, BuiltGraph,
                         testing::Values(Case{"Explicit", false, false, false}, Case{"Capture", true, false, false},
                                         Case{"ExplicitStamped", false, false, true},
                                         Case{"CaptureStamped", true, false, true},
                                         Case{"ExplicitGemmEx", false, true, false},
                                         Case{"CaptureGemmEx", true, true, false}),
                         [](const testing::TestParamInfo<Case> &info) { return info.param.name; });

} // namespace
} // namespace headrace
