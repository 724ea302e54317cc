// SPDX-License-Identifier: Apache-2.0
//
// Random fleets in virtual time. What was promised is checked by the times at which tokens were visible, with sums of
// the test's own; and what is refused, by the least objective that is admitted on an idle bus.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "runtime/sim/SimGroup.h"
#include "tests/conformance/FleetFixture.h"

namespace headrace::serve {
namespace {

int fleetsToDraw() { return serve::fleetsToDraw("HEADRACE_RANDOM_FLEETS", 25); }

// Half of them have something to offload in every placement: by an objective and a budget.
plan::Plan drawPlan(Draw &draw, double link) {
  FleetPlanOptions options;
  options.spec = core::tinyLlama(draw.pick(4, 12));
  std::erase_if(options.intervals, [&](int64_t interval) { return interval > options.spec.layers; });
  options.linkBandwidth = link;
  options.rule = draw.coin() ? model::StartRule::Eager : model::StartRule::Paper;
  if (draw.coin())
    return fleetPlan(options);
  compiler::CompileRequest request = fleetPlanRequest(options);
  request.placements.clear();
  request.policy = {};
  request.policy.name = "headrace";
  request.policy.placements = draw.pick(2, 5);
  const plan::Plan resident = fleetPlan(options);
  uint64_t weights = 0;
  for (const plan::Buffer &buffer : resident.buffers)
    weights += buffer.kind == plan::BufferKind::Weight ? buffer.bytes : 0;
  request.goal.deviceMemory = resident.arenaBytes - weights * static_cast<uint64_t>(draw.pick(5, 50)) / 100;
  for (double factor = draw.pick(105, 300) / 100.0;; factor *= 2) {
    request.goal.sloFactor = factor;
    auto plan = compiler::compile(request);
    if (plan.ok() || factor > 1e4) {
      EXPECT_TRUE(plan.ok()) << plan.status();
      return plan.ok() ? *std::move(plan) : fleetPlan(options);
    }
  }
}

std::vector<LoadedFleet::On> drawInstances(Draw &draw, const plan::Plan &plan, std::vector<Role> roles) {
  for (int more = draw.pick(0, 2); more > 0; --more) {
    if (draw.coin())
      roles.push_back(Role::Both);
    else
      roles.insert(roles.end(), {Role::Prefill, Role::Decode});
  }
  std::vector<LoadedFleet::On> on;
  for (size_t i = 0; i < roles.size(); ++i)
    on.push_back({"gpu" + std::to_string(i), roles[i], &plan});
  return on;
}

std::unique_ptr<core::DeviceGroup> simGroup(size_t devices, double bus) {
  auto group = sim::makeSimGroup(devices, {bus});
  EXPECT_TRUE(group.ok()) << group.status();
  return *std::move(group);
}

// When the tokens of each request's decode iterations were visible.
using Visible = std::vector<std::vector<int64_t>>;

// Every sequence has a token in each of these iterations: prompts run together, and nothing stops early.
int64_t longestGap(const RequestOutcome &outcome, const std::vector<int64_t> &visible) {
  int64_t longest = 0, last = outcome.firstTokensNs;
  for (const int64_t at : visible) {
    longest = std::max(longest, at - last);
    last = at;
  }
  return longest;
}

// Of the placements the least that iterations of the request take, the longest of them as its context grows.
double ownMinimum(const plan::Plan &plan, const FleetRequest &request) {
  const auto sequences = static_cast<int64_t>(request.prompts.size());
  int64_t longest = 0;
  for (const std::vector<int32_t> &prompt : request.prompts)
    longest = std::max(longest, static_cast<int64_t>(prompt.size()));
  double own = 1e18;
  for (uint32_t p = 0; p < plan.placements.size(); ++p) {
    double most = 0;
    for (int64_t context = longest + 1; context < longest + request.maxNewTokens; ++context) {
      double least = 1e18;
      for (const plan::Variant &v : plan.variants)
        if (v.placement == p && v.newTokens >= sequences && v.sequences >= sequences && v.context >= context)
          least = std::min(least, static_cast<double>(v.predictedNs));
      most = std::max(most, least);
    }
    own = std::min(own, most);
  }
  return own;
}

// The least TPOT that is admitted for a request on a fleet of these instances, over the shortest iteration that any
// placement of the plan has for it; and over the longest gap that was then seen.
struct Least {
  double overOwn = 0, overSeen = 0;
};
Least leastAdmitted(const plan::Plan &plan, const std::vector<Role> &roles, double bus, FleetRequest request) {
  std::vector<LoadedFleet::On> on;
  for (size_t i = 0; i < roles.size(); ++i)
    on.push_back({"gpu" + std::to_string(i), roles[i], &plan});
  Visible visible(1);
  FleetOptions options{.busBandwidth = bus};
  options.onIteration = [&](const FleetIteration &i) {
    if (!i.gaps.empty())
      visible[0].push_back(i.visibleNs);
  };
  request.arrivalNs = 0;
  request.ttft = std::chrono::seconds(1000);
  const double own = ownMinimum(plan, request);
  Least least;
  const auto admitted = [&](double tpotNs) {
    LoadedFleet fleet(simGroup(roles.size(), bus), on, options);
    request.tpot = wholeNs(tpotNs);
    visible[0].clear();
    const auto result = fleet->run({&request, 1});
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result->requests[0].admitted)
      return false;
    const auto seen = static_cast<double>(longestGap(result->requests[0], visible[0]));
    EXPECT_LE(seen, tpotNs);
    least = {tpotNs / own, tpotNs / seen};
    return true;
  };
  double low = own / 2, high = 64 * own;
  if (!admitted(high))
    return {};
  for (int i = 0; i < 14; ++i) {
    const double middle = low + (high - low) / 2;
    (admitted(middle) ? high : low) = middle;
  }
  return least;
}

void row(const char *name, std::vector<double> of) {
  std::sort(of.begin(), of.end());
  if (of.empty())
    return;
  const auto at = [&](double share) { return of[static_cast<size_t>(share * static_cast<double>(of.size() - 1))]; };
  std::printf("%-44s %4zu: median %.3f, p95 %.3f, most %.3f\n", name, of.size(), at(0.5), at(0.95), at(1));
}

struct Tally {
  uint64_t admitted = 0, refused = 0, gaps = 0, misses = 0;
  void print() const {
    std::printf("%llu admitted, %llu refused, %llu gaps, %llu misses\n", static_cast<unsigned long long>(admitted),
                static_cast<unsigned long long>(refused), static_cast<unsigned long long>(gaps),
                static_cast<unsigned long long>(misses));
  }
};

// A fleet and its requests are drawn and run, and each promise is held against what was seen. The requests, or none
// where it could not run.
std::vector<FleetRequest> runDrawn(Draw &draw, const plan::Plan &plan, const std::vector<Role> &roles, double bus,
                                   Tally &tally) {
  const std::vector<LoadedFleet::On> on = drawInstances(draw, plan, roles);
  Traffic traffic{.requests = 30};
  const ResidentTimes times = residentTimes(plan);
  traffic.meanGapNs = times.decodeNs * draw.pick(1, 40);
  traffic.tpotTo = draw.pick(130, 800);
  std::vector<FleetRequest> requests = randomRequests(plan, traffic, draw.random);
  Visible visible(requests.size());
  FleetOptions options{.busBandwidth = bus};
  options.objective = draw.coin() ? Maximise::FreedMemory : Maximise::Throughput;
  options.queue = draw.coin();
  options.onIteration = [&](const FleetIteration &i) {
    for (const FleetGap &gap : i.gaps)
      visible[gap.request].push_back(i.visibleNs);
  };
  LoadedFleet fleet(simGroup(on.size(), bus), on, options);
  const auto result = fleet->run(requests);
  EXPECT_TRUE(result.ok()) << result.status();
  if (!result.ok())
    return {};
  for (size_t r = 0; r < requests.size(); ++r) {
    const RequestOutcome &outcome = result->requests[r];
    (outcome.admitted ? tally.admitted : tally.refused) += 1;
    if (!outcome.admitted)
      continue;
    EXPECT_EQ(visible[r].size() + 1, static_cast<size_t>(requests[r].maxNewTokens));
    tally.gaps += visible[r].size();
    const bool held = static_cast<double>(longestGap(outcome, visible[r])) <= requests[r].tpotNs() &&
                      static_cast<double>(outcome.firstTokensNs - outcome.arrivalNs) <= requests[r].ttftNs();
    tally.misses += held ? 0 : 1;
    EXPECT_TRUE(held) << "request " << r << ": longest gap " << longestGap(outcome, visible[r]) << " of "
                      << requests[r].tpotNs() << ", TTFT " << outcome.firstTokensNs - outcome.arrivalNs << " of "
                      << requests[r].ttftNs();
  }
  return requests;
}

TEST(RandomFleets, EveryGapOfWhatIsAdmittedHolds) {
  Tally tally;
  std::vector<double> own[2], seen[2];
  for (int f = 0; f < fleetsToDraw(); ++f) {
    SCOPED_TRACE(testing::Message() << "fleet " << f);
    Draw draw(static_cast<uint32_t>(f));
    const double link = draw.pick(3, 40) * 1e8;
    const plan::Plan plan = drawPlan(draw, link);
    const double bus = link * draw.pick(10, 25) / 10;
    const bool pair = f % 2 == 0;
    const std::vector<Role> roles =
        pair ? std::vector<Role>{Role::Prefill, Role::Decode} : std::vector<Role>{Role::Both};
    const std::vector<FleetRequest> requests = runDrawn(draw, plan, roles, bus, tally);
    ASSERT_FALSE(requests.empty());
    FleetRequest one = requests.front();
    one.maxNewTokens = std::max<int64_t>(3, one.maxNewTokens);
    if (const Least least = leastAdmitted(plan, roles, bus, one); least.overOwn > 0) {
      own[pair].push_back(least.overOwn);
      seen[pair].push_back(least.overSeen);
      if (pair) { // nothing comes before a token but an iteration of decoding
        EXPECT_LE(least.overOwn, 1.02);
      }
    } else {
      ADD_FAILURE() << "nothing is admitted on an idle bus";
    }
  }
  tally.print();
  row("pair: least TPOT admitted / own minimum", own[1]);
  row("one device: least TPOT admitted / own minimum", own[0]);
  row("pair: least TPOT admitted / longest gap", seen[1]);
  row("one device: least TPOT admitted / longest gap", seen[0]);
  EXPECT_EQ(tally.misses, 0u);
  EXPECT_GT(tally.admitted, tally.refused / 2);
}

// The same where blocks of the caches are away in every placement, and weights in some: what is in use of tails is
// counted, and no less than it takes.
TEST(RandomFleets, GapsHoldWithSplitCaches) {
  Tally tally;
  for (int f = 0; f < fleetsToDraw(); ++f) {
    SCOPED_TRACE(testing::Message() << "fleet " << f);
    Draw draw(static_cast<uint32_t>(1000 + f));
    FleetPlanOptions options;
    options.spec = core::tinyLlama(draw.pick(4, 8));
    options.intervals = {2, 4};
    options.linkBandwidth = draw.pick(3, 40) * 1e8;
    compiler::CompileRequest request = fleetPlanRequest(options);
    for (compiler::Candidate &candidate : request.placements)
      candidate.residency.setKvAway(options.spec.layers, draw.pick(1, 30)); // of 37 blocks
    const auto plan = compiler::compile(request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const std::vector<Role> roles =
        f % 2 == 0 ? std::vector<Role>{Role::Prefill, Role::Decode} : std::vector<Role>{Role::Both};
    runDrawn(draw, *plan, roles, options.linkBandwidth * draw.pick(10, 25) / 10, tally);
  }
  tally.print();
  EXPECT_EQ(tally.misses, 0u);
  EXPECT_GT(tally.admitted, tally.refused / 2);
}

// What a plan was compiled for, one device that has its link to itself is held to: at that TPOT, to the nanosecond.
TEST(RandomFleets, APlanIsAdmittedAtTheObjectiveItWasCompiledFor) {
  int offloads = 0, several = 0;
  for (int f = 0; f < fleetsToDraw(); ++f) {
    SCOPED_TRACE(testing::Message() << "plan " << f);
    Draw draw(static_cast<uint32_t>(1000 + f));
    FleetPlanOptions options;
    options.spec = core::tinyLlama(draw.pick(4, 12));
    options.intervals.clear();
    options.linkBandwidth = draw.pick(3, 40) * 1e8;
    compiler::CompileRequest request = fleetPlanRequest(options);
    const uint64_t residentNs = static_cast<uint64_t>(residentTimes(fleetPlan(options)).decodeNs);
    request.placements.clear();
    request.policy = {};
    request.policy.name = draw.coin() ? "headrace" : "select-n";
    request.policy.placements = draw.pick(1, 5);
    request.goal.tpot = std::chrono::nanoseconds(residentNs * static_cast<uint64_t>(draw.pick(102, 400)) / 100);
    const absl::StatusOr<plan::Plan> plan = compiler::compile(request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    offloads += plan->hostBytes > 0;
    several += plan->placements.size() > 1;
    FleetRequest one;
    one.model = plan->model->name;
    for (int64_t s = 0; s < options.batch; ++s)
      one.prompts.push_back(std::vector<int32_t>(static_cast<size_t>(draw.pick(1, 2)), 5));
    one.maxNewTokens = options.context - 2;
    one.ttft = std::chrono::seconds(1000);
    one.tpot = *request.goal.tpot;
    Visible visible(1);
    const double bus = options.linkBandwidth * draw.pick(10, 25) / 10;
    FleetOptions fleetOptions{.busBandwidth = bus};
    fleetOptions.onIteration = [&](const FleetIteration &i) {
      if (!i.gaps.empty())
        visible[0].push_back(i.visibleNs);
    };
    LoadedFleet fleet(simGroup(1, bus), {{"gpu0", Role::Both, &*plan}}, fleetOptions);
    const auto result = fleet->run({&one, 1});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->requests[0].admitted) << result->requests[0].status;
    EXPECT_LE(static_cast<double>(longestGap(result->requests[0], visible[0])), one.tpotNs());
  }
  EXPECT_GT(offloads, fleetsToDraw() / 3);
  EXPECT_GT(several, 0);
}

} // namespace
} // namespace headrace::serve
