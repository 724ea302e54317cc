// SPDX-License-Identifier: Apache-2.0
//
// Copies run beside kernels inside one graph: measured by stamps and by CUPTI, of a run of a shape that is large
// enough.
#include <algorithm>

#include "compiler/Compile.h"
#include "runtime/core/MetaWriter.h"
#include "runtime/core/Runtime.h"
#include "runtime/cuda/CudaDevice.h"
#include "runtime/model/WeightSource.h"
#include "tests/support/SourceDir.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

struct Interval {
  int64_t begin = 0, end = 0;
};

// Total length of what both lists of disjoint, ascending intervals cover.
int64_t common(const std::vector<Interval> &a, const std::vector<Interval> &b) {
  int64_t sum = 0;
  for (const Interval &x : a)
    for (const Interval &y : b)
      sum += std::max<int64_t>(0, std::min(x.end, y.end) - std::max(x.begin, y.begin));
  return sum;
}
int64_t length(const std::vector<Interval> &list) { return common(list, {{INT64_MIN / 2, INT64_MAX / 2}}); }

struct Measured {
  std::vector<Interval> kernels, copies;
  std::vector<uint32_t> copySteps;
  std::vector<cuda::CopyChannel> channels; // where CUPTI measures
};

void measure(cuda::TraceBy by, Measured &measured) {
  const auto model = model::openModel(sourceDir() + "/examples/models/tinyllama-1.1b.toml");
  const auto hardware = model::openHardware(sourceDir() + "/examples/hardware/h200.toml");
  ASSERT_TRUE(model.ok() && hardware.ok());
  constexpr int64_t kTokens = 2048; // of a prefill: kernels take about as long as the copies
  compiler::CompileRequest request;
  request.model = model->spec;
  request.hardware = *hardware;
  request.goal.deviceMemory = uint64_t{16} << 30;
  request.goal.batch = 1;
  request.goal.context = kTokens;
  request.policy.interval = 2;
  request.policy.offloadEmbedding = request.policy.offloadHead = model::AutoOnOff::Off;
  request.buckets = {.newTokens = {kTokens}, .sequences = {1}, .contexts = {kTokens}};
  const auto plan = compiler::compile(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto device = cuda::makeCudaDevice({.traceBy = by});
  ASSERT_TRUE(device.ok()) << device.status();
  const auto weights = model::syntheticWeights(1);
  auto runtime = core::Runtime::load(*plan, **device, {.trace = true}, weights.get(), {});
  ASSERT_TRUE(runtime.ok()) << runtime.status();

  std::vector<int32_t> ids(kTokens, 7), blocks(static_cast<size_t>(kTokens / plan->blockTokens));
  for (size_t i = 0; i < blocks.size(); ++i)
    blocks[i] = static_cast<int32_t>(i + 1);
  const core::SequenceRows rows{.tokens = ids, .blocks = blocks, .sample = true};
  const auto variant = (*runtime)->choose(kTokens, 1, kTokens);
  ASSERT_TRUE(variant.ok()) << variant.status();
  for (int i = 0; i < 3; ++i) { // the first ones load kernels and fill slots
    ASSERT_TRUE(core::writeMeta(plan->metaLayout, plan->blockTokens, {&rows, 1}, (*device)->meta()).ok());
    ASSERT_TRUE((*runtime)->launch(*variant).ok());
    ASSERT_TRUE((*runtime)->awaitTokens().ok());
  }
  ASSERT_TRUE((*device)->drain().ok());

  const plan::Schedule &schedule = plan->schedules[plan->variants[*variant].schedule];
  const auto times = (*device)->lastTimes();
  ASSERT_EQ(times.size(), schedule.steps.size());
  for (uint32_t step = 0; step < schedule.steps.size(); ++step) {
    const bool kernel = schedule.steps[step].lane == plan::Lane::Compute;
    (kernel ? measured.kernels : measured.copies).push_back({times[step].startNs, times[step].endNs});
    if (!kernel)
      measured.copySteps.push_back(step);
  }
  const auto channels = cuda::copyChannels(**device);
  EXPECT_EQ(channels.ok(), by == cuda::TraceBy::Cupti) << channels.status();
  if (channels.ok())
    measured.channels = *channels;
}

void expectOverlap(const Measured &measured) {
  const int64_t kernels = length(measured.kernels), copies = length(measured.copies),
                both = common(measured.kernels, measured.copies);
  testing::Test::RecordProperty("kernels_us", std::to_string(kernels / 1000));
  testing::Test::RecordProperty("copies_us", std::to_string(copies / 1000));
  testing::Test::RecordProperty("both_us", std::to_string(both / 1000));
  // One behind the other would have none in common.
  EXPECT_GT(both, std::min(kernels, copies) / 2);
}

TEST(Overlap, StampsSeeCopiesBesideKernels) {
  Measured measured;
  ASSERT_NO_FATAL_FAILURE(measure(cuda::TraceBy::Stamps, measured));
  expectOverlap(measured);
}

// Needs CUPTI beside CUDA's other libraries; without stamps in between, this is the graph that serves.
TEST(Overlap, CuptiSeesCopiesOnCopyEnginesBesideKernels) {
  Measured measured;
  ASSERT_NO_FATAL_FAILURE(measure(cuda::TraceBy::Cupti, measured));
  expectOverlap(measured);
  std::vector<uint32_t> steps;
  for (const cuda::CopyChannel &copy : measured.channels) {
    EXPECT_EQ(copy.type, cuda::ChannelType::AsyncCopy)
        << "step " << copy.step << ", " << copy.bytes << " bytes, channel " << copy.channel;
    steps.push_back(copy.step);
  }
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  EXPECT_EQ(steps, measured.copySteps); // each has its record
  EXPECT_FALSE(steps.empty());
}

} // namespace
} // namespace headrace
