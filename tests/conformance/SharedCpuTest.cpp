// SPDX-License-Identifier: Apache-2.0
//
// Stages whose devices share a CPU and host memory, in virtual time: what they take is what predictDecode() says, to
// 3%, whatever limits them.
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "compiler/Compile.h"
#include "runtime/core/Stages.h"
#include "runtime/sim/SimGroup.h"
#include "runtime/sim/StagedTime.h"
#include "tests/support/StatedPlacements.h"
#include "tests/support/TinyPlan.h"

namespace headrace::core {
namespace {

constexpr int64_t kPositions = 1024;

struct Setting {
  size_t stages = 2;
  int64_t layersOfStage = 4;
  int64_t batch = 8; // of all micro-batches
  bool attendsOnCpu = true;
  int64_t interval = 0;  // of weights that come over the link
  double attention = 10; // GB/s that the CPU attends at
  double memory = 340;   // GB/s of host memory
};

// A card of 720 GB/s on a link of 20 GB/s each way.
model::Hardware hardwareOf(const Setting &setting) {
  model::Hardware hardware = tinyPlan({.spec = tinyLlama(1), .kind = model::DeviceKind::Cuda}).hardware;
  hardware.memoryBytes = hardware.hostMemoryBytes = uint64_t{64} << 30;
  hardware.flopsF32 = 15e12;
  hardware.flopsF16 = 120e12;
  hardware.memoryBandwidth = 900e9;
  hardware.flopsEfficiency = hardware.memoryEfficiency = 0.8;
  hardware.h2dBandwidth = hardware.d2hBandwidth = 20e9;
  hardware.duplexBandwidth = 40e9;
  hardware.cpu = {
      .cores = 10, .flops = 1e13, .memoryBandwidth = setting.memory * 1e9, .coreBandwidth = setting.attention * 1e8};
  return hardware;
}

class SharedCpu : public testing::Test {
protected:
  void load(const Setting &setting) {
    setting_ = setting;
    model::ModelSpec spec = tinyLlama(setting.layersOfStage * static_cast<int64_t>(setting.stages));
    spec.dtype = model::DType::F16;
    spec.hidden = 2048;
    spec.heads = spec.kvHeads = 16;
    spec.headDim = 128;
    spec.intermediate = 8192;
    spec.maxPositions = kPositions;
    group_ = std::move(sim::makeSimGroup(setting.stages, {})).value();
    const int64_t part = setting.batch / static_cast<int64_t>(setting.stages);
    std::vector<Runtime *> loaded;
    plans_.reserve(setting.stages);
    for (size_t i = 0; i < setting.stages; ++i) {
      compiler::CompileRequest request;
      request.model = model::stageOf(spec, static_cast<int64_t>(i) * setting.layersOfStage, setting.layersOfStage);
      request.hardware = hardwareOf(setting);
      request.goal.batch = setting.batch;
      request.goal.context = kPositions;
      request.buckets = {
          .newTokens = {part, setting.batch}, .sequences = {part, setting.batch}, .contexts = {kPositions}};
      compiler::Candidate candidate =
          compiler::stated(*request.model,
                           {setting.interval > 0 ? compiler::interval(setting.interval) : compiler::none()})
              .front();
      if (setting.attendsOnCpu) {
        candidate.residency.setKvAway(setting.layersOfStage, 0);
        request.policy.attention = model::Attention::Cpu;
      }
      request.placements = {candidate};
      absl::StatusOr<plan::Plan> plan = compiler::compile(request);
      ASSERT_TRUE(plan.ok()) << plan.status();
      plans_.push_back(*std::move(plan));
      runtimes_.push_back(std::move(Runtime::load(plans_.back(), group_->device(i), {}, nullptr, {})).value());
      loaded.push_back(runtimes_.back().get());
    }
    stages_ = std::move(Stages::make(loaded, *group_, setting.stages)).value();
  }

