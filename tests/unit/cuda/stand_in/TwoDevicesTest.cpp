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

// What the tests above go by: with the other GPU as the thread's no handle can be used, and none is given back.
TEST(StandInDevices, RefuseWhatIsAnotherOnes) {
  const stand_in::Held before = stand_in::held();
  stand_in::show({{}, {}});
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  cudaGraphNode_t node = nullptr;
  void *memory = nullptr, *host = nullptr, *everybodys = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&memory, 64), cudaSuccess);
  ASSERT_EQ(cudaHostAlloc(&host, 64, cudaHostAllocMapped), cudaSuccess);
  ASSERT_EQ(cudaHostAlloc(&everybodys, 64, cudaHostAllocPortable), cudaSuccess);
  ASSERT_EQ(cudaGraphCreate(&graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphAddMemcpyNode1D(&node, graph, nullptr, 0, memory, host, 64, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, stream), cudaSuccess);

  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  cudaStream_t own = nullptr;
  cudaEvent_t ownEvent = nullptr;
  void *ownMemory = nullptr;
  cudaGraphExec_t none = nullptr;
  float milliseconds = 0;
  ASSERT_EQ(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&ownEvent), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&ownMemory, 64), cudaSuccess);
  for (const cudaError_t refused :
       {cudaStreamSynchronize(stream),
        cudaStreamQuery(stream),
        cudaStreamWaitEvent(stream, ownEvent, 0),
        cudaStreamWaitEvent(own, event, 0),
        cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
        cudaStreamDestroy(stream),
        cudaEventRecord(event, stream),
        cudaEventRecord(ownEvent, stream),
        cudaEventRecordWithFlags(event, own, cudaEventRecordExternal),
        cudaEventQuery(event),
        cudaEventSynchronize(event),
        cudaEventElapsedTime(&milliseconds, ownEvent, event),
        cudaEventDestroy(event),
        cudaGraphInstantiate(&none, graph, 0),
        cudaGraphUpload(exec, own),
        cudaGraphLaunch(exec, own),
        cudaGraphLaunch(exec, stream),
        cudaGraphExecDestroy(exec),
        cudaGraphExecMemcpyNodeSetParams1D(exec, node, memory, everybodys, 64, cudaMemcpyHostToDevice),
        cudaMemcpy(memory, host, 64, cudaMemcpyHostToDevice),
        cudaMemcpy(host, memory, 64, cudaMemcpyDeviceToHost),
        cudaMemcpyAsync(memory, everybodys, 64, cudaMemcpyHostToDevice, own),
        cudaMemset(memory, 0, 64),
        cudaFree(memory)})
    EXPECT_EQ(refused, cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaMemcpyAsync(ownMemory, host, 64, cudaMemcpyHostToDevice, own), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(ownMemory, everybodys, 64, cudaMemcpyHostToDevice, own), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(own), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(ownEvent), cudaSuccess);
  EXPECT_EQ(cudaFree(ownMemory), cudaSuccess);

  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  for (void *pinned : {host, everybodys})
    EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  (void)cudaGetLastError();
  EXPECT_EQ(stand_in::held(), before);
  stand_in::show({{}});
}

INSTANTIATE_TEST_SUITE_P(Builders, TwoDevices, testing::Bool(),
                         [](const testing::TestParamInfo<bool> &info) { return info.param ? "Capture" : "Explicit"; });

} // namespace
} // namespace headrace::cuda
