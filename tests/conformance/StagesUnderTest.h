// SPDX-License-Identifier: Apache-2.0
//
// A small model on one device, or its stages on the devices of a group, with all else alike.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "compiler/Compile.h"
#include "runtime/core/DeviceGroup.h"
#include "runtime/core/Stages.h"
#include "tests/support/StatedPlacements.h"
#include "tests/support/TinyPlan.h"
#ifdef HEADRACE_EMULATED_TESTS // recorded CUDA graphs
#include "tests/unit/cuda/EmulatedGraphDevice.h"
#elif defined(HEADRACE_STAND_IN_TESTS) // in the program of the stand-in of CUDA's runtime
#include "runtime/cuda/CudaGroup.h"
#include "runtime/host/HostGroup.h"
#include "tests/unit/cuda/stand_in/StandIn.h"
#else
#include "runtime/host/HostGroup.h"
#include "runtime/sim/SimGroup.h"
#endif

namespace headrace::core {

#ifdef HEADRACE_EMULATED_TESTS
inline constexpr model::DeviceKind kKind = model::DeviceKind::Cuda;

// Devices on nobody's bus, whose launches have ended when they return.
class Emulated final : public DeviceGroup {
public:
  explicit Emulated(size_t count) {
    for (size_t i = 0; i < count; ++i)
      devices_.push_back(cuda::makeEmulatedGraphDevice({}));
  }
  size_t size() const override { return devices_.size(); }
  Device &device(size_t index) override { return *devices_[index]; }
  absl::StatusOr<size_t> waitAny(absl::Span<const uint64_t> awaited, int64_t) override {
    for (size_t i = 0; i < awaited.size(); ++i)
      if (awaited[i] > 0) {
        absl::StatusOr<absl::Span<const int32_t>> tokens = devices_[i]->awaitTokens(awaited[i]);
        return tokens.ok() ? absl::StatusOr<size_t>(i) : tokens.status();
      }
    return absl::InvalidArgumentError("nothing to wait for");
  }
  int64_t nowNs() const override { return devices_.front()->nowNs(); }
  absl::Status setBusBandwidth(double) override { return absl::UnimplementedError("no bus"); }
  double sampleBusBandwidth() override { return 0; }

private:
  std::vector<std::unique_ptr<Device>> devices_;
};
inline std::unique_ptr<DeviceGroup> groupOf(size_t count, model::DeviceKind, bool) {
  return std::make_unique<Emulated>(count);
}
#elif defined(HEADRACE_STAND_IN_TESTS)
inline constexpr model::DeviceKind kKind = model::DeviceKind::Cuda;
// A GPU each; of every second group graphs are made by capture.
inline std::unique_ptr<DeviceGroup> groupOf(size_t count, model::DeviceKind kind, bool) {
  if (kind == model::DeviceKind::Host)
    return host::makeHostGroup(std::vector<host::HostOptions>(count, {.unpaced = true}),
                               std::numeric_limits<double>::infinity())
        .value();
  static size_t made = 0;
  EXPECT_EQ(::setenv("HEADRACE_CUDA_LIBRARIES", HEADRACE_STAND_IN_LIBRARIES, 1), 0);
  stand_in::show(std::vector<stand_in::ShownGpu>(4));
  std::vector<cuda::CudaOptions> options(count, {.capture = made++ % 2 == 1, .compare = true, .cpu = {.threads = 2}});
  for (size_t i = 0; i < count; ++i)
    options[i].index = static_cast<int>(i);
  return cuda::makeCudaGroup(options).value();
}
#else
inline constexpr model::DeviceKind kKind = model::DeviceKind::Host;
inline std::unique_ptr<DeviceGroup> groupOf(size_t count, model::DeviceKind, bool virtualTime) {
  return std::move(virtualTime ? sim::makeSimGroup(count, {})
                               : host::makeHostGroup(std::vector<host::HostOptions>(count, {.unpaced = true}),
                                                     std::numeric_limits<double>::infinity()))
      .value();
}
#endif

inline constexpr int64_t kLayers = 6, kContext = 64, kBlockTokens = 4;
inline constexpr uint64_t kSeed = 3;

// What all stages have alike.
struct Options {
  bool opt = false, tied = false;
  int64_t miniBatches = 1, sequences = 2; // of each mini-batch
  int64_t interval = 0;                   // of the weights, 0 none away
  bool alsoResident = false;              // a second placement, with none away
  int64_t resident = 0;                   // KV blocks on the device, the scratch block included; 0: all
  int64_t kvTokens = 0;                   // that all caches of a mini-batch hold; 0: of all sequences' contexts
  bool streamsLeave = false;              // between layers, too
  bool attendsOnCpu = false;
  const char *encoding = "";
  model::DeviceKind kind = kKind;
};

inline model::ModelSpec modelOf(const Options &options) {
  model::ModelSpec spec = options.opt ? tinyOpt(kLayers) : tinyLlama(kLayers);
  spec.tiedEmbeddings = options.tied;
  std::string expected;
  if (*options.encoding != 0)
    spec.encodings = *model::weightEncodingsFromText(options.encoding, spec, expected);
  return spec;
}

inline plan::Plan compiled(const model::ModelSpec &spec, const Options &options) {
  compiler::CompileRequest request;
  request.model = spec;
  request.hardware = tinyPlan({.spec = tinyLlama(1), .kind = options.kind}).hardware;
  request.goal.miniBatches = options.miniBatches;
  request.goal.batch = options.sequences * options.miniBatches;
  request.goal.context = kContext;
  request.goal.blockTokens = kBlockTokens;
  if (options.kvTokens > 0)
    request.goal.kvTokens = options.kvTokens * options.miniBatches;
  request.buckets = {
      .newTokens = {1, options.sequences, 16}, .sequences = {1, options.sequences}, .contexts = {kContext}};
  compiler::Candidate candidate =
      compiler::stated(spec, {options.interval > 0 ? compiler::interval(options.interval) : compiler::none()}).front();
  if (options.attendsOnCpu || options.resident > 0)
    candidate.residency.setKvAway(spec.layers, options.attendsOnCpu ? 0 : options.resident);
  if (options.attendsOnCpu)
    request.policy.attention = model::Attention::Cpu;
  if (options.streamsLeave)
    request.policy.residuals = model::Residuals::Host;
  request.placements = {candidate};
  if (options.alsoResident)
    request.placements.push_back(compiler::stated(spec, {compiler::none()}).front());
  absl::StatusOr<plan::Plan> plan = compiler::compile(request);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : plan::Plan();
}

// One that has all of the model, or its stages: the first layer of each.
class Served {
public:
  Served(const Options &options, const std::vector<int64_t> &firstLayers, size_t microBatches = 1,
         bool virtualTime = false, std::unique_ptr<DeviceGroup> group = nullptr) {
    const model::ModelSpec whole = modelOf(options);
    weights_ = model::syntheticWeights(kSeed);
    group_ = group ? std::move(group) : groupOf(firstLayers.size(), options.kind, virtualTime);
    plans_.reserve(firstLayers.size());
    std::vector<Runtime *> runtimes;
    for (size_t i = 0; i < firstLayers.size(); ++i) {
      const int64_t end = i + 1 < firstLayers.size() ? firstLayers[i + 1] : kLayers;
      plans_.push_back(compiled(model::stageOf(whole, firstLayers[i], end - firstLayers[i]), options));
      auto runtime = Runtime::load(plans_.back(), group_->device(i), {}, weights_.get(), {});
      EXPECT_TRUE(runtime.ok()) << runtime.status();
      if (!runtime.ok())
        return;
      runtimes_.push_back(*std::move(runtime));
      runtimes.push_back(runtimes_.back().get());
    }
    if (firstLayers.size() == 1)
      return;
    auto stages = Stages::make(runtimes, *group_, microBatches);
    EXPECT_TRUE(stages.ok()) << stages.status();
    if (stages.ok())
      stages_ = *std::move(stages);
  }

