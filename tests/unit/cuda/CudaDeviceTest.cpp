// SPDX-License-Identifier: Apache-2.0
//
// Plans on a GPU: the same tokens and logits, bit for bit, whoever built the graphs and wherever the weights live;
// close to the host's and to those of another library. Part of the program of tests that need a GPU.
#include "runtime/cuda/CudaDevice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/host/HostDevice.h"
#include "tests/support/LongRun.h"
#include "tests/unit/cuda/Generate.h"

namespace headrace::cuda {
namespace {

using core::tinyLlama;
using core::tinyOpt;
using core::TinyPlanOptions;
using testing::HasSubstr;

Outcome onGpu(const TinyPlanOptions &options, const CudaOptions &cuda = {}) {
  const auto device = makeCudaDevice(cuda);
  EXPECT_TRUE(device.ok()) << device.status();
  const plan::Plan plan = planFor(model::DeviceKind::Cuda, options);
  return device.ok() ? generate(**device, plan) : Outcome();
}

#ifdef HEADRACE_STAND_IN_TESTS
constexpr bool kEmulated = true; // seconds instead of milliseconds
#else
constexpr bool kEmulated = false;
#endif

TEST(CudaDevice, BitsDoNotDependOnTheBuilderOrOnWhereWeightsLive) {
  int number = 0; // of the case; where kernels are emulated every fifth is drawn, which is another one for each model
  for (const model::ModelSpec &spec : models()) {
    const Outcome resident = onGpu({.spec = spec});
    EXPECT_EQ(resident.tokens.size(), static_cast<size_t>(kIterations));
    for (bool capture : {false, true})
      for (bool wrap : {false, true})
        for (const std::vector<int64_t> &offloaded : std::vector<std::vector<int64_t>>{{}, {3}, {0, 1, 2, 3}}) {
          if (kEmulated && !longRun() && ++number % 5 != 0)
            continue;
          const Outcome other = onGpu({.spec = spec, .offloaded = offloaded, .wrap = wrap}, {.capture = capture});
          EXPECT_EQ(other.tokens, resident.tokens) << spec.name << ", " << offloaded.size() << " layers off";
          EXPECT_TRUE(sameBits(other.logits, resident.logits))
              << spec.name << ", " << offloaded.size() << " layers off, capture " << capture << ", wrap " << wrap;
        }
  }
}

TEST(CudaDevice, LogitsAreCloseToTheHosts) {
  for (model::ModelSpec spec : {tinyLlama(4), tinyOpt(4)}) {
    spec.dtype = model::DType::F32;
    const TinyPlanOptions options{.spec = spec, .offloaded = {1, 3}, .wrap = true};
    const auto host = host::makeHostDevice();
    const plan::Plan plan = planFor(model::DeviceKind::Host, options);
    const Outcome wanted = generate(*host, plan), found = onGpu(options);
    EXPECT_EQ(found.tokens, wanted.tokens) << spec.name;
    // Sums of at most 150 terms of order 1 in F32, through four layers.
    EXPECT_LT(largestDifference(found.logits, wanted.logits), 1e-3) << spec.name;
  }
}

TEST(CudaDevice, GemmExAgreesWithCublasLt) {
  for (const model::ModelSpec &spec : models()) {
    const Outcome lt = onGpu({.spec = spec, .offloaded = {2}}),
                  gemmEx = onGpu({.spec = spec, .offloaded = {2}}, {.gemmEx = true});
    // 16-bit roundings of activations of order 1, at other places where the library fuses.
    EXPECT_LT(largestDifference(lt.logits, gemmEx.logits), spec.dtype == model::DType::F32 ? 1e-3 : 0.25) << spec.name;
  }
}

TEST(CudaDevice, SaysWhatGraphsTook) {
  const auto device = makeCudaDevice({});
  ASSERT_TRUE(device.ok()) << device.status();
  const plan::Plan plan = planFor(model::DeviceKind::Cuda, {.spec = tinyLlama(2), .offloaded = {1}, .wrap = true});
  (void)generate(**device, plan);
  const auto costs = graphCosts(**device);
  ASSERT_TRUE(costs.ok()) << costs.status();
  EXPECT_EQ(costs->graphs, plan.variants.size() + plan.transitions.size());
  EXPECT_GE(costs->nodes, 2 * plan.schedules[0].steps.size());
  EXPECT_GT(costs->instantiateNs, 0);
  EXPECT_TRUE(costs->kernels.contains("attention_any_f32_f32") && costs->kernels.contains("sample"));
  EXPECT_THAT(costs->algorithms, HasSubstr("m 3 n 128 k 64 f32 -> f32: algorithm "));
}

TEST(CudaDevice, PlansForTheHostArePlainlyRefused) {
  const auto device = makeCudaDevice({});
  ASSERT_TRUE(device.ok()) << device.status();
  const plan::Plan plan = planFor(model::DeviceKind::Host, {});
  const absl::Status status = (*device)->open(plan, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("compile it for hardware of kind cuda"));
}

TEST(CudaDevice, PacingIsRefused) {
  const auto device = makeCudaDevice({});
  ASSERT_TRUE(device.ok()) << device.status();
  const plan::Plan plan = planFor(model::DeviceKind::Cuda, {});
  EXPECT_EQ((*device)->open(plan, {.linkBandwidth = 1e9}).code(), absl::StatusCode::kInvalidArgument);
}

TEST(CudaDevice, AGpuThatIsNotThereIsNamed) {
  const auto device = makeCudaDevice({.index = 1000});
  EXPECT_THAT(std::string(device.status().message()), HasSubstr("no GPU 1000: there are "));
}

} // namespace
} // namespace headrace::cuda
