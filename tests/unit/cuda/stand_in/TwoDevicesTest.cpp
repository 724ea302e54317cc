// SPDX-License-Identifier: Apache-2.0
//
// Two GPUs in one process, and calls from any thread: every call is made on the device's own GPU. The stand-in refuses
// work that is put on another one.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <future>

#include "runtime/core/MetaWriter.h"
#include "runtime/cuda/CudaDevice.h"
#include "tests/unit/cuda/Generate.h"
#include "tests/unit/cuda/stand_in/StandIn.h"

namespace headrace::cuda {
namespace {

class TwoDevices : public testing::TestWithParam<bool> {
protected:
  void SetUp() override {
    ASSERT_EQ(::setenv("HEADRACE_CUDA_LIBRARIES", HEADRACE_STAND_IN_LIBRARIES, 1), 0);
    stand_in::show({{.name = "first"}, {.name = "second"}});
    // Other models, so that one's results are not the other's.
    plans_.push_back(planFor(model::DeviceKind::Cuda, {.spec = core::tinyLlama(2), .offloaded = {1}, .wrap = true}));
    plans_.push_back(planFor(model::DeviceKind::Cuda, {.spec = core::tinyOpt(2), .offloaded = {0}}));
    for (int i = 0; i < 2; ++i)
      devices_.push_back(make(i));
  }
  void TearDown() override {
    devices_.clear();
    stand_in::show({{}});
    EXPECT_EQ(stand_in::held(), before_);
  }

  static std::unique_ptr<core::Device> make(int index) {
    auto device = makeCudaDevice({.index = index, .capture = GetParam(), .compare = true});
    EXPECT_TRUE(device.ok()) << device.status();
    return *std::move(device);
  }
  static void expectSame(const Outcome &found, const Outcome &wanted) {
    EXPECT_EQ(found.tokens, wanted.tokens);
    EXPECT_TRUE(sameBits(found.logits, wanted.logits));
  }

  const stand_in::Held before_ = stand_in::held();
  std::vector<plan::Plan> plans_;
  std::vector<std::unique_ptr<core::Device>> devices_;
};

TEST_P(TwoDevices, SideBySideGiveTheirOwnResults) {
  std::vector<Outcome> alone;
  for (size_t i = 0; i < 2; ++i)
    alone.push_back(generate(*devices_[i], plans_[i]));
  ASSERT_NE(alone[0].tokens, alone[1].tokens);
  Generation first(*devices_[0], plans_[0]), second(*devices_[1], plans_[1]);
  for (int i = 0; i < kIterations; ++i) {
    first.next();
    second.next();
    for (const auto &device : devices_) { // copies beside, on both
      ASSERT_TRUE(device->reserveSwap(4096).ok());
      const auto ticket = device->copyBeside({{.toDevice = false, .device = 0, .swap = 0, .bytes = 64}});
      ASSERT_TRUE(ticket.ok()) << ticket.status();
      EXPECT_TRUE(device->copied(*ticket).ok());
      EXPECT_TRUE(device->awaitCopied(*ticket).ok());
    }
  }
  expectSame(first.end(), alone[0]);
  expectSame(second.end(), alone[1]);
}

// A thread of its own begins with GPU 0 as its.
TEST_P(TwoDevices, AreCalledFromAnyThread) {
  const Outcome here = generate(*devices_[1], plans_[1]);
  const Outcome there = std::async(std::launch::async, [this] { return generate(*devices_[1], plans_[1]); }).get();
  expectSame(there, here);
  { // each call by another thread than the one before
    Generation generation(*devices_[1], plans_[1]);
    for (int i = 0; i < kIterations; ++i)
      std::async(std::launch::async, [&] { generation.next(); }).get();
    expectSame(std::async(std::launch::async, [&] { return generation.end(); }).get(), here);
  }
  std::async(std::launch::async, [this] { devices_[1].reset(); }).get();
}

TEST_P(TwoDevices, EveryCallIsMadeOnTheDevicesOwn) {
  core::Device &device = *devices_[1];
  const auto onOther = [](const char *call, auto &&make) {
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    const absl::Status status = make();
    EXPECT_TRUE(status.ok()) << call << ": " << status;
    int current = 0;
    ASSERT_EQ(cudaGetDevice(&current), cudaSuccess);
    EXPECT_EQ(current, 1) << call;
  };
  std::vector<std::byte> bytes(64);
  std::unique_ptr<core::Graph> graph;
  onOther("open", [&] { return device.open(plans_[1], {}); });
  onOther("writeDevice", [&] { return device.writeDevice(0, bytes); });
  onOther("build", [&] {
    auto built = device.build({});
    graph = built.ok() ? *std::move(built) : nullptr;
    return graph == nullptr ? built.status() : absl::OkStatus();
  });
  onOther("upload", [&] { return device.upload(*graph); });
  onOther("meta", [&] {
    const int32_t token = 1, block = 1;
    const core::SequenceRows rows{.tokens = {&token, 1}, .blocks = {&block, 1}, .sample = true};
    return core::writeMeta(plans_[1].metaLayout, plans_[1].blockTokens, {&rows, 1}, device.meta());
  });
  onOther("launch", [&] { return device.launch(*graph); });
  onOther("awaitTokens", [&] { return device.awaitTokens(1).status(); });
  onOther("drain", [&] { return device.drain(); });
  onOther("readDevice", [&] { return device.readDevice(0, absl::MakeSpan(bytes)); });
  onOther("reserveSwap", [&] { return device.reserveSwap(4096); });
  onOther("copyBeside",
          [&] { return device.copyBeside({{.toDevice = false, .device = 0, .swap = 0, .bytes = 64}}).status(); });
  onOther("copied", [&] { return device.copied(1).status(); });
  onOther("awaitCopied", [&] { return device.awaitCopied(1); });
  graph.reset();
  onOther("closing", [&] { return devices_[1].reset(), absl::OkStatus(); });
}

INSTANTIATE_TEST_SUITE_P(Builders, TwoDevices, testing::Bool(),
                         [](const testing::TestParamInfo<bool> &info) { return info.param ? "Capture" : "Explicit"; });

} // namespace
} // namespace headrace::cuda