  Stages &stages() { return *stages_; }
  void grow(uint32_t miniBatch, std::vector<int32_t> &table, int64_t tokens) {
    const absl::Status status = runtimes_.front()->kvBlocks(miniBatch).grow(table, tokens); // of all stages
    EXPECT_TRUE(status.ok()) << status;
  }
  DeviceGroup &group() { return *group_; }
  std::vector<plan::Plan> &plans() { return plans_; }
  Runtime &runtime(size_t stage) { return *runtimes_[stage]; }

  // An iteration of these sequences, of each mini-batch.
  std::vector<int32_t> run(absl::Span<const absl::Span<const SequenceRows>> miniBatches) {
    absl::StatusOr<absl::Span<const int32_t>> tokens;
    if (stages_) {
      EXPECT_TRUE(stages_->begin(miniBatches).ok());
      const auto awaited = stages_->await();
      tokens = awaited.ok() ? absl::StatusOr<absl::Span<const int32_t>>(awaited->tokens) : awaited.status();
    } else {
      Runtime &runtime = *runtimes_.front();
      int64_t most = 0, context = 0, sequences = 0;
      for (const auto &of : miniBatches) {
        int64_t count = 0;
        for (const SequenceRows &rows : of) {
          count += static_cast<int64_t>(rows.tokens.size());
          context = std::max(context, rows.firstPosition + static_cast<int64_t>(rows.tokens.size()));
        }
        most = std::max(most, count);
        sequences = std::max(sequences, static_cast<int64_t>(of.size()));
      }
      const plan::Plan &plan = runtime.plan();
      EXPECT_TRUE(writeMetas(plan.metaLayout, plan.blockTokens, miniBatches, runtime.device().meta()).ok());
      const auto variant = runtime.choose(most, sequences, context);
      EXPECT_TRUE(variant.ok()) << variant.status();
      EXPECT_TRUE(runtime.launch(*variant).ok());
      tokens = runtime.awaitTokens();
    }
    EXPECT_TRUE(tokens.ok()) << tokens.status();
    return tokens.ok() ? std::vector<int32_t>(tokens->begin(), tokens->end()) : std::vector<int32_t>();
  }

private:
  std::unique_ptr<model::WeightSource> weights_;
  std::unique_ptr<DeviceGroup> group_;
  std::vector<plan::Plan> plans_;
  std::vector<std::unique_ptr<Runtime>> runtimes_;
  std::unique_ptr<Stages> stages_;
};

} // namespace headrace::core
