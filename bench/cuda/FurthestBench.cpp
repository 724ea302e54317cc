// SPDX-License-Identifier: Apache-2.0
//
// Why the iterations furthest from what bounds them are there. Each is measured twice:
//
//   in turns       resident, with copies, the copies alone, resident, with copies, ...: what is the bound's own spread?
//                  Beside it the GPU's clock and power.
//   step by step   the same two iterations by CUPTI, or by time stamps where that is not there: which kinds of steps
//                  take longer, where do lanes wait?
#include <algorithm>
#include <fstream>
#include <memory>

#include "bench/cuda/Clocks.h"
#include "bench/cuda/CopiesAlone.h"
#include "bench/cuda/Parts.h"
#include "bench/cuda/Session.h"
#include "bench/cuda/Tracing.h"
#include "bench/figures/Furthest.h"
#include "bench/figures/Summary.h"
#include "bench/iterations/StepTimes.h"
#include "tools/timeline/LaneAccount.h"

namespace headrace::bench {
namespace {

constexpr size_t kLeast = 6; // iterations, however near they are
constexpr int kTurns = 5;
constexpr uint64_t kLeftBesides = 5 * kGiB; // graphs, libraries, the copies' window
constexpr PlayLimits kTurn{.most = 10, .seconds = 1.2};

double msOf(int64_t ns) { return static_cast<double>(ns) * 1e-6; }

// A model with the placements and cells of those of its iterations that are looked at.
class ModelTurns {
public:
  ModelTurns(const Context &context, std::vector<Far> far) : context_(context), spec_(openShape(far.front().model)) {
    for (const Far &one : far) {
      Target target{.name = one.model + ", " + one.cell + ", " + one.placement};
      for (const Cell &cell : cellsOf(spec_))
        if (cell.name == one.cell)
          target.cell = cell;
      target.cell.sequences = one.sequences;
      for (const Round &round : rounds())
        for (const int64_t interval : round.intervals)
          if (placementName(interval) == one.placement)
            target.placement = placementOf(interval);
      if (target.placement == 0 || target.cell.tokens == 0)
        fail(target.name + ": no such cell is measured");
      targets_.push_back(target);
    }
  }

  void run() {
    std::vector<Report::Task> turns, steps;
    for (const Target &target : targets_) {
      turns.push_back({target.name + ", in turns", 45, [this, &target] { return inTurns(target); }});
      steps.push_back({target.name + ", step by step", 30, [this, &target] { return stepByStep(target); }});
    }
    context_.report.attempt(turns);
    session_.reset(); // tracing is of another session, and there is room for one
    context_.report.attempt(steps);
    session_.reset();
  }

private:
  struct Target {
    std::string name;
    Cell cell;
    uint32_t placement = 0; // 0 is the resident one
  };

  uint32_t placementOf(int64_t interval) {
    const auto it = std::find(intervals_.begin(), intervals_.end(), interval);
    if (it != intervals_.end())
      return static_cast<uint32_t>(it - intervals_.begin());
    intervals_.push_back(interval);
    return static_cast<uint32_t>(intervals_.size() - 1);
  }

  static cuda::TraceBy traceBy() {
    return whyNot(cuda::TraceBy::Cupti).empty() ? cuda::TraceBy::Cupti : cuda::TraceBy::Stamps;
  }

  Session &session(bool trace) {
    if (session_ != nullptr)
      return *session_;
    std::vector<Cell> cells;
    for (const Target &target : targets_)
      if (std::none_of(cells.begin(), cells.end(), [&](const Cell &cell) { return cell.name == target.cell.name; }))
        cells.push_back(target.cell);
    if (weights_ == nullptr)
      weights_ = std::make_unique<LayerWeights>(spec_);
    session_ = std::make_unique<Session>(
        take(planRound({.spec = spec_,
                        .hardware = openProfile(context_.deviceName),
                        .deviceMemory = freeDeviceMemory() - std::min<uint64_t>(freeDeviceMemory(), kLeftBesides),
                        .cells = cells,
                        .intervals = intervals_})),
        *weights_, Session::Options{.cuda = {.index = context_.device, .traceBy = traceBy()}, .trace = trace});
    return *session_;
  }

