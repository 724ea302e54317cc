// SPDX-License-Identifier: Apache-2.0
#include "compiler/lower/Candidate.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "compiler/lower/Explain.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {

std::string Candidate::describe() const {
  if (offloadsNothing())
    return "offload nothing";
  std::string text;
  if (units.empty())
    absl::StrAppend(&text, layers, layers == 1 ? " layer" : " layers");
  else
    absl::StrAppend(&text, units.size(), units.size() == 1 ? " unit" : " units", " of ", layers,
                    layers == 1 ? " layer" : " layers");
  if (interval > 0)
    absl::StrAppend(&text, " (interval ", interval, ")");
  if (embedding)
    absl::StrAppend(&text, ", the embedding");
  if (head)
    absl::StrAppend(&text, ", the head");
  if (ringBytes)
    absl::StrAppend(&text, ", a ring of ", bytesText(ringBytes));
  else if (slots)
    absl::StrAppend(&text, ", ", slots, slots == 1 ? " slot" : " slots");
  return text;
}

bool Candidate::samePlacement(const Candidate &other) const {
  const auto all = [](const Candidate &c) {
    return std::tie(c.interval, c.layers, c.embedding, c.head, c.units, c.startRule, c.slots, c.ringBytes, c.wrap,
                    c.oneCut, c.decodeCut, c.mixedCut);
  };
  return all(*this) == all(other);
}

Candidate placementOfUnits(const model::WeightLayout &layout, std::vector<int32_t> units, uint64_t ringBytes) {
  std::sort(units.begin(), units.end());
  Candidate candidate;
  std::set<int32_t> layers;
  for (const int32_t unit : units)
    if (const int32_t layer = layout.units[static_cast<size_t>(unit)].layer; layer >= 0)
      layers.insert(layer);
    else
      candidate.head = true;
  candidate.name = absl::StrCat("units ", units.size());
  candidate.layers = static_cast<int64_t>(layers.size());
  candidate.units = std::move(units);
  candidate.ringBytes = ringBytes;
  candidate.wrap = true;
  return candidate;
}

absl::Status checkCandidate(const Candidate &candidate, const model::ModelSpec &spec,
                            const model::WeightLayout &layout) {
  const auto refuse = [&](auto &&...text) {
    return absl::InvalidArgumentError(absl::StrCat("placement '", candidate.name, "': ", text...));
  };
  if (candidate.layers < 0 || candidate.layers > spec.layers || candidate.interval < 0)
    return refuse("offloads ", candidate.layers, " layers (interval ", candidate.interval, ") of ", spec.layers);
  if (candidate.slots < 0)
    return refuse("needs slots that are not negative, got ", candidate.slots);
  const bool eager = candidate.startRule == model::StartRule::Eager;
  if (candidate.ringBytes && (candidate.slots || !eager))
    return refuse("a ring stands instead of layer-sized slots, under the rule eager");
  if (candidate.wrap && !eager)
    return refuse("nothing wraps around under the rule paper");
  if (spec.tiedEmbeddings && candidate.head != candidate.embedding)
    return refuse("the tied head is the embedding: one is offloaded with the other");
  const int32_t end = spec.tiedEmbeddings ? layout.headUnit() : layout.headUnit() + 1;
  uint64_t largest = 0;
  int32_t before = layout.embeddingUnit();
  for (const int32_t unit : candidate.units) {
    if (unit <= before || unit >= end)
      return refuse("units are ascending numbers from 1 to ", end - 1, ", got ", unit, " behind ", before);
    before = unit;
    largest = std::max(largest, layout.units[static_cast<size_t>(unit)].bytes);
  }
  if (candidate.units.empty())
    for (int64_t layer = 0; layer < (candidate.layers > 0 ? spec.layers : 0); ++layer)
      for (int32_t unit = 0; unit < model::kUnitsPerLayer; ++unit) {
        const int32_t index = layout.layerUnit(layer, model::UnitRole::Qkv) + unit;
        largest = std::max(largest, layout.units[static_cast<size_t>(index)].bytes);
      }
  if (candidate.head && (candidate.units.empty() || spec.tiedEmbeddings))
    largest = std::max(
        largest,
        layout.units[static_cast<size_t>(spec.tiedEmbeddings ? layout.embeddingUnit() : layout.headUnit())].bytes);
  if (candidate.ringBytes && candidate.ringBytes < largest)
    return refuse("a ring of ", candidate.ringBytes, " bytes cannot hold a unit of ", largest);
  if (largest && !candidate.ringBytes && !candidate.slots)
    return refuse("what is offloaded needs slots or a ring");
  return absl::OkStatus();
}

} // namespace headrace::compiler
