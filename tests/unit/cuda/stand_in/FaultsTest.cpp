// SPDX-License-Identifier: Apache-2.0
//
// Every call of CUDA and of its libraries of products that the device makes fails once, and once for good, from making
// the device to closing it: the error names the call and what it was for, all that was taken is given back, and a new
// device runs.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/base/StatusMacros.h"
#include "runtime/core/MetaWriter.h"
#include "runtime/cuda/CudaDevice.h"
#include "tests/support/KvCopies.h"
#include "tests/support/LongRun.h"
#include "tests/unit/cuda/CpuPlan.h"
#include "tests/unit/cuda/Generate.h"
#include "tests/unit/cuda/stand_in/StandIn.h"

namespace headrace::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// The calls that are made to fail. A call that the device makes and that is not here fails the test.
const std::set<std::string> kCovered = {
    // making and opening it
    "cudaDriverGetVersion", "cudaGetDeviceCount", "cudaSetDevice", "cudaGetDeviceProperties", "cudaDeviceGetAttribute",
    "cudaMemGetInfo", "cudaMalloc", "cudaMemset", "cudaHostAlloc", "cudaHostGetDevicePointer", "cudaHostRegister",
    "cudaMemcpy", "cudaStreamCreateWithFlags", "cudaEventCreateWithFlags", "cudaEventCreate",
    // building graphs
    "cudaFuncGetAttributes", "cudaFuncSetAttribute", "cudaStreamBeginCapture", "cudaStreamBeginCaptureToGraph",
    "cudaStreamEndCapture", "cudaStreamGetCaptureInfo", "cudaLaunchKernel", "cudaEventRecordWithFlags",
    "cudaGraphCreate", "cudaGraphAddKernelNode", "cudaGraphAddMemcpyNode", "cudaGraphAddMemcpyNode1D",
    "cudaGraphAddEventRecordNode", "cudaGraphAddHostNode", "cudaLaunchHostFunc", "cudaGraphHostNodeGetParams",
    "cudaGraphGetNodes", "cudaGraphGetEdges", "cudaGraphNodeGetType", "cudaGraphKernelNodeGetParams",
    "cudaGraphMemcpyNodeGetParams", "cudaGraphInstantiate", "cudaGraphUpload",
    // launching and waiting
    "cudaGraphExecMemcpyNodeSetParams1D", "cudaMemcpyAsync", "cudaMemcpy2DAsync", "cudaGraphLaunch", "cudaEventRecord",
    "cudaEventSynchronize", "cudaEventQuery", "cudaEventElapsedTime", "cudaStreamWaitEvent", "cudaStreamSynchronize",
    "cudaStreamQuery",
    // closing
    "cudaFree", "cudaFreeHost", "cudaHostUnregister", "cudaStreamDestroy", "cudaEventDestroy", "cudaGraphDestroy",
    "cudaGraphExecDestroy",
    // products
    "cublasLtCreate", "cublasLtDestroy", "cublasLtMatmulDescCreate", "cublasLtMatmulDescDestroy",
    "cublasLtMatmulDescSetAttribute", "cublasLtMatrixLayoutCreate", "cublasLtMatrixLayoutDestroy",
    "cublasLtMatmulPreferenceCreate", "cublasLtMatmulPreferenceDestroy", "cublasLtMatmulPreferenceSetAttribute",
    "cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmulAlgoConfigGetAttribute", "cublasLtMatmul", "cublasCreate_v2",
    "cublasDestroy_v2", "cublasSetStream_v2", "cublasSetWorkspace_v2", "cublasGemmEx"};

// Whose failure ends nothing: they give something back, ask what can be done without, or look whether it is time.
const std::set<std::string> kDoneWithout = {"cudaFree",
                                            "cudaFreeHost",
                                            "cudaHostUnregister",
                                            "cudaStreamDestroy",
                                            "cudaEventDestroy",
                                            "cudaGraphDestroy",
                                            "cudaGraphExecDestroy",
                                            "cublasLtDestroy",
                                            "cublasLtMatmulDescDestroy",
                                            "cublasLtMatrixLayoutDestroy",
                                            "cublasLtMatmulPreferenceDestroy",
                                            "cublasDestroy_v2",
                                            "cudaDeviceGetAttribute", // the NUMA node
                                            "cudaMemGetInfo"};        // what graphs took

