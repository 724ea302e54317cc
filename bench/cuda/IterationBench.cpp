// SPDX-License-Identifier: Apache-2.0
//
// Whole iterations of real shapes through core::Runtime, at several offloading intervals, against what bounds them:
//
//   ratio = iteration / max(the same iteration with everything resident, bytes / bandwidth)        at most 1.03
//
// Cells go round by round (Cells.h): a round's model is compiled with a placement for each interval and loaded once.
// Bandwidth is that of the very chunks in a graph of copies alone.
#include <algorithm>
#include <memory>

#include "bench/cuda/CopiesAlone.h"
#include "bench/cuda/Parts.h"
#include "bench/cuda/Session.h"
#include "bench/figures/Summary.h"
#include "bench/iterations/Predicted.h"

namespace headrace::bench {
namespace {

constexpr double kPlaySeconds = 1.2; // of a cell's iterations
constexpr double kCellSeconds = 4;   // a change of placement, iterations, those one at a time, copies alone
// For the slowest load of 30 GiB of slab; a run that is cut off there has measured nothing of the round.
double loadSeconds(const model::ModelSpec &spec) { return 15 + static_cast<double>(weightBytes(spec) / kGiB); }
constexpr uint64_t kBesides = 3 * kGiB;  // activations, workspace, and what is not counted of the arena
constexpr uint64_t kLeftFree = 4 * kGiB; // graphs, libraries, the window of the chunks

class RoundBench {
public:
  RoundBench(const Context &context, const Round &round)
      : context_(context), report_(context.report), round_(round), spec_(openShape(round.model)) {
    for (const Cell &cell : cellsOf(spec_))
      if (cell.core || !round.core)
        cells_.push_back(cell);
  }

  void run() {
    std::vector<std::string> names;
    for (const Cell &cell : cells_)
      for (const int64_t interval : round_.intervals)
        if (const std::string name = figureName(round_.model, cell, interval);
            !report_.settled(name) && (interval == 0 || name.find(context_.filter) != std::string::npos))
          names.push_back(name);
    if (names.empty())
      return;
    for (const std::string &name : report_.inOrder(names))
      for (const Cell &cell : cells_)
        for (uint32_t p = 0; p < round_.intervals.size(); ++p)
          if (figureName(round_.model, cell, round_.intervals[p]) == name && !attempt(name, cell, p))
            return;
  }

private:
  // False where the model cannot be loaded, or not in the time left. A device that had an error is not used again.
  bool attempt(const std::string &name, const Cell &cell, uint32_t placement) {
    if (session_ == nullptr && report_.budget().left() < loadSeconds(spec_) + kCellSeconds) {
      report_.incomplete();
      return false;
    }
    if (session_ == nullptr && !load())
      return false;
    if (report_.attempt(name, kCellSeconds, [&] { return measure(cell, placement); }) == Report::Outcome::Failed)
      session_.reset();
    return true;
  }

  // Fewer sequences where the plan turns out larger than the estimate. What fails here fails this round's cells only.
  bool load() {
    const std::string name = round_.model + (round_.core ? ", load for the first cells" : ", load");
    report_.forget(name); // of an earlier run
    return report_.attempt(name, 0, [&] {
      const uint64_t memory = freeDeviceMemory() - std::min(freeDeviceMemory(), kLeftFree);
      absl::StatusOr<plan::Plan> plan;
      const double compiling = nowSeconds();
      for (uint64_t besides = kBesides;; besides += 2 * kGiB) {
        const std::vector<Cell> some = fitted(cells_, spec_, memory, besides, 16);
        RoundRequest request{spec_, openProfile(context_.deviceName), memory, {}, round_.intervals};
        for (size_t i = 0; i < some.size(); ++i)
          if ((cells_[i].sequences = some[i].sequences) > 0)
            request.cells.push_back(some[i]);
        plan = planRound(request);
        if (plan.ok() || plan.status().code() != absl::StatusCode::kResourceExhausted || besides > 12 * kGiB)
          break;
      }
      const double planned = nowSeconds();
      plan::Plan made = take(std::move(plan));
      const LayerWeights weights(spec_);
      const double ready = nowSeconds();
      session_ = std::make_unique<Session>(std::move(made), weights, Session::Options{});
      const cuda::GraphCosts costs = session_->costs();
      const Played first = settle();
      return Json{{"compile seconds", planned - compiling},
                  {"weights seconds", ready - planned},
                  {"load seconds", session_->loadSeconds()},
                  {"build seconds", static_cast<double>(costs.buildNs + costs.instantiateNs + costs.uploadNs) * 1e-9},
                  {"graphs", costs.graphs},
                  {"nodes", costs.nodes},
                  {"graph bytes", costs.deviceBytes},
                  {"arena bytes", session_->plan().arenaBytes},
                  {"pinned bytes", session_->plan().hostBytes},
                  {"first iterations ms", first.ms.front()},
                  {"then ms", first.ms.back()}};
    }) == Report::Outcome::Measured;
  }

