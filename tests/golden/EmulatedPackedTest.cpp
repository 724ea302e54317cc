// SPDX-License-Identifier: Apache-2.0
//
// Packed weights through the recorded CUDA graphs, the kernels' own source run on the host: a run is, bit for bit, the
// run of a checkpoint of the model's own type that holds the values of the codes, rounded to it, wherever weights live.
// Sizes are rounded up to what groups divide, weights are from a seed.
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
    setup_.prompts.resize(2);
    setup_.maxNewTokens = 3;
  }

  std::set<std::string> ran_; // kernels
  uint64_t order_ = 0;
};

// Both encodings with HEADRACE_LONG, else one of them, another for each model.
TEST_P(EmulatedPacked, RunsAreTheirTwinsBitForBit) {
  const model::ModelSpec spec = model::roundedUp(setup_.spec);
  for (const char *text : {"q8:32", "q4:32"}) {
    if (!longRun() && (text[1] == '8') != (GetParam().size() % 2 == 0))
      continue;
    for (const Case &c : cases()) {
      SCOPED_TRACE(testing::Message() << text << ", " << c.name);
      RunSetup packed = setup_, twin = setup_;
      packed.spec = model::packedSpec(spec, text);
      packed.weights = model::syntheticWeights(11);
      twin.spec = model::twinOf(packed.spec, spec.dtype);
      twin.weights = std::make_shared<model::TwinWeights>(packed.spec, packed.weights);
      c.change(packed);
      c.change(twin);
      ran_.clear();
      const absl::StatusOr<RunResult> one = run(packed);
      ASSERT_TRUE(one.ok()) << one.status();
      EXPECT_EQ(std::count_if(ran_.begin(), ran_.end(), [](const auto &name) { return name.starts_with("unpack_"); }),
                1);
      const absl::StatusOr<RunResult> other = run(twin);
      ASSERT_TRUE(other.ok()) << other.status();
      EXPECT_EQ(one->offloadedLayers, other->offloadedLayers);
      if (one->buckets != other->buckets) // which takes less is the link's matter, and packed weights are less
        continue;
      EXPECT_EQ(one->generated.tokens, other->generated.tokens);
      EXPECT_EQ(one->tokensInFlight, other->generated.tokens);
      EXPECT_TRUE(one->generated.logits == other->generated.logits);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EmulatedPacked, testing::ValuesIn(allModels()), testName);

} // namespace
} // namespace headrace::golden
