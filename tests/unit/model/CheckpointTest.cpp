// SPDX-License-Identifier: Apache-2.0
//
// Whole checkpoints: written here from values that say where they belong, read back by fill().
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/base/HalfFloat.h"
#include "runtime/model/CheckpointFiles.h"
#include "runtime/model/HfConfig.h"
#include "runtime/model/WeightSource.h"
#include "tests/support/TestFiles.h"

namespace headrace::model {
namespace {

// Tensors by checkpoint name; what a test changes before they are written.
struct Stored {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};
using Tensors = std::map<std::string, Stored>;

const char *storedName(DType type) { return type == DType::F32 ? "F32" : type == DType::F16 ? "F16" : "BF16"; }

std::string encode(DType type, const std::vector<float> &values) {
  if (type == DType::F32)
    return bytesOf(values);
  std::vector<uint16_t> halves;
  for (float value : values)
    halves.push_back(type == DType::F16 ? f32ToF16(value) : f32ToBf16(value));
  return bytesOf(halves);
}

// Distinct for each place of a tensor and exact in all three types: small integers, signed by name.
float valueAt(const std::string &name, int64_t row, int64_t col) {
  const int64_t salt = static_cast<int64_t>(std::hash<std::string>()(name) % 64);
  return static_cast<float>((row * 7 + col * 3 + salt) % 127 + 1);
}

Tensors tensorsOf(const ModelSpec &spec) {
  Tensors tensors;
  for (const Unit &unit : layoutWeights(spec).units)
    for (const Tensor &tensor : unit.tensors)
      for (size_t i = 0; i < tensor.sources.size(); ++i) {
        const int64_t rows = tensor.sourceRows[i];
        std::vector<float> values;
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t c = 0; c < tensor.cols; ++c)
            values.push_back(valueAt(tensor.sources[i], r, c));
        tensors[tensor.sources[i]] = {storedName(spec.dtype),
                                      isMatrix(tensor.role) ? std::vector<int64_t>{rows, tensor.cols}
                                                            : std::vector<int64_t>{rows},
                                      encode(spec.dtype, values)};
      }
  return tensors;
}

std::string fileOf(const Tensors &tensors) {
  SafetensorsWriter writer;
  for (const auto &[name, stored] : tensors)
    writer.add(name, stored.dtype, stored.shape, stored.bytes);
  return writer.file();
}

float element(DType type, const std::byte *at) {
  float value;
  widenToF32(type, at, 1, &value);
  return value;
}

// Every byte of every unit, in one order, against the header's definition of the layout.
void expectFilled(const WeightSource &source, const WeightLayout &layout, MatrixOrder order) {
  for (const Unit &unit : layout.units) {
    std::vector<std::byte> bytes(unit.bytes + 1, std::byte{0xCD});
    // One byte off, so that nothing relies on alignment.
    const absl::Status status = source.fill(unit, order, absl::MakeSpan(bytes).subspan(1));
    ASSERT_TRUE(status.ok()) << messageOf(status);
    EXPECT_EQ(bytes[0], std::byte{0xCD});
    std::vector<bool> covered(unit.bytes, false);
    for (const Tensor &tensor : unit.tensors) {
      const bool panels = tensor.linearOperand && order == MatrixOrder::Panel16;
      const uint64_t size = dtypeBytes(tensor.dtype);
      for (int64_t r = 0; r < tensor.paddedRows; ++r)
        for (int64_t c = 0; c < tensor.cols; ++c) {
          const int64_t index = panels ? ((r / 16) * tensor.cols + c) * 16 + r % 16 : r * tensor.cols + c;
          const uint64_t offset = tensor.offset + static_cast<uint64_t>(index) * size;
          for (uint64_t byte = offset; byte < offset + size; ++byte)
            covered[byte] = true;
          float expected = 0;
          int64_t row = r;
          for (size_t i = 0; i < tensor.sources.size(); ++i) {
            if (row < tensor.sourceRows[i]) {
              expected = valueAt(tensor.sources[i], row, c);
              break;
            }
            row -= tensor.sourceRows[i];
          }
          ASSERT_EQ(element(tensor.dtype, bytes.data() + 1 + offset), expected)
              << unit.name << " role " << static_cast<int>(tensor.role) << " (" << r << ", " << c << ")";
        }
    }
    for (uint64_t byte = 0; byte < unit.bytes; ++byte)
      ASSERT_TRUE(covered[byte] || bytes[1 + byte] == std::byte{0}) << unit.name << " gap at " << byte;
  }
}

absl::StatusOr<std::unique_ptr<WeightSource>> open(const TempFolder &folder, const ModelSpec &spec) {
  const auto files = CheckpointFiles::open(folder.path());
  return files.ok() ? openCheckpoint(*files, layoutWeights(spec)) : files.status();
}

TEST(Checkpoint, FillsUnitsInBothOrdersForEveryFamilyAndType) {
  for (DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    ModelSpec qwen = tinyLlama();
    qwen.family = Family::Qwen2;
    qwen.qkvBias = true;
    ModelSpec tied = tinyLlama();
    tied.tiedEmbeddings = true;
    tied.qkvBias = tied.outBias = tied.mlpBias = true;
    for (ModelSpec spec : {tinyLlama(), tinyOpt(), qwen, tied}) {
      spec.dtype = dtype;
      const TempFolder folder;
      folder.write("model.safetensors", fileOf(tensorsOf(spec)));
      const auto source = open(folder, spec);
      ASSERT_TRUE(source.ok()) << messageOf(source);
      for (MatrixOrder order : {MatrixOrder::RowMajor, MatrixOrder::Panel16})
        expectFilled(**source, layoutWeights(spec), order);
    }
  }
}

TEST(Checkpoint, AcceptsBaseModelNamesAndIgnoresWhatItDoesNotNeed) {
  ModelSpec spec = tinyOpt();
  Tensors tensors;
  for (auto &[name, stored] : tensorsOf(spec))
    tensors[name.substr(6)] = stored; // "decoder.layers..." instead of "model.decoder.layers..."
  tensors["decoder.rotary_emb.inv_freq"] = {"I64", {1}, std::string(8, 'x')};
  const TempFolder folder;
  folder.write("model.safetensors", fileOf(tensors));
  const auto source = open(folder, spec);
  ASSERT_TRUE(source.ok()) << messageOf(source);
  // The values are salted with the full names, so only the shape of the answer is compared here.
  const WeightLayout layout = layoutWeights(spec);
  std::vector<std::byte> bytes(layout.units[1].bytes);
  EXPECT_TRUE((*source)->fill(layout.units[1], MatrixOrder::Panel16, absl::MakeSpan(bytes)).ok());
}

TEST(Checkpoint, PrefersTheFullNameOverTheBareOne) {
  ModelSpec spec = tinyLlama();
  Tensors tensors = tensorsOf(spec);
  tensors["norm.weight"] = {"F32", {12}, std::string(48, 'x')};
  const TempFolder folder;
  folder.write("model.safetensors", fileOf(tensors));
  const auto source = open(folder, spec);
  ASSERT_TRUE(source.ok()) << messageOf(source);
  expectFilled(**source, layoutWeights(spec), MatrixOrder::RowMajor);
}

TEST(Checkpoint, WidensVectorsOfAnyType) {
  ModelSpec spec = tinyLlama();
  spec.dtype = DType::BF16;
  Tensors tensors = tensorsOf(spec);
  for (const auto &[name, dtype] :
       {std::pair{"model.norm.weight", DType::F32}, {"model.layers.0.input_layernorm.weight", DType::F16}}) {
    std::vector<float> values;
    for (int64_t r = 0; r < spec.hidden; ++r)
      values.push_back(valueAt(name, r, 0));
    tensors[name] = {storedName(dtype), {spec.hidden}, encode(dtype, values)};
  }
  const TempFolder folder;
  folder.write("model.safetensors", fileOf(tensors));
  const auto source = open(folder, spec);
  ASSERT_TRUE(source.ok()) << messageOf(source);
  expectFilled(**source, layoutWeights(spec), MatrixOrder::Panel16);
}

// The tensors spread over two files by name, and the index that says so.
void writeSharded(const TempFolder &folder, const Tensors &tensors) {
  Tensors halves[2];
  nlohmann::json map;
  size_t i = 0;
  for (const auto &[name, stored] : tensors) {
    const size_t half = i++ % 2;
    halves[half][name] = stored;
    map[name] = half == 0 ? "model-00001-of-00002.safetensors" : "model-00002-of-00002.safetensors";
  }
  folder.write("model-00001-of-00002.safetensors", fileOf(halves[0]));
  folder.write("model-00002-of-00002.safetensors", fileOf(halves[1]));
  folder.write("model.safetensors.index.json",
               nlohmann::json{{"metadata", {{"total_size", 1}}}, {"weight_map", map}}.dump());
}

TEST(Checkpoint, ReadsShardedFiles) {
  const TempFolder folder;
  writeSharded(folder, tensorsOf(tinyLlama()));
  EXPECT_TRUE(hasCheckpoint(folder.path()));
  const auto source = open(folder, tinyLlama());
  ASSERT_TRUE(source.ok()) << messageOf(source);
  expectFilled(**source, layoutWeights(tinyLlama()), MatrixOrder::Panel16);
}

TEST(Checkpoint, RefusesAnIndexThatNamesAMissingFile) {
  const TempFolder folder;
  writeSharded(folder, tensorsOf(tinyLlama()));
  std::filesystem::remove(folder.file("model-00002-of-00002.safetensors"));
  EXPECT_REFUSED(open(folder, tinyLlama()), absl::StatusCode::kNotFound,
                 folder.file("model-00002-of-00002.safetensors") +
                     ": no such file (named by model.safetensors.index.json)");
}

TEST(Checkpoint, RefusesIndexesThatLie) {
  const TempFolder folder;
  const std::string path = folder.file("model.safetensors.index.json");
  folder.write("a.safetensors", SafetensorsWriter().add("t", "U8", {1}, "x").file());
  const auto index = [&](const std::string &text) {
    folder.write("model.safetensors.index.json", text);
    return open(folder, tinyLlama());
  };
  EXPECT_REFUSED(index("{}"), absl::StatusCode::kInvalidArgument,
                 path + ": weight_map is missing: expected an object from tensor to file name");
  EXPECT_REFUSED(index("{\"weight_map\":{}}"), absl::StatusCode::kInvalidArgument,
                 path + ": weight_map = {}: expected an object from tensor to file name");
  EXPECT_REFUSED(index("{\"weight_map\":3}"), absl::StatusCode::kInvalidArgument,
                 path + ": weight_map = 3: expected an object from tensor to file name");
  for (const char *name : {"\"../secret\"", "\"/etc/passwd\"", "\"..\"", "\"\"", "7", "\"a\\u0000b\""})
    EXPECT_THAT(messageOf(index("{\"weight_map\":{\"t\":" + std::string(name) + "}}")),
                testing::EndsWith(": expected the name of a file beside it"))
        << name;
  EXPECT_REFUSED(index("{\"weight_map\":{\"other\":\"a.safetensors\"}}"), absl::StatusCode::kNotFound,
                 folder.file("a.safetensors") +
                     ": tensor \"other\" is missing: expected it there by model.safetensors.index.json");
  EXPECT_THAT(messageOf(index("{\"weight_map\":")), testing::StartsWith(path + ": expected JSON: "));
}

TEST(Checkpoint, RefusesAFolderWithoutSafetensors) {
  const TempFolder folder;
  EXPECT_FALSE(hasCheckpoint(folder.path()));
  EXPECT_REFUSED(open(folder, tinyLlama()), absl::StatusCode::kNotFound,
                 folder.path() + ": no model.safetensors or model.safetensors.index.json");
}

// A tensor of several shards is the one that the index names, or the last. What the index leaves out is found, and what
// it says to be elsewhere.
TEST(Checkpoint, ReadsShardsWhole) {
  const TempFolder folder;
  const ModelSpec spec = tinyLlama();
  const Tensors tensors = tensorsOf(spec);
  const auto zeros = [&](const std::string &name) {
    Stored stored = tensors.at(name);
    stored.bytes.assign(stored.bytes.size(), '\0');
    return Tensors{{name, stored}};
  };
  folder.write("a.safetensors", fileOf(zeros("model.layers.0.input_layernorm.weight")));
  folder.write("b.safetensors", fileOf(tensors));
  folder.write("c.safetensors", fileOf(zeros("model.norm.weight")));
  folder.write("d.safetensors", kLfsPointer); // nobody's
  folder.write("model.safetensors.index.json",
               nlohmann::json{{"weight_map",
                               {{"model.norm.weight", "b.safetensors"},
                                {"model.layers.1.input_layernorm.weight", "a.safetensors"},
                                {"model.embed_tokens.weight", "c.safetensors"}}}}
                   .dump());
  const auto source = open(folder, spec);
  ASSERT_TRUE(source.ok()) << messageOf(source);
  expectFilled(**source, layoutWeights(spec), MatrixOrder::RowMajor);
}

TEST(Checkpoint, AFileThatBecomesShorterIsAnErrorOfFilling) {
  const TempFolder folder;
  const ModelSpec spec = tinyLlama();
  const WeightLayout layout = layoutWeights(spec);
  const std::string path = folder.write("model.safetensors", fileOf(tensorsOf(spec)));
  const auto files = CheckpointFiles::open(folder.path());
  ASSERT_TRUE(files.ok()) << messageOf(files);
  const auto source = openCheckpoint(*files, layout);
  std::filesystem::resize_file(path, (*files)->files().front()->header().dataOffset + 1);
  for (const Unit &unit : layout.units)
    for (MatrixOrder order : {MatrixOrder::RowMajor, MatrixOrder::Panel16}) {
      std::vector<std::byte> room(unit.bytes);
      const absl::Status status = (*source)->fill(unit, order, absl::MakeSpan(room));
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << unit.name;
      EXPECT_THAT(messageOf(status), testing::StartsWith(path + ": ends at byte "));
    }
  EXPECT_EQ(hashCheckpoint(**files, layout, nullptr).status().code(), absl::StatusCode::kDataLoss);
}

// Of more than one piece that is read at a time, across the seams of stacked sources.
TEST(Checkpoint, FillsTensorsOfManyPieces) {
  ModelSpec spec = tinyLlama();
  spec.layers = 1;
  spec.hidden = 132; // three heads of 44
  spec.headDim = 44;
  spec.intermediate = 403; // gate and up: 2 x 403 x 132 x 4 = 425,568 bytes
  spec.vocab = 600;
  const TempFolder folder;
  folder.write("model.safetensors", fileOf(tensorsOf(spec)));
  const auto source = open(folder, spec);
  ASSERT_TRUE(source.ok()) << messageOf(source);
  for (MatrixOrder order : {MatrixOrder::RowMajor, MatrixOrder::Panel16})
    expectFilled(**source, layoutWeights(spec), order);
}

// One change to a good checkpoint, and how it is refused.
void expectRefusedAfter(const std::function<void(Tensors &)> &change, absl::StatusCode code,
                        const std::function<std::string(const TempFolder &)> &message) {
  const TempFolder folder;
  Tensors tensors = tensorsOf(tinyLlama());
  change(tensors);
  folder.write("model.safetensors", fileOf(tensors));
  EXPECT_REFUSED(open(folder, tinyLlama()), code, message(folder));
}

TEST(Checkpoint, RefusesMissingTensorsByName) {
  expectRefusedAfter([](Tensors &t) { t.erase("model.layers.1.mlp.up_proj.weight"); }, absl::StatusCode::kNotFound,
                     [](const TempFolder &folder) {
                       return folder.path() + ": tensor \"model.layers.1.mlp.up_proj.weight\" (or "
                                              "\"layers.1.mlp.up_proj.weight\") is missing: expected it in "
                                              "model.safetensors";
                     });
  expectRefusedAfter([](Tensors &t) { t.erase("lm_head.weight"); }, absl::StatusCode::kNotFound,
                     [](const TempFolder &folder) {
                       return folder.path() +
                              ": tensor \"lm_head.weight\" is missing: expected it in model.safetensors";
                     });
}

TEST(Checkpoint, RefusesOtherShapes) {
  const auto where = [](const TempFolder &folder, const std::string &rest) {
    return folder.file("model.safetensors") + ": tensor " + rest;
  };
  expectRefusedAfter(
      [](Tensors &t) {
        t["model.layers.0.self_attn.q_proj.weight"] = {"F32", {11, 12}, std::string(11 * 12 * 4, 0)};
      },
      absl::StatusCode::kInvalidArgument,
      [&](const TempFolder &folder) {
        return where(folder, "\"model.layers.0.self_attn.q_proj.weight\": shape = [11, 12]: expected [12, 12], as "
                             "config.json says");
      });
  expectRefusedAfter(
      [](Tensors &t) {
        t["model.layers.0.mlp.down_proj.weight"].shape = {20, 12}; // transposed: the right number of bytes
      },
      absl::StatusCode::kInvalidArgument,
      [&](const TempFolder &folder) {
        return where(
            folder,
            "\"model.layers.0.mlp.down_proj.weight\": shape = [20, 12]: expected [12, 20], as config.json says");
      });
  expectRefusedAfter(
      [](Tensors &t) {
        t["model.norm.weight"].shape = {12, 1};
      },
      absl::StatusCode::kInvalidArgument,
      [&](const TempFolder &folder) {
        return where(folder, "\"model.norm.weight\": shape = [12, 1]: expected [12], as config.json says");
      });
}

TEST(Checkpoint, RefusesOtherElementTypes) {
  const auto change = [](const std::string &dtype, size_t elementBytes) {
    return [=](Tensors &t) {
      t["model.layers.1.mlp.down_proj.weight"] = {dtype, {12, 20}, std::string(240 * elementBytes, 0)};
    };
  };
  const auto message = [](const std::string &rest) {
    return [=](const TempFolder &folder) {
      return folder.file("model.safetensors") + ": tensor \"model.layers.1.mlp.down_proj.weight\": dtype = " + rest;
    };
  };
  expectRefusedAfter(change("BF16", 2), absl::StatusCode::kInvalidArgument,
                     message("BF16: expected f32, the type of the token table: all matrices of a model must have one "
                             "type"));
  expectRefusedAfter(change("I8", 1), absl::StatusCode::kInvalidArgument, message("I8: expected F32, F16 or BF16"));
  expectRefusedAfter(change("F64", 8), absl::StatusCode::kInvalidArgument, message("F64: expected F32, F16 or BF16"));
}

TEST(Checkpoint, RefusesDamagedFiles) {
  const TempFolder folder;
  const std::string file = fileOf(tensorsOf(tinyLlama()));
  const std::string path = folder.write("model.safetensors", file.substr(0, file.size() - 100));
  const auto refused = open(folder, tinyLlama());
  EXPECT_EQ(codeOf(refused), absl::StatusCode::kDataLoss);
  EXPECT_THAT(messageOf(refused), testing::StartsWith(path + ": tensor "));
  EXPECT_THAT(messageOf(refused), testing::EndsWith("(is it truncated?)"));
}

TEST(Checkpoint, FillRefusesOtherUnitsAndRoom) {
  const TempFolder folder;
  folder.write("model.safetensors", fileOf(tensorsOf(tinyLlama())));
  const auto source = open(folder, tinyLlama());
  ASSERT_TRUE(source.ok()) << messageOf(source);
  const Unit unit = layoutWeights(tinyLlama()).units[2]; // layers.0.out: [12, 12] F32, padded to 16 rows: 768 bytes
  std::vector<std::byte> room(unit.bytes - 1);
  EXPECT_REFUSED((*source)->fill(unit, MatrixOrder::RowMajor, absl::MakeSpan(room)), absl::StatusCode::kInvalidArgument,
                 "unit layers.0.out: 767 bytes of room: expected 768");
  ModelSpec wider = tinyLlama();
  wider.hidden = 16;
  const Unit other = layoutWeights(wider).units[2];
  room.resize(other.bytes);
  EXPECT_REFUSED((*source)->fill(other, MatrixOrder::RowMajor, absl::MakeSpan(room)),
                 absl::StatusCode::kInvalidArgument,
                 folder.file("model.safetensors") + ": tensor \"model.layers.0.self_attn.o_proj.weight\": shape = [12, "
                                                    "12]: expected [16, 12], as config.json says");
}

// --- through the folder, as users come ---

nlohmann::json configOf(const ModelSpec &spec) {
  return {{"model_type", "llama"},
          {"hidden_size", spec.hidden},
          {"intermediate_size", spec.intermediate},
          {"num_hidden_layers", spec.layers},
          {"num_attention_heads", spec.heads},
          {"num_key_value_heads", spec.kvHeads},
          {"max_position_embeddings", spec.maxPositions},
          {"vocab_size", spec.vocab},
          {"torch_dtype", "float32"}};
}

TEST(HfFolder, TakesTheElementTypeFromTheCheckpoint) {
  ModelSpec spec = tinyLlama();
  spec.dtype = DType::BF16;
  const TempFolder folder;
  folder.write("config.json", configOf(spec).dump()); // says float32
  EXPECT_EQ(readHfFolder(folder.path())->spec.dtype, DType::F32);
  folder.write("model.safetensors", fileOf(tensorsOf(spec)));
  const auto read = readHfFolder(folder.path());
  ASSERT_TRUE(read.ok()) << messageOf(read);
  EXPECT_EQ(read->spec.dtype, DType::BF16);
}

TEST(HfFolder, RefusesACheckpointThatLacksATensorBeforeAnythingIsPlanned) {
  const TempFolder folder;
  Tensors tensors = tensorsOf(tinyLlama());
  tensors.erase("model.layers.1.input_layernorm.weight");
  folder.write("config.json", configOf(tinyLlama()).dump());
  folder.write("model.safetensors", fileOf(tensors));
  EXPECT_REFUSED(readHfFolder(folder.path()), absl::StatusCode::kNotFound,
                 folder.path() + ": tensor \"model.layers.1.input_layernorm.weight\" (or "
                                 "\"layers.1.input_layernorm.weight\") is missing: expected it in model.safetensors");
  tensors.erase("model.embed_tokens.weight");
  folder.write("model.safetensors", fileOf(tensors));
  EXPECT_THAT(messageOf(readHfFolder(folder.path())), testing::HasSubstr("\"model.embed_tokens.weight\""));
}

// What a checkpoint has beyond its model.
absl::StatusOr<std::vector<std::string>> check(const TempFolder &folder, const ModelSpec &spec,
                                               const Tensors &tensors) {
  folder.write("model.safetensors", fileOf(tensors));
  return checkCheckpoint(**CheckpointFiles::open(folder.path()), spec, layoutWeights(spec));
}

TEST(CheckCheckpoint, SaysNothingOfWhatRealCheckpointsHave) {
  const TempFolder folder;
  Tensors tensors = tensorsOf(tinyOpt());
  tensors["lm_head.weight"] = tensors["model.decoder.embed_tokens.weight"]; // tied, and the same
  tensors["model.decoder.version"] = {"F32", {1}, std::string(4, 'x')};
  tensors["model.layers.1.self_attn.rotary_emb.inv_freq"] = {"F32", {2}, std::string(8, 'x')};
  tensors["model.embeddings.position_ids"] = {"I64", {1}, std::string(8, 'x')};
  const auto notes = check(folder, tinyOpt(), tensors);
  ASSERT_TRUE(notes.ok()) << messageOf(notes);
  EXPECT_THAT(*notes, testing::IsEmpty());
}

TEST(CheckCheckpoint, NamesTensorsThatNothingUses) {
  const TempFolder folder;
  Tensors tensors = tensorsOf(tinyLlama());
  const Stored one{"F32", {1}, std::string(4, 'x')};
  tensors["model.layers.0.self_attn.q_proj.bias"] = one;
  EXPECT_EQ(*check(folder, tinyLlama(), tensors),
            (std::vector<std::string>{folder.path() + ": 1 tensor that no llama model of this config.json uses: "
                                                      "model.layers.0.self_attn.q_proj.bias"}));
  for (const char *name : {"score.weight", "b", "model.vision_layers.9.weight", "a\\n"})
    tensors[name] = one;
  EXPECT_EQ(*check(folder, tinyLlama(), tensors),
            (std::vector<std::string>{folder.path() + ": 5 tensors that no llama model of this config.json uses: a\\n, "
                                                      "b, model.layers.0.self_attn.q_proj.bias and 2 more"}));
}

TEST(CheckCheckpoint, RefusesLayersBeyondTheConfigs) {
  const TempFolder folder;
  ModelSpec fewer = tinyOpt();
  fewer.layers = 1;
  EXPECT_REFUSED(check(folder, fewer, tensorsOf(tinyOpt())), absl::StatusCode::kInvalidArgument,
                 folder.file("model.safetensors") +
                     ": tensor \"model.decoder.layers.1.fc1.bias\": expected no layer beyond 0, as config.json says "
                     "num_hidden_layers = 1; the checkpoint has layers 0 to 1");
  // By their bare names too, and in more digits.
  Tensors tensors = tensorsOf(tinyLlama());
  tensors["layers.10.mlp.up_proj.weight"] = {"F32", {1}, std::string(4, 'x')};
  EXPECT_THAT(messageOf(check(folder, tinyLlama(), tensors)), testing::EndsWith("the checkpoint has layers 0 to 10"));
}

TEST(CheckCheckpoint, RefusesATiedHeadThatIsNotTheTable) {
  const TempFolder folder;
  Tensors tensors = tensorsOf(tinyOpt());
  Stored &head = tensors["lm_head.weight"] = tensors["model.decoder.embed_tokens.weight"];
  const std::string where = folder.file("model.safetensors") + ": tensor \"lm_head.weight\" ";
  const std::string rest = "model.decoder.embed_tokens.weight, and config.json ties them: expected "
                           "tie_word_embeddings = false, or the table's values";
  head.bytes[34 * 12 * 4] ^= 1; // the last of 35 rows
  EXPECT_REFUSED(check(folder, tinyOpt(), tensors), absl::StatusCode::kInvalidArgument,
                 where + "differs in row 34 from " + rest);
  head.bytes[0] ^= 1;
  EXPECT_THAT(messageOf(check(folder, tinyOpt(), tensors)), testing::HasSubstr("differs in row 0 from"));
  head = {"F32", {12, 35}, head.bytes};
  EXPECT_REFUSED(check(folder, tinyOpt(), tensors), absl::StatusCode::kInvalidArgument,
                 where + "has not the shape and type of " + rest);
}

// One value of a tensor, in its place among q, k and v, for every type and both orders.
TEST(Checkpoint, NamesTensorsWithValuesThatAreNotFinite) {
  for (DType dtype : {DType::F32, DType::F16, DType::BF16})
    for (MatrixOrder order : {MatrixOrder::RowMajor, MatrixOrder::Panel16}) {
      ModelSpec spec = tinyLlama();
      spec.dtype = dtype;
      Tensors tensors = tensorsOf(spec);
      const uint64_t size = dtypeBytes(dtype);
      const auto put = [&](const char *name, size_t index, float value) {
        tensors[name].bytes.replace(index * size, size, encode(dtype, {value}));
      };
      put("model.layers.1.self_attn.k_proj.weight", 2 * 12 + 5, INFINITY); // [4, 12]
      put("model.layers.1.self_attn.k_proj.weight", 3 * 12 + 11, -INFINITY);
      put("model.layers.0.post_attention_layernorm.weight", 7, NAN);
      put("model.embed_tokens.weight", 34 * 12, NAN);
      const TempFolder folder;
      folder.write("model.safetensors", fileOf(tensors));
      std::vector<std::string> said;
      const WeightLayout layout = layoutWeights(spec);
      const auto source = openCheckpoint(*CheckpointFiles::open(folder.path()), layout,
                                         [&](const std::string &line) { said.push_back(line); });
      ASSERT_TRUE(source.ok()) << messageOf(source);
      EXPECT_THAT(said, testing::IsEmpty()); // nothing was read yet
      for (const Unit &unit : layout.units) {
        std::vector<std::byte> bytes(unit.bytes);
        ASSERT_TRUE((*source)->fill(unit, order, absl::MakeSpan(bytes)).ok());
      }
      const std::string where = folder.file("model.safetensors") + ": tensor \"model.";
      EXPECT_EQ(said,
                (std::vector<std::string>{
                    where + "embed_tokens.weight\": 1 value is not finite (NaN or infinite), the first at [34, 0]",
                    where + "layers.0.post_attention_layernorm.weight\": 1 value is not finite (NaN or "
                            "infinite), the first at [7]",
                    where + "layers.1.self_attn.k_proj.weight\": 2 values are not finite (NaN or infinite), "
                            "the first at [2, 5]"}));
    }
}

TEST(HashCheckpoint, FollowsEveryUnitsBytesAlone) {
  const TempFolder folder;
  const WeightLayout layout = layoutWeights(tinyLlama());
  Tensors tensors = tensorsOf(tinyLlama());
  const auto hashes = [&] {
    folder.write("model.safetensors", fileOf(tensors));
    return *hashCheckpoint(**CheckpointFiles::open(folder.path()), layout, nullptr);
  };
  const std::vector<uint64_t> before = hashes();
  ASSERT_EQ(before.size(), 10u); // embedding, 2 layers of 4, head
  tensors["unused"] = {"F32", {1}, std::string(4, 'x')};
  EXPECT_EQ(hashes(), before);
  tensors["model.layers.1.mlp.gate_proj.weight"].bytes[100] ^= 1; // unit 1 + 4 + 2
  const std::vector<uint64_t> after = hashes();
  for (size_t u = 0; u < before.size(); ++u)
    EXPECT_EQ(after[u] == before[u], u != 7) << layout.units[u].name;
  // The same bytes in other files are the same weights.
  std::filesystem::remove(folder.file("model.safetensors"));
  writeSharded(folder, tensors);
  EXPECT_EQ(*hashCheckpoint(**CheckpointFiles::open(folder.path()), layout, nullptr), after);
}

} // namespace
} // namespace headrace::model
