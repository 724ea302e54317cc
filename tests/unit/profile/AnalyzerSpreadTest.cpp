// SPDX-License-Identifier: Apache-2.0
#include "runtime/profile/AnalyzerSpread.h"

#include <gtest/gtest.h>

#include <numeric>

namespace headrace::profile {
namespace {

using cost::Site;
using plan::Lane;
using plan::StepKind;

// Two layers of one product each, and a copy of 100 bytes before each, which takes 50 ns beside compute.
struct Waiting {
  plan::Schedule schedule;
  std::vector<std::optional<Site>> sites;
  cost::Record record;
  cost::Cell cell;

  Waiting() {
    for (const Site site : {Site::Qkv, Site::Down}) {
      plan::Step copy;
      copy.kind = StepKind::Copy;
      copy.lane = Lane::H2D;
      copy.linkBytes = 100;
      schedule.steps.push_back(copy);
      schedule.steps.emplace_back().lane = Lane::Compute;
      sites.insert(sites.end(), {std::nullopt, site});
    }
    schedule.edges = {{0, 1, plan::EdgeKind::Raw}, {2, 3, plan::EdgeKind::Raw}};
    const cost::Timing alone{40, 40, 40}, beside{50, 50, 50};
    record.transfers = {{100, 1, alone, alone, beside, beside, beside}};
    cell.at(Site::Qkv) = {30, 30, 30};
    cell.at(Site::Down) = {20, 20, 20};
  }
  uint64_t predicted() const { return predictIterationNs(record, cell, schedule, sites); }
};

TEST(AnalyzerSpread, LayersWaitForTheirCopies) {
  EXPECT_EQ(Waiting().predicted(), 120u); // copies to 50 and 100; layers 50 to 80 and 100 to 120
}

TEST(AnalyzerSpread, CopiesWaitForLayersAndWakeUp) {
  Waiting w;
  w.schedule.edges.insert(w.schedule.edges.begin() + 1, {1, 2, plan::EdgeKind::War});
  EXPECT_EQ(w.predicted(), 150u); // copy to 50, layer to 80, copy to 130, layer to 150
  w.record.interference = {7, {100, 90, 110}, {100, 90, 110}, {5, 0, 9}};
  EXPECT_EQ(w.predicted(), 155u); // the second copy begins 5 ns after what it waited for
}

TEST(AnalyzerSpread, CopiesSlowComputeDown) {
  Waiting w;
  w.record.interference = {7, {100, 90, 110}, {150, 140, 160}, {0, 0, 0}};
  EXPECT_EQ(w.predicted(), 130u); // layers 50 to 95 and 100 to 130
  w.record.interference.computeBeside = {80, 70, 90};
  EXPECT_EQ(w.predicted(), 120u); // never up
}

TEST(AnalyzerSpread, APublishIsInTheTimeOfTheSampling) {
  Waiting w;
  plan::Step publish;
  publish.kind = StepKind::Publish;
  publish.lane = Lane::Compute;
  w.schedule.steps.push_back(publish);
  w.sites.emplace_back(Site::Sample);
  w.cell.at(Site::Sample) = {1000, 1000, 1000};
  EXPECT_EQ(w.predicted(), 120u);
}

std::vector<uint64_t> upTo(size_t n) { // n, n - 1, ... 1
  std::vector<uint64_t> samples(n);
  std::iota(samples.rbegin(), samples.rend(), 1);
  return samples;
}

TEST(AnalyzerSpread, TheSlowestHasOneStandardDeviationFewerAboveItThanThePercentile) {
  EXPECT_EQ(slowestOf(upTo(1)), 1u);
  EXPECT_EQ(slowestOf(upTo(50)), 50u);      // 49.5 + 0.70 = 50.2, of 50
  EXPECT_EQ(slowestOf(upTo(300)), 299u);    // 297 + 1.72 = 298.7
  EXPECT_EQ(slowestOf(upTo(2400)), 2381u);  // 2376 + 4.87 = 2380.9
  EXPECT_EQ(slowestOf(upTo(10000)), 9910u); // 9900 + 9.95 = 9909.95
}

} // namespace
} // namespace headrace::profile
