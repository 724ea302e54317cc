// SPDX-License-Identifier: Apache-2.0
#include "tools/timeline/Timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/tools/SplitTestPlan.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

Trace measuredTrace() {
  // As planned, but the first copy takes 200 and everything behind it is 50 later.
  return {"00ff", "host",
          5,      "iteration 5 of 8",
          0,      {{0, 200}, {0, 20}, {20, 60}, {60, 100}, {200, 260}, {260, 350}, {260, 300}, {300, 300}}};
}

TEST(TimelineChart, PlaysTheVariantAndNamesItsSteps) {
  const Chart chart = makeChart(testPlan(), 0, nullptr);
  EXPECT_EQ(chart.title, "two-layers on round");
  EXPECT_EQ(chart.subtitle,
            "variant 0: 2 new tokens, 2 sequences, context 16; offloaded: 1 layer (interval 2), start rule eager");
  ASSERT_EQ(chart.tracks.size(), 1u);
  const Track &t = chart.tracks[0];
  std::vector<std::string> names;
  for (const Bar &bar : t.bars)
    names.push_back(bar.name);
  EXPECT_THAT(names,
              testing::ElementsAre("L1 qkv", "embed", "L0 qkv", "L0 attention", "L1 qkv", "L1 qkv", "head", "publish"));
  EXPECT_EQ(t.iterationNs, 300u);
  EXPECT_EQ(t.tokensNs, 250u);
  EXPECT_EQ(t.busyNs[static_cast<int>(plan::Lane::H2D)], 240u);
  ASSERT_EQ(t.stalls.size(), 1u);
  EXPECT_EQ(t.stalls[0].startNs, 100u);
  EXPECT_EQ(t.stalls[0].endNs, 150u);
  EXPECT_EQ(t.stalls[0].waitsFor, "L1 qkv");
  EXPECT_THAT(chart.lanes, testing::ElementsAre(plan::Lane::Compute, plan::Lane::H2D));
}

TEST(TimelineChart, MeasuredTimesStandBeside) {
  const Trace trace = measuredTrace();
  const Chart chart = makeChart(testPlan(), 0, &trace);
  ASSERT_EQ(chart.tracks.size(), 2u);
  EXPECT_EQ(chart.tracks[1].name, "measured (host)");
  EXPECT_EQ(chart.tracks[1].iterationNs, 350u);
  EXPECT_EQ(chart.tracks[1].stallNs, 100u);
}

// Half the profile's bandwidth: the first copy takes 300, so L1 starts there and the second copy ends at 540.
TEST(TimelineChart, ThePlannedLanesAreThoseOfTheRunsLink) {
  const Chart chart = makeChart(testPlan(), 0, nullptr, 0.5e9);
  EXPECT_EQ(chart.tracks[0].bars[0].endNs, 300u);
  EXPECT_EQ(chart.tracks[0].iterationNs, 540u); // 300 + 60 + 2 x 90
}

TEST(TimelineChart, TailsOfKvAreCopiesAndWhatIsAppendedGoesToTheHost) {
  const Chart chart = makeChart(splitTestPlan(), kTails, nullptr);
  EXPECT_EQ(chart.subtitle, "variant 1: 2 new tokens, 2 sequences, context 16; offloaded: 1 layer (interval 2), KV "
                            "blocks from 1 on, start rule eager");
  const Track &t = chart.tracks[0];
  EXPECT_EQ(t.bars[0].name, "L1 kv");
  EXPECT_EQ(t.bars[0].linkBytes, 1024u); // all 4 blocks
  EXPECT_FALSE(t.bars[0].toHost);
  EXPECT_EQ(t.bars[3].name, "L0 rope_append");
  EXPECT_EQ(t.bars[3].linkBytes, 8u);
  EXPECT_TRUE(t.bars[3].toHost);
  EXPECT_EQ(t.iterationNs, 1174u); // 1024 + 60 + 90
  ASSERT_EQ(t.stalls.size(), 1u);
  EXPECT_EQ(t.stalls[0].waitsFor, "L1 kv");
  EXPECT_THAT(timelineText(chart, 80), HasSubstr("compute      6   200 ns    17%        0 B      8 B\n"));
  EXPECT_THAT(timelineText(chart, 80), HasSubstr("h2d          2  1.11 us    95%   1.09 KiB      0 B\n")); // 1024 + 90
  const std::string svg = timelineSvg(chart);
  EXPECT_THAT(svg, HasSubstr("<title>L0 rope_append: 40 ns, from 60 ns to 100 ns\n2.00 KiB of device memory\n8 B over "
                             "the link, written in place</title>"));
  EXPECT_THAT(svg, HasSubstr("<title>L1 kv: 1.02 us, from 0 ns to 1.02 us\n1.00 KiB over the link</title>"));

  const Chart without = makeChart(splitTestPlan(), kNoTails, nullptr);
  EXPECT_THAT(without.subtitle, HasSubstr("variant 0: 2 new tokens, 2 sequences, context 16, no tails; offloaded: "));
  EXPECT_EQ(without.tracks[0].iterationNs, 250u); // 160 + 90
}

