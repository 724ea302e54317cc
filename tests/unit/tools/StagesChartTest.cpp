// SPDX-License-Identifier: Apache-2.0
//
// Pictures of stages against what ran: on a bus of their own each launch is as its plan says, on a shared one the times
// of all steps are those by which the run went.
#include "tools/timeline/StagesChart.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/conformance/StagesUnderTest.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;

// Two stages of three layers, watched, with all layers away.
struct Ran {
  explicit Ran(const WatchedGroup::Make &make, const core::Options &options = {.interval = 1}) {
    auto watched = WatchedGroup::of(make);
    EXPECT_TRUE(watched.ok()) << watched.status();
    group = watched->get();
    served.emplace(options, std::vector<int64_t>{0, 3}, 2, /*virtualTime=*/false, *std::move(watched));
    for (const plan::Plan &plan : served->plans())
      plans.push_back(&plan);
  }
  // So many tokens of two micro-batches of a sequence, behind a prompt of three tokens each.
  std::vector<int32_t> run(int64_t tokens) {
    std::vector<int32_t> out;
    std::vector<std::vector<int32_t>> ids(2, {1, 2, 3}), blocks(2);
    std::vector<std::vector<core::SequenceRows>> rows(2);
    std::vector<absl::Span<const core::SequenceRows>> spans(2);
    std::vector<int64_t> cached(2, 0);
    for (int64_t n = 0; n < 2 * tokens; ++n) {
      const auto m = static_cast<size_t>(n % 2);
      if (n >= 2) {
        const auto got = served->stages().await();
        EXPECT_TRUE(got.ok()) << got.status();
        ids[m].push_back(got->tokens.front());
        out.push_back(got->tokens.front());
      }
      const auto known = static_cast<int64_t>(ids[m].size());
      served->grow(0, blocks[m], known);
      rows[m] = {{.tokens = absl::MakeConstSpan(ids[m]).subspan(static_cast<size_t>(cached[m])),
                  .firstPosition = cached[m],
                  .blocks = blocks[m],
                  .sample = true}};
      cached[m] = known;
      spans[m] = rows[m];
      EXPECT_TRUE(served->stages().begin({&spans[m], 1}).ok());
    }
    while (served->stages().underWay() > 0)
      out.push_back(served->stages().await()->tokens.front());
    return out;
  }

  WatchedGroup *group = nullptr;
  std::optional<core::Served> served;
  std::vector<const plan::Plan *> plans;
};

WatchedGroup::Make simGroup(double bus) {
  return [bus] { return sim::makeSimGroup(2, {bus, bus, bus}); };
}
constexpr double kNone = std::numeric_limits<double>::infinity();

TEST(StagesChart, LaunchesAreAsTheirPlansSayWhereTheBusIsTheirOwn) {
  Ran ran(simGroup(kNone));
  ran.run(6);
  for (size_t s = 0; s < 2; ++s)
    for (size_t n = 0; n < 12; ++n) {
      const WatchedGroup::Launch &launch = ran.group->launches(s)[n];
      const auto steps = ran.group->stepsOf(s, n);
      ASSERT_TRUE(steps.ok()) << steps.status();
      Trace trace = makeTrace(*ran.plans[s], "sim", launch.key.index, *steps);
      trace.inUse.front() = launch.inUse.of(0);
      const Chart chart = makeChart(*ran.plans[s], launch.key.index, &trace);
      ASSERT_EQ(chart.tracks.size(), 2u);
      for (size_t i = 0; i < steps->size(); ++i) {
        EXPECT_EQ(chart.tracks[0].bars[i].startNs, chart.tracks[1].bars[i].startNs) << s << ' ' << n << ' ' << i;
        EXPECT_EQ(chart.tracks[0].bars[i].endNs, chart.tracks[1].bars[i].endNs) << s << ' ' << n << ' ' << i;
      }
    }
}

// A bus of a link and a half: copies of both stages wait for each other. What publishes has ended when tokens were
// there in the run, and launches of a stage follow each other.
TEST(StagesChart, StepsHaveTheTimesOfTheRunOnASharedBus) {
  const double link = core::tinyPlan({}).hardware.h2dBandwidth;
  Ran alone(simGroup(kNone)), ran(simGroup(1.5 * link));
  alone.run(6);
  ran.run(6);
  EXPECT_GT(ran.group->launches(1).back().visibleNs, alone.group->launches(1).back().visibleNs);
  for (size_t s = 0; s < 2; ++s) {
    int64_t before = 0;
    for (size_t n = 0; n < 12; ++n) {
      const WatchedGroup::Launch &launch = ran.group->launches(s)[n];
      const auto steps = ran.group->stepsOf(s, n);
      ASSERT_TRUE(steps.ok()) << steps.status();
      const plan::Schedule &schedule = ran.plans[s]->schedules[ran.plans[s]->variants[launch.key.index].schedule];
      int64_t ended = 0;
      for (size_t i = 0; i < steps->size(); ++i) {
        EXPECT_GE((*steps)[i].startNs, std::max(before, launch.madeNs));
        ended = std::max(ended, (*steps)[i].endNs);
        if (schedule.steps[i].kind == plan::StepKind::Publish) {
          EXPECT_EQ((*steps)[i].endNs, launch.visibleNs) << s << ' ' << n;
        }
      }
      before = ended;
    }
  }
}

