// SPDX-License-Identifier: Apache-2.0
//
// What the host device itself costs, apart from kernels and copies:
//
//   host_lanes_bench [iterations] [compute core] [transfer core]
//
// An interval-2, 32-layer plan (every second layer offloaded, four copies each, all edges kept) with empty kernels and
// zero-byte copies; then with copies, or kernels, that take long enough for whoever waits to be asleep; then a model of
// a few megabytes with its real kernels.
#include <atomic>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "runtime/core/MetaWriter.h"
#include "runtime/core/Runtime.h"
#include "runtime/host/HostDevice.h"
#include "runtime/host/Signals.h"
#include "tests/unit/core/TinyPlan.h"

namespace headrace::host {
namespace {

struct Settings {
  int iterations = 2000;
  core::DeviceOptions device;
};

double quantile(std::vector<int64_t> &values, double q) {
  if (values.empty())
    return 0;
  std::sort(values.begin(), values.end());
  return static_cast<double>(values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))]) * 1e-3;
}

void print(const char *what, std::vector<int64_t> values) {
  std::printf("%-64s p50 %9.3f us  p99 %9.3f us  (%zu)\n", what, quantile(values, 0.5), quantile(values, 0.99),
              values.size());
}

void check(const absl::Status &status) {
  if (status.ok())
    return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

plan::Plan lanePlan() {
  core::TinyPlanOptions options{.spec = core::tinyLlama(32)};
  for (int64_t layer = 1; layer < 32; layer += 2)
    options.offloaded.push_back(layer);
  plan::Plan plan = core::tinyPlan(options);
  for (plan::Schedule &schedule : plan.schedules)
    for (const plan::Step &step : schedule.steps)
      if (step.kind == plan::StepKind::Copy)
        schedule.operands[step.firstOperand].bytes = schedule.operands[step.firstOperand + 1].bytes = 0;
  return plan;
}

// Launches variant 0 (decode, one row) again and again; `onIteration` sees the device after each.
template <typename F>
void run(const plan::Plan &plan, core::Device &device, const core::DeviceOptions &options, int iterations,
         F onIteration) {
  check(device.open(plan, options));
  auto graph = device.build({.transition = false, .index = 0});
  check(graph.status());
  check(device.upload(**graph));
  const int32_t token = 1, block = 1;
  for (int i = 0; i < iterations; ++i) {
    const core::SequenceRows rows{.tokens = {&token, 1}, .blocks = {&block, 1}, .sample = true};
    check(core::writeMeta(plan.metaLayout, plan.blockTokens, {&rows, 1}, device.meta()));
    const int64_t start = device.nowNs();
    check(device.launch(**graph));
    check(device.drain());
    onIteration(device.nowNs() - start);
  }
}

void emptyKernel(const void *) {}
void busyKernel(const void *) {
  for (const int64_t end = monotonicNs() + 100'000; monotonicNs() < end;) {
  }
}

// Gaps between the end of one compute step and the start of the next with nothing to wait for, and between the end of
// what a waiting step waited for last and its start.
struct Gaps {
  std::vector<int64_t> sameLane, toCompute, toCopy;
};
void addGaps(const plan::Schedule &schedule, absl::Span<const core::StepTime> times, Gaps &gaps) {
  std::vector<int64_t> previous(plan::kLanes, -1);
  std::vector<int64_t> neededNs(schedule.steps.size(), 0);
  for (const plan::Edge &edge : schedule.edges)
    neededNs[edge.to] = std::max(neededNs[edge.to], times[edge.from].endNs);
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const size_t lane = static_cast<size_t>(schedule.steps[i].lane);
    if (neededNs[i] == 0 && lane == 0 && previous[lane] > 0)
      gaps.sameLane.push_back(times[i].startNs - previous[lane]);
    if (neededNs[i] > previous[lane] && previous[lane] > 0) // the other lane was later
      (lane == 0 ? gaps.toCompute : gaps.toCopy).push_back(times[i].startNs - neededNs[i]);
    previous[lane] = times[i].endNs;
  }
}

void measureLanes(const Settings &settings) {
  plan::Plan plan = lanePlan();
  const plan::Schedule &schedule = plan.schedules[plan.variants[0].schedule];
  const size_t steps =
      static_cast<size_t>(std::count_if(schedule.steps.begin(), schedule.steps.end(),
                                        [](const plan::Step &step) { return step.lane == plan::Lane::Compute; }));
  std::printf("plan: 32 layers, interval 2: %zu compute steps, %zu copies, %zu edges\n", steps,
              schedule.steps.size() - steps, schedule.edges.size());

  core::DeviceOptions options = settings.device;
  plan.hardware.copyLatency = 0;
  {
    std::vector<int64_t> whole, perStep;
    auto device = makeHostDevice({.replaceKernels = emptyKernel});
    run(plan, *device, options, settings.iterations, [&](int64_t ns) { whole.push_back(ns); });
    print("empty kernels, zero-byte copies: launch to end of iteration", whole);
    plan::Plan resident = core::tinyPlan({.spec = core::tinyLlama(32)});
    auto residentDevice = makeHostDevice({.replaceKernels = emptyKernel});
    run(resident, *residentDevice, options, settings.iterations,
        [&](int64_t ns) { perStep.push_back(ns * 1000 / static_cast<int64_t>(steps)); });
    for (int64_t &ps : perStep)
      ps /= 1000;
    print("  no copies: iteration / compute steps", perStep);
  }
  options.trace = true;
  const auto traced = [&](kernels::HostKernel kernel, int iterations) {
    Gaps gaps;
    auto device = makeHostDevice({.replaceKernels = kernel});
    run(plan, *device, options, iterations, [&](int64_t) { addGaps(schedule, device->lastTimes(), gaps); });
    return gaps;
  };
  Gaps gaps = traced(emptyKernel, settings.iterations);
  print("compute to compute (traced: one clock read included)", gaps.sameLane);
  print("copy to compute, waiter awake or spinning", gaps.toCompute);
  print("compute to copy, waiter awake or spinning", gaps.toCopy);
  plan.hardware.copyLatency = 100e-6;
  print("copy to compute, waiter asleep (copies of 100 us)", traced(emptyKernel, settings.iterations / 10).toCompute);
  plan.hardware.copyLatency = 0;
  print("compute to copy, waiter asleep (kernels of 100 us)", traced(busyKernel, settings.iterations / 20).toCopy);
}

