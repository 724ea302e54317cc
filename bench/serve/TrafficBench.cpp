// SPDX-License-Identifier: Apache-2.0
//
// An hour of traffic in virtual time: 10 requests/s of ShareGPT's lengths on OPT-13B, resident on h100, 64 seats. Wall
// time in all (bound 10 s), the sim device's calls of it, and the rest, which is the engine's and the traffic's; by
// what runs (core::Pricing), and by the bucket: what the device takes more with the former is pricing.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <type_traits>

#include "compiler/Compile.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/serve/traffic/Arrivals.h"
#include "runtime/serve/traffic/Lengths.h"
#include "runtime/serve/traffic/Metrics.h"
#include "runtime/sim/SimDevice.h"

namespace headrace::serve {
namespace {

template <class T> T must(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(value);
}

// Another device, whose calls of an iteration are timed.
class TimedDevice final : public core::Device {
public:
  explicit TimedDevice(std::unique_ptr<core::Device> on) : on_(std::move(on)) {}
  double seconds() const { return static_cast<double>(ns_) * 1e-9; }

  std::string_view kind() const override { return on_->kind(); }
  kernels::Order matrixOrder() const override { return on_->matrixOrder(); }
  bool holdsData() const override { return on_->holdsData(); }
  absl::Status open(const plan::Plan &plan, const core::DeviceOptions &options) override {
    return on_->open(plan, options);
  }
  absl::Span<std::byte> hostSlab() override { return on_->hostSlab(); }
  absl::Status writeDevice(uint64_t address, absl::Span<const std::byte> bytes) override {
    return on_->writeDevice(address, bytes);
  }
  absl::Status readDevice(uint64_t address, absl::Span<std::byte> bytes) override {
    return on_->readDevice(address, bytes);
  }
  absl::StatusOr<std::unique_ptr<core::Graph>> build(const core::GraphKey &key) override { return on_->build(key); }
  absl::Status upload(core::Graph &graph) override { return on_->upload(graph); }
  kernels::IterationMeta *meta() override {
    return timed([&] { return on_->meta(); });
  }
  absl::Status launch(core::Graph &graph, const core::LaunchInUse &inUse) override {
    return timed([&] { return on_->launch(graph, inUse); });
  }
  absl::StatusOr<absl::Span<const int32_t>> awaitTokens(uint64_t iteration) override {
    return timed([&] { return on_->awaitTokens(iteration); });
  }
  int64_t tokensVisibleNs(uint64_t iteration) const override { return on_->tokensVisibleNs(iteration); }
  absl::Status drain() override { return on_->drain(); }
  int64_t nowNs() const override { return on_->nowNs(); }
  absl::Status waitUntil(int64_t ns) override { return on_->waitUntil(ns); }
  core::DeviceCounters counters() const override { return on_->counters(); }
  absl::Span<const core::StepTime> lastTimes() const override { return on_->lastTimes(); }

private:
  using Clock = std::chrono::steady_clock;
  template <class Call> std::invoke_result_t<Call> timed(Call call) {
    const Clock::time_point start = Clock::now();
    std::invoke_result_t<Call> result = call();
    ns_ += std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
    return result;
  }

  const std::unique_ptr<core::Device> on_;
  int64_t ns_ = 0;
};

const plan::Plan &opt13b() {
  static const plan::Plan plan = [] {
    compiler::CompileRequest request;
    request.model = must(model::openModel("opt-13b")).spec;
    request.modelHash = "0";
    request.hardware = must(model::openHardware("h100"));
    request.goal.batch = 64;
    request.goal.context = 2048;
    request.goal.kvTokens = 50000;
    request.policy.name = "none";
    return must(compiler::compile(request));
  }();
  return plan;
}

void hour(benchmark::State &state, core::Pricing pricing) {
  constexpr double kRate = 10;
  constexpr int64_t kRequests = 36'000;
  const plan::Plan &plan = opt13b();
  TimedDevice device(sim::makeSimDevice());
  const auto runtime = must(core::Runtime::load(plan, device, {.pricing = pricing}, nullptr, {}));
  const std::vector<TrafficRequest> requests =
      makeRequests(must(arrivalTimes({.requestRate = kRate}, kRequests, 0)),
                   must(fittedLengths(*findLengthFit("sharegpt"), plan.maxContext, kRequests, 0)));
  TrafficOptions options;
  options.engine.maxNumSeqs = 64;
  options.keepTokenTimes = true;
  options.sampleEveryNs = 1'000'000'000;
  TrafficResult result;
  const double before = device.seconds();
  double wall = 0;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    result = must(runTraffic(*runtime, requests, options));
    wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  const TrafficMetrics metrics = summarize(result, {});
  const auto iterations = static_cast<double>(result.engine.iterations);
  double running = 0;
  for (const EngineSample &sample : result.samples)
    running += sample.running;
  const double sim = (device.seconds() - before) / static_cast<double>(state.iterations());
  state.counters["wall_s"] = wall;
  state.counters["sim_s"] = sim;
  state.counters["engine_s"] = wall - sim;
  state.counters["iterations"] = iterations;
  state.counters["sim_us_iteration"] = sim * 1e6 / iterations;
  state.counters["engine_us_iteration"] = (wall - sim) * 1e6 / iterations;
  state.counters["running"] = running / static_cast<double>(result.samples.size());
  state.counters["virtual_s"] = metrics.durationS;
  state.counters["completed"] = static_cast<double>(metrics.completed);
  state.counters["preemptions"] = static_cast<double>(metrics.preemptions);
  state.counters["ttft_ms_p99"] = metrics.ttft.percentilesMs[1];
  state.counters["itl_ms_mean"] = metrics.itl.meanMs;
}

BENCHMARK_CAPTURE(hour, rows, core::Pricing::Rows)
    ->Name("traffic/hour/rows")
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(hour, bucket, core::Pricing::Bucket)
    ->Name("traffic/hour/bucket")
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

} // namespace
} // namespace headrace::serve
