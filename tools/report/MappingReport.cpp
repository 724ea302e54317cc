// SPDX-License-Identifier: Apache-2.0
#include "tools/report/MappingReport.h"

#include <algorithm>
#include <map>
#include <tuple>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "runtime/base/Text.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/CacheMap.h"
#include "runtime/sim/Simulator.h"
#include "tools/report/Format.h"

namespace headrace::tools {
namespace {

using Json = nlohmann::ordered_json;

// The variants that are shown, phase by phase.
std::vector<uint32_t> phasesOf(const plan::Plan &plan) {
  const auto key = [&](const plan::Variant &variant) {
    return std::tuple(variant.newTokens, variant.sequences, variant.context);
  };
  std::map<uint32_t, uint32_t> phases; // phase -> variant
  for (uint32_t v = 0; v < plan.variants.size(); ++v) {
    const plan::Variant &variant = plan.variants[v];
    const plan::Schedule &schedule = plan.schedules[variant.schedule];
    if (variant.placement != 0 || schedule.kvBlocks != 0 || schedule.iterationClass != plan::IterationClass::Decode)
      continue;
    if (!phases.empty() && key(plan.variants[phases.begin()->second]) < key(variant))
      phases.clear();
    phases[schedule.phase] = v;
  }
  std::vector<uint32_t> variants;
  variants.reserve(phases.size());
  for (const auto &[phase, variant] : phases)
    variants.push_back(variant);
  return variants;
}

// The cache that a copy brings or writes back; null: a copy of something else.
const plan::Buffer *cacheOf(const plan::Plan &plan, const plan::Schedule &schedule, const plan::Step &step) {
  if (step.kind != plan::StepKind::Copy)
    return nullptr;
  const uint32_t buffer = schedule.operands[step.firstOperand].buffer;
  const plan::Buffer &moved = plan.buffer(schedule, buffer);
  return moved.kind == plan::BufferKind::Kv && moved.index == 0 ? &moved : nullptr;
}

uint64_t deviceAddress(const plan::Schedule &schedule, const plan::Step &step) {
  for (uint32_t o = step.firstOperand; o < step.firstOperand + step.operandCount; ++o)
    if (schedule.operands[o].space == plan::Space::Device)
      return schedule.operands[o].address;
  return 0;
}

int32_t placeAt(const std::vector<uint64_t> &places, uint64_t address) {
  return static_cast<int32_t>(std::lower_bound(places.begin(), places.end(), address) - places.begin());
}

MappingPhase phaseOf(const plan::Plan &plan, const std::vector<uint64_t> &places, uint32_t variant) {
  const plan::Schedule &schedule = plan.schedules[plan.variants[variant].schedule];
  const auto layers = static_cast<size_t>(plan.model->layers);
  MappingPhase phase{variant,
                     std::vector<int32_t>(places.size(), -1),
                     std::vector<uint64_t>(layers, UINT64_MAX),
                     std::vector<uint64_t>(layers, 0),
                     {}};
  for (const plan::Content &content : plan.states[schedule.entryState].contents)
    if (const plan::Buffer &buffer = plan.buffers[content.buffer];
        buffer.kind == plan::BufferKind::Kv && buffer.index == 0)
      phase.entry[static_cast<size_t>(placeAt(places, content.address))] = buffer.layer;
  const sim::Timeline timeline =
      sim::Simulator(plan, schedule).run(plan.variants[variant].durationsNs, cost::sharingOf(plan.hardware));
  for (size_t s = 0; s < schedule.steps.size(); ++s) {
    const plan::Step &step = schedule.steps[s];
    const auto [begin, end] = timeline.steps[s];
    if (const plan::Buffer *cache = cacheOf(plan, schedule, step)) {
      phase.swaps.push_back(
          {cache->layer, placeAt(places, deviceAddress(schedule, step)), plan::toHost(step.lane), begin, end});
    } else if (step.lane == plan::Lane::Compute && step.layer >= 0) {
      uint64_t &start = phase.startsNs[static_cast<size_t>(step.layer)];
      start = std::min(start, begin);
      uint64_t &ends = phase.endsNs[static_cast<size_t>(step.layer)];
      ends = std::max(ends, end);
    }
  }
  std::stable_sort(phase.swaps.begin(), phase.swaps.end(),
                   [](const MappingSwap &a, const MappingSwap &b) { return a.beginNs < b.beginNs; });
  return phase;
}

// What is where at a time, a character a layer.
std::string statesAt(const MappingPhase &phase, uint64_t ns) {
  std::string states(phase.startsNs.size(), 'h');
  for (const int32_t layer : phase.entry)
    if (layer >= 0)
      states[static_cast<size_t>(layer)] = '.';
  for (const MappingSwap &swap : phase.swaps)
    if (swap.beginNs <= ns)
      states[static_cast<size_t>(swap.layer)] = swap.endNs > ns ? (swap.out ? 'o' : 'i') : (swap.out ? 'h' : '.');
  return states;
}

std::string cell(const std::string &text, size_t width) {
  return absl::StrFormat("%-*s", static_cast<int>(width), text);
}

std::string trimmed(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string phaseText(const MappingPhase &phase, size_t number) {
  const size_t layers = phase.startsNs.size(), digits = std::to_string(layers - 1).size();
  const size_t width = digits == 1 ? 2 : digits + 2; // of several digits two blanks part them: a terminal folds there
  std::string head = cell("at", 10) + cell("layer", 7);
  for (size_t layer = 0; layer < layers; ++layer)
    head += cell(std::to_string(layer), width);
  std::string text =
      absl::StrFormat("\nphase %d, as each layer starts\n", number) + trimmed(head + "  swaps that begin");
  for (size_t layer = 0; layer < layers; ++layer) {
    const uint64_t start = phase.startsNs[layer];
    const uint64_t until = layer + 1 < layers ? phase.startsNs[layer + 1] : UINT64_MAX;
    std::string states = statesAt(phase, start), line = cell(formatNs(start), 10) + cell(std::to_string(layer), 7);
    states[layer] = '#';
    for (const char state : states)
      line += cell(std::string(1, state), width);
    std::string begun;
    for (const MappingSwap &swap : phase.swaps)
      if ((swap.beginNs >= start || layer == 0) && swap.beginNs < until)
        begun +=
            model::cat(begun.empty() ? "" : ", ", swap.layer, swap.out ? " out of place " : " into place ", swap.place);
    if (const uint64_t ready = layer == 0 ? start : phase.endsNs[layer - 1]; start > ready)
      begun += model::cat(begun.empty() ? "" : "; ", "waited ", formatNs(start - ready));
    text += trimmed(line.append("  ").append(begun));
  }
  return text;
}

} // namespace

Mapping mappingOf(const plan::Plan &plan) {
  Mapping mapping;
  const std::vector<uint32_t> variants = phasesOf(plan);
  for (const uint32_t variant : variants) {
    const plan::Schedule &schedule = plan.schedules[plan.variants[variant].schedule];
    for (const plan::Content &content : plan.states[schedule.entryState].contents)
      if (plan.buffers[content.buffer].kind == plan::BufferKind::Kv)
        mapping.places.push_back(content.address);
    for (const plan::Step &step : schedule.steps)
      if (cacheOf(plan, schedule, step) != nullptr)
        mapping.places.push_back(deviceAddress(schedule, step));
  }
  std::sort(mapping.places.begin(), mapping.places.end());
  mapping.places.erase(std::unique(mapping.places.begin(), mapping.places.end()), mapping.places.end());
  if (mapping.places.empty())
    return mapping;
  mapping.homes.assign(static_cast<size_t>(plan.model->layers), 0);
  if (const plan::CacheMap caches(plan, plan.placements.front()); caches.split())
    for (int64_t layer = 0; layer < caches.layers(); ++layer)
      mapping.homes[static_cast<size_t>(layer)] = *caches.of(layer, caches.resident()).host;
  for (const uint32_t variant : variants)
    mapping.phases.push_back(phaseOf(plan, mapping.places, variant));
  return mapping;
}

std::string mappingText(const plan::Plan &plan, bool all) {
  const Mapping mapping = mappingOf(plan);
  if (mapping.phases.empty())
    return "mapping: all caches stay on the device, or are brought before any iteration; none moves in one\n";
  const plan::Variant &variant = plan.variants[mapping.phases.front().variant];
  std::string text = absl::StrFormat(
      "Caches of %d layers in %d places, decode of %d sequences at context %d, all blocks in use; a cycle of %d\n"
      "#  the layer that computes   .  on the device   i  on its way in   o  on its way out   h  on the host\n",
      plan.model->layers, mapping.places.size(), variant.sequences, variant.context, mapping.phases.size());
  std::vector<std::vector<std::string>> rows = {{"place", "address"}};
  for (size_t phase = 0; phase < mapping.phases.size(); ++phase)
    rows.front().push_back(model::cat("phase ", phase));
  for (size_t place = 0; place < mapping.places.size(); ++place) {
    std::vector<std::string> &row = rows.emplace_back();
    row = {std::to_string(place), std::to_string(mapping.places[place])};
    for (const MappingPhase &phase : mapping.phases)
      row.push_back(phase.entry[place] < 0 ? "-" : std::to_string(phase.entry[place]));
  }
  text += "\nthe layer in each place as a phase starts; on the host each layer's cache has its own home\n" +
          formatTable(rows);
  for (size_t phase = 0; phase < (all ? mapping.phases.size() : 1); ++phase)
    text += phaseText(mapping.phases[phase], phase);
  if (!all && mapping.phases.size() > 1)
    text += absl::StrFormat("... %d more phases: --all shows them\n", mapping.phases.size() - 1);
  return text;
}

std::string mappingJson(const plan::Plan &plan) {
  const Mapping mapping = mappingOf(plan);
  Json phases = Json::array();
  for (const MappingPhase &phase : mapping.phases) {
    Json entry = Json::array(), swaps = Json::array();
    for (const int32_t layer : phase.entry)
      entry.push_back(layer < 0 ? Json(nullptr) : Json(layer));
    for (const MappingSwap &swap : phase.swaps)
      swaps.push_back({{"layer", swap.layer},
                       {"place", swap.place},
                       {"direction", swap.out ? "d2h" : "h2d"},
                       {"begin_ns", swap.beginNs},
                       {"end_ns", swap.endNs}});
    phases.push_back({{"variant", phase.variant},
                      {"entry", std::move(entry)},
                      {"layer_start_ns", phase.startsNs},
                      {"swaps", std::move(swaps)}});
  }
  return Json{{"places", mapping.places}, {"homes", mapping.homes}, {"phases", std::move(phases)}}.dump(2) + "\n";
}

} // namespace headrace::tools