struct Case {
  const char *name;
  CudaOptions options;
  bool trace, interleaved;
  model::ModelSpec spec = core::tinyLlama(2);
  bool onCpu = false; // rows that decode are attended for
};
// Of a kernel that takes more than 48 KiB of shared memory.
model::ModelSpec largeHeads() {
  model::ModelSpec spec = core::tinyLlama(2);
  spec.dtype = model::DType::BF16;
  spec.headDim = 128;
  return spec;
}
const Case kCases[] = {
    {"Explicit", {.compare = true, .traceBy = TraceBy::Stamps}, true, false},
    {"ExplicitRows", {.gemmEx = true, .compare = true}, false, true},
    {"Capture", {.capture = true, .traceBy = TraceBy::Stamps}, true, false},
    {"CaptureRows", {.capture = true, .gemmEx = true}, false, true, largeHeads()},
    {"ExplicitOnCpu", {.compare = true, .cpu = {.threads = 2}}, false, false, core::tinyLlama(2), true},
    {"CaptureOnCpu", {.capture = true, .compare = true}, false, false, core::tinyLlama(2), true},
};

enum class Phase { Make, Open, Build, Launch, Wait, Beside, Close };
using CallsAt = std::map<Phase, std::map<std::string, uint64_t>>; // made until a phase's end

// A device from making to closing.
class Scenario {
public:
  explicit Scenario(const Case &of) : case_(of) {
    EXPECT_EQ(::setenv("HEADRACE_CUDA_LIBRARIES", HEADRACE_STAND_IN_LIBRARIES, 1), 0);
    if (case_.onCpu) {
      plan_ = planOnCpu(case_.spec);
      keys_ = {{false, decoding(plan_)}};
      return;
    }
    plan_ = planFor(model::DeviceKind::Cuda, {.spec = case_.spec, .offloaded = {1}});
    core::KvCopies copies{.interleaved = case_.interleaved};
    core::addKvCopies(plan_, copies);
  }

  absl::Status run(CallsAt *calls = nullptr) {
    absl::Status status;
    stand_in::forgetKernels();
    {
      std::vector<std::unique_ptr<core::Graph>> graphs;
      std::unique_ptr<core::Device> device;
      status = steps(device, graphs, calls);
      if (device != nullptr)
        (void)device->drain(); // before graphs go
      graphs.clear();
    }
    if (calls != nullptr)
      (*calls)[Phase::Close] = stand_in::calls();
    return status;
  }

private:
  absl::Status steps(std::unique_ptr<core::Device> &device, std::vector<std::unique_ptr<core::Graph>> &graphs,
                     CallsAt *calls) {
    const auto ended = [&](Phase phase) {
      if (calls != nullptr)
        (*calls)[phase] = stand_in::calls();
    };
    ASSIGN_OR_RETURN(made, makeCudaDevice(case_.options));
    device = std::move(made);
    ended(Phase::Make);
    RETURN_IF_ERROR(device->open(plan_, {.trace = case_.trace}));
    std::vector<std::byte> bytes(64);
    RETURN_IF_ERROR(device->writeDevice(0, bytes));
    ended(Phase::Open);
    for (const core::GraphKey &key : keys_) {
      ASSIGN_OR_RETURN(graph, device->build(key));
      RETURN_IF_ERROR(device->upload(*graph));
      graphs.push_back(std::move(graph));
    }
    ended(Phase::Build);
    for (int64_t iteration = 1; iteration <= 3; ++iteration) {
      const int32_t token = 1, block = 1;
      const core::SequenceRows rows{.tokens = {&token, 1}, .blocks = {&block, 1}, .sample = true};
      kernels::IterationMeta *const meta = device->meta();
      RETURN_IF_ERROR(core::writeMeta(plan_.metaLayout, plan_.blockTokens, {&rows, 1}, meta));
      RETURN_IF_ERROR(device->launch(*graphs[0], core::InUse{.kvBlocks = 4 + iteration, .rows = iteration % 2 + 1}));
    }
    ended(Phase::Launch);
    RETURN_IF_ERROR(device->awaitTokens(3).status());
    RETURN_IF_ERROR(device->drain());
    RETURN_IF_ERROR(device->readDevice(0, absl::MakeSpan(bytes)));
    ended(Phase::Wait);
    RETURN_IF_ERROR(device->reserveSwap(4096));
    ASSIGN_OR_RETURN(out, device->copyBeside({{.toDevice = false, .device = 0, .swap = 0, .bytes = 64}}));
    RETURN_IF_ERROR(device->copied(out).status());
    RETURN_IF_ERROR(device->awaitCopied(out));
    ASSIGN_OR_RETURN(in, device->copyBeside({{.toDevice = true, .device = 0, .swap = 0, .bytes = 64}}));
    RETURN_IF_ERROR(device->awaitCopied(in));
    ended(Phase::Beside);
    return absl::OkStatus();
  }

