// SPDX-License-Identifier: Apache-2.0
#include "compiler/choice/Candidate.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/choice/AmountText.h"
#include "passes/algorithms/CycleOf.h"
#include "runtime/job/Capabilities.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::compiler {

bool Candidate::offloadsNothing() const {
  return std::none_of(algorithms::kMovables.begin(), algorithms::kMovables.end(),
                      [&](const algorithms::MovableTraits &of) { return of.byPlacement && residency.isAway(of.kind); });
}

Away awayOf(const algorithms::Residency &residency, const model::ModelSpec &spec) {
  Away away;
  const auto head = static_cast<int32_t>(1 + spec.layers * model::kUnitsPerLayer);
  int64_t layer = -1;
  int ofLayer = model::kUnitsPerLayer;
  for (const int32_t unit : residency.weightsAway()) {
    if (unit == 0) {
      away.embedding = true;
      away.head |= spec.tiedEmbeddings;
    } else if (unit == head) {
      away.head = true;
      ++away.units;
    } else {
      ++away.units;
      if (const int64_t of = (unit - 1) / model::kUnitsPerLayer; of != layer) {
        away.wholeLayers &= ofLayer == model::kUnitsPerLayer;
        layer = of;
        ofLayer = 0;
        ++away.layers;
      }
      ++ofLayer;
    }
  }
  away.wholeLayers &= ofLayer == model::kUnitsPerLayer;
  return away;
}

namespace {

std::string counted(size_t count, std::string_view what) {
  return absl::StrCat(count, " ", std::string(what), count == 1 ? "" : "s");
}

// What of caches is away, and what it goes through.
std::string describeCaches(const algorithms::Residency &residency) {
  const int64_t first = *residency.firstKvBlockAway();
  std::string text = first == 0 ? "all KV blocks" : absl::StrCat("KV blocks from ", first, " on");
  const algorithms::Pool &kv = residency.kv();
  if (residency.cycles())
    absl::StrAppend(&text, " in ", kv.places(), kv.fifo() ? " FIFO places" : " places");
  else if (kv.slots() > algorithms::kKvSlots)
    absl::StrAppend(&text, " through ", kv.slots(), " slots");
  return text;
}

std::string describeWeights(const Candidate &candidate, const Away &away) {
  std::string text;
  if (away.layers > 0) {
    if (!away.wholeLayers)
      absl::StrAppend(&text, away.units, away.units == 1 ? " unit of " : " units of ");
    absl::StrAppend(&text, away.layers, away.layers == 1 ? " layer" : " layers");
    if (candidate.interval > 0)
      absl::StrAppend(&text, " (interval ", candidate.interval, ")");
  }
  for (const auto &[is, what] : {std::pair(away.embedding, "the embedding"), std::pair(away.head, "the head")})
    if (is)
      absl::StrAppend(&text, text.empty() ? "" : ", ", what);
  if (const uint64_t ring = candidate.residency.weights().ringBytes())
    absl::StrAppend(&text, ", a ring of ", bytesText(ring));
  else if (const int64_t slots = candidate.residency.weights().slots())
    absl::StrAppend(&text, ", ", counted(static_cast<size_t>(slots), "slot"));
  return text;
}

} // namespace

std::string describe(const Candidate &candidate, const model::ModelSpec &spec) {
  const algorithms::Residency &residency = candidate.residency;
  std::vector<std::string> parts;
  if (const Away away = awayOf(residency, spec); away.units > 0 || away.embedding)
    parts.push_back(describeWeights(candidate, away));
  if (residency.firstKvBlockAway())
    parts.push_back(describeCaches(residency));
  if (const size_t layers = residency.actAway().size(); layers > 0)
    parts.push_back(absl::StrCat("activation blocks of ", counted(layers, "layer")));
  if (residency.residualsLeave())
    parts.push_back(absl::StrCat("residual streams through ", residency.residuals().slots(), " slots"));
  if (candidate.attendsOnCpu)
    parts.push_back("attention on the CPU");
  return parts.empty() ? "offload nothing" : absl::StrJoin(parts, ", ");
}

std::vector<int32_t> unitsOfLayers(const model::WeightLayout &layout, const std::vector<int64_t> &layers) {
  std::vector<int32_t> units;
  units.reserve(layers.size() * model::kUnitsPerLayer);
  for (const int64_t layer : layers)
    for (int unit = 0; unit < model::kUnitsPerLayer; ++unit)
      units.push_back(layout.layerUnit(layer, model::UnitRole::Qkv) + unit);
  return units;
}

