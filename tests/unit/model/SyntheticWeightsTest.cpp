// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <set>

#include "runtime/base/HalfFloat.h"
#include "runtime/model/WeightSource.h"
#include "tests/support/TestFiles.h"

namespace headrace::model {
namespace {

std::vector<std::byte> filled(uint64_t seed, const Unit &unit, MatrixOrder order) {
  std::vector<std::byte> bytes(unit.bytes, std::byte{0xCD});
  EXPECT_TRUE(syntheticWeights(seed)->fill(unit, order, absl::MakeSpan(bytes)).ok());
  return bytes;
}

float elementAt(const std::vector<std::byte> &bytes, const Tensor &tensor, MatrixOrder order, int64_t r, int64_t c) {
  const bool panels = tensor.linearOperand && order == MatrixOrder::Panel16;
  const int64_t index = panels ? ((r / 16) * tensor.cols + c) * 16 + r % 16 : r * tensor.cols + c;
  float value;
  widenToF32(tensor.dtype, bytes.data() + tensor.offset + static_cast<uint64_t>(index) * dtypeBytes(tensor.dtype), 1,
             &value);
  return value;
}

// A spec whose rows and columns cross the generator's tiles: 300 columns are more than 256 and no multiple of 4 is 301.
ModelSpec wide(DType dtype) {
  ModelSpec spec = tinyOpt();
  spec.hidden = 301;
  spec.intermediate = 300;
  spec.dtype = dtype;
  return spec;
}

TEST(SyntheticWeights, AreTheSameInBothOrders) {
  for (DType dtype : {DType::F32, DType::F16, DType::BF16})
    for (const Unit &unit : layoutWeights(wide(dtype)).units) {
      const auto rows = filled(7, unit, MatrixOrder::RowMajor), panels = filled(7, unit, MatrixOrder::Panel16);
      for (const Tensor &tensor : unit.tensors)
        for (int64_t r = 0; r < tensor.paddedRows; ++r)
          for (int64_t c = 0; c < tensor.cols; ++c) {
            const float value = elementAt(rows, tensor, MatrixOrder::RowMajor, r, c);
            ASSERT_EQ(value, elementAt(panels, tensor, MatrixOrder::Panel16, r, c)) << unit.name << r << " " << c;
            if (r >= tensor.rows) {
              ASSERT_EQ(value, 0) << unit.name << ": padding row " << r;
            }
          }
    }
}

TEST(SyntheticWeights, LeaveGapsZero) {
  for (const Unit &unit : layoutWeights(wide(DType::F16)).units)
    for (MatrixOrder order : {MatrixOrder::RowMajor, MatrixOrder::Panel16}) {
      const auto bytes = filled(7, unit, order);
      uint64_t end = 0;
      for (const Tensor &tensor : unit.tensors) {
        for (; end < tensor.offset; ++end)
          ASSERT_EQ(bytes[end], std::byte{0}) << unit.name;
        end = tensor.offset + tensor.bytes;
      }
      for (; end < unit.bytes; ++end)
        ASSERT_EQ(bytes[end], std::byte{0}) << unit.name;
    }
}

TEST(SyntheticWeights, DependOnSeedLayerAndTensorAlone) {
  const WeightLayout layout = layoutWeights(wide(DType::F32));
  const Unit &out0 = layout.units[static_cast<size_t>(layout.layerUnit(0, UnitRole::Out))];
  const Unit &out1 = layout.units[static_cast<size_t>(layout.layerUnit(1, UnitRole::Out))];
  EXPECT_EQ(filled(1, out0, MatrixOrder::Panel16), filled(1, out0, MatrixOrder::Panel16));
  EXPECT_NE(filled(1, out0, MatrixOrder::Panel16), filled(2, out0, MatrixOrder::Panel16));
  EXPECT_NE(filled(1, out0, MatrixOrder::Panel16), filled(1, out1, MatrixOrder::Panel16));
  // The same layer of a deeper model has the same weights.
  ModelSpec deeper = wide(DType::F32);
  deeper.layers = 5;
  EXPECT_EQ(filled(1, out1, MatrixOrder::RowMajor),
            filled(1, layoutWeights(deeper).units[static_cast<size_t>(layout.layerUnit(1, UnitRole::Out))],
                   MatrixOrder::RowMajor));
}

TEST(SyntheticWeights, HaveTheStatedDistribution) {
  ModelSpec spec = wide(DType::F32);
  spec.vocab = 3000;
  const WeightLayout layout = layoutWeights(spec);
  const Unit &embedding = layout.units[0];
  const auto bytes = filled(3, embedding, MatrixOrder::RowMajor);
  const Tensor &table = *embedding.find(TensorRole::TokenTable);
  const double bound = std::sqrt(3.0 / 301);
  double sum = 0, squares = 0;
  std::set<float> distinct;
  for (int64_t r = 0; r < table.rows; ++r)
    for (int64_t c = 0; c < table.cols; ++c) {
      const float value = elementAt(bytes, table, MatrixOrder::RowMajor, r, c);
      ASSERT_LE(std::abs(value), bound * (1 + 1e-6));
      sum += value;
      squares += static_cast<double>(value) * value;
      distinct.insert(value);
    }
  const double count = 3000 * 301.0; // 903,000 values of standard deviation bound / sqrt(3): mean to 6 e-5 at one sigma
  EXPECT_NEAR(sum / count, 0, 5e-4);
  EXPECT_NEAR(squares / count, 1.0 / 301, 0.01 / 301); // variance bound^2 / 3 = 1 / 301
  EXPECT_GT(distinct.size(), 65000u);                  // 65536 levels, each expected 14 times

  const Unit &qkv = layout.units[1];
  const auto vectors = filled(3, qkv, MatrixOrder::RowMajor);
  float least = 1, most = 1;
  for (int64_t i = 0; i < 301; ++i) {
    const float norm = elementAt(vectors, *qkv.find(TensorRole::NormWeight), MatrixOrder::RowMajor, i, 0);
    least = std::min(least, norm);
    most = std::max(most, norm);
    EXPECT_LE(std::abs(elementAt(vectors, *qkv.find(TensorRole::NormBias), MatrixOrder::RowMajor, i, 0)), 0.1001f);
  }
  EXPECT_GE(least, 0.8999f);
  EXPECT_LT(least, 0.92f);
  EXPECT_LE(most, 1.1001f);
  EXPECT_GT(most, 1.08f);
}

TEST(SyntheticWeights, AreFixedForever) {
  // Goldens of runs with --synthetic-weights depend on these values.
  const WeightLayout layout = layoutWeights(tinyLlama());
  const auto bytes = filled(42, layout.units[1], MatrixOrder::RowMajor);
  const Tensor &matrix = *layout.units[1].find(TensorRole::Matrix);
  // sqrt(3 / 12) = 1 / 2, so a value is its 16 random bits / 65536.
  EXPECT_EQ(elementAt(bytes, matrix, MatrixOrder::RowMajor, 0, 0), 1059.0f / 65536);
  EXPECT_EQ(elementAt(bytes, matrix, MatrixOrder::RowMajor, 19, 11), 21144.0f / 65536);
}

TEST(SyntheticWeights, RefuseTheWrongRoom) {
  const Unit unit = layoutWeights(tinyLlama()).units[2];
  std::vector<std::byte> room(unit.bytes + 1);
  EXPECT_REFUSED(syntheticWeights(1)->fill(unit, MatrixOrder::RowMajor, absl::MakeSpan(room)),
                 absl::StatusCode::kInvalidArgument, "unit layers.0.out: 769 bytes of room: expected 768");
}

} // namespace
} // namespace headrace::model