// 2 of the 5 blocks in use: of the tail's 4 one, a quarter of the bytes and of the time.
TEST(TimelineChart, BothTracksAreOfWhatWasInUse) {
  Trace trace = measuredTrace();
  trace.variant = kTails;
  trace.inUse[0].kvBlocks = 2;
  const Chart chart = makeChart(splitTestPlan(), kTails, &trace);
  EXPECT_THAT(chart.subtitle, testing::EndsWith("; the copies of KV are those of blocks below 2 of 5"));
  EXPECT_EQ(chart.kvBlocksInUse, std::vector<int64_t>{2});
  for (const Track &track : chart.tracks)
    EXPECT_EQ(track.bars[0].linkBytes, 256u) << track.name;
  EXPECT_EQ(chart.tracks[0].bars[0].endNs, 256u);
  EXPECT_EQ(chart.tracks[0].iterationNs, 406u);   // 256 + 60 + 90
  EXPECT_EQ(chart.tracks[1].bars[0].endNs, 200u); // as measured
  trace.inUse[0].kvBlocks = 5;
  EXPECT_THAT(makeChart(splitTestPlan(), kTails, &trace).subtitle, Not(HasSubstr("copies of KV")));
  // Without sizes of their own copies are as planned, whatever is in use.
  const Chart whole = makeChart(testPlan(), 0, &trace);
  EXPECT_TRUE(whole.kvBlocksInUse.empty());
  EXPECT_EQ(whole.tracks[0].bars[0].endNs, 150u);
}

// The same copy the other way round, of what was written: blocks 3 and 4 of the tail's 1 to 4, half of it.
TEST(TimelineChart, BothTracksAreOfWhatWasWritten) {
  plan::Plan plan = splitTestPlan();
  plan::Schedule &schedule = plan.schedules[plan.variants[kTails].schedule];
  plan::Step &step = schedule.steps[0];
  step.lane = plan::Lane::D2H;
  step.dirtyOnly = true;
  std::swap(schedule.operands[step.firstOperand], schedule.operands[step.firstOperand + 1]);
  Trace trace = measuredTrace();
  trace.variant = kTails;
  trace.inUse[0] = {.kvBlocks = 5, .writtenBegin = 3, .writtenEnd = 5};
  const Chart chart = makeChart(plan, kTails, &trace);
  EXPECT_THAT(chart.subtitle, testing::EndsWith("; those to the host are of blocks 3 to 4, which were written"));
  EXPECT_EQ(chart.kvBlocksWritten, (std::vector<std::pair<int64_t, int64_t>>{{3, 5}}));
  for (const Track &track : chart.tracks)
    EXPECT_EQ(track.bars[0].linkBytes, 512u) << track.name;
  EXPECT_EQ(chart.tracks[0].bars[0].endNs, 512u);
  trace.inUse[0].writtenBegin = trace.inUse[0].writtenEnd = 0;
  EXPECT_THAT(makeChart(plan, kTails, &trace).subtitle, HasSubstr("the least there is"));
}

TEST(TimelineText, DrawsLanesWithLayersAndStalls) {
  const std::string text = timelineText(makeChart(testPlan(), 0, nullptr), 69); // 60 columns: 5 ns each
  EXPECT_THAT(text, HasSubstr("planned: iteration 300 ns, tokens at 250 ns, stalls 50 ns\n"));
  // embed 0-20 is 4 columns, L0 20-100 16, the stall 100-150 10, L1 150-210 12, head 210-250 8.
  EXPECT_THAT(text, HasSubstr("\ncompute  [==][L0============]..........[L1========][head==]\n"));
  EXPECT_THAT(text, HasSubstr("\nh2d      [L1==========================]            [L1==============]\n"));
  EXPECT_THAT(text, HasSubstr("lane     steps    busy  share  to device  to host\n"));
  EXPECT_THAT(text, HasSubstr("compute      6  200 ns    67%        0 B      0 B\n"));
  EXPECT_THAT(text, HasSubstr("h2d          2  240 ns    80%      240 B      0 B\n"));
}

