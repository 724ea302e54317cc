// SPDX-License-Identifier: Apache-2.0
//
// What a device of virtual time is whoever plays its launches: a plan's memory on paper, graphs that belong to it,
// staging copies, made-up tokens, counters. Left open is time: how a graph is prepared, played and waited for.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/core/Device.h"
#include "runtime/core/DirectBytes.h"
#include "runtime/core/GraphSteps.h"
#include "runtime/core/LaunchChecks.h"
#include "runtime/core/OwnedGraph.h"
#include "runtime/sim/BusPlayer.h"

namespace headrace::sim {

inline constexpr uint64_t kInFlight = 2; // iterations, each with a staging copy and an output of its own

// What a launch of a variant or transition counts and may hold.
class SimGraph : public core::OwnedGraph {
public:
  plan::LinkBytes bytes;                 // but for those that differ from launch to launch:
  std::vector<SizedTime> sized;          // of resizable copies,
  std::vector<core::DirectBytes> direct; // and of steps in place, by the rows of the iteration
};

class SimDeviceBase : public core::Device {
public:
  std::string_view kind() const override { return "sim"; }
  kernels::Order matrixOrder() const override { return kernels::Order::RowMajor; }
  bool holdsData() const override { return false; }

  absl::Status open(const plan::Plan &plan, const core::DeviceOptions &options) override;
  absl::Span<std::byte> hostSlab() override { return {}; }
  absl::Status writeDevice(uint64_t address, absl::Span<const std::byte> bytes) override;
  absl::Status readDevice(uint64_t address, absl::Span<std::byte> bytes) override;
  absl::StatusOr<std::unique_ptr<core::Graph>> build(const core::GraphKey &key) override;
  absl::Status upload(core::Graph &graph) override;
  kernels::IterationMeta *meta() override;
  absl::Status launch(core::Graph &graph, const core::LaunchInUse &inUse) override;
  absl::StatusOr<absl::Span<const int32_t>> awaitTokens(uint64_t iteration) override;
  int64_t tokensVisibleNs(uint64_t iteration) const override {
    return core::tokensHeld(iteration, launched_) ? times(iteration).visibleNs : kUnknownNs;
  }
  absl::Status reserveSwap(uint64_t bytes) override;
  absl::StatusOr<uint64_t> copyBeside(absl::Span<const core::BlockCopy> copies) override;
  absl::StatusOr<bool> copied(uint64_t ticket) override;
  absl::Status awaitCopied(uint64_t ticket) override;
  core::DeviceCounters counters() const override { return counters_; }

protected:
  const plan::Plan *plan() const { return plan_; } // null: none is open
  const core::DeviceOptions &options() const { return options_; }
  cost::Sharing sharing() const { return cost::sharingOf(plan_->hardware, options_.linkBandwidth); }
  uint64_t iterations() const { return launched_; }
  const LaunchTimes &times(uint64_t iteration) const { return iterations_[iteration % kInFlight].times; }
  size_t mostSteps() const; // of the plan's schedules

  // A graph with what it takes to play this schedule. `durationsNs`: the source's, paced to options().linkBandwidth.
  virtual std::unique_ptr<SimGraph> prepare(const core::GraphSource &source, std::vector<uint64_t> durationsNs,
                                            const std::vector<SizedTime> &sized) = 0;
  // What a launch plays: what may be in use of KV, and, of an iteration, its buffer, which play() may read, and where
  // its times go, which stays until it has ended. Both are null for a transition.
  struct Launch {
    core::LaunchInUse inUse;
    const kernels::IterationMeta *meta = nullptr;
    LaunchTimes *times = nullptr;
  };
  // Appends a launch at this moment.
  virtual void play(SimGraph &graph, const Launch &launch) = 0;
  // Lets time pass to a time of a launch made. Internal if it never comes.
  virtual absl::Status passTo(const int64_t &moment) = 0;
  // Copies beside launches, behind all launches made so far: their ticket; and when one ended or will, kUnknownNs
  // where later launches may still change that.
  virtual uint64_t playBeside(absl::Span<const core::BlockCopy> copies, const LinkRates &link) = 0;
  virtual uint64_t ticketsGiven() const = 0;
  virtual const int64_t &besideEndNs(uint64_t ticket) = 0;
  // Lets time pass to the end of a ticket.
  virtual absl::Status passToBeside(uint64_t ticket) = 0;

private:
  struct Iteration {
    std::vector<uint64_t> staging; // the iteration buffer, in words so that it is aligned
    std::vector<int32_t> tokens;
    size_t tokenCount = 0;
    LaunchTimes times = {0, 0}; // none launched: ended long ago
    kernels::IterationMeta *meta() { return reinterpret_cast<kernels::IterationMeta *>(staging.data()); }
  };
  absl::Status checkOpen() const;
  absl::Status checkTicket(uint64_t ticket) const;
  absl::StatusOr<SimGraph *> own(core::Graph &graph) const;
  Iteration &iteration(uint64_t number) { return iterations_[number % kInFlight]; }
  void makeUpTokens(Iteration &it) const;

  const plan::Plan *plan_ = nullptr;
  core::DeviceOptions options_;
  std::array<Iteration, kInFlight> iterations_;
  core::DeviceCounters counters_;
  uint64_t swapBytes_ = 0;
  uint64_t opening_ = 0;
  uint64_t launched_ = 0; // iterations
};

} // namespace headrace::sim
