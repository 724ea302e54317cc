// SPDX-License-Identifier: Apache-2.0
//
// Rows that the CPU attends for, by the CUDA device itself on the stand-in of CUDA's runtime: by either builder, by any
// number of threads, with two iterations in flight, where a callback fails, and while the threads are busy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <future>
#include <mutex>
#include <vector>

#include "runtime/core/MetaWriter.h"
#include "runtime/core/Runtime.h"
#include "runtime/cuda/CudaDevice.h"
#include "runtime/model/ModelSpec.h"
#include "tests/support/TinyPlan.h"
#include "tests/unit/cuda/CpuPlan.h"
#include "tests/unit/cuda/stand_in/StandIn.h"

namespace headrace::cuda {
namespace {

std::unique_ptr<core::Device> deviceWith(const CudaOptions &options) {
  EXPECT_EQ(::setenv("HEADRACE_CUDA_LIBRARIES", HEADRACE_STAND_IN_LIBRARIES, 1), 0);
  auto made = makeCudaDevice(options);
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *std::move(made) : nullptr;
}

CudaOptions optionsWith(bool capture, int threads) {
  CudaOptions options;
  options.capture = capture;
  options.compare = true; // what CUDA has of a graph is what was recorded, host nodes too
  options.cpu.threads = threads;
  options.cpu.unitNs = 0;
  return options;
}

TEST(CpuLaneDevice, BothBuildersAndAnyThreadsGiveTheSameBits) {
  for (const bool narrow : {false, true}) {
    const model::ModelSpec spec = narrow ? core::tinyOpt(2) : core::tinyLlama(2);
    const plan::Plan alone = planOnCpu(spec), away = planOnCpu(spec, "weights=1-8 slots=2 wrap");
    const Replies expected = replies(*deviceWith(optionsWith(false, 1)), alone, true);
    ASSERT_EQ(expected.tokens.size(), 4u);
    for (const bool capture : {false, true})
      for (const int threads : {1, 2, 4}) {
        SCOPED_TRACE(testing::Message() << spec.name << (capture ? ", capture" : ", explicit") << ", threads "
                                        << threads);
        const auto device = deviceWith(optionsWith(capture, threads));
        EXPECT_EQ(replies(*device, threads == 2 ? alone : away, true), expected);
        EXPECT_EQ(device->threads(), threads);
        EXPECT_EQ(replies(*device, away, false).tokens, expected.tokens); // two in flight
      }
    EXPECT_EQ(replies(*deviceWith(optionsWith(true, 2)), planOnCpu(spec, "", 2), false).tokens, expected.tokens);
  }
}

TEST(CpuLaneDevice, StepsAreMeasured) {
  const plan::Plan plan = planOnCpu(core::tinyLlama(2));
  CudaOptions options = optionsWith(false, 2);
  options.traceBy = TraceBy::Stamps;
  const auto device = deviceWith(options);
  EXPECT_EQ(replies(*device, plan, true, /*trace=*/true), replies(*deviceWith(optionsWith(true, 1)), plan, true));
  const plan::Schedule &schedule = plan.schedules[plan.variants[decoding(plan)].schedule];
  const absl::Span<const core::StepTime> times = device->lastTimes(); // the last one decodes
  ASSERT_EQ(times.size(), schedule.steps.size());
  for (size_t i = 0; i < times.size(); ++i)
    if (schedule.steps[i].lane == plan::Lane::Cpu) {
      EXPECT_GT(times[i].endNs, times[i].startNs);
    }
}

TEST(CpuLaneDevice, APlanWithoutStepsOfTheCpusHasNoThreads) {
  const auto device = deviceWith(optionsWith(false, 4));
  EXPECT_EQ(device->threads(), 1);
  const plan::Plan plan = core::tinyPlan({.kind = model::DeviceKind::Cuda});
  ASSERT_TRUE(device->open(plan, {}).ok());
  EXPECT_EQ(device->threads(), 1);
}

// One sequence of each of two mini-batches, at its 40th token and at its first, in blocks of 4: behind the arrays of
// both tables of ten words and of one, in one run, whoever builds the graphs.
TEST(CpuLaneDevice, IterationDataOfMiniBatchesIsOneRun) {
  const plan::Plan plan = planOnCpu(core::tinyLlama(2), "", 2);
  for (const bool capture : {false, true}) {
    const auto device = deviceWith(optionsWith(capture, 1));
    const auto weights = model::syntheticWeights(1);
    const auto runtime = core::Runtime::load(plan, *device, {}, weights.get(), {});
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    const std::vector<int32_t> token = {5}, blocks = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    const core::SequenceRows late{.tokens = token, .firstPosition = 39, .blocks = blocks, .sample = true},
        early{.tokens = token, .blocks = blocks, .sample = true};
    const std::array<absl::Span<const core::SequenceRows>, 2> both = {absl::MakeConstSpan(&late, 1),
                                                                      absl::MakeConstSpan(&early, 1)};
    ASSERT_TRUE(core::writeMetas(plan.metaLayout, plan.blockTokens, both, device->meta()).ok());
    ASSERT_FALSE(stand_in::heal()); // calls are counted anew
    ASSERT_TRUE((*runtime)->launch(decoding(plan)).ok());
    EXPECT_EQ(stand_in::lastCopyBytes(), 2 * kernels::metaFixedBytes(plan.metaLayout) + 4 * (10 + 1));
    const auto calls = stand_in::calls();
    EXPECT_EQ(calls.at("cudaMemcpyAsync"), 1u);
    EXPECT_FALSE(calls.contains("cudaMemcpy2DAsync"));
    ASSERT_TRUE((*runtime)->awaitTokens().ok());
  }
}

// A sequence that decodes, one token.
class OneRow {
public:
  OneRow(const plan::Plan &plan, const CudaOptions &options) : plan_(plan), device_(deviceWith(options)) { load(); }

