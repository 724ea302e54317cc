// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/RecordFile.h"

#include <filesystem>

#include <rapidcheck.h>

#include "runtime/model/ModelSpec.h"
#include "tests/support/TestFiles.h"
#include "tests/unit/cost/Records.h"

namespace headrace::cost {
namespace {

using model::codeOf;
using model::messageOf;
using model::TempFolder;
using testing::HasSubstr;
using testing::StartsWith;

Record example() {
  const Roofline truth(smallLlama(), roundHardware(), model::DType::F32, model::DType::F16);
  return measured(emptyRecord(smallLlama(), {1, 2}, {2, 4}), truth, {1000, 1'000'000});
}

std::string replaced(std::string text, const std::string &from, const std::string &to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(RecordFile, TextComesBackAsTheSameRecord) {
  Record record = example();
  record.identity.model = "odd \"name\"\\\n\x01 ü";
  record.hardware.copyLatency = 1.0 / 3;
  record.hardware.h2dBandwidth = record.hardware.d2hBandwidth = 0.1;
  record.hardware.duplexBandwidth = 0.15;
  record.cells[0].at(Site::Up) = {20, 10, 30};
  record.mostTokens = {16, cost::kAnyTokens};
  record.layersRun = 1;
  record.interference = {7, {100, 90, 110}, {120, 100, 140}, {5, 0, 9}};
  record.spread = {300, {900, 905, 960}, {1000, 1010, 1234}};
  record.loading = {12'000, 9000};
  const auto again = parseRecord(recordText(record), "r.toml");
  ASSERT_TRUE(again.ok()) << messageOf(again);
  EXPECT_EQ(recordText(*again), recordText(record));
  EXPECT_EQ(again->loading, (cost::MeasuredLoading{12'000, 9000}));
  EXPECT_EQ(again->identity.model, record.identity.model);
  EXPECT_EQ(again->model->intermediate, record.model->intermediate);
  EXPECT_EQ(again->mostTokens, record.mostTokens);
  EXPECT_EQ(again->layersRun, 1);
  EXPECT_EQ(again->interference.repetitions, 7u);
  EXPECT_EQ(again->interference.computeAlone, (Timing{100, 90, 110}));
  EXPECT_EQ(again->interference.computeBeside, (Timing{120, 100, 140}));
  EXPECT_EQ(again->interference.copyStart, (Timing{5, 0, 9}));
  EXPECT_EQ(again->spread.repetitions, 300u);
  EXPECT_EQ(again->spread.resident, (cost::MeasuredSpread::Iterations{900, 905, 960}));
  EXPECT_EQ(again->spread.waiting, (cost::MeasuredSpread::Iterations{1000, 1010, 1234}));
  EXPECT_EQ(again->hardware.copyLatency, 1.0 / 3);
  EXPECT_EQ(again->cells[0].at(Site::Up), (Timing{20, 10, 30}));
  EXPECT_EQ(again->cells.size(), 8u);
  EXPECT_EQ(again->transfers[1].both, record.transfers[1].both);
}

TEST(RecordFile, KeepsTheTimesOfUnequalLayers) {
  Record record = example();
  record.layersEqual = false;
  for (Cell &cell : record.cells)
    cell.layerNs = {7, 9};
  const auto again = parseRecord(recordText(record), "r.toml");
  ASSERT_TRUE(again.ok()) << messageOf(again);
  EXPECT_FALSE(again->layersEqual);
  EXPECT_THAT(again->cells[3].layerNs, testing::ElementsAre(7, 9));
}

// A record to look times up in.
absl::StatusOr<Record> readRecordFor(const Identity &expected, const std::string &path) {
  absl::StatusOr<Record> record = readRecord(path);
  absl::Status status = record.status();
  if (status.ok())
    status = checkIdentity(*record, expected, path);
  if (status.ok())
    status = checkComplete(*record, path);
  return status.ok() ? std::move(record) : status;
}

TEST(RecordFile, APartialRecordLoadsAndCanBeFinished) {
  TempFolder folder;
  const Roofline truth(smallLlama(), roundHardware(), model::DType::F32, model::DType::F16);
  const Record whole = example();
  Record partial = whole;
  partial.cells.resize(3);
  const std::string path = folder.file("record.toml");
  ASSERT_TRUE(writeRecord(partial, path).ok());
  EXPECT_THAT(messageOf(readRecordFor(whole.identity, path)),
              HasSubstr("record.toml: the grid has holes: 5 of 8 cells are missing, first prefill batch 2 sequence 4"));
  auto resumed = readRecord(path);
  ASSERT_TRUE(resumed.ok()) << messageOf(resumed);
  EXPECT_EQ(missingCells(*resumed).size(), 5u);
  ASSERT_TRUE(writeRecord(measured(*resumed, truth, {}), path).ok());
  const auto finished = readRecordFor(whole.identity, path);
  ASSERT_TRUE(finished.ok()) << messageOf(finished);
  EXPECT_EQ(recordText(*finished), recordText(whole));
}

TEST(RecordFile, NothingMeasuredYetIsARecordToo) {
  const auto read = parseRecord(recordText(emptyRecord(smallLlama(), {1}, {1})), "r");
  ASSERT_TRUE(read.ok()) << messageOf(read);
  EXPECT_EQ(missingCells(*read).size(), 2u);
}

TEST(RecordFile, RefusesAnotherModelDeviceOrVersion) {
  TempFolder folder;
  const Record record = example();
  const std::string path = folder.write("r.toml", recordText(record));
  Identity other = record.identity;
  other.modelHash = "ffff";
  EXPECT_THAT(messageOf(readRecordFor(other, path)), HasSubstr("model_hash = abc123: this record is of another model"));
  other = record.identity;
  other.device = "elsewhere";
  EXPECT_THAT(messageOf(readRecordFor(other, path)), HasSubstr("device = one: this record is of another device"));
  EXPECT_EQ(messageOf(parseRecord(replaced(recordText(record), "version = 1", "version = 2"), "r.toml")),
            "r.toml:3: version = 2: expected an integer from 1 to 1");
  // Whatever else such a file holds.
  EXPECT_THAT(messageOf(parseRecord("format = \"headrace performance record\"\nversion = 9\nnew_key = 1\n", "r.toml")),
              StartsWith("r.toml:2: version = 9"));
  EXPECT_THAT(messageOf(parseRecord("format = \"something else\"\n", "r.toml")),
              StartsWith("r.toml:1: format = \"something else\": expected \"headrace performance record\""));
}

TEST(RecordFile, RefusesBadValuesByKey) {
  Record record = example();
  record.interference = {7, {100, 90, 110}, {120, 100, 140}, {5, 0, 9}};
  record.spread = {300, {900, 905, 960}, {1000, 1010, 1234}};
  record.loading = {12'000, 9000};
  const std::string good = recordText(record);
  const std::string qkv =
      good.substr(good.find("qkv = ["), good.find(']', good.find("qkv = [")) + 1 - good.find("qkv = ["));
  const std::tuple<std::string, std::string, const char *> faults[] = {
      {qkv, "qkv = [-5, -6, -4]", "cell.qkv = [-5, -6, -4]: expected a list of integers from 0 to"},
      {qkv, "qkv = [nan, 1, 1]", "cell.qkv = [nan, 1, 1]: expected a list of integers"},
      {qkv, "qkv = [1.5, 1, 2]", "cell.qkv = [1.5, 1, 2]: expected a list of integers"},
      {qkv, "qkv = [5, 5]", "cell.qkv = [5, 5]: expected [median, p10, p90] in ns"},
      {qkv, "qkv = [5, 6, 7]", "prefill batch 1 sequence 2: qkv = [5, 6, 7]: expected median, p10, p90"},
      {qkv, "", "cell.qkv is missing: expected [median, p10, p90] in ns"},
      {qkv, qkv + "\nquv = 1", "cell.quv: unknown key"},
      {"phase = \"prefill\"", "phase = \"both\"", "cell.phase = \"both\": expected \"prefill\" or \"decode\""},
      {"batch = [1, 2]", "batch = [1, 3]", "grid.batch: expected powers of two"},
      {"batch = [1, 2]", "batch = [2]", "prefill batch 1 sequence 2: not on the record's grid"},
      {"layers = 2", "layers = 0", "identity.layers = 0: expected an integer from 1 to 2000"},
      {"kv = \"f16\"", "kv = \"int4\"",
       "identity.kv = \"int4\": expected \"f32\", \"f16\", \"bf16\", \"q8\", \"q8:32\", \"q4\" or \"q4:32\""},
      {"bytes = 1000\n", "bytes = 0\n", "transfer.bytes = 0: expected an integer from 1"},
      {"h2d_bandwidth = \"10B/s\"", "h2d_bandwidth = nan", "hardware.h2d_bandwidth = nan: expected a finite number"},
      {"[hardware]", "[hardware2]", "hardware is missing"},
      {"[model]", "[model2]", "model is missing"},
      {"vocab = 96", "vocab = -1", "model.vocab = -1: expected an integer from 1"},
      {"layers_run = 2", "", "grid.layers_run is missing"},
      {"layers_run = 2", "prefill_tokens = 0\nlayers_run = 2", "grid.prefill_tokens = 0: expected an integer from 1"},
      {"repetitions = 7\n", "repetitions = 0\n", "interference.repetitions = 0: expected an integer from 1"},
      {"copy_start = [5, 0, 9]\n", "", "interference.copy_start is missing: expected [median, p10, p90] in ns"},
      {"copy_start = [5, 0, 9]", "copy_start = [5, 0, 4]", "interference.copy_start = [5, 0, 4]: expected median, p10"},
      {"compute_alone = [100, 90, 110]", "compute_alone = [0, 0, 0]", "interference: expected an iteration's times"},
      {"[interference]", "[interfere]", "interfere: unknown key"},
      {"waiting = [1000, 1010, 1234]\n", "", "spread.waiting is missing: expected [predicted, median, p99] in ns"},
      {"waiting = [1000, 1010, 1234]", "waiting = [1000, 1010]", "spread.waiting = [1000, 1010]: expected [predicted"},
      {"waiting = [1000, 1010, 1234]", "waiting = [1000, 1010, 1009]",
       "spread.waiting = [1000, 1010, 1009]: expected a p99 of at least the median"},
      {"resident = [900, 905, 960]", "resident = [0, 905, 960]", "spread.resident = [0, 905, 960]: expected a list of"},
      {"resident = [900, 905, 960]", "resident = nan", "spread.resident = nan: expected"},
      {"repetitions = 300", "repetitions = 0", "spread.repetitions = 0: expected an integer from 1"},
      {"ns = 9000\n", "ns = 0\n", "loading.ns = 0: expected an integer from 1"},
      {"bytes = 12000\n", "", "loading.bytes is missing: expected an integer from 1"},
      {"cells = 8", "cells = 9", "end.cells = 9: expected an integer from 8 to 8"},
  };
  for (const auto &[from, to, message] : faults) {
    const auto refused = parseRecord(replaced(good, from, to), "r");
    EXPECT_EQ(codeOf(refused), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(messageOf(refused), HasSubstr(message));
  }
  EXPECT_THAT(messageOf(parseRecord("format = \"headrace performance record\"\nversion = 1\ncell = 3\n"
                                    "identity = 4\n",
                                    "r")),
              HasSubstr("identity = 4: expected a table"));
}

TEST(RecordFile, RecordsThatWereWrittenWithoutUnitsAreRead) {
  const std::string text = recordText(example());
  const std::string bare = replaced(text, "h2d_bandwidth = \"10B/s\"", "h2d_bandwidth = 10.0");
  const auto read = parseRecord(bare, "r");
  ASSERT_TRUE(read.ok()) << messageOf(read);
  EXPECT_EQ(recordText(*read), text);
}

TEST(RecordFile, EveryTruncationIsRefused) {
  const std::string good = recordText(example());
  const size_t last = good.find("cells = 8") + 9; // what follows is a line's end
  for (size_t length = 0; length < last; length += 1 + (length % 37)) {
    const auto refused = parseRecord(good.substr(0, length), "r");
    EXPECT_EQ(codeOf(refused), absl::StatusCode::kInvalidArgument) << length;
  }
  EXPECT_THAT(messageOf(parseRecord(good.substr(0, good.find("[end]")), "r")), HasSubstr("was cut off"));
}

TEST(RecordFile, ChangedBytesNeverCrash) {
  const std::string good = recordText(example());
  EXPECT_TRUE(rc::check([&] {
    std::string text = good;
    for (int i = *rc::gen::inRange(1, 6); i > 0; --i)
      text[*rc::gen::inRange<size_t>(0, text.size())] = *rc::gen::elementOf(std::string("0123456789-.[]\"=\n ex"));
    const auto read = parseRecord(text, "r");
    if (read.ok()) { // whatever was accepted can be written and read again
      const std::string again = recordText(*read);
      RC_ASSERT(recordText(parseRecord(again, "r").value()) == again);
    } else {
      RC_ASSERT(codeOf(read) == absl::StatusCode::kInvalidArgument);
    }
  }));
}

TEST(RecordFile, WritesBesideAndRenames) {
  TempFolder folder;
  const Record record = example();
  const std::string path = folder.file("record.toml");
  ASSERT_TRUE(writeRecord(record, path).ok());
  Record bad = record;
  bad.cells[0].batch = 3;
  EXPECT_EQ(writeRecord(bad, path).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(readRecord(path).ok()); // the old one, whole
  size_t files = 0;
  for ([[maybe_unused]] const auto &entry : std::filesystem::directory_iterator(folder.path()))
    ++files;
  EXPECT_EQ(files, 1u);
  EXPECT_EQ(writeRecord(record, folder.file("none/record.toml")).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(writeRecord(record, folder.path()).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(codeOf(readRecord(folder.file("absent.toml"))), absl::StatusCode::kNotFound);
}

TEST(RecordFile, ReplacesWhatALinkLeadsTo) {
  TempFolder folder;
  const std::string target = folder.write("real.toml", "old"), link = folder.file("link.toml");
  std::filesystem::create_symlink(target, link);
  ASSERT_TRUE(writeRecord(example(), link).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_TRUE(readRecord(target).ok());
}

} // namespace
} // namespace headrace::cost
