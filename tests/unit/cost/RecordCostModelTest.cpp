// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/RecordCostModel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "kernels/Kernels.h"
#include "runtime/job/JobFile.h"
#include "tests/unit/cost/Records.h"

namespace headrace::cost {
namespace {

using testing::HasSubstr;

RecordCostModel modelOf(const Record &record) {
  auto made = RecordCostModel::create(record, smallLlama(), "r");
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

// Qkv takes what the cells say, every other site one nanosecond. Copies take so long that no cell settles another.
Record qkvRecord(std::vector<int64_t> batches, std::vector<int64_t> sequences,
                 const std::function<uint64_t(Phase, int64_t, int64_t)> &qkvNs) {
  Record record = emptyRecord(smallLlama(), batches, sequences);
  record.transfers = {transferOf(1, 1'000'000'000)};
  for (Phase phase : {Phase::Prefill, Phase::Decode})
    for (int64_t b : batches)
      for (int64_t s : sequences) {
        Cell cell{phase, b, s, 1, {}, {}};
        cell.sites.fill(exactly(1));
        cell.at(Site::Qkv) = exactly(qkvNs(phase, b, s));
        record.cells.push_back(cell);
      }
  return record;
}

constexpr OpSite kQkv = {kernels::Op::Linear, model::UnitRole::Qkv};

TEST(RecordCostModel, GivesBackWhatWasMeasured) {
  const RecordCostModel costs = modelOf(qkvRecord({1, 2, 4}, {8, 16}, [](Phase p, int64_t b, int64_t s) {
    return p == Phase::Decode ? 10 * b + s : 1000 * b + s;
  }));
  EXPECT_EQ(costs.computeNs(kQkv, bucketOf(Phase::Decode, 2, 8), false), 28u);
  EXPECT_EQ(costs.computeNs(kQkv, bucketOf(Phase::Prefill, 4, 16), false), 4016u);
  EXPECT_EQ(costs.computeNs({kernels::Op::Sample, model::UnitRole::Head}, bucketOf(Phase::Decode, 2, 8), false), 1u);
}

TEST(RecordCostModel, ADirectAppendTakesWhatWasMeasuredAndAtLeastTheLinksTime) {
  Record record = qkvRecord({2, 4}, {8}, [](Phase, int64_t, int64_t) { return 1; });
  for (Cell &cell : record.cells)
    cell.at(Site::RopeAppend) = exactly(20'000'000'000);
  const RecordCostModel costs = modelOf(record);
  const OpSite append{kernels::Op::RopeAppend, model::UnitRole::Qkv};
  // 2 tokens x 2 x 16 rows x 2 bytes = 128, at 10 bytes a second 12.8 s; 4 tokens: 25.6 s.
  EXPECT_EQ(costs.computeNs(append, bucketOf(Phase::Decode, 2, 8), true), 20'000'000'000u);
  EXPECT_EQ(costs.computeNs(append, bucketOf(Phase::Decode, 4, 8), true), 25'600'000'000u);
  EXPECT_EQ(costs.computeNs(append, bucketOf(Phase::Decode, 4, 8), false), 20'000'000'000u);
}

TEST(RecordCostModel, InterpolatesInsideTheGrid) {
  // 100 + 10 batch + sequence + batch x sequence is of the kind that is met exactly.
  const auto truth = [](Phase, int64_t b, int64_t s) { return static_cast<uint64_t>(100 + 10 * b + s + b * s); };
  const RecordCostModel costs = modelOf(qkvRecord({1, 2, 4, 8}, {8, 16, 32}, truth));
  for (int64_t b : {1, 3, 5, 7, 8})
    for (int64_t s : {8, 9, 20, 31, 32})
      EXPECT_EQ(costs.computeNs(kQkv, bucketOf(Phase::Decode, b, s), false), truth(Phase::Decode, b, s))
          << b << " " << s;
}

TEST(RecordCostModel, BoundsInsideAreTheCornersAboveAndBelow) {
  const RecordCostModel costs =
      modelOf(qkvRecord({1, 2, 4}, {8, 16}, [](Phase, int64_t b, int64_t s) { return 100 * b + s; }));
  const TimeBounds bounds = costs.siteBounds(Site::Qkv, bucketOf(Phase::Decode, 3, 12));
  EXPECT_EQ(bounds.lowerNs, 208); // 2 x 8
  EXPECT_EQ(bounds.upperNs, 416); // 4 x 16
}

TEST(RecordCostModel, BeyondTheGridTimeGrowsWithTheWork) {
  // Decode: qkv of small llama is 4096 flops a row and 4096 + 128 + 384 a row bytes. 8 rows to 4: twice the flops.
  const RecordCostModel costs =
      modelOf(qkvRecord({1, 2, 4}, {8, 16}, [](Phase, int64_t b, int64_t) { return 100 * b; }));
  const TimeBounds bounds = costs.siteBounds(Site::Qkv, bucketOf(Phase::Decode, 8, 16));
  EXPECT_EQ(bounds.upperNs, 800);
  EXPECT_EQ(bounds.lowerNs, 400);
  EXPECT_EQ(costs.computeNs(kQkv, bucketOf(Phase::Decode, 8, 16), false), 800u);
  // A longer sequence alone is no more work for qkv.
  EXPECT_EQ(costs.siteBounds(Site::Qkv, bucketOf(Phase::Decode, 4, 4096)).upperNs, 400);
}

TEST(RecordCostModel, BelowTheGridTheSmallestCellIsTheUpperBound) {
  const RecordCostModel costs = modelOf(qkvRecord({4, 8}, {8, 16}, [](Phase, int64_t b, int64_t) { return 100 * b; }));
  const TimeBounds bounds = costs.siteBounds(Site::Qkv, bucketOf(Phase::Decode, 1, 8));
  EXPECT_EQ(bounds.upperNs, 400);
  EXPECT_EQ(bounds.lowerNs, 100); // a quarter of the flops
  EXPECT_EQ(costs.computeNs(kQkv, bucketOf(Phase::Decode, 1, 8), false), 400u);
}

TEST(RecordCostModel, NoiseThatIsNotMonotoneIsTakenFromTheSafeSide) {
  // Batch 2 was measured slower than batch 4.
  const RecordCostModel costs = modelOf(qkvRecord({1, 2, 4}, {8}, [](Phase, int64_t b, int64_t) {
    return b == 1 ? 100 : b == 2 ? 300 : 280;
  }));
  EXPECT_EQ(costs.siteBounds(Site::Qkv, bucketOf(Phase::Decode, 4, 8)).upperNs, 300);
  EXPECT_EQ(costs.siteBounds(Site::Qkv, bucketOf(Phase::Decode, 2, 8)).lowerNs, 280);
  EXPECT_EQ(costs.computeNs(kQkv, bucketOf(Phase::Decode, 4, 8), false), 280u); // as measured
}

TEST(RecordCostModel, UnequalLayersAreBoundedByTheirExtremesAndPricedAtTheirMean) {
  Record record = qkvRecord({1}, {8}, [](Phase, int64_t, int64_t) { return 92; });
  record.layersEqual = false;
  for (Cell &cell : record.cells)
    cell.layerNs = {50, 200}; // the sites say 92 + 8 = 100
  const RecordCostModel costs = modelOf(record);
  EXPECT_EQ(costs.layerBounds(bucketOf(Phase::Decode, 1, 8)).upperNs, 200);
  EXPECT_EQ(costs.layerBounds(bucketOf(Phase::Decode, 1, 8)).lowerNs, 50);
  EXPECT_EQ(costs.computeNs(kQkv, bucketOf(Phase::Decode, 1, 8), false), 115u); // 92 x (50 + 200) / 2 / 100
  EXPECT_EQ(costs.restBounds(bucketOf(Phase::Decode, 1, 8)).upperNs, 5);        // measured, so both
  EXPECT_EQ(costs.restBounds(bucketOf(Phase::Decode, 1, 8)).lowerNs, 5);
}

TEST(RecordCostModel, MixedIterationsArePricedCloseToTheTruth) {
  // OPT-6.7B on an A10, measured up to 32 x 1024 tokens: an iteration of any mix of prompts, chunks and single tokens
  // inside the grid is never priced below the truth, and at most a quarter above.
  const auto model = model::openModel("opt-6.7b");
  const auto hardware = model::openHardware("a10");
  ASSERT_TRUE(model.ok() && hardware.ok());
  const Roofline truth(model->spec, *hardware, model::DType::F16, model::DType::F16);
  Record record = emptyRecord(model->spec, {1, 2, 4, 8, 16, 32}, {16, 32, 64, 128, 256, 512, 1024});
  record.identity.kv = record.identity.activation = model::DType::F16;
  record.hardware = *hardware;
  record = measured(record, truth, {4096, 1 << 20, record.identity.layerBytes});
  const auto costs = RecordCostModel::create(record, "r");
  ASSERT_TRUE(costs.ok()) << costs.status();
  const auto layers = static_cast<double>(model->spec->layers);
  EXPECT_TRUE(rc::check([&] {
    const int64_t sequences = *rc::gen::inRange<int64_t>(1, 33);
    const int64_t context = *rc::gen::inRange<int64_t>(16, 1025);
    const int64_t tokens = *rc::gen::inRange<int64_t>(sequences, std::min<int64_t>(2048, sequences * context) + 1);
    double priced = 0, actual = 0;
    for (int s = 0; s < kSites; ++s) {
      const OpSite site = opSiteOf(static_cast<Site>(s));
      const double times = inLayer(static_cast<Site>(s)) ? layers : 1;
      priced += times * static_cast<double>(costs->computeNs(site, {tokens, sequences, context}, false));
      actual += times * static_cast<double>(truth.computeNs(site, {tokens, sequences, context}, false));
    }
    RC_ASSERT(priced >= 0.999 * actual);
    RC_ASSERT(priced <= 1.26 * actual);
  }));
}

TEST(RecordCostModel, DirectOpsAreTheRoofline) {
  const Record record = qkvRecord({1}, {8}, [](Phase, int64_t, int64_t) { return 92; });
  const Roofline roofline(smallLlama(), record.hardware, model::DType::F32, model::DType::F16);
  const OpSite embed = {kernels::Op::Embed, model::UnitRole::Embedding};
  EXPECT_EQ(modelOf(record).computeNs(embed, {1, 1, 8}, true), roofline.computeNs(embed, {1, 1, 8}, true));
}

TEST(RecordCostModel, BothDirectionsShareAsMeasured) {
  Record record = qkvRecord({1}, {8}, [](Phase, int64_t, int64_t) { return 92; });
  record.transfers = {{100, 1, exactly(30), exactly(30), exactly(30), exactly(30), exactly(40)},
                      {200, 1, exactly(60), exactly(50), exactly(60), exactly(50), exactly(60)}};
  EXPECT_DOUBLE_EQ(modelOf(record).duplexShare(), 1.5); // 2 x 30 / 40; the other 2 x 50 / 60 = 1.67
  record.transfers = {{100, 1, exactly(30), exactly(30), exactly(30), exactly(30), exactly(20)}};
  EXPECT_DOUBLE_EQ(modelOf(record).duplexShare(), 2.0); // no more than not disturbing each other
}

// The larger of the medians' ratio and that of what nine launches of ten stay below, 9 ns; never faster beside copies
// than alone. What lengthens the slow launches on both sides alike, 180 to 270 here, is no interference.
TEST(RecordCostModel, InterferenceIsBesideOverAloneAtTheMedianOrAtNineOfTen) {
  const Roofline truth(smallLlama(), roundHardware(), model::DType::F32, model::DType::F16);
  Record record = measured(emptyRecord(smallLlama(), {1, 2}, {2, 4}), truth, {1000});
  const auto of = [](const Record &r) { return RecordCostModel::create(r, "r")->interference(); };
  EXPECT_EQ(of(record).computeFactor, 1);
  EXPECT_EQ(of(record).wakeNs, 0u);
  record.interference = {7, {100, 90, 110}, {120, 100, 165}, {5, 0, 9}};
  EXPECT_EQ(of(record).computeFactor, 1.5); // 165 / 110
  EXPECT_EQ(of(record).wakeNs, 9u);
  record.interference = {7, {100, 90, 180}, {175, 100, 270}, {5, 0, 9}};
  EXPECT_EQ(of(record).computeFactor, 1.75); // 175 / 100
  record.interference = {7, {100, 90, 110}, {80, 70, 95}, {5, 0, 9}};
  EXPECT_EQ(of(record).computeFactor, 1);
}

// The larger of 1250 / 1000 and 110 / 100; to a thousandth below, and never less than 1: slow predictions are no reason
// to promise more.
TEST(RecordCostModel, TheSlowestFactorIsMeasuredOverPredicted) {
  const Roofline truth(smallLlama(), roundHardware(), model::DType::F32, model::DType::F16);
  Record record = measured(emptyRecord(smallLlama(), {1, 2}, {2, 4}), truth, {1000});
  const auto of = [](const Record &r) { return RecordCostModel::create(r, "r")->slowestFactor(); };
  EXPECT_EQ(of(record), 1);
  record.spread = {300, {100, 101, 110}, {1000, 1010, 1250}};
  EXPECT_EQ(of(record), 1.25);
  record.spread = {300, {100, 101, 130}, {1000, 1010, 1250}};
  EXPECT_EQ(of(record), 1.3);
  record.spread = {300, {10'000, 10'001, 10'009}, {10'000, 10'001, 10'009}};
  EXPECT_EQ(of(record), 1);
  record.spread = {300, {1000, 800, 900}, {1000, 800, 900}};
  EXPECT_EQ(of(record), 1);
}

TEST(RecordCostModel, RefusesRecordsThatDoNotServe) {
  Record record = qkvRecord({1, 2}, {8}, [](Phase, int64_t, int64_t) { return 92; });
  record.cells.pop_back();
  EXPECT_THAT(std::string(RecordCostModel::create(record, smallLlama(), "r").status().message()),
              HasSubstr("the grid has holes: 1 of 4 cells are missing, first decode batch 2 sequence 8"));
  model::ModelSpec other = smallLlama();
  other.layers = 3;
  EXPECT_THAT(std::string(RecordCostModel::create(record, other, "r").status().message()),
              HasSubstr("this record is of another model, expected 3 layers"));
  record.batches = {1, 3};
  EXPECT_EQ(RecordCostModel::create(record, smallLlama(), "r").status().code(), absl::StatusCode::kInvalidArgument);
}

// Hardware with rates of any proportion; all rooflines are monotone and sub-homogeneous. So slow that whole nanoseconds
// do not matter.
model::Hardware anyHardware() {
  model::Hardware h = roundHardware();
  h.flopsF32 = h.flopsF16 = *rc::gen::inRange(10, 100'000);
  h.memoryBandwidth = *rc::gen::inRange(10, 100'000);
  h.h2dBandwidth = h.d2hBandwidth = *rc::gen::inRange(10, 10'000);
  h.duplexBandwidth = 1.5 * h.h2dBandwidth;
  h.launchOverhead = *rc::gen::inRange(0, 1000) * 1e-3;
  return h;
}

TEST(RecordCostModel, TheTruthLiesBetweenTheBoundsInsideAndOutside) {
  EXPECT_TRUE(rc::check([] {
    const model::Hardware hardware = anyHardware();
    const Roofline truth(smallLlama(), hardware, model::DType::F32, model::DType::F16);
    Record record = emptyRecord(smallLlama(), {2, 4, 8}, {4, 8, 16});
    record.hardware = hardware;
    record = measured(std::move(record), truth, {1000, 1'000'000});
    const auto costs = RecordCostModel::create(std::move(record), smallLlama(), "r");
    RC_ASSERT(costs.ok());
    const Bucket bucket = *rc::gen::element(0, 1, 2) == 0
                              ? Bucket{*rc::gen::inRange(1, 200), *rc::gen::inRange(1, 32), *rc::gen::inRange(1, 64)}
                              : bucketOf(*rc::gen::element(Phase::Prefill, Phase::Decode), *rc::gen::inRange(1, 32),
                                         *rc::gen::inRange(1, 64));
    for (int s = 0; s < kSites; ++s) {
      const TimeBounds bounds = costs->siteBounds(static_cast<Site>(s), bucket);
      const auto ns = static_cast<double>(truth.computeNs(opSiteOf(static_cast<Site>(s)), bucket, false));
      // What was rounded to a nanosecond grows with the work, at most some thousand times.
      RC_ASSERT(bounds.upperNs + 5000 >= ns);
      RC_ASSERT(bounds.lowerNs <= ns + 1);
      const auto price = static_cast<double>(costs->computeNs(opSiteOf(static_cast<Site>(s)), bucket, false));
      RC_ASSERT(price >= bounds.lowerNs - 1 && price <= bounds.upperNs + 1);
    }
  }));
}

TEST(RecordCostModel, CopiesOutsideTheSizesAreNeverTooFast) {
  EXPECT_TRUE(rc::check([] {
    const model::Hardware hardware = anyHardware();
    const Roofline truth(smallLlama(), hardware, model::DType::F32, model::DType::F16);
    Record record = emptyRecord(smallLlama(), {1}, {1});
    record.transfers = {transferOf(1'000, truth.copyNs(1'000, true)), transferOf(64'000, truth.copyNs(64'000, true))};
    const auto bytes = static_cast<uint64_t>(*rc::gen::inRange(1, 1'000'000));
    // Both were rounded to whole nanoseconds, one of them grown in proportion since.
    RC_ASSERT(transferNs(record, bytes, true) + 1 + bytes / 64'000 >= truth.copyNs(bytes, true));
  }));
}

} // namespace
} // namespace headrace::cost
