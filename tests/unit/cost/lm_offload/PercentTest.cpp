// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/lm_offload/Percent.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace::cost {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string refusedText(const std::string &text) {
  const auto percent = parsePercent(text, "--percent");
  EXPECT_EQ(percent.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(percent.status().message());
}

TEST(Percent, IsSixNumbers) {
  const Percent expected = {55, 45, 0, 100, 100, 0};
  for (const std::string text : {"55 45 0 100 100 0", "55,45,0,100,100,0", "  55, 45, 0.0, 1e2, 100, 0 "}) {
    const auto percent = parsePercent(text, "--percent");
    ASSERT_TRUE(percent.ok()) << percent.status();
    EXPECT_EQ(*percent, expected) << text;
  }
  EXPECT_EQ(percentText(expected), "55 45 0 100 100 0");
  EXPECT_TRUE(parsePercent("33.3 66.7 0 100 0 100", "--percent").ok()); // 33.3 + 66.7 is not 100 to the last bit
}

TEST(Percent, RefusesWhatItIsNot) {
  EXPECT_THAT(refusedText("55 45 0 100 100"), StartsWith("--percent: 5 numbers: expected six numbers"));
  EXPECT_THAT(refusedText(""), StartsWith("--percent: 0 numbers"));
  EXPECT_THAT(refusedText("55 45 0 100 100 0 0"), StartsWith("--percent: 7 numbers"));
  EXPECT_THAT(refusedText("55 45 0 100 100 x"), StartsWith("--percent: \"x\": expected six numbers"));
  EXPECT_THAT(refusedText("55 45% 0 100 100 0"), StartsWith("--percent: \"45%\": expected six numbers"));
  EXPECT_THAT(refusedText("nan 45 0 100 100 0"), StartsWith("--percent: \"nan\": expected six numbers"));
  EXPECT_EQ(refusedText("55 35 0 100 100 0"), "--percent: wg + wc = 90: expected 100; nothing is kept on disk");
  EXPECT_EQ(refusedText("55 45 10 100 100 0"), "--percent: cg + cc = 110: expected 100; nothing is kept on disk");
  EXPECT_EQ(refusedText("-5 105 0 100 100 0"), "--percent: wg = -5: expected 0 to 100");
  EXPECT_EQ(refusedText("105 -5 0 100 100 0"), "--percent: wc = -5: expected 0 to 100");
  EXPECT_EQ(refusedText("55 45 0 100 30 70"), "--percent: hg = 30: expected 0 or 100, hidden states are one buffer");
}

TEST(Percent, PlacesTensorsByTheirMiddles) {
  const std::vector<int64_t> four = {10, 10, 10, 10}; // middles at 12.5, 37.5, 62.5, 87.5%
  EXPECT_EQ(elementsByMidpoints(four, 0), 0);
  EXPECT_EQ(elementsByMidpoints(four, 12), 0);
  EXPECT_EQ(elementsByMidpoints(four, 12.5), 10); // 87.5 >= 100 - 12.5
  EXPECT_EQ(elementsByMidpoints(four, 50), 20);
  EXPECT_EQ(elementsByMidpoints(four, 100), 40);
  EXPECT_EQ(elementsByMidpoints(std::vector<int64_t>{10, 80, 10}, 50), 90); // middles at 5, 50, 95%
}

// LM-Offload's Table 3: what its percents are of OPT's and LLaMA's layers. OPT's matrices are 1/12 of the layer each in
// attention and 1/3 each in the MLP; biases and norms move them by less than 0.01.
TEST(Percent, ReachesWhatWholeTensorsMake) {
  model::ModelSpec opt;
  opt.hidden = 7168;
  opt.heads = opt.kvHeads = 56;
  opt.headDim = 128;
  opt.intermediate = 28672;
  opt.norm = model::NormKind::LayerNorm;
  opt.activation = model::Activation::Relu;
  opt.qkvBias = opt.outBias = opt.mlpBias = true;
  for (const auto &[asked, reached] : {std::pair{0, 0.0},
                                       {14, 8.33},
                                       {23, 8.33},
                                       {24, 8.33},
                                       {42, 50.0},
                                       {48, 50.0},
                                       {55, 50.0},
                                       {70, 58.33},
                                       {75, 58.33},
                                       {100, 100.0}})
    EXPECT_NEAR(reachedWeights(opt, asked), reached, 0.01) << asked;
  // Attention 4 x 6656^2, MLP 3 x 6656 x 17920: two of four and one of three matrices at 48%.
  model::ModelSpec llama;
  llama.hidden = 6656;
  llama.heads = llama.kvHeads = 52;
  llama.headDim = 128;
  llama.intermediate = 17920;
  EXPECT_NEAR(reachedWeights(llama, 48), 100 * (2 * 6656 + 17920.0) / (4 * 6656 + 3 * 17920), 0.01);
}

} // namespace
} // namespace headrace::cost
