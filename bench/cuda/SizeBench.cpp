// SPDX-License-Identifier: Apache-2.0
//
// Changing the sizes of an executable's copies before a launch: what each change takes on the host, and whether the
// launch behind it starts later.
#include "bench/cuda/Parts.h"
#include "bench/cuda/Session.h"
#include "bench/cuda/Topology.h"
#include "bench/iterations/RecordVariant.h"

namespace headrace::bench {
namespace {

constexpr int kRun = 20; // launches, fewer of many copies

// The graph of a plan, its copies of 64 KiB or half of that; of every `each`-th copy the size changes.
Json changes(Timer &timer, const cuda::RecordedGraph &recorded, size_t each) {
  constexpr size_t kBytes = 64 << 10;
  Topology topology(recorded, kBytes);
  const BenchGraph &graph = topology.graph;
  topology.graph.build(timer.stream());
  const int run = graph.heldLaunches(kRun);
  std::vector<double> us; // of one change
  bool half = false;
  size_t changed = 0;
  const auto change = [&] {
    half = !half;
    changed = 0;
    const double at = nowSeconds();
    for (size_t i = 0; i < topology.copies.size(); i += each, ++changed) {
      const Topology::Copy &copy = topology.copies[i];
      must(cudaGraphExecMemcpyNodeSetParams1D(graph.executable(), copy.node, copy.to, copy.from,
                                              half ? kBytes / 2 : kBytes, copy.kind),
           "cudaGraphExecMemcpyNodeSetParams1D");
    }
    us.push_back((nowSeconds() - at) * 1e6);
  };
  // Behind a launch that has not ended, as a server's: all of it is enqueued before the GPU starts.
  const auto launches = [&](bool changing) {
    std::vector<double> launchUs;
    const double ms = timer.medianMs(5, [&](cudaStream_t stream) {
      for (int i = 0; i < run; ++i) {
        if (changing)
          change();
        const double at = nowSeconds();
        graph.launch(stream);
        launchUs.push_back((nowSeconds() - at) * 1e6);
      }
    });
    return std::pair{ms / run * 1e3, median(launchUs)};
  };
  const auto [plainUs, plainLaunch] = launches(false);
  const auto [changedUs, changedLaunch] = launches(true);
  return {{"nodes", graph.nodes()},
          {"copies", topology.copies.size()},
          {"changed", changed},
          {"changes us", median(us)},
          {"a change us", changed == 0 ? 0 : median(us) / static_cast<double>(changed)},
          {"launch us", plainLaunch},
          {"launch after changes us", changedLaunch},
          {"device us", plainUs},
          {"device us with changes", changedUs},
          {"gap us", changedUs - plainUs}};
}

// As the device does it: the number of blocks in use goes up and down under a plan whose tails are on the host.
Json inUse(const Context &context, const model::ModelSpec &spec) {
  const Cell large{"decode 32 at 512", 32, 1, 512, 32, false}, small{"decode 32 at 384", 32, 1, 384, 32, false};
  const LayerWeights weights(spec);
  Session session(take(planRound({.spec = spec,
                                  .hardware = openProfile(context.deviceName),
                                  .deviceMemory = 20 * kGiB,
                                  .cells = {large},
                                  .intervals = {0},
                                  .kvOnDevice = 0.5})),
                  weights, {.cuda = {.index = context.device}});
  const Played steady = session.play(0, large, {.warmUp = 5, .most = 100, .seconds = 3, .inFlight = 1});
  const uint64_t before = session.device().counters().sizesSet;
  std::vector<double> ms, launchUs;
  for (int i = 0; i < 20; ++i) { // the second iteration of each finds its sizes set
    const Played played =
        session.play(0, i % 2 == 0 ? small : large, {.warmUp = 0, .most = 2, .seconds = 3, .inFlight = 1});
    launchUs.push_back(played.launchUs.front());
    ms.insert(ms.end(), played.ms.begin(), played.ms.end());
  }
  return {{"sizes set a change", static_cast<double>(session.device().counters().sizesSet - before) / 20},
          {"launch us", median(steady.launchUs)},
          {"launch us with changes", median(launchUs)},
          {"iteration ms", median(steady.ms)},
          {"iteration ms after a change", median(ms)},
          {"d2h bytes", steady.d2hBytes},
          {"h2d bytes", steady.h2dBytes}};
}

} // namespace

void measureSizes(const Context &context) {
  Report &report = context.report;
  report.part(
      "sizes",
      "cudaGraphExecMemcpyNodeSetParams1D on graphs with the nodes and edges of real plans, copies of 64 KiB or "
      "half of that; host time by the steady clock; device: an iteration of up to 20 launched behind a spin kernel, "
      "with and without changes in between; in use: TinyLlama-1.1B with half of its KV blocks on the host");
  Timer timer;
  std::vector<Report::Task> tasks;
  for (const int64_t interval : {4, 1})
    for (const size_t each : {size_t{1}, size_t{8}})
      tasks.push_back(
          {"opt-6.7b, interval " + std::to_string(interval) + (each == 1 ? ", every copy" : ", every 8th copy"), 6,
           [=, &timer, &context] {
             const model::ModelSpec spec = openShape("opt-6.7b");
             const plan::Plan plan = take(planRound({.spec = spec,
                                                     .hardware = openProfile(context.deviceName),
                                                     .deviceMemory = 60 * kGiB,
                                                     .cells = {cellsOf(spec).front()},
                                                     .intervals = {interval}}));
             return changes(timer, take(recordVariant(plan, 0)), each);
           }});
  tasks.push_back({"tinyllama-1.1b, blocks in use", 20, [&] { return inUse(context, openShape("tinyllama-1.1b")); }});
  report.attempt(tasks);
}

} // namespace headrace::bench