  void load() {
    runtime_.reset();
    auto runtime = core::Runtime::load(plan_, *device_, {}, model::syntheticWeights(1).get(), {});
    EXPECT_TRUE(runtime.ok()) << runtime.status();
    if (runtime.ok())
      runtime_ = *std::move(runtime);
  }
  absl::Status launch() {
    const int32_t token = 5, block = 1;
    const core::SequenceRows rows{.tokens = {&token, 1}, .blocks = {&block, 1}, .sample = true};
    if (absl::Status status = core::writeMeta(plan_.metaLayout, plan_.blockTokens, {&rows, 1}, device_->meta());
        !status.ok())
      return status;
    return runtime_->launch(decoding(plan_));
  }
  absl::Status await() { return runtime_->awaitTokens().status(); }
  core::Device &device() { return *device_; }
  void destroy() {
    runtime_.reset();
    device_.reset();
  }

private:
  const plan::Plan &plan_;
  std::unique_ptr<core::Device> device_;
  std::unique_ptr<core::Runtime> runtime_;
};

// An append that spoils what the launch's rows are when its time has come.
std::atomic<int> beforeSpoilt{0};
void appendOrSpoil(const void *args) {
  kernels::hostKernel(kernels::Op::Append)(args);
  if (beforeSpoilt.fetch_sub(1) == 1)
    const_cast<kernels::IterationMeta *>(static_cast<const kernels::AppendArgs *>(args)->meta)->numTokens = 1000;
}
kernels::HostKernel spoiling(kernels::Op op) {
  return op == kernels::Op::Append ? kernels::wholeKernel<appendOrSpoil>() : kernels::hostKernel(op);
}

TEST(CpuLaneDevice, ACallbackThatFailsMakesItsLaunchFailByNameAndLaterOnesAreRefused) {
  const plan::Plan plan = planOnCpu(core::tinyLlama(2));
  for (const bool capture : {false, true}) {
    CudaOptions options = optionsWith(capture, 2);
    options.cpu.kernelOf = spoiling;
    beforeSpoilt = 0;
    OneRow row(plan, options);
    ASSERT_EQ(row.launch(), absl::OkStatus());
    ASSERT_EQ(row.await(), absl::OkStatus());
    stand_in::holdGraphs();
    beforeSpoilt = 2; // of the launch's two appends the second
    ASSERT_EQ(row.launch(), absl::OkStatus());
    ASSERT_EQ(row.launch(), absl::OkStatus()); // in flight behind it
    stand_in::release();
    const absl::Status failed = row.await();
    EXPECT_EQ(failed.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(
        std::string(failed.message()),
        testing::ContainsRegex("variant [0-9]+ \\(.*\\), step [0-9]+ \\(attention\\): 1000 tokens of 1 sequences"));
    EXPECT_FALSE(row.await().ok()); // what is behind it has seen what it left
    EXPECT_EQ(row.launch(), failed);
    EXPECT_EQ(row.device().drain(), failed);
    beforeSpoilt = 0;
    row.load(); // opened anew
    EXPECT_EQ(row.launch(), absl::OkStatus());
    EXPECT_EQ(row.await(), absl::OkStatus());
  }
}

// Attention that goes on once it is let.
std::mutex gateMutex;
std::condition_variable gateChanged;
bool gateOpen = true, gateReached = false;
void setGate(bool open) {
  const std::lock_guard lock(gateMutex);
  gateOpen = open;
  if (!open)
    gateReached = false;
  gateChanged.notify_all();
}
void waitUntilBusy() {
  std::unique_lock lock(gateMutex);
  gateChanged.wait(lock, [] { return gateReached; });
}
void attendBehindGate(const void *args) {
  {
    std::unique_lock lock(gateMutex);
    gateReached = true;
    gateChanged.notify_all();
    gateChanged.wait(lock, [] { return gateOpen; });
  }
  kernels::hostKernel(kernels::Op::Attention)(args);
}
kernels::HostKernel gated(kernels::Op op) {
  return op == kernels::Op::Attention ? kernels::wholeKernel<attendBehindGate>() : kernels::hostKernel(op);
}
template <typename T> bool stillWaits(const std::future<T> &call) {
  return call.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout;
}

TEST(CpuLaneDevice, DrainAndDestructionWaitForThreadsThatAreBusy) {
  const plan::Plan plan = planOnCpu(core::tinyLlama(2));
  CudaOptions options = optionsWith(false, 3);
  options.cpu.kernelOf = gated;
  OneRow row(plan, options);
  setGate(false);
  ASSERT_EQ(row.launch(), absl::OkStatus());
  ASSERT_EQ(row.launch(), absl::OkStatus()); // two in flight
  waitUntilBusy();
  auto drained = std::async(std::launch::async, [&] { return row.device().drain(); });
  EXPECT_TRUE(stillWaits(drained));
  setGate(true);
  EXPECT_EQ(drained.get(), absl::OkStatus());
  EXPECT_EQ(row.await(), absl::OkStatus());
  EXPECT_EQ(row.await(), absl::OkStatus());
  setGate(false);
  ASSERT_EQ(row.launch(), absl::OkStatus());
  waitUntilBusy();
  auto destroyed = std::async(std::launch::async, [&] { row.destroy(); });
  EXPECT_TRUE(stillWaits(destroyed));
  setGate(true);
  destroyed.get();
}

} // namespace
} // namespace headrace::cuda