  // Iterations of the placement that moves most, so that no cell is the first to read the slab over the link.
  Played settle() {
    uint32_t most = 0;
    for (uint32_t p = 1; p < round_.intervals.size(); ++p)
      if (const int64_t interval = round_.intervals[p]; most == 0 || interval < round_.intervals[most])
        most = p;
    for (const Cell &cell : cells_)
      if (cell.sequences > 0)
        return session_->play(most, cell, {.warmUp = 0, .most = 5, .seconds = 5});
    fail("not one sequence of any cell fits");
  }

  Json measure(const Cell &cell, uint32_t placement) {
    if (cell.sequences == 0)
      return {{"left out", "the cache of not one sequence fits"}};
    const int64_t interval = round_.intervals[placement];
    const Played played = session_->play(placement, cell, {.seconds = kPlaySeconds});
    // With two in flight a launch may wait for the end of an iteration's copies.
    const Played single = session_->play(placement, cell, {.warmUp = 1, .most = 2, .seconds = 1, .inFlight = 1});
    const plan::Schedule &schedule = session_->scheduleOf(played.variant);
    const double ms = median(played.ms), predicted = predictedMs(session_->plan(), played.variant, cell);
    const auto bytes = static_cast<double>(played.h2dBytes);
    const double bandwidth = bytes > 0 ? chunkBandwidth(schedule, placement) : 0;
    const double link = bytes > 0 ? bytes / bandwidth * 1e3 : 0;
    Json fields = {{"model", round_.model},
                   {"cell", cell.name},
                   {"placement", placementName(interval)},
                   {"sequences", cell.sequences},
                   {"ms", ms},
                   {"p99 ms", quantile(played.ms, 0.99)},
                   {"last / first", played.ms.back() / played.ms.front()},
                   {"iterations", played.ms.size()},
                   {"h2d bytes", played.h2dBytes},
                   {"d2h bytes", played.d2hBytes},
                   {"link GB/s", bandwidth * 1e-9},
                   {"link ms", link},
                   {"predicted ms", predicted},
                   {"choose us", median(single.chooseUs)},
                   {"launch us", median(single.launchUs)},
                   {"steps", schedule.steps.size()}};
    if (cell.sequences != cell.asked && cell.tokens == 1)
      fields["of"] = std::to_string(cell.asked) + " sequences asked for: the caches of no more fit";
    const Json *alone = report_.find(figureName(round_.model, cell, 0));
    if (interval != 0 && alone != nullptr && alone->contains("ms"))
      fields["ratio"] = bounded(ms, (*alone)["ms"].get<double>(), link, predicted).ratio;
    return fields;
  }

  // Bytes a second of the schedule's chunks alone. Once a placement.
  double chunkBandwidth(const plan::Schedule &schedule, uint32_t placement) {
    if (bandwidth_.contains(placement))
      return bandwidth_[placement];
    if (copies_ == nullptr)
      copies_ = std::make_unique<CopiesAlone>();
    return bandwidth_[placement] = copies_->measure(schedule).bandwidth();
  }

  const Context &context_;
  Report &report_;
  const Round &round_;
  const model::ModelSpec spec_;
  std::vector<Cell> cells_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<CopiesAlone> copies_;
  std::map<uint32_t, double> bandwidth_; // by placement
};

} // namespace

void measureIterations(const Context &context) {
  Report &report = context.report;
  report.part(
      "iterations",
      "core::Runtime on synthetic weights and caches of random numbers, one iteration in flight beside the one "
      "whose tokens are awaited; median gap between tokens of 20 iterations, or of those that 1.2 s hold, after "
      "3; link: the schedule's chunks in a graph of copies alone; choose, launch: host time of each, one in flight");
  for (const Round &round : rounds())
    RoundBench(context, round).run();
  const std::vector<std::pair<std::string, Json>> lines = summarise(report.figures());
  report.part("iterations, summary",
              "ratio: iteration / max(the same one with everything resident, bytes / bandwidth), at most 1.03; "
              "prediction error: iteration / predicted - 1");
  for (const auto &[name, fields] : lines)
    report.figure(name, fields);
}

} // namespace headrace::bench