TEST(TimelineText, PlannedAndMeasuredShareOneScale) {
  const Trace trace = measuredTrace();
  const std::string text = timelineText(makeChart(testPlan(), 0, &trace), 79); // 70 columns for 350 ns
  EXPECT_THAT(text, HasSubstr("compute  [==][L0============]..........[L1"));
  EXPECT_THAT(text, HasSubstr("measured (host), iteration 5 of 8: 350 ns, tokens at 300 ns, stalls 100 ns\n"));
  EXPECT_THAT(text, HasSubstr("compute  [==][L0============]....................[L1"));
}

TEST(TimelineText, IsAsWideAsAskedFor) {
  const std::string text = timelineText(makeChart(testPlan(), 0, nullptr), 80);
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    if (text.compare(at, 7, "compute") == 0 || text.compare(at, 3, "h2d") == 0) {
      EXPECT_LE(end - at, 80u);
    }
    at = end + 1;
  }
}

TEST(TimelineJson, IsTraceEventsWithAProcessATrackAndAThreadALane) {
  const Trace trace = measuredTrace();
  const auto json = nlohmann::json::parse(timelineJson(makeChart(testPlan(), 0, &trace)));
  std::map<std::string, int> count;
  bool copySeen = false, stallSeen = false;
  for (const auto &event : json["traceEvents"]) {
    ++count[event["ph"]];
    if (event["ph"] == "M" && event["name"] == "process_name") {
      EXPECT_EQ(event["args"]["name"], event["pid"] == 1 ? "planned" : "measured (host), iteration 5 of 8");
    }
    if (event["ph"] != "X" || event["pid"] != 1)
      continue;
    if (event["cat"] == "movement" && event["ts"] == 0.0) {
      copySeen = true;
      EXPECT_EQ(event["name"], "L1 qkv");
      EXPECT_EQ(event["dur"], 0.15); // microseconds
      EXPECT_EQ(event["args"]["link_bytes"], 150);
      EXPECT_EQ(event["args"]["layer"], 1);
    }
    if (event["name"] == "stall") {
      stallSeen = true;
      EXPECT_EQ(event["ts"], 0.1);
      EXPECT_EQ(event["args"]["waits_for"], "L1 qkv");
    }
    if (event["name"] == "L0 qkv") {
      EXPECT_EQ(event["args"]["flops"], 1000);
      EXPECT_EQ(event["tid"], 1);
    }
  }
  EXPECT_TRUE(copySeen);
  EXPECT_TRUE(stallSeen);
  EXPECT_EQ(count["X"], 2 * (8 + 1)); // bars and one stall, in both tracks
  EXPECT_EQ(count["i"], 2);           // tokens visible
  EXPECT_EQ(count["M"], 2 * (2 + 2 * 2));
}

TEST(TimelineSvg, HasABarAStepWithItsBytesInATooltip) {
  const std::string svg = timelineSvg(makeChart(testPlan(), 0, nullptr));
  EXPECT_EQ(svg.rfind("<svg xmlns=\"http://www.w3.org/2000/svg\"", 0), 0u);
  EXPECT_THAT(svg, HasSubstr("</svg>\n"));
  EXPECT_THAT(svg, HasSubstr("<title>L1 qkv: 150 ns, from 0 ns to 150 ns\n150 B over the link</title>"));
  EXPECT_THAT(svg, HasSubstr("<title>L0 qkv: 40 ns, from 20 ns to 60 ns\n1.00 kFLOP</title>"));
  EXPECT_THAT(svg, HasSubstr("stall of 50 ns: waits for the copy of L1 qkv"));
  EXPECT_THAT(svg, HasSubstr("tokens visible at 250 ns"));
  for (const char *entry : {">compute waits for a copy<", ">idle<", ">tokens visible<"}) // the legend
    EXPECT_THAT(svg, HasSubstr(entry));
  EXPECT_THAT(svg, Not(HasSubstr("measured")));
}