  const Case &case_;
  plan::Plan plan_;
  std::vector<core::GraphKey> keys_ = {{false, 0}, {true, 0}};
};

// Made while it is waited, so as often as it happens to.
bool polled(const std::string &call) { return call == "cudaStreamQuery"; }

struct Planned {
  std::string call;
  uint64_t nth = 1;
  bool sticky = false;
  auto operator<=>(const Planned &) const = default;
};
// Of each call and phase the first, once and for good, and the last; where there is time all.
std::set<Planned> faultsOf(const CallsAt &calls) {
  std::set<Planned> faults;
  std::map<std::string, uint64_t> before;
  for (const auto &[phase, made] : calls) {
    for (const auto &[call, count] : made)
      for (uint64_t first = before[call] + 1, nth = first; nth <= count; ++nth)
        if (nth == first || (!polled(call) && (nth == count || longRun()))) {
          faults.insert({call, nth, false});
          if (nth == first || longRun())
            faults.insert({call, nth, true});
        }
    before = made;
  }
  return faults;
}

class Faults : public testing::TestWithParam<Case> {
protected:
  void TearDown() override { stand_in::heal(); }
  void expectNothingHeld(const std::string &which) {
    EXPECT_EQ(stand_in::held(), before_) << which;
    EXPECT_FALSE(stand_in::errorLeft()) << which;
  }

  const stand_in::Held before_ = stand_in::held();
};

// "cublasCreate" of "cublasCreate_v2".
std::string nameOf(const std::string &call) { return call.substr(0, call.find("_v2")); }

TEST_P(Faults, OfEveryCallAreNamedAndLeaveNothing) {
  Scenario scenario(GetParam());
  stand_in::heal();
  CallsAt calls;
  const absl::Status whole = scenario.run(&calls);
  ASSERT_TRUE(whole.ok()) << whole;
  expectNothingHeld("without a fault");
  for (const auto &[call, nth, sticky] : faultsOf(calls)) {
    const std::string which = call + " " + std::to_string(nth) + (sticky ? ", sticky" : ", once");
    EXPECT_TRUE(kCovered.contains(call)) << call;
    stand_in::fail({.call = call, .nth = nth, .sticky = sticky});
    const absl::Status status = scenario.run();
    if (!stand_in::heal()) {
      EXPECT_TRUE(polled(call)) << which << " never came";
      continue;
    }
    const bool closing = nth > calls[Phase::Beside][call];
    EXPECT_TRUE(!status.ok() || closing || kDoneWithout.contains(call)) << which;
    if (!status.ok() && !(sticky && kDoneWithout.contains(call))) {
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr(": " + nameOf(call) + ": "), Not(StartsWith("cuda device: cuda"))))
          << which;
    }
    expectNothingHeld(which);
  }
  const absl::Status again = scenario.run();
  EXPECT_TRUE(again.ok()) << again;
}

TEST(FaultsCovered, AreOfEveryCallThatTheDeviceMakes) {
  std::set<std::string> made;
  for (const Case &one : kCases) {
    Scenario scenario(one);
    stand_in::heal();
    const absl::Status status = scenario.run();
    ASSERT_TRUE(status.ok()) << status;
    for (const auto &[call, count] : stand_in::calls())
      made.insert(call);
  }
  EXPECT_EQ(made, kCovered);
}