// Two threads that wake each other with nothing around it; each waits long enough to sleep.
void measureSignals(int iterations) {
  Signals signals;
  std::vector<int64_t> latency;
  int64_t cpuNs = 0;
  std::atomic<int64_t> rungNs{0};
  std::thread waiter([&] {
    const auto cpu = [] {
      timespec t;
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
      return static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
    };
    const int64_t before = cpu();
    for (int i = 1; i <= iterations; ++i) {
      signals.wait(Thread::Compute, {Counter::H2D, static_cast<uint64_t>(i)});
      latency.push_back(monotonicNs() - rungNs.load(std::memory_order_relaxed));
    }
    cpuNs = cpu() - before;
  });
  for (int i = 1; i <= iterations; ++i) {
    const int64_t until = monotonicNs() + 200'000;
    while (monotonicNs() < until) {
    }
    rungNs.store(monotonicNs(), std::memory_order_relaxed);
    signals.advance(Counter::H2D, static_cast<uint64_t>(i));
  }
  waiter.join();
  print("advance to return from wait, waiter asleep (200 us apart)", latency);
  std::printf("%-64s %9.3f us of CPU a wait, spin and system calls\n", "",
              static_cast<double>(cpuNs) / iterations * 1e-3);
}

// How long after the link would have delivered the last byte of a copy its end is seen.
void measurePacing(const Settings &settings) {
  plan::Plan plan = core::tinyPlan({.spec = core::tinyLlama(1), .offloaded = {0}});
  plan.hardware.copyLatency = 10e-6;
  const plan::Schedule &schedule = plan.schedules[plan.variants[0].schedule];
  core::DeviceOptions options = settings.device;
  options.trace = true;
  options.linkBandwidth = 1e9;
  std::vector<int64_t> late;
  auto device = makeHostDevice({.replaceKernels = emptyKernel});
  run(plan, *device, options, settings.iterations / 10, [&](int64_t) {
    int64_t dueNs = -1;
    for (size_t i = 0; i < schedule.steps.size(); ++i) {
      if (schedule.steps[i].kind != plan::StepKind::Copy)
        continue;
      const core::StepTime &time = device->lastTimes()[i];
      dueNs = (dueNs < 0 ? time.startNs : dueNs) + 10'000 + static_cast<int64_t>(schedule.steps[i].linkBytes);
      late.push_back(time.endNs - dueNs);
    }
  });
  print("paced copies of 20 to 60 KB at 1 GB/s: seen after their time", late);
}

void measureRealKernels(const Settings &settings) {
  core::TinyPlanOptions planOptions{.spec = core::tinyLlama(8), .context = 256, .blockTokens = 16};
  planOptions.spec.hidden = 512;
  planOptions.spec.heads = 8;
  planOptions.spec.kvHeads = 8;
  planOptions.spec.headDim = 64;
  planOptions.spec.intermediate = 1408;
  planOptions.spec.vocab = 8000;
  const plan::Plan plan = core::tinyPlan(planOptions);
  core::DeviceOptions options = settings.device;
  auto device = makeHostDevice();
  const auto weights = model::syntheticWeights(1);
  options.trace = true;
  auto runtime = core::Runtime::load(plan, *device, options, weights.get(), {});
  check(runtime.status());
  const int32_t token = 1, block = 1;
  std::vector<int64_t> whole, overhead;
  for (int i = 0; i < settings.iterations / 20; ++i) {
    const core::SequenceRows rows{.tokens = {&token, 1}, .blocks = {&block, 1}, .sample = true};
    check(core::writeMeta(plan.metaLayout, plan.blockTokens, {&rows, 1}, device->meta()));
    const int64_t start = device->nowNs();
    check((*runtime)->launch(0));
    check((*runtime)->awaitTokens().status());
    whole.push_back(device->nowNs() - start);
    check(device->drain());
    int64_t kernelNs = 0;
    for (const core::StepTime &time : device->lastTimes())
      kernelNs += time.endNs - time.startNs;
    overhead.push_back(whole.back() - kernelNs);
  }
  print("real kernels, 8 layers of 512, one row: launch to tokens read", whole);
  print("  of that, not in kernels", overhead);
  std::printf("%-64s p50 %9.3f %%\n", "  overhead", 100 * quantile(overhead, 0.5) / quantile(whole, 0.5));
}

} // namespace
} // namespace headrace::host

int main(int argc, char **argv) {
  headrace::host::Settings settings;
  if (argc > 1)
    settings.iterations = std::atoi(argv[1]);
  if (argc > 2)
    settings.device.computeCore = std::atoi(argv[2]);
  if (argc > 3)
    settings.device.transferCore = std::atoi(argv[3]);
  if (settings.iterations < 100) {
    std::fprintf(stderr, "usage: host_lanes_bench [iterations >= 100] [compute core] [transfer core]\n");
    return 2;
  }
  headrace::host::measureLanes(settings);
  headrace::host::measureSignals(settings.iterations / 10);
  headrace::host::measurePacing(settings);
  headrace::host::measureRealKernels(settings);
  return 0;
}