Candidate placementOfUnits(const std::vector<int32_t> &units, uint64_t ringBytes) {
  Candidate candidate;
  candidate.name = absl::StrCat("units ", units.size());
  candidate.residency.setWeightsAway(units);
  candidate.residency.weights().setRing(ringBytes);
  candidate.residency.wrap.around = true;
  return candidate;
}

Candidate alike(Candidate candidate, const Choice &common) {
  candidate.miniBatches = common.miniBatches;
  candidate.attendsOnCpu = common.attendsOnCpu;
  candidate.actRatio = common.actRatio;
  candidate.buckets = common.buckets;
  candidate.largestChunk = common.largestChunk;
  candidate.encodings = common.encodings;
  for (const algorithms::MovableTraits &of : algorithms::kMovables)
    if (!of.byPlacement) {
      if (std::vector<int32_t> away = common.residency.awayOf(of.kind); away != candidate.residency.awayOf(of.kind))
        candidate.residency.setAway(of.kind, std::move(away));
      candidate.residency.pool(of.kind) = common.residency.pool(of.kind);
    }
  return candidate;
}

absl::Status checkCandidate(const Candidate &candidate, const model::ModelSpec &spec,
                            const model::WeightLayout &layout) {
  const algorithms::Residency &residency = candidate.residency;
  const auto refuse = [&](auto &&...text) {
    return absl::InvalidArgumentError(absl::StrCat("placement '", candidate.name, "': ", text...));
  };
  if (candidate.interval < 0)
    return refuse("has interval ", candidate.interval);
  if (const std::string contradiction = contradictionIn(candidate); !contradiction.empty())
    return refuse(contradiction);
  if (const std::optional<int64_t> block = residency.firstKvBlockAway()) {
    int64_t layers = 0;
    for (const algorithms::Extent &extent : residency.away)
      layers += extent.of.kind == algorithms::MovableKind::Kv && extent.of.index == layers;
    if (layers != spec.layers || *block < 0)
      return refuse("caches are split in all ", spec.layers, " layers or in none, at a block from 0 on, got ", layers,
                    " layers and block ", *block);
  }
  if (residency.cycles()) {
    const int64_t tails = spec.layers * candidate.miniBatches;
    if (residency.kv().places() >= tails)
      return refuse("needs fewer places than the ", tails, " tails of caches that cycle through them, got ",
                    residency.kv().places(), ": nothing would move");
    if (const uint64_t period = algorithms::cyclePeriodOf(residency, tails); period > plan::kMostPhases)
      return refuse(residency.kv().places(), " places take a cycle of ", period, " iterations, a plan has at most ",
                    plan::kMostPhases);
  }
  const int32_t end = spec.tiedEmbeddings ? layout.headUnit() : layout.headUnit() + 1;
  uint64_t largest = 0; // of what is moved: a table that is not tied is read where it is
  int32_t before = -1;
  for (const algorithms::Extent &extent : residency.away) {
    if (extent.of.kind == algorithms::MovableKind::Kv && extent.space == algorithms::Space::Host)
      continue;
    if (extent.of.kind != algorithms::MovableKind::Weight && extent.isWhole() && extent.of.index < spec.layers)
      continue;
    const int32_t unit = extent.of.index;
    if (extent.of.kind != algorithms::MovableKind::Weight || !extent.isWhole() ||
        extent.space != algorithms::Space::Host)
      return refuse("only whole weights, and caches from a block on, are at home off the device, on the host");
    if (unit <= before || unit >= end)
      return refuse("units are ascending numbers from 0 to ", end - 1, ", got ", unit, " behind ", before);
    before = unit;
    if (unit != layout.embeddingUnit() || spec.tiedEmbeddings)
      largest = std::max(largest, layout.units[static_cast<size_t>(unit)].bytes);
  }
  if (const uint64_t ring = residency.weights().ringBytes(); ring > 0 && ring < largest)
    return refuse("a ring of ", ring, " bytes cannot hold a unit of ", largest);
  if (largest && !residency.weights().ringBytes() && !residency.weights().slots())
    return refuse("what is offloaded needs slots or a ring");
  if (residency.weights().ringBytes() > 0 && candidate.miniBatches > 1)
    return refuse("a ring beside ", candidate.miniBatches, " mini-batches: expected slots: ",
                  std::string(model::whyNotBeside(model::Mechanism::Ring, model::Mechanism::MiniBatches)));
  return absl::OkStatus();
}

} // namespace headrace::compiler
