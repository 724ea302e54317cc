// SPDX-License-Identifier: Apache-2.0
#include "tools/timeline/StagesChart.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::tools {
namespace {

using model::cat;
using Launch = WatchedGroup::Launch;

bool decodes(const plan::Plan &plan, const Launch &launch) {
  return plan.schedules[plan.variants[launch.key.index].schedule].iterationClass == plan::IterationClass::Decode;
}

// One stage's launches within [fromNs, untilNs), from there on.
class StageTrack {
public:
  StageTrack(int64_t fromNs, int64_t untilNs) : fromNs_(fromNs), spanNs_(static_cast<uint64_t>(untilNs - fromNs)) {
    track_.iterationNs = spanNs_;
  }

  // Where its rows were received from, and sent; nothing where it does not.
  struct Passed {
    int64_t receivedNs = std::numeric_limits<int64_t>::max(), sentNs = -1;
  };
  Passed add(const Track &launch, int64_t startNs, int64_t visibleNs, size_t name, size_t turn) {
    Passed passed;
    const auto number = static_cast<int32_t>(track_.launches.size());
    for (Bar bar : launch.bars) {
      if (bar.passes && bar.toHost)
        passed.sentNs = std::max(passed.sentNs, startNs + static_cast<int64_t>(bar.endNs) - fromNs_);
      else if (bar.passes)
        passed.receivedNs = std::min(passed.receivedNs, startNs + static_cast<int64_t>(bar.startNs) - fromNs_);
      bar.launch = number;
      if (!clip(bar.startNs, bar.endNs, startNs))
        continue;
      track_.busyNs[static_cast<int>(bar.lane)] += bar.endNs - bar.startNs;
      track_.bars.push_back(std::move(bar));
    }
    for (Gap gap : launch.stalls)
      if (clip(gap.startNs, gap.endNs, startNs)) {
        track_.stallNs += gap.endNs - gap.startNs;
        track_.stalls.push_back(std::move(gap));
      }
    StageLaunch of{.name = cat(name), .turn = static_cast<int32_t>(turn), .ns = launch.iterationNs};
    of.endNs = launch.iterationNs;
    if (clip(of.startNs, of.endNs, startNs)) {
      if (visibleNs > fromNs_ && visibleNs - fromNs_ <= static_cast<int64_t>(spanNs_))
        of.visibleNs = static_cast<uint64_t>(visibleNs - fromNs_);
      track_.launches.push_back(std::move(of));
    }
    return passed;
  }
  Track take() { return std::move(track_); }

private:
  bool clip(uint64_t &begin, uint64_t &end, int64_t startNs) const {
    const auto within = [&](uint64_t ns) {
      return static_cast<uint64_t>(
          std::clamp(startNs + static_cast<int64_t>(ns) - fromNs_, int64_t{0}, static_cast<int64_t>(spanNs_)));
    };
    begin = within(begin);
    end = within(end);
    return end > begin;
  }
  const int64_t fromNs_;
  const uint64_t spanNs_;
  Track track_;
};

std::string sizeText(const plan::Plan &plan, const Launch &launch) {
  const plan::Variant &variant = plan.variants[launch.key.index];
  return cat(variant.newTokens, variant.newTokens == 1 ? " new token, " : " new tokens, ", variant.sequences,
             variant.sequences == 1 ? " sequence" : " sequences", ", context ", variant.context,
             plan.miniBatches == 1 ? std::string() : cat(", in each of ", plan.miniBatches, " mini-batches"));
}

} // namespace

absl::StatusOr<StagesWindow> medianWindow(absl::Span<const plan::Plan *const> plans, const WatchedGroup &group,
                                          size_t microBatches) {
  const size_t last = plans.size() - 1;
  size_t ended = 0;
  for (const Launch &launch : group.launches(last))
    ended += launch.visibleNs >= 0 ? 1 : 0;
  const size_t count = std::min(microBatches, ended);
  if (count == 0)
    return absl::FailedPreconditionError("no iteration has passed all stages: there is none to draw");
  for (const bool prompts : {false, true}) {
    std::vector<std::pair<int64_t, size_t>> spans; // and the first
    for (size_t first = 0; first + count <= ended; ++first) {
      bool fits = true;
      for (size_t i = first; i < first + count; ++i)
        fits = fits && (prompts || decodes(*plans.front(), group.launches(0)[i]));
      if (fits)
        spans.emplace_back(group.launches(last)[first + count - 1].visibleNs - group.launches(0)[first].madeNs, first);
    }
    if (spans.empty())
      continue;
    std::sort(spans.begin(), spans.end());
    const size_t first = spans[(spans.size() - 1) / 2].second;
    return StagesWindow{
        .first = first,
        .count = count,
        .about = cat(count == 1 ? cat("iteration ", first + 1) : cat("iterations ", first + 1, " to ", first + count),
                     " of ", ended, ended == WatchedGroup::kIterations ? " watched" : "",
                     spans.size() == 1 ? std::string() : cat(", the median of ", spans.size(), " such"))};
  }
  return absl::InternalError("no iterations in a row"); // there is one at least
}