TEST(StagesChart, AWindowHasWhatAllStagesDidInIt) {
  Ran ran(simGroup(kNone));
  ran.run(6);
  const auto window = medianWindow(ran.plans, *ran.group, 2);
  ASSERT_TRUE(window.ok()) << window.status();
  EXPECT_EQ(window->count, 2u);
  EXPECT_GE(window->first, 2u); // not the prompts
  EXPECT_THAT(window->about, HasSubstr(" of 12, the median of 9 such"));
  const auto chart = stagesChart(ran.plans, *ran.group, *window, 2);
  ASSERT_TRUE(chart.ok()) << chart.status();
  EXPECT_THAT(chart->title, HasSubstr(", 2 stages"));
  ASSERT_EQ(chart->tracks.size(), 2u);
  EXPECT_EQ(chart->tracks[1].about, "layers 3 to 5");
  const auto span = static_cast<uint64_t>(ran.group->launches(1)[window->first + 1].visibleNs -
                                          ran.group->launches(0)[window->first].madeNs);
  for (const Track &track : chart->tracks) {
    EXPECT_EQ(track.iterationNs, span);
    uint64_t busy[plan::kLanes] = {}, free[plan::kLanes] = {};
    for (const Bar &bar : track.bars) {
      const auto lane = static_cast<size_t>(bar.lane);
      EXPECT_LE(bar.endNs, span);
      EXPECT_GE(bar.startNs, free[lane]) << bar.name; // no two of a lane at once
      free[lane] = bar.endNs;
      busy[lane] += bar.endNs - bar.startNs;
      EXPECT_LT(static_cast<size_t>(bar.launch), track.launches.size());
    }
    for (size_t lane = 0; lane < plan::kLanes; ++lane)
      EXPECT_EQ(track.busyNs[lane], busy[lane]);
    for (size_t i = 1; i < track.launches.size(); ++i)
      EXPECT_GE(track.launches[i].startNs, track.launches[i - 1].endNs);
  }
  // The second stage's layers are called by their number in the model.
  const auto named = [&](size_t track, const char *name) {
    return std::any_of(chart->tracks[track].bars.begin(), chart->tracks[track].bars.end(),
                       [&](const Bar &bar) { return bar.name == name; });
  };
  EXPECT_TRUE(named(0, "L2 qkv") && named(1, "L5 qkv") && named(0, "send") && named(1, "receive"));
  EXPECT_FALSE(named(0, "L3 qkv") || named(1, "L2 qkv") || named(0, "receive") || named(1, "send"));
  // Both iterations' rows, from the end of the one copy to the start of the other.
  std::vector<std::string> passed;
  for (const RowsPassed &rows : chart->passed) {
    passed.push_back(rows.of);
    EXPECT_LE(rows.sentNs, rows.receivedNs);
    EXPECT_TRUE(std::any_of(chart->tracks[0].bars.begin(), chart->tracks[0].bars.end(),
                            [&](const Bar &bar) { return bar.passes && bar.toHost && bar.endNs == rows.sentNs; }));
  }
  EXPECT_THAT(passed, testing::IsSupersetOf({"iteration " + std::to_string(window->first + 1),
                                             "iteration " + std::to_string(window->first + 2)}));
}

TEST(StagesChart, WatchingChangesNoTokenAndOnlySoManyAreKept) {
  const WatchedGroup::Make make = [] {
    return host::makeHostGroup(std::vector<host::HostOptions>(2, {.unpaced = true}), kNone);
  };
  Ran watched(make);
  const std::vector<int32_t> tokens = watched.run(40);
  EXPECT_EQ(watched.group->launches(0).size(), WatchedGroup::kIterations);
  for (size_t s = 0; s < 2; ++s)
    for (const size_t n : {size_t{0}, WatchedGroup::kIterations - 1}) {
      const auto steps = watched.group->stepsOf(s, n);
      ASSERT_TRUE(steps.ok()) << steps.status();
      EXPECT_FALSE(steps->empty()) << s << ' ' << n;
    }
  Ran again(make);
  EXPECT_EQ(again.run(40), tokens);
  const auto window = medianWindow(watched.plans, *watched.group, 2);
  ASSERT_TRUE(window.ok()) << window.status();
  EXPECT_THAT(window->about, HasSubstr(" of 64 watched"));
}

TEST(StagesChart, NothingHasPassedYet) {
  Ran ran(simGroup(kNone));
  EXPECT_EQ(medianWindow(ran.plans, *ran.group, 2).status().code(), absl::StatusCode::kFailedPrecondition);
}

} // namespace
} // namespace headrace::tools
