// SPDX-License-Identifier: Apache-2.0
//
// What the engine's thread takes of an iteration, the device's calls apart: a device that does nothing under a plan of
// OPT-13B on h100 with all its buckets, all seats taken by sequences of their own lengths, so that they join and leave;
// with stop ids (bound 10 us and 0.2 us a sequence, in CPU time; `share` of it).
#include <benchmark/benchmark.h>

#include <array>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "bench/serve/ServeBench.h"
#include "runtime/serve/engine/Engine.h"

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
  absl::Status launch(core::Graph &, const core::LaunchInUse &) override {
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

int64_t cpuNs() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

void iteration(benchmark::State &state) {
  const int64_t seqs = state.range(0);
  static const plan::Plan plan = optPlan("h100", {.batch = 256, .context = 512, .memoryBytes = 400'000'000'000});
  IdleDevice device;
  const auto runtime = must(core::Runtime::load(plan, device, {}, nullptr, {}));
  uint64_t live = 0, requests = 0, tokens = 0;
  EngineOptions options;
  options.maxNumSeqs = seqs;
  options.onToken = [&](const EngineToken &) { ++tokens; };
  options.onEnd = [&](const EngineEnd &) { --live; };
  const auto engine = must(Engine::create(*runtime, options));
  const auto step = [&] {
    for (; live < static_cast<uint64_t>(seqs) + 8; ++live, ++requests)
      must(engine->submit({.prompt = std::vector<int32_t>(1 + requests % 60, 5),
                           .maxNewTokens = 200 + static_cast<int64_t>(requests * 37 % 200),
                           .stopTokens = {1, 2}}));
    for (const uint64_t launched = engine->counters().iterations; engine->counters().iterations == launched;)
      must(engine->step());
  };
  for (int warm = 0; warm < 2000; ++warm)
    step();
  const uint64_t before = engine->counters().iterations, joined = requests;
  const int64_t start = cpuNs();
  for (auto _ : state)
    step();
  const auto iterations = static_cast<double>(engine->counters().iterations - before);
  const double ns = static_cast<double>(cpuNs() - start) / iterations;
  state.counters["joins"] = static_cast<double>(requests - joined) / iterations;
  state.counters["running"] = static_cast<double>(engine->running());
  state.counters["variants"] = static_cast<double>(plan.variants.size());
  state.counters["share"] = ns / (10e3 + 0.2e3 * static_cast<double>(seqs));
}

BENCHMARK(iteration)->Arg(1)->Arg(16)->Arg(64)->Arg(256)->Name("engine/iteration");

} // namespace
} // namespace headrace::serve
