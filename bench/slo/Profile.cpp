// SPDX-License-Identifier: Apache-2.0
#include "bench/slo/Profile.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "bench/slo/Cases.h"
#include "compiler/Compile.h"
#include "runtime/profile/Analyzer.h"

namespace headrace::bench {
namespace {

// For a pair; and for what is measured of a link, most of all the spread, which takes ten times as long.
constexpr double kPairSeconds = 0.25, kLinkSeconds = 1;

} // namespace

Profile::Profile(model::ModelSpec spec, model::Hardware host, host::HostOptions device, const KeptWeights &weights,
                 cost::MeasuredSpread &widest)
    : spec_(std::move(spec)), host_(std::move(host)), device_(device), weights_(weights), widest_(widest) {}

model::Hardware Profile::hardware(double bandwidth) const {
  model::Hardware hardware = host_;
  hardware.linkEfficiency = 1;
  hardware.h2dBandwidth = hardware.d2hBandwidth = hardware.duplexBandwidth = bandwidth;
  return hardware;
}

// The pairs, and the plan with everything resident that runs them.
profile::Grid Profile::grid(const model::Hardware &hardware) const {
  profile::GridRequest request;
  request.model = spec_;
  request.hardware = hardware;
  request.deviceMemory = hardware.memoryBytes;
  request.batches = {1, 2, 4, 8, 16, kMostBatch};
  request.sequences = {kLeastPrefill, 16, 32, 64, 128, 256, kMostContext};
  request.plans = [&](const profile::PlanSizes &sizes) {
    compiler::CompileRequest resident;
    resident.model = sizes.model;
    resident.modelHash = kModelHash;
    resident.hardware = hardware;
    resident.goal.deviceMemory = sizes.deviceMemory;
    resident.goal.batch = sizes.batch;
    resident.goal.context = sizes.context;
    resident.goal.kvTokens = sizes.kvTokens;
    resident.policy.none = true;
    resident.buckets = {.newTokens = {sizes.newTokens}, .sequences = {sizes.batch}, .contexts = {sizes.context}};
    return compiler::compile(resident);
  };
  profile::Grid grid = take(profile::chooseGrid(request));
  int64_t &prefill = grid.mostTokens[static_cast<size_t>(cost::Phase::Prefill)];
  prefill = std::min(prefill, kMostPrefill); // no case has more
  return grid;
}

cost::Record Profile::over(double bandwidth) {
  if (!grid_)
    grid_ = grid(hardware(bandwidth));
  grid_->plan.hardware = hardware(bandwidth);
  cost::Identity identity;
  identity.model = spec_.name;
  identity.modelHash = kModelHash;
  identity.device = host_.name;
  identity.kind = host_.kind;
  identity.layers = spec_.layers;
  identity.layerBytes = model::layoutWeights(spec_).layerBytes(0);
  cost::Record record = profile::emptyRecord(*grid_, identity, spec_);
  record.cells = cells_;
  record.layersEqual = layersEqual_;
  profile::AnalyzerOptions options;
  options.secondsPerPair = cells_.empty() ? kPairSeconds : kLinkSeconds;
  options.weights = &weights_;
  const std::unique_ptr<core::Device> device = host::makeHostDevice(device_);
  record = take(profile::analyze(std::move(record), *grid_, *device, options));
  if (cells_.empty()) {
    cells_ = record.cells;
    layersEqual_ = record.layersEqual;
  }
  if (record.spread.slowestFactor() > widest_.slowestFactor())
    widest_ = record.spread;
  record.spread = widest_;
  return record;
}

} // namespace headrace::bench
