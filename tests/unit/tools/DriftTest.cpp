// SPDX-License-Identifier: Apache-2.0
#include "tools/report/DriftReport.h"

#include <cmath>
#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/unit/tools/CountText.h"

namespace headrace::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Logits = std::vector<float>;

// Of two tokens, 1 being three times as likely as 0 in full precision, and as likely packed:
//   p = (1/4, 3/4), q = (1/2, 1/2), KL = 1/4 ln(1/2) + 3/4 ln(3/2) = 0.1308
TEST(Drift, OfOnePositionByHand) {
  const auto three = static_cast<float>(std::log(3.0));
  const PositionDrift drift = driftOf(Logits{0, three}, Logits{0, 0}, 1);
  EXPECT_NEAR(drift.kl, 0.25 * std::log(0.5) + 0.75 * std::log(1.5), 1e-7);
  EXPECT_EQ(drift.largest, three);
  EXPECT_EQ(drift.largestToken, 1);
  EXPECT_EQ(drift.mean, static_cast<double>(three) / 2);
  EXPECT_FALSE(drift.sameFirst); // 1, and of equals the lowest id, 0
  EXPECT_NEAR(*drift.fullLoss, std::log(4.0 / 3), 1e-7);
  EXPECT_NEAR(*drift.packedLoss, std::log(2.0), 1e-12);
  EXPECT_FALSE(driftOf(Logits{0, three}, Logits{0, 0}, std::nullopt).fullLoss);
}

TEST(Drift, LogitsThatAreAllShiftedMakeTheSameProbabilities) {
  const PositionDrift drift = driftOf(Logits{1, 2, 3}, Logits{3, 4, 5}, 0);
  EXPECT_EQ(drift.largest, 2);
  EXPECT_EQ(drift.largestToken, 0);
  EXPECT_EQ(drift.mean, 2);
  EXPECT_NEAR(drift.kl, 0, 1e-15);
  EXPECT_TRUE(drift.sameFirst);
  EXPECT_NEAR(*drift.fullLoss, *drift.packedLoss, 1e-15);
}

Logits randomLogits(std::mt19937 &random, size_t vocab, float spread) {
  Logits out(vocab);
  for (float &logit : out)
    logit = std::normal_distribution<float>(0, spread)(random);
  return out;
}

TEST(Drift, OfTheSameBitsIsExactlyNothing) {
  std::mt19937 random(1);
  for (int i = 0; i < 100; ++i) {
    const Logits logits = randomLogits(random, 1 + static_cast<size_t>(i), i % 2 == 0 ? 1.0f : 40.0f);
    const PositionDrift drift = driftOf(logits, logits, 0);
    EXPECT_EQ(drift.largest, 0);
    EXPECT_EQ(drift.mean, 0);
    EXPECT_EQ(drift.kl, 0);
    EXPECT_TRUE(drift.sameFirst);
    EXPECT_EQ(*drift.fullLoss, *drift.packedLoss);
  }
}

// Probabilities as the definition has them, in the widest type, without a shift by the largest.
TEST(Drift, IsThatOfPlainProbabilities) {
  std::mt19937 random(2);
  for (int i = 0; i < 100; ++i) {
    const size_t vocab = 2 + static_cast<size_t>(random() % 300);
    const Logits full = randomLogits(random, vocab, 3);
    Logits packed = full;
    for (float &logit : packed)
      logit += std::normal_distribution<float>(0, 0.5f)(random);
    const auto next = static_cast<int32_t>(random() % vocab);
    long double sumP = 0, sumQ = 0, kl = 0;
    for (size_t v = 0; v < vocab; ++v) {
      sumP += std::exp(static_cast<long double>(full[v]));
      sumQ += std::exp(static_cast<long double>(packed[v]));
    }
    const auto p = [&](size_t v) { return std::exp(static_cast<long double>(full[v])) / sumP; };
    const auto q = [&](size_t v) { return std::exp(static_cast<long double>(packed[v])) / sumQ; };
    for (size_t v = 0; v < vocab; ++v)
      kl += p(v) * std::log(p(v) / q(v));
    const PositionDrift drift = driftOf(full, packed, next);
    EXPECT_NEAR(drift.kl, static_cast<double>(kl), 1e-12);
    EXPECT_NEAR(*drift.fullLoss, static_cast<double>(-std::log(p(static_cast<size_t>(next)))), 1e-12);
    EXPECT_NEAR(*drift.packedLoss, static_cast<double>(-std::log(q(static_cast<size_t>(next)))), 1e-12);
  }
}

PositionDrift at(int64_t prompt, int64_t position, double largest, double kl, bool same,
                 std::optional<double> full = std::nullopt, std::optional<double> packed = std::nullopt) {
  PositionDrift out;
  out.prompt = prompt;
  out.position = position;
  out.largest = largest;
  out.mean = largest / 4;
  out.largestToken = 7;
  out.kl = kl;
  out.sameFirst = same;
  out.fullLoss = full;
  out.packedLoss = packed;
  return out;
}

