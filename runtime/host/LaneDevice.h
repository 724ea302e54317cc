// SPDX-License-Identifier: Apache-2.0
//
// The host device but for the threads that copy and that help to compute, which may be another one's too (HostDevice.h,
// HostGroup.h).
#pragma once

#include <array>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/core/LaunchChecks.h"
#include "runtime/core/SleepUntil.h"
#include "runtime/host/HostDevice.h"
#include "runtime/host/Lanes.h"
#include "runtime/host/TransferThread.h"
#include "runtime/threads/GuardedMemory.h"
#include "runtime/threads/LowLatency.h"
#include "runtime/threads/ThreadPool.h"

namespace headrace::host {

class LaneDevice : public core::Device {
public:
  // Number `index` of the devices of this transfer thread and pool. `callerBell`: of Shared. All outlive the device.
  LaneDevice(const HostOptions &options, TransferThread &transfer, threads::ThreadPool &pool, size_t index,
             Bell *callerBell)
      : options_(options), transfer_(transfer), pool_(pool), index_(index), callerBell_(callerBell) {}
  ~LaneDevice() override;

  std::string_view kind() const override { return "host"; }
  kernels::Order matrixOrder() const override { return kernels::kHostOrder; }
  bool holdsData() const override { return true; }
  int threads() const override { return pool_.threadsOfLane(); }
  void each(int64_t count, absl::FunctionRef<void(int64_t)> f) override { pool_.each(index_, count, f); }

  absl::Status open(const plan::Plan &plan, const core::DeviceOptions &options) override;
  absl::Span<std::byte> hostSlab() override { return slab_.bytes().first(plan_ == nullptr ? 0 : plan_->hostBytes); }
  absl::Status writeDevice(uint64_t address, absl::Span<const std::byte> bytes) override;
  absl::Status readDevice(uint64_t address, absl::Span<std::byte> bytes) override;
  absl::StatusOr<std::unique_ptr<core::Graph>> build(const core::GraphKey &key) override;
  absl::Status upload(core::Graph &graph) override;
  kernels::IterationMeta *meta() override;
  absl::Status launch(core::Graph &graph, const core::LaunchInUse &inUse) override;
  absl::StatusOr<absl::Span<const int32_t>> awaitTokens(uint64_t iteration) override;
  int64_t tokensVisibleNs(uint64_t iteration) const override {
    return held(iteration) ? shared_->tokens[iteration % kTokenSlots].visibleNs : -1;
  }
  absl::Status drain() override;
  absl::Status reserveSwap(uint64_t bytes) override;
  absl::Span<std::byte> swapMemory() override { return swap_.bytes().first(swapBytes_); }
  absl::StatusOr<uint64_t> copyBeside(absl::Span<const core::BlockCopy> copies) override;
  absl::StatusOr<bool> copied(uint64_t ticket) override;
  absl::Status awaitCopied(uint64_t ticket) override;
  absl::StatusOr<std::optional<core::WrongNumber>> findWrongNumber(uint32_t variant,
                                                                   const core::LaunchInUse &inUse) override;
  int64_t nowNs() const override { return threads::monotonicNs(); }
  absl::Status waitUntil(int64_t ns) override {
    core::sleepUntil(ns);
    return absl::OkStatus();
  }
  core::DeviceCounters counters() const override;
  absl::Span<const core::StepTime> lastTimes() const override {
    return last_ == nullptr ? absl::Span<const core::StepTime>() : absl::MakeConstSpan(last_->times);
  }

  // What the tokens of an iteration are waited for by. FailedPrecondition if it was not launched, OutOfRange if they
  // are gone.
  absl::StatusOr<Signals::WantOf> published(uint64_t iteration);

private:
  bool held(uint64_t iteration) const { return core::tokensHeld(iteration, iterations_); }
  absl::Status notOpen() const { return absl::FailedPreconditionError("host device: not open"); }
  absl::Status checkRange(const char *what, uint64_t address, uint64_t bytes) const;
  absl::StatusOr<uint64_t> deviceHome(uint32_t buffer, uint64_t bytes) const;
  absl::StatusOr<HostGraph *> own(core::Graph &graph) const;
  void waitForEnd(uint64_t launch);
  core::CopyTickets::Counts copiesEnded() const;
  void waitForCopies(const core::CopyTickets::Counts &ended);
  absl::Status startLanes();
  absl::Status lowerLatency();
  absl::Status startThreads();
  void close();

  const HostOptions options_;
  TransferThread &transfer_;
  threads::ThreadPool &pool_;
  const size_t index_;
  Bell *const callerBell_;
  const plan::Plan *plan_ = nullptr;
  bool trace_ = false;
  std::optional<core::BindContext> binding_;
  threads::GuardedMemory arena_, slab_, swap_;
  uint64_t swapBytes_ = 0; // of swap_, as asked for
  core::CopyTickets tickets_;
  std::optional<LinkSpeed> speed_;
  std::unique_ptr<Shared> shared_;
  std::array<std::vector<uint64_t>, 2> staging_; // iteration n's is n % 2; whole words, for their alignment
  std::array<uint64_t, 2> stagingLaunch_{};      // 1 + the launch that last took it; 0: none
  uint64_t opening_ = 0;                         // open() calls so far: graphs of an earlier one are refused
  uint64_t launches_ = 0, iterations_ = 0;
  std::array<uint64_t, kHostLanes> ended_{}; // counters once all launches so far have ended
  HostGraph *last_ = nullptr;
  bool copies_ = false; // the transfer thread has this device
  std::thread compute_;
  threads::AwakeCores awake_;
};

} // namespace headrace::host