  Json inTurns(const Target &target) {
    Session &in = session(false);
    if (copies_ == nullptr)
      copies_ = std::make_unique<CopiesAlone>();
    Clocks clocks(context_.device);
    std::vector<double> alone, with, link, ratios;
    Json aloneClocks, withClocks;
    for (int turn = 0; turn < kTurns; ++turn) {
      Played resident, offloaded;
      aloneClocks = clocks.during([&] { resident = in.play(0, target.cell, kTurn); });
      withClocks = clocks.during([&] { offloaded = in.play(target.placement, target.cell, kTurn); });
      const CopiesAlone::Measured copies = copies_->measure(in.scheduleOf(offloaded.variant));
      alone.insert(alone.end(), resident.ms.begin(), resident.ms.end());
      with.insert(with.end(), offloaded.ms.begin(), offloaded.ms.end());
      link.push_back(copies.ms);
      ratios.push_back(bounded(median(offloaded.ms), median(resident.ms), copies.ms, 0).ratio);
    }
    const Bounded all = bounded(median(with), median(alone), median(link), 0);
    Json fields = {{"ratio", all.ratio},
                   {"bound by", all.byLink ? "link" : "compute"},
                   {"ratio of a turn, least", quantile(ratios, 0)},
                   {"ratio of a turn, most", quantile(ratios, 1)},
                   {"resident ms", all.alone},
                   {"resident ms, 10%", quantile(alone, 0.1)},
                   {"resident ms, 90%", quantile(alone, 0.9)},
                   {"ms", median(with)},
                   {"ms, 10%", quantile(with, 0.1)},
                   {"ms, 90%", quantile(with, 0.9)},
                   {"copies alone ms", all.link},
                   {"copies alone ms, least", quantile(link, 0)},
                   {"copies alone ms, most", quantile(link, 1)},
                   {"iterations of each", with.size()}};
    if (!clocks.whyNot().empty())
      fields["clocks"] = clocks.whyNot();
    for (const auto &[what, of] : {std::pair("resident, ", aloneClocks), std::pair("with copies, ", withClocks)})
      for (const auto &[name, value] : of.items())
        fields[what + name] = value;
    return fields;
  }

  tools::Chart chartOf(uint32_t placement, const Cell &cell) {
    Session &in = session(true);
    const StepTimesOf times = take(stepTimes(in.runtime(), placement, cell, 7));
    tools::Trace trace = tools::makeTrace(in.plan(), "cuda, " + std::string(take(cuda::measuredBy(in.device()))),
                                          times.variant, times.steps);
    trace.about = "the median of 7";
    return tools::makeChart(in.plan(), times.variant, &trace);
  }

  Json stepByStep(const Target &target) {
    const tools::Chart alone = chartOf(0, target.cell), with = chartOf(target.placement, target.cell);
    const tools::Track &resident = alone.tracks.back(), &offloaded = with.tracks.back();
    const tools::LaneAccount was = accountOf(resident, plan::Lane::Compute),
                             is = accountOf(offloaded, plan::Lane::Compute),
                             link = accountOf(offloaded, plan::Lane::H2D);
    Json fields = {{"measured by", take(cuda::measuredBy(session(true).device()))},
                   {"resident ms", msOf(was.totalNs())},
                   {"ms", msOf(is.totalNs())}};
    for (const tools::LaneAccount::Part &part : is.kinds)
      fields["compute +ms, " + part.name] = msOf(part.ns - was.of(part.name));
    fields["compute +ms, waits"] = msOf(is.waitNs - was.waitNs);
    fields["compute +ms, idle"] = msOf(is.idleNs - was.idleNs);
    for (const tools::LaneAccount::Part &part : link.kinds)
      fields["h2d ms, " + part.name] = msOf(part.ns);
    fields["h2d ms, waits"] = msOf(link.waitNs);
    fields["h2d ms, idle"] = msOf(link.idleNs);
    if (!context_.folder.empty()) {
      std::string file = target.name;
      std::replace(file.begin(), file.end(), ' ', '-');
      file.erase(std::remove(file.begin(), file.end(), ','), file.end());
      std::ofstream(context_.folder + "/" + file + ".svg") << tools::timelineSvg(with);
    }
    return fields;
  }

  const Context &context_;
  const model::ModelSpec spec_;
  std::vector<Target> targets_;
  std::vector<int64_t> intervals_ = {0};
  std::unique_ptr<LayerWeights> weights_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<CopiesAlone> copies_;
};

} // namespace

void measureFurthest(const Context &context) {
  Report &report = context.report;
  const std::vector<Far> far = furthest(report.figuresOf("iterations"), kLeast, kRatioTarget);
  report.part("furthest",
              "the iterations above 1.03 of what bounds them, at least six: five turns of the resident one, this one "
              "and its copies alone, medians of all turns' iterations; clock and power of the last turn; step by step "
              "the iteration of median length of 7, one in flight; compute +ms: more than resident");
  for (size_t first = 0, end; first < far.size(); first = end) {
    for (end = first + 1; end < far.size() && far[end].model == far[first].model;)
      ++end;
    ModelTurns(context, {far.begin() + static_cast<ptrdiff_t>(first), far.begin() + static_cast<ptrdiff_t>(end)}).run();
  }
}

} // namespace headrace::bench