// What ends the process's context says what to do; what does not says nothing more.
TEST(FaultsAdvice, IsOfWhatCudaDoesNotRecoverFrom) {
  Scenario scenario(kCases[0]);
  for (const auto &[error, sticky, advice] :
       {std::tuple<cudaError_t, bool, const char *>{cudaErrorIllegalAddress, true,
                                                    "end the process and start it again"},
        {cudaErrorLaunchFailure, true, "end the process and start it again"},
        {cudaErrorECCUncorrectable, true, "an error that ECC cannot correct: end this process, look at `nvidia-smi -q"},
        {cudaErrorNvlinkUncorrectable, true, "look at `nvidia-smi nvlink -e`"},
        {cudaErrorMemoryAllocation, false, nullptr}}) {
    for (const char *call : {"cudaGraphLaunch", "cublasLtMatmul"}) {
      stand_in::fail({.call = call, .sticky = sticky, .error = error});
      const std::string message(scenario.run().message());
      EXPECT_TRUE(stand_in::heal());
      if (advice != nullptr) {
        EXPECT_THAT(message, HasSubstr(advice)) << call;
      } else {
        EXPECT_THAT(message, Not(HasSubstr(";"))) << call;
      }
    }
  }
}

class AfterAFault : public testing::Test {
protected:
  void SetUp() override {
    ASSERT_EQ(::setenv("HEADRACE_CUDA_LIBRARIES", HEADRACE_STAND_IN_LIBRARIES, 1), 0);
    stand_in::heal();
    plan_ = planFor(model::DeviceKind::Cuda, {.spec = core::tinyLlama(2)});
    auto made = makeCudaDevice({});
    ASSERT_TRUE(made.ok()) << made.status();
    device_ = *std::move(made);
    const absl::Status status = device_->open(plan_, {});
    ASSERT_TRUE(status.ok()) << status;
  }
  void TearDown() override {
    stand_in::release();
    stand_in::heal();
  }

  plan::Plan plan_;
  std::unique_ptr<core::Graph> graph_;
  std::unique_ptr<core::Device> device_;
};

// Its events are taken all together or not at all.
TEST_F(AfterAFault, SwapMemoryIsReservedAnew) {
  stand_in::fail({.call = "cudaEventCreateWithFlags", .nth = 10});
  EXPECT_FALSE(device_->reserveSwap(4096).ok());
  EXPECT_TRUE(device_->swapMemory().empty());
  EXPECT_TRUE(stand_in::heal());
  ASSERT_TRUE(device_->reserveSwap(4096).ok());
  for (int i = 0; i < 5; ++i) {
    const auto ticket = device_->copyBeside({{.toDevice = false, .device = 0, .swap = 0, .bytes = 64}});
    ASSERT_TRUE(ticket.ok()) << ticket.status();
    EXPECT_TRUE(device_->awaitCopied(*ticket).ok());
  }
}

// Graphs may be destroyed behind it.
TEST_F(AfterAFault, DrainWaitsForWhatRunsAllTheSame) {
  auto graph = device_->build({});
  ASSERT_TRUE(graph.ok()) << graph.status();
  graph_ = *std::move(graph);
  ASSERT_TRUE(device_->upload(*graph_).ok());
  const int32_t token = 1, block = 1;
  const core::SequenceRows rows{.tokens = {&token, 1}, .blocks = {&block, 1}, .sample = true};
  ASSERT_TRUE(core::writeMeta(plan_.metaLayout, plan_.blockTokens, {&rows, 1}, device_->meta()).ok());
  stand_in::holdGraphs();
  stand_in::fail({.call = "cudaEventRecord", .nth = 2}); // behind the graph
  EXPECT_FALSE(device_->launch(*graph_).ok());
  EXPECT_TRUE(stand_in::heal());
  auto drained = std::async(std::launch::async, [this] { return device_->drain(); });
  EXPECT_EQ(drained.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  stand_in::release();
  EXPECT_THAT(std::string(drained.get().message()), HasSubstr(": cudaEventRecord: "));
  EXPECT_FALSE(device_->launch(*graph_).ok());
  ASSERT_TRUE(device_->open(plan_, {}).ok()); // and can be used again
  EXPECT_TRUE(device_->build({}).ok());
}

INSTANTIATE_TEST_SUITE_P(Cases, Faults, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<Case> &info) { return info.param.name; });

} // namespace
} // namespace headrace::cuda
