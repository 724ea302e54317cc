// SPDX-License-Identifier: Apache-2.0
//
// Records whose truth is known: every time is what a cost model says.
#pragma once

#include <functional>

#include "runtime/cost/Record.h"
#include "runtime/model/WeightLayout.h"
#include "tests/unit/cost/Models.h"

namespace headrace::cost {

inline Timing exactly(uint64_t ns) { return {ns, ns, ns}; }

// A profile whose figures hardware files may hold: 1000 flops, 100 bytes of memory and 10 bytes of link a second.
inline model::Hardware roundHardware() {
  model::Hardware h = oneAPerSecond();
  h.kind = model::DeviceKind::Host;
  h.memoryBytes = h.hostMemoryBytes = 1'000'000;
  h.flopsF32 = h.flopsF16 = 1000;
  h.memoryBandwidth = 100;
  h.h2dBandwidth = h.d2hBandwidth = 10;
  h.duplexBandwidth = 15;
  return h;
}

inline Record emptyRecord(const model::ModelSpec &spec, std::vector<int64_t> batches, std::vector<int64_t> sequences) {
  Record record;
  record.identity = {spec.name,         "abc123",          "one",       model::DeviceKind::Host,
                     model::DType::F32, model::DType::F16, spec.layers, model::layoutWeights(spec).layerBytes(0)};
  record.model = spec;
  record.layersRun = spec.layers;
  record.hardware = roundHardware();
  record.batches = std::move(batches);
  record.sequences = std::move(sequences);
  return record;
}

inline Cell cellOf(const CostModel &truth, Phase phase, int64_t batch, int64_t sequence) {
  Cell cell{phase, batch, sequence, 3, {}, {}};
  for (int s = 0; s < kSites; ++s)
    cell.sites[static_cast<size_t>(s)] =
        exactly(truth.computeNs(opSiteOf(static_cast<Site>(s)), bucketOf(phase, batch, sequence), false));
  return cell;
}

inline Transfer transferOf(uint64_t bytes, uint64_t ns) {
  return {bytes, 5, exactly(ns), exactly(ns), exactly(ns), exactly(ns), exactly(ns * 4 / 3)};
}

// Measures all cells that are missing, as `profile` does, and copies of the sizes given.
inline Record measured(Record record, const CostModel &truth, const std::vector<uint64_t> &sizes) {
  for (uint64_t bytes : sizes)
    record.transfers.push_back(transferOf(bytes, truth.copyNs(bytes, true)));
  for (std::vector<CellKey> left = missingCells(record); !left.empty(); left = missingCells(record))
    record.cells.push_back(cellOf(truth, left.front().phase, left.front().batch, left.front().sequence));
  return record;
}

} // namespace headrace::cost
