// SPDX-License-Identifier: Apache-2.0
//
// What the host device itself costs, apart from kernels and copies, as quantiles:
//
//   bench_host [--iterations N] [--compute-core N] [--transfer-core N] [--benchmark_out=FILE]
//
// An interval-2, 32-layer plan (every second layer offloaded, four copies each, all edges kept) with empty kernels and
// zero-byte copies; then with copies, or kernels, that take long enough for whoever waits to be asleep; 40 copies of
// other sizes at each launch; then a model of a few megabytes with its real kernels. Beside the wake-ups stands what a
// bare futex takes on this machine: no thread that sleeps until it is woken can be faster. Lanes are pinned, to cores 0
// and 1 unless told otherwise.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/Lanes.h"
#include "bench/host/HostBench.h"
#include "runtime/core/GraphSteps.h"
#include "runtime/core/MetaWriter.h"
#include "runtime/core/Runtime.h"
#include "runtime/host/Signals.h"
#include "tests/support/KvCopies.h"
#include "tests/support/TinyPlan.h"

namespace headrace::host {
namespace {

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
  for (const int64_t end = threads::monotonicNs() + 100'000; threads::monotonicNs() < end;) {
  }
}

constexpr kernels::HostKernel kEmpty = kernels::wholeKernel<emptyKernel>(), kBusy = kernels::wholeKernel<busyKernel>();

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

  core::DeviceOptions options;
  plan.hardware.copyLatency = 0;
  {
    std::vector<int64_t> whole, perStep;
    auto device = makeHostDevice(settings.with(kEmpty));
    run(plan, *device, options, settings.iterations, [&](int64_t ns) { whole.push_back(ns); });
    report("iteration", "empty kernels, zero-byte copies: launch to end", whole);
    plan::Plan resident = core::tinyPlan({.spec = core::tinyLlama(32)});
    auto residentDevice = makeHostDevice(settings.with(kEmpty));
    run(resident, *residentDevice, options, settings.iterations,
        [&](int64_t ns) { perStep.push_back(ns * 1000 / static_cast<int64_t>(steps)); });
    for (int64_t &ps : perStep)
      ps /= 1000;
    report("step", "  no copies: iteration / compute steps", perStep, 0.5);
  }
  options.trace = true;
  const auto traced = [&](kernels::HostKernel kernel, int iterations) {
    Gaps gaps;
    auto device = makeHostDevice(settings.with(kernel));
    run(plan, *device, options, iterations, [&](int64_t) { addGaps(schedule, device->lastTimes(), gaps); });
    return gaps;
  };
  Gaps gaps = traced(kEmpty, settings.iterations);
  report("compute_to_compute", "compute to compute (with one clock read)", gaps.sameLane, 0.5);
  report("copy_to_compute", "copy to compute", gaps.toCompute, 6);
  report("compute_to_copy", "compute to copy", gaps.toCopy, 6);
  plan.hardware.copyLatency = 100e-6;
  report("copy_to_compute_asleep", "copy to compute, waiter asleep (copies of 100 us)",
         traced(kEmpty, settings.iterations / 10).toCompute, 6);
  plan.hardware.copyLatency = 0;
  report("compute_to_copy_asleep", "compute to copy, waiter asleep (kernels of 100 us)",
         traced(kBusy, settings.iterations / 20).toCopy, 6);
}

