// SPDX-License-Identifier: Apache-2.0
#include "runtime/profile/AnalyzerGrid.h"

#include <algorithm>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::profile {
namespace {

using cost::Phase;

constexpr int64_t kFirstSequence = 64, kLastBatch = 128;
// Compute predicted at this many times the copy is taken to be longer than the copy on any device that the profile
// describes.
constexpr uint64_t kFarBeyond = 4;
constexpr double kMostWeights = 0.6; // of the device memory

std::vector<int64_t> powersOfTwo(int64_t first, int64_t last) {
  std::vector<int64_t> axis;
  for (int64_t n = first; n <= last; n *= 2)
    axis.push_back(n);
  return axis;
}

int64_t floorPower(int64_t n) {
  int64_t power = 1;
  while (power <= n / 2)
    power *= 2;
  return power;
}

// The tokens of the largest pair that might be measured: one that no smaller pair is predicted to settle.
int64_t expectedTokens(const GridRequest &request, const Grid &grid, Phase phase) {
  const cost::Roofline costs(request.model, request.hardware, request.activation, request.kv);
  const uint64_t transfer = costs.copyNs(grid.copyBytes, true);
  std::vector<cost::CellKey> settling;
  int64_t most = 0;
  for (int64_t batch : grid.batches)
    for (int64_t sequence : grid.sequences) {
      if (std::any_of(settling.begin(), settling.end(),
                      [&](const cost::CellKey &s) { return s.batch <= batch && s.sequence <= sequence; }))
        continue;
      most = std::max(most, batch * sequence);
      if (!request.all && layerNs(costs, request.model, cost::bucketOf(phase, batch, sequence)) / kFarBeyond > transfer)
        settling.push_back({phase, batch, sequence});
    }
  return most;
}

PlanSizes sizesOf(const GridRequest &request, const Grid &grid) {
  PlanSizes sizes;
  const int64_t prefill = grid.mostTokens[static_cast<size_t>(Phase::Prefill)];
  const int64_t most = std::max(prefill, grid.mostTokens[static_cast<size_t>(Phase::Decode)]);
  for (int64_t batch : grid.batches)
    for (int64_t sequence : grid.sequences) {
      if (batch * sequence > most)
        continue;
      sizes.batch = std::max(sizes.batch, batch);
      sizes.context = std::max(sizes.context, sequence);
      const int64_t blocks = (sequence + request.blockTokens - 1) / request.blockTokens;
      sizes.kvTokens = std::max(sizes.kvTokens, batch * blocks * request.blockTokens);
    }
  // More rows than sequences, so that there is a schedule for several rows a sequence.
  sizes.newTokens = std::max(prefill, sizes.batch + 1);
  sizes.kvTokens = std::max(sizes.kvTokens, sizes.newTokens);
  return sizes;
}

// As many layers as leave room for batches and contexts.
int64_t layersToRun(const GridRequest &request, const model::WeightLayout &layout, uint64_t deviceMemory) {
  const uint64_t layer = layout.layerBytes(0);
  const uint64_t rest = layout.totalBytes() - layer * static_cast<uint64_t>(request.model.layers);
  const auto room = static_cast<uint64_t>(kMostWeights * static_cast<double>(deviceMemory));
  const int64_t fit = room > rest ? static_cast<int64_t>((room - rest) / layer) : 0;
  return std::clamp<int64_t>(fit, std::min<int64_t>(2, request.model.layers), request.model.layers);
}

// Compiles for fewer and fewer tokens, then layers, until it fits.
absl::Status fit(const GridRequest &request, const model::WeightLayout &layout, Grid &grid) {
  const uint64_t copies = 2 * grid.copyBytes;
  const int64_t least = grid.batches.front() * grid.sequences.front();
  if (request.deviceMemory <= copies)
    return absl::ResourceExhaustedError(model::cat("device memory of ", request.deviceMemory,
                                                   " bytes: copies of a layer of ", request.model.name,
                                                   " in both directions take ", copies, " already"));
  const uint64_t memory = request.deviceMemory - copies;
  int64_t layers = layersToRun(request, layout, memory);
  const std::array<int64_t, cost::kPhases> wanted = grid.mostTokens;
  for (;;) {
    PlanSizes sizes = sizesOf(request, grid);
    sizes.model = request.model;
    sizes.model.layers = layers;
    sizes.deviceMemory = memory;
    absl::StatusOr<plan::Plan> plan = request.plans(sizes);
    if (plan.ok()) {
      grid.plan = *std::move(plan);
      for (size_t phase = 0; phase < cost::kPhases; ++phase)
        grid.memoryBound[phase] = grid.mostTokens[phase] < wanted[phase];
      return absl::OkStatus();
    }
    if (plan.status().code() != absl::StatusCode::kResourceExhausted)
      return plan.status();
    int64_t &larger = *std::max_element(grid.mostTokens.begin(), grid.mostTokens.end());
    if (larger > least) {
      const int64_t half = std::max(least, larger / 2);
      for (int64_t &most : grid.mostTokens)
        most = std::min(most, half);
    } else if (layers > std::min<int64_t>(2, request.model.layers)) {
      layers = std::max<int64_t>(2, layers / 2);
    } else {
      return absl::ResourceExhaustedError(
          model::cat("device memory of ", request.deviceMemory, " bytes: not even batch ", grid.batches.front(),
                     " sequence ", grid.sequences.front(), " with ", layers, " of the ", request.model.layers,
                     " layers fits beside ", copies, " bytes for copies: ", plan.status().message()));
    }
  }
}

} // namespace

uint64_t layerNs(const cost::CostModel &costs, const model::ModelSpec &model, const cost::Bucket &bucket) {
  uint64_t sum = 0;
  for (int s = 0; s < cost::kSites; ++s) {
    const auto site = static_cast<cost::Site>(s);
    if (cost::inLayer(site) && (site != cost::Site::Activate || model.gated()))
      sum += costs.computeNs(cost::opSiteOf(site), bucket, false);
  }
  return sum;
}

absl::StatusOr<Grid> chooseGrid(const GridRequest &request) {
  Grid grid;
  grid.sequences = request.sequences;
  if (grid.sequences.empty()) {
    const int64_t last = floorPower(request.model.longestContext());
    grid.sequences = powersOfTwo(std::min(kFirstSequence, last), last);
  } else if (grid.sequences.back() > request.model.longestContext()) {
    return absl::InvalidArgumentError(model::cat("sequence ", grid.sequences.back(), ": expected at most ",
                                                 model::longestContextText(request.model)));
  }
  grid.batches = request.batches;
  if (grid.batches.empty()) {
    grid.batches = powersOfTwo(1, kLastBatch);
    while (grid.batches.size() > 1 && grid.batches.size() * grid.sequences.size() > kMostPairs)
      grid.batches.pop_back();
  }
  const model::WeightLayout layout = model::layoutWeights(request.model);
  grid.copyBytes = layout.layerBytes(0);
  for (Phase phase : {Phase::Prefill, Phase::Decode})
    grid.mostTokens[static_cast<size_t>(phase)] = expectedTokens(request, grid, phase);
  RETURN_IF_ERROR(fit(request, layout, grid));
  return grid;
}

} // namespace headrace::profile
