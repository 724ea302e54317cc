// SPDX-License-Identifier: Apache-2.0
//
// Plans priced with a performance record.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/cost/RecordCostModel.h"
#include "runtime/model/WeightLayout.h"
#include "tests/unit/compiler/Requests.h"
#include "tests/unit/cost/Records.h"

namespace headrace::compiler {
namespace {

TEST(PricedByRecord, ARecordOfTheRooflinePredictsAsTheRooflineWhereItWasMeasured) {
  CompileRequest asked = shipped("opt-6.7b", "a10", 4, 256);
  asked.buckets = {.newTokens = {256}, .sequences = {1, 2, 4}, .contexts = {64, 128, 256}};
  asked.policy.interval = 8;
  const cost::Roofline truth(asked.model, asked.hardware, model::DType::F16, model::DType::F16);
  cost::Record record = cost::emptyRecord(asked.model, {1, 2, 4}, {64, 128, 256});
  record.identity.kv = record.identity.activation = model::DType::F16;
  record.hardware = asked.hardware;
  // A plan copies unit by unit: those sizes exactly.
  std::vector<uint64_t> sizes;
  const model::WeightLayout layout = model::layoutWeights(asked.model);
  for (const model::UnitRole role :
       {model::UnitRole::Out, model::UnitRole::Qkv, model::UnitRole::Down, model::UnitRole::Up})
    sizes.push_back(layout.units[static_cast<size_t>(layout.layerUnit(0, role))].bytes);
  sizes.push_back(layout.layerBytes(0));
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  record = cost::measured(record, truth, sizes);
  auto costs = cost::RecordCostModel::create(record, "r");
  ASSERT_TRUE(costs.ok()) << costs.status();
  const auto byRoofline = compile(asked);
  asked.costs = &*costs;
  const auto byRecord = compile(asked);
  ASSERT_TRUE(byRoofline.ok() && byRecord.ok()) << byRoofline.status() << byRecord.status();
  ASSERT_EQ(byRoofline->variants.size(), byRecord->variants.size());
  size_t decode = 0;
  for (size_t i = 0; i < byRecord->variants.size(); ++i) {
    const plan::Variant &a = byRoofline->variants[i], &b = byRecord->variants[i];
    const bool one = b.newTokens == b.sequences, prefill = b.newTokens == b.sequences * b.context;
    decode += one;
    if (one || prefill) {
      EXPECT_EQ(a.durationsNs, b.durationsNs) << b.newTokens << " " << b.sequences << " " << b.context;
      EXPECT_EQ(a.predictedNs, b.predictedNs);
    } else { // any other mix: not less, and not much more
      EXPECT_GE(b.computeAloneNs, a.computeAloneNs);
      EXPECT_LE(static_cast<double>(b.computeAloneNs), 1.26 * static_cast<double>(a.computeAloneNs));
    }
  }
  EXPECT_EQ(decode, 9u);
}

} // namespace
} // namespace headrace::compiler