// Rows that are appended to a block at home on the host, at 1 MB/s: one of 256 bytes in each of two layers, a
// microsecond a byte. Their steps have the compute lane for no less than that; what is reported is how much longer.
void measureDirectWrites(const Settings &settings) {
  const plan::Plan plan = core::tinyPlan({.spec = core::tinyLlama(2), .mirroredFrom = 1});
  const plan::Schedule &schedule = plan.schedules[plan.variants[0].schedule];
  auto device = makeHostDevice(settings.host);
  std::vector<int64_t> beyond;
  core::DeviceOptions options{.linkBandwidth = 1e6, .trace = true};
  const auto weights = model::syntheticWeights(1);
  auto runtime = core::Runtime::load(plan, *device, options, weights.get(), {});
  check(runtime.status());
  const int32_t token = 1, block = 1;
  for (int i = 0; i < settings.iterations / 20; ++i) {
    const core::SequenceRows rows{.tokens = {&token, 1}, .blocks = {&block, 1}, .sample = true};
    check(core::writeMeta(plan.metaLayout, plan.blockTokens, {&rows, 1}, device->meta()));
    check((*runtime)->launch(0));
    check((*runtime)->awaitTokens().status());
    check(device->drain());
    for (size_t step = 0; step < schedule.steps.size(); ++step)
      if (plan::directToHost(schedule, schedule.steps[step])) {
        const core::StepTime &time = device->lastTimes()[step];
        beyond.push_back(time.endNs - time.startNs - 256'000);
      }
  }
  if (beyond.empty() || *std::min_element(beyond.begin(), beyond.end()) < 0) {
    std::fprintf(stderr, "bench_host: a direct write took less than its bytes do\n");
    std::exit(1);
  }
  report("direct_writes", "direct writes of 256 bytes at 1 MB/s: beyond their time", beyond);
}

// A graph with 40 resizable copies, launched with other sizes each time: what finding the sizes takes, by whatever
// thread, and what the launch call takes beside one whose sizes stay.
void measureSizes(const Settings &settings) {
  constexpr int64_t kCopies = 40;
  plan::Plan plan = core::tinyPlan({.spec = core::tinyLlama(kCopies)});
  plan.hardware.copyLatency = 0;
  core::KvCopies copies;
  core::addKvCopies(plan, copies);
  const plan::Schedule &schedule = plan.schedules[plan.variants[0].schedule];
  std::vector<std::byte> memory(std::max(plan.arenaBytes, plan.hostBytes));
  std::vector<core::CopySides> sides;
  for (uint32_t step = 0; step < kCopies; ++step) {
    const auto copy =
        core::copySides(plan, schedule, step, {{memory.data(), memory.data()}, plan.arenaBytes, plan.hostBytes});
    check(copy.status());
    sides.push_back(*copy);
  }
  std::vector<int64_t> finding;
  std::atomic<uint64_t> found{0};
  const auto inUse = [&](int i) { return core::InUse{.kvBlocks = copies.firstBlock + i % copies.blocks}; };
  for (int i = 0; i < settings.iterations; ++i) {
    const int64_t start = threads::monotonicNs();
    uint64_t bytes = 0;
    for (const core::CopySides &copy : sides)
      bytes += copy.bytesIn(inUse(i));
    finding.push_back(threads::monotonicNs() - start);
    found += bytes;
  }
  report("sizes", "40 sizes of a launch, found", finding, 1);
  for (const bool change : {false, true}) {
    auto device = makeHostDevice(settings.with(kEmpty));
    check(device->open(plan, {}));
    auto graph = device->build({.transition = false, .index = 0});
    check(graph.status());
    check(device->upload(**graph));
    const int32_t token = 1, block = 1;
    std::vector<int64_t> calls;
    for (int i = 0; i < settings.iterations; ++i) {
      const core::SequenceRows rows{.tokens = {&token, 1}, .blocks = {&block, 1}, .sample = true};
      check(core::writeMeta(plan.metaLayout, plan.blockTokens, {&rows, 1}, device->meta()));
      const int64_t start = device->nowNs();
      check(device->launch(**graph, inUse(change ? i : 0)));
      calls.push_back(device->nowNs() - start);
      check(device->drain());
    }
    report(change ? "launch_sizes" : "launch_same_sizes",
           change ? "  launch call, other sizes each time" : "  launch call, the same sizes", calls);
  }
}

// How long after the link would have delivered the last byte of a copy its end is seen.
void measurePacing(const Settings &settings) {
  plan::Plan plan = core::tinyPlan({.spec = core::tinyLlama(1), .offloaded = {0}});
  plan.hardware.copyLatency = 10e-6;
  const plan::Schedule &schedule = plan.schedules[plan.variants[0].schedule];
  const core::DeviceOptions options{.linkBandwidth = 1e9, .trace = true};
  std::vector<int64_t> late;
  auto device = makeHostDevice(settings.with(kEmpty));
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
  report("pacing", "paced copies of 20 to 60 KB at 1 GB/s: seen after their time", late);
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
  auto device = makeHostDevice(settings.host);
  const auto weights = model::syntheticWeights(1);
  auto runtime = core::Runtime::load(plan, *device, {.trace = true}, weights.get(), {});
  check(runtime.status());
  const int32_t token = 1, block = 1;
  const auto launch = [&] {
    const core::SequenceRows rows{.tokens = {&token, 1}, .blocks = {&block, 1}, .sample = true};
    check(core::writeMeta(plan.metaLayout, plan.blockTokens, {&rows, 1}, device->meta()));
    check((*runtime)->launch(0));
  };
  // Pairs of iterations, the second launched while the first runs: its tokens' distance from the first's is an
  // iteration as an engine sees it, and its own kernels are in the trace.
  std::vector<int64_t> whole, outside;
  uint64_t number = 0;
  for (int i = 0; i < settings.iterations / 20; ++i) {
    launch();
    launch();
    check((*runtime)->awaitTokens().status());
    check((*runtime)->awaitTokens().status());
    number += 2;
    whole.push_back(device->tokensVisibleNs(number) - device->tokensVisibleNs(number - 1));
    check(device->drain());
    int64_t kernelNs = 0;
    for (const core::StepTime &time : device->lastTimes())
      kernelNs += time.endNs - time.startNs;
    outside.push_back(whole.back() - kernelNs);
  }
  report("real_iteration", "real kernels, 8 layers of 512, one row: an iteration", whole);
  report("real_outside", "  of that, not in kernels", outside);
  reportShare("overhead", "  share", quantile(outside, 0.5) / quantile(whole, 0.5), 0.01);
}

} // namespace
} // namespace headrace::host

