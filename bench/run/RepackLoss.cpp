// SPDX-License-Identifier: Apache-2.0
#include "bench/run/RepackLoss.h"

#include <limits>
#include <utility>
#include <vector>

#include "compiler/Compile.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/serve/traffic/Arrivals.h"
#include "runtime/serve/traffic/Lengths.h"

namespace headrace::bench {
namespace {

absl::StatusOr<std::vector<serve::RequestLengths>> lengthsOf(const RepackLoad &load, int64_t context, uint64_t seed) {
  if (load.lengths == TokensOf::ShareGpt)
    return serve::fittedLengths(*serve::findLengthFit("sharegpt"), context, load.requests, seed);
  return serve::randomLengths({.input = context * 3 / 8, .output = context / 8, .rangeRatio = 0.999}, context,
                              load.requests, seed);
}

double lossOf(double by, double of) { return of > 0 ? by / of - 1 : 0; }

} // namespace

double RepackRun::byteLoss() const {
  return lossOf(static_cast<double>(sums.launchedBytes), static_cast<double>(sums.neededBytes));
}
double RepackRun::loss() const {
  return lossOf(static_cast<double>(sums.launchedNs), static_cast<double>(sums.leastNs));
}
double RepackRun::lanesLoss() const { return lossOf(sums.launchedLanesNs, sums.neededLanesNs); }

absl::Span<const RepackLoad> repackLoads() {
  static constexpr RepackLoad loads[] = {
      {.name = "all at once"},
      {.name = "all at once, ShareGPT", .lengths = TokensOf::ShareGpt},
      {.name = "Poisson at 0.9", .rate = 0.9},
      {.name = "Poisson at 0.6", .rate = 0.6},
      {.name = "bursts at 0.6", .rate = 0.6, .burstiness = 0.05},
      {.name = "Poisson at 0.9, ShareGPT", .lengths = TokensOf::ShareGpt, .rate = 0.9},
  };
  return loads;
}

absl::StatusOr<plan::Plan> repackPlan(model::ModelSpec spec, int64_t batch, int64_t context,
                                      std::optional<model::ActRatio> share) {
  compiler::CompileRequest request;
  ASSIGN_OR_RETURN(hardware, model::openHardware("rtx4090-hybridserve"));
  request.model = std::move(spec);
  request.modelHash = "0";
  request.hardware = std::move(hardware);
  request.goal.batch = batch;
  request.goal.context = context;
  request.goal.miniBatches = 4;
  request.policy.name = "hybridserve";
  request.policy.actHome = model::ActHome::Host;
  request.policy.actRatio = share;
  return compiler::compile(request);
}

absl::StatusOr<RepackRun> playRepack(const plan::Plan &plan, const RepackLoad &load, double servedPerSecond,
                                     uint64_t seed) {
  ASSIGN_OR_RETURN(lengths, lengthsOf(load, plan.maxContext, seed));
  const double rate = load.rate > 0 ? load.rate * servedPerSecond : std::numeric_limits<double>::infinity();
  ASSIGN_OR_RETURN(arrivals,
                   serve::arrivalTimes({.requestRate = rate, .burstiness = load.burstiness}, load.requests, seed));
  RepackedDevice device;
  ASSIGN_OR_RETURN(runtime, core::Runtime::load(plan, device, {.pricing = core::Pricing::Rows}, nullptr, {}));
  ASSIGN_OR_RETURN(engine, serve::Engine::create(*runtime, {}));
  const int64_t beganNs = device.nowNs();
  for (size_t next = 0;;) {
    for (; next < lengths.size() && beganNs + arrivals[next] <= device.nowNs(); ++next) {
      serve::EngineRequest request;
      request.prompt.assign(static_cast<size_t>(lengths[next].prompt), 1);
      request.maxNewTokens = lengths[next].output;
      request.sampling.seed = next;
      ASSIGN_OR_RETURN(id, engine->submit(std::move(request)));
      (void)id;
    }
    ASSIGN_OR_RETURN(more, engine->step());
    if (more)
      continue;
    if (next == lengths.size())
      break;
    RETURN_IF_ERROR(device.waitUntil(beganNs + arrivals[next]));
  }
  return RepackRun{.sums = device.sums(),
                   .engine = engine->counters(),
                   .seconds = static_cast<double>(device.nowNs() - beganNs) * 1e-9};
}

} // namespace headrace::bench
