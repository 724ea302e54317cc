// SPDX-License-Identifier: Apache-2.0
//
// The golden models on the CUDA device, through the attention kernels of their head sizes and no others. F32
// checkpoints compute in F32 there and must agree as the host does; 16-bit ones keep activations in 16 bits between ops
// (the residual stream stays F32), and must be at least as close to the F32 reference as transformers is in BF16; where
// the reference's tokens hold in the checkpoint's own type, as close as transformers is in that, with the same tokens.
#include "runtime/cuda/CudaDevice.h"
#include "tests/golden/GoldenFixture.h"

namespace headrace::golden {
namespace {

class OnGpu : public GoldenFixture {
protected:
  void SetUp() override {
    GoldenFixture::SetUp();
    setup_.hardware = "h200";
    on(false);
    setup_.lookAt = [this](const core::Device &device) { expectKernels(device); };
  }
  // Each graph that was built is compared with its recording, kernels included: these are what its launches run.
  void expectKernels(const core::Device &device) const {
    const absl::StatusOr<cuda::GraphCosts> costs = cuda::graphCosts(device);
    ASSERT_TRUE(costs.ok()) << costs.status();
    const std::set<std::string> wanted = attentionKernels(reference_);
    EXPECT_EQ(ofAttention(costs->kernels), setup_.mixedTokens == 0 ? wanted : withLargeTiles(wanted));
  }
  // Every graph is read back and compared with its recording as well.
  void on(bool capture) {
    setup_.makeDevice = [capture] { return cuda::makeCudaDevice({.capture = capture, .compare = true}); };
  }
  // Nothing offloaded, or weights at an interval.
  void offload(int64_t interval) {
    setup_.policy = residentPolicy();
    if (interval > 0) {
      setup_.policy.none = false;
      setup_.policy.interval = interval;
    }
  }
  // By what the type lets be expected; the largest difference.
  double expectReferences(const RunResult &result) {
    const Comparison comparison = compare(reference_, result.generated);
    const bool exact = setup_.spec.dtype == model::DType::F32, holds = exact || reference_.ownTypeBound > 0;
    EXPECT_TRUE(!holds || comparison.tokensEqual) << comparison.firstDifference;
    EXPECT_LE(comparison.largestDifference, exact   ? reference_.tolerance
                                            : holds ? reference_.ownTypeBound
                                                    : reference_.bf16Bound);
    EXPECT_EQ(result.tokensInFlight, holds ? reference_.tokens : result.generated.tokens);
    return comparison.largestDifference;
  }
};

class GpuGolden : public OnGpu {};
TEST_P(GpuGolden, LogitsAreTransformers) {
  const absl::StatusOr<RunResult> result = run(setup_);
  ASSERT_TRUE(result.ok()) << result.status();
  RecordProperty("largest_difference", std::to_string(expectReferences(*result)));
}
INSTANTIATE_TEST_SUITE_P(Models, GpuGolden, testing::ValuesIn(allModels()), testName);

class GpuGoldenLargeTiles : public OnGpu {};
TEST_P(GpuGoldenLargeTiles, LogitsAreTransformers) {
  widenToLargeTiles();
  const absl::StatusOr<RunResult> result = run(setup_);
  ASSERT_TRUE(result.ok()) << result.status();
  expectReferences(*result);
}
INSTANTIATE_TEST_SUITE_P(Models, GpuGoldenLargeTiles, testing::ValuesIn(largeTileModels()), testName);

// Where weights live, and which builder made the graphs, does not change a bit: nothing offloaded, every layer, every
// second one, one alone. The host device's tests go through all intervals between. With every layer away iterations
// that decode may stay in the variant for prompts, whose attention kernel has bits of its own (GoldenRun.h).
class GpuPlacement : public OnGpu {};
TEST_P(GpuPlacement, LogitsAreBitIdenticalToTheResidentRun) {
  setup_.maxNewTokens = 6;
  const absl::StatusOr<RunResult> resident = run(setup_);
  ASSERT_TRUE(resident.ok()) << resident.status();
  for (const bool capture : {false, true})
    for (const model::StartRule rule : {model::StartRule::Paper, model::StartRule::Eager})
      for (const int64_t interval : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{setup_.spec.layers}}) {
        SCOPED_TRACE(testing::Message() << (capture ? "capture, " : "explicit, ") << model::startRuleName(rule)
                                        << ", interval " << interval);
        on(capture);
        offload(interval);
        setup_.policy.startRule = rule;
        const absl::StatusOr<RunResult> result = run(setup_);
        ASSERT_TRUE(result.ok()) << result.status();
        EXPECT_EQ(result->generated.tokens, resident->generated.tokens);
        EXPECT_TRUE(expectLogitsOf(*resident, *result) || interval == 1);
        EXPECT_EQ(result->tokensInFlight, resident->tokensInFlight);
      }
}
INSTANTIATE_TEST_SUITE_P(Models, GpuPlacement, testing::ValuesIn(allModels()), testName);

// Keys and values from activations, which are on the device or the host: products of other numbers of rows than when
// the tokens were new, so as near the reference as those that are cached, not bit for bit those.
class GpuActBlocks : public OnGpu {};
TEST_P(GpuActBlocks, LogitsAreTransformers) {
  setup_.blockTokens = 4;
  for (const model::ActRatio &share : {model::ActRatio{1, 2}, model::ActRatio{1, 1}})
    for (const model::ActHome home : {model::ActHome::Device, model::ActHome::Host})
      for (const int64_t interval : {0, 1}) {
        SCOPED_TRACE(testing::Message() << "share " << model::actRatioText(share) << " on the "
                                        << model::actHomeName(home) << ", interval " << interval);
        offload(interval);
        setup_.policy.actRatio = share;
        setup_.policy.actHome = home;
        const absl::StatusOr<RunResult> result = run(setup_);
        ASSERT_TRUE(result.ok()) << result.status();
        expectReferences(*result);
      }
}
INSTANTIATE_TEST_SUITE_P(Models, GpuActBlocks, testing::ValuesIn(allModels()), testName);

} // namespace
} // namespace headrace::golden
