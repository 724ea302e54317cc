// SPDX-License-Identifier: Apache-2.0
//
// Random fleets in virtual time whose instances serve many requests at once. What was promised is checked by the times
// at which the tokens of each sequence were visible; what was refused, against every fixed way of running it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>

#include "runtime/sim/SimDevice.h"
#include "runtime/sim/SimGroup.h"
#include "tests/conformance/FleetFixture.h"

namespace headrace::serve {
namespace {

constexpr int64_t kSeats = 8;

int fleetsToDraw() { return serve::fleetsToDraw("HEADRACE_JOINING_FLEETS", 50); }

plan::Plan drawPlan(Draw &draw, double link, int64_t seats) {
  FleetPlanOptions options;
  options.spec = core::tinyLlama(draw.pick(4, 8));
  options.intervals = {2, 4};
  options.linkBandwidth = link;
  options.batch = seats;
  options.context = 64;
  const bool split = draw.pick(0, 3) == 0; // blocks of the caches away as well, in every placement
  options.rule = split || draw.coin() ? model::StartRule::Eager : model::StartRule::Paper;
  compiler::CompileRequest request = fleetPlanRequest(options);
  const int64_t few = draw.coin() ? 1 : seats / 2;
  request.buckets = {.newTokens = {few, seats, 2 * seats, 32}, .sequences = {few, seats}, .contexts = {16, 64}};
  if (split)
    for (compiler::Candidate &candidate : request.placements)
      candidate.residency.setKvAway(options.spec.layers, draw.pick(20, 100));
  else if (draw.coin()) { // chosen by an objective: buckets then differ in what they copy
    request.placements.clear();
    request.policy = {};
    request.policy.name = "headrace";
    request.policy.placements = draw.pick(2, 6);
    request.goal.sloFactor = draw.pick(150, 600) / 100.0;
  }
  auto plan = compiler::compile(request);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : plan::Plan{};
}

std::vector<FleetRequest> drawRequests(Draw &draw, const plan::Plan &plan, int count, double meanGapNs) {
  const ResidentTimes times = residentTimes(plan);
  const int most = draw.pick(130, 800); // per cent of the resident iterations
  std::vector<FleetRequest> requests;
  double at = 0;
  for (int r = 0; r < count; ++r) {
    FleetRequest request;
    request.model = plan.model->name;
    for (int s = draw.pick(0, 3) == 0 ? 2 : 1; s > 0; --s)
      request.prompts.emplace_back(static_cast<size_t>(draw.pick(1, 40)), draw.pick(0, 99));
    request.maxNewTokens = draw.pick(1, 24);
    if (draw.pick(0, 3) == 0)
      request.stopTokens = {draw.pick(0, 9), 17, 93};
    request.sampling = {.temperature = 1, .topP = 0.9f, .seed = static_cast<uint64_t>(r)};
    request.tpot = wholeNs(times.decodeNs * draw.pick(105, most) / 100);
    request.ttft = wholeNs(times.prefillNs * draw.pick(100, 2 * most) / 100);
    at += std::exponential_distribution<double>(1 / meanGapNs)(draw.random);
    request.arrivalNs = static_cast<int64_t>(at);
    requests.push_back(std::move(request));
  }
  return requests;
}

// When the tokens of each sequence were visible, and which rows it had on which instance.
class Seen {
public:
  void operator()(const FleetIteration &iteration) {
    EXPECT_LE(iteration.rows.size(), static_cast<size_t>(kSeats));
    for (const FleetRows &rows : iteration.rows) {
      Sequence &of = sequences_[{rows.request, rows.sequence}];
      EXPECT_EQ(rows.firstPosition, of.rows) << "request " << rows.request << ": nothing runs twice";
      of.rows += rows.rows;
      if (rows.sample)
        of.visible.push_back(iteration.visibleNs);
    }
  }
  // Since its first tokens were delivered.
  int64_t longestGap(uint32_t request, const RequestOutcome &outcome) const {
    int64_t longest = 0;
    for (uint32_t s = 0; s < outcome.tokens.size(); ++s) {
      int64_t last = outcome.firstTokensNs;
      for (const int64_t at : sequences_.at({request, s}).visible) {
        if (at <= outcome.firstTokensNs)
          continue;
        longest = std::max(longest, at - last);
        last = at;
      }
    }
    return longest;
  }
  size_t tokens(uint32_t request, uint32_t sequence) const { return sequences_.at({request, sequence}).visible.size(); }

private:
  struct Sequence {
    int64_t rows = 0;
    std::vector<int64_t> visible;
  };
  std::map<std::pair<uint32_t, uint32_t>, Sequence> sequences_;
};

struct Tally {
  uint64_t admitted = 0, refused = 0, joined = 0, together = 0, tokens = 0, misses = 0;
};

void runDrawn(Draw &draw, Tally &tally) {
  const double link = draw.pick(3, 40) * 1e8;
  const plan::Plan plan = drawPlan(draw, link, kSeats);
  std::vector<LoadedFleet::On> on;
  for (int devices = draw.pick(1, 4); devices > 0; --devices)
    on.push_back({"gpu" + std::to_string(on.size()), Role::Both, &plan});
  if (on.size() > 1 && draw.pick(0, 2) == 0) {
    on[0].role = Role::Prefill;
    on[1].role = Role::Decode;
  }
  const double bus = link * draw.pick(10, 25) / 10;
  const std::vector<FleetRequest> requests =
      drawRequests(draw, plan, 40, residentTimes(plan).decodeNs * draw.pick(1, 10));
  Seen seen;
  FleetOptions options{.busBandwidth = bus};
  options.objective = draw.coin() ? Maximise::FreedMemory : Maximise::Throughput;
  options.queue = draw.pick(0, 3) != 0;
  options.onIteration = [&](const FleetIteration &i) { seen(i); };
  auto group = sim::makeSimGroup(on.size(), {bus});
  ASSERT_TRUE(group.ok()) << group.status();
  LoadedFleet fleet(*std::move(group), on, options);
  const auto result = fleet->run(requests);
  ASSERT_TRUE(result.ok()) << result.status();
  tally.joined += result->joined;
  tally.together = std::max(tally.together, result->mostTogether);
  EXPECT_EQ(result->kvWaits, 0u); // what was set aside is never in the way
  for (uint32_t r = 0; r < requests.size(); ++r) {
    const RequestOutcome &outcome = result->requests[r];
    (outcome.admitted ? tally.admitted : tally.refused) += 1;
    if (!outcome.admitted) {
      EXPECT_FALSE(outcome.status.ok());
      continue;
    }
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    for (uint32_t s = 0; s < outcome.tokens.size(); ++s) {
      EXPECT_EQ(seen.tokens(r, s), outcome.tokens[s].size());
      tally.tokens += outcome.tokens[s].size();
    }
    const int64_t gap = seen.longestGap(r, outcome), ttft = outcome.firstTokensNs - outcome.arrivalNs;
    EXPECT_EQ(gap, outcome.longestGapNs);
    const bool held =
        static_cast<double>(gap) <= requests[r].tpotNs() && static_cast<double>(ttft) <= requests[r].ttftNs();
    tally.misses += !held;
    EXPECT_TRUE(held) << "request " << r << ": longest gap " << gap << " of " << requests[r].tpotNs() << ", TTFT "
                      << ttft << " of " << requests[r].ttftNs();
  }
  for (uint32_t i = 0; i < on.size(); ++i) {
    EXPECT_EQ(fleet->coordinator().state(i), DeviceState::Idle);
    EXPECT_EQ(fleet.runtime(i).kvBlocks().endOfUse(), 1);
  }
}

TEST(JoiningFleets, WhateverIsAdmittedBesideOthersHoldsItsObjectivesAndLeavesThemTheirs) {
  Tally tally;
  for (int f = 0; f < fleetsToDraw(); ++f) {
    SCOPED_TRACE(testing::Message() << "fleet " << f);
    Draw draw(static_cast<uint32_t>(f));
    runDrawn(draw, tally);
    if (HasFatalFailure())
      return;
  }
  std::printf("%llu admitted, of which %llu joined others (at most %llu together), %llu refused, %llu tokens, "
              "%llu missed\n",
              static_cast<unsigned long long>(tally.admitted), static_cast<unsigned long long>(tally.joined),
              static_cast<unsigned long long>(tally.together), static_cast<unsigned long long>(tally.refused),
              static_cast<unsigned long long>(tally.tokens), static_cast<unsigned long long>(tally.misses));
  EXPECT_EQ(tally.misses, 0u);
  EXPECT_GT(tally.joined, tally.admitted / 4);
  EXPECT_GE(tally.together, 4u);
}

// What a device serves only shrinks until another request joins: no batch that it may become takes longer at any rate,
// or moves more, whichever buckets it then runs in.
TEST(JoiningFleets, ASmallerBatchIsNeverHeldToMore) {
  int compared = 0;
  for (int f = 0; f < fleetsToDraw(); ++f) {
    SCOPED_TRACE(testing::Message() << "plan " << f);
    Draw draw(static_cast<uint32_t>(9090 + f)); // 9098: the cheapest for few sequences is a bucket that moves more
    const plan::Plan plan = drawPlan(draw, draw.pick(3, 40) * 1e8, kSeats);
    const PlanLoads loads(plan, 0);
    const auto of = [&](int64_t sequences, int64_t context, std::vector<int64_t> joining) {
      auto placements =
          loads.placements({.sequences = sequences, .context = context, .kvEnd = 40, .joining = joining}, 0);
      EXPECT_TRUE(placements.ok()) << placements.status();
      return placements.value_or(std::vector<BusPlacement>());
    };
    const int64_t context = draw.pick(2, 64), sequences = draw.pick(2, 8);
    const std::vector<BusPlacement> all =
        of(sequences, context, draw.coin() ? std::vector<int64_t>{9} : std::vector<int64_t>());
    for (const BusPlacement &fewer :
         of(draw.pick(1, static_cast<int>(sequences)), draw.pick(1, static_cast<int>(context)), {}))
      for (const BusPlacement &before : all) {
        if (before.placement != fewer.placement)
          continue;
        ++compared;
        EXPECT_LE(movedBytes(fewer), movedBytes(before));
        for (const double share : {1.0, 0.7, 0.4, 0.1})
          EXPECT_LE(timeAtRate(fewer, share * loads.linkBandwidth()),
                    timeAtRate(before, share * loads.linkBandwidth()) * (1 + 1e-12))
              << "placement " << fewer.placement << " at " << share;
      }
  }
  EXPECT_GT(compared, fleetsToDraw());
}

// One way of running requests on a device: in one placement, with one budget, all as soon as they come but one, which
// comes when so many of the others have ended. Whether all keep their objectives.
bool holdsThatWay(const plan::Plan &plan, const std::vector<FleetRequest> &requests, size_t late, size_t ends,
                  const EngineEdge &edge) {
  const std::unique_ptr<core::Device> device = sim::makeSimDevice();
  auto runtime = core::Runtime::load(plan, *device, {}, nullptr, {.placement = edge.placement});
  EXPECT_TRUE(runtime.ok()) << runtime.status();
  const int64_t start = device->nowNs();
  std::map<uint64_t, size_t> of; // requests by id
  std::vector<int64_t> last(requests.size(), -1);
  size_t ended = 0;
  bool held = true;
  EngineOptions options{.watermark = 0, .depth = 1};
  options.onToken = [&](const EngineToken &token) {
    const size_t r = of.at(token.request);
    const int64_t since = last[r] < 0 ? start + requests[r].arrivalNs : last[r];
    const double most = last[r] < 0 ? requests[r].ttftNs() : requests[r].tpotNs();
    held = held && static_cast<double>(token.visibleNs - since) <= most;
    last[r] = token.visibleNs;
  };
  options.onEnd = [&](const EngineEnd &) { ++ended; };
  auto engine = Engine::create(**runtime, std::move(options));
  EXPECT_TRUE(engine.ok()) << engine.status();
  std::vector<bool> came(requests.size(), false);
  while (held && ended < requests.size()) {
    int64_t next = -1;
    for (size_t r = 0; r < requests.size(); ++r) {
      const int64_t at = start + requests[r].arrivalNs;
      if (came[r] || (r == late && ended < ends))
        continue;
      if (at > device->nowNs()) {
        next = next < 0 ? at : std::min(next, at);
        continue;
      }
      came[r] = true;
      const auto id = (*engine)->submit({.prompt = requests[r].prompts[0],
                                         .maxNewTokens = requests[r].maxNewTokens,
                                         .sampling = requests[r].sampling});
      EXPECT_TRUE(id.ok()) << id.status();
      of[*id] = r;
    }
    const auto launched = (*engine)->launch(edge);
    if (!launched.ok())
      return false;
    if (*launched)
      EXPECT_TRUE((*engine)->read().ok());
    else if (next >= 0)
      EXPECT_TRUE(device->waitUntil(next).ok());
    else
      return false; // the late one waits for ends that do not come
  }
  return held;
}

// Of small cases (one device, five requests) each one that is refused is tried with those that were admitted, in every
// placement, with every budget, at every moment at which one of them has ended.
TEST(JoiningFleets, RefusedRequestsAreHeldAgainstEveryFixedWay) {
  int refused = 0, feasible = 0, admitted = 0;
  for (int f = 0; f < fleetsToDraw(); ++f) {
    Draw draw(static_cast<uint32_t>(5000 + f));
    const double link = draw.pick(3, 40) * 1e8;
    const plan::Plan plan = drawPlan(draw, link, kSeats);
    std::vector<FleetRequest> requests = drawRequests(draw, plan, 5, residentTimes(plan).decodeNs * draw.pick(1, 6));
    for (FleetRequest &request : requests) {
      request.prompts.resize(1);
      request.stopTokens.clear();
    }
    auto group = sim::makeSimGroup(1, {link});
    ASSERT_TRUE(group.ok()) << group.status();
    LoadedFleet fleet(*std::move(group), {{"gpu0", Role::Both, &plan}}, {.busBandwidth = link});
    const auto result = fleet->run(requests);
    ASSERT_TRUE(result.ok()) << result.status();
    std::vector<FleetRequest> taken;
    for (size_t r = 0; r < requests.size(); ++r)
      if (result->requests[r].admitted)
        taken.push_back(requests[r]);
    admitted += static_cast<int>(taken.size());
    for (size_t r = 0; r < requests.size(); ++r) {
      if (result->requests[r].admitted)
        continue;
      ++refused;
      std::vector<FleetRequest> all = taken;
      all.push_back(requests[r]);
      bool some = false;
      for (uint32_t p = 0; p < plan.placements.size() && !some; ++p)
        for (const int64_t budget : {int64_t{0}, kSeats, 2 * kSeats})
          for (size_t ends = 0; ends < all.size() && !some; ++ends)
            some = holdsThatWay(plan, all, all.size() - 1, ends, {.placement = p, .budget = budget});
      feasible += some;
    }
  }
  std::printf("%d admitted; of %d refused %d could have been held in some fixed placement and budget\n", admitted,
              refused, feasible);
  RecordProperty("refused", refused);
  RecordProperty("feasible", feasible);
  EXPECT_GT(refused, 0);
  EXPECT_GT(admitted, refused);
}

} // namespace
} // namespace headrace::serve
