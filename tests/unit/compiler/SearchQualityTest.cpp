// SPDX-License-Identifier: Apache-2.0
//
// How good the search's placements are, over four models, two devices, decode and prefill of several batches and
// contexts, and goals from 1.02 to 4 times the resident time; then over random shapes. Limit: the bytes that the link
// copies in the goal's time, each copy with its start-up.
#include <algorithm>
#include <cmath>
#include <random>

#include "runtime/model/ModelSpec.h"
#include "tests/support/LongRun.h"
#include "tests/support/RandomRequests.h"
#include "tests/unit/compiler/PlacementSweep.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

class SearchQuality : public testing::TestWithParam<std::string> {};

TEST_P(SearchQuality, TheLinkIsFilledAndSelectNIsNeverBetter) {
  int large = 0, small = 0, ahead = 0;
  // Every second case, the even ones on one device and the odd ones on the other; bench_search has them all.
  const std::vector<SearchCase> cases = searchCases({GetParam()});
  for (size_t i = GetParam() == "a10" ? 0 : 1; i < cases.size(); i += 2) {
    const SearchCase &asked = cases[i];
    SCOPED_TRACE(asked.name());
    OpenedCase c(asked);
    const absl::StatusOr<SearchedPlacement> found = c.search();
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_LE((asked.decode ? found->decodeNs : found->mixedNs)[0], c.sloNs());
    const uint64_t paper = selectNFreed(c);
    EXPECT_GE(found->freedBytes, paper);
    ahead += found->freedBytes > paper;
    const double layer = c.layerBytes(), limit = c.limitBytes(), moved = static_cast<double>(found->link.movedBytes);
    if (limit >= static_cast<double>(c.layers()) * layer)
      continue;
    if (limit >= 4 * layer) {
      EXPECT_GE(moved, 0.97 * limit);
      ++large;
    } else if (limit >= layer) {
      // All but the largest gap between sums of units, the smallest unit; of what the smallest units, whose copies'
      // start counts most, can fill.
      uint64_t smallest = ~uint64_t{0};
      for (int unit = 0; unit < model::kUnitsPerLayer; ++unit)
        smallest = std::min(smallest, c.layout().units[static_cast<size_t>(1 + unit)].bytes);
      const double fits =
          static_cast<double>(c.sloNs()) * static_cast<double>(smallest) / static_cast<double>(c.copyNs(smallest));
      EXPECT_GE(moved, fits - static_cast<double>(smallest))
          << "limit " << limit / layer << " layers, moved " << moved / layer;
      ++small;
    }
  }
  EXPECT_GT(large, 40);
  EXPECT_GT(small, 10);
  EXPECT_GT(ahead, 75);
}

TEST_P(SearchQuality, NoSweepOverRingsFreesTwoPercentMore) {
  const std::vector<SearchCase> cases = searchCases({GetParam()});
  int swept = 0;
  for (size_t i = 0; i < cases.size(); i += 9) {
    SCOPED_TRACE(cases[i].name());
    OpenedCase c(cases[i]);
    if (c.limitBytes() < 4 * c.layerBytes() || c.limitBytes() >= static_cast<double>(c.layers()) * c.layerBytes())
      continue;
    const absl::StatusOr<SearchedPlacement> found = c.search();
    ASSERT_TRUE(found.ok()) << found.status();
    const SweepResult sweep = sweepRings(c, 4, found->freedBytes);
    EXPECT_GT(sweep.sets, 0u);
    EXPECT_GE(static_cast<double>(found->freedBytes), 0.98 * static_cast<double>(sweep.freedBytes))
        << "the sweep frees " << static_cast<double>(sweep.freedBytes) / c.layerBytes() << " layers with a ring of "
        << static_cast<double>(sweep.ringBytes) / c.layerBytes();
    ++swept;
  }
  EXPECT_GT(swept, 8);
}

