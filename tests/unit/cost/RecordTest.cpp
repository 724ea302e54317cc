// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/Record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/cost/Records.h"

namespace headrace::cost {
namespace {

using testing::HasSubstr;

// A cell whose layer takes `ns`, all of it in one site.
Cell layerOf(Phase phase, int64_t batch, int64_t sequence, uint64_t ns) {
  Cell cell{phase, batch, sequence, 1, {}, {}};
  cell.at(Site::Qkv) = exactly(ns);
  return cell;
}

Record grid(std::vector<int64_t> batches, std::vector<int64_t> sequences) {
  Record record = emptyRecord(smallLlama(), std::move(batches), std::move(sequences));
  record.transfers = {transferOf(record.identity.layerBytes, 100)};
  return record;
}

TEST(RecordSites, EverySiteIsFoundByItsOp) {
  for (int s = 0; s < kSites; ++s)
    EXPECT_EQ(siteOf(opSiteOf(static_cast<Site>(s))), static_cast<Site>(s)) << siteName(static_cast<Site>(s));
  // Attention and the rest stand once, whatever unit a caller names; norms and linears are told apart by theirs.
  EXPECT_EQ(siteOf({kernels::Op::Attention, model::UnitRole::Head}), Site::Attention);
  EXPECT_EQ(siteOf({kernels::Op::Norm, model::UnitRole::Down}), std::nullopt);
}

TEST(RecordSites, NineOfTheFourteenAreALayers) {
  int layer = 0;
  for (int s = 0; s < kSites; ++s)
    layer += inLayer(static_cast<Site>(s));
  EXPECT_EQ(layer, 9);
}

TEST(RecordBuckets, PrefillHasAllTokensDecodeOneASequence) {
  EXPECT_EQ(bucketOf(Phase::Prefill, 16, 64).tokens, 1024);
  EXPECT_EQ(bucketOf(Phase::Decode, 16, 64).tokens, 16);
  EXPECT_EQ(bucketOf(Phase::Decode, 16, 64).context, 64);
}

TEST(RecordTiming, QuantilesAreNearestRank) {
  EXPECT_EQ(summarise({50, 10, 40, 20, 30}), (Timing{30, 10, 50}));
  EXPECT_EQ(summarise({7}), (Timing{7, 7, 7}));
  // Of 20 the 10th, the 2nd and the 18th.
  std::vector<uint64_t> twenty;
  for (uint64_t i = 1; i <= 20; ++i)
    twenty.push_back(21 - i);
  EXPECT_EQ(summarise(twenty), (Timing{10, 2, 18}));
}

TEST(RecordLayers, AreEqualWithinATolerance) {
  EXPECT_TRUE(layersAreEqual({100, 104, 105}, 0.05));
  EXPECT_FALSE(layersAreEqual({100, 104, 106}, 0.05));
  EXPECT_TRUE(layersAreEqual({}, 0));
}

TEST(RecordLayers, ALayerIsTheSumOfItsSitesOrTheSlowest) {
  Cell cell;
  for (int s = 0; s < kSites; ++s)
    cell.sites[static_cast<size_t>(s)] = exactly(1u << s);
  EXPECT_EQ(layerComputeNs(cell), 1022u); // 2 + 4 + ... + 512
  EXPECT_EQ(restComputeNs(cell), 15361u); // 1 + 1024 + 2048 + 4096 + 8192
  cell.layerNs = {900, 1300, 1000};
  EXPECT_EQ(layerComputeNs(cell), 1300u);
}

TEST(RecordTransfers, AreLinearBetweenSizesAndSafeOutside) {
  Record record = grid({1}, {1});
  record.transfers = {transferOf(100, 30), transferOf(200, 50)};
  EXPECT_EQ(transferNs(record, 100, true), 30u);
  EXPECT_EQ(transferNs(record, 150, true), 40u);
  EXPECT_EQ(transferNs(record, 151, true), 41u);  // 40.2, up
  EXPECT_EQ(transferNs(record, 1, true), 30u);    // no smaller than the smallest measured
  EXPECT_EQ(transferNs(record, 400, true), 100u); // 50 x 2, although the slope would say 90
  record.transfers.clear();
  EXPECT_EQ(transferNs(record, 1, true), kLongestStepNs);
}

TEST(RecordTransfers, AreTheSlowerOfAloneAndWithCompute) {
  Record record = grid({1}, {1});
  record.transfers = {{100, 1, exactly(30), exactly(31), exactly(40), exactly(20), exactly(50)}};
  EXPECT_EQ(transferNs(record, 100, true), 40u);
  EXPECT_EQ(transferNs(record, 100, false), 31u);
}

TEST(RecordGrid, SaysWhichCellsAreMissingSmallOnesFirst) {
  Record record = grid({1, 2}, {4, 8});
  record.cells = {layerOf(Phase::Prefill, 1, 4, 10), layerOf(Phase::Decode, 2, 8, 10)};
  const std::vector<CellKey> expected = {{Phase::Prefill, 1, 8}, {Phase::Prefill, 2, 4}, {Phase::Prefill, 2, 8},
                                         {Phase::Decode, 1, 4},  {Phase::Decode, 1, 8},  {Phase::Decode, 2, 4}};
  EXPECT_EQ(missingCells(record), expected);
  EXPECT_EQ(checkComplete(record, "r").message(),
            "r: the grid has holes: 6 of 8 cells are missing, first prefill batch 1 sequence 8");
  EXPECT_EQ(checkComplete(record, "r").code(), absl::StatusCode::kFailedPrecondition);
}

TEST(RecordGrid, StopsWhereALayerComputesLongerThanItIsCopied) {
  Record record = grid({1, 2, 4}, {4, 8});
  // The copy takes 100. Prefill 2 x 4 computes 101: 2 x 8, 4 x 4 and 4 x 8 need not be measured, 1 x 8 must.
  record.cells = {layerOf(Phase::Prefill, 1, 4, 60), layerOf(Phase::Prefill, 2, 4, 101)};
  const std::vector<CellKey> missing = missingCells(record);
  EXPECT_EQ(missing.size(), 1u + 6);
  EXPECT_EQ(missing.front(), (CellKey{Phase::Prefill, 1, 8}));
  // At 100 it is not longer.
  record.cells[1] = layerOf(Phase::Prefill, 2, 4, 100);
  EXPECT_EQ(missingCells(record).size(), 4u + 6);
}

TEST(RecordGrid, PairsOfMoreTokensThanTheLimitAreNotOnIt) {
  Record record = grid({1, 2, 4}, {4, 8});
  record.mostTokens = {8, 16};
  // Of 4, 8; 8, 16; 16, 32 tokens: prefill 1 x 4, 1 x 8, 2 x 4; decode all but 4 x 8.
  EXPECT_EQ(missingCells(record).size(), 3u + 5);
  for (const CellKey &key : missingCells(record))
    record.cells.push_back(layerOf(key.phase, key.batch, key.sequence, 10));
  EXPECT_TRUE(checkComplete(record, "r").ok());
  record.cells.pop_back();
  EXPECT_EQ(checkComplete(record, "r").message(),
            "r: the grid has holes: 1 of 8 cells are missing, first decode batch 4 sequence 4");
}

TEST(RecordGrid, WithoutTransfersNothingIsSettled) {
  Record record = grid({1, 2}, {4});
  record.transfers.clear();
  record.cells = {layerOf(Phase::Prefill, 1, 4, kLongestStepNs)};
  EXPECT_EQ(missingCells(record).size(), 3u);
  EXPECT_THAT(std::string(checkComplete(record, "r").message()), HasSubstr("no transfer times"));
}

TEST(RecordChecks, RefuseEachFault) {
  const Record good = [] {
    Record r = grid({1, 2}, {4});
    r.cells = {layerOf(Phase::Prefill, 1, 4, 60)};
    return r;
  }();
  ASSERT_TRUE(checkRecord(good, "r").ok()) << checkRecord(good, "r");
  const std::pair<std::function<void(Record &)>, const char *> faults[] = {
      {[](Record &r) {
         r.batches = {1, 4};
       },
       "r: grid.batch: expected powers of two, each twice the one before"},
      {[](Record &r) { r.sequences = {3}; }, "r: grid.sequence: expected powers of two"},
      {[](Record &r) { r.batches.clear(); }, "r: grid.batch: expected powers of two"},
      {[](Record &r) { r.sequences = {0}; }, "r: grid.sequence: expected powers of two"},
      {[](Record &r) { r.cells[0].batch = 4; }, "r: prefill batch 4 sequence 4: not on the record's grid"},
      {[](Record &r) { r.cells.push_back(r.cells[0]); }, "r: prefill batch 1 sequence 4: stands twice"},
      {[](Record &r) { r.cells[0].repetitions = 0; }, "repetitions = 0: expected at least 1"},
      {[](Record &r) {
         r.cells[0].at(Site::Up) = {5, 6, 7};
       },
       "up = [5, 6, 7]: expected median, p10, p90 in ns"},
      {[](Record &r) {
         r.cells[0].at(Site::Up) = {5, 5, 4};
       },
       "up = [5, 5, 4]: expected median, p10, p90 in ns"},
      {[](Record &r) { r.cells[0].at(Site::Up) = exactly(kLongestStepNs + 1); }, "expected median, p10, p90"},
      {[](Record &r) { r.cells[0].at(Site::Qkv) = {}; }, "a layer takes no time"},
      {[](Record &r) {
         r.cells[0].layerNs = {1, 2};
       },
       "layer_ns has 2 times: expected 0 (layers_equal)"},
      {[](Record &r) { r.layersEqual = false; }, "layer_ns has 0 times: expected 2, one a layer"},
      {[](Record &r) {
         r.layersEqual = false, r.cells[0].layerNs = {0, 2};
       },
       "layer_ns holds 0"},
      {[](Record &r) { r.transfers.push_back(r.transfers[0]); }, "expected ascending sizes above 0"},
      {[](Record &r) {
         r.transfers[0].both = {5, 6, 7};
       },
       "both = [5, 6, 7]: expected median"},
      {[](Record &r) { r.transfers[0].h2d = {}; }, "h2d: expected times above 0"},
      {[](Record &r) { r.transfers[0].repetitions = 0; }, "repetitions = 0"},
      {[](Record &r) { r.identity.layers = 0; }, "identity.layers = 0: expected from 1 to 2000"},
      {[](Record &r) { r.identity.layerBytes = 0; }, "identity.layer_bytes = 0"},
      {[](Record &r) { r.identity.layerBytes += 256; }, "bytes: expected those of [model], 2 layers of"},
      {[](Record &r) { r.model->layers = 3; }, "2 layers of 18944 bytes: expected those of [model], 3 layers of"},
      {[](Record &r) { r.model->hidden = 0; }, "r: model: hidden"},
      {[](Record &r) { r.mostTokens[0] = 3; }, "grid.prefill_tokens = 3: expected at least the 4 of the smallest pair"},
      {[](Record &r) { r.mostTokens[1] = 3; }, "grid.decode_tokens = 3: expected at least the 4 of the smallest pair"},
      {[](Record &r) { r.mostTokens[0] = 4, r.cells[0].batch = 2; },
       "prefill batch 2 sequence 4: more tokens than grid.prefill_tokens = 4"},
      {[](Record &r) { r.layersRun = 0; }, "grid.layers_run = 0: expected from 1 to 2"},
      {[](Record &r) { r.layersRun = 3; }, "grid.layers_run = 3: expected from 1 to 2"},
      {[](Record &r) { r.identity.modelHash.clear(); }, "expected a model hash and a device"},
  };
  for (const auto &[change, message] : faults) {
    Record bad = good;
    change(bad);
    const absl::Status refused = checkRecord(bad, "r");
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(message));
  }
}

TEST(RecordChecks, NameTheFirstDifferenceOfAnotherModelOrDevice) {
  const Record record = grid({1}, {1});
  EXPECT_TRUE(checkIdentity(record, record.identity, "r").ok());
  const std::pair<std::function<void(Identity &)>, const char *> others[] = {
      {[](Identity &i) { i.modelHash = "ffff"; },
       "r: model_hash = abc123: this record is of another model, expected ffff"},
      {[](Identity &i) { i.layers = 3; }, "r: layers = 2: this record is of another model, expected 3"},
      {[](Identity &i) { i.layerBytes = 5; }, "expected 5"},
      {[](Identity &i) { i.activation = model::DType::F16; },
       "r: activation = f32: this record is of another model, expected f16"},
      {[](Identity &i) { i.kv = model::DType::F32; }, "r: kv = f16: this record is of another model, expected f32"},
      {[](Identity &i) { i.kind = model::DeviceKind::Cuda; },
       "r: device_kind = host: this record is of another device, expected cuda"},
      {[](Identity &i) { i.device = "two"; }, "r: device = one: this record is of another device, expected two"},
  };
  for (const auto &[change, message] : others) {
    Identity other = record.identity;
    change(other);
    const absl::Status refused = checkIdentity(record, other, "r");
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(refused.message()), HasSubstr(message));
  }
  Identity renamed = record.identity;
  renamed.model = "another name";
  EXPECT_TRUE(checkIdentity(record, renamed, "r").ok()); // a name is for people
}

} // namespace
} // namespace headrace::cost
