// SPDX-License-Identifier: Apache-2.0
//
// Profiles of tiny models on devices whose times are known.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/profile/Analyzer.h"
#include "runtime/sim/SimDevice.h"
#include "tests/support/TinyPlan.h"

namespace headrace::profile {

// 1 TFLOP/s, 1 TB/s of memory, 1 GB/s links that share 1.5 GB/s, 1 us before a copy's first byte.
inline model::Hardware roundDevice() {
  model::Hardware h;
  h.name = "round";
  h.kind = model::DeviceKind::Host;
  h.memoryBytes = h.hostMemoryBytes = uint64_t{1} << 40;
  h.flopsF32 = h.flopsF16 = h.memoryBandwidth = 1e12;
  h.h2dBandwidth = h.d2hBandwidth = 1e9;
  h.duplexBandwidth = 1.5e9;
  h.copyLatency = 1e-6;
  h.launchOverhead = 1e-6;
  h.flopsEfficiency = h.memoryEfficiency = h.linkEfficiency = 1;
  return h;
}

// Plans made by hand in the compiler's place. Refuses those that take more than the memory given.
inline PlanSource tinyPlans(const model::Hardware &hardware, int64_t blockTokens = 4) {
  return [=](const PlanSizes &sizes) -> absl::StatusOr<plan::Plan> {
    plan::Plan plan = core::tinyPlan({.spec = sizes.model,
                                      .batch = sizes.batch,
                                      .promptTokens = sizes.newTokens,
                                      .context = sizes.context,
                                      .blockTokens = blockTokens});
    plan.hardware = hardware;
    if (plan.arenaBytes > sizes.deviceMemory)
      return absl::ResourceExhaustedError(absl::StrCat("needs ", plan.arenaBytes, ", has ", sizes.deviceMemory));
    return plan;
  };
}

inline GridRequest gridRequest(const model::ModelSpec &model, const model::Hardware &hardware) {
  GridRequest request;
  request.model = model;
  request.hardware = hardware;
  request.deviceMemory = uint64_t{1} << 30;
  request.blockTokens = 4;
  request.plans = tinyPlans(hardware);
  return request;
}

inline cost::Identity identityOf(const model::ModelSpec &model) {
  return {model.name,        "hash",
          "round",           model::DeviceKind::Host,
          model::DType::F32, model::DType::F32,
          model.layers,      model::layoutWeights(model).layerBytes(0)};
}

// The sim device, with what its steps took changed afterwards: times(layer of the step, ns, launch counted from 0).
class ChangedTimes final : public core::Device {
public:
  using Change = std::function<int64_t(int32_t layer, int64_t ns, uint64_t launch)>;
  explicit ChangedTimes(Change change) : sim_(sim::makeSimDevice()), change_(std::move(change)) {}

  std::string_view kind() const override { return sim_->kind(); }
  kernels::Order matrixOrder() const override { return sim_->matrixOrder(); }
  bool holdsData() const override { return false; }
  absl::Status open(const plan::Plan &plan, const core::DeviceOptions &options) override {
    plan_ = &plan;
    return sim_->open(plan, options);
  }
  absl::Span<std::byte> hostSlab() override { return {}; }
  absl::Status writeDevice(uint64_t, absl::Span<const std::byte>) override { return absl::OkStatus(); }
  absl::Status readDevice(uint64_t, absl::Span<std::byte>) override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<core::Graph>> build(const core::GraphKey &key) override {
    steps_ = key.transition ? nullptr : &plan_->schedules[plan_->variants[key.index].schedule].steps;
    return sim_->build(key);
  }
  absl::Status upload(core::Graph &graph) override { return sim_->upload(graph); }
  kernels::IterationMeta *meta() override { return sim_->meta(); }
  absl::Status launch(core::Graph &graph, const core::LaunchInUse &inUse) override {
    absl::Status status = sim_->launch(graph, inUse);
    times_.clear();
    int64_t now = 0;
    for (size_t i = 0; i < sim_->lastTimes().size(); ++i) {
      const core::StepTime &t = sim_->lastTimes()[i];
      if (steps_ == nullptr || (*steps_)[i].lane != plan::Lane::Compute) {
        times_.push_back(t);
        continue;
      }
      const int64_t ns = change_((*steps_)[i].layer, t.endNs - t.startNs, launches_);
      times_.push_back({now, now + ns});
      now += ns;
    }
    ++launches_;
    return status;
  }
  absl::StatusOr<absl::Span<const int32_t>> awaitTokens(uint64_t iteration) override {
    return sim_->awaitTokens(iteration);
  }
  int64_t tokensVisibleNs(uint64_t iteration) const override {
    return sim_->tokensVisibleNs(iteration) + (late ? late(iteration) : 0);
  }
  absl::Status drain() override { return sim_->drain(); }
  int64_t nowNs() const override { return sim_->nowNs(); }
  absl::Status waitUntil(int64_t ns) override { return sim_->waitUntil(ns); }
  core::DeviceCounters counters() const override { return sim_->counters(); }
  absl::Span<const core::StepTime> lastTimes() const override { return times_; }

  std::function<int64_t(uint64_t iteration)> late; // ns; null: none is

private:
  std::unique_ptr<core::Device> sim_;
  Change change_;
  const plan::Plan *plan_ = nullptr;
  const std::vector<plan::Step> *steps_ = nullptr; // of the graph built last
  std::vector<core::StepTime> times_;
  uint64_t launches_ = 0;
};

} // namespace headrace::profile