  sim::StagedDecode predicted() const {
    std::vector<const plan::Plan *> plans;
    for (const plan::Plan &plan : plans_)
      plans.push_back(&plan);
    return sim::predictDecode(plans);
  }

  // A token of all micro-batches, in the mean of 20 behind the first, at the last positions of the context.
  double tokenNs() {
    const size_t parts = setting_.stages;
    const auto sequences = static_cast<size_t>(setting_.batch) / parts;
    std::vector<std::vector<std::vector<int32_t>>> blocks(parts, std::vector<std::vector<int32_t>>(sequences));
    std::vector<std::vector<SequenceRows>> rows(parts, std::vector<SequenceRows>(sequences));
    std::vector<absl::Span<const SequenceRows>> spans(parts);
    const int32_t id = 1;
    int64_t warm = 0;
    const auto begin = [&](size_t m, int64_t at) {
      for (size_t s = 0; s < sequences; ++s) {
        EXPECT_TRUE(stages_->kvBlocks(0).grow(blocks[m][s], at + 1).ok());
        rows[m][s] = {.tokens = {&id, 1},
                      .firstPosition = at,
                      .blocks = blocks[m][s],
                      .sample = true,
                      .requestSlot = static_cast<int32_t>(s)};
      }
      spans[m] = rows[m];
      EXPECT_TRUE(stages_->begin({&spans[m], 1}).ok());
    };
    constexpr int64_t kTokens = 21;
    for (size_t m = 0; m < parts; ++m)
      begin(m, kPositions - kTokens);
    for (int64_t n = 1; n <= kTokens; ++n)
      for (size_t m = 0; m < parts; ++m) {
        EXPECT_TRUE(stages_->await().ok());
        if (n == 1 && m == 0)
          warm = group_->nowNs();
        if (n < kTokens)
          begin(m, kPositions - kTokens + n);
        else if (m == 0)
          return static_cast<double>(group_->nowNs() - warm) / (kTokens - 1);
      }
    return 0;
  }

  void expectPredicted(const Setting &setting, sim::StagesLimit limit) {
    load(setting);
    if (HasFatalFailure())
      return;
    const sim::StagedDecode decode = predicted();
    EXPECT_EQ(decode.limit, limit);
    EXPECT_EQ(decode.microBatches, static_cast<int64_t>(setting.stages));
    EXPECT_NEAR(tokenNs() / static_cast<double>(decode.tokenNs), 1, 0.03);
  }

  Setting setting_;
  std::vector<plan::Plan> plans_;
  std::unique_ptr<DeviceGroup> group_;
  std::vector<std::unique_ptr<Runtime>> runtimes_;
  std::unique_ptr<Stages> stages_;
};

// 8 sequences of 1,024 tokens of 8 KiB a layer: 64 MiB, at 10 GB/s 6.7 ms a layer, in 8 layers 54 ms, however many
// devices there are.
TEST_F(SharedCpu, LimitsTwoStages) { expectPredicted({.stages = 2}, sim::StagesLimit::Cpu); }
TEST_F(SharedCpu, LimitsFourStages) {
  expectPredicted({.stages = 4, .layersOfStage = 2}, sim::StagesLimit::Cpu);
  EXPECT_NEAR(static_cast<double>(predicted().tokenNs) * 1e-6, 54, 2);
}
TEST_F(SharedCpu, LimitsNothingWhereItIsFast) {
  expectPredicted({.stages = 2, .interval = 1, .attention = 300}, sim::StagesLimit::LongestStage);
}
TEST_F(SharedCpu, LimitsNothingWhereNobodyAttendsOnIt) {
  expectPredicted({.stages = 2, .attendsOnCpu = false}, sim::StagesLimit::LongestStage);
}
// Two links of 20 GB/s, all layers brought, and 24 GB/s to bring them from.
TEST_F(SharedCpu, HostMemoryLimitsCopiesOfAllStages) {
  expectPredicted({.stages = 2, .attendsOnCpu = false, .interval = 1, .memory = 24}, sim::StagesLimit::HostMemory);
}

} // namespace
} // namespace headrace::core
