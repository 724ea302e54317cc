// SPDX-License-Identifier: Apache-2.0
//
// Fleets of small models on one bus: plans with several placements as the compiler makes them, loaded on a group of
// devices, and requests that arrive at random.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "compiler/Compile.h"
#include "runtime/serve/fleet/Fleet.h"
#include "tests/support/StatedPlacements.h"
#include "tests/support/TinyPlan.h"

namespace headrace::serve {

// As many fleets as a test draws; `variable` of the environment: as many instead.
inline int fleetsToDraw(const char *variable, int most) {
  const char *asked = std::getenv(variable);
  return asked == nullptr ? most : std::atoi(asked);
}

class Draw {
public:
  explicit Draw(uint32_t seed) : random(seed) {}
  int pick(int a, int b) { return std::uniform_int_distribution<int>(a, b)(random); }
  bool coin() { return pick(0, 1) == 1; }
  std::mt19937 random;
};

// Fractions of a nanosecond dropped.
inline std::chrono::nanoseconds wholeNs(double ns) { return std::chrono::nanoseconds(static_cast<int64_t>(ns)); }

struct FleetPlanOptions {
  model::ModelSpec spec = core::tinyLlama(12);
  double linkBandwidth = 1e9; // a layer's copy takes about three times its decode step
  std::vector<int64_t> intervals = {2, 3, 4, 6, 12};
  int64_t batch = 3, context = 48;
  model::StartRule rule = model::StartRule::Eager;
};

inline compiler::CompileRequest fleetPlanRequest(const FleetPlanOptions &options) {
  compiler::CompileRequest request;
  request.model = options.spec;
  request.hardware = core::tinyPlan({.spec = core::tinyLlama(1)}).hardware;
  model::Hardware &hardware = request.hardware;
  hardware.flopsF32 = hardware.flopsF16 = 1e10;
  hardware.memoryBandwidth = 1e10;
  hardware.launchOverhead = 1e-6;
  hardware.copyLatency = 1e-6;
  hardware.flopsEfficiency = hardware.memoryEfficiency = 0.5;
  hardware.h2dBandwidth = hardware.d2hBandwidth = options.linkBandwidth;
  hardware.duplexBandwidth = 2 * options.linkBandwidth;
  request.goal.batch = options.batch;
  request.goal.context = options.context;
  request.goal.blockTokens = 4;
  std::vector<model::Policy> policies{compiler::none()};
  for (int64_t interval : options.intervals)
    policies.push_back(compiler::interval(interval));
  for (model::Policy &policy : policies) {
    policy.startRule = options.rule;
    policy.offloadEmbedding = policy.offloadHead = model::AutoOnOff::Off;
  }
  request.placements = compiler::stated(request.model, policies);
  request.buckets = {.newTokens = {1, 3, 8}, .sequences = {1, 3}, .contexts = {16, options.context}};
  return request;
}

inline plan::Plan fleetPlan(const FleetPlanOptions &options = {}) {
  auto plan = compiler::compile(fleetPlanRequest(options));
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : plan::Plan{};
}

// Instances of a group, each with its plan.
class LoadedFleet {
public:
  struct On {
    std::string name;
    Role role = Role::Both;
    const plan::Plan *plan = nullptr;
  };
  LoadedFleet(std::unique_ptr<core::DeviceGroup> group, const std::vector<On> &on, FleetOptions options,
              const core::DeviceOptions &deviceOptions = {})
      : group_(std::move(group)) {
    const auto weights = model::syntheticWeights(1);
    std::vector<InstanceSpec> specs;
    for (size_t i = 0; i < on.size(); ++i) {
      auto runtime = core::Runtime::load(*on[i].plan, group_->device(i), deviceOptions, weights.get(), {});
      EXPECT_TRUE(runtime.ok()) << runtime.status();
      runtimes_.push_back(*std::move(runtime));
      specs.push_back({on[i].name, on[i].role, runtimes_.back().get()});
    }
    auto fleet = Fleet::create(*group_, std::move(specs), std::move(options));
    EXPECT_TRUE(fleet.ok()) << fleet.status();
    fleet_ = *std::move(fleet);
  }
  Fleet &operator*() { return *fleet_; }
  Fleet *operator->() { return fleet_.get(); }
  core::DeviceGroup &group() { return *group_; }
  core::Runtime &runtime(size_t i) { return *runtimes_[i]; }

private:
  std::unique_ptr<core::DeviceGroup> group_;
  std::vector<std::unique_ptr<core::Runtime>> runtimes_; // before the fleet, after the devices
  std::unique_ptr<Fleet> fleet_;
};

// What a decode iteration and a prompt's take without offloading, at the largest buckets.
struct ResidentTimes {
  double decodeNs = 0, prefillNs = 0;
};
inline ResidentTimes residentTimes(const plan::Plan &plan) {
  ResidentTimes times;
  for (const plan::Variant &v : plan.variants) {
    if (v.placement != 0)
      continue;
    double &of =
        plan.schedules[v.schedule].iterationClass == plan::IterationClass::Decode ? times.decodeNs : times.prefillNs;
    of = std::max(of, static_cast<double>(v.predictedNs));
  }
  return times;
}

struct Traffic {
  size_t requests = 100;
  double meanGapNs = 1e6;            // between arrivals, exponential
  int tpotFrom = 105, tpotTo = 300;  // per cent of the resident decode iteration
  int ttftFrom = 400, ttftTo = 2000; // per cent of the resident prefill iteration
};

inline std::vector<FleetRequest> randomRequests(const plan::Plan &plan, const Traffic &traffic, std::mt19937 &random) {
  const auto pick = [&](int a, int b) { return std::uniform_int_distribution<int>(a, b)(random); };
  const ResidentTimes times = residentTimes(plan);
  std::vector<FleetRequest> requests;
  double at = 0;
  for (size_t r = 0; r < traffic.requests; ++r) {
    FleetRequest request;
    request.model = plan.model->name;
    for (int s = pick(1, 3); s > 0; --s) {
      std::vector<int32_t> prompt;
      for (int t = pick(1, 14); t > 0; --t)
        prompt.push_back(pick(0, static_cast<int>(plan.model->vocab) - 1));
      request.prompts.push_back(prompt);
    }
    request.maxNewTokens = pick(1, 33);
    request.sampling = {.temperature = 1, .topP = 0.9f, .seed = r};
    if (r % 2 == 1) { // a hand-over brings the ids
      request.sampling.minP = 0.01f;
      request.sampling.repetitionPenalty = 1.5f;
      request.sampling.presencePenalty = 0.5f;
    }
    request.tpot = wholeNs(times.decodeNs * pick(traffic.tpotFrom, traffic.tpotTo) / 100);
    request.ttft = wholeNs(times.prefillNs * pick(traffic.ttftFrom, traffic.ttftTo) / 100);
    at += std::exponential_distribution<double>(1 / traffic.meanGapNs)(random);
    request.arrivalNs = static_cast<int64_t>(at);
    requests.push_back(std::move(request));
  }
  return requests;
}

} // namespace headrace::serve
