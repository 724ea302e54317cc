// SPDX-License-Identifier: Apache-2.0
//
// For tests of the runtime: a device that computes nothing, weights whose bytes say whose they are, and both loaded.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/Runtime.h"

namespace headrace::core {

// A device that keeps what it is given and writes down what it is asked to do.
class RecordingDevice final : public Device {
public:
  struct RecordedGraph final : Graph {
    GraphKey key;
    bool uploaded = false;
  };
  std::string_view kind() const override { return "recording"; }
  kernels::Order matrixOrder() const override { return kernels::Order::RowMajor; }
  bool holdsData() const override { return true; }
  absl::Status open(const plan::Plan &plan, const DeviceOptions &) override {
    arena.resize(plan.arenaBytes);
    slab.resize(plan.hostBytes);
    staging.resize(kernels::metaBytes(plan.metaLayout) / 8);
    return absl::OkStatus();
  }
  absl::Span<std::byte> hostSlab() override { return absl::MakeSpan(slab); }
  absl::Status writeDevice(uint64_t address, absl::Span<const std::byte> bytes) override {
    std::copy(bytes.begin(), bytes.end(), arena.begin() + static_cast<int64_t>(address));
    return absl::OkStatus();
  }
  absl::Status readDevice(uint64_t address, absl::Span<std::byte> bytes) override {
    std::copy_n(arena.begin() + static_cast<int64_t>(address), bytes.size(), bytes.begin());
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> copyBeside(absl::Span<const BlockCopy> copies) override {
    beside.emplace_back(copies.begin(), copies.end());
    return beside.size();
  }
  absl::StatusOr<std::unique_ptr<Graph>> build(const GraphKey &key) override {
    auto graph = std::make_unique<RecordedGraph>();
    graph->key = key;
    built.push_back((key.transition ? "transition " : "variant ") + std::to_string(key.index));
    return graph;
  }
  absl::Status upload(Graph &graph) override {
    static_cast<RecordedGraph &>(graph).uploaded = true;
    return absl::OkStatus();
  }
  kernels::IterationMeta *meta() override { return reinterpret_cast<kernels::IterationMeta *>(staging.data()); }
  absl::Status launch(Graph &graph, const LaunchInUse &all) override {
    const InUse &inUse = all.of(0);
    told.push_back(inUse.kvBlocks);
    written.emplace_back(inUse.writtenBegin, inUse.writtenEnd);
    const auto &recorded = static_cast<RecordedGraph &>(graph);
    EXPECT_TRUE(recorded.uploaded);
    launched.push_back((recorded.key.transition ? "transition " : "variant ") + std::to_string(recorded.key.index));
    return launchStatus;
  }
  absl::StatusOr<std::optional<WrongNumber>> findWrongNumber(uint32_t variant, const LaunchInUse &) override {
    launched.push_back("search of variant " + std::to_string(variant));
    return wrong;
  }
  absl::StatusOr<absl::Span<const int32_t>> awaitTokens(uint64_t iteration) override {
    token = static_cast<int32_t>(iteration);
    return absl::MakeConstSpan(&token, 1);
  }
  int64_t tokensVisibleNs(uint64_t) const override { return 0; }
  absl::Status drain() override { return absl::OkStatus(); }
  int64_t nowNs() const override { return 0; }
  absl::Status waitUntil(int64_t) override { return absl::OkStatus(); }
  DeviceCounters counters() const override {
    return {.peakDeviceBytes = arena.size() + extraArena, .hostBytes = slab.size(), .graphBytes = 100 * built.size()};
  }
  absl::Span<const StepTime> lastTimes() const override { return {}; }

  std::vector<std::byte> arena, slab;
  std::vector<uint64_t> staging;
  std::vector<std::string> built, launched;
  std::vector<std::vector<BlockCopy>> beside;       // by ticket
  std::vector<int64_t> told;                        // a launch: InUse::kvBlocks of the first mini-batch
  std::vector<std::pair<int64_t, int64_t>> written; // a launch: InUse::writtenBegin, writtenEnd
  absl::Status launchStatus;
  std::optional<WrongNumber> wrong; // what a search finds
  uint64_t extraArena = 0;
  int32_t token = 0;
};

// Every byte of a unit is the unit's index plus one.
class MarkedWeights final : public model::WeightSource {
public:
  explicit MarkedWeights(const model::ModelSpec &spec) : layout_(model::layoutWeights(spec)) {}
  absl::Status fill(const model::Unit &unit, model::MatrixOrder order, absl::Span<std::byte> out) const override {
    EXPECT_EQ(order, model::MatrixOrder::RowMajor);
    EXPECT_EQ(out.size(), unit.bytes);
    for (size_t u = 0; u < layout_.units.size(); ++u)
      if (layout_.units[u].name == unit.name)
        std::memset(out.data(), static_cast<int>(u + 1), out.size());
    if (unit.name == failAt)
      return absl::DataLossError("unit " + unit.name + " is truncated");
    return absl::OkStatus();
  }
  std::string failAt;

private:
  const model::WeightLayout layout_;
};

inline std::unique_ptr<Runtime> mustLoad(const plan::Plan &plan, Device &device) {
  const MarkedWeights weights(plan.model);
  auto runtime = Runtime::load(plan, device, {}, &weights, {});
  EXPECT_TRUE(runtime.ok()) << runtime.status();
  return runtime.ok() ? *std::move(runtime) : nullptr;
}

} // namespace headrace::core
