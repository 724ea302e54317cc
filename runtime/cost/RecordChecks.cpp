// SPDX-License-Identifier: Apache-2.0
//
// What a record must hold before anything is looked up in it.
#include <algorithm>
#include <set>
#include <tuple>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/cost/Record.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::cost {
namespace {

using model::cat;
using model::escaped;

constexpr int64_t kLargestAxis = int64_t{1} << 30; // a product of two stays below 2^63

absl::Status invalid(std::string_view where, const std::string &message) {
  return absl::InvalidArgumentError(cat(where, ": ", message));
}

std::string cellName(Phase phase, int64_t batch, int64_t sequence) {
  return cat(phaseName(phase), " batch ", batch, " sequence ", sequence);
}

absl::Status checkAxis(absl::Span<const int64_t> axis, std::string_view name, std::string_view where) {
  bool valid = !axis.empty() && axis.front() >= 1 && axis.back() <= kLargestAxis;
  for (size_t i = 0; valid && i < axis.size(); ++i)
    valid = (axis[i] & (axis[i] - 1)) == 0 && (i == 0 || axis[i] == 2 * axis[i - 1]);
  if (!valid)
    return invalid(where, cat("grid.", name, ": expected powers of two, each twice the one before, up to 2^30"));
  return absl::OkStatus();
}

absl::Status checkTiming(const Timing &t, std::string_view what, std::string_view where) {
  if (t.p10Ns > t.medianNs || t.medianNs > t.p90Ns || t.p90Ns > kLongestStepNs)
    return invalid(where, cat(what, " = [", t.medianNs, ", ", t.p10Ns, ", ", t.p90Ns,
                              "]: expected median, p10, p90 in ns with p10 <= median <= p90 <= ", kLongestStepNs));
  return absl::OkStatus();
}

absl::Status checkTransfers(const Record &record, std::string_view where) {
  uint64_t last = 0;
  for (const Transfer &t : record.transfers) {
    if (t.bytes <= last)
      return invalid(where, cat("transfer bytes ", t.bytes, " after ", last, ": expected ascending sizes above 0"));
    last = t.bytes;
    const std::string name = cat("transfer of ", t.bytes, " bytes");
    if (t.repetitions == 0)
      return invalid(where, cat(name, ": repetitions = 0: expected at least 1"));
    for (const auto &[key, timing] : {std::pair<const char *, const Timing &>{"h2d", t.h2d},
                                      {"d2h", t.d2h},
                                      {"h2d_with_compute", t.h2dWithCompute},
                                      {"d2h_with_compute", t.d2hWithCompute},
                                      {"both", t.both}}) {
      RETURN_IF_ERROR(checkTiming(timing, cat(name, ": ", key), where));
      if (timing.p10Ns == 0)
        return invalid(where, cat(name, ": ", key, ": expected times above 0"));
    }
  }
  return absl::OkStatus();
}

absl::Status checkInterference(const MeasuredInterference &measured, std::string_view where) {
  if (measured.repetitions == 0)
    return absl::OkStatus();
  for (const auto &[key, timing] : {std::pair<const char *, const Timing &>{"compute_alone", measured.computeAlone},
                                    {"compute_beside", measured.computeBeside},
                                    {"copy_start", measured.copyStart}})
    RETURN_IF_ERROR(checkTiming(timing, cat("interference.", key), where));
  if (measured.computeAlone.p10Ns == 0 || measured.computeBeside.p10Ns == 0)
    return invalid(where, "interference: expected an iteration's times above 0");
  return absl::OkStatus();
}

absl::Status checkSpread(const MeasuredSpread &spread, std::string_view where) {
  if (spread.repetitions == 0)
    return absl::OkStatus();
  for (const auto &[key, measured] :
       {std::pair<const char *, const MeasuredSpread::Iterations &>{"resident", spread.resident},
        {"waiting", spread.waiting}}) {
    if (measured.predictedNs == 0 || measured.medianNs == 0)
      return invalid(where, cat("spread.", key, ": expected times above 0"));
    if (measured.slowestNs < measured.medianNs)
      return invalid(where, cat("spread.", key, " = [", measured.predictedNs, ", ", measured.medianNs, ", ",
                                measured.slowestNs, "]: expected a p99 of at least the median"));
  }
  return absl::OkStatus();
}

absl::Status checkLines(const MeasuredLines &lines, std::string_view where) {
  for (int kind = 0; lines.measured() && kind < kLines; ++kind) {
    const std::string name = cat("regression.", lineName(static_cast<LineKind>(kind)));
    const std::vector<MeasuredLines::Sample> &samples = lines.samples[static_cast<size_t>(kind)];
    if (samples.size() < kLeastLineSamples)
      return invalid(where, cat(name, ": ", samples.size(), " counts of tokens: expected at least ", kLeastLineSamples,
                                ", three that the line is fitted to and two held out"));
    int64_t last = 0;
    for (const MeasuredLines::Sample &sample : samples) {
      if (sample.tokens <= last)
        return invalid(where,
                       cat(name, ".tokens: ", sample.tokens, " after ", last, ": expected ascending counts above 0"));
      last = sample.tokens;
      RETURN_IF_ERROR(checkTiming(sample.timing, cat(name, " of ", sample.tokens, " tokens"), where));
    }
    RETURN_IF_ERROR(fitLine(samples, cat(where, ": ", name)).status());
  }
  return absl::OkStatus();
}

absl::Status checkCell(const Record &record, const Cell &cell, std::string_view where) {
  const std::string name = cellName(cell.phase, cell.batch, cell.sequence);
  const auto on = [](const std::vector<int64_t> &axis, int64_t v) {
    return std::find(axis.begin(), axis.end(), v) != axis.end();
  };
  if (!on(record.batches, cell.batch) || !on(record.sequences, cell.sequence))
    return invalid(where, cat(name, ": not on the record's grid"));
  if (!record.onGrid(cell.phase, cell.batch, cell.sequence))
    return invalid(where, cat(name, ": more tokens than grid.", phaseName(cell.phase),
                              "_tokens = ", record.mostTokens[static_cast<size_t>(cell.phase)]));
  if (cell.repetitions == 0)
    return invalid(where, cat(name, ": repetitions = 0: expected at least 1"));
  for (int s = 0; s < kSites; ++s) {
    if (absl::Status status =
            checkTiming(cell.sites[static_cast<size_t>(s)], cat(name, ": ", siteName(static_cast<Site>(s))), where);
        !status.ok())
      return status;
  }
  const size_t layers = record.layersEqual ? 0 : static_cast<size_t>(record.identity.layers);
  if (cell.layerNs.size() != layers)
    return invalid(where, cat(name, ": layer_ns has ", cell.layerNs.size(), " times: expected ", layers,
                              record.layersEqual ? " (layers_equal)" : ", one a layer"));
  if (layerComputeNs(cell) == 0)
    return invalid(where, cat(name, ": a layer takes no time: expected a sum above 0"));
  for (uint64_t ns : cell.layerNs) {
    if (ns == 0 || ns > kLongestStepNs)
      return invalid(where, cat(name, ": layer_ns holds ", ns, ": expected from 1 to ", kLongestStepNs));
  }
  return absl::OkStatus();
}

} // namespace

