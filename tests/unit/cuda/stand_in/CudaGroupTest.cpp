// SPDX-License-Identifier: Apache-2.0
//
// A group of CUDA devices, on the stand-in of CUDA's runtime: what one that fails is called and whom it leaves alone,
// in which order they may go, and what is refused. What all groups do is in tests/conformance, as are stages.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "runtime/core/MetaWriter.h"
#include "runtime/core/Runtime.h"
#include "runtime/cuda/CudaGroup.h"
#include "tests/unit/cuda/Generate.h"
#include "tests/unit/cuda/stand_in/StandIn.h"

namespace headrace::cuda {
namespace {

using core::kForeverNs;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

// One sequence that decodes, a launch at a time.
class Client {
public:
  Client(const plan::Plan &plan, core::Device &device) : plan_(plan), device_(device) {
    auto runtime = core::Runtime::load(plan, device, {}, model::syntheticWeights(7).get(), {});
    EXPECT_TRUE(runtime.ok()) << runtime.status();
    if (runtime.ok())
      runtime_ = *std::move(runtime);
  }
  absl::Status launch() {
    const int32_t token = 1, block = 1;
    const core::SequenceRows rows{.tokens = {&token, 1}, .blocks = {&block, 1}, .sample = true};
    if (absl::Status status = core::writeMeta(plan_.metaLayout, plan_.blockTokens, {&rows, 1}, device_.meta());
        !status.ok())
      return status;
    return runtime_->launch(0);
  }
  absl::StatusOr<int32_t> read() {
    const auto tokens = runtime_->awaitTokens();
    return tokens.ok() ? absl::StatusOr<int32_t>(tokens->front()) : tokens.status();
  }
  core::Runtime &runtime() { return *runtime_; }

private:
  const plan::Plan &plan_;
  core::Device &device_;
  std::unique_ptr<core::Runtime> runtime_;
};

class CudaGroup : public testing::TestWithParam<bool> {
protected:
  void SetUp() override {
    ASSERT_EQ(::setenv("HEADRACE_CUDA_LIBRARIES", HEADRACE_STAND_IN_LIBRARIES, 1), 0);
    stand_in::show({{.name = "first"}, {.name = "second"}});
    plans_.push_back(planFor(model::DeviceKind::Cuda, {.spec = core::tinyLlama(2), .offloaded = {1}, .wrap = true}));
    plans_.push_back(planFor(model::DeviceKind::Cuda, {.spec = core::tinyOpt(2), .offloaded = {0}}));
    auto group = makeCudaGroup(std::vector<CudaOptions>{options(0), options(1)});
    ASSERT_TRUE(group.ok()) << group.status();
    group_ = *std::move(group);
    for (size_t i = 0; i < 2; ++i)
      clients_.push_back(std::make_unique<Client>(plans_[i], group_->device(i)));
  }
  void TearDown() override {
    stand_in::release();
    clients_.clear();
    group_.reset();
    stand_in::heal();
    stand_in::show({{}});
    EXPECT_EQ(stand_in::held(), before_);
    EXPECT_FALSE(stand_in::errorLeft());
  }
  CudaOptions options(int gpu) {
    return {.index = gpu, .capture = GetParam(), .compare = true, .notice = [this, gpu](const std::string &notice) {
              said_.push_back(std::to_string(gpu) + ": " + notice);
            }};
  }

