// SPDX-License-Identifier: Apache-2.0
#include "tools/timeline/LaneAccount.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/tools/TestPlan.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;

// As planned, but the first copy takes 200, so that L1 starts 10 behind it, and L0's attention takes 50.
Chart accountedChart() {
  const plan::Plan plan = testPlan();
  const Trace trace{"00ff", "host",
                    5,      "iteration 5 of 8",
                    0,      {{0, 200}, {0, 20}, {20, 60}, {60, 110}, {210, 270}, {270, 360}, {270, 310}, {310, 310}}};
  return makeChart(plan, 0, &trace);
}

std::string kindsOf(const LaneAccount &account) {
  std::string text;
  for (const LaneAccount::Part &part : account.kinds)
    text += part.name + " " + std::to_string(part.ns) + ", ";
  return text;
}

// Planned: 200 of steps, 50 until the copy has come at 150, 50 until the next iteration's copy ends at 300.
TEST(LaneAccounts, AddUpToTheIteration) {
  const Chart chart = accountedChart();
  const LaneAccount planned = accountOf(chart.tracks[0], plan::Lane::Compute);
  EXPECT_EQ(kindsOf(planned), "embed 20, qkv 100, attention 40, head 40, publish 0, ");
  EXPECT_EQ(planned.waitNs, 50);
  EXPECT_EQ(planned.idleNs, 50);
  EXPECT_EQ(planned.totalNs(), 300);
  // 110 to 200 for the copy, then 10 for nothing; 50 behind the head.
  const LaneAccount measured = accountOf(chart.tracks[1], plan::Lane::Compute);
  EXPECT_EQ(measured.of("attention"), 50);
  EXPECT_EQ(measured.waitNs, 90);
  EXPECT_EQ(measured.idleNs, 60);
  EXPECT_EQ(measured.totalNs(), 360);
  EXPECT_EQ(measured.of("no such step"), 0);
}

// The second copy overwrites what L1's qkv reads: it waits until 210 planned (from 150), 270 measured (from 200).
TEST(LaneAccounts, ALinkWaitsForReaders) {
  const Chart chart = accountedChart();
  const LaneAccount planned = accountOf(chart.tracks[0], plan::Lane::H2D);
  EXPECT_EQ(kindsOf(planned), "qkv 240, ");
  EXPECT_EQ(planned.waitNs, 60);
  EXPECT_EQ(planned.idleNs, 0);
  const LaneAccount measured = accountOf(chart.tracks[1], plan::Lane::H2D);
  EXPECT_EQ(measured.of("qkv"), 290);
  EXPECT_EQ(measured.waitNs, 70);
  EXPECT_EQ(measured.idleNs, 0);
}

TEST(LaneAccounts, StandBesideEachOther) {
  const std::string text = timelineText(accountedChart(), 80);
  EXPECT_THAT(text, HasSubstr("lane          part  planned  measured (host)  difference\n"
                              "compute      embed    20 ns            20 ns        0 ns\n"));
  EXPECT_THAT(text, HasSubstr("         attention    40 ns            50 ns      +10 ns\n"));
  EXPECT_THAT(text, HasSubstr("             waits    50 ns            90 ns      +40 ns\n"));
  EXPECT_THAT(text, HasSubstr("         iteration   300 ns           360 ns      +60 ns\n"));
  EXPECT_THAT(text, HasSubstr("h2d            qkv   240 ns           290 ns      +50 ns\n"));
}

} // namespace
} // namespace headrace::tools