absl::Status checkRecord(const Record &record, std::string_view where) {
  const Identity &id = record.identity;
  if (id.modelHash.empty() || id.device.empty())
    return invalid(where, "identity: expected a model hash and a device");
  if (id.layers < 1 || id.layers > model::kMaxLayers)
    return invalid(where, cat("identity.layers = ", id.layers, ": expected from 1 to ", model::kMaxLayers));
  if (id.layerBytes == 0 || id.layerBytes > model::kMaxWeightBytes)
    return invalid(where, cat("identity.layer_bytes = ", id.layerBytes, ": expected from 1 to 2^53"));
  RETURN_IF_ERROR(model::validate(record.model, cat(where, ": model")));
  const uint64_t layerBytes = model::layoutWeights(record.model).layerBytes(0);
  if (record.model->layers != id.layers || layerBytes != id.layerBytes)
    return invalid(where,
                   cat("identity: ", id.layers, " layers of ", id.layerBytes, " bytes: expected those of [model], ",
                       record.model->layers, " layers of ", layerBytes, " bytes"));
  for (const auto &[axis, name] :
       {std::pair<const std::vector<int64_t> &, const char *>{record.batches, "batch"}, {record.sequences, "sequence"}})
    RETURN_IF_ERROR(checkAxis(axis, name, where));
  for (Phase phase : {Phase::Prefill, Phase::Decode})
    if (!record.onGrid(phase, record.batches.front(), record.sequences.front()))
      return invalid(where, cat("grid.", phaseName(phase), "_tokens = ", record.mostTokens[static_cast<size_t>(phase)],
                                ": expected at least the ", record.batches.front() * record.sequences.front(),
                                " of the smallest pair"));
  if (record.layersRun < 1 || record.layersRun > id.layers)
    return invalid(where, cat("grid.layers_run = ", record.layersRun, ": expected from 1 to ", id.layers));
  RETURN_IF_ERROR(checkTransfers(record, where));
  RETURN_IF_ERROR(checkInterference(record.interference, where));
  RETURN_IF_ERROR(checkSpread(record.spread, where));
  RETURN_IF_ERROR(checkLines(record.lines, where));
  std::set<std::tuple<Phase, int64_t, int64_t>> seen;
  for (const Cell &cell : record.cells) {
    RETURN_IF_ERROR(checkCell(record, cell, where));
    if (!seen.emplace(cell.phase, cell.batch, cell.sequence).second)
      return invalid(where, cat(cellName(cell.phase, cell.batch, cell.sequence), ": stands twice"));
  }
  return absl::OkStatus();
}

