// SPDX-License-Identifier: Apache-2.0
//
// How much each layer's compute time varies from iteration to iteration, nothing else going on.
#include "bench/cuda/Parts.h"
#include "bench/cuda/Session.h"
#include "bench/figures/Times.h"

namespace headrace::bench {
namespace {

// Of each layer: the sum of its compute steps, microseconds.
std::vector<double> layerUs(const plan::Schedule &schedule, absl::Span<const core::StepTime> times, int64_t layers) {
  std::vector<double> us(static_cast<size_t>(layers));
  for (size_t step = 0; step < times.size(); ++step)
    if (const plan::Step &s = schedule.steps[step]; s.kind == plan::StepKind::Compute && s.layer >= 0)
      us[static_cast<size_t>(s.layer)] += static_cast<double>(times[step].endNs - times[step].startNs) * 1e-3;
  return us;
}

Json spread(Session &session, const Cell &cell, int iterations) {
  std::vector<std::vector<double>> us;
  const plan::Schedule *schedule = nullptr;
  const int64_t layers = session.plan().model->layers;
  const uint32_t variant = take(session.runtime().choose(cell.sequences * cell.tokens, cell.sequences, cell.context));
  schedule = &session.scheduleOf(variant);
  const Played played =
      session.play(0, cell, {.warmUp = 10, .most = iterations, .seconds = 60, .inFlight = 1}, [&]() -> absl::Status {
        if (const absl::Status status = session.device().drain(); !status.ok())
          return status;
        us.push_back(layerUs(*schedule, session.device().lastTimes(), layers));
        return absl::OkStatus();
      });
  const Spread of = spreadOf(us);
  return {{"measured by", take(cuda::measuredBy(session.device()))},
          {"iterations", us.size()},
          {"layers", layers},
          {"a layer, median us", of.medianUs},
          {"slowest layer / median layer", of.slowest},
          {"time / layer's median, p99", of.p99},
          {"time / layer's median, most", of.worst},
          {"p99 of the worst layer", of.worstLayerP99},
          {"sum / median sum, p99", of.sumP99},
          {"sum / median sum, most", of.sumWorst}};
}

} // namespace

void measureSpread(const Context &context) {
  Report &report = context.report;
  report.part("spread",
              "everything resident; each layer's compute steps added up, of 1,000 iterations of decode of 32 sequences "
              "at 256 and 200 of prefill of 1,024 tokens, one in flight, after 10");
  std::vector<Report::Task> tasks;
  for (const std::string model : {"opt-6.7b", "llama-3.1-8b"}) {
    auto session = std::make_shared<std::unique_ptr<Session>>();
    const std::vector<Cell> cells = cellsOf(openShape(model));
    const auto one = [=, &context](const Cell &cell, int iterations) {
      if (*session == nullptr) {
        const model::ModelSpec spec = openShape(model);
        const LayerWeights weights(spec);
        *session =
            std::make_unique<Session>(take(planRound({.spec = spec,
                                                      .hardware = openProfile(context.deviceName),
                                                      .deviceMemory = 60 * kGiB,
                                                      .cells = {cells[0], cells[1]},
                                                      .intervals = {0}})),
                                      weights, Session::Options{.cuda = {.index = context.device}, .trace = true});
      }
      Json fields = spread(**session, cell, iterations);
      if (cell.tokens > 1)
        session->reset(); // the next model needs the memory
      return fields;
    };
    tasks.push_back({model + ", " + cells[0].name, 60, [=] { return one(cells[0], 1000); }});
    tasks.push_back({model + ", " + cells[1].name, 60, [=] { return one(cells[1], 200); }});
  }
  report.attempt(tasks);
}

} // namespace headrace::bench
