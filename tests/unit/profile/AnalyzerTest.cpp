// SPDX-License-Identifier: Apache-2.0
#include "runtime/profile/Analyzer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "runtime/cost/RecordFile.h"
#include "runtime/host/HostDevice.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/proof/PlanVerifier.h"
#include "runtime/profile/AnalyzerPlan.h"
#include "runtime/profile/Repeat.h"
#include "tests/unit/profile/Profiles.h"

namespace headrace::profile {
namespace {

using core::tinyLlama;
using core::tinyOpt;
using cost::CellKey;
using cost::Phase;
using cost::Record;
using cost::Site;
using testing::HasSubstr;

Grid gridOf(const model::ModelSpec &model, const model::Hardware &hardware, std::vector<int64_t> batches,
            std::vector<int64_t> sequences) {
  GridRequest request = gridRequest(model, hardware);
  request.batches = std::move(batches);
  request.sequences = std::move(sequences);
  absl::StatusOr<Grid> grid = chooseGrid(request);
  EXPECT_TRUE(grid.ok()) << grid.status();
  return *std::move(grid);
}

Record fresh(const Grid &grid, const model::ModelSpec &model) { return emptyRecord(grid, identityOf(model), model); }

Record analyzed(const Record &record, const Grid &grid, core::Device &device, const AnalyzerOptions &options = {}) {
  absl::StatusOr<Record> measured = analyze(record, grid, device, options);
  EXPECT_TRUE(measured.ok()) << measured.status();
  return measured.ok() ? *std::move(measured) : Record{};
}

TEST(Analyzer, FindsInVirtualTimeWhatTheCostModelPutIn) {
  for (const model::ModelSpec &model : {tinyLlama(3), tinyOpt(3)}) {
    const model::Hardware hardware = roundDevice();
    const Grid grid = gridOf(model, hardware, {1, 2, 4}, {8, 16, 32});
    const auto device = sim::makeSimDevice();
    const Record record = analyzed(fresh(grid, model), grid, *device);
    const cost::Roofline truth(model, hardware, model::DType::F32, model::DType::F32);
    EXPECT_TRUE(cost::checkRecord(record, "r").ok()) << cost::checkRecord(record, "r");
    EXPECT_TRUE(cost::checkComplete(record, "r").ok());
    EXPECT_TRUE(record.layersEqual);
    ASSERT_FALSE(record.cells.empty());
    for (const cost::Cell &cell : record.cells)
      for (int s = 0; s < cost::kSites; ++s) {
        const auto site = static_cast<Site>(s);
        const uint64_t ns =
            site == Site::Activate && !model.gated()
                ? 0 // part of the matrix product
                : truth.computeNs(cost::opSiteOf(site), cost::bucketOf(cell.phase, cell.batch, cell.sequence), false);
        EXPECT_EQ(cell.at(site), (cost::Timing{ns, ns, ns})) << cost::siteName(site);
      }
    for (const cost::Transfer &t : record.transfers) {
      const uint64_t ns = truth.copyNs(t.bytes, true); // the links are alike
      for (const cost::Timing &timing : {t.h2d, t.d2h, t.h2dWithCompute, t.d2hWithCompute})
        EXPECT_EQ(timing, (cost::Timing{ns, ns, ns})) << t.bytes;
      // Both get 0.75 of their own rate.
      EXPECT_NEAR(static_cast<double>(t.both.medianNs), static_cast<double>(ns) / 0.75, 2);
    }
    EXPECT_EQ(record.transfers.back().bytes, model::layoutWeights(model).layerBytes(0));
    // Virtual lanes do not disturb each other, and nobody has to wake up.
    EXPECT_GT(record.interference.repetitions, 0u);
    EXPECT_GT(record.interference.computeAlone.medianNs, 0u);
    EXPECT_EQ(record.interference.computeBeside, record.interference.computeAlone);
    EXPECT_EQ(record.interference.copyStart, (cost::Timing{0, 0, 0}));
    // Every iteration takes what the record predicts, to the rounding of interpolated copies; none is slower.
    EXPECT_EQ(record.spread.repetitions, 300u);
    for (const auto &spread : {record.spread.resident, record.spread.waiting}) {
      EXPECT_EQ(spread.slowestNs, spread.medianNs);
      EXPECT_NEAR(static_cast<double>(spread.medianNs), static_cast<double>(spread.predictedNs), 50);
    }
    EXPECT_GT(record.spread.waiting.medianNs, record.spread.resident.medianNs);
    EXPECT_EQ(record.spread.slowestFactor(), 1);
  }
}

TEST(Analyzer, StopsWhereALayerComputesLongerThanItIsCopied) {
  const model::ModelSpec model = tinyLlama(3);
  model::Hardware hardware = roundDevice();
  hardware.flopsF32 = 1e9; // a row of a layer is about 73,000 flops, 73 us; a layer of 123 KiB is copied in 126 us
  const Grid grid = gridOf(model, hardware, {1, 2, 4, 8}, {1, 2, 4});
  const auto device = sim::makeSimDevice();
  const Record record = analyzed(fresh(grid, model), grid, *device);
  const uint64_t transfer = cost::transferNs(record, record.identity.layerBytes, true);
  EXPECT_TRUE(cost::missingCells(record).empty());
  size_t longer = 0;
  for (const cost::Cell &cell : record.cells) {
    longer += cost::layerComputeNs(cell) > transfer;
    for (const cost::Cell &other : record.cells) // nothing was measured that a smaller pair had settled
      EXPECT_FALSE(cell.phase == other.phase && &cell != &other && other.batch <= cell.batch &&
                   other.sequence <= cell.sequence && cost::layerComputeNs(other) > transfer);
  }
  EXPECT_GT(longer, 0u);
  EXPECT_LT(record.cells.size(), 24u);
}

TEST(Analyzer, MeasuresAllPairsWhereAllAreAskedFor) {
  const model::ModelSpec model = tinyLlama(3);
  GridRequest request = gridRequest(model, roundDevice());
  request.hardware.flopsF32 = 1e9; // as above
  request.plans = tinyPlans(request.hardware);
  request.batches = {1, 2, 4, 8};
  request.sequences = {1, 2, 4};
  request.all = true;
  const absl::StatusOr<Grid> grid = chooseGrid(request);
  ASSERT_TRUE(grid.ok()) << grid.status();
  const auto device = sim::makeSimDevice();
  const Record few = analyzed(fresh(*grid, model), *grid, *device);
  EXPECT_LT(few.cells.size(), 24u);
  AnalyzerOptions options;
  options.all = true;
  const Record all = analyzed(few, *grid, *device, options); // goes on with the rest
  EXPECT_EQ(all.cells.size(), 24u);
  EXPECT_TRUE(cost::checkRecord(all, "r").ok()) << cost::checkRecord(all, "r");
  EXPECT_TRUE(cellsLeft(all, true).empty());
  EXPECT_EQ(cellsLeft(few, true).size(), 24 - few.cells.size());
  EXPECT_TRUE(cellsLeft(few, false).empty());
}

TEST(Analyzer, GoesOnWhereItWasInterrupted) {
  const model::ModelSpec model = tinyLlama(2);
  const Grid grid = gridOf(model, roundDevice(), {1, 2}, {8, 16});
  const auto device = sim::makeSimDevice();
  std::vector<std::string> steps; // what was on disk after each step
  AnalyzerOptions options;
  options.onProgress = [&](const Record &record) {
    steps.push_back(cost::recordText(record));
    return absl::OkStatus();
  };
  std::vector<std::pair<uint64_t, uint64_t>> progress;
  options.measuring = [&](uint64_t done, uint64_t total) { progress.emplace_back(done, total); };
  const std::string whole = cost::recordText(analyzed(fresh(grid, model), grid, *device, options));
  // Sizes 4, 16, 64 KiB and a layer, the interference, then 2 x 4 pairs and the spread; and nothing at all before the
  // first.
  ASSERT_EQ(steps.size(), 1u + 4 + 1 + 8 + 1);
  EXPECT_EQ(progress.front(), std::pair(uint64_t{0}, uint64_t{14}));
  EXPECT_EQ(progress.back(), std::pair(uint64_t{14}, uint64_t{14}));
  EXPECT_EQ(steps.back(), whole);
  for (size_t at = 0; at < steps.size(); ++at) {
    const auto there = cost::parseRecord(steps[at], "r");
    ASSERT_TRUE(there.ok()) << there.status();
    size_t written = 0;
    AnalyzerOptions counting;
    counting.onProgress = [&](const Record &) { return ++written, absl::OkStatus(); };
    EXPECT_EQ(cost::recordText(analyzed(*there, grid, *device, counting)), whole);
    EXPECT_EQ(written, 1 + steps.size() - 1 - at); // only what is missing
  }
}

TEST(Analyzer, AFailureToWriteEndsIt) {
  const model::ModelSpec model = tinyLlama(2);
  const Grid grid = gridOf(model, roundDevice(), {1}, {8});
  const auto device = sim::makeSimDevice();
  AnalyzerOptions options;
  int writes = 0;
  options.onProgress = [&](const Record &) {
    return ++writes == 3 ? absl::UnavailableError("disk full") : absl::OkStatus();
  };
  EXPECT_EQ(analyze(fresh(grid, model), grid, *device, options).status(), absl::UnavailableError("disk full"));
  EXPECT_EQ(writes, 3);
}

TEST(Analyzer, KeepsTheTimesOfLayersThatAreNotEquallyFast) {
  const model::ModelSpec model = tinyLlama(3);
  const Grid grid = gridOf(model, roundDevice(), {1, 2}, {8, 16});
  ChangedTimes device([](int32_t layer, int64_t ns, uint64_t) { return layer == 1 ? 2 * ns : ns; });
  const Record record = analyzed(fresh(grid, model), grid, device);
  EXPECT_TRUE(cost::checkRecord(record, "r").ok()) << cost::checkRecord(record, "r");
  EXPECT_FALSE(record.layersEqual);
  for (const cost::Cell &cell : record.cells) {
    ASSERT_EQ(cell.layerNs.size(), 3u);
    EXPECT_EQ(cell.layerNs[0], cell.layerNs[2]);
    EXPECT_EQ(cell.layerNs[1], 2 * cell.layerNs[0]);
  }
}

TEST(Analyzer, ADisturbanceIsNoSlowLayer) {
  // One pair's iterations come while something else runs beside layer 1: the other seven say that it is as fast.
  const model::ModelSpec model = tinyLlama(3);
  const Grid grid = gridOf(model, roundDevice(), {1, 2}, {8, 16});
  const auto undisturbed = sim::makeSimDevice();
  uint64_t launches = 0;
  ChangedTimes counting([&](int32_t, int64_t ns, uint64_t launch) { return launches = launch, ns; });
  (void)analyzed(fresh(grid, model), grid, counting);
  ChangedTimes device([&](int32_t layer, int64_t ns, uint64_t launch) {
    return layer == 1 && launch + kLeastRepetitions > launches ? 2 * ns : ns;
  });
  const Record record = analyzed(fresh(grid, model), grid, device);
  EXPECT_TRUE(record.layersEqual);
  EXPECT_TRUE(record.cells.back().layerNs.empty());
  // ... but one tenth slower everywhere is one.
  ChangedTimes steady([](int32_t layer, int64_t ns, uint64_t) { return layer == 1 ? ns + ns / 10 + 1 : ns; });
  EXPECT_FALSE(analyzed(fresh(grid, model), grid, steady).layersEqual);
}

// The launches made by each report of progress, on a device that nothing disturbs.
std::vector<uint64_t> launchesAtReports(const Grid &grid, const model::ModelSpec &model, Record &record) {
  uint64_t launches = 0;
  ChangedTimes counting([&](int32_t, int64_t ns, uint64_t launch) { return launches = launch, ns; });
  std::vector<uint64_t> at;
  AnalyzerOptions options;
  options.onProgress = [&](const Record &) { return at.push_back(launches), absl::OkStatus(); };
  record = analyzed(fresh(grid, model), grid, counting, options);
  return at;
}

TEST(Analyzer, MeasuresADisturbedPairAgain) {
  // The first pair's iterations (prefill 1 x 8) take three times as long, longer than those of pairs with more work.
  const model::ModelSpec model = tinyLlama(3);
  const Grid grid = gridOf(model, roundDevice(), {1, 2}, {8, 16});
  Record undisturbed;
  const std::vector<uint64_t> at = launchesAtReports(grid, model, undisturbed);
  const size_t copies = undisturbed.transfers.size() + 1; // the interference after them; at[0]: nothing yet
  ChangedTimes device([&](int32_t, int64_t ns, uint64_t launch) {
    return launch > at[copies] && launch <= at[copies + 1] ? 3 * ns : ns;
  });
  size_t reports = 0;
  uint64_t first = 0;
  AnalyzerOptions options;
  options.onProgress = [&](const Record &so) {
    if (reports++ == copies + 1)
      first = so.cells.at(0).at(Site::Qkv).medianNs;
    return absl::OkStatus();
  };
  const Record record = analyzed(fresh(grid, model), grid, device, options);
  ASSERT_EQ(record.cells.size(), undisturbed.cells.size());
  EXPECT_EQ(first, 3 * undisturbed.cells[0].at(Site::Qkv).medianNs); // was seen disturbed
  for (size_t i = 0; i < record.cells.size(); ++i)
    EXPECT_EQ(record.cells[i].sites, undisturbed.cells[i].sites) << i;
  EXPECT_EQ(reports, at.size() + 1); // one more look at one pair
}

TEST(Analyzer, LooksTwiceMoreAtWhatIsNeverFaster) {
  // Decode 1 x 8 takes three times as long in truth: it is looked at twice more, and stays.
  const model::ModelSpec model = tinyLlama(3);
  const Grid grid = gridOf(model, roundDevice(), {1, 2}, {8, 16});
  Record undisturbed;
  const std::vector<uint64_t> at = launchesAtReports(grid, model, undisturbed);
  const auto cell = std::find_if(undisturbed.cells.begin(), undisturbed.cells.end(),
                                 [](const cost::Cell &c) { return c.phase == Phase::Decode; });
  ASSERT_NE(cell, undisturbed.cells.end());
  const size_t before = undisturbed.transfers.size() + 1 + static_cast<size_t>(cell - undisturbed.cells.begin());
  ChangedTimes device([&](int32_t, int64_t ns, uint64_t launch) {
    const bool itsOwn = launch > at[before] && launch <= at[before + 1];
    return itsOwn || launch > at[at.size() - 2] ? 3 * ns : ns; // and from the first look again on
  });
  size_t reports = 0;
  AnalyzerOptions options;
  options.onProgress = [&](const Record &) { return ++reports, absl::OkStatus(); };
  const Record record = analyzed(fresh(grid, model), grid, device, options);
  EXPECT_EQ(record.find(Phase::Decode, 1, 8)->at(Site::Qkv).medianNs, 3 * cell->at(Site::Qkv).medianNs);
  EXPECT_EQ(reports, at.size() + 2);
}

TEST(Analyzer, ADisturbanceIsNoInterference) {
  // Five turns of 7 iterations alone and 7 beside copies, one more before each; the machine is slow for the first 24
  // launches: all of the first turn, and of the second what runs alone.
  const model::ModelSpec model = tinyLlama(3);
  const Grid grid = gridOf(model, roundDevice(), {1, 2}, {8, 16});
  Record undisturbed;
  const std::vector<uint64_t> at = launchesAtReports(grid, model, undisturbed);
  ASSERT_EQ(undisturbed.interference.repetitions, 5 * kLeastRepetitions);
  const uint64_t first = at[undisturbed.transfers.size()];
  ChangedTimes device(
      [&](int32_t, int64_t ns, uint64_t launch) { return launch > first && launch <= first + 24 ? 2 * ns : ns; });
  const Record record = analyzed(fresh(grid, model), grid, device);
  EXPECT_EQ(record.interference.computeAlone.medianNs, undisturbed.interference.computeAlone.medianNs);
  EXPECT_EQ(record.interference.computeBeside.medianNs, undisturbed.interference.computeBeside.medianNs);
  EXPECT_EQ(record.interference.computeAlone.p90Ns, 2 * undisturbed.interference.computeAlone.medianNs); // it was there
}

TEST(Analyzer, TheSpreadOfADisturbedDeviceIsMeasuredInEightTurns) {
  // Of every fifty iterations one is 100 ns late: 2%, and so what the slowest 1% take.
  const model::ModelSpec model = tinyLlama(3);
  const Grid grid = gridOf(model, roundDevice(), {1, 2}, {8, 16});
  ChangedTimes device([](int32_t, int64_t ns, uint64_t) { return ns; });
  device.late = [](uint64_t iteration) { return iteration % 50 == 0 ? 100 : 0; };
  const Record record = analyzed(fresh(grid, model), grid, device);
  EXPECT_EQ(record.spread.repetitions, 8 * 300u);
  for (const auto &spread : {record.spread.resident, record.spread.waiting})
    EXPECT_EQ(spread.slowestNs, spread.medianNs + 100);
  // One of a thousand is at most the slowest of 300; the second slowest takes what all take, and one turn is enough.
  device.late = [](uint64_t iteration) { return iteration % 1000 == 0 ? 100 : 0; };
  const Record rarely = analyzed(fresh(grid, model), grid, device);
  EXPECT_EQ(rarely.spread.repetitions, 300u);
  for (const auto &spread : {rarely.spread.resident, rarely.spread.waiting})
    EXPECT_EQ(spread.slowestNs, spread.medianNs);
}

TEST(Analyzer, TheSpreadEndsWithItsTime) {
  const model::ModelSpec model = tinyLlama(3);
  const Grid grid = gridOf(model, roundDevice(), {1, 2}, {8, 16});
  ChangedTimes device([](int32_t, int64_t ns, uint64_t) { return ns; });
  device.late = [](uint64_t iteration) { return iteration % 50 == 0 ? 100 : 0; };
  AnalyzerOptions options;
  options.secondsPerPair = 1e-9; // no time at all: the fewest iterations, once
  EXPECT_EQ(analyzed(fresh(grid, model), grid, device, options).spread.repetitions, 50u);
}

TEST(Analyzer, RunsFewerLayersWhereNotAllFit) {
  const model::ModelSpec model = tinyLlama(24);
  GridRequest request = gridRequest(model, roundDevice());
  request.batches = {1, 2};
  request.sequences = {8};
  const uint64_t layer = model::layoutWeights(model).layerBytes(0);
  request.deviceMemory = 2 * layer + 10 * layer;
  absl::StatusOr<Grid> grid = chooseGrid(request);
  ASSERT_TRUE(grid.ok()) << grid.status();
  EXPECT_GE(grid->plan.model->layers, 2);
  EXPECT_LT(grid->plan.model->layers, 10);
  ChangedTimes device([](int32_t layerOf, int64_t ns, uint64_t) { return layerOf == 1 ? 2 * ns : ns; });
  const Record record = analyzed(fresh(*grid, model), *grid, device);
  EXPECT_TRUE(cost::checkRecord(record, "r").ok()) << cost::checkRecord(record, "r");
  EXPECT_EQ(record.layersRun, grid->plan.model->layers);
  EXPECT_EQ(record.identity.layers, 24);
  ASSERT_EQ(record.cells[0].layerNs.size(), 24u);
  EXPECT_EQ(record.cells[0].layerNs[23], record.cells[0].layerNs[1]); // as the slowest that was run
}

TEST(Analyzer, MeasuresRealDataOnTheHost) {
  for (const model::ModelSpec &model : {tinyLlama(2), tinyOpt(2)}) {
    model::Hardware hardware = roundDevice();
    hardware.duplexBandwidth = 2e9;
    const Grid grid = gridOf(model, hardware, {1, 2}, {8, 16});
    const auto device = host::makeHostDevice();
    const auto weights = model::syntheticWeights(1);
    AnalyzerOptions options;
    options.secondsPerPair = 0.05;
    options.weights = weights.get();
    uint64_t loaded = 0;
    options.loading = [&](uint64_t done, uint64_t total) {
      EXPECT_LE(done, total);
      loaded = done;
    };
    options.fromFiles = model.family == model::Family::Opt; // whatever they are, it is measured where they are files
    const Record record = analyzed(fresh(grid, model), grid, *device, options);
    EXPECT_EQ(loaded, model::layoutWeights(model).totalBytes());
    EXPECT_EQ(record.loading.bytes, options.fromFiles ? loaded : 0);
    EXPECT_EQ(record.loading.ns > 0, options.fromFiles);
    EXPECT_TRUE(cost::checkRecord(record, "r").ok()) << cost::checkRecord(record, "r");
    EXPECT_TRUE(cost::checkComplete(record, "r").ok());
    for (const cost::Cell &cell : record.cells)
      for (int s = 0; s < cost::kSites; ++s)
        EXPECT_EQ(cell.sites[static_cast<size_t>(s)].medianNs > 0,
                  static_cast<Site>(s) != Site::Activate || model.gated())
            << cost::siteName(static_cast<Site>(s));
  }
}

TEST(Analyzer, RefusesADeviceWithDataAndNoWeights) {
  const Grid grid = gridOf(tinyLlama(2), roundDevice(), {1}, {8});
  const auto device = host::makeHostDevice();
  EXPECT_THAT(std::string(analyze(fresh(grid, tinyLlama(2)), grid, *device, {}).status().message()),
              HasSubstr("no weights"));
}

TEST(AnalyzerPlan, VariantsOfExactlyThePairsPassTheVerifier) {
  for (const model::ModelSpec &model : {tinyLlama(3), tinyOpt(3)}) {
    const Grid grid = gridOf(model, roundDevice(), {1, 2, 4}, {8, 16});
    std::vector<CellKey> cells;
    for (int64_t batch : {1, 2, 4})
      for (int64_t sequence : {8, 16})
        for (Phase phase : {Phase::Decode, Phase::Prefill})
          cells.push_back({phase, batch, sequence});
    AnalyzerPlan made = makeAnalyzerPlan(grid.plan, cells, {}, 0);
    ASSERT_EQ(made.plan.variants.size(), cells.size());
    for (size_t i = 0; i < cells.size(); ++i) {
      const plan::Variant &variant = made.plan.variants[made.cellGraphs[i].index];
      const cost::Bucket bucket = cost::bucketOf(cells[i].phase, cells[i].batch, cells[i].sequence);
      EXPECT_EQ(std::tuple(variant.newTokens, variant.sequences, variant.context),
                std::tuple(bucket.tokens, bucket.sequences, bucket.context));
      EXPECT_EQ(variant.predictedNs,
                std::accumulate(variant.durationsNs.begin(), variant.durationsNs.end(), uint64_t{0}));
    }
    std::sort(made.plan.variants.begin(), made.plan.variants.end(), [](const auto &a, const auto &b) {
      return std::tie(a.placement, a.newTokens, a.sequences, a.context) <
             std::tie(b.placement, b.newTokens, b.sequences, b.context);
    });
    EXPECT_TRUE(plan::verifyPlan(made.plan, "analyzer's").ok()) << plan::verifyPlan(made.plan, "analyzer's");
  }
}

TEST(AnalyzerPlan, KnowsTheSiteOfEachStep) {
  for (const model::ModelSpec &model : {tinyLlama(2), tinyOpt(2)}) {
    const plan::Plan plan = core::tinyPlan({.spec = model});
    for (const plan::Schedule &schedule : plan.schedules) {
      std::array<int, cost::kSites> steps{};
      const auto sites = sitesOf(plan, schedule);
      ASSERT_EQ(sites.size(), schedule.steps.size());
      for (size_t i = 0; i < sites.size(); ++i) {
        ASSERT_TRUE(sites[i]) << i;
        EXPECT_EQ(cost::inLayer(*sites[i]), schedule.steps[i].layer >= 0);
        ++steps[static_cast<size_t>(*sites[i])];
      }
      for (int s = 0; s < cost::kSites; ++s) { // once a layer or an iteration; sampling and what shows its tokens
        const auto site = static_cast<Site>(s);
        const int expected = site == Site::Sample                       ? 2
                             : site == Site::Activate && !model.gated() ? 0
                             : cost::inLayer(site)                      ? 2
                                                                        : 1;
        EXPECT_EQ(steps[static_cast<size_t>(s)], expected) << cost::siteName(site);
      }
    }
  }
}

TEST(Repeat, SettlesWhenBothHalvesAgree) {
  EXPECT_FALSE(settled({}));
  EXPECT_FALSE(settled(std::vector<uint64_t>(kLeastRepetitions - 1, 100)));
  EXPECT_TRUE(settled(std::vector<uint64_t>(kLeastRepetitions, 100)));
  EXPECT_TRUE(settled(std::vector<uint64_t>{100, 101, 100, 900, 100, 100, 99}));        // one that was disturbed
  EXPECT_FALSE(settled(std::vector<uint64_t>{150, 140, 130, 120, 110, 105, 104, 103})); // still getting faster
  EXPECT_EQ(medianOf({5}), 5u);
  EXPECT_EQ(medianOf({9, 1, 5, 7}), 5u);
}

TEST(Repeat, SizesOfCopiesAreFourTimesEachOther) {
  EXPECT_THAT(transferSizes(100'000), testing::ElementsAre(4096, 16384, 65536, 100'000));
  EXPECT_THAT(transferSizes(4096), testing::ElementsAre(4096));
  EXPECT_THAT(transferSizes(300), testing::ElementsAre(300));
}

} // namespace
} // namespace headrace::profile
