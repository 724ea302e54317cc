// SPDX-License-Identifier: Apache-2.0
#include "bench/run/SpreadRows.h"

#include <algorithm>
#include <optional>

#include "runtime/base/StatusMacros.h"
#include "runtime/core/KvBlocks.h"
#include "runtime/core/MetaWriter.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::bench {
namespace {

constexpr int kSizes = 8; // of buffers that the greedy is tried with: that many parts of what the plan's hold

// What a layer takes of the roofline, for the greedy to balance with.
cost::HybridTimes timesOf(const plan::Plan &plan) {
  const model::ModelSpec &spec = plan.model;
  const model::Hardware &hardware = plan.hardware;
  const double link = 1e9 / (hardware.h2dBandwidth * hardware.linkEfficiency);
  const double flops = 1e9 / (hardware.flopsF16 * hardware.flopsEfficiency);
  const double memory = 1e9 / (hardware.memoryBandwidth * hardware.memoryEfficiency);
  const auto tokens = static_cast<double>(plan.blockTokens), layers = static_cast<double>(spec.layers);
  const double weights = static_cast<double>(plan::weightBytesByHome(plan, 0).host) / layers;
  const double kv = static_cast<double>(plan.kvBlockBytes()) / tokens;
  cost::HybridTimes times;
  times.loadWeightsNs = weights * link;
  times.loadKv.slopeNsPerToken = kv * link;
  times.loadAct.slopeNsPerToken = static_cast<double>(plan.actBlockBytes()) / tokens * link;
  times.kvGen.slopeNsPerToken = 4 * static_cast<double>(spec.hidden) * static_cast<double>(spec.kvRows()) * flops;
  times.forward = {.interceptNs = weights * memory, .slopeNsPerToken = kv * memory};
  times.blockTokens = plan.blockTokens;
  return times;
}

} // namespace

SpreadRows::SpreadRows(const plan::Plan &plan)
    : plan_(plan), kvBytes_(plan.kvBlockBytes()), actBytes_(plan.actBlockBytes()), times_(timesOf(plan)) {}

bool SpreadRows::rate(Grouping groups, Rated &out) const {
  int64_t tokens = 0, sequences = 0, context = 0;
  out.loaded = 0;
  for (const std::vector<RowsOf> &rows : groups) {
    int64_t itsTokens = 0;
    uint64_t loaded = 0;
    for (const RowsOf &one : rows) {
      itsTokens += one.rows;
      context = std::max(context, one.before + one.rows);
      loaded += static_cast<uint64_t>(one.kv) * kvBytes_ + static_cast<uint64_t>(one.act) * actBytes_;
    }
    tokens = std::max(tokens, itsTokens);
    sequences = std::max(sequences, static_cast<int64_t>(rows.size()));
    out.loaded = std::max(out.loaded, loaded);
  }
  bool any = false;
  for (uint32_t i = 0; i < plan_.variants.size(); ++i) {
    const plan::Variant &variant = plan_.variants[i];
    if (variant.newTokens < tokens || variant.sequences < sequences || variant.context < context ||
        plan_.schedules[variant.schedule].kvBlocks != 0 || (any && variant.computeAloneNs >= out.computeNs))
      continue;
    any = true;
    out.computeNs = variant.computeAloneNs;
    out.chosen.variant = i;
  }
  out.chosen.groups = std::move(groups);
  return any;
}

absl::StatusOr<SpreadRows::Chosen> SpreadRows::choose(const Grouping &groups) const {
  Rated best;
  if (!rate(groups, best))
    return absl::NotFoundError("an iteration of the engine's fits no variant");
  std::vector<RowsOf> all;
  std::vector<cost::HybridBlocks> blocks;
  for (const std::vector<RowsOf> &rows : groups)
    for (const RowsOf &one : rows) {
      all.push_back(one);
      blocks.push_back({.kvHost = one.kv, .actHost = one.act});
    }
  for (int size = 1; size <= kSizes; ++size) {
    const auto part = [&](int64_t of) { return (of * size + kSizes - 1) / kSizes; };
    const auto packing =
        cost::packMiniBatches(times_, blocks, {.kv = part(plan_.kvBlocks - 1), .act = part(plan_.actBlocks)});
    if (!packing.ok() || packing->miniBatches.size() > plan_.miniBatches)
      continue; // too small for a request, or for all of them
    Grouping spread(plan_.miniBatches);
    bool fits = true;
    for (size_t i = 0; i < packing->miniBatches.size(); ++i) {
      for (const size_t request : packing->miniBatches[i])
        spread[i].push_back(all[request]);
      fits &= static_cast<int64_t>(spread[i].size()) <= plan_.metaLayout.maxSequences;
    }
    Rated rated;
    if (fits && rate(std::move(spread), rated) &&
        (rated.computeNs < best.computeNs || (rated.computeNs == best.computeNs && rated.loaded < best.loaded)))
      best = std::move(rated);
  }
  return best.chosen;
}

absl::Status SpreadRows::writeTo(const Grouping &groups, kernels::IterationMeta *meta) const {
  static const std::vector<int32_t> zeros(size_t{1} << 16, 0);
  const core::ActBlocks act{.blocks = plan_.actBlocks,
                            .context = plan_.contextBlocks,
                            .share = plan_.actRatio,
                            .sequences = plan_.metaLayout.maxSequences};
  std::vector<std::vector<std::vector<int32_t>>> tables(groups.size());
  std::vector<std::vector<core::SequenceRows>> rows(groups.size());
  std::vector<absl::Span<const core::SequenceRows>> spans;
  for (size_t i = 0; i < groups.size(); ++i) {
    core::KvBlocks pool(plan_.kvBlocks, plan_.blockTokens, act);
    tables[i].resize(groups[i].size());
    for (size_t s = 0; s < groups[i].size(); ++s) {
      const RowsOf &one = groups[i][s];
      RETURN_IF_ERROR(pool.grow(tables[i][s], one.before + one.rows));
      rows[i].push_back({.tokens = absl::MakeConstSpan(zeros).subspan(0, static_cast<size_t>(one.rows)),
                         .firstPosition = one.before,
                         .blocks = tables[i][s],
                         .sample = one.samples,
                         .requestSlot = static_cast<int32_t>(s)});
    }
    spans.push_back(rows[i]);
  }
  return core::writeMetas(plan_.metaLayout, plan_.blockTokens, spans, meta);
}

} // namespace headrace::bench
