// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/lm_offload/Midpoints.h"

#include <array>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace headrace::cost {
namespace {

TEST(Midpoints, PlacesTensorsByTheirMiddles) {
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
TEST(Midpoints, ReachesWhatWholeTensorsMake) {
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

// qkv, out, up, down of OPT. Middles at 12.5, 37.5, 62.5, 87.5% of q, k, v, out and 25, 75% of up, down: at wg = 55 v,
// out and down are on the device, and a third of qkv is not half; at 63 k is as well, two thirds.
TEST(Midpoints, AUnitIsWhereHalfOfItOrMoreIs) {
  model::ModelSpec opt;
  opt.hidden = 64;
  opt.heads = opt.kvHeads = 4;
  opt.headDim = 16;
  opt.intermediate = 256;
  opt.activation = model::Activation::Relu;
  using Units = std::array<bool, model::kUnitsPerLayer>;
  for (const auto &[asked, units] : {std::pair{0, Units{false, false, false, false}},
                                     {15, Units{false, true, false, false}},
                                     {30, Units{false, true, false, true}},
                                     {55, Units{false, true, false, true}},
                                     {65, Units{true, true, false, true}},
                                     {80, Units{true, true, true, true}},
                                     {100, Units{true, true, true, true}}})
    EXPECT_EQ(sharesByMidpoints(opt, asked).unitsOnDevice, units) << asked;
}

} // namespace
} // namespace headrace::cost
