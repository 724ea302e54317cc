// SPDX-License-Identifier: Apache-2.0
#include "bench/run/Player.h"

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::bench {

Player::Player(plan::Plan plan, const host::HostOptions &device, double bandwidth, const KeptWeights &weights,
               const Load &load)
    : plan_(std::make_unique<plan::Plan>(std::move(plan))), device_(host::makeHostDevice(device)), load_(load),
      blocks_(static_cast<size_t>(load.miniBatches * load.sequences)) {
  const core::DeviceOptions options{.linkBandwidth = bandwidth, .trace = true};
  runtime_ = take(core::Runtime::load(*plan_, *device_, options, &weights, {}));
  const auto sequences = static_cast<size_t>(load.sequences);
  for (size_t i = 0; i < blocks_.size(); ++i) // whatever the workload reads: all that the plan has
    check(runtime_->kvBlocks(static_cast<uint32_t>(i / sequences)).grow(blocks_[i], load.context));
  variant_ = take(runtime_->choose(load.sequences * load.tokens, load.sequences, load.firstPosition() + load.tokens));
  tokens_.resize(static_cast<size_t>(load.sequences * load.tokens));
  for (size_t i = 0; i < tokens_.size(); ++i)
    tokens_[i] = static_cast<int32_t>(i * 37 % static_cast<size_t>(plan_->model->vocab));
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const size_t s = i % sequences, tokens = static_cast<size_t>(load.tokens);
    rows_.push_back({.tokens = absl::MakeConstSpan(tokens_).subspan(s * tokens, tokens),
                     .firstPosition = load.firstPosition(),
                     .blocks = blocks_[i],
                     .sample = true,
                     .requestSlot = static_cast<int32_t>(s)});
  }
  for (size_t i = 0; i < blocks_.size(); i += sequences)
    miniBatches_.push_back(absl::MakeConstSpan(rows_).subspan(i, sequences));
}

void Player::play() {
  int64_t previousNs = 0;
  const auto before = device_->counters();
  for (int i = 0; i < kWarmUp + kTurn; ++i) {
    check(core::writeMetas(plan_->metaLayout, plan_->blockTokens, miniBatches_, device_->meta()));
    check(runtime_->launch(variant_));
    (void)take(runtime_->awaitTokens());
    const int64_t seenNs = device_->tokensVisibleNs(runtime_->launched());
    if (i >= kWarmUp)
      gapsNs.push_back(seenNs - previousNs);
    previousNs = seenNs;
  }
  check(device_->drain());
  const auto after = device_->counters();
  stallNs += after.stallNs - before.stallNs;
  h2dBytes = (after.h2dBytes - before.h2dBytes) / (kWarmUp + kTurn);
  d2hBytes = (after.d2hBytes - before.d2hBytes) / (kWarmUp + kTurn);
  int64_t compute = 0, rebuild = 0, act = 0, kv = 0;
  for (size_t i = 0; i < schedule().steps.size(); ++i) {
    const plan::Step &step = schedule().steps[i];
    const int64_t ns = device_->lastTimes()[i].endNs - device_->lastTimes()[i].startNs;
    compute += step.lane == plan::Lane::Compute ? ns : 0;
    rebuild += step.kind == plan::StepKind::Compute && step.op == kernels::Op::RebuildKv ? ns : 0;
    if (step.kind != plan::StepKind::Copy || step.lane != plan::Lane::H2D)
      continue;
    const uint32_t moved = schedule().operands[step.firstOperand].buffer;
    const plan::BufferKind kind =
        moved < plan_->buffers.size() ? plan_->buffers[moved].kind : plan::BufferKind::Activation;
    act += kind == plan::BufferKind::Act ? ns : 0;
    kv += kind == plan::BufferKind::Kv ? ns : 0;
  }
  computeNs.push_back(compute);
  rebuildNs.push_back(rebuild);
  loadActNs.push_back(act);
  loadKvNs.push_back(kv);
  lastGapNs.push_back(gapsNs.back());
}

} // namespace headrace::bench
