// SPDX-License-Identifier: Apache-2.0
//
// Devices on one bus that copy in both directions: plans by hand whose tails are written back (TailPlans.h), on links
// that may have less for both directions together. What the coordinator counts on is never below what the bus of
// virtual time gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <map>

#include "runtime/plan/proof/PlanVerifier.h"
#include "runtime/sim/SimGroup.h"
#include "runtime/sim/Simulator.h"
#include "tests/conformance/FleetFixture.h"
#include "tests/conformance/TailPlans.h"

namespace headrace::serve {
namespace {

using core::WriteBack;

// What its steps take on this hardware: compute as drawn, copies their latency and bytes.
void setTimes(plan::Plan &plan, Draw &draw) {
  const model::Hardware &h = plan.hardware;
  const double share = h.duplexBandwidth / std::max(h.h2dBandwidth, h.d2hBandwidth);
  const auto timed = [&](const plan::Schedule &schedule, std::vector<uint64_t> &durations) {
    durations.clear();
    for (const plan::Step &step : schedule.steps) {
      const bool toHost = plan::toHost(step.lane);
      const double rate = toHost ? h.d2hBandwidth : h.h2dBandwidth;
      durations.push_back(toHost || plan::toDevice(step.lane)
                              ? static_cast<uint64_t>(std::llround(h.copyLatency * 1e9 +
                                                                   static_cast<double>(step.linkBytes) / rate * 1e9))
                              : static_cast<uint64_t>(draw.pick(200, 4000)));
    }
    return sim::Simulator(schedule).run(durations, cost::Sharing(share)).iterationNs;
  };
  for (plan::Variant &variant : plan.variants) {
    const plan::Schedule &schedule = plan.schedules[variant.schedule];
    variant.predictedNs = timed(schedule, variant.durationsNs);
    uint64_t lanes[plan::kLanes] = {};
    for (size_t s = 0; s < schedule.steps.size(); ++s)
      lanes[static_cast<size_t>(schedule.steps[s].lane)] += variant.durationsNs[s];
    variant.computeAloneNs = lanes[static_cast<size_t>(plan::Lane::Compute)];
    variant.linkAloneNs =
        std::max(lanes[static_cast<size_t>(plan::Lane::H2D)], lanes[static_cast<size_t>(plan::Lane::D2H)]);
  }
  for (plan::Transition &transition : plan.transitions)
    transition.predictedNs = timed(plan.schedules[transition.schedule], transition.durationsNs);
}

// Caches of four layers, written back in one of three ways, brought in turns or going round; or of one layer more than
// the places that it goes round, two to five of them.
plan::Plan drawPlan(Draw &draw, double link) {
  const auto how = static_cast<WriteBack>(draw.pick(0, 2));
  const int64_t resident = draw.coin() ? 0 : draw.pick(1, 6);
  const auto places = static_cast<uint32_t>(draw.pick(2, 5));
  const bool round = draw.coin();
  const int32_t layers = round ? static_cast<int32_t>(places) + 1 : 4;
  const uint32_t slots = round ? places : static_cast<uint32_t>(draw.pick(1, 3));
  plan::Plan plan = core::tailPlan({.spec = core::tinyLlama(layers)}, resident, slots, how,
                                   round ? core::goingRound(places, how)
                                         : std::vector<core::Phase>{plan::test::inTurns(layers, slots, how)});
  model::Hardware &h = plan.hardware;
  h.h2dBandwidth = link;
  h.d2hBandwidth = link * draw.pick(5, 12) / 10;
  const double larger = std::max(h.h2dBandwidth, h.d2hBandwidth);
  h.duplexBandwidth = std::min(larger * draw.pick(10, 20) / 10, h.h2dBandwidth + h.d2hBandwidth);
  h.copyLatency = draw.pick(0, 2) * 1e-6;
  setTimes(plan, draw);
  const absl::Status verified = plan::verifyPlan(plan, "plan");
  EXPECT_TRUE(verified.ok()) << verified;
  return plan;
}

// One request a device: its longest gap once all of its sequences have their first tokens.
struct Decoding {
  std::unique_ptr<Engine> engine;
  std::map<uint64_t, int64_t> last; // by sequence
  size_t sequences = 0, left = 0;
  int64_t longestNs = 0;
  uint64_t gaps = 0;
};

TEST(WriteBackFleets, NoIterationTakesLongerThanItsBound) {
  uint64_t gaps = 0, backBytes = 0;
  double tightest = 0; // of all gaps, over its bound
  for (int f = 0; f < fleetsToDraw("HEADRACE_WRITE_BACK_FLEETS", 60); ++f) {
    const auto seed = static_cast<uint32_t>(f + 1);
    SCOPED_TRACE(seed);
    Draw draw(seed);
    const double link = draw.pick(5, 40) * 1e8;
    const auto devices = static_cast<uint32_t>(draw.pick(1, 3));
    core::PathLimits bus{link * draw.pick(8, 25) / 10};
    if (draw.coin())
      bus.d2h = link * draw.pick(4, 20) / 10;
    if (draw.coin())
      bus.both = link * draw.pick(10, 40) / 10;
    std::deque<plan::Plan> plans;
    std::vector<PlanLoads> told;
    Bus counted{bus.h2d, {}, bus.d2h, bus.both};
    std::vector<BusLoad> loads;
    auto group = sim::makeSimGroup(devices, bus);
    ASSERT_TRUE(group.ok()) << group.status();
    std::vector<std::unique_ptr<core::Runtime>> runtimes;
    std::deque<Decoding> decoding(devices);
    for (uint32_t d = 0; d < devices; ++d) {
      plans.push_back(drawPlan(draw, link));
      const plan::Plan &plan = plans.back();
      const PlanLoads &of = told.emplace_back(plan, 0);
      counted.links.push_back(of.linkBandwidth());
      counted.d2hLinks.push_back(of.d2hBandwidth());
      counted.bothShares.push_back(of.bothShare());
      auto runtime = core::Runtime::load(plan, (*group)->device(d), {}, nullptr, {});
      ASSERT_TRUE(runtime.ok()) << runtime.status();
      runtimes.push_back(*std::move(runtime));
      Decoding &running = decoding[d];
      EngineOptions options{.watermark = 0, .depth = 1};
      options.onToken = [&running](const EngineToken &token) {
        const bool all = running.last.size() == running.sequences;
        if (const auto seen = running.last.find(token.request); seen != running.last.end() && all) {
          running.longestNs = std::max(running.longestNs, token.visibleNs - seen->second);
          ++running.gaps;
        }
        running.last[token.request] = token.visibleNs;
        if (!all && running.last.size() == running.sequences) // first tokens are delivered together
          for (auto &[id, at] : running.last)
            at = token.visibleNs;
      };
      options.onEnd = [&running](const EngineEnd &) { --running.left; };
      running.engine = *Engine::create(*runtimes.back(), std::move(options));
      BatchWork work{{}, draw.pick(4, 20), false};
      for (int s = draw.pick(1, 3); s > 0; --s)
        work.promptTokens.push_back(draw.pick(1, 12));
      running.sequences = running.left = work.promptTokens.size();
      for (const int64_t tokens : work.promptTokens)
        ASSERT_TRUE(running.engine
                        ->submit({.prompt = std::vector<int32_t>(static_cast<size_t>(tokens), 1),
                                  .maxNewTokens = work.newTokens})
                        .ok());
      const auto placements = of.placements(work, Role::Both, 0);
      ASSERT_TRUE(placements.ok()) << placements.status();
      loads.push_back({d, 0, {placements->front()}});
    }
    const uint64_t all = (uint64_t{1} << devices) - 1;
    for (BusLoad &load : loads) // within the window
      load.sloNs = 1.5 * timeAtRate(load.placements[0], FairRates(counted).of({all, all}, load.device));
    const std::vector<double> bounds = contendedNs(counted, loads, std::vector<uint32_t>(devices, 0));
    const auto launch = [&](uint32_t d) {
      if (decoding[d].left == 0 || decoding[d].engine->inFlight() > 0)
        return;
      const auto launched = decoding[d].engine->launch({.prefill = Prefill::Separate});
      ASSERT_TRUE(launched.ok() && *launched) << launched.status();
    };
    std::vector<uint64_t> awaited(devices);
    for (;;) {
      for (uint32_t d = 0; d < devices; ++d) {
        launch(d);
        awaited[d] = decoding[d].engine->oldestNumber();
      }
      if (HasFatalFailure() || std::all_of(awaited.begin(), awaited.end(), [](uint64_t n) { return n == 0; }))
        break;
      const auto ready = (*group)->waitAny(awaited, core::kForeverNs);
      ASSERT_TRUE(ready.ok()) << ready.status();
      ASSERT_TRUE(decoding[*ready].engine->read().ok());
    }
    for (uint32_t d = 0; d < devices; ++d) {
      // Each copy ends at a whole nanosecond.
      const double rounding = 2.0 * static_cast<double>(plans[d].schedules[0].steps.size());
      EXPECT_LE(static_cast<double>(decoding[d].longestNs), bounds[d] + rounding) << "device " << d;
      gaps += decoding[d].gaps;
      tightest = std::max(tightest, static_cast<double>(decoding[d].longestNs) / bounds[d]);
      backBytes += (*group)->device(d).counters().d2hBytes;
    }
    decoding.clear();
    runtimes.clear();
  }
  EXPECT_GT(gaps, 1000u);
  EXPECT_GT(backBytes, 0u);
  EXPECT_GT(tightest, 0.9);
  std::printf("%llu gaps, the longest %.4f of its bound\n", static_cast<unsigned long long>(gaps), tightest);
}

// Fleets of such plans, with and without instances apart: what is admitted holds its objectives.
TEST(WriteBackFleets, WhateverIsAdmittedHoldsItsObjectives) {
  uint64_t admitted = 0, joined = 0, apart = 0, refused = 0;
  for (int f = 0; f < fleetsToDraw("HEADRACE_WRITE_BACK_FLEETS", 40); ++f) {
    const auto seed = static_cast<uint32_t>(f + 1);
    SCOPED_TRACE(seed);
    Draw draw(500000 + seed);
    const double link = draw.pick(5, 40) * 1e8;
    const plan::Plan plan = drawPlan(draw, link);
    std::vector<LoadedFleet::On> on;
    for (int devices = draw.pick(1, 4); devices > 0; --devices)
      on.push_back({"gpu" + std::to_string(on.size()), Role::Both, &plan});
    if (on.size() > 1 && draw.pick(0, 3) > 0) {
      on[0].role = Role::Prefill;
      on[1].role = Role::Decode;
    }
    core::PathLimits bus{link * draw.pick(8, 25) / 10};
    if (draw.coin())
      bus.d2h = link * draw.pick(4, 20) / 10;
    if (draw.coin())
      bus.both = link * draw.pick(10, 40) / 10;
    FleetOptions options{.busBandwidth = bus.h2d, .busD2hBandwidth = bus.d2h, .busDuplexBandwidth = bus.both};
    auto group = sim::makeSimGroup(on.size(), bus);
    ASSERT_TRUE(group.ok()) << group.status();
    LoadedFleet fleet(*std::move(group), on, options);
    const ResidentTimes times = residentTimes(plan);
    std::vector<FleetRequest> requests;
    for (int r = 0; r < 25; ++r) {
      FleetRequest request;
      request.model = plan.model->name;
      for (int s = draw.pick(1, 2); s > 0; --s)
        request.prompts.emplace_back(static_cast<size_t>(draw.pick(1, 12)), draw.pick(0, 99));
      request.maxNewTokens = draw.pick(1, 16);
      request.tpot = wholeNs(times.decodeNs * draw.pick(100, 400) / 100);
      request.ttft = wholeNs(times.prefillNs * draw.pick(300, 3000) / 100);
      request.arrivalNs =
          (requests.empty() ? 0 : requests.back().arrivalNs) + static_cast<int64_t>(times.decodeNs * draw.pick(0, 10));
      requests.push_back(std::move(request));
    }
    const auto result = fleet->run(requests);
    ASSERT_TRUE(result.ok()) << result.status();
    joined += result->joined;
    for (size_t r = 0; r < requests.size(); ++r) {
      const RequestOutcome &outcome = result->requests[r];
      refused += !outcome.admitted;
      if (!outcome.admitted)
        continue;
      ++admitted;
      apart += outcome.handoverNs > 0;
      ASSERT_TRUE(outcome.status.ok()) << outcome.status;
      EXPECT_LE(outcome.longestGapNs, requests[r].tpot.count()) << r;
      EXPECT_LE(outcome.ttftNs(), requests[r].ttft.count()) << r;
    }
    for (uint32_t i = 0; i < on.size(); ++i)
      EXPECT_EQ(fleet.runtime(i).kvBlocks().endOfUse(), 1);
  }
  std::printf("%llu admitted, %llu joined, %llu handed over, %llu refused\n", static_cast<unsigned long long>(admitted),
              static_cast<unsigned long long>(joined), static_cast<unsigned long long>(apart),
              static_cast<unsigned long long>(refused));
  EXPECT_GT(admitted, 200u);
  EXPECT_GT(joined, 20u);
  EXPECT_GT(apart, 20u);
}

// A cache that takes ten times the slack of those that decode: handed over between two iterations it would be ten times
// late; beside them, which copy nothing, it is not seen at all.
TEST(WriteBackFleets, AHandOverDoesNotStopWhoDecodes) {
  const plan::Plan plan = fleetPlan({.linkBandwidth = 2e7, .intervals = {}});
  const ResidentTimes times = residentTimes(plan);
  auto group = sim::makeSimGroup(2, {2e7, 2e7});
  ASSERT_TRUE(group.ok()) << group.status();
  FleetOptions options{.busBandwidth = 2e7, .busD2hBandwidth = 2e7};
  LoadedFleet fleet(*std::move(group), {{"prefill", Role::Prefill, &plan}, {"decode", Role::Decode, &plan}}, options);
  std::vector<FleetRequest> requests(2);
  for (FleetRequest &request : requests) {
    request.model = plan.model->name;
    request.prompts = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}};
    request.maxNewTokens = 30;
    request.ttft = std::chrono::seconds(1);
    request.tpot = wholeNs(times.decodeNs * 1.1);
  }
  requests[0].maxNewTokens = 34;
  requests[1].arrivalNs = 1;
  const auto result = fleet->run(requests);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->requests[0].held() && result->requests[1].held());
  EXPECT_EQ(result->joined, 1u);
  // 14 tokens in 4 blocks of 4: 4 x 12 KiB and their ids at 20 bytes/us, to the host and to the device.
  const double oneWayNs = 4 * (12 * 1024 + 16) / 2e7 * 1e9;
  EXPECT_GT(static_cast<double>(result->requests[1].handoverNs), oneWayNs);
  EXPECT_GT(oneWayNs, 10 * 0.1 * times.decodeNs);
  EXPECT_LE(static_cast<double>(result->requests[0].longestGapNs), times.decodeNs);
  std::printf("handed over in %lld ns beside gaps of at most %lld ns\n",
              static_cast<long long>(result->requests[1].handoverNs),
              static_cast<long long>(result->requests[0].longestGapNs));
}

} // namespace
} // namespace headrace::serve
