// SPDX-License-Identifier: Apache-2.0
//
// Packed KV caches. The twin: a run whose caches are packed is, bit for bit, a run whose rows of F32 were quantised and
// unpacked again as they were appended; and so is one whose sequences are preempted. Where caches are does not matter
// (tests/choices). Of models whose heads no group divides the sizes are rounded up, with weights from a seed.
#include "kernels/Kernels.h"
#include "runtime/model/KvEncoding.h"
#include "tests/golden/GoldenFixture.h"
#include "tests/golden/SplitCase.h"

namespace headrace::golden {
namespace {

using model::Encoding;

constexpr int64_t kBlockTokens = 4, kNewTokens = 12;
constexpr int64_t kSmallest = 32; // group

// ---- the twin's kernels

// Rows of k and v as the op has appended them: to codes and back, group by group.
template <kernels::Op kOp, typename Args, int kBits> void packAndUnpack(const void *opaque) {
  const auto &args = *static_cast<const Args *>(opaque);
  kernels::hostKernel(kOp)(opaque);
  args.results([&](const void *base, int64_t first, int64_t count, kernels::Elem elem, int64_t, int64_t) {
    if (base != args.kv)
      return;
    ASSERT_EQ(elem, kernels::Elem::F32);
    const auto group = static_cast<size_t>(model::kvEncodingFor(Encoding::groups(kBits), count)->group);
    float *const row = static_cast<float *>(args.kv) + first;
    for (size_t at = 0; at < static_cast<size_t>(count); at += group) {
      uint8_t codes[model::kLargestGroup];
      const auto scale = model::quantiseGroup({row + at, group}, kBits, codes);
      ASSERT_TRUE(scale.has_value());
      for (size_t i = 0; i < group; ++i)
        row[at + i] = model::unpackedValue(codes[i], *scale);
    }
  });
}
template <int kBits> kernels::HostKernel twinKernel(kernels::Op op) {
  using kernels::Op;
  if (op == Op::RopeAppend)
    return kernels::wholeKernel<packAndUnpack<Op::RopeAppend, kernels::RopeAppendArgs, kBits>>();
  if (op == Op::RebuildKv)
    return kernels::wholeKernel<packAndUnpack<Op::RebuildKv, kernels::RebuildKvArgs, kBits>>();
  return kernels::hostKernel(op);
}

class PackedKv : public GoldenFixture {
protected:
  void SetUp() override {
    GoldenFixture::SetUp();
    setup_.maxNewTokens = kNewTokens;
    setup_.blockTokens = kBlockTokens;
    if (setup_.prompts.back().size() > 100)
      setup_.prompts.pop_back();
    if (setup_.spec.headDim % kSmallest == 0)
      return;
    setup_.spec.headDim = (setup_.spec.headDim + kSmallest - 1) / kSmallest * kSmallest;
    setup_.weights = model::syntheticWeights(11);
  }
  RunSetup packed(int bits) const {
    RunSetup setup = setup_;
    setup.kvEncoding = Encoding::groups(bits);
    return setup;
  }
  int64_t context() const {
    size_t longest = 0;
    for (const std::vector<int32_t> &prompt : setup_.prompts)
      longest = std::max(longest, prompt.size());
    return static_cast<int64_t>(longest) + setup_.maxNewTokens;
  }
};

TEST_P(PackedKv, RunsAreTheirTwinsBitForBit) {
  std::vector<std::vector<float>> before;
  for (const int bits : {8, 4}) {
    SCOPED_TRACE(bits);
    RunSetup twin = setup_;
    twin.kernelOf = bits == 8 ? twinKernel<8> : twinKernel<4>;
    const absl::StatusOr<RunResult> one = run(packed(bits)), other = run(twin);
    ASSERT_TRUE(one.ok()) << one.status();
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_EQ(one->generated.tokens, other->generated.tokens);
    EXPECT_EQ(one->tokensInFlight, other->generated.tokens);
    EXPECT_TRUE(one->generated.logits == other->generated.logits);
    EXPECT_FALSE(one->generated.logits == before); // which encoding it is shows
    before = one->generated.logits;
    // Activations in half of the blocks: what is rebuilt is quantised, too.
    RunSetup acts = packed(bits), actsTwin = twin;
    acts.policy.actRatio = actsTwin.policy.actRatio = model::ActRatio{1, 2};
    const absl::StatusOr<RunResult> oneOfActs = run(acts), otherOfActs = run(actsTwin);
    ASSERT_TRUE(oneOfActs.ok()) << oneOfActs.status();
    ASSERT_TRUE(otherOfActs.ok()) << otherOfActs.status();
    EXPECT_TRUE(oneOfActs->generated.logits == otherOfActs->generated.logits);
    EXPECT_TRUE(oneOfActs->generated.logits == before);
  }
}

// Too few blocks: sequences are computed anew, or go to swap memory and come back.
TEST_P(PackedKv, RunsAreThemselvesThoughSequencesArePreempted) {
  int64_t all = 0, ofPrompts = 0; // blocks
  for (const std::vector<int32_t> &prompt : setup_.prompts) {
    const auto tokens = static_cast<int64_t>(prompt.size());
    all += (tokens + kNewTokens + kBlockTokens - 1) / kBlockTokens;
    ofPrompts += (tokens + kBlockTokens - 1) / kBlockTokens;
  }
  const absl::StatusOr<RunResult> resident = run(packed(4));
  ASSERT_TRUE(resident.ok()) << resident.status();
  const int64_t one = (context() + kBlockTokens - 1) / kBlockTokens, blocks = std::max(one, ofPrompts + 2);
  for (const bool swapped : {false, true})
    for (const bool split : {false, true}) {
      SCOPED_TRACE(testing::Message() << (swapped ? "swapped" : "recomputed") << (split ? ", split" : ""));
      RunSetup setup = packed(4);
      setup.kvTokens = blocks * kBlockTokens;
      setup.swapBlocks = swapped ? all : 0;
      if (split)
        setup = withCase(setup, {.resident = 4, .mixedTokens = 13, .poison = true}, blocks + 1);
      const absl::StatusOr<RunResult> result = run(setup);
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->generated.tokens, resident->generated.tokens);
      EXPECT_EQ(result->tokensInFlight, resident->generated.tokens);
      EXPECT_TRUE(result->generated.logits == resident->generated.logits);
      if (setup_.prompts.size() > 2 && blocks < all) {
        EXPECT_GT(result->generated.preemptions, 0u);
        EXPECT_EQ(result->generated.swapsOut > 0, swapped);
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Models, PackedKv, testing::ValuesIn(allModels()), testName);

} // namespace
} // namespace headrace::golden
