// SPDX-License-Identifier: Apache-2.0
//
// fillBy(): what several threads make of a unit is what one makes of it, byte for byte and word for word.
#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <thread>

#include "runtime/model/CheckpointFiles.h"
#include "runtime/model/WeightSource.h"
#include "tests/support/TestFiles.h"

namespace headrace::model {
namespace {

constexpr int kTeams[] = {1, 2, 3, 8};

// So many threads, each of which takes the next piece.
struct Team {
  int threads;
  void operator()(int64_t count, absl::FunctionRef<void(int64_t)> f) const {
    std::atomic<int64_t> next{0};
    const auto take = [&] {
      for (int64_t i; (i = next.fetch_add(1)) < count;)
        f(i);
    };
    std::vector<std::thread> helpers;
    for (int i = 1; i < threads; ++i)
      helpers.emplace_back(take);
    take();
    for (std::thread &helper : helpers)
      helper.join();
  }
};

void lastFirst(int64_t count, absl::FunctionRef<void(int64_t)> f) {
  for (int64_t i = count; i-- > 0;)
    f(i);
}

// Its largest matrices are several pieces, the last of them not a whole one, and end within a panel: gate and up have
// 806 rows of 132 (1,050 KB of BF16 are 5 pieces of 64 KiB elements or 256 KiB), the table 1,001.
ModelSpec severalPieces(DType dtype) {
  ModelSpec spec = tinyLlama();
  spec.layers = 1;
  spec.hidden = 660; // three heads of 220
  spec.headDim = 220;
  spec.intermediate = 403;
  spec.vocab = 1001;
  spec.dtype = dtype;
  return spec;
}

// A checkpoint of small numbers: a tensor's element i is 1 + i % 100, halves for 16-bit types included.
std::string checkpointOf(const ModelSpec &spec) {
  SafetensorsWriter writer;
  for (const Unit &unit : layoutWeights(spec).units)
    for (const Tensor &tensor : unit.tensors)
      for (size_t i = 0; i < tensor.sources.size(); ++i) {
        const auto count = static_cast<size_t>(tensor.sourceRows[i] * tensor.cols);
        std::string bytes;
        if (spec.dtype == DType::F32) {
          std::vector<float> values(count);
          for (size_t e = 0; e < count; ++e)
            values[e] = static_cast<float>(1 + e % 1000);
          bytes = bytesOf(values);
        } else {
          std::vector<uint16_t> values(count);
          for (size_t e = 0; e < count; ++e)
            values[e] = static_cast<uint16_t>(0x3000 + e % 1000);
          bytes = bytesOf(values);
        }
        writer.add(tensor.sources[i],
                   spec.dtype == DType::F32   ? "F32"
                   : spec.dtype == DType::F16 ? "F16"
                                              : "BF16",
                   isMatrix(tensor.role) ? std::vector<int64_t>{tensor.sourceRows[i], tensor.cols}
                                         : std::vector<int64_t>{tensor.sourceRows[i]},
                   bytes);
      }
  return writer.file();
}

std::unique_ptr<WeightSource> opened(const TempFolder &folder, const ModelSpec &spec, Warn warn = {}) {
  const auto files = CheckpointFiles::open(folder.path());
  EXPECT_TRUE(files.ok()) << messageOf(files);
  auto source = openCheckpoint(*files, layoutWeights(spec), std::move(warn));
  EXPECT_TRUE(source.ok()) << messageOf(source);
  return *std::move(source);
}

// A unit as fillBy() leaves it, and what it says.
struct Filled {
  std::vector<std::byte> bytes;
  absl::Status status;
};
Filled filledBy(const WeightSource &source, Each each, const Unit &unit, MatrixOrder order) {
  Filled filled{std::vector<std::byte>(unit.bytes, std::byte{0xCD}), {}};
  filled.status = source.fillBy(each, unit, order, absl::MakeSpan(filled.bytes));
  return filled;
}

void expectSameByAll(const WeightSource &source, const ModelSpec &spec) {
  for (const Unit &unit : layoutWeights(spec).units)
    for (const MatrixOrder order : {MatrixOrder::RowMajor, MatrixOrder::Panel16}) {
      std::vector<std::byte> byOne(unit.bytes, std::byte{0xCD});
      ASSERT_TRUE(source.fill(unit, order, absl::MakeSpan(byOne)).ok());
      const auto expectSame = [&](Each each) {
        const Filled filled = filledBy(source, each, unit, order);
        EXPECT_TRUE(filled.status.ok()) << filled.status;
        EXPECT_TRUE(filled.bytes == byOne) << unit.name;
      };
      for (const int threads : kTeams)
        expectSame(Team{threads});
      expectSame(lastFirst);
    }
}

TEST(FillByThreads, ACheckpointsUnitsAreTheSameBytes) {
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    const ModelSpec spec = severalPieces(dtype);
    const TempFolder folder;
    folder.write("model.safetensors", checkpointOf(spec));
    expectSameByAll(*opened(folder, spec), spec);
  }
}

TEST(FillByThreads, UnitsFromASeedAreTheSameBytes) {
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16})
    expectSameByAll(*syntheticWeights(7), severalPieces(dtype));
}

