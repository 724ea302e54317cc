// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/WeightLayout.h"

#include <set>

#include <gtest/gtest.h>

#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "tests/support/TestFiles.h"

namespace headrace::model {
namespace {

using testing::ElementsAre;

TEST(WeightLayout, CutsALlamaIntoUnits) {
  const WeightLayout layout = layoutWeights(tinyLlama()); // F32, hidden 12, 3 + 1 + 1 heads of 4, MLP 20, vocab 35
  ASSERT_EQ(layout.units.size(), 4u * 2 + 2);
  EXPECT_EQ(layout.embeddingUnit(), 0);
  EXPECT_EQ(layout.headUnit(), 9);
  EXPECT_EQ(layout.layerUnit(1, UnitRole::Up), 7);
  EXPECT_EQ(layout.units[7].name, "layers.1.up");

  const Unit &embedding = layout.units[0];
  ASSERT_EQ(embedding.tensors.size(), 1u);
  EXPECT_EQ(embedding.tensors[0].rows, 35);
  EXPECT_EQ(embedding.tensors[0].paddedRows, 48);
  EXPECT_FALSE(embedding.tensors[0].linearOperand); // not tied to the head
  EXPECT_EQ(embedding.bytes, 2304u);                // 48 * 12 * 4 = 2304 = 9 * 256

  const Unit &qkv = layout.units[1];
  ASSERT_EQ(qkv.tensors.size(), 2u);
  EXPECT_EQ(qkv.tensors[0].role, TensorRole::NormWeight);
  EXPECT_EQ(qkv.tensors[0].dtype, DType::F32);
  EXPECT_EQ(qkv.tensors[0].bytes, 64u); // 12 padded to 16 rows of 4 bytes
  const Tensor &matrix = *qkv.find(TensorRole::Matrix);
  EXPECT_EQ(matrix.offset, 256u);
  EXPECT_EQ(matrix.rows, 20); // 12 + 4 + 4
  EXPECT_EQ(matrix.paddedRows, 32);
  EXPECT_EQ(matrix.cols, 12);
  EXPECT_EQ(matrix.bytes, 1536u); // 32 * 12 * 4
  EXPECT_EQ(qkv.bytes, 1792u);    // 256 + 1536
  EXPECT_TRUE(matrix.linearOperand);
  EXPECT_THAT(matrix.sources,
              ElementsAre("model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight",
                          "model.layers.0.self_attn.v_proj.weight"));
  EXPECT_THAT(matrix.sourceRows, ElementsAre(12, 4, 4));
  EXPECT_EQ(qkv.find(TensorRole::Bias), nullptr);

  EXPECT_THAT(layout.units[3].find(TensorRole::Matrix)->sources,
              ElementsAre("model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight"));
  EXPECT_THAT(layout.units[3].find(TensorRole::NormWeight)->sources,
              ElementsAre("model.layers.0.post_attention_layernorm.weight"));
  const Unit &head = layout.units[9];
  EXPECT_THAT(head.find(TensorRole::NormWeight)->sources, ElementsAre("model.norm.weight"));
  EXPECT_THAT(head.find(TensorRole::Matrix)->sources, ElementsAre("lm_head.weight"));
}

TEST(WeightLayout, NormsOfHeadsLieBehindTheMatrixOfQkv) {
  ModelSpec spec = tinyLlama();
  const uint64_t without = layoutWeights(spec).units[1].bytes;
  spec.family = Family::Qwen3;
  spec.qkNorm = true;
  const WeightLayout layout = layoutWeights(spec);
  const Unit &qkv = layout.units[1];
  const Tensor &norms = *qkv.find(TensorRole::HeadNorms);
  EXPECT_THAT(norms.sources,
              ElementsAre("model.layers.0.self_attn.q_norm.weight", "model.layers.0.self_attn.k_norm.weight"));
  EXPECT_THAT(norms.sourceRows, ElementsAre(4, 4)); // the width of a head
  EXPECT_EQ(norms.dtype, DType::F32);
  EXPECT_EQ(norms.offset, without);
  EXPECT_EQ(qkv.bytes, without + kAlign);
  EXPECT_EQ(parameterCount(layout), parameterCount(layoutWeights(tinyLlama())) + 2u * 8); // two layers
}

TEST(WeightLayout, CutsAnOptIntoUnits) {
  const WeightLayout layout = layoutWeights(tinyOpt());
  const Unit &embedding = layout.units[0];
  EXPECT_TRUE(embedding.find(TensorRole::TokenTable)->linearOperand); // tied: the head multiplies by it
  const Tensor &positions = *embedding.find(TensorRole::PositionTable);
  EXPECT_EQ(positions.rows, 66); // 64 positions + an offset of 2
  EXPECT_FALSE(positions.linearOperand);
  EXPECT_THAT(positions.sources, ElementsAre("model.decoder.embed_positions.weight"));

  const Unit &qkv = layout.units[1];
  EXPECT_THAT(qkv.find(TensorRole::NormBias)->sources, ElementsAre("model.decoder.layers.0.self_attn_layer_norm.bias"));
  EXPECT_THAT(qkv.find(TensorRole::Bias)->sources, ElementsAre("model.decoder.layers.0.self_attn.q_proj.bias",
                                                               "model.decoder.layers.0.self_attn.k_proj.bias",
                                                               "model.decoder.layers.0.self_attn.v_proj.bias"));
  EXPECT_THAT(layout.units[2].find(TensorRole::Matrix)->sources,
              ElementsAre("model.decoder.layers.0.self_attn.out_proj.weight"));
  EXPECT_THAT(layout.units[3].find(TensorRole::Matrix)->sources, ElementsAre("model.decoder.layers.0.fc1.weight"));
  EXPECT_THAT(layout.units[3].find(TensorRole::NormWeight)->sources,
              ElementsAre("model.decoder.layers.0.final_layer_norm.weight"));
  EXPECT_THAT(layout.units[4].find(TensorRole::Bias)->sources, ElementsAre("model.decoder.layers.0.fc2.bias"));
  const Unit &head = layout.units[9];
  EXPECT_EQ(head.find(TensorRole::Matrix), nullptr); // tied
  EXPECT_THAT(head.find(TensorRole::NormBias)->sources, ElementsAre("model.decoder.final_layer_norm.bias"));
}

// Of the matrix's type where the result is an activation, F32 where it goes onto the residual stream.
TEST(WeightLayout, BiasesOfActivationsAreOfTheMatrixsType) {
  ModelSpec spec = tinyOpt();
  spec.dtype = DType::BF16;
  const WeightLayout layout = layoutWeights(spec);
  for (const auto &[unit, dtype] :
       {std::pair(1u, DType::BF16), {2u, DType::F32}, {3u, DType::BF16}, {4u, DType::F32}}) {
    const Tensor &bias = *layout.units[unit].find(TensorRole::Bias);
    EXPECT_EQ(bias.dtype, dtype) << unit;
    EXPECT_EQ(bias.bytes, static_cast<uint64_t>(bias.paddedRows) * dtypeBytes(dtype)) << unit;
  }
}

TEST(WeightLayout, CountsParametersWithoutPadding) {
  // Tiny llama: per layer 20*12 + 12*12 + 40*12 + 12*20 + 2*12 = 1128; 2 layers, 2 * 35*12 + 12: 2256 + 852
  EXPECT_EQ(parameterCount(layoutWeights(tinyLlama())), 3108u);
}

// Any spec the readers could produce, small.
ModelSpec anySpec() {
  const auto size = [](int64_t most) { return *rc::gen::inRange<int64_t>(1, most + 1); };
  const bool opt = *rc::gen::arbitrary<bool>();
  ModelSpec spec = opt ? tinyOpt() : tinyLlama();
  spec.layers = size(5);
  spec.kvHeads = size(4);
  spec.heads = spec.kvHeads * size(4);
  spec.headDim = 2 * size(20);
  spec.hidden = size(100);
  spec.intermediate = size(100);
  spec.vocab = size(300);
  spec.maxPositions = size(300);
  spec.dtype = *rc::gen::element(DType::F32, DType::F16, DType::BF16);
  spec.qkvBias = *rc::gen::arbitrary<bool>();
  spec.outBias = *rc::gen::arbitrary<bool>();
  spec.mlpBias = *rc::gen::arbitrary<bool>();
  spec.tiedEmbeddings = *rc::gen::arbitrary<bool>();
  spec.qkNorm = *rc::gen::arbitrary<bool>();
  RC_PRE(validate(spec, "generated").ok());
  return spec;
}

RC_GTEST_PROP(WeightLayout, KeepsTheInvariantsOfItsHeader, ()) {
  const ModelSpec spec = anySpec();
  const WeightLayout layout = layoutWeights(spec);
  RC_ASSERT(layout.units.size() == static_cast<size_t>(4 * spec.layers + 2));
  std::set<std::string> sources;
  std::set<std::string> names;
  uint64_t total = 0;
  for (const Unit &unit : layout.units) {
    RC_ASSERT(names.insert(unit.name).second);
    RC_ASSERT(unit.bytes % kAlign == 0);
    uint64_t end = 0;
    std::set<TensorRole> roles;
    for (const Tensor &tensor : unit.tensors) {
      RC_ASSERT(roles.insert(tensor.role).second);
      RC_ASSERT(tensor.offset % kAlign == 0);
      RC_ASSERT(tensor.offset >= end); // no overlap, ascending
      RC_ASSERT(tensor.offset < end + kAlign);
      RC_ASSERT(tensor.paddedRows % kPanelRows == 0);
      RC_ASSERT(tensor.paddedRows >= tensor.rows);
      RC_ASSERT(tensor.paddedRows < tensor.rows + kPanelRows);
      RC_ASSERT(tensor.bytes == static_cast<uint64_t>(tensor.paddedRows * tensor.cols) * dtypeBytes(tensor.dtype));
      RC_ASSERT(tensor.dtype == (isMatrix(tensor.role)             ? spec.dtype
                                 : tensor.role == TensorRole::Bias ? biasType(unit.role, spec.dtype)
                                                                   : DType::F32));
      RC_ASSERT(isMatrix(tensor.role) || (tensor.cols == 1 && !tensor.linearOperand));
      RC_ASSERT(tensor.linearOperand ==
                (tensor.role == TensorRole::Matrix || (tensor.role == TensorRole::TokenTable && spec.tiedEmbeddings)));
      RC_ASSERT(tensor.sources.size() == tensor.sourceRows.size());
      int64_t rows = 0;
      for (size_t i = 0; i < tensor.sources.size(); ++i) {
        RC_ASSERT(sources.insert(tensor.sources[i]).second); // every checkpoint tensor is used once
        rows += tensor.sourceRows[i];
      }
      RC_ASSERT(rows == tensor.rows);
      end = tensor.offset + tensor.bytes;
    }
    RC_ASSERT(unit.bytes == alignUp(end));
    total += unit.bytes;
  }
  RC_ASSERT(total == layout.totalBytes());

  // A layer is its four units in order, and knows its bytes.
  for (int64_t layer = 0; layer < spec.layers; ++layer) {
    uint64_t bytes = 0;
    int32_t expected = static_cast<int32_t>(1 + 4 * layer);
    for (UnitRole role : {UnitRole::Qkv, UnitRole::Out, UnitRole::Up, UnitRole::Down}) {
      const int32_t index = layout.layerUnit(layer, role);
      RC_ASSERT(index == expected++);
      const Unit &unit = layout.units[static_cast<size_t>(index)];
      RC_ASSERT(unit.role == role);
      RC_ASSERT(unit.layer == layer);
      bytes += unit.bytes;
    }
    RC_ASSERT(bytes == layout.layerBytes(layer));
    RC_ASSERT(bytes == layout.layerBytes(0)); // layers are alike
  }
}

RC_GTEST_PROP(WeightLayout, HoldsEachParameterOnce, ()) {
  const ModelSpec spec = anySpec();
  const int64_t norm = spec.hidden * (spec.norm == NormKind::LayerNorm ? 2 : 1);
  const int64_t layer = spec.qkvRows() * spec.hidden + (spec.qkvBias ? spec.qkvRows() : 0) +
                        spec.hidden * spec.qRows() + (spec.outBias ? spec.hidden : 0) + spec.upRows() * spec.hidden +
                        (spec.mlpBias ? spec.upRows() + spec.hidden : 0) + spec.hidden * spec.intermediate + 2 * norm +
                        (spec.qkNorm ? 2 * spec.headDim : 0);
  const int64_t tables = spec.vocab * spec.hidden * (spec.tiedEmbeddings ? 1 : 2) +
                         (spec.learnedPositions ? (spec.maxPositions + spec.positionOffset) * spec.hidden : 0);
  RC_ASSERT(parameterCount(layoutWeights(spec)) == static_cast<uint64_t>(spec.layers * layer + tables + norm));
}

} // namespace
} // namespace headrace::model
