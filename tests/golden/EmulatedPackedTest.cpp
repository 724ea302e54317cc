// SPDX-License-Identifier: Apache-2.0
//
// Packed weights through the recorded CUDA graphs, the kernels' own source run on the host. Where all products have
// more rows than the kernel that unpacks on the way takes, a run is, bit for bit, the run of a checkpoint of the
// model's own type that holds the values of the codes, rounded to it, wherever weights live; with a few rows sums have
// another order. Sizes are rounded up to what groups divide, weights are from a seed.
#include "kernels/CudaWorkspace.h"
#include "tests/golden/GoldenFixture.h"
#include "tests/support/LongRun.h"
#include "tests/support/PackedSpec.h"
#include "tests/support/TwinWeights.h"
#include "tests/unit/cuda/EmulatedGraphDevice.h"

namespace headrace::golden {
namespace {

struct Case {
  std::string name;
  std::function<void(RunSetup &)> change;
};

std::vector<Case> cases() {
  return {{"nothing away", [](RunSetup &) {}},
          {"every layer",
           [](RunSetup &setup) {
             setup.policy = {};
             setup.policy.interval = 1;
           }},
          {"units in a ring",
           [](RunSetup &setup) {
             const model::WeightLayout layout = model::layoutWeights(setup.spec);
             std::vector<int32_t> units;
             uint64_t largest = 0;
             for (int32_t unit = 1; unit < layout.headUnit(); unit += unit % 3 == 0 ? 2 : 1) {
               units.push_back(unit);
               largest = std::max(largest, layout.units[static_cast<size_t>(unit)].bytes);
             }
             setup.placement = compiler::placementOfUnits(units, largest * 3 / 2 / 256 * 256);
           }},
          {"activation blocks", [](RunSetup &setup) {
             setup.policy.actRatio = model::ActRatio{1, 2};
           }}};
}

class EmulatedPacked : public GoldenFixture {
protected:
  void SetUp() override {
    GoldenFixture::SetUp();
    setup_.hardware = "h200";
    setup_.makeDevice = [this] { return cuda::makeEmulatedGraphDevice({.order = ++order_, .ran = &ran_}); };
    setup_.spec = model::roundedUp(setup_.spec);
    setup_.maxNewTokens = 2;
  }
  // So many, short ones.
  void makePrompts(size_t count) {
    const std::vector<int32_t> text = setup_.prompts.back();
    setup_.prompts.clear();
    for (size_t i = 0; i < count; ++i) {
      const size_t length = std::min(text.size(), 1 + i % 2);
      setup_.prompts.emplace_back(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(length));
    }
  }
  RunSetup packed(const char *text) const {
    RunSetup setup = setup_;
    setup.spec = model::packedSpec(setup_.spec, text);
    setup.weights = model::syntheticWeights(11);
    return setup;
  }
  RunSetup twin(const RunSetup &packed) const {
    RunSetup setup = packed;
    setup.spec = model::twinOf(packed.spec, setup_.spec.dtype);
    setup.weights = std::make_shared<model::TwinWeights>(packed.spec, packed.weights);
    return setup;
  }
  bool ran(std::string_view kernel) const {
    return std::any_of(ran_.begin(), ran_.end(), [&](const std::string &name) { return name.starts_with(kernel); });
  }

  std::set<std::string> ran_; // kernels
  uint64_t order_ = 0;
};

// Both encodings with HEADRACE_LONG, else one of them, another for each model; and the first case with one more.
std::vector<const char *> encodings(const std::string &model) {
  if (longRun())
    return {"q8:32", "q4:32"};
  return {model.size() % 2 == 0 ? "q8:32" : "q4:32"};
}
std::vector<Case> drawn(const std::string &model) {
  std::vector<Case> all = cases();
  if (longRun())
    return all;
  return {all[0], all[1 + model.size() % 3]};
}

TEST_P(EmulatedPacked, RunsOfManyRowsAreTheirTwinsBitForBit) {
  makePrompts(kernels::CudaWorkspace::kPackedProductRows + 1);
  for (const char *text : encodings(GetParam()))
    for (const Case &c : drawn(GetParam())) {
      SCOPED_TRACE(testing::Message() << text << ", " << c.name);
      RunSetup one = packed(text), other = twin(one);
      c.change(one);
      c.change(other);
      ran_.clear();
      const absl::StatusOr<RunResult> ofPacked = run(one);
      ASSERT_TRUE(ofPacked.ok()) << ofPacked.status();
      EXPECT_TRUE(ran("unpack_"));
      EXPECT_FALSE(ran("linear_packed_"));
      ran_.clear();
      const absl::StatusOr<RunResult> ofTwin = run(other);
      ASSERT_TRUE(ofTwin.ok()) << ofTwin.status();
      EXPECT_FALSE(ran("unpack_"));
      EXPECT_EQ(ofPacked->offloadedLayers, ofTwin->offloadedLayers);
      EXPECT_EQ(ofPacked->generated.tokens, ofTwin->generated.tokens);
      EXPECT_EQ(ofPacked->tokensInFlight, ofTwin->generated.tokens);
      // Which variant waits less for the link may be another one where there is less to bring.
      EXPECT_TRUE(ofPacked->buckets == ofTwin->buckets || c.name == "every layer");
      if (ofPacked->buckets == ofTwin->buckets) {
        EXPECT_TRUE(ofPacked->generated.logits == ofTwin->generated.logits);
      }
    }
}

// Wherever weights live, and near their twins.
TEST_P(EmulatedPacked, AFewRowsAreUnpackedOnTheWay) {
  makePrompts(2);
  for (const char *text : encodings(GetParam())) {
    const RunSetup setup = packed(text);
    std::optional<RunResult> resident;
    for (const Case &c : drawn(GetParam())) {
      SCOPED_TRACE(testing::Message() << text << ", " << c.name);
      RunSetup one = setup;
      c.change(one);
      ran_.clear();
      absl::StatusOr<RunResult> result = run(one);
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(ran("linear_packed_"), setup_.spec.dtype != model::DType::F32);
      if (!resident) {
        resident = *std::move(result);
        continue;
      }
      EXPECT_EQ(result->generated.tokens, resident->generated.tokens);
      if (result->buckets == resident->buckets) {
        EXPECT_TRUE(result->generated.logits == resident->generated.logits);
      }
    }
    const absl::StatusOr<RunResult> ofTwin = run(twin(setup));
    ASSERT_TRUE(ofTwin.ok()) << ofTwin.status();
    EXPECT_EQ(resident->generated.tokens, ofTwin->generated.tokens);
    double largest = 0, logit = 0;
    for (size_t p = 0; p < ofTwin->generated.logits.size(); ++p) {
      largest = std::max(largest, largestDifference(ofTwin->generated.logits[p], resident->generated.logits[p]));
      for (const float value : ofTwin->generated.logits[p])
        logit = std::max(logit, static_cast<double>(std::abs(value)));
    }
    RecordProperty("largest_difference", std::to_string(largest) + " of " + std::to_string(logit));
    // Sums in another order, rounded to the type at each op: a few roundings of the largest logit.
    const double rounding = setup_.spec.dtype == model::DType::F32   ? 0x1p-24
                            : setup_.spec.dtype == model::DType::F16 ? 0x1p-11
                                                                     : 0x1p-8;
    EXPECT_LE(largest, 4 * rounding * logit) << "of " << logit;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EmulatedPacked, testing::ValuesIn(modelsOfEachKernel()), testName);

} // namespace
} // namespace headrace::golden