absl::StatusOr<Chart> stagesChart(absl::Span<const plan::Plan *const> plans, WatchedGroup &group,
                                  const StagesWindow &window, size_t microBatches, double linkBandwidth) {
  const size_t last = plans.size() - 1, end = window.first + window.count;
  const int64_t fromNs = group.launches(0)[window.first].madeNs;
  const int64_t untilNs = group.launches(last)[end - 1].visibleNs;
  const plan::Plan &first = *plans.front();
  const std::string device(group.device(0).kind());
  Chart chart;
  chart.modelHash = first.modelHash;
  chart.device = device;
  chart.miniBatches = first.miniBatches;
  chart.microBatches = microBatches;
  chart.launchIs = window.byTurn ? "micro-batch" : "iteration";
  chart.title = cat(model::wholeOf(first.model).name, " on ", first.hardware.name, ", ", plans.size(), " stages");
  chart.subtitle = cat(window.about, "; ", sizeText(first, group.launches(0)[window.first]));
  std::vector<std::vector<StageTrack::Passed>> passed(plans.size()); // by launch
  for (size_t s = 0; s < plans.size(); ++s) {
    const plan::Plan &plan = *plans[s];
    StageTrack stage(fromNs, untilNs);
    const std::vector<Launch> &launches = group.launches(s);
    passed[s].resize(launches.size());
    std::vector<plan::Lane> lanes;
    for (size_t n = 0; n < launches.size(); ++n) {
      const Launch &launch = launches[n];
      const bool before = n + 1 < launches.size() && launches[n + 1].visibleNs >= 0 && launches[n + 1].madeNs <= fromNs;
      if (launch.visibleNs < 0 || launch.madeNs >= untilNs || before)
        continue;
      ASSIGN_OR_RETURN(steps, group.stepsOf(s, n));
      if (steps.empty())
        continue;
      int64_t startNs = steps.front().startNs;
      for (const core::StepTime &step : steps)
        startNs = std::min(startNs, step.startNs);
      Trace trace = makeTrace(plan, device, launch.key.index, steps);
      for (uint32_t i = 0; i < plan.miniBatches; ++i)
        (i == 0 ? trace.inUse.front() : trace.inUse.emplace_back()) = launch.inUse.of(i);
      Chart own = makeChart(plan, launch.key.index, &trace, linkBandwidth);
      passed[s][n] = stage.add(own.tracks.back(), startNs, launch.visibleNs, window.byTurn ? n % microBatches : n + 1,
                               n % microBatches);
      for (const plan::Lane lane : own.lanes)
        if (std::find(chart.lanes.begin(), chart.lanes.end(), lane) == chart.lanes.end())
          chart.lanes.push_back(lane);
    }
    chart.tracks.push_back(stage.take());
    chart.tracks.back().name = cat("stage ", s);
    chart.tracks.back().about =
        cat("layers ", plan.model->stage.first, " to ", plan.model->stage.first + plan.model->layers - 1);
  }
  std::sort(chart.lanes.begin(), chart.lanes.end());
  for (size_t s = 0; s + 1 < plans.size(); ++s)
    for (size_t n = 0; n < std::min(passed[s].size(), passed[s + 1].size()); ++n)
      if (const int64_t from = passed[s][n].sentNs, to = passed[s + 1][n].receivedNs;
          from >= 0 && to >= from && to <= untilNs - fromNs)
        chart.passed.push_back({s, static_cast<uint64_t>(from), static_cast<uint64_t>(to),
                                cat(chart.launchIs, " ", window.byTurn ? n % microBatches : n + 1)});
  return chart;
}

} // namespace headrace::tools
