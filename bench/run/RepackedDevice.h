// SPDX-License-Identifier: Apache-2.0
//
// A device in virtual time that plays each iteration of an engine three times over, back to back on devices of their
// own, to see what it loses by leaving blocks where they are (HybridServe packs its buffers anew in every iteration):
//
//   launched   each cache's blocks up to the highest in use, as the engine has it
//   packed     the same rows in the same mini-batches: as many blocks as hold earlier tokens of theirs, and no others
//   spread     the same rows over mini-batches anew (PackMiniBatches.h), packed, in the variant that is cheapest then
//
// Packing takes no time here, and a change of variant no transition: what is lost is lost at most. What depends on the
// engine (its clock, what it reads) is of a fourth device that it has to itself.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/core/Device.h"

namespace headrace::bench {

// Sums over iterations.
struct RepackSums {
  uint64_t iterations = 0;
  uint64_t spreadFaster = 0; // so many of them, than packed
  // Of caches' blocks: copied; those that hold earlier tokens of sequences with rows, to the byte.
  uint64_t launchedBytes = 0, neededBytes = 0;
  uint64_t h2dBytes = 0; // of all, weights too, as launched
  int64_t launchedNs = 0, packedNs = 0, spreadNs = 0;
  int64_t leastNs = 0; // of packed and spread the shorter, iteration by iteration
  // Of the lanes alone, each iteration the longer of its link and its compute: as launched, and with the bytes needed.
  double launchedLanesNs = 0, neededLanesNs = 0;
  RepackSums &operator+=(const RepackSums &other);
};

// An engine's device; core::Device says what the calls are.
class RepackedDevice final : public core::Device {
public:
  RepackedDevice();
  ~RepackedDevice() override;
  const RepackSums &sums() const;

  std::string_view kind() const override { return on_->kind(); }
  kernels::Order matrixOrder() const override { return on_->matrixOrder(); }
  bool holdsData() const override { return false; }
  absl::Status open(const plan::Plan &plan, const core::DeviceOptions &options) override;
  absl::Span<std::byte> hostSlab() override { return {}; }
  absl::Status writeDevice(uint64_t address, absl::Span<const std::byte> bytes) override {
    return on_->writeDevice(address, bytes);
  }
  absl::Status readDevice(uint64_t address, absl::Span<std::byte> bytes) override {
    return on_->readDevice(address, bytes);
  }
  absl::StatusOr<std::unique_ptr<core::Graph>> build(const core::GraphKey &key) override;
  absl::Status upload(core::Graph &graph) override;
  kernels::IterationMeta *meta() override { return on_->meta(); }
  absl::Status launch(core::Graph &graph, const core::LaunchInUse &inUse) override;
  absl::StatusOr<absl::Span<const int32_t>> awaitTokens(uint64_t iteration) override {
    return on_->awaitTokens(iteration);
  }
  int64_t tokensVisibleNs(uint64_t iteration) const override { return on_->tokensVisibleNs(iteration); }
  absl::Status drain() override { return on_->drain(); }
  int64_t nowNs() const override { return on_->nowNs(); }
  absl::Status waitUntil(int64_t ns) override { return on_->waitUntil(ns); }
  core::DeviceCounters counters() const override { return on_->counters(); }
  absl::Span<const core::StepTime> lastTimes() const override { return {}; }

private:
  struct Repacked;
  const std::unique_ptr<core::Device> on_;
  std::unique_ptr<Repacked> repacked_;
};

} // namespace headrace::bench
