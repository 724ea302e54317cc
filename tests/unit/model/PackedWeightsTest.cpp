// SPDX-License-Identifier: Apache-2.0
//
// Packed weights: which a model may have, the bytes they take, and what loading makes of a checkpoint and of a seed.
#include <cmath>
#include <thread>

#include <gtest/gtest.h>

#include "runtime/model/CheckpointFiles.h"
#include "runtime/model/Shape.h"
#include "runtime/model/WeightEncodings.h"
#include "tests/support/TestFiles.h"
#include "tests/support/TwinWeights.h"

namespace headrace::model {
namespace {

using testing::ElementsAre;

// Groups of 32 divide all in features, of 64 all but out's 96, of 128 the MLP's alone.
ModelSpec packable(bool tied = false) {
  ModelSpec spec = tinyLlama();
  spec.hidden = 64;
  spec.heads = 6;
  spec.kvHeads = 3;
  spec.headDim = 16;
  spec.intermediate = 128;
  spec.tiedEmbeddings = tied;
  return spec;
}

ModelSpec packed(ModelSpec spec, const std::string &text) {
  std::string expected;
  const auto encodings = weightEncodingsFromText(text, spec, expected);
  EXPECT_TRUE(encodings) << text << ": " << expected;
  spec.encodings = encodings.value_or(WeightEncodings());
  return spec;
}

TEST(WeightEncodings, PrintAndParse) {
  for (const bool tied : {false, true})
    for (const char *text : {"q4", "q8", "q8:32", "q4:128", "qkv=q4", "qkv=q4,out=q8:32,down=q8", "out=q4,up=q4"})
      EXPECT_EQ(weightEncodingText(packed(packable(tied), text)), text);
  EXPECT_EQ(weightEncodingText(packable()), "");
  // All alike, however it was said; and all but the head.
  EXPECT_EQ(weightEncodingText(packed(packable(), "head=q4,down=q4,up=q4,out=q4,qkv=q4:64")), "q4");
  EXPECT_EQ(weightEncodingText(packed(packable(true), "down=q4,up=q4,out=q4,qkv=q4")), "q4");
  EXPECT_EQ(weightEncodingText(packed(packable(), "down=q4,up=q4,out=q4,qkv=q4")), "qkv=q4,out=q4,up=q4,down=q4");
  // A tied head stays what it is.
  EXPECT_TRUE(packed(packable(), "q4").encodings[UnitRole::Head]);
  EXPECT_FALSE(packed(packable(true), "q4").encodings[UnitRole::Head]);
  EXPECT_FALSE(packed(packable(), "q4").encodings[UnitRole::Embedding]);
  std::string expected;
  for (const char *text : {"", "q3", "q4:16", "f16", "qkv", "qkv=", "qkv=q3", "qkv=f16", "mlp=q4", "q4,q8", "qkv=q4,",
                           ",qkv=q4", "qkv=q4 out=q4"}) {
    EXPECT_FALSE(weightEncodingsFromText(text, packable(), expected)) << text;
    EXPECT_THAT(expected, testing::StartsWith("q8 or q4, with :32, :64 or :128 behind it")) << text;
  }
  EXPECT_FALSE(weightEncodingsFromText("qkv=q4,qkv=q8", packable(), expected));
  EXPECT_EQ(expected, "one encoding of qkv");
}

TEST(WeightEncodings, AreRefusedWhereTheModelCannotHaveThem) {
  const auto refusal = [](const ModelSpec &spec) { return std::string(validate(spec, "f").message()); };
  EXPECT_EQ(refusal(packed(packable(), "q4:32")), "");
  EXPECT_EQ(refusal(packed(packable(), "q4")), // 6 heads of 16
            "f: weight_encoding = q4: expected a group that divides the 96 input features of "
            "model.layers.0.self_attn.o_proj.weight, such as 32");
  EXPECT_EQ(refusal(packed(packable(), "head=q8:128")),
            "f: weight_encoding = head=q8:128: expected a group that divides the 64 input features of lm_head.weight, "
            "such as 32 or 64");
  ModelSpec odd = packable();
  odd.intermediate = 100;
  EXPECT_EQ(refusal(packed(odd, "down=q8")),
            "f: weight_encoding = down=q8: expected a group that divides the 100 input features of "
            "model.layers.0.mlp.down_proj.weight: none of 32, 64 and 128 does");
  EXPECT_EQ(
      refusal(packed(packable(true), "head=q4")),
      "f: weight_encoding = head=q4: expected none of the head: it is the embedding's table, which is not packed");
  EXPECT_EQ(refusal(packed(packable(), "embedding=q4")),
            "f: weight_encoding = embedding=q4: expected none of the embedding: its rows are looked up, one a token");
  ModelSpec wrong = packed(packable(), "q4:32");
  wrong.encodings[UnitRole::Up]->codeBits = 3;
  EXPECT_THAT(refusal(wrong), testing::HasSubstr("expected q8 or q4, with :32"));
  wrong = packed(packable(), "q4:32");
  wrong.encodings[UnitRole::Up] = Encoding(DType::F16);
  EXPECT_THAT(refusal(wrong), testing::HasSubstr("expected q8 or q4, with :32"));
}

TEST(WeightEncodings, AreAKeyOfShapes) {
  const std::string shape = "family = \"llama\"\nlayers = 2\nhidden = 64\nheads = 4\nintermediate = 128\nvocab = 35\n"
                            "max_positions = 64\n";
  const auto spec = parseShape(shape + "weight_encoding = \"qkv=q4,head=q8:32\"\n", "f");
  ASSERT_TRUE(spec.ok()) << messageOf(spec);
  EXPECT_EQ(weightEncodingText(*spec), "qkv=q4,head=q8:32");
  EXPECT_THAT(messageOf(parseShape(shape + "weight_encoding = \"q3\"\n", "f")),
              testing::StartsWith("f:8: weight_encoding = \"q3\": expected q8 or q4, "));
}

TEST(PackedLayout, HasTheBytesOfItsEncoding) {
  const WeightLayout layout = layoutWeights(packed(packable(), "q4:32"));
  const Tensor &qkv = *layout.units[1].find(TensorRole::Matrix);
  EXPECT_EQ(qkv.rows, 192); // 96 + 48 + 48
  EXPECT_EQ(qkv.cols, 64);
  EXPECT_EQ(qkv.dtype, DType::F32); // of the checkpoint
  EXPECT_EQ(qkv.encoding, Encoding::groups(4, 32));
  EXPECT_EQ(qkv.bytes, 192u * 2 * (4 + 16));
  EXPECT_EQ(layout.units[1].bytes, 256u + 7680);                    // with a norm
  EXPECT_EQ(layout.units[0].bytes, 48u * 64 * 4);                   // the embedding: 35 rows, to 48
  EXPECT_EQ(layout.units[9].bytes, 256u + 48 * 2 * (4 + 16) + 128); // the head: 1920, to 2048
  // A group of 128 of the MLP's: 4 and 64 bytes an output feature.
  EXPECT_EQ(layoutWeights(packed(packable(), "down=q4:128")).units[4].bytes, 64u * 68); // 17 x 256
}

TEST(PackedLayout, ALayerOfOpt30bTakesTheStatedShareOf16Bits) {
  ModelSpec opt = tinyOpt();
  opt.layers = 48, opt.hidden = 7168, opt.heads = opt.kvHeads = 56, opt.headDim = 128, opt.intermediate = 28672;
  opt.vocab = 50272, opt.dtype = DType::F16;
  ASSERT_TRUE(validate(opt, "f").ok());
  const auto layer = [](const ModelSpec &spec) { return static_cast<double>(layoutWeights(spec).layerBytes(0)); };
  EXPECT_NEAR(layer(packed(opt, "q4")) / layer(opt), 0.2813, 0.001);
  EXPECT_NEAR(layer(packed(opt, "q8")) / layer(opt), 0.5313, 0.001);
}

// ---- loading

std::vector<std::byte> filled(const WeightSource &source, const Unit &unit, MatrixOrder order) {
  std::vector<std::byte> bytes(unit.bytes + 1, std::byte{0xCD});
  const absl::Status status = source.fill(unit, order, absl::MakeSpan(bytes).subspan(1)); // no alignment is needed
  EXPECT_TRUE(status.ok()) << messageOf(status);
  bytes.erase(bytes.begin());
  return bytes;
}

// Every value of every packed tensor is its group's of the elements that the same source has unpacked, in both orders;
// all else is as it is unpacked.
void expectPacked(const WeightSource &source, const ModelSpec &spec) {
  ModelSpec plain = spec;
  plain.encodings = {};
  const WeightLayout layout = layoutWeights(spec), unpacked = layoutWeights(plain);
  for (size_t u = 0; u < layout.units.size(); ++u) {
    const std::vector<std::byte> elements = filled(source, unpacked.units[u], MatrixOrder::RowMajor);
    for (const MatrixOrder order : {MatrixOrder::RowMajor, MatrixOrder::Panel16}) {
      const std::vector<std::byte> held = filled(source, layout.units[u], order);
      for (size_t t = 0; t < layout.units[u].tensors.size(); ++t) {
        const Tensor &tensor = layout.units[u].tensors[t], &from = unpacked.units[u].tensors[t];
        const int64_t group = tensor.encoding.packed() ? tensor.encoding.group : tensor.cols;
        for (int64_t r = 0; r < tensor.paddedRows; ++r)
          for (int64_t first = 0; first < tensor.cols; first += group) {
            std::vector<float> values;
            for (int64_t c = first; c < first + group; ++c)
              values.push_back(heldValue(elements.data(), from, MatrixOrder::RowMajor, r, c));
            if (tensor.encoding.packed()) {
              std::vector<uint8_t> codes(values.size());
              const auto scale = quantiseGroup(values, tensor.encoding.codeBits, codes.data());
              ASSERT_TRUE(scale);
              for (size_t i = 0; i < values.size(); ++i)
                values[i] = unpackedValue(codes[i], *scale);
            }
            for (int64_t c = first; c < first + group; ++c)
              ASSERT_EQ(heldValue(held.data(), tensor, order, r, c), values[static_cast<size_t>(c - first)])
                  << layout.units[u].name << " (" << r << ", " << c << ")";
          }
      }
    }
  }
}

TEST(PackedWeights, FromASeedAreTheSameInBothOrders) {
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16})
    for (const char *text : {"q4:32", "q8:32", "qkv=q4,out=q8:32,up=q8,down=q4:128,head=q4"}) {
      ModelSpec spec = packable();
      spec.intermediate = 640; // more than a tile of the generator's columns
      spec.dtype = dtype;
      expectPacked(*syntheticWeights(7), packed(spec, text));
    }
}

