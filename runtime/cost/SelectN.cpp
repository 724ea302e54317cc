// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/SelectN.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "runtime/base/Text.h"

namespace headrace::cost {
namespace {

// Of these feasible intervals (ascending) the one that frees the most, or `resident` if none frees any.
IntervalChoice freeMost(const LayerTimes &times, const IntervalChoice &resident, const std::vector<int64_t> &feasible) {
  IntervalChoice best = resident;
  for (int64_t i : feasible) {
    const int64_t freed = freedLayers(times.layers, i);
    // Ascending, so that of as much memory the larger interval stays, which is no slower: for equal n each copy hides
    // behind more layers.
    if (freed > best.freed || (freed == best.freed && freed > 0))
      best = {i, offloadedLayers(times.layers, i), freed, emptyStartNs(times, i), true};
  }
  return best;
}

} // namespace

double residentNs(const LayerTimes &times) {
  return static_cast<double>(times.layers) * times.computeNs + times.restNs;
}

int64_t offloadedLayers(int64_t layers, int64_t interval) { return interval <= 0 ? 0 : layers / interval; }

int64_t freedLayers(int64_t layers, int64_t interval) {
  const int64_t offloaded = offloadedLayers(layers, interval);
  return offloaded == 0 ? 0 : offloaded - (interval == 1 ? 2 : 1);
}

double intervalNs(const LayerTimes &times, int64_t interval) {
  const int64_t offloaded = offloadedLayers(times.layers, interval);
  if (offloaded == 0)
    return residentNs(times);
  const double n = static_cast<double>(offloaded), c = times.computeNs;
  if (interval == 1)
    return n * std::max(c, times.transferNs) + times.restNs;
  return n * (std::max(static_cast<double>(interval - 1) * c, times.transferNs) + c) +
         static_cast<double>(times.layers - offloaded * interval) * c + times.restNs;
}

double emptyStartNs(const LayerTimes &times, int64_t interval) {
  const double exposed = interval == 1 ? std::min(times.computeNs, times.transferNs) : 0;
  return intervalNs(times, interval) + exposed;
}

double intervalNs(absl::Span<const double> computeNs, double transferNs, double restNs, int64_t interval) {
  const auto layers = static_cast<int64_t>(computeNs.size());
  const int64_t offloaded = offloadedLayers(layers, interval);
  double sum = restNs;
  for (int64_t group = 0; group < offloaded; ++group) {
    const double last = computeNs[static_cast<size_t>((group + 1) * interval - 1)];
    double before = 0;
    for (int64_t l = group * interval; l < (group + 1) * interval - 1; ++l)
      before += computeNs[static_cast<size_t>(l)];
    sum += interval == 1 ? std::max(last, transferNs) : std::max(before, transferNs) + last;
  }
  for (int64_t l = offloaded * interval; l < layers; ++l)
    sum += computeNs[static_cast<size_t>(l)];
  return sum;
}

std::vector<int64_t> feasibleIntervals(const LayerTimes &times, double sloNs) {
  std::vector<int64_t> intervals;
  for (int64_t i = 1; i <= times.layers; ++i) {
    if (emptyStartNs(times, i) <= sloNs)
      intervals.push_back(i);
  }
  return intervals;
}

IntervalChoice chooseInterval(const LayerTimes &times, double sloNs, double slowestFactor) {
  IntervalChoice resident;
  resident.iterationNs = residentNs(times);
  resident.feasible = sloNs > 0 && resident.iterationNs <= sloNs;
  return resident.feasible ? freeMost(times, resident, feasibleIntervals(times, sloNs / slowestFactor)) : resident;
}

PaperFormula paperFormula(const LayerTimes &times, double delta) {
  PaperFormula formula;
  const double layers = static_cast<double>(times.layers);
  const double printed = times.computeNs * (1 + delta) / times.transferNs;
  const auto count = [&](double value) { return static_cast<int64_t>(std::floor(std::clamp(value, 0.0, layers))); };
  formula.offloadPrinted = count(printed);
  formula.offloadTimesL = count(printed * layers);
  formula.intervalPrinted = formula.offloadPrinted == 0 ? 0 : times.layers / formula.offloadPrinted;
  formula.intervalTimesL = formula.offloadTimesL == 0 ? 0 : times.layers / formula.offloadTimesL;
  return formula;
}

absl::Status checkSlo(const Slo &slo, std::string_view what) {
  const bool absolute = slo.ns != 0, relative = slo.factor != 0; // NaN counts as given
  if (absolute == relative)
    return absl::InvalidArgumentError(
        model::cat(what, ": expected either a time or a factor of the time without offloading"));
  if (absolute && !(slo.ns > 0 && std::isfinite(slo.ns)))
    return absl::InvalidArgumentError(model::cat(what, " = ", slo.ns, " ns: expected a positive finite time"));
  if (relative && !(slo.factor >= 1 && std::isfinite(slo.factor)))
    return absl::InvalidArgumentError(model::cat(what, " = ", slo.factor, ": expected a finite factor of at least 1"));
  return absl::OkStatus();
}

IntervalChoice chooseFromRecord(const RecordCostModel &costs, Phase phase, int64_t batch, int64_t sequence,
                                const Slo &slo, uint64_t stepNs) {
  const Identity &id = costs.record().identity;
  const Bucket bucket = bucketOf(phase, batch, sequence);
  const TimeBounds layer = costs.layerBounds(bucket), rest = costs.restBounds(bucket);
  const auto transfer = static_cast<double>(costs.copyNs(id.layerBytes, true));
  const LayerTimes slowest{id.layers, layer.upperNs, transfer, rest.upperNs};
  if (slo.factor > 0) {
    const LayerTimes corners[] = {slowest,
                                  {id.layers, layer.upperNs, transfer, rest.lowerNs},
                                  {id.layers, layer.lowerNs, transfer, rest.upperNs},
                                  {id.layers, layer.lowerNs, transfer, rest.lowerNs}};
    std::vector<int64_t> feasible;
    for (int64_t i = 1; i <= id.layers; ++i) {
      if (std::all_of(std::begin(corners), std::end(corners), [&](const LayerTimes &corner) {
            return costs.slowestFactor() * emptyStartNs(corner, i) <= slo.factor * residentNs(corner);
          }))
        feasible.push_back(i);
    }
    IntervalChoice resident;
    resident.iterationNs = residentNs(slowest);
    resident.feasible = slo.factor >= 1; // by its meaning
    return resident.feasible ? freeMost(slowest, resident, feasible) : resident;
  }
  double limit = 0;
  if (slo.ns > 0) {
    const double most = static_cast<double>(kLongestStepNs) * static_cast<double>(id.layers);
    limit = static_cast<double>(roundSlo(static_cast<uint64_t>(std::min(slo.ns, most)), stepNs));
  }
  return chooseInterval(slowest, limit, costs.slowestFactor());
}

std::string intervalTable(absl::Span<const int64_t> batches, absl::Span<const int64_t> sequences,
                          const std::function<IntervalChoice(int64_t, int64_t)> &choose) {
  char cell[32];
  std::string text = "batch\\seq";
  for (int64_t s : sequences) {
    std::snprintf(cell, sizeof cell, "%8lld", static_cast<long long>(s));
    text += cell;
  }
  text += "\n";
  for (int64_t b : batches) {
    std::snprintf(cell, sizeof cell, "%9lld", static_cast<long long>(b));
    text += cell;
    for (int64_t s : sequences) {
      const IntervalChoice choice = choose(b, s);
      if (choice.feasible && choice.interval > 0)
        std::snprintf(cell, sizeof cell, "%8lld", static_cast<long long>(choice.interval));
      else
        std::snprintf(cell, sizeof cell, "%8s", choice.feasible ? "-" : "x");
      text += cell;
    }
    text += "\n";
  }
  return text;
}

std::string recordTable(const RecordCostModel &costs, Phase phase, const Slo &slo, uint64_t stepNs) {
  char objective[80];
  if (slo.factor > 0)
    std::snprintf(objective, sizeof objective, "%g x the time without offloading", slo.factor);
  else
    std::snprintf(objective, sizeof objective, "%g ms, in steps of %g ms", slo.ns / 1e6,
                  static_cast<double>(stepNs) / 1e6);
  char room[80] = "";
  if (costs.slowestFactor() > 1)
    std::snprintf(room, sizeof room, ", %.1f%% of it kept free for the slowest iterations",
                  percentKeptFree(costs.slowestFactor()));
  return model::cat(phaseName(phase), ", SLO ", objective, room, "\n",
                    intervalTable(costs.record().batches, costs.record().sequences, [&](int64_t b, int64_t s) {
                      return chooseFromRecord(costs, phase, b, s, slo, stepNs);
                    }));
}

} // namespace headrace::cost