absl::Status checkComplete(const Record &record, std::string_view where) {
  if (record.transfers.empty())
    return absl::FailedPreconditionError(cat(where, ": no transfer times: measure them before the record is used"));
  const std::vector<CellKey> missing = missingCells(record);
  if (missing.empty())
    return absl::OkStatus();
  int64_t pairs = 0;
  for (Phase phase : {Phase::Prefill, Phase::Decode})
    for (int64_t batch : record.batches)
      for (int64_t sequence : record.sequences)
        pairs += record.onGrid(phase, batch, sequence);
  const CellKey &first = missing.front();
  return absl::FailedPreconditionError(cat(where, ": the grid has holes: ", missing.size(), " of ", pairs,
                                           " cells are missing, first ",
                                           cellName(first.phase, first.batch, first.sequence)));
}

absl::Status checkIdentity(const Record &record, const Identity &expected, std::string_view where) {
  const Identity &id = record.identity;
  const auto differs = [&](std::string_view key, const std::string &has, const std::string &wants) {
    return absl::FailedPreconditionError(cat(where, ": ", key, " = ", escaped(has, 80), ": this record is of another ",
                                             key.starts_with("device") ? "device" : "model", ", expected ",
                                             escaped(wants, 80)));
  };
  if (id.modelHash != expected.modelHash)
    return differs("model_hash", id.modelHash, expected.modelHash);
  if (id.layers != expected.layers)
    return differs("layers", cat(id.layers), cat(expected.layers));
  if (id.layerBytes != expected.layerBytes)
    return differs("layer_bytes", cat(id.layerBytes), cat(expected.layerBytes));
  if (id.activation != expected.activation)
    return differs("activation", cat(model::dtypeName(id.activation)), cat(model::dtypeName(expected.activation)));
  if (id.kv != expected.kv)
    return differs("kv", model::encodingText(id.kv), model::encodingText(expected.kv));
  if (id.kind != expected.kind)
    return differs("device_kind", cat(model::deviceKindName(id.kind)), cat(model::deviceKindName(expected.kind)));
  if (id.device != expected.device)
    return differs("device", id.device, expected.device);
  return absl::OkStatus();
}

} // namespace headrace::cost