// A checkpoint of the values that a seed gives, perhaps with one of them changed.
struct Change {
  std::string tensor;
  size_t index;
  float value;
};
void writeCheckpoint(const TempFolder &folder, const ModelSpec &spec, const std::optional<Change> &change = {}) {
  SafetensorsWriter writer;
  for (const Unit &unit : layoutWeights(spec).units) {
    const std::vector<std::byte> bytes = filled(*syntheticWeights(3), unit, MatrixOrder::RowMajor);
    for (const Tensor &tensor : unit.tensors) {
      int64_t row = 0;
      for (size_t i = 0; i < tensor.sources.size(); row += tensor.sourceRows[i++]) {
        std::vector<float> values;
        for (int64_t r = row; r < row + tensor.sourceRows[i]; ++r)
          for (int64_t c = 0; c < tensor.cols; ++c)
            values.push_back(heldValue(bytes.data(), tensor, MatrixOrder::RowMajor, r, c));
        if (change && change->tensor == tensor.sources[i])
          values[change->index] = change->value;
        std::string stored(values.size() * dtypeBytes(spec.dtype), '\0');
        narrowFromF32(spec.dtype, values.data(), values.size(), reinterpret_cast<std::byte *>(stored.data()));
        const bool vector = !isMatrix(tensor.role);
        writer.add(tensor.sources[i],
                   spec.dtype == DType::F32   ? "F32"
                   : spec.dtype == DType::F16 ? "F16"
                                              : "BF16",
                   vector ? std::vector<int64_t>{tensor.sourceRows[i]}
                          : std::vector<int64_t>{tensor.sourceRows[i], tensor.cols},
                   stored);
      }
    }
  }
  folder.write("model.safetensors", writer.file());
}