// The file ends in the middle of the table, whose later pieces are not there either: each has a message of its own.
TEST(FillByThreads, TheErrorIsTheFirstPiecesThatHasOne) {
  const ModelSpec spec = severalPieces(DType::BF16);
  const TempFolder folder;
  const std::string path = folder.write("model.safetensors", checkpointOf(spec));
  const auto source = opened(folder, spec);
  const Unit table = layoutWeights(spec).units[0];
  const uint64_t dataOffset = (*CheckpointFiles::open(folder.path()))->files().front()->header().dataOffset;
  std::filesystem::resize_file(path, dataOffset + 600'000); // of 1,001 x 660 x 2 = 1,321,320
  for (const MatrixOrder order : {MatrixOrder::RowMajor, MatrixOrder::Panel16}) {
    std::vector<std::byte> room(table.bytes);
    const absl::Status byOne = source->fill(table, order, absl::MakeSpan(room));
    EXPECT_EQ(byOne.code(), absl::StatusCode::kDataLoss);
    for (const int threads : kTeams)
      EXPECT_EQ(filledBy(*source, Team{threads}, table, order).status, byOne) << threads;
    EXPECT_EQ(filledBy(*source, lastFirst, table, order).status, byOne);
  }
}

// Two tensors of a unit, in their order, on the thread that asked.
TEST(FillByThreads, WarningsAreTheSame) {
  const ModelSpec spec = severalPieces(DType::F32);
  std::string file = checkpointOf(spec);
  const TempFolder folder;
  const std::string path = folder.write("model.safetensors", file);
  const uint64_t dataOffset = (*CheckpointFiles::open(folder.path()))->files().front()->header().dataOffset;
  const auto put = [&](uint64_t element) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(file.data() + dataOffset + element * sizeof(nan), &nan, sizeof(nan));
  };
  put(2 * 660 + 3);
  put(1000 * 660 + 659); // of the first piece and of the last
  folder.write("model.safetensors", file);
  std::vector<std::string> said;
  const std::thread::id asker = std::this_thread::get_id();
  const auto source = opened(folder, spec, [&](const std::string &line) {
    EXPECT_EQ(std::this_thread::get_id(), asker);
    said.push_back(line);
  });
  const Unit table = layoutWeights(spec).units[0];
  for (const int threads : kTeams) {
    said.clear();
    EXPECT_TRUE(filledBy(*source, Team{threads}, table, MatrixOrder::Panel16).status.ok());
    EXPECT_EQ(said, std::vector<std::string>{path + ": tensor \"model.embed_tokens.weight\": 2 values are not finite "
                                                    "(NaN or infinite), the first at [2, 3]"});
  }
}

TEST(EachPiece, EndsWithTheFirstErrorByNumberAndAllBeforeItAreDone) {
  const auto expectThird = [](Each each) {
    std::atomic<int> before{0};
    const absl::Status status = eachPiece(each, 10, [&](int64_t i) {
      before += i < 3 ? 1 : 0;
      return i < 3 ? absl::OkStatus() : absl::DataLossError("piece " + std::to_string(i));
    });
    EXPECT_EQ(status, absl::DataLossError("piece 3"));
    EXPECT_EQ(before.load(), 3);
  };
  for (const int threads : kTeams)
    expectThird(Team{threads});
  expectThird(lastFirst);
  EXPECT_TRUE(eachPiece(lastFirst, 0, [](int64_t) { return absl::DataLossError("none"); }).ok());
}

} // namespace
} // namespace headrace::model