// Models and devices that nobody shipped. Where less than 97% of the limit is moved, the bound that is named binds.
TEST(RandomShapes, FillTheLinkOrSayWhatBinds) {
  std::mt19937_64 generator(7);
  int large = 0, units = 0, link = 0, ring = 0, swept = 0;
  const int wanted = casesOf(40, 200);
  for (int i = 0; large < wanted; ++i) {
    const bool decode = i % 2 == 0;
    const CompileRequest request = randomRequest(generator, decode);
    const double factor = std::exp(std::uniform_real_distribution<double>(std::log(1.02), std::log(4))(generator));
    const cost::Bucket bucket{request.buckets.newTokens[0], *request.goal.batch, *request.goal.context};
    OpenedCase c(request, bucket, decode, factor);
    const double layer = c.layerBytes(), limit = c.limitBytes(), all = static_cast<double>(c.layers()) * layer;
    if (limit < 4 * layer)
      continue;
    SCOPED_TRACE(i);
    const absl::StatusOr<SearchedPlacement> found = c.search();
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_LE((decode ? found->decodeNs : found->mixedNs)[0], c.sloNs());
    // The limit that is said: nothing is above it, and it is not above what there is by more than a unit cut off.
    EXPECT_GE(static_cast<double>(found->link.limitBytes) + 1, limit);
    EXPECT_LE(static_cast<double>(found->link.limitBytes), limit + layer);
    if (limit >= all) {
      EXPECT_EQ(found->link.bound, SearchBound::Weights);
      continue;
    }
    ++large;
    double busyNs = 0;
    for (const int32_t unit : found->candidate.residency.weightsAway())
      busyNs += static_cast<double>(c.copyNs(c.layout().units[static_cast<size_t>(unit)].bytes));
    uint64_t smallest = ~uint64_t{0};
    for (const model::Unit &unit : c.layout().units)
      smallest = unit.layer >= 0 ? std::min(smallest, unit.bytes) : smallest;
    if (found->link.limitBytes < found->link.movedBytes + smallest) {
      EXPECT_EQ(found->link.bound, SearchBound::Unit);
      units += !found->link.full();
      continue;
    }
    EXPECT_EQ(found->link.bound,
              busyNs >= 0.97 * static_cast<double>(c.sloNs()) ? SearchBound::Link : SearchBound::Ring);
    if (static_cast<double>(found->link.movedBytes) >= 0.97 * limit)
      continue;
    ++(found->link.bound == SearchBound::Link ? link : ring);
    // The ring binds: no other ring, larger or smaller, frees more.
    if (found->link.bound == SearchBound::Ring && swept < 3 && request.model->layers <= 50) {
      const SweepResult sweep = sweepRings(c, 4, found->freedBytes);
      EXPECT_GE(static_cast<double>(found->freedBytes), 0.98 * static_cast<double>(sweep.freedBytes));
      ++swept;
    }
  }
  RecordProperty("units", units);
  RecordProperty("link", link);
  RecordProperty("ring", ring);
  EXPECT_LE(units + link + ring, wanted * 15 / 100);
}

// The sweep finds good placements by itself: without a floor, within 10% of the search's.
TEST(PlacementSweep, IsNoStrawMan) {
  for (const SearchCase &asked : {SearchCase{"opt-6.7b", "a10", {32, 32, 512}, true, 1.5},
                                  SearchCase{"llama-3.1-8b", "a10", {1024, 16, 64}, false, 1.3}}) {
    SCOPED_TRACE(asked.name());
    OpenedCase c(asked);
    const absl::StatusOr<SearchedPlacement> found = c.search();
    ASSERT_TRUE(found.ok()) << found.status();
    const SweepResult sweep = sweepRings(c, 4, 0);
    EXPECT_GE(static_cast<double>(sweep.freedBytes), 0.9 * static_cast<double>(found->freedBytes));
    EXPECT_LE(static_cast<double>(sweep.freedBytes), 1.02 * static_cast<double>(found->freedBytes));
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, SearchQuality, testing::Values("a10", "rtx4090"),
                         [](const auto &info) { return info.param; });

} // namespace
} // namespace headrace::compiler
