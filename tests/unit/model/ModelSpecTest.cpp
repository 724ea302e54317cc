// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/ModelSpec.h"

#include <functional>
#include <limits>

#include "tests/support/TestFiles.h"

namespace headrace::model {
namespace {

TEST(ModelSpec, NamesRoundTrip) {
  for (DType type : {DType::F32, DType::F16, DType::BF16})
    EXPECT_EQ(dtypeFromName(dtypeName(type)), type);
  for (const FamilyTraits &traits : kFamilies)
    EXPECT_EQ(familyFromName(familyName(traits.family)), traits.family);
  EXPECT_EQ(kFamilyNames, "opt, llama, qwen2, mistral or qwen3");
  EXPECT_EQ(kFamilyNamesQuoted, "\"opt\", \"llama\", \"qwen2\", \"mistral\" or \"qwen3\"");
  for (NormKind norm : {NormKind::LayerNorm, NormKind::RmsNorm})
    EXPECT_EQ(normFromName(normName(norm)), norm);
  for (Activation activation : {Activation::Relu, Activation::Gelu, Activation::GeluTanh, Activation::SiluGate})
    EXPECT_EQ(activationFromName(activationName(activation)), activation);
  for (RopeScalingKind kind : {RopeScalingKind::None, RopeScalingKind::Linear, RopeScalingKind::Llama3})
    EXPECT_EQ(ropeScalingFromName(ropeScalingName(kind)), kind);
  EXPECT_EQ(dtypeFromName("f64"), std::nullopt);
  EXPECT_EQ(familyFromName("gpt2"), std::nullopt);
}

TEST(ModelSpec, DerivesRows) {
  const ModelSpec llama = tinyLlama(); // 3 query heads, 1 key/value head of 4; 20 wide MLP with a gate
  EXPECT_EQ(llama.qRows(), 12);
  EXPECT_EQ(llama.kvRows(), 4);
  EXPECT_EQ(llama.qkvRows(), 12 + 2 * 4);
  EXPECT_EQ(llama.upRows(), 40);
  EXPECT_EQ(tinyOpt().upRows(), 20);
}

TEST(Validate, AcceptsTheTinyModels) {
  EXPECT_TRUE(validate(tinyLlama(), "x").ok());
  EXPECT_TRUE(validate(tinyOpt(), "x").ok());
}

struct Refusal {
  std::function<void(ModelSpec &)> change;
  const char *message;
};

TEST(Validate, RefusesEachImpossibleValueByKey) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Refusal refusals[] = {
      {[](ModelSpec &s) { s.layers = 0; }, "f: layers = 0: expected an integer from 1 to 2000"},
      {[](ModelSpec &s) { s.layers = 2001; }, "f: layers = 2001: expected an integer from 1 to 2000"},
      {[](ModelSpec &s) { s.hidden = -1; }, "f: hidden = -1: expected an integer from 1 to 2147483647"},
      {[](ModelSpec &s) { s.heads = 0; }, "f: heads = 0: expected an integer from 1 to 2147483647"},
      {[](ModelSpec &s) { s.kvHeads = 0; }, "f: kv_heads = 0: expected an integer from 1 to 2147483647"},
      {[](ModelSpec &s) { s.headDim = 0; }, "f: head_dim = 0: expected an integer from 1 to 2147483647"},
      {[](ModelSpec &s) { s.intermediate = 0; }, "f: intermediate = 0: expected an integer from 1 to 2147483647"},
      {[](ModelSpec &s) { s.vocab = int64_t{1} << 31; },
       "f: vocab = 2147483648: expected an integer from 1 to 2147483647"},
      {[](ModelSpec &s) { s.maxPositions = 0; }, "f: max_positions = 0: expected an integer from 1 to 2147483647"},
      {[](ModelSpec &s) { s.kvHeads = 2; }, "f: kv_heads = 2: expected a divisor of heads = 3"},
      {[](ModelSpec &s) { s.headDim = 1 << 30; }, "f: heads x head_dim = 3221225472: expected at most 715827882"},
      {[](ModelSpec &s) { s.intermediate = 1 << 30; },
       "f: intermediate = 1073741824: expected at most 1073741823 with a gate"},
      {[](ModelSpec &s) { s.normEps = 0; }, "f: norm_eps = 0: expected a number above 0 and below 1"},
      {[=](ModelSpec &s) { s.normEps = nan; }, "f: norm_eps = nan: expected a number above 0 and below 1"},
      {[](ModelSpec &s) { s.activation = Activation::Relu; },
       "f: activation = relu: expected silu_gate in family llama"},
      {[](ModelSpec &s) { s.family = Family::Opt; },
       "f: activation = silu_gate: expected relu, gelu or gelu_tanh in family opt"},
      {[](ModelSpec &s) { s.learnedPositions = true; },
       "f: learned_positions = true: expected false in a model with rotary embedding"},
      {[](ModelSpec &s) { s.positionOffset = 2; },
       "f: position_offset = 2: expected 0 in a model without learned positions"},
      {[](ModelSpec &s) { s.positionOffset = -1; },
       "f: position_offset = -1: expected an integer from 0 to 2147483583"},
      {[](ModelSpec &s) { s.headDim = 5; },
       "f: head_dim = 5: expected an even number: rotary embedding turns pairs of elements"},
      {[](ModelSpec &s) { s.rope.theta = 0; }, "f: rope_theta = 0: expected a positive finite number"},
      {[](ModelSpec &s) {
         s.rope.scaling = RopeScalingKind::Linear;
         s.rope.factor = 0.5;
       },
       "f: rope_scaling.factor = 0.5: expected a finite number of at least 1"},
      {[](ModelSpec &s) {
         s.rope.scaling = RopeScalingKind::Llama3;
         s.rope.lowFreqFactor = 0;
       },
       "f: rope_scaling.low_freq_factor = 0: expected a positive finite number"},
      {[](ModelSpec &s) {
         s.rope.scaling = RopeScalingKind::Llama3;
         s.rope.highFreqFactor = 1;
       },
       "f: rope_scaling.high_freq_factor = 1: expected a finite number above low_freq_factor = 1"},
      {[](ModelSpec &s) {
         s.rope.scaling = RopeScalingKind::Llama3;
         s.rope.originalMaxPositions = 0;
       },
       "f: rope_scaling.original_max_positions = 0: expected an integer from 1 to 2147483647"},
  };
  for (const Refusal &refusal : refusals) {
    ModelSpec spec = tinyLlama();
    refusal.change(spec);
    EXPECT_REFUSED(validate(spec, "f"), absl::StatusCode::kInvalidArgument, refusal.message);
  }
}

TEST(Validate, RefusesProductsThatWouldOverflow) {
  ModelSpec spec = tinyLlama();
  spec.vocab = kMaxDimension;
  spec.hidden = kMaxDimension; // 2^31 * 2^31 * 4 bytes * 2 tables: 2^65
  EXPECT_REFUSED(
      validate(spec, "f"), absl::StatusCode::kInvalidArgument,
      "f: layers = 2, hidden = 2147483647, intermediate = 20, vocab = 2147483647: expected weights of at most "
      "9007199254740992 bytes in all");
}

TEST(Validate, AllowsHeadsThatDoNotSpanTheWidth) {
  ModelSpec spec = tinyLlama();
  spec.headDim = 6; // 3 * 6 = 18, hidden is 12
  EXPECT_TRUE(validate(spec, "f").ok());
}

} // namespace
} // namespace headrace::model
