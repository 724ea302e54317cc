// SPDX-License-Identifier: Apache-2.0
//
// What measuring steps costs those that are measured: the same iterations with graphs that nothing looks at, with CUPTI
// beside them, and with time stamps in them.
#include "bench/cuda/Parts.h"
#include "bench/cuda/Session.h"
#include "bench/cuda/Tracing.h"
#include "runtime/cuda/CuptiTrace.h"
#include "runtime/cuda/DynamicLibrary.h"

namespace headrace::bench {

std::string whyNot(cuda::TraceBy by) {
  if (by != cuda::TraceBy::Cupti)
    return "";
  const auto started = cuda::CuptiTrace::start(cuda::cuptiSearchPath(""));
  return started.ok() ? "" : std::string(started.status().message());
}

namespace {

enum class Look { None, Cupti, Stamps };

Json traced(const Context &context, const std::string &model, int64_t interval, const LayerWeights &weights,
            Look look) {
  const cuda::TraceBy by = look == Look::Stamps ? cuda::TraceBy::Stamps : cuda::TraceBy::Cupti;
  if (look == Look::Cupti)
    if (const std::string why = whyNot(by); !why.empty())
      return {{"unavailable", why}};
  const model::ModelSpec spec = openShape(model);
  const Cell cell = cellsOf(spec).front();
  Session session(take(planRound({.spec = spec,
                                  .hardware = openProfile(context.deviceName),
                                  .deviceMemory = 60 * kGiB,
                                  .cells = {cell},
                                  .intervals = {interval}})),
                  weights, {.cuda = {.index = context.device, .traceBy = by}, .trace = look != Look::None});
  const Played played = session.play(0, cell, {.warmUp = 10, .most = 300, .seconds = 4});
  std::vector<double> drainUs;
  double at = 0;
  const Played single = session.play(0, cell, {.warmUp = 2, .most = 20, .seconds = 2, .inFlight = 1}, [&] {
    at = nowSeconds();
    const absl::Status status = session.device().drain();
    drainUs.push_back((nowSeconds() - at) * 1e6);
    return status;
  });
  return {{"ms", median(played.ms)},        {"p99 ms", quantile(played.ms, 0.99)},
          {"iterations", played.ms.size()}, {"launch us", median(single.launchUs)},
          {"drain us", median(drainUs)},    {"steps", session.scheduleOf(played.variant).steps.size()}};
}

} // namespace

void measureTracing(const Context &context) {
  Report &report = context.report;
  report.part("tracing",
              "decode of 32 sequences at 256; median gap between tokens of up to 300 iterations, two in flight; drain: "
              "reading the times of one iteration");
  std::map<std::string, std::unique_ptr<LayerWeights>> weights;
  std::vector<Report::Task> tasks;
  for (const auto &[model, interval] : {std::pair<std::string, int64_t>{"tinyllama-1.1b", 0}, {"opt-6.7b", 4}})
    for (const Look look : {Look::None, Look::Cupti, Look::Stamps})
      tasks.push_back({model + ", " + placementName(interval) +
                           (look == Look::None    ? ", plain"
                            : look == Look::Cupti ? ", CUPTI"
                                                  : ", time stamps"),
                       25, [&weights, &context, model = model, interval = interval, look] {
                         std::unique_ptr<LayerWeights> &of = weights[model];
                         if (of == nullptr)
                           of = std::make_unique<LayerWeights>(openShape(model));
                         return traced(context, model, interval, *of, look);
                       }});
  report.attempt(tasks);
}

} // namespace headrace::bench