// Every line is upright: none goes through a text, and texts lie on what is drawn before them.
TEST(TimelineSvg, NoLineGoesThroughALabel) {
  const Trace trace = measuredTrace();
  const std::string svg = timelineSvg(makeChart(testPlan(), 0, &trace));
  const auto number = [&](size_t at, const std::string &name) {
    const size_t found = svg.find(" " + name + "=\"", at);
    return std::stod(svg.substr(found + name.size() + 3));
  };
  struct Text {
    size_t at;
    double from, to, y;
  };
  std::vector<Text> texts;
  for (size_t at = svg.find("<text"); at != std::string::npos; at = svg.find("<text", at + 1)) {
    const size_t open = svg.find('>', at), size = svg.find('<', open) - open - 1;
    const double x = number(at, "x"), width = 6.1 * static_cast<double>(size);
    const bool middle = svg.substr(at, open - at).find("middle") != std::string::npos;
    texts.push_back({at, middle ? x - width / 2 : x, middle ? x + width / 2 : x + width, number(at, "y")});
  }
  EXPECT_GT(texts.size(), 10u);
  int lines = 0;
  for (size_t at = svg.find("<line"); at != std::string::npos; at = svg.find("<line", at + 1)) {
    ++lines;
    EXPECT_EQ(number(at, "x1"), number(at, "x2"));
    for (const Text &text : texts) {
      const bool crosses = text.from < number(at, "x1") && number(at, "x1") < text.to && number(at, "y1") < text.y &&
                           text.y - 8 < number(at, "y2");
      // A lane's grid is covered by the bars and ribbons that labels stand on.
      const bool covered = at < text.at && svg.substr(at, svg.find('>', at) - at).find("#d5dae0") != std::string::npos;
      EXPECT_TRUE(!crosses || covered) << svg.substr(at, 120) << " through " << svg.substr(text.at, 120);
    }
  }
  EXPECT_GT(lines, 10);
}

TEST(TimelineSvg, EscapesNames) {
  plan::Plan plan = testPlan();
  plan.model->name = "<b>&\"\x01";
  const std::string svg = timelineSvg(makeChart(plan, 0, nullptr));
  EXPECT_THAT(svg, HasSubstr("&lt;b&gt;&amp;&quot; on round"));
}

TEST(Timeline, AnIterationThatTakesNoTimeIsDrawn) {
  plan::Plan plan = testPlan();
  plan.variants[0].durationsNs.assign(plan.variants[0].durationsNs.size(), 0);
  const Chart chart = makeChart(plan, 0, nullptr);
  EXPECT_THAT(timelineText(chart, 80), HasSubstr("iteration 0 ns"));
  EXPECT_THAT(timelineSvg(chart), HasSubstr("</svg>"));
}

// Of two mini-batches steps are called after theirs, but for copies of weights.
TEST(TimelineChart, NamesStepsByMiniBatch) {
  plan::Plan plan = testPlan();
  plan.miniBatches = 2;
  std::vector<plan::Step> &steps = plan.schedules[0].steps;
  steps[3].miniBatch = steps[6].miniBatch = 1;
  const Chart chart = makeChart(plan, 0, nullptr);
  EXPECT_THAT(chart.subtitle, HasSubstr("context 16, in each of 2 mini-batches; offloaded"));
  std::vector<std::string> names;
  for (const Bar &bar : chart.tracks[0].bars)
    names.push_back(bar.name);
  EXPECT_THAT(names, testing::ElementsAre("L1 qkv", "embed.0", "L0.0 qkv", "L0.1 attention", "L1.0 qkv", "L1 qkv",
                                          "head.1", "publish"));
  const std::string text = timelineText(chart, 120);
  for (const char *label : {"embed.0", "[L0.0", "[L0.1", "[L1.0", "head.1", "[L1=", "[L3.1==] those of mini-batch 1"})
    EXPECT_THAT(text, HasSubstr(label));
  EXPECT_THAT(timelineSvg(chart), HasSubstr(">L0.1<"));
  EXPECT_THAT(timelineJson(chart), HasSubstr("\"mini_batch\":1"));
  EXPECT_THAT(timelineText(makeChart(testPlan(), 0, nullptr), 120), Not(HasSubstr("mini-batch")));
}

} // namespace
} // namespace headrace::tools
