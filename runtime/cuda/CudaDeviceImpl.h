// SPDX-License-Identifier: Apache-2.0
//
// The CUDA device (CudaDevice.h), alone and in a group (CudaGroup.h).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/core/SleepUntil.h"
#include "runtime/cuda/CudaDevice.h"
#include "runtime/cuda/CudaError.h"
#include "runtime/cuda/CudaGraph.h"
#include "runtime/cuda/Driver.h"
#include "runtime/cuda/MakeGraph.h"
#include "runtime/cuda/OpenedDevice.h"
#include "runtime/cuda/ProductAlgorithms.h"

namespace headrace::cuda {

class CudaDevice final : public core::Device {
public:
  static absl::StatusOr<std::unique_ptr<CudaDevice>> make(const CudaOptions &options);
  CudaDevice(const CudaOptions &options, DeviceInfo info, MatMulLibraries libraries)
      : cudaOptions_(options), info_(std::move(info)), libraries_(std::move(libraries)) {}
  // Before any graph is built.
  absl::Status useAlgorithms(const std::string &path);
  std::string algorithms() const { return productAlgorithmsText(libraries_.algorithms(), chosen_); }
  bool algorithmsStated() const { return !cudaOptions_.algorithms.empty(); }
  // Handles of libraries are destroyed on their own GPU.
  ~CudaDevice() override { giveBack(cudaSetDevice(info_.index)); }

  std::string_view kind() const override { return "cuda"; }
  kernels::Order matrixOrder() const override { return kernels::Order::RowMajor; }
  bool holdsData() const override { return true; }
  int threads() const override { return o_ != nullptr && o_->cpu.started() ? o_->cpu.threads() : 1; }
  absl::Status open(const plan::Plan &plan, const core::DeviceOptions &options) override;
  absl::Span<std::byte> hostSlab() override { return o_ == nullptr ? absl::Span<std::byte>() : o_->slab.bytes(); }
  absl::Status writeDevice(uint64_t address, absl::Span<const std::byte> bytes) override;
  absl::Status readDevice(uint64_t address, absl::Span<std::byte> bytes) override;
  absl::StatusOr<std::unique_ptr<core::Graph>> build(const core::GraphKey &key) override;
  absl::Status upload(core::Graph &graph) override;
  kernels::IterationMeta *meta() override;
  absl::Status launch(core::Graph &graph, const core::LaunchInUse &inUse) override;
  absl::StatusOr<absl::Span<const int32_t>> awaitTokens(uint64_t iteration) override;
  int64_t tokensVisibleNs(uint64_t iteration) const override {
    return held(iteration) ? o_->mailbox.visibleNs(iteration) : -1;
  }
  absl::Status drain() override;
  absl::Status reserveSwap(uint64_t bytes) override;
  absl::Span<std::byte> swapMemory() override { return o_ == nullptr ? absl::Span<std::byte>() : o_->beside.memory(); }
  absl::StatusOr<uint64_t> copyBeside(absl::Span<const core::BlockCopy> copies) override;
  absl::StatusOr<bool> copied(uint64_t ticket) override;
  absl::Status awaitCopied(uint64_t ticket) override;
  int64_t nowNs() const override { return monotonicNs(); }
  absl::Status waitUntil(int64_t ns) override {
    core::sleepUntil(ns);
    return absl::OkStatus();
  }
  core::DeviceCounters counters() const override;
  absl::Span<const core::StepTime> lastTimes() const override {
    return o_ == nullptr ? absl::Span<const core::StepTime>() : absl::MakeConstSpan(o_->times);
  }
  GraphCosts costs() const;
  absl::StatusOr<std::string> measuredBy() const;
  absl::StatusOr<std::string> cuptiRefused() const;
  absl::StatusOr<std::vector<CopyChannel>> copyChannels() const;
  int gpu() const { return info_.index; }

  // Of a group that waits for several. Whether tokens of that launch can be read is tokensVisibleNs(), which asks CUDA
  // for nothing; these say why they may never be. awaitTokens()'s refusals, before anything is waited for.
  absl::Status checkAwaited(uint64_t iteration) const;
  // Asks CUDA: an error of the device's, or of a launch that has ended without publishing.
  absl::Status look(uint64_t iteration);
  // How long it may be waited for before sayLate() has to say so; 0: it need not.
  int64_t lateAfterNs(uint64_t iteration) const;
  void sayLate(uint64_t iteration, int64_t afterNs) { cudaOptions_.notice(o_->lateness.say(iteration, afterNs)); }

private:
  bool held(uint64_t iteration) const { return o_ != nullptr && core::tokensHeld(iteration, o_->iterations); }
  // What every call begins with that asks CUDA for anything: the GPU is the calling thread's from now on, whatever was
  // before, and the device is open and has not failed.
  absl::Status enter() const;
  // Remembers a failure: CUDA's errors stay.
  absl::Status keep(absl::Status status) {
    if (!status.ok() && o_->failed.ok())
      o_->failed = status;
    return status;
  }
  SlabOptions slabOptions() const {
    return {.numaNode = info_.numaNode, .notice = cudaOptions_.notice, .progress = cudaOptions_.pinning};
  }
  absl::Status checkRange(const char *what, uint64_t address, uint64_t bytes) const;
  absl::Status waitForOlder(const std::array<cudaEvent_t, 2> &events);
  absl::Status bringMeta(const CudaGraph &graph, const core::Metas &metas);
  absl::Status setSizes(CudaGraph &graph, const core::LaunchInUse &inUse);
  absl::Status launchIteration(CudaGraph &graph);
  absl::Status launchGraph(CudaGraph &graph);
  absl::Status finish();
  bool inFlight(uint64_t iteration) const { return held(iteration) && o_->mailbox.visibleNs(iteration) < 0; }

  const CudaOptions cudaOptions_;
  const DeviceInfo info_;
  MatMulLibraries libraries_;
  ProductAlgorithms chosen_; // before
  const NvtxName awaiting_{"await tokens"};
  std::unique_ptr<OpenedDevice> o_;
  uint64_t opening_ = 0; // open() calls so far: graphs of an earlier one are refused
};

} // namespace headrace::cuda
