// SPDX-License-Identifier: Apache-2.0
//
// How much of its copies a graph hides behind kernels: step by step, of both builders, with copies in both directions
// that go to copy engines' queues or do not.
#include <map>

#include "bench/cuda/Parts.h"
#include "bench/cuda/Session.h"
#include "bench/cuda/Tracing.h"
#include "bench/figures/Times.h"

namespace headrace::bench {
namespace {

const char *channelName(cuda::ChannelType type) {
  switch (type) {
  case cuda::ChannelType::Compute:
    return "copies on compute queues";
  case cuda::ChannelType::AsyncCopy:
    return "copies on copy engines";
  case cuda::ChannelType::Decompression:
    return "copies on decompression engines";
  case cuda::ChannelType::Unknown:
    break;
  }
  return "copies on unknown queues";
}

double share(int64_t part, int64_t of) { return of == 0 ? 0 : static_cast<double>(part) / static_cast<double>(of); }

Json overlapOf(const Context &context, const plan::Plan &plan, const Cell &cell, const LayerWeights &weights,
               bool capture, cuda::TraceBy by) {
  if (const std::string why = whyNot(by); !why.empty())
    return {{"unavailable", why}};
  Session session(plan, weights, {.cuda = {.index = context.device, .capture = capture, .traceBy = by}, .trace = true});
  const Played played = session.play(0, cell, {.warmUp = 2, .most = 5, .inFlight = 1});
  const plan::Schedule &schedule = session.scheduleOf(played.variant);
  const auto times = session.device().lastTimes();
  if (times.size() != schedule.steps.size())
    fail("times of " + std::to_string(times.size()) + " steps, expected " + std::to_string(schedule.steps.size()));
  std::map<plan::Lane, std::vector<Interval>> lanes;
  std::vector<Interval> all;
  for (size_t step = 0; step < times.size(); ++step) {
    const Interval one{times[step].startNs, times[step].endNs};
    lanes[schedule.steps[step].lane].push_back(one);
    all.push_back(one);
  }
  const auto kernels = united(lanes[plan::Lane::Compute]), in = united(lanes[plan::Lane::H2D]),
             out = united(lanes[plan::Lane::D2H]);
  all = united(all);
  const auto ms = [](int64_t ns) { return static_cast<double>(ns) * 1e-6; };
  Json fields = {{"iteration ms", median(played.ms)},
                 {"kernels ms", ms(length(kernels))},
                 {"h2d ms", ms(length(in))},
                 {"d2h ms", ms(length(out))},
                 {"from first to last ms", all.empty() ? 0 : ms(all.back().end - all.front().begin)},
                 {"h2d beside kernels", share(common(kernels, in), std::min(length(kernels), length(in)))},
                 {"d2h beside kernels", share(common(kernels, out), std::min(length(kernels), length(out)))},
                 {"d2h beside h2d", share(common(in, out), std::min(length(in), length(out)))},
                 {"h2d bytes", played.h2dBytes},
                 {"d2h bytes", played.d2hBytes}};
  if (const auto channels = cuda::copyChannels(session.device()); channels.ok()) {
    std::map<std::string, int> counts;
    for (const cuda::CopyChannel &copy : *channels)
      ++counts[channelName(copy.type)];
    for (const auto &[name, count] : counts)
      fields[name] = count;
  }
  const cuda::GraphCosts costs = session.costs();
  fields["nodes"] = costs.nodes;
  fields["build ms"] = ms(costs.buildNs);
  fields["instantiate ms"] = ms(costs.instantiateNs);
  return fields;
}

} // namespace

void measureOverlap(const Context &context) {
  Report &report = context.report;
  report.part("overlap",
              "one iteration of OPT-6.7B, prefill of 2,048 tokens at interval 4 with half of the KV blocks at home on "
              "the host and written back: times of all steps; 'beside': of the shorter of the two, how much is while "
              "the other runs");
  const model::ModelSpec spec = openShape("opt-6.7b");
  const Cell cell{"prefill 2048", 1, 2048, 2048, 1, false};
  std::unique_ptr<LayerWeights> weights;
  std::vector<Report::Task> tasks;
  for (const cuda::TraceBy by : {cuda::TraceBy::Cupti, cuda::TraceBy::Stamps})
    for (const bool capture : {false, true})
      tasks.push_back({std::string(capture ? "capture" : "explicit") +
                           (by == cuda::TraceBy::Cupti ? ", by CUPTI" : ", by time stamps"),
                       30, [=, &context, &weights] {
                         if (weights == nullptr)
                           weights = std::make_unique<LayerWeights>(spec);
                         const plan::Plan plan = take(planRound({.spec = spec,
                                                                 .hardware = openProfile(context.deviceName),
                                                                 .deviceMemory = 60 * kGiB,
                                                                 .cells = {cell},
                                                                 .intervals = {4},
                                                                 .kvOnDevice = 0.5}));
                         return overlapOf(context, plan, cell, *weights, capture, by);
                       }});
  report.attempt(tasks);
}

} // namespace headrace::bench
