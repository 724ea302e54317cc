// SPDX-License-Identifier: Apache-2.0
//
// A group of devices one of which disappears: after so many launches every call that waits for it, or launches on it,
// fails.
#pragma once

#include <memory>
#include <vector>

#include "runtime/core/DeviceGroup.h"

namespace headrace::serve {

class FailingGroup final : public core::DeviceGroup {
public:
  // Null: a group without devices.
  FailingGroup(std::unique_ptr<core::DeviceGroup> inner, size_t failing) : inner_(std::move(inner)), failing_(failing) {
    for (size_t i = 0; inner_ != nullptr && i < inner_->size(); ++i)
      devices_.push_back(std::make_unique<Failing>(inner_->device(i)));
  }
  void failAfter(uint64_t launches) { devices_[failing_]->left = launches; }

  size_t size() const override { return devices_.size(); }
  core::Device &device(size_t index) override { return *devices_[index]; }
  absl::StatusOr<size_t> waitAny(absl::Span<const uint64_t> awaited, int64_t untilNs) override {
    if (awaited[failing_] != 0 && devices_[failing_]->gone())
      return absl::UnavailableError("the driver does not answer");
    return inner_->waitAny(awaited, untilNs);
  }
  int64_t nowNs() const override { return inner_->nowNs(); }
  absl::Status setBusBandwidth(double bytesPerSecond) override { return inner_->setBusBandwidth(bytesPerSecond); }
  double sampleBusBandwidth() override { return inner_->sampleBusBandwidth(); }

private:
  struct Failing final : core::Device {
    explicit Failing(core::Device &d) : on(d) {}
    core::Device &on;
    uint64_t left = ~uint64_t{0}; // launches
    bool gone() const { return left == 0; }
    absl::Status check() const {
      return gone() ? absl::UnavailableError("the driver does not answer") : absl::OkStatus();
    }

    std::string_view kind() const override { return on.kind(); }
    kernels::Order matrixOrder() const override { return on.matrixOrder(); }
    bool holdsData() const override { return on.holdsData(); }
    absl::Status open(const plan::Plan &plan, const core::DeviceOptions &options) override {
      return on.open(plan, options);
    }
    absl::Span<std::byte> hostSlab() override { return on.hostSlab(); }
    absl::Status writeDevice(uint64_t address, absl::Span<const std::byte> bytes) override {
      return on.writeDevice(address, bytes);
    }
    absl::Status readDevice(uint64_t address, absl::Span<std::byte> bytes) override {
      return on.readDevice(address, bytes);
    }
    absl::StatusOr<std::unique_ptr<core::Graph>> build(const core::GraphKey &key) override { return on.build(key); }
    absl::Status upload(core::Graph &graph) override { return on.upload(graph); }
    kernels::IterationMeta *meta() override { return on.meta(); }
    absl::Status launch(core::Graph &graph, const core::LaunchInUse &inUse) override {
      if (absl::Status status = check(); !status.ok())
        return status;
      --left;
      return on.launch(graph, inUse);
    }
    absl::StatusOr<absl::Span<const int32_t>> awaitTokens(uint64_t iteration) override {
      if (absl::Status status = check(); !status.ok())
        return status;
      return on.awaitTokens(iteration);
    }
    int64_t tokensVisibleNs(uint64_t iteration) const override { return on.tokensVisibleNs(iteration); }
    absl::Status drain() override { return on.drain(); }
    absl::Status reserveSwap(uint64_t bytes) override { return on.reserveSwap(bytes); }
    absl::Span<std::byte> swapMemory() override { return on.swapMemory(); }
    absl::StatusOr<uint64_t> copyBeside(absl::Span<const core::BlockCopy> copies) override {
      if (absl::Status status = check(); !status.ok())
        return status;
      return on.copyBeside(copies);
    }
    absl::StatusOr<bool> copied(uint64_t ticket) override { return on.copied(ticket); }
    absl::Status awaitCopied(uint64_t ticket) override { return on.awaitCopied(ticket); }
    int64_t nowNs() const override { return on.nowNs(); }
    absl::Status waitUntil(int64_t ns) override { return on.waitUntil(ns); }
    core::DeviceCounters counters() const override { return on.counters(); }
    absl::Span<const core::StepTime> lastTimes() const override { return on.lastTimes(); }
  };
  std::unique_ptr<core::DeviceGroup> inner_;
  size_t failing_;
  std::vector<std::unique_ptr<Failing>> devices_;
};

} // namespace headrace::serve