  const stand_in::Held before_ = stand_in::held();
  std::vector<std::string> said_;
  std::vector<plan::Plan> plans_;
  std::unique_ptr<core::DeviceGroup> group_;
  std::vector<std::unique_ptr<Client>> clients_;
};

TEST_P(CudaGroup, OfOneThatFailsTheGpuIsNamedAndTheOtherGoesOn) {
  std::vector<int32_t> wanted;
  for (int n = 0; n < 2; ++n) {
    ASSERT_TRUE(clients_[0]->launch().ok());
    wanted.push_back(*clients_[0]->read());
  }
  stand_in::hold();
  ASSERT_TRUE(clients_[0]->launch().ok());
  ASSERT_TRUE(clients_[1]->launch().ok());
  stand_in::fail({.call = "cudaStreamQuery", .sticky = true, .device = 1});
  const absl::Status failed = group_->waitAny({3, 1}, kForeverNs).status();
  EXPECT_THAT(std::string(failed.message()),
              AllOf(StartsWith("GPU 1: waiting for the tokens of iteration 1: cudaStreamQuery: "),
                    HasSubstr("cudaErrorIllegalAddress")));
  stand_in::release();
  ASSERT_EQ(*group_->waitAny({3, 0}, kForeverNs), 0u);
  std::vector<int32_t> found = {*clients_[0]->read()};
  ASSERT_TRUE(clients_[0]->launch().ok());
  EXPECT_EQ(*group_->waitAny({4, 0}, kForeverNs), 0u);
  found.push_back(*clients_[0]->read());
  EXPECT_EQ(found, wanted);
  // Tokens that are there come before an error, and the error stays.
  EXPECT_EQ(*group_->waitAny({4, 1}, kForeverNs), 0u);
  EXPECT_EQ(group_->waitAny({0, 1}, kForeverNs).status(), failed);
  EXPECT_FALSE(clients_[1]->launch().ok());
}

// A launch that its GPU never gets leaves the other's alone.
TEST_P(CudaGroup, AFailedLaunchIsItsDevicesOwn) {
  stand_in::fail({.call = "cudaGraphLaunch", .device = 0});
  EXPECT_THAT(std::string(clients_[0]->launch().message()), HasSubstr("cudaGraphLaunch: "));
  ASSERT_TRUE(clients_[1]->launch().ok());
  EXPECT_EQ(*group_->waitAny({0, 1}, kForeverNs), 1u);
  EXPECT_TRUE(clients_[1]->read().ok());
  EXPECT_THAT(std::string(group_->waitAny({1, 0}, kForeverNs).status().message()), StartsWith("GPU 0: "));
}

// With launches on their way, either first, on any thread, whichever GPU is the thread's.
TEST_P(CudaGroup, DevicesGoInAnyOrder) {
  for (const bool firstGoesFirst : {true, false})
    for (const int current : {0, 1}) {
      std::vector<std::unique_ptr<core::Device>> devices;
      std::vector<std::unique_ptr<Client>> clients;
      for (int i = 0; i < 2; ++i) {
        devices.push_back(*makeCudaDevice(options(i)));
        clients.push_back(std::make_unique<Client>(plans_[static_cast<size_t>(i)], *devices.back()));
        ASSERT_TRUE(clients.back()->launch().ok());
      }
      std::async(std::launch::async, [&] {
        for (const size_t i : firstGoesFirst ? std::vector<size_t>{0, 1} : std::vector<size_t>{1, 0}) {
          ASSERT_EQ(cudaSetDevice(current), cudaSuccess);
          clients[i].reset();
          ASSERT_EQ(cudaSetDevice(current), cudaSuccess);
          devices[i].reset();
        }
      }).get();
    }
  for (int i = 0; i < 2; ++i)
    ASSERT_TRUE(clients_[static_cast<size_t>(i)]->launch().ok());
  std::swap(clients_[0], clients_[1]); // the later one goes first
  clients_.clear();
  std::async(std::launch::async, [this] { group_.reset(); }).get();
}

// Graphs that outlive their device are given back on its GPU.
TEST_P(CudaGroup, AGraphMayGoLast) {
  auto device = makeCudaDevice(options(1));
  ASSERT_TRUE(device.ok()) << device.status();
  ASSERT_TRUE((*device)->open(plans_[1], {.trace = true}).ok());
  auto graph = (*device)->build({});
  ASSERT_TRUE(graph.ok()) << graph.status();
  device->reset();
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  graph->reset();
}

TEST_P(CudaGroup, OneThatIsWaitedForTooLongIsNamedOnce) {
  plans_[1].variants[0].predictedNs = 1'000'000; // 30 times as long is less than the least, a quarter of a second
  clients_[1].reset();
  clients_[1] = std::make_unique<Client>(plans_[1], group_->device(1));
  stand_in::hold();
  ASSERT_TRUE(clients_[1]->launch().ok());
  for (int n = 0; n < 2; ++n)
    EXPECT_EQ(*group_->waitAny({0, 1}, group_->nowNs() + 300'000'000), 2u);
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_THAT(said_.front(), StartsWith("1: cuda device: iteration 1 is waited for since 250 ms"));
}

// HEADRACE_HOST_MEMORY is all that there is: the second slab has what the first leaves.
TEST_P(CudaGroup, StatedHostMemoryIsOfAllDevicesTogether) {
  const uint64_t each = std::max(plans_[0].hostBytes, plans_[1].hostBytes) + 8192; // whole pages, and their tables
  const auto openWith = [&](uint64_t bytes) {
    clients_.clear();
    auto group = makeCudaGroup(std::vector<CudaOptions>{options(0), options(1)});
    group_ = *std::move(group);
    EXPECT_EQ(::setenv("HEADRACE_HOST_MEMORY", (std::to_string(bytes) + "B").c_str(), 1), 0);
    absl::Status first = group_->device(0).open(plans_[0], {}), second = group_->device(1).open(plans_[1], {});
    EXPECT_TRUE(first.ok()) << first;
    EXPECT_EQ(::unsetenv("HEADRACE_HOST_MEMORY"), 0);
    return second;
  };
  EXPECT_TRUE(openWith(2 * each).ok());
  const absl::Status refused = openWith(each);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("host slab: the plan pins "));
}

TEST_P(CudaGroup, RefusesByName) {
  EXPECT_EQ(std::string(makeCudaGroup({}).status().message()), "cuda group: no devices");
  const absl::Status twice = makeCudaGroup(std::vector<CudaOptions>{options(1), options(1)}).status();
  EXPECT_EQ(twice.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(twice.message()), "cuda group: GPU 1 twice: expected another GPU for each device");
  const absl::Status none = makeCudaGroup(std::vector<CudaOptions>{options(0), options(2)}).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(none.message()), HasSubstr("no GPU 2: there are 2, counted from 0"));
  EXPECT_EQ(group_->setBusBandwidth(1e9).code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(group_->setBusBandwidth(1e9).message()), HasSubstr("its bandwidth cannot be set"));
  EXPECT_EQ(group_->sampleBusBandwidth(), 0);
  EXPECT_THAT(std::string(group_->device(0).open(plans_[0], {.linkBandwidth = 1e9}).message()),
              HasSubstr("copies run at the link's speed"));
}

INSTANTIATE_TEST_SUITE_P(Builders, CudaGroup, testing::Bool(),
                         [](const testing::TestParamInfo<bool> &info) { return info.param ? "Capture" : "Explicit"; });

TEST(CudaDeviceIndices, AreTheFirstOnesOrAList) {
  using testing::ElementsAre;
  EXPECT_THAT(*deviceIndices("cuda", 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(*deviceIndices("cuda:2,0", 2), ElementsAre(2, 0));
  EXPECT_THAT(*deviceIndices("cuda:1", 1), ElementsAre(1));
  for (const char *name : {"cuda:1", "cuda:0,1,2", "cuda:", "cuda:0,", "cuda:0,x", "cuda:-1,0", "host"})
    EXPECT_EQ(std::string(deviceIndices(name, 2).status().message()),
              std::string("\"") + name + "\": expected cuda, or cuda:N,M,... with 2 GPUs, counted from 0");
}

} // namespace
} // namespace headrace::cuda
