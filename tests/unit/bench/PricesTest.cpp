// SPDX-License-Identifier: Apache-2.0
//
// h200.toml against what one H200 took: single steps, half of which its figures of classes were fitted to, whole
// iterations, and long prompts added up by hand.
#include "bench/prices/Fit.h"
#include "bench/prices/PredictedCells.h"

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/job/JobFile.h"
#include "tests/support/SourceDir.h"

namespace headrace::bench {
namespace {

constexpr OpClass kClasses[] = {OpClass::Product, OpClass::DecodeAttention, OpClass::PrefillAttention, OpClass::Row};

class Prices : public testing::Test {
protected:
  static void SetUpTestSuite() {
    measured = new Measured(readMeasured(sourceDir() + "/bench/results/h200"));
    figures = new std::vector<KernelFigure>(kernelFigures(*measured));
    profile = new model::Hardware(model::openHardware(sourceDir() + "/examples/hardware/h200.toml").value());
    plain = new model::Hardware(*profile);
    plain->classes = {};
  }
  static void TearDownTestSuite() {
    delete measured;
    delete figures;
    delete profile;
    delete plain;
  }
  static const Measured *measured;
  static const std::vector<KernelFigure> *figures;
  static const model::Hardware *profile;
  static model::Hardware *plain; // one efficiency for all ops
};
const Measured *Prices::measured;
const std::vector<KernelFigure> *Prices::figures;
const model::Hardware *Prices::profile;
model::Hardware *Prices::plain;

TEST_F(Prices, TheProfilesFiguresAreThoseFitted) {
  model::OpClasses fitted = fittedClasses(*figures, *plain);
  EXPECT_EQ(fitted.plainAttentionFlopsEfficiency, 0); // not measured
  fitted.plainAttentionFlopsEfficiency = profile->classes.plainAttentionFlopsEfficiency;
  for (const model::ClassKey &key : model::classKeys())
    EXPECT_NEAR(profile->classes.*key.field, fitted.*key.field, 1e-9) << key.key;
}

TEST_F(Prices, HalfOfEachClassIsHeldOut) {
  for (const OpClass of : kClasses) {
    int64_t fitted = 0, heldOut = 0;
    for (const KernelFigure &figure : *figures)
      if (figure.of == of)
        ++(figure.fitted ? fitted : heldOut);
    EXPECT_LE(std::abs(fitted - heldOut), 1) << opClassName(of);
    EXPECT_GE(heldOut, 3) << opClassName(of);
  }
}

TEST_F(Prices, StepsThatAreHeldOutArePricedBetterThanByOneEfficiency) {
  for (const OpClass of : {OpClass::Product, OpClass::DecodeAttention, OpClass::PrefillAttention}) {
    EXPECT_LE(medianError(*figures, of, false, *profile), 0.08) << opClassName(of);
    EXPECT_LT(medianError(*figures, of, false, *profile), medianError(*figures, of, false, *plain)) << opClassName(of);
  }
  // Rows by their sum alone: small steps all take about a launch, and rope_append had twice the price, norms half.
  EXPECT_LE(std::abs(sumError(*figures, OpClass::Row, false, *profile)), 0.2);
  EXPECT_GE(sumError(*figures, OpClass::Row, false, *plain), 0.4);
}

TEST_F(Prices, IterationsThatComputeDecidesAreWithinThreePercent) {
  const auto cells = predictedCells(measured->figures, *profile), before = predictedCells(measured->figures, *plain);
  ASSERT_EQ(cells.size(), 168u);
  EXPECT_EQ(std::count_if(cells.begin(), cells.end(), [](const PredictedCell &cell) { return !cell.byLink; }), 44);
  EXPECT_LE(medianError(cells, false), 0.03);
  EXPECT_GT(medianError(before, false), 0.03);
  // Where the link is the longer, it is what it was.
  for (size_t i = 0; i < cells.size(); ++i)
    if (cells[i].byLink) {
      EXPECT_EQ(cells[i].predicted, before[i].predicted) << cells[i].name;
    }
}

TEST_F(Prices, LongPromptsTakeTheSumOfTheirSteps) {
  const model::ModelSpec spec = shapeOf("llama-3.1-8b");
  for (const int64_t tokens : {16384, 32768, 131072}) {
    const double hand = prefillByHandMs(*measured, tokens);
    EXPECT_NEAR(predictedPrefillMs(spec, tokens, *profile) / hand, 1, 0.1) << tokens;
    EXPECT_LT(predictedPrefillMs(spec, tokens, *plain) / hand, 0.9) << tokens;
  }
}

TEST(TracedSteps, AreThoseMeasuredOfLayersOrOfNone) {
  const std::string svg = "<title>L0 norm: 9 us, from</title> measured (cuda) <title>L0 norm: 5 us, from 1 us\n</title>"
                          "<title>L1 norm: 0.007 ms, from 9 us\n3 MiB over the link</title><title>L1 norm: 0.007 ms, "
                          "from</title><title>norm: 900 ns, from</title>";
  EXPECT_DOUBLE_EQ(tracedUs(svg, "norm", true), 5); // of 5 and 7 the lower
  EXPECT_DOUBLE_EQ(tracedUs(svg, "norm", false), 0.9);
  EXPECT_THROW(tracedUs(svg, "qkv", true), Failure);
  EXPECT_THROW(tracedUs("<title>L0 norm: 9 us, from</title>", "norm", true), Failure);
}

TEST(Middle, IsTheMeanOfTheMiddleTwo) {
  EXPECT_EQ(middle({}), 0);
  EXPECT_EQ(middle({3, 1, 2}), 2);
  EXPECT_EQ(middle({4, 1, 2, 8}), 3);
}

} // namespace
} // namespace headrace::bench