// Two prompts of two tokens. The first tokens of both predict one: losses of ln 2 and ln 8 are a mean of ln 4, packed
// ones of ln 2 and ln 32 of ln 8.
std::vector<PositionDrift> fourPositions() {
  return {at(0, 0, 1, 0.5, true, std::log(2.0), std::log(2.0)), at(0, 1, 4, 0.1, true),
          at(1, 0, 3, 0.6, false, std::log(8.0), std::log(32.0)), at(1, 1, 4, 0, true)};
}

TEST(Drift, SumsOfPositions) {
  const std::vector<PositionDrift> positions = fourPositions();
  const DriftSummary sum = summaryOf(positions);
  EXPECT_EQ(sum.positions, 4);
  EXPECT_EQ(sum.largestErrors, 3);     // (1 + 4 + 3 + 4) / 4
  EXPECT_EQ(sum.meanError, 0.75);      // a quarter of it
  EXPECT_EQ(sum.error, &positions[1]); // the first of both with 4
  EXPECT_NEAR(sum.meanKl, 0.3, 1e-15); // 1.2 / 4
  EXPECT_EQ(sum.kl, &positions[2]);
  EXPECT_EQ(sum.sameFirst, 3);
  EXPECT_EQ(sum.firstShare(), 0.75);
  EXPECT_EQ(sum.predicted, 2);
  EXPECT_NEAR(sum.full, 4, 1e-12);
  EXPECT_NEAR(sum.packed, 8, 1e-12);
}

TEST(Drift, PositionsFallIntoBinsThatDouble) {
  std::vector<PositionDrift> positions;
  for (const int64_t position : {0, 1, 2, 3, 4, 7, 8, 200})
    positions.push_back(at(0, position, 1, 1, true));
  std::vector<std::pair<int64_t, size_t>> sizes;
  for (const DriftBin &bin : binsOf(positions))
    sizes.emplace_back(bin.most, bin.positions.size());
  using Pair = std::pair<int64_t, size_t>;
  EXPECT_THAT(sizes, ElementsAre(Pair(1, 1), Pair(2, 1), Pair(4, 2), Pair(8, 2), Pair(16, 1), Pair(256, 1)));
}

DriftReport report() {
  DriftReport out;
  out.model = "tiny";
  out.hardware = out.device = "host";
  out.packed = {"q4", 9 << 10, "f32"};
  out.full = {"bf16", 32 << 10, "f32"};
  out.prompts = 2;
  out.positions = fourPositions();
  return out;
}

TEST(DriftReport, SaysWhatAndWhere) {
  EXPECT_EQ(report().text(/*each=*/false), "model            tiny on host\n"
                                           "device           host\n"
                                           "packed           weights q4, 9.00 KiB; KV f32\n"
                                           "full precision   weights bf16, 32.0 KiB; KV f32\n"
                                           "positions        4 of 2 prompts\n"
                                           "logit error      mean 0.75, largest 4 (prompt 0, position 1, token 7)\n"
                                           "KL               mean 0.3 nats, largest 0.6 (prompt 1, position 0)\n"
                                           "first token      the same at 75.00% of positions (3 of 4)\n"
                                           "perplexity       8 packed, 4 in full precision: 2.0000 x\n");
  const std::string each = report().text(/*each=*/true);
  EXPECT_THAT(each, HasSubstr("prompt  position  logit error: mean  largest  of token   KL  first token\n"));
  EXPECT_THAT(each, HasSubstr("1              0               0.75        3         7  0.6        other\n"));
}

TEST(DriftReport, JsonHasTheSameByName) {
  const auto json = nlohmann::json::parse(report().json(/*each=*/true));
  EXPECT_EQ(json["packed"], nlohmann::json::parse(R"({"weights": "q4", "weight_bytes": 9216, "kv_dtype": "f32"})"));
  EXPECT_EQ(json["full_precision"]["weights"], "bf16");
  EXPECT_EQ(json["positions"], 4);
  EXPECT_EQ(json["logit_error"],
            nlohmann::json::parse(R"({"mean": 0.75, "largest": 4.0, "prompt": 0, "position": 1, "token": 7})"));
  EXPECT_EQ(json["kl"]["position"], 0);
  EXPECT_EQ(json["first_token"], nlohmann::json::parse(R"({"same": 3, "share": 0.75})"));
  EXPECT_EQ(json["perplexity"]["tokens"], 2);
  ASSERT_EQ(json["each"].size(), 4u);
  EXPECT_EQ(json["each"][2]["same_first_token"], false);
  EXPECT_FALSE(json["each"][1].contains("loss")); // a prompt's last
  EXPECT_FALSE(nlohmann::json::parse(report().json(/*each=*/false)).contains("each"));
}

TEST(DriftReport, ThePictureIsOverPositions) {
  const std::string svg = report().svg();
  EXPECT_THAT(svg, HasSubstr(">drift of tiny: q4 against bf16<"));
  for (const char *title : {">error of a logit<", ">KL, nats<", ">the same first token, % of positions<"})
    EXPECT_THAT(svg, HasSubstr(title));
  EXPECT_THAT(svg, HasSubstr("<title>largest at 1: 2<")); // positions 0 of both prompts: 1 and 3
  EXPECT_THAT(svg, HasSubstr("<title>packed at 1: 8<"));
  EXPECT_EQ(count(svg, "<title>packed at "), 1U); // the last tokens predict none
}

} // namespace
} // namespace headrace::tools
