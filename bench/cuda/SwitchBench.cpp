// SPDX-License-Identifier: Apache-2.0
//
// What it takes to go from one executable to another: variants of one placement in turns, and placements in turns, with
// the host reading each iteration's tokens before it launches the next, with one in flight beside, or reading none.
#include <map>
#include <memory>
#include <string>

#include "bench/cuda/Parts.h"
#include "bench/cuda/Session.h"

namespace headrace::bench {
namespace {

enum class Reading { EachBeforeTheNext, OneBehind, None };

struct Turn {
  uint32_t placement = 0;
  Cell cell;
};

// Milliseconds an iteration over so many, taking the turns one after the other.
double perIteration(core::Runtime &runtime, const std::vector<Turn> &turns, int iterations, Reading reading) {
  core::Device &device = runtime.device();
  const plan::Plan &plan = runtime.plan();
  std::map<std::string, std::unique_ptr<CellRows>> rows; // of each cell once: placements in turns share theirs
  for (const Turn &turn : turns)
    if (!rows.contains(turn.cell.name))
      rows[turn.cell.name] = take(CellRows::take(runtime, turn.cell));
  constexpr int kWarmUp = 4;
  int inFlight = 0;
  const auto read = [&](int stay) {
    for (; reading != Reading::None && inFlight > stay; --inFlight)
      (void)take(runtime.awaitTokens());
  };
  int64_t startNs = 0;
  for (int i = 0; i < kWarmUp + iterations; ++i) {
    if (i == kWarmUp) {
      read(0);
      check(device.drain());
      startNs = device.nowNs();
    }
    const size_t which = static_cast<size_t>(i) % turns.size();
    const Cell &cell = turns[which].cell;
    check(core::writeMeta(plan.metaLayout, plan.blockTokens, rows[cell.name]->rows(), device.meta()));
    check(runtime.launch(
        take(runtime.chooseIn(turns[which].placement, cell.sequences * cell.tokens, cell.sequences, cell.context))));
    ++inFlight;
    read(reading == Reading::EachBeforeTheNext ? 0 : 1);
  }
  read(0);
  check(device.drain());
  return static_cast<double>(device.nowNs() - startNs) * 1e-6 / iterations;
}

const char *name(Reading reading) {
  switch (reading) {
  case Reading::EachBeforeTheNext:
    return "tokens read before the next launch";
  case Reading::OneBehind:
    return "tokens read one iteration behind";
  case Reading::None:
    break;
  }
  return "no tokens read";
}

// In turns, against the mean of each alone.
Json inTurns(core::Runtime &runtime, const Turn &a, const Turn &b, int iterations, Reading reading) {
  const double aMs = perIteration(runtime, {a}, iterations, reading),
               bMs = perIteration(runtime, {b}, iterations, reading),
               both = perIteration(runtime, {a, b}, iterations, reading);
  return {{"one us", aMs * 1e3},
          {"other us", bMs * 1e3},
          {"in turns us", both * 1e3},
          {"gap us", (both - (aMs + bMs) / 2) * 1e3}};
}

} // namespace

void measureSwitches(const Context &context) {
  Report &report = context.report;
  report.part("switch",
              "TinyLlama-1.1B: wall time an iteration of 200 of one variant, of the other, and of both in turns (of "
              "20 where the placement changes); gap: in turns less the mean of the two alone");
  const model::ModelSpec spec = openShape("tinyllama-1.1b");
  const std::vector<Cell> cells = cellsOf(spec);
  const Cell &many = cells[0], &single = cells[2];
  std::unique_ptr<LayerWeights> weights;
  // Of its own for each figure: where no tokens are read, the runtime's count of those read is behind for good.
  const auto load = [&, spec] {
    if (weights == nullptr)
      weights = std::make_unique<LayerWeights>(spec);
    return Session(take(planRound({.spec = spec,
                                   .hardware = openProfile(context.deviceName),
                                   .deviceMemory = 20 * kGiB,
                                   .cells = {many, single},
                                   .intervals = {0, 2},
                                   .cellsAtOnce = true})),
                   *weights, {.cuda = {.index = context.device}});
  };
  std::vector<Report::Task> tasks;
  for (const Reading reading : {Reading::EachBeforeTheNext, Reading::OneBehind, Reading::None}) {
    for (const uint32_t placement : {0u, 1u})
      tasks.push_back(
          {std::string("variants, ") + placementName(placement == 0 ? 0 : 2) + ", " + name(reading), 15, [=] {
             Session session = load();
             return inTurns(session.runtime(), {placement, many}, {placement, single}, 200, reading);
           }});
    tasks.push_back({std::string("placements, resident and interval 2, ") + name(reading), 15, [=] {
                       Session session = load();
                       Json fields = inTurns(session.runtime(), {0, many}, {1, many}, 20, reading);
                       uint64_t ns = 0;
                       for (const plan::Transition &transition : session.plan().transitions)
                         if (session.plan().schedules[transition.schedule].fromPlacement != plan::kNone)
                           ns = std::max(ns, transition.predictedNs);
                       fields["longest change, predicted us"] = static_cast<double>(ns) * 1e-3;
                       return fields;
                     }});
  }
  report.attempt(tasks);
}

} // namespace headrace::bench