TEST(PackedWeights, FromACheckpointAreTheSameInBothOrders) {
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16})
    for (const char *text : {"q4:32", "qkv=q4,out=q8:32,up=q8,down=q4:128,head=q4"}) {
      ModelSpec spec = packable();
      spec.intermediate = 1280; // panels of more than a piece
      spec.dtype = dtype;
      const TempFolder folder;
      writeCheckpoint(folder, spec);
      spec = packed(spec, text);
      const auto source = openCheckpoint(*CheckpointFiles::open(folder.path()), layoutWeights(spec));
      ASSERT_TRUE(source.ok()) << messageOf(source);
      expectPacked(**source, spec);
    }
}

TEST(PackedWeights, AreTheSameBytesByThreads) {
  ModelSpec spec = packable();
  const TempFolder folder;
  writeCheckpoint(folder, spec);
  spec = packed(spec, "q4:32");
  const WeightLayout layout = layoutWeights(spec);
  const auto checkpoint = openCheckpoint(*CheckpointFiles::open(folder.path()), layout);
  ASSERT_TRUE(checkpoint.ok()) << messageOf(checkpoint);
  const auto seeded = syntheticWeights(3);
  const auto backwards = [](int64_t count, absl::FunctionRef<void(int64_t)> f) {
    std::vector<std::thread> threads;
    for (int64_t i = count; i-- > 0;)
      threads.emplace_back([i, &f] { f(i); });
    for (std::thread &thread : threads)
      thread.join();
  };
  for (const WeightSource *source : std::initializer_list<const WeightSource *>{checkpoint->get(), seeded.get()})
    for (const Unit &unit : layout.units)
      for (const MatrixOrder order : {MatrixOrder::RowMajor, MatrixOrder::Panel16}) {
        std::vector<std::byte> bytes(unit.bytes, std::byte{0xCD});
        ASSERT_TRUE(source->fillBy(backwards, unit, order, absl::MakeSpan(bytes)).ok());
        EXPECT_TRUE(bytes == filled(*source, unit, order)) << unit.name;
      }
}

