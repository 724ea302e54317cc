// SPDX-License-Identifier: Apache-2.0
//
// What graphs cost: to make, to hold, to launch; chains of so many nodes, and the graphs of real plans, node for node.
#include "bench/cuda/Gpu.h"
#include "bench/cuda/Parts.h"
#include "bench/cuda/Session.h"
#include "bench/cuda/Topology.h"
#include "bench/iterations/RecordVariant.h"

namespace headrace::bench {
namespace {

constexpr int kLaunches = 101;

// Host time of a launch into a stream that has nothing to do.
double launchIdleUs(const BenchGraph &graph, cudaStream_t stream) {
  std::vector<double> us;
  for (int i = 0; i < kLaunches; ++i) {
    must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    const double at = nowSeconds();
    graph.launch(stream);
    us.push_back((nowSeconds() - at) * 1e6);
  }
  must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  return median(us);
}

// The same behind a launch of the same graph that has not ended.
double launchBehindUs(const BenchGraph &graph, Timer &timer) {
  std::vector<double> us;
  for (int i = 0; i < kLaunches; ++i) {
    timer.spin().hold(timer.stream());
    graph.launch(timer.stream());
    const double at = nowSeconds();
    graph.launch(timer.stream());
    us.push_back((nowSeconds() - at) * 1e6);
    timer.spin().letGo();
    must(cudaStreamSynchronize(timer.stream()), "cudaStreamSynchronize");
  }
  return median(us);
}

Json costsOf(BenchGraph &graph, Timer &timer) {
  const auto nodes = static_cast<double>(graph.nodes());
  const BenchGraph::Built built = graph.build(timer.stream());
  const double first = timer.medianMs(5, [&](cudaStream_t stream) { graph.launch(stream); });
  const int launches = graph.heldLaunches(11);
  const double several = timer.medianMs(5, [&](cudaStream_t stream) {
    for (int i = 0; i < launches; ++i)
      graph.launch(stream);
  });
  const double idle = launchIdleUs(graph, timer.stream()), behind = launchBehindUs(graph, timer);
  Json fields = {{"nodes", graph.nodes()},
                 {"instantiate ms", built.instantiateMs},
                 {"upload ms", built.uploadMs},
                 {"device bytes", built.deviceBytes},
                 {"launch idle us", idle},
                 {"launch behind us", behind},
                 {"launch us a node", behind / nodes},
                 {"device us", first * 1e3},
                 {"device us a node", first * 1e3 / nodes}};
  if (launches > 1)
    fields["device us, each of some more"] = (several - first) / (launches - 1) * 1e3;
  return fields;
}

// `kernelCount` in a chain; with branches, behind every eighth a copy in each direction, a chain of its own each, and
// the kernel eight later waits for the one to the device.
Json chain(Timer &timer, int kernelCount, bool branches) {
  constexpr size_t kBytes = 4096;
  EmptyKernel kernel;
  const PinnedBuffer host(2 * kBytes);
  const DeviceBuffer device(2 * kBytes);
  BenchGraph graph;
  cudaGraphNode_t last = nullptr, in = nullptr, out = nullptr;
  for (int i = 0; i < kernelCount; ++i) {
    const bool eighth = branches && i % 8 == 7;
    last = kernel.add(graph, {last, eighth ? in : nullptr});
    if (eighth) {
      in = graph.copy({last, in}, device.as(), host.as(), kBytes, cudaMemcpyHostToDevice);
      out = graph.copy({last, out}, host.as() + kBytes, device.as() + kBytes, kBytes, cudaMemcpyDeviceToHost);
    }
  }
  return costsOf(graph, timer);
}

} // namespace

void measureGraphs(const Context &context) {
  Report &report = context.report;
  report.part(
      "graphs",
      "kernels that find no work, copies of 4 KiB; graphs of real plans have the nodes and edges of the plan's; "
      "launch: host time of cudaGraphLaunch, median of 101, into an idle stream and behind a launch of the "
      "same graph that has not ended; device: by events behind a spin kernel; memory as the change of "
      "cudaMemGetInfo");
  Timer timer;
  const std::vector<int64_t> intervals = {4, 1, 2, 8, 0};
  std::vector<Report::Task> tasks;
  const auto add = [&](const std::string &model) {
    const model::ModelSpec spec = openShape(model);
    const Cell cell = cellsOf(spec).front();
    for (const int64_t interval : intervals)
      tasks.push_back({figureName(model, cell, interval), 5, [=, &timer, &context] {
                         const plan::Plan plan = take(planRound({.spec = spec,
                                                                 .hardware = openProfile(context.deviceName),
                                                                 .deviceMemory = 60 * kGiB,
                                                                 .cells = {cell},
                                                                 .intervals = {interval}}));
                         Topology topology(take(recordVariant(plan, 0)));
                         return costsOf(topology.graph, timer);
                       }});
  };
  add("opt-6.7b");
  add("llama-3.1-8b");
  for (const int kernelCount : {512, 64, 2048, 8, 256, 1024})
    for (const bool branches : {true, false})
      tasks.push_back({std::to_string(kernelCount) + " kernels, " + (branches ? "three branches" : "one chain"), 5,
                       [=, &timer] { return chain(timer, kernelCount, branches); }});
  report.attempt(tasks);
}

} // namespace headrace::bench
