// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/RecordFile.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "runtime/base/FileIo.h"
#include "runtime/base/ReplaceFile.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/base/TomlReader.h"
#include "runtime/job/TomlText.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/Shape.h"

namespace headrace::cost {
namespace {

using model::cat;
using model::TomlReader;
using model::TomlValue;

constexpr std::string_view kFormat = "headrace performance record";
constexpr uint64_t kLargestFile = uint64_t{16} << 20; // 100 pairs in two phases are 150 KiB
constexpr int64_t kLongest = static_cast<int64_t>(kLongestStepNs);

// A list of counts, as TOML.
template <class T> std::string listOf(const std::vector<T> &values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i)
    text += cat(i == 0 ? "" : ", ", values[i]);
  return text + "]";
}

std::string spreadText(std::string_view key, const MeasuredSpread::Iterations &measured) {
  return cat(key, " = [", measured.predictedNs, ", ", measured.medianNs, ", ", measured.slowestNs, "]\n");
}

std::string timingText(std::string_view key, const Timing &t) {
  return cat(key, " = [", t.medianNs, ", ", t.p10Ns, ", ", t.p90Ns, "]\n");
}

// A line's table in the file: its name, or the one that records had for it until keys and values were rebuilt.
std::string_view keyOf(const TomlReader &regression, LineKind kind) {
  constexpr std::string_view kFormer = "recompute_kv";
  const bool former = kind == LineKind::RebuildKv && !regression.has(lineName(kind)) && regression.has(kFormer);
  return former ? kFormer : lineName(kind);
}

// What a reader wants to know of the samples stands in the header's comment: nothing is in the file twice.
std::string lineText(LineKind kind, const std::vector<MeasuredLines::Sample> &samples) {
  const absl::StatusOr<Line> line = fitLine(samples, "");
  std::string text = cat("\n[regression.", lineName(kind), "] # ns of a layer",
                         line.ok() ? absl::StrFormat(" = %.1f + %.4f x tokens, R^2 %.4f, fitted to every other count",
                                                     line->interceptNs, line->slopeNsPerToken, line->r2)
                                   : "",
                         "\n");
  const auto list = [&](std::string_view key, auto value) {
    std::vector<uint64_t> values(samples.size());
    std::transform(samples.begin(), samples.end(), values.begin(), value);
    text += cat(key, " = ", listOf(values), "\n");
  };
  list("tokens", [](const auto &sample) { return static_cast<uint64_t>(sample.tokens); });
  list("median", [](const auto &sample) { return sample.timing.medianNs; });
  list("p10", [](const auto &sample) { return sample.timing.p10Ns; });
  list("p90", [](const auto &sample) { return sample.timing.p90Ns; });
  return text;
}

// The value of a key that must be there.
template <class T>
T need(TomlReader &table, std::string_view key, const std::optional<T> &value, std::string_view expected) {
  if (!value && table.ok())
    table.refuse(key, expected);
  return value.value_or(T{});
}

int64_t needInteger(TomlReader &table, std::string_view key, int64_t least, int64_t most) {
  return need(table, key, table.integer(key, least, most), cat("an integer from ", least, " to ", most));
}

Timing needTiming(TomlReader &table, std::string_view key) {
  constexpr std::string_view kExpected = "[median, p10, p90] in ns";
  const auto values = need(table, key, table.integers(key, 0, kLongest), kExpected);
  if (values.size() != 3) {
    if (table.ok())
      table.refuse(key, kExpected);
    return {};
  }
  return {static_cast<uint64_t>(values[0]), static_cast<uint64_t>(values[1]), static_cast<uint64_t>(values[2])};
}

uint32_t needRepetitions(TomlReader &table) {
  return static_cast<uint32_t>(needInteger(table, "repetitions", 1, std::numeric_limits<uint32_t>::max()));
}

MeasuredSpread::Iterations needSpread(TomlReader &table, std::string_view key) {
  constexpr std::string_view kExpected = "[predicted, median, p99] in ns, each from 1";
  const auto values = need(table, key, table.integers(key, 1, kLongest), kExpected);
  if (values.size() == 3)
    return {static_cast<uint64_t>(values[0]), static_cast<uint64_t>(values[1]), static_cast<uint64_t>(values[2])};
  if (table.ok())
    table.refuse(key, kExpected);
  return {};
}

Identity readIdentity(TomlReader &table) {
  Identity id;
  constexpr std::string_view kTypes = "\"f32\", \"f16\" or \"bf16\"";
  id.model = need(table, "model", table.text("model"), "a name");
  id.modelHash = need(table, "model_hash", table.text("model_hash"), "a hash");
  id.device = need(table, "device", table.text("device"), "a name");
  id.kind = need(table, "device_kind", table.oneOf("device_kind", model::deviceKindFromName, "\"cuda\" or \"host\""),
                 "\"cuda\" or \"host\"");
  id.activation = need(table, "activation", table.oneOf("activation", model::dtypeFromName, kTypes), kTypes);
  constexpr std::string_view kEncodings = "\"f32\", \"f16\", \"bf16\", \"q8\", \"q8:32\", \"q4\" or \"q4:32\"";
  id.kv = need(table, "kv", table.oneOf("kv", model::encodingFromText, kEncodings), kEncodings);
  id.layers = needInteger(table, "layers", 1, model::kMaxLayers);
  id.layerBytes =
      static_cast<uint64_t>(needInteger(table, "layer_bytes", 1, static_cast<int64_t>(model::kMaxWeightBytes)));
  return id;
}

Transfer readTransfer(TomlReader &table) {
  Transfer t;
  t.bytes = static_cast<uint64_t>(needInteger(table, "bytes", 1, static_cast<int64_t>(model::kMaxWeightBytes)));
  t.repetitions = needRepetitions(table);
  t.h2d = needTiming(table, "h2d");
  t.d2h = needTiming(table, "d2h");
  t.h2dWithCompute = needTiming(table, "h2d_with_compute");
  t.d2hWithCompute = needTiming(table, "d2h_with_compute");
  t.both = needTiming(table, "both");
  return t;
}

Cell readCell(TomlReader &table) {
  Cell cell;
  cell.phase = need(table, "phase", table.oneOf("phase", phaseFromName, "\"prefill\" or \"decode\""),
                    "\"prefill\" or \"decode\"");
  cell.batch = needInteger(table, "batch", 1, int64_t{1} << 30);
  cell.sequence = needInteger(table, "sequence", 1, int64_t{1} << 30);
  cell.repetitions = needRepetitions(table);
  for (int s = 0; s < kSites; ++s)
    cell.sites[static_cast<size_t>(s)] = needTiming(table, siteName(static_cast<Site>(s)));
  for (int64_t ns : table.integers("layer_ns", 1, kLongest).value_or(std::vector<int64_t>{}))
    cell.layerNs.push_back(static_cast<uint64_t>(ns));
  return cell;
}

// One of the tables in [regression].
absl::Status readLine(TomlReader &table, std::vector<MeasuredLines::Sample> &samples) {
  const std::vector<int64_t> tokens =
      need(table, "tokens", table.integers("tokens", 1, kAnyTokens), "a list of counts of tokens");
  const auto times = [&](std::string_view key) {
    const std::string expected = cat("a list of ", tokens.size(), " times in ns, one a count of tokens");
    std::vector<int64_t> values = need(table, key, table.integers(key, 0, kLongest), expected);
    if (values.size() != tokens.size() && table.ok())
      table.refuse(key, expected);
    values.resize(tokens.size());
    return values;
  };
  const std::vector<int64_t> median = times("median"), p10 = times("p10"), p90 = times("p90");
  for (size_t i = 0; i < tokens.size(); ++i)
    samples.push_back(
        {tokens[i], {static_cast<uint64_t>(median[i]), static_cast<uint64_t>(p10[i]), static_cast<uint64_t>(p90[i])}});
  return table.finish();
}

// Reads each table of the list `key` ([[key]]); a record that has none yet lacks the key.
template <class T>
absl::Status readEach(TomlReader &file, const std::string &path, std::string_view key, T (*read)(TomlReader &),
                      std::vector<T> &out) {
  const TomlValue *list = file.value(key);
  if (list == nullptr)
    return absl::OkStatus();
  if (list->kind != TomlValue::Kind::Array) {
    file.refuse(key, cat("tables, [[", key, "]]"));
    return file.finish();
  }
  for (const TomlValue &item : list->items) {
    TomlReader table(item, path, key);
    if (!table.ok()) // not a table
      return table.finish();
    out.push_back(read(table));
    RETURN_IF_ERROR(table.finish());
  }
  return absl::OkStatus();
}

// Reads the table `key` ([key]), which must be there.
template <class Read>
absl::Status readOne(TomlReader &file, const std::string &path, std::string_view key, Read &&read) {
  const TomlValue *value = file.value(key);
  if (value == nullptr) {
    file.refuse(key, cat("a table, [", key, "]; a record without it was cut off"));
    return file.finish();
  }
  TomlReader table(*value, path, key);
  if (!table.ok())
    return table.finish();
  read(table);
  return table.finish();
}

} // namespace