TEST(PackedWeights, RefuseValuesThatCannotBePackedByFileTensorAndPlace) {
  for (const float wrong : {7e4f, -7e4f, INFINITY, -INFINITY, NAN})
    for (const MatrixOrder order : {MatrixOrder::RowMajor, MatrixOrder::Panel16}) {
      ModelSpec spec = packable();
      const TempFolder folder;
      writeCheckpoint(folder, spec, Change{"model.layers.1.self_attn.v_proj.weight", 17 * 64 + 5, wrong}); // [48, 64]
      spec = packed(spec, "q4:32");
      const WeightLayout layout = layoutWeights(spec);
      const auto source = openCheckpoint(*CheckpointFiles::open(folder.path()), layout);
      ASSERT_TRUE(source.ok()) << messageOf(source);
      for (const Unit &unit : layout.units) {
        std::vector<std::byte> bytes(unit.bytes);
        const absl::Status status = (*source)->fill(unit, order, absl::MakeSpan(bytes));
        if (unit.name != "layers.1.qkv") {
          EXPECT_TRUE(status.ok()) << messageOf(status);
          continue;
        }
        EXPECT_REFUSED(status, absl::StatusCode::kInvalidArgument,
                       folder.file("model.safetensors") +
                           ": tensor \"model.layers.1.self_attn.v_proj.weight\": the value at [17, 5] cannot be packed "
                           "as q4:32: expected finite values of at most 65504");
      }
    }
}

// What is not packed takes what it has always taken.
TEST(PackedWeights, OfOtherRolesAreNotLookedAt) {
  ModelSpec spec = packable();
  const TempFolder folder;
  writeCheckpoint(folder, spec, Change{"model.layers.1.self_attn.v_proj.weight", 5, 7e4f});
  spec = packed(spec, "up=q4,head=q8");
  const WeightLayout layout = layoutWeights(spec);
  const auto source = openCheckpoint(*CheckpointFiles::open(folder.path()), layout);
  ASSERT_TRUE(source.ok()) << messageOf(source);
  for (const Unit &unit : layout.units) {
    std::vector<std::byte> bytes(unit.bytes);
    EXPECT_TRUE((*source)->fill(unit, MatrixOrder::Panel16, absl::MakeSpan(bytes)).ok());
  }
}

} // namespace
} // namespace headrace::model
