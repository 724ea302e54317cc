// SPDX-License-Identifier: Apache-2.0
//
// What every group of devices must do. What a bus does to times is told exactly in tests/unit/sim and tests/unit/host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "runtime/core/DeviceGroup.h"
#include "runtime/core/MetaWriter.h"
#include "runtime/core/Runtime.h"
#include "tests/support/TinyPlan.h"
#ifdef HEADRACE_STAND_IN_TESTS // in the program of the stand-in of CUDA's runtime
#include "runtime/cuda/CudaGroup.h"
#include "tests/unit/cuda/stand_in/StandIn.h"
#else
#include "runtime/host/HostDevice.h"
#include "runtime/host/HostGroup.h"
#include "runtime/sim/SimDevice.h"
#include "runtime/sim/SimGroup.h"
#endif

namespace headrace::core {
namespace {

using testing::HasSubstr;

struct GroupUnderTest {
  const char *name;
  absl::StatusOr<std::unique_ptr<DeviceGroup>> (*make)(size_t devices, double busBandwidth);
  std::unique_ptr<Device> (*alone)();
  model::DeviceKind plansFor = model::DeviceKind::Host;
  bool pacesBus = true;
};
#ifdef HEADRACE_STAND_IN_TESTS
absl::StatusOr<std::unique_ptr<DeviceGroup>> cudaGroup(size_t devices, bool capture) {
  EXPECT_EQ(::setenv("HEADRACE_CUDA_LIBRARIES", HEADRACE_STAND_IN_LIBRARIES, 1), 0);
  stand_in::show(std::vector<stand_in::ShownGpu>(devices));
  std::vector<cuda::CudaOptions> options(devices, {.capture = capture, .compare = true});
  for (size_t i = 0; i < devices; ++i)
    options[i].index = static_cast<int>(i);
  return cuda::makeCudaGroup(options);
}
const GroupUnderTest kGroups[] = {
    {"cudaExplicit", [](size_t devices, double) { return cudaGroup(devices, false); },
     [] { return *cuda::makeCudaDevice({}); }, model::DeviceKind::Cuda, /*pacesBus=*/false},
    {"cudaCapture", [](size_t devices, double) { return cudaGroup(devices, true); },
     [] { return *cuda::makeCudaDevice({.capture = true}); }, model::DeviceKind::Cuda, /*pacesBus=*/false},
};
#else
const GroupUnderTest kGroups[] = {
    {"host",
     [](size_t devices, double bus) { return host::makeHostGroup(std::vector<host::HostOptions>(devices), bus); },
     [] { return host::makeHostDevice(); }},
    {"sim", [](size_t devices, double bus) { return sim::makeSimGroup(devices, {bus}); },
     [] { return sim::makeSimDevice(); }},
};
#endif

// One sequence that feeds each token back, the two iterations in flight that a device takes.
class Client {
public:
  Client(const plan::Plan &plan, Device &device, uint64_t seed) : device_(device), seed_(seed) {
    const auto weights = model::syntheticWeights(seed);
    auto runtime = Runtime::load(plan, device, {}, weights.get(), {});
    EXPECT_TRUE(runtime.ok()) << runtime.status();
    if (runtime.ok())
      runtime_ = *std::move(runtime);
  }
  void launch() {
    const int32_t first = 1, before = -1, blocks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    const SequenceRows rows{.tokens = {launched_ == 0 ? &first : &before, 1},
                            .firstPosition = static_cast<int32_t>(launched_),
                            .blocks = blocks,
                            .sample = true,
                            .seed = seed_};
    const plan::Plan &plan = runtime_->plan();
    ASSERT_TRUE(writeMeta(plan.metaLayout, plan.blockTokens, {&rows, 1}, device_.meta()).ok());
    const auto variant = runtime_->choose(1, 1, static_cast<int64_t>(launched_) + 1);
    ASSERT_TRUE(variant.ok()) << variant.status();
    const absl::Status status = runtime_->launch(*variant);
    ASSERT_TRUE(status.ok()) << status;
    ++launched_;
  }
  void read() {
    const auto tokens = runtime_->awaitTokens();
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    ASSERT_EQ(tokens->size(), 1u);
    tokens_.push_back(tokens->front());
  }
  uint64_t awaited() const { return tokens_.size() + 1; }
  uint64_t launched() const { return launched_; }
  const std::vector<int32_t> &tokens() const { return tokens_; }

private:
  Device &device_;
  const uint64_t seed_;
  std::unique_ptr<Runtime> runtime_;
  uint64_t launched_ = 0;
  std::vector<int32_t> tokens_;
};

constexpr uint64_t kIterations = 30;

class GroupConformance : public testing::TestWithParam<GroupUnderTest> {
protected:
  void group(size_t devices, double busBandwidth = 2e9) {
    auto made = GetParam().make(devices, busBandwidth);
    ASSERT_TRUE(made.ok()) << made.status();
    group_ = *std::move(made);
    ASSERT_EQ(group_->size(), devices);
  }
  // Serves whoever is ready until each has its tokens.
  void serve(std::vector<std::unique_ptr<Client>> &clients) {
    for (auto &client : clients) {
      client->launch();
      client->launch();
    }
    for (;;) {
      std::vector<uint64_t> awaited;
      for (auto &client : clients)
        awaited.push_back(client->tokens().size() < kIterations ? client->awaited() : 0);
      awaited.resize(group_->size());
      if (std::count(awaited.begin(), awaited.end(), 0u) == static_cast<std::ptrdiff_t>(awaited.size()))
        return;
      const auto ready = group_->waitAny(awaited, kForeverNs);
      ASSERT_TRUE(ready.ok()) << ready.status();
      ASSERT_LT(*ready, clients.size());
      EXPECT_NE(awaited[*ready], 0u);
      EXPECT_LE(group_->device(*ready).tokensVisibleNs(awaited[*ready]), group_->nowNs());
      clients[*ready]->read();
      if (clients[*ready]->launched() < kIterations)
        clients[*ready]->launch();
    }
  }