int main(int argc, char **argv) {
  headrace::host::Settings settings;
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  settings.host.computeCore = 0;
  settings.host.transferCore = cores > 1 ? 1 : 0;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const std::string out = "--benchmark_out=";
    if (flag.rfind(out, 0) == 0)
      settings.json = flag.substr(out.size());
    else if (flag == "--iterations" && i + 1 < argc)
      settings.iterations = std::max(100, std::atoi(argv[++i]));
    else if (flag == "--compute-core" && i + 1 < argc)
      settings.host.computeCore = std::atoi(argv[++i]);
    else if (flag == "--transfer-core" && i + 1 < argc)
      settings.host.transferCore = std::atoi(argv[++i]);
    else if (flag.rfind("--benchmark_", 0) != 0) { // the rest of what scripts/bench says to every program
      std::fprintf(
          stderr, "usage: bench_host [--iterations N] [--compute-core N] [--transfer-core N] [--benchmark_out=FILE]\n");
      return 2;
    }
  }
  const headrace::threads::AwakeCores awake = headrace::bench::askLowLatency("bench_host", settings.host);
  headrace::host::measureLanes(settings);
  headrace::host::measureSizes(settings);
  headrace::host::measureDirectWrites(settings);
  headrace::host::measureSignals(settings);
  headrace::host::measurePacing(settings);
  headrace::host::measureRealKernels(settings);
  if (!settings.json.empty())
    std::ofstream(settings.json)
        << nlohmann::json{{"low_latency", settings.host.lowLatency}, {"benchmarks", headrace::host::results()}}.dump(1)
        << "\n";
  return 0;
}
