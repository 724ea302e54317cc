// SPDX-License-Identifier: Apache-2.0
//
// A compiled plan on the GPU, as a server has it: the runtime's own device and builders, synthetic weights, caches that
// hold random numbers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/cuda/Gpu.h"
#include "bench/figures/Cells.h"
#include "bench/iterations/Player.h"
#include "bench/iterations/RoundPlan.h"
#include "runtime/core/Runtime.h"
#include "runtime/cuda/CudaDevice.h"
#include "runtime/model/WeightSource.h"

namespace headrace::bench {

template <typename T> T take(absl::StatusOr<T> value) {
  if (!value.ok())
    fail(std::string(value.status().message()));
  return *std::move(value);
}
inline void check(const absl::Status &status) {
  if (!status.ok())
    fail(std::string(status.message()));
}

model::ModelSpec openShape(const std::string &name);
model::Hardware openProfile(const std::string &deviceName);
uint64_t freeDeviceMemory();
void copyByThreads(std::byte *to, const std::byte *from, size_t bytes);

// Every layer has the first one's weights: six units are made, by a thread each, and lie in pinned memory, from where
// they go to the device at the link's rate and to the slab by several threads.
class LayerWeights final : public model::WeightSource {
public:
  explicit LayerWeights(const model::ModelSpec &spec);
  ~LayerWeights() override;
  LayerWeights(const LayerWeights &) = delete;
  LayerWeights &operator=(const LayerWeights &) = delete;
  absl::Status fill(const model::Unit &unit, model::MatrixOrder order, absl::Span<std::byte> out) const override;
  absl::Span<const std::byte> held(const model::Unit &unit, model::MatrixOrder order) const override;

private:
  std::map<model::UnitRole, absl::Span<std::byte>> units_;
};

class Session {
public:
  struct Options {
    cuda::CudaOptions cuda;
    bool trace = false;
    uint32_t placement = 0;
  };
  Session(plan::Plan plan, const model::WeightSource &weights, const Options &options);

  const plan::Plan &plan() const { return *plan_; }
  core::Runtime &runtime() { return *runtime_; }
  core::Device &device() { return *device_; }
  double loadSeconds() const { return loadSeconds_; }
  cuda::GraphCosts costs() const { return take(cuda::graphCosts(*device_)); }
  Played play(uint32_t placement, const Cell &cell, const PlayLimits &limits,
              const std::function<absl::Status()> &each = {}) {
    return take(bench::play(*runtime_, placement, cell, limits, each));
  }
  const plan::Schedule &scheduleOf(uint32_t variant) const {
    return plan_->schedules[plan_->variants[variant].schedule];
  }

private:
  void fillCaches(plan::BufferKind kind, model::DType dtype); // kv or act
  std::unique_ptr<plan::Plan> plan_;                          // it does not move: device and runtime refer to it
  std::unique_ptr<core::Device> device_;
  std::unique_ptr<core::Runtime> runtime_;
  double loadSeconds_ = 0;
};

} // namespace headrace::bench