  // Of models of different depth, placements and states.
  static plan::Plan planOf(TinyPlanOptions options) {
    options.kind = GetParam().plansFor;
    plan::Plan plan = tinyPlan(options);
    if (options.kind == model::DeviceKind::Cuda) // products there are of one type
      plan.kvEncoding = plan.activationDtype = options.spec.dtype;
    return plan;
  }
  std::vector<plan::Plan> plans_ = {planOf({.spec = tinyLlama(4), .offloaded = {1, 3}, .wrap = true}),
                                    planOf({.spec = tinyLlama(3), .offloaded = {0, 1, 2}, .slots = 1}),
                                    planOf({.spec = tinyOpt(2)}), planOf({.spec = tinyOpt(5), .offloaded = {4}})};
  std::unique_ptr<DeviceGroup> group_;
};

TEST_P(GroupConformance, DevicesOfDifferentPlansGiveTheTokensThatEachGivesAlone) {
  group(plans_.size(), 0.3e9); // less than one link has
  std::vector<std::unique_ptr<Client>> together;
  for (size_t i = 0; i < plans_.size(); ++i)
    together.push_back(std::make_unique<Client>(plans_[i], group_->device(i), i));
  serve(together);
  for (size_t i = 0; i < plans_.size(); ++i) {
    const auto device = GetParam().alone();
    Client alone(plans_[i], *device, i);
    for (uint64_t n = 0; n < kIterations; ++n) {
      alone.launch();
      alone.read();
    }
    EXPECT_EQ(together[i]->tokens(), alone.tokens()) << i;
    ASSERT_TRUE(device->drain().ok()); // the last copies, too
    ASSERT_TRUE(group_->device(i).drain().ok());
    EXPECT_EQ(group_->device(i).counters().h2dBytes, device->counters().h2dBytes) << i;
  }
}

TEST_P(GroupConformance, AllHaveOneClockAndATimeIsMet) {
  group(2);
  Client client(plans_[0], group_->device(0), 1);
  const int64_t until = group_->nowNs() + 1000;
  EXPECT_EQ(*group_->waitAny({0, 0}, until), 2u);
  EXPECT_GE(group_->nowNs(), until);
  EXPECT_GE(group_->device(1).nowNs(), until);
  client.launch();
  EXPECT_EQ(*group_->waitAny({1, 0}, kForeverNs), 0u);
  EXPECT_EQ(*group_->waitAny({1, 0}, 0), 0u); // and again, without waiting
  ASSERT_TRUE(group_->device(0).drain().ok());
}

TEST_P(GroupConformance, OfSeveralWhoseTokensAreThereTheFirstToHaveHadThem) {
  group(2);
  Client first(plans_[2], group_->device(0), 1), second(plans_[3], group_->device(1), 2);
  second.launch();
  EXPECT_EQ(*group_->waitAny({0, 1}, kForeverNs), 1u);
  first.launch();
  ASSERT_TRUE(group_->device(0).drain().ok());
  ASSERT_LT(group_->device(1).tokensVisibleNs(1), group_->device(0).tokensVisibleNs(1));
  EXPECT_EQ(*group_->waitAny({1, 1}, kForeverNs), 1u);
  ASSERT_TRUE(group_->device(1).drain().ok());
}

TEST_P(GroupConformance, WhatOneDeviceIsRefusedOrLosesLeavesTheOthersRunning) {
  group(3);
  std::vector<std::unique_ptr<Client>> clients;
  for (size_t i = 0; i < 2; ++i)
    clients.push_back(std::make_unique<Client>(plans_[i], group_->device(i), i));
  plan::Plan tooLarge = plans_[2];
  tooLarge.arenaBytes = uint64_t{1} << 55;
  clients[0]->launch();
  clients[1]->launch();
  clients[1]->launch();
  EXPECT_EQ(group_->device(2).open(tooLarge, {}).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(*group_->waitAny({1, 0, 0}, kForeverNs), 0u);
  // A device in the middle of its work is given another plan, and then one that it cannot hold.
  clients[0].reset();
  clients[0] = std::make_unique<Client>(plans_[3], group_->device(0), 3);
  clients[0]->launch();
  EXPECT_EQ(group_->device(0).open(tooLarge, {}).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(*group_->waitAny({0, 2, 0}, kForeverNs), 1u);
  clients[1]->read();
  clients[1]->read();
  for (int n = 0; n < 5; ++n) {
    clients[1]->launch();
    clients[1]->read();
  }
  ASSERT_TRUE(group_->device(1).drain().ok());
}

TEST_P(GroupConformance, TheBusMayChangeInMidCopy) {
  if (!GetParam().pacesBus) {
    group(2);
    EXPECT_EQ(group_->setBusBandwidth(1e9).code(), absl::StatusCode::kUnimplemented);
    EXPECT_EQ(group_->sampleBusBandwidth(), 0);
    return;
  }
  group(2, 1e9);
  std::vector<std::unique_ptr<Client>> clients;
  for (size_t i = 0; i < 2; ++i)
    clients.push_back(std::make_unique<Client>(plans_[i], group_->device(i), i));
  for (int n = 0; n < 20; ++n) {
    for (auto &client : clients)
      client->launch();
    ASSERT_TRUE(group_->setBusBandwidth(n % 2 == 0 ? 0.2e9 : 2e9).ok());
    for (auto &client : clients)
      client->read();
  }
  EXPECT_GT(group_->sampleBusBandwidth(), 0);
  EXPECT_LT(group_->sampleBusBandwidth(), 2.1e9);
}

TEST_P(GroupConformance, RefusesMisuseByName) {
  EXPECT_THAT(GetParam().make(0, 1e9).status().message(), HasSubstr("no devices"));
  if (GetParam().pacesBus) {
    for (const double bandwidth : {0.0, -1e9, std::nan("")})
      EXPECT_THAT(GetParam().make(2, bandwidth).status().message(), HasSubstr("bus bandwidth"));
  }
  group(2);
  EXPECT_EQ(group_->waitAny({1, 0}, kForeverNs).status().code(), absl::StatusCode::kFailedPrecondition); // not open
  Client client(plans_[0], group_->device(0), 1);
  EXPECT_THAT(group_->waitAny({1}, 5).status().message(), HasSubstr("waiting for 1 devices, the group has 2"));
  EXPECT_THAT(group_->waitAny({0, 0}, kForeverNs).status().message(), HasSubstr("no device and no time"));
  EXPECT_THAT(group_->waitAny({1, 0}, 5).status().message(), HasSubstr("iteration 1: 0 were launched"));
  for (int n = 0; n < 3; ++n)
    client.launch();
  EXPECT_EQ(group_->waitAny({1, 0}, 5).status().code(), absl::StatusCode::kOutOfRange);
  for (const double bandwidth : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan("")})
    EXPECT_EQ(group_->setBusBandwidth(bandwidth).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(group_->device(0).drain().ok());
}

INSTANTIATE_TEST_SUITE_P(Groups, GroupConformance, testing::ValuesIn(kGroups),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace
} // namespace headrace::core
