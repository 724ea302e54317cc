// SPDX-License-Identifier: Apache-2.0
//
// What the engine's thread takes of an iteration, the device's calls apart: a device that does nothing, all seats taken
// by sequences that decode, each with its own length, so that they join and leave (bound 10 us and 0.2 us a sequence).
#include <benchmark/benchmark.h>

#include <array>
#include <cstdlib>
#include <vector>

#include "runtime/serve/engine/Engine.h"
#include "tests/support/TinyPlan.h"

namespace headrace::serve {
namespace {

// Takes launches, and gives the same token for all of them.
class IdleDevice final : public core::Device {
public:
  std::string_view kind() const override { return "idle"; }
  kernels::Order matrixOrder() const override { return kernels::Order::RowMajor; }
  bool holdsData() const override { return false; }
  absl::Status open(const plan::Plan &plan, const core::DeviceOptions &) override {
    for (std::vector<uint64_t> &one : meta_) {
      one.resize(kernels::metaBytes(plan.metaLayout) / sizeof(uint64_t));
      kernels::initMeta(plan.metaLayout, reinterpret_cast<kernels::IterationMeta *>(one.data()));
    }
    counters_.peakDeviceBytes = plan.arenaBytes;
    counters_.hostBytes = plan.hostBytes;
    tokens_.assign(static_cast<size_t>(plan.metaLayout.maxSequences), 7);
    return absl::OkStatus();
  }
  absl::Span<std::byte> hostSlab() override { return {}; }
  absl::Status writeDevice(uint64_t, absl::Span<const std::byte>) override { return absl::OkStatus(); }
  absl::Status readDevice(uint64_t, absl::Span<std::byte>) override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<core::Graph>> build(const core::GraphKey &) override {
    return std::make_unique<core::Graph>();
  }
  absl::Status upload(core::Graph &) override { return absl::OkStatus(); }
  kernels::IterationMeta *meta() override {
    return reinterpret_cast<kernels::IterationMeta *>(meta_[launched_ % 2].data());
  }
  absl::Status launch(core::Graph &, const core::InUse &) override {
    sampled_[launched_ % 2] = static_cast<size_t>(meta()->numSampled);
    ++launched_;
    return absl::OkStatus();
  }
  absl::StatusOr<absl::Span<const int32_t>> awaitTokens(uint64_t iteration) override {
    return absl::MakeConstSpan(tokens_).first(sampled_[(iteration - 1) % 2]);
  }
  int64_t tokensVisibleNs(uint64_t iteration) const override { return static_cast<int64_t>(iteration); }
  absl::Status drain() override { return absl::OkStatus(); }
  int64_t nowNs() const override { return static_cast<int64_t>(launched_); }
  absl::Status waitUntil(int64_t) override { return absl::OkStatus(); }
  core::DeviceCounters counters() const override { return counters_; }
  absl::Span<const core::StepTime> lastTimes() const override { return {}; }

private:
  std::array<std::vector<uint64_t>, 2> meta_;
  std::array<size_t, 2> sampled_{};
  std::vector<int32_t> tokens_;
  core::DeviceCounters counters_;
  uint64_t launched_ = 0;
};

void iteration(benchmark::State &state) {
  const int64_t seqs = state.range(0), context = 512;
  const plan::Plan plan = core::tinyPlan(
      {.spec = core::tinyLlama(1), .batch = seqs, .promptTokens = seqs + 64, .context = context, .blockTokens = 16});
  IdleDevice device;
  const auto runtime = core::Runtime::load(plan, device, {}, nullptr, {});
  if (!runtime.ok())
    return state.SkipWithError(runtime.status().ToString().c_str());
  uint64_t live = 0, requests = 0;
  EngineOptions options;
  options.onEnd = [&](const EngineEnd &) { --live; };
  const auto engine = Engine::create(**runtime, options);
  if (!engine.ok())
    return state.SkipWithError(engine.status().ToString().c_str());
  const auto fill = [&] {
    for (; live < static_cast<uint64_t>(seqs) + 8; ++live, ++requests)
      if (!(*engine)
               ->submit({.prompt = std::vector<int32_t>(1 + requests % 60, 5),
                         .maxNewTokens = 200 + static_cast<int64_t>(requests * 37 % 200),
                         .stopTokens = {1, 2}})
               .ok())
        std::abort();
  };
  fill();
  for (int warm = 0; warm < 2000; ++warm, fill())
    if (!(*engine)->step().ok())
      std::abort();
  const uint64_t before = (*engine)->counters().iterations, joined = requests;
  for (auto _ : state) {
    fill();
    const uint64_t launched = (*engine)->counters().iterations;
    while ((*engine)->counters().iterations == launched)
      if (!(*engine)->step().ok())
        std::abort();
  }
  const auto iterations = static_cast<double>((*engine)->counters().iterations - before);
  state.counters["joins"] = static_cast<double>(requests - joined) / iterations;
  state.counters["running"] = static_cast<double>((*engine)->running());
}

BENCHMARK(iteration)->Arg(1)->Arg(8)->Arg(64)->Arg(256)->Name("engine/iteration");

} // namespace
} // namespace headrace::serve