std::string recordText(const Record &record) {
  const Identity &id = record.identity;
  std::string text = cat(
      "# What each part of an iteration and each copy takes, in ns. Written by `headrace profile`.\n", "format = \"",
      kFormat, "\"\nversion = ", kRecordVersion, "\n\n[identity]\nmodel = ", model::tomlText(id.model),
      "\nmodel_hash = ", model::tomlText(id.modelHash), "\ndevice = ", model::tomlText(id.device), "\ndevice_kind = \"",
      model::deviceKindName(id.kind), "\"\nactivation = \"", model::dtypeName(id.activation), "\"\nkv = \"",
      model::encodingText(id.kv), "\"\nlayers = ", id.layers, "\nlayer_bytes = ", id.layerBytes, "\n", "\n[model]\n",
      model::toToml(model::shapeEntries(record.model)), "\n[hardware]\n",
      model::toToml(model::hardwareEntries(record.hardware)), "\n[grid]\nbatch = ", listOf(record.batches),
      "\nsequence = ", listOf(record.sequences), "\n");
  for (Phase phase : {Phase::Prefill, Phase::Decode})
    if (const int64_t most = record.mostTokens[static_cast<size_t>(phase)]; most != kAnyTokens)
      text += cat(phaseName(phase), "_tokens = ", most, "\n");
  text += cat("layers_run = ", record.layersRun, "\nlayers_equal = ", record.layersEqual ? "true" : "false", "\n");
  for (const Transfer &t : record.transfers)
    text += cat("\n[[transfer]] # [median, p10, p90]\nbytes = ", t.bytes, "\nrepetitions = ", t.repetitions, "\n",
                timingText("h2d", t.h2d), timingText("d2h", t.d2h), timingText("h2d_with_compute", t.h2dWithCompute),
                timingText("d2h_with_compute", t.d2hWithCompute), timingText("both", t.both));
  if (const MeasuredInterference &measured = record.interference; measured.repetitions > 0)
    text += cat("\n[interference] # [median, p10, p90]\nrepetitions = ", measured.repetitions, "\n",
                timingText("compute_alone", measured.computeAlone),
                timingText("compute_beside", measured.computeBeside), timingText("copy_start", measured.copyStart));
  if (const MeasuredSpread &spread = record.spread; spread.repetitions > 0)
    text += cat("\n[spread] # [predicted, median, p99]\nrepetitions = ", spread.repetitions, "\n",
                spreadText("resident", spread.resident), spreadText("waiting", spread.waiting));
  if (record.loading.measured())
    text += cat("\n[loading]\nbytes = ", record.loading.bytes, "\nns = ", record.loading.ns, "\n");
  for (int kind = 0; record.lines.measured() && kind < kLines; ++kind)
    text += lineText(static_cast<LineKind>(kind), record.lines.samples[static_cast<size_t>(kind)]);
  for (const Cell &cell : record.cells) {
    text += cat("\n[[cell]] # [median, p10, p90]\nphase = \"", phaseName(cell.phase), "\"\nbatch = ", cell.batch,
                "\nsequence = ", cell.sequence, "\nrepetitions = ", cell.repetitions, "\n");
    for (int s = 0; s < kSites; ++s)
      text += timingText(siteName(static_cast<Site>(s)), cell.sites[static_cast<size_t>(s)]);
    if (!cell.layerNs.empty())
      text += cat("layer_ns = ", listOf(cell.layerNs), "\n");
  }
  return text + cat("\n[end]\ntransfers = ", record.transfers.size(), "\ncells = ", record.cells.size(), "\n");
}

