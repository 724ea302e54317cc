// SPDX-License-Identifier: Apache-2.0
//
// The twin: a packed run is, bit for bit, the run of an F32 checkpoint that holds the unpacked values, wherever weights
// live. No golden model has sizes that groups divide, so each stands here with its sizes rounded up and weights from a
// seed; where its heads' sizes allow, the checkpoint itself with the output projection packed.
#include "tests/golden/GoldenFixture.h"
#include "tests/support/LongRun.h"
#include "tests/support/PackedSpec.h"
#include "tests/support/TwinWeights.h"

namespace headrace::golden {
namespace {

using model::UnitRole;

constexpr int64_t kSmallest = 32; // group

struct Case {
  std::string name;
  std::function<void(RunSetup &)> change;
};

// Nothing away, every layer, every third, units in a ring, and what policy joint takes of three quarters of the memory
// of weights.
std::vector<Case> cases(const model::ModelSpec &spec) {
  const auto interval = [](int64_t i, model::StartRule rule) {
    return [i, rule](RunSetup &setup) {
      setup.policy = {};
      setup.policy.interval = i;
      setup.policy.startRule = rule;
    };
  };
  std::vector<Case> out = {{"nothing away", [](RunSetup &) {}},
                           {"every layer", interval(1, model::StartRule::Eager)},
                           {"every layer, paper", interval(1, model::StartRule::Paper)}};
  if (spec.layers >= 3)
    out.push_back({"every third layer", interval(3, model::StartRule::Eager)});
  out.push_back({"units in a ring", [spec](RunSetup &setup) {
                   const model::WeightLayout layout = model::layoutWeights(setup.spec);
                   std::vector<int32_t> units;
                   uint64_t largest = 0;
                   for (int32_t unit = 1; unit < layout.headUnit(); unit += unit % 3 == 0 ? 2 : 1) {
                     units.push_back(unit);
                     largest = std::max(largest, layout.units[static_cast<size_t>(unit)].bytes);
                   }
                   setup.placement = compiler::placementOfUnits(units, largest * 3 / 2 / 256 * 256);
                 }});
  out.push_back({"three mini-batches", [](RunSetup &setup) {
                   setup.prompts.resize(3);
                   setup.miniBatches = 3;
                   setup.policy = {};
                   setup.policy.interval = 1;
                 }});
  return out;
}

class Packed : public GoldenFixture {
protected:
  void SetUp() override {
    GoldenFixture::SetUp();
    setup_.maxNewTokens = 5;
    if (setup_.prompts.back().size() > 100) // attention's splits are no matter of weights
      setup_.prompts.pop_back();
  }

  // Both runs of every case, or without HEADRACE_LONG of the first, of the one whose bytes are counted and of one in
  // turn; `weights` are the packed model's.
  void expectTwins(const RunSetup &base, const std::shared_ptr<const model::WeightSource> &weights) {
    RunSetup ofPacked = base, ofTwin = base;
    ofPacked.weights = weights;
    ofTwin.spec = model::twinOf(base.spec);
    ofTwin.weights = std::make_shared<model::TwinWeights>(base.spec, weights);
    std::optional<RunResult> resident;
    const std::vector<Case> all = cases(base.spec);
    for (size_t i = 0; i < all.size(); ++i) {
      const Case &c = all[i];
      const bool bytes = c.name == "every layer, paper";
      if (!longRun() && i > 0 && !bytes && i != 1 + turn_ % (all.size() - 1))
        continue;
      SCOPED_TRACE(c.name);
      RunSetup a = ofPacked, b = ofTwin;
      c.change(a);
      c.change(b);
      const absl::StatusOr<RunResult> one = run(a), other = run(b);
      ASSERT_TRUE(one.ok()) << one.status();
      ASSERT_TRUE(other.ok()) << other.status();
      EXPECT_EQ(one->offloadedLayers, other->offloadedLayers);
      EXPECT_EQ(one->generated.tokens, other->generated.tokens);
      EXPECT_EQ(one->tokensInFlight, other->generated.tokens);
      EXPECT_TRUE(one->generated.logits == other->generated.logits);
      if (!resident)
        resident = *one;
      if (bytes)
        expectBytes(base.spec, *resident, *one);
    }
    ++turn_;
    expectJoint(ofPacked, *resident);
  }

