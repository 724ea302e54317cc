// SPDX-License-Identifier: Apache-2.0
//
// A device under watch: what each launch moves is held against the plan's steps, by arithmetic of its own; what holds
// nothing is poison when a launch begins; no step reads what was not brought; in virtual time no two steps touch the
// same bytes at once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/Device.h"
#include "runtime/host/LiveRanges.h"
#include "tests/choices/Brought.h"

namespace headrace::choices {

struct Watch {
  bool sizesRows = true; // the device copies no more than is in use to blocks that lie apart
  // Drains after each launch: bytes are compared launch by launch, and before it NaNs are written over all that
  // neither home nor entry state is in. Else the bytes are compared when all is done.
  bool eachLaunch = true;
};

class WatchedDevice final : public core::Device {
public:
  WatchedDevice(std::unique_ptr<core::Device> on, const Watch &watch) : on_(std::move(on)), watch_(watch) {}

  // What was wrong, each kind once; and what has crossed the link, in Row::in's and Row::out's words.
  const std::vector<std::string> &findings() const { return findings_; }
  const std::set<std::string> &in() const { return in_; }
  const std::set<std::string> &out() const { return out_; }
  int64_t endOfUse() const { return endOfUse_; } // of KV blocks of a mini-batch, in iterations: the most
  // From here on.
  void setEachLaunch(bool each) { watch_.eachLaunch = each; }
  // Once all launches have ended: of those since the last time.
  void compareBytes(const std::string &of);

  std::string_view kind() const override { return on_->kind(); }
  kernels::Order matrixOrder() const override { return on_->matrixOrder(); }
  bool holdsData() const override { return on_->holdsData(); }
  int threads() const override { return on_->threads(); }
  void each(int64_t count, absl::FunctionRef<void(int64_t)> f) override { on_->each(count, f); }
  absl::Status open(const plan::Plan &plan, const core::DeviceOptions &options) override;
  absl::Span<std::byte> hostSlab() override { return on_->hostSlab(); }
  absl::Status writeDevice(uint64_t address, absl::Span<const std::byte> bytes) override {
    return on_->writeDevice(address, bytes);
  }
  absl::Status readDevice(uint64_t address, absl::Span<std::byte> bytes) override {
    return on_->readDevice(address, bytes);
  }
  absl::StatusOr<std::unique_ptr<core::Graph>> build(const core::GraphKey &key) override;
  absl::Status upload(core::Graph &graph) override { return on_->upload(graph); }
  kernels::IterationMeta *meta() override { return on_->meta(); }
  absl::Status launch(core::Graph &graph, const core::LaunchInUse &inUse) override;
  absl::StatusOr<absl::Span<const int32_t>> awaitTokens(uint64_t iteration) override {
    return on_->awaitTokens(iteration);
  }
  int64_t tokensVisibleNs(uint64_t iteration) const override { return on_->tokensVisibleNs(iteration); }
  absl::Status drain() override { return on_->drain(); }
  absl::StatusOr<std::optional<core::WrongNumber>> findWrongNumber(uint32_t variant,
                                                                   const core::LaunchInUse &inUse) override {
    return on_->findWrongNumber(variant, inUse);
  }
  int64_t nowNs() const override { return on_->nowNs(); }
  absl::Status waitUntil(int64_t ns) override { return on_->waitUntil(ns); }
  core::DeviceCounters counters() const override { return on_->counters(); }
  absl::Span<const core::StepTime> lastTimes() const override { return on_->lastTimes(); }

private:
  struct Moved {
    uint64_t in = 0, out = 0;
  };
  using Pairs = std::vector<std::pair<uint32_t, uint32_t>>;

  const plan::Schedule &scheduleOf(const core::GraphKey &key) const;
  // What the steps of a launch are to move; notes which kinds do.
  Moved planned(const plan::Schedule &schedule, const core::LaunchInUse &inUse, bool transition);
  Brought::Run copied(const plan::Schedule &schedule, const plan::Step &step, const core::LaunchInUse &inUse);
  Moved direct(const plan::Schedule &schedule, const plan::Step &step);
  absl::Status poison(const plan::Schedule &schedule);
  const Pairs &sharing(const plan::Schedule &schedule);
  void checkTimes(const plan::Schedule &schedule);
  void found(std::string what);

  std::unique_ptr<core::Device> on_;
  Watch watch_;
  const plan::Plan *plan_ = nullptr;
  std::map<const core::Graph *, core::GraphKey> keys_;
  std::map<const plan::Schedule *, std::vector<host::ByteRange>> dead_;
  std::map<const plan::Schedule *, Pairs> sharing_;
  std::optional<Brought> brought_;
  Moved planned_; // since the counters were `compared_`
  core::DeviceCounters compared_;
  int64_t endOfUse_ = 0;
  std::set<std::string> in_, out_;
  std::vector<std::string> findings_;
};

} // namespace headrace::choices
