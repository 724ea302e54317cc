// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include <gtest/gtest.h>

#include "runtime/core/BindStep.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::core {
namespace {

TEST(RotaryFrequencies, ArePowersOfTheta) {
  // theta^(-2j/8) for theta 10000: 1, 0.1, 0.01, 0.001.
  const std::vector<float> f = inverseFrequencies({.enabled = true, .theta = 10000}, 8);
  ASSERT_EQ(f.size(), 4u);
  EXPECT_FLOAT_EQ(f[0], 1.0f);
  EXPECT_FLOAT_EQ(f[1], 0.1f);
  EXPECT_FLOAT_EQ(f[2], 0.01f);
  EXPECT_FLOAT_EQ(f[3], 0.001f);
}

TEST(RotaryFrequencies, LinearScalingDividesAll) {
  const std::vector<float> f =
      inverseFrequencies({.enabled = true, .theta = 10000, .scaling = model::RopeScalingKind::Linear, .factor = 4}, 8);
  EXPECT_FLOAT_EQ(f[0], 0.25f);
  EXPECT_FLOAT_EQ(f[3], 0.00025f);
}

TEST(RotaryFrequencies, Llama3KeepsShortWavesDividesLongOnesAndBlendsBetween) {
  // theta 16, 8 dimensions: frequencies 1, 1/2, 1/4, 1/8; wavelengths 2 pi times 1, 2, 4, 8
  // = 6.28, 12.57, 25.13, 50.27. Original length 32: kept below 32 / 4 = 8, divided by 8 above 32 / 1 = 32, blended
  // between.
  const model::Rope rope{.enabled = true,
                         .theta = 16,
                         .scaling = model::RopeScalingKind::Llama3,
                         .factor = 8,
                         .lowFreqFactor = 1,
                         .highFreqFactor = 4,
                         .originalMaxPositions = 32};
  const std::vector<float> f = inverseFrequencies(rope, 8);
  EXPECT_FLOAT_EQ(f[0], 1.0f);
  EXPECT_FLOAT_EQ(f[3], 0.125f / 8);
  // smooth = (32 / wavelength - 1) / (4 - 1); f = (1 - smooth) f / 8 + smooth f
  for (size_t j : {1u, 2u}) {
    const double plain = std::pow(2.0, -static_cast<double>(j)), wavelength = 2 * M_PI / plain;
    const double smooth = (32 / wavelength - 1) / 3;
    EXPECT_NEAR(f[j], (1 - smooth) * plain / 8 + smooth * plain, 1e-7);
  }
}

} // namespace
} // namespace headrace::core