  // Each iteration brings every layer's bytes, and nothing else is brought for it.
  static void expectBytes(const model::ModelSpec &spec, const RunResult &resident, const RunResult &away) {
    uint64_t layers = 0;
    for (int64_t layer = 0; layer < spec.layers; ++layer)
      layers += model::layoutWeights(spec).layerBytes(layer);
    ASSERT_EQ(away.buckets, resident.buckets);
    EXPECT_EQ(away.generated.counters.h2dBytes - resident.generated.counters.h2dBytes,
              away.generated.counters.launches * layers);
    EXPECT_EQ(away.generated.counters.hostBytes, resident.generated.counters.hostBytes + layers);
  }

  // What joint chooses for the packed model.
  static void expectJoint(RunSetup setup, const RunResult &resident) {
    SCOPED_TRACE("joint");
    uint64_t layers = 0;
    for (int64_t layer = 0; layer < setup.spec.layers; ++layer)
      layers += model::layoutWeights(setup.spec).layerBytes(layer);
    setup.policy = {};
    setup.policy.name = "joint";
    setup.deviceMemory = resident.generated.counters.peakDeviceBytes - layers / 4;
    const absl::StatusOr<RunResult> joint = run(setup);
    ASSERT_TRUE(joint.ok()) << joint.status();
    EXPECT_LE(joint->generated.counters.peakDeviceBytes, setup.deviceMemory);
    EXPECT_GT(joint->generated.counters.hostBytes, resident.generated.counters.hostBytes);
    EXPECT_EQ(joint->generated.tokens, resident.generated.tokens);
    EXPECT_TRUE(joint->generated.logits == resident.generated.logits);
  }

  size_t turn_ = GetParam().size();
};

TEST_P(Packed, RunsAreTheirTwinsBitForBit) {
  const model::ModelSpec spec = model::roundedUp(setup_.spec);
  for (const char *text : {"q8:32", "q4:32", "qkv=q4:32,down=q8:32"}) {
    if (spec.layers > 2 && std::string_view(text).starts_with("qkv")) // as a model of two layers shows
      continue;
    SCOPED_TRACE(text);
    RunSetup setup = setup_;
    setup.spec = model::packedSpec(spec, text);
    expectTwins(setup, model::syntheticWeights(11));
  }
}

// Their own weights, where a head's size allows it; else they are refused.
TEST_P(Packed, CheckpointsAreTheirTwinsBitForBit) {
  if (setup_.spec.qRows() % kSmallest != 0) {
    model::ModelSpec refused = setup_.spec;
    std::string expected;
    refused.encodings = model::weightEncodingsFromText("out=q4:32", refused, expected).value_or(refused.encodings);
    EXPECT_FALSE(expected.empty() && model::validate(refused, "model").ok());
    return;
  }
  RunSetup setup = setup_;
  setup.spec = model::packedSpec(setup.spec, "out=q4:32");
  absl::StatusOr<std::unique_ptr<model::WeightSource>> checkpoint =
      model::openCheckpoint(setup.checkpoint, model::layoutWeights(setup.spec));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  expectTwins(setup, *std::move(checkpoint));
}

// A twin is not any other run: one code of one weight shows.
TEST_P(Packed, OneCodeShows) {
  const model::ModelSpec spec = model::roundedUp(setup_.spec);
  RunSetup setup = setup_;
  setup.spec = model::packedSpec(spec, "q4:32");
  setup.weights = model::syntheticWeights(11);
  const absl::StatusOr<RunResult> right = run(setup);
  ASSERT_TRUE(right.ok()) << right.status();
  setup.changeUnit = [](const model::Unit &unit, model::MatrixOrder, absl::Span<std::byte> bytes) {
    if (unit.role == UnitRole::Up && unit.layer == 1)
      bytes[unit.find(model::TensorRole::Matrix)->offset + 64] ^= std::byte{8}; // behind 16 scales and minima
  };
  const absl::StatusOr<RunResult> wrong = run(setup);
  ASSERT_TRUE(wrong.ok()) << wrong.status();
  EXPECT_FALSE(right->generated.logits == wrong->generated.logits);
}

INSTANTIATE_TEST_SUITE_P(Models, Packed, testing::ValuesIn(allModels()), testName);

} // namespace
} // namespace headrace::golden