absl::StatusOr<Record> parseRecord(std::string_view text, const std::string &path) {
  absl::StatusOr<TomlValue> document = model::parseToml(text, path);
  if (!document.ok())
    return document.status();
  TomlReader file(*document, path, "");
  // Format and version first: what else a file of another version holds is not ours to judge.
  if (need(file, "format", file.text("format"), cat("\"", kFormat, "\"")) != kFormat)
    file.refuse("format", cat("\"", kFormat, "\""));
  else
    needInteger(file, "version", kRecordVersion, kRecordVersion);
  if (!file.ok())
    return file.finish();

  Record record;
  absl::Status status = readOne(file, path, "identity", [&](TomlReader &t) { record.identity = readIdentity(t); });
  absl::Status modelStatus, hardwareStatus;
  if (status.ok())
    status = readOne(file, path, "model", [&](TomlReader &t) {
      absl::StatusOr<model::ModelSpec> shape = model::parseShapeTable(t, path, record.identity.model);
      modelStatus = shape.status();
      record.model = std::move(shape).value_or(model::ModelSpec{});
    });
  status.Update(modelStatus);
  if (status.ok())
    status = readOne(file, path, "hardware", [&](TomlReader &t) {
      t.takeBareAmounts(); // records were written without units once
      absl::StatusOr<model::Hardware> hardware =
          model::parseHardwareTable(t, path, record.identity.device, std::nullopt);
      hardwareStatus = hardware.status();
      record.hardware = std::move(hardware).value_or(model::Hardware{});
    });
  status.Update(hardwareStatus);
  if (status.ok())
    status = readOne(file, path, "grid", [&](TomlReader &t) {
      constexpr std::string_view kPowers = "a list of powers of two";
      record.batches = need(t, "batch", t.integers("batch", 1, int64_t{1} << 30), kPowers);
      record.sequences = need(t, "sequence", t.integers("sequence", 1, int64_t{1} << 30), kPowers);
      for (Phase phase : {Phase::Prefill, Phase::Decode})
        record.mostTokens[static_cast<size_t>(phase)] =
            t.integer(cat(phaseName(phase), "_tokens"), 1, kAnyTokens).value_or(kAnyTokens);
      record.layersRun = needInteger(t, "layers_run", 1, model::kMaxLayers);
      record.layersEqual = need(t, "layers_equal", t.boolean("layers_equal"), "true or false");
    });
  if (status.ok())
    status = readEach(file, path, "transfer", readTransfer, record.transfers);
  if (status.ok() && file.value("interference") != nullptr)
    status = readOne(file, path, "interference", [&](TomlReader &t) {
      record.interference.repetitions = needRepetitions(t);
      record.interference.computeAlone = needTiming(t, "compute_alone");
      record.interference.computeBeside = needTiming(t, "compute_beside");
      record.interference.copyStart = needTiming(t, "copy_start");
    });
  if (status.ok() && file.value("spread") != nullptr)
    status = readOne(file, path, "spread", [&](TomlReader &t) {
      record.spread.repetitions = needRepetitions(t);
      record.spread.resident = needSpread(t, "resident");
      record.spread.waiting = needSpread(t, "waiting");
    });
  if (status.ok() && file.value("loading") != nullptr)
    status = readOne(file, path, "loading", [&](TomlReader &t) {
      record.loading.bytes =
          static_cast<uint64_t>(needInteger(t, "bytes", 1, static_cast<int64_t>(model::kMaxWeightBytes)));
      record.loading.ns = static_cast<uint64_t>(needInteger(t, "ns", 1, kLongest));
    });
  if (status.ok() && file.value("regression") != nullptr)
    status = readOne(file, path, "regression", [&](TomlReader &t) {
      for (int kind = 0; t.ok() && kind < kLines; ++kind) {
        const std::string_view key = keyOf(t, static_cast<LineKind>(kind));
        if (t.value(key) == nullptr) {
          t.refuse(key, cat("a table, [regression.", key, "]"));
          continue;
        }
        TomlReader line = t.nested(key);
        if (absl::Status read =
                line.ok() ? readLine(line, record.lines.samples[static_cast<size_t>(kind)]) : line.finish();
            !read.ok())
          t.refuseWith(read);
      }
    });
  if (status.ok())
    status = readEach(file, path, "cell", readCell, record.cells);
  if (status.ok())
    status = readOne(file, path, "end", [&](TomlReader &t) {
      const auto is = [&](std::string_view key, size_t count) {
        needInteger(t, key, static_cast<int64_t>(count), static_cast<int64_t>(count));
      };
      is("transfers", record.transfers.size());
      is("cells", record.cells.size());
    });
  if (status.ok())
    status = file.finish();
  if (status.ok())
    status = checkRecord(record, path);
  if (!status.ok())
    return status;
  return record;
}

absl::StatusOr<Record> readRecord(const std::string &path) {
  absl::StatusOr<std::string> text = model::readTextFile(path, kLargestFile);
  if (!text.ok())
    return text.status();
  return parseRecord(*text, path);
}

absl::Status writeRecord(const Record &record, const std::string &path) {
  RETURN_IF_ERROR(checkRecord(record, path));
  return model::replaceFile(path, recordText(record));
}

} // namespace headrace::cost
