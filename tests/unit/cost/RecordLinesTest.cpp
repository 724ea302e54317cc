// SPDX-License-Identifier: Apache-2.0
//
// Lines of a record: what is fitted, what is held out, the file, and what is priced by them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/Kernels.h"
#include "runtime/cost/RecordCostModel.h"
#include "runtime/cost/RecordFile.h"
#include "runtime/model/ModelSpec.h"
#include "tests/support/TestFiles.h"
#include "tests/unit/cost/Records.h"

namespace headrace::cost {
namespace {

using model::codeOf;
using model::messageOf;
using testing::HasSubstr;

constexpr OpSite kRebuild{kernels::Op::RebuildKv, model::UnitRole::Qkv};

// At 100, 200, 300, ... tokens.
std::vector<MeasuredLines::Sample> samplesOf(const std::vector<uint64_t> &medians) {
  std::vector<MeasuredLines::Sample> samples;
  for (const uint64_t ns : medians)
    samples.push_back({static_cast<int64_t>(100 * samples.size() + 100), {ns, ns - 1, ns + 2}});
  return samples;
}

// 1000 ns + 10 ns a token; what is held out is 3 ns off. 500 ns and 2, 300 ns and 1.
Record withLines() {
  const Roofline truth(smallLlama(), roundHardware(), model::DType::F32, model::DType::F16);
  Record record = measured(emptyRecord(smallLlama(), {1, 2}, {2, 4}), truth, {1000, 1'000'000});
  record.lines.at(LineKind::RebuildKv) = samplesOf({2000, 3003, 4000, 5003, 6000});
  record.lines.at(LineKind::LoadKv) = samplesOf({700, 903, 1100, 1303, 1500});
  record.lines.at(LineKind::LoadAct) = samplesOf({400, 503, 600, 703, 800});
  return record;
}

RecordCostModel modelOf(const Record &record) {
  absl::StatusOr<RecordCostModel> costs = RecordCostModel::create(record, "record");
  EXPECT_TRUE(costs.ok()) << costs.status();
  return *std::move(costs);
}

std::string replaced(std::string text, const std::string &from, const std::string &to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(RecordLines, EveryOtherCountIsHeldOut) {
  // Through 100, 300 and 500 tokens; what stands between them does not count, however far off.
  const auto line = fitLine(samplesOf({2000, 999'999, 4000, 1, 6000}), "");
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_DOUBLE_EQ(line->interceptNs, 1000);
  EXPECT_DOUBLE_EQ(line->slopeNsPerToken, 10); // 4000 / 400
  EXPECT_DOUBLE_EQ(line->r2, 1);
  EXPECT_FALSE(heldOut(0));
  EXPECT_TRUE(heldOut(1));
}

TEST(RecordLines, TheFileHasTheSamplesAndSaysWhatTheyMake) {
  const Record record = withLines();
  const std::string text = recordText(record);
  EXPECT_THAT(text, HasSubstr("\n[regression.rebuild_kv] # ns of a layer = 1000.0 + 10.0000 x tokens, R^2 1.0000, "
                              "fitted to every other count\ntokens = [100, 200, 300, 400, 500]\n"
                              "median = [2000, 3003, 4000, 5003, 6000]\np10 = [1999, "));
  EXPECT_THAT(text, HasSubstr("\n[regression.load_kv] # ns of a layer = 500.0 + 2.0000 x tokens, R^2 1.0000"));
  EXPECT_THAT(text, HasSubstr("\n[regression.load_act] # ns of a layer = 300.0 + 1.0000 x tokens, R^2 1.0000"));
  const auto again = parseRecord(text, "r.toml");
  ASSERT_TRUE(again.ok()) << messageOf(again);
  EXPECT_EQ(again->lines.samples, record.lines.samples);
  EXPECT_EQ(recordText(*again), text);
  // As records had it before; one that has both says something that nobody reads.
  const std::string former = replaced(text, "[regression.rebuild_kv]", "[regression.recompute_kv]");
  const auto renamed = parseRecord(former, "r.toml");
  ASSERT_TRUE(renamed.ok()) << messageOf(renamed);
  EXPECT_EQ(recordText(*renamed), text);
  const std::string line = text.substr(text.find("[regression.rebuild_kv]")), other = "[regression.load_kv]";
  const std::string twice = replaced(line.substr(0, line.find("\n\n") + 2), "rebuild_kv", "recompute_kv") + other;
  EXPECT_THAT(messageOf(parseRecord(replaced(text, other, twice), "r.toml")),
              HasSubstr("regression.recompute_kv: unknown key: expected one of "));
  // Nothing of them where they were not measured.
  Record without = record;
  without.lines = {};
  EXPECT_EQ(recordText(without).find("regression"), std::string::npos);
  const auto none = parseRecord(recordText(without), "r.toml");
  ASSERT_TRUE(none.ok()) << messageOf(none);
  EXPECT_FALSE(none->lines.measured());
}

TEST(RecordLines, WhatIsNoLineIsRefusedByKey) {
  const std::string good = recordText(withLines());
  const std::string tokens = "tokens = [100, 200, 300, 400, 500]", median = "median = [2000, 3003, 4000, 5003, 6000]";
  const std::string header = good.substr(good.find("[regression.load_kv]"));
  const std::string loadKv = header.substr(0, header.find("\n\n") + 1);
  const std::tuple<std::string, std::string, const char *> faults[] = {
      {loadKv, "", "regression.load_kv is missing: expected a table, [regression.load_kv]"},
      {loadKv, "[regression.load_disk]\n", "regression.load_kv is missing: expected a table"},
      {loadKv, loadKv + "[regression.load_disk]\n", "regression.load_disk: unknown key"},
      {loadKv, "[[regression.load_kv]]\ntokens = [1]\n", "regression.load_kv = [{...}]: expected a table"},
      {"[regression.rebuild_kv]", "[regression]\nspeed = 3\n[regression.rebuild_kv]", "regression.speed: unknown key"},
      {tokens, "", "regression.rebuild_kv.tokens is missing: expected a list of counts of tokens"},
      {tokens, "tokens = [0, 200, 300, 400, 500]", "regression.rebuild_kv.tokens = [0, 200, 300, 400, 500]: expected"},
      {tokens, "tokens = [100, 200, nan, 400, 500]", "regression.rebuild_kv.tokens = [100, 200, nan, 400, 500]"},
      {tokens, "tokens = [100, 300, 200, 400, 500]", "r: regression.rebuild_kv.tokens: 200 after 300: expected asc"},
      {tokens, "tokens = [100, 200, 300, 400, 400]", "r: regression.rebuild_kv.tokens: 400 after 400: expected asc"},
      {tokens, "tokens = [100, 200, 300, 400]",
       "regression.rebuild_kv.median = [2000, 3003, 4000, 5003, 6000]: expected a list of 4 times in ns"},
      {median, "", "regression.rebuild_kv.median is missing: expected a list of 5 times in ns, one a count of tokens"},
      {median, "median = [2000, 3003, 4000, 5003, -6000]", "regression.rebuild_kv.median = [2000, 3003, 4000, 5003, "},
      {median, "median = [2000, 3003, 4000, 5003, 6003]",
       "r: regression.rebuild_kv of 500 tokens = [6003, 5999, "
       "6002]: expected median, p10, p90"},
      {median, median + "\nr2 = 0.99", "regression.rebuild_kv.r2: unknown key"},
  };
  for (const auto &[from, to, message] : faults) {
    const auto refused = parseRecord(replaced(good, from, to), "r");
    EXPECT_EQ(codeOf(refused), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(messageOf(refused), HasSubstr(message));
  }
}

TEST(RecordLines, TooFewSamplesAndTimesThatAreNotLinearAreRefused) {
  Record record = withLines();
  record.lines.at(LineKind::LoadAct).pop_back();
  EXPECT_EQ(checkRecord(record, "r.toml").message(),
            "r.toml: regression.load_act: 4 counts of tokens: expected at least 5, three that the line is fitted to "
            "and two held out");
  record.lines.at(LineKind::LoadAct).clear(); // all of them or none
  EXPECT_THAT(std::string(checkRecord(record, "r.toml").message()),
              HasSubstr("r.toml: regression.load_act: 0 counts of tokens"));
  // At 100, 300, 500 tokens 2000, 2000, 5000 ns: about the means 300 and 3000 the sums are xx = 80,000, xy = 600,000
  // and yy = 6,000,000, so that R^2 = 600,000^2 / (80,000 x 6,000,000) = 0.75. The held-out ones lie on a line.
  record = withLines();
  record.lines.at(LineKind::LoadKv) = samplesOf({2000, 2000, 2000, 3000, 5000});
  const auto refused = parseRecord(recordText(record), "r.toml");
  EXPECT_EQ(codeOf(refused), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(messageOf(refused), "r.toml: regression.load_kv: R^2 = 0.75 of 3 samples: expected at least 0.98, times "
                                "that are linear in tokens");
  record.lines.at(LineKind::LoadKv) = samplesOf({5000, 4000, 3000, 2000, 1000});
  EXPECT_THAT(std::string(checkRecord(record, "r.toml").message()),
              HasSubstr("r.toml: regression.load_kv: a slope of -10 ns a token: expected at least 0"));
}

TEST(RecordLines, KeysAndValuesAreMadeAgainByTheLine) {
  const RecordCostModel costs = modelOf(withLines());
  const auto ns = [&](int64_t rows) { return costs.computeNs(kRebuild, {1, 1, 4, rows}, false); };
  EXPECT_EQ(ns(0), 0u);       // not the intercept: nothing runs
  EXPECT_EQ(ns(1), 1010u);    // 1000 + 10
  EXPECT_EQ(ns(64), 1640u);   // 1000 + 640
  EXPECT_EQ(ns(200), 3000u);  // 1000 + 2000; held out: not the 3003 that were measured
  EXPECT_EQ(ns(900), 10000u); // beyond the samples
  // Whatever else is in the bucket.
  EXPECT_EQ(costs.computeNs(kRebuild, {7, 2, 4, 64}, false), 1640u);
  // Other ops are priced as they were, and so is what reads its weights over the link.
  Record record = withLines();
  const Roofline roofline(smallLlama(), record.hardware, model::DType::F32, model::DType::F16);
  EXPECT_EQ(costs.computeNs(kRebuild, {1, 1, 4, 64}, true), roofline.computeNs(kRebuild, {1, 1, 4, 64}, true));
  record.lines = {};
  const RecordCostModel without = modelOf(record);
  EXPECT_EQ(without.computeNs(kRebuild, {1, 1, 4, 64}, false), roofline.computeNs(kRebuild, {1, 1, 4, 64}, false));
  EXPECT_NE(without.computeNs(kRebuild, {1, 1, 4, 64}, false), 1640u);
  for (int s = 0; s < kSites; ++s) {
    const OpSite site = opSiteOf(static_cast<Site>(s));
    EXPECT_EQ(costs.computeNs(site, {2, 2, 4, 64}, false), without.computeNs(site, {2, 2, 4, 64}, false));
  }
}

TEST(RecordLines, NothingIsPricedBelowTheLine) {
  Record record = withLines();
  // 4 ns a token from -300 ns on: an intercept below 0 counts as 0.
  record.lines.at(LineKind::RebuildKv) = samplesOf({100, 500, 900, 1300, 1700});
  EXPECT_EQ(modelOf(record).computeNs(kRebuild, {1, 1, 4, 10}, false), 40u); // 0 + 4 x 10
  // (2, 4, 6) ns at 100, 300 and 500 tokens: 1 ns and 0.01 a token, to the next whole nanosecond.
  record.lines.at(LineKind::RebuildKv) = samplesOf({2, 3, 4, 5, 6});
  EXPECT_EQ(modelOf(record).computeNs(kRebuild, {1, 1, 4, 10}, false), 2u);  // 1.1
  EXPECT_EQ(modelOf(record).computeNs(kRebuild, {1, 1, 4, 150}, false), 3u); // 2.5
}

} // namespace
} // namespace headrace::cost
