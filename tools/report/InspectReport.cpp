// SPDX-License-Identifier: Apache-2.0
#include "tools/report/InspectReport.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/Text.h"
#include "runtime/model/KvEncoding.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/value/BlockRuns.h"
#include "runtime/plan/value/CacheMap.h"
#include "runtime/plan/value/LimitedBy.h"
#include "runtime/plan/value/PlacementTable.h"
#include "tools/commands/ModelHash.h"
#include "tools/report/ChoiceReport.h"
#include "tools/report/Format.h"
#include "tools/report/MovedBytes.h"

namespace headrace::tools {
namespace {

using Json = nlohmann::ordered_json;

// Tokens that KV blocks have room for: those there are, without the scratch block, and those that would fit into what
// the variant leaves of the budget.
int64_t maxTokens(const plan::Plan &plan, uint64_t peak) {
  uint64_t blockBytes = 0; // one block in every layer, of every mini-batch
  for (const plan::Buffer &buffer : plan.buffers)
    if (buffer.kind == plan::BufferKind::Kv && plan.kvBlocks > 0)
      blockBytes += buffer.bytes / static_cast<uint64_t>(plan.kvBlocks);
  if (plan.actBlocks > 0) { // of blocks of both kinds, as many as the share has of each
    const auto num = static_cast<uint64_t>(plan.actRatio.num), den = static_cast<uint64_t>(plan.actRatio.den);
    blockBytes = (num * plan.actBlockBytes() + (den - num) * plan.kvBlockBytes()) * plan.kvCaches() / den;
  }
  const uint64_t left = plan.deviceMemory > peak ? plan.deviceMemory - peak : 0;
  const auto more = static_cast<int64_t>(blockBytes == 0 ? 0 : left / blockBytes);
  return plan.miniBatches * (std::max<int64_t>(plan.mostContextBlocks(), 0) + more) * plan.blockTokens;
}

std::string intervalOf(const plan::Placement &placement, int32_t offloadedLayers) {
  if (placement.interval > 0)
    return model::cat(placement.interval);
  return offloadedLayers == 0 ? "none" : "";
}

Json deviceJson(const plan::DeviceBytes &bytes) {
  return {{"weights", bytes.weights},         {"slots", bytes.slots},         {"kv", bytes.kv},    {"io", bytes.io},
          {"activations", bytes.activations}, {"workspace", bytes.workspace}, {"peak", bytes.peak}};
}

double ms(uint64_t ns) { return static_cast<double>(ns) / 1e6; }

Json intervalJson(const plan::Placement &placement, int32_t offloadedLayers) {
  if (placement.interval > 0)
    return placement.interval;
  return offloadedLayers == 0 ? Json("none") : Json(nullptr);
}

uint64_t weightBytes(const plan::Plan &plan) {
  uint64_t bytes = 0;
  for (const plan::Buffer &buffer : plan.buffers)
    bytes += buffer.kind == plan::BufferKind::Weight ? buffer.bytes : 0;
  return bytes;
}

// The placement in which a transition starts.
uint32_t placementBefore(const plan::Schedule &schedule) {
  return schedule.fromPlacement == plan::kNone ? schedule.placement : schedule.fromPlacement;
}

} // namespace

uint32_t actLayersOnHost(const plan::Plan &plan) {
  uint32_t away = 0;
  for (const plan::Extent &e : plan.placements[0].extents)
    away += plan.buffers[e.buffer].kind == plan::BufferKind::Act && plan.buffers[e.buffer].index == 0 &&
            e.space == plan::Space::Host;
  return away;
}

std::string actText(const plan::Plan &plan) {
  const uint32_t away = actLayersOnHost(plan);
  const std::string home = away == 0                    ? std::string("on the device")
                           : away == plan.model->layers ? std::string("on the host")
                                                        : model::cat("of ", away, " layers on the host");
  const uint64_t all = static_cast<uint64_t>(plan.actBlocks) * plan.kvCaches();
  return absl::StrFormat(
      "%s, %d blocks of %d tokens a layer%s, %s, %s of each sequence's: %s in place of %s of keys and values",
      std::string(model::dtypeName(plan.activationDtype)), plan.actBlocks, plan.blockTokens,
      plan.miniBatches == 1 ? "" : " and mini-batch", home, model::actRatioText(plan.actRatio),
      formatBytes(all * plan.actBlockBytes()), formatBytes(all * plan.kvBlockBytes()));
}

std::string describePlacement(const plan::Plan &plan, const plan::Placement &placement) {
  std::vector<std::string> parts;
  const plan::OffloadedWeights offloaded = plan::offloadedWeights(plan, placement);
  if (offloaded.layers > 0)
    parts.push_back(
        absl::StrFormat("%d layer%s%s", offloaded.layers, offloaded.layers == 1 ? "" : "s",
                        placement.interval > 0 ? absl::StrFormat(" (interval %d)", placement.interval) : ""));
  if (offloaded.embedding)
    parts.push_back("embedding");
  if (offloaded.head)
    parts.push_back("head");
  if (const int64_t resident = plan::CacheMap(plan, placement).resident(); resident < placement.kvBlocks)
    parts.push_back(plan.attendsOnCpu() ? "all KV blocks, which the CPU attends to"
                    : resident == 0     ? "all KV blocks"
                                        : absl::StrFormat("KV blocks from %d on", resident));
  if (plan.residualsLeave() && plan.policy.residuals == model::Residuals::Host)
    parts.push_back("residuals between layers");
  return parts.empty() ? "nothing" : absl::StrJoin(parts, ", ");
}

std::string kvHomesText(const plan::Plan &plan, uint32_t placement) {
  const plan::Placement &p = plan.placements[placement];
  const plan::HomeBytes bytes = plan::kvBytesByHome(plan, placement);
  const int64_t resident = plan::CacheMap(plan, p).resident();
  if (bytes.host == 0)
    return "";
  const std::string each =
      plan.miniBatches == 1 ? "" : absl::StrFormat(" of each of %d mini-batches", plan.miniBatches);
  return absl::StrFormat(
      "%d of %d blocks%s on the device (%s), %d at home on the host (%s), brought %sthrough slots of "
      "%s",
      resident, p.kvBlocks, each, formatBytes(bytes.device), p.kvBlocks - resident, formatBytes(bytes.host),
      plan.attendsOnCpu() ? "for prompts alone " : "", formatBytes(plan::kvSlotBytes(plan, placement)));
}

std::string unknownHostMemory(const plan::Plan &plan) {
  return plan.hostBytes == 0 || plan.hardware.hostMemoryBytes > 0
             ? ""
             : model::cat(", of a machine that ", plan.hardware.name, " says nothing of: --host-memory bounds it");
}

std::string miniBatchesText(const plan::Plan &plan) {
  if (plan.miniBatches == 1)
    return "";
  const auto caches = static_cast<uint64_t>(plan.model->layers) * static_cast<uint64_t>(plan.kvBlocks);
  return absl::StrFormat("%d, each of up to %d sequences with %s of KV: a layer is passed for one after the other, its "
                         "weights brought once; tokens and sequences of a variant are those of one",
                         plan.miniBatches, plan.mostSequences(), formatBytes(caches * plan.kvBlockBytes()));
}

std::string_view kvWriteBackOf(const plan::Plan &plan, const plan::Schedule &schedule) {
  const auto home = std::find_if(schedule.steps.begin(), schedule.steps.end(), [&](const plan::Step &step) {
    return step.kind == plan::StepKind::Copy && plan::toHost(step.lane) && !movesResidual(plan, schedule, step);
  });
  return home == schedule.steps.end() ? "mirror" : home->dirtyOnly ? "dirty" : "all";
}

std::vector<KvRows> kvRowsOf(const plan::Plan &plan, uint32_t placement) {
  std::vector<KvRows> rows;
  if (plan::kvBytesByHome(plan, placement).host == 0)
    return rows;
  for (const plan::IterationClass iterationClass : {plan::IterationClass::Decode, plan::IterationClass::Mixed}) {
    const auto at = std::find_if(plan.schedules.begin(), plan.schedules.end(), [&](const plan::Schedule &schedule) {
      return schedule.placement == placement && schedule.iterationClass == iterationClass && schedule.kvBlocks == 0;
    });
    if (at == plan.schedules.end())
      continue;
    uint64_t residuals = 0;
    for (const plan::Step &step : at->steps)
      residuals += plan::toHost(step.lane) && movesResidual(plan, *at, step) ? step.linkBytes : 0;
    rows.push_back({iterationClass == plan::IterationClass::Decode ? "decode" : "prefill", kvWriteBackOf(plan, *at),
                    plan::linkBytes(*at).d2h - residuals});
  }
  return rows;
}

std::string kvRowsText(const plan::Plan &plan, uint32_t placement) {
  std::vector<std::string> parts;
  for (const KvRows &rows : kvRowsOf(plan, placement))
    parts.push_back(absl::StrFormat("%s %s, up to %s d2h", std::string(rows.iterationClass),
                                    rows.writeBack == "mirror" ? "mirrors"
                                    : rows.writeBack == "all"  ? "writes back all"
                                                               : "writes back what was written",
                                    formatBytes(rows.d2hBytes)));
  return absl::StrJoin(parts, "; ");
}

std::string kvCycleText(const plan::Plan &plan, uint32_t placement) {
  std::vector<plan::LinkBytes> phases;
  for (const plan::Schedule &schedule : plan.schedules)
    if (schedule.placement == placement && schedule.iterationClass == plan::IterationClass::Decode &&
        schedule.period > 1)
      phases.push_back(plan::linkBytes(schedule));
  if (phases.empty())
    return "";
  const auto text = [&](uint64_t plan::LinkBytes::*direction) {
    uint64_t sum = 0, least = phases.front().*direction, most = 0;
    for (const plan::LinkBytes &phase : phases) {
      sum += phase.*direction;
      least = std::min(least, phase.*direction);
      most = std::max(most, phase.*direction);
    }
    return absl::StrFormat("%s in the mean (%s to %s)", formatBytes(sum / phases.size()), formatBytes(least),
                           formatBytes(most));
  };
  return absl::StrFormat("of %d iterations; decode moves up to %s h2d, %s d2h", phases.size(),
                         text(&plan::LinkBytes::h2d), text(&plan::LinkBytes::d2h));
}

std::vector<VariantReport> reportVariants(const plan::Plan &plan) {
  std::vector<VariantReport> reports;
  for (uint32_t i = 0; i < plan.variants.size(); ++i) {
    const plan::Variant &variant = plan.variants[i];
    const plan::Placement &placement = plan.placements[variant.placement];
    VariantReport r;
    r.index = i;
    r.newTokens = variant.newTokens;
    r.sequences = variant.sequences;
    r.context = variant.context;
    r.placement = placement.name;
    if (plan.schedules[variant.schedule].kvBlocks > 0)
      r.placement += ", no tails"; // with nothing of them in use
    if (const plan::Schedule &schedule = plan.schedules[variant.schedule]; schedule.period > 1)
      r.placement += model::cat(", phase ", schedule.phase, " of ", schedule.period);
    r.offloadedLayers = plan::offloadedWeights(plan, placement).layers;
    r.interval = intervalOf(placement, r.offloadedLayers);
    r.deviceBytes = plan::deviceBytes(plan, variant.schedule);
    r.hostBytes =
        plan::weightBytesByHome(plan, variant.placement).host + plan::kvBytesByHome(plan, variant.placement).host;
    for (const plan::Buffer &buffer : plan.buffers)
      r.hostBytes += buffer.kind == plan::BufferKind::Residual ? buffer.bytes : 0;
    r.linkBytes = movedBytes(plan, variant);
    r.predictedNs = variant.predictedNs;
    r.computeAloneNs = variant.computeAloneNs;
    r.linkAloneNs = variant.linkAloneNs;
    r.cpuAloneNs = plan::cpuAloneNs(plan, variant);
    r.maxTokens = maxTokens(plan, r.deviceBytes.peak);
    r.limitingResource = plan::limitedBy(plan, variant);
    if (variant.linkAloneNs > std::max(variant.computeAloneNs, r.cpuAloneNs) && r.linkBytes.d2h > r.linkBytes.h2d)
      r.limitingResource = "link d2h";
    reports.push_back(std::move(r));
  }
  return reports;
}

std::string inspectText(const plan::Plan &plan, const std::string &path, bool all) {
  std::string out = absl::StrFormat("%s: %s on %s, format %d, compiler %s\n", oneLine(path), plan.model->name,
                                    plan.hardware.name, plan.version, plan.compilerVersion);
  const auto line = [&](const char *name, const std::string &value) {
    absl::StrAppendFormat(&out, "  %-16s %s\n", name, value);
  };
  line("model", absl::StrFormat("%s, %d layers, %s of %s weights%s, hash %s",
                                std::string(model::familyName(plan.model->family)), plan.model->layers,
                                formatBytes(weightBytes(plan)), std::string(model::dtypeName(plan.model->dtype)),
                                plan.model->encodings.any() ? ", packed " + model::weightEncodingText(plan.model) : "",
                                plan.modelHash));
  if (plan.model->isStage())
    line("stage", absl::StrFormat("layers %d to %d of %d", plan.model->stage.first,
                                  plan.model->stage.first + plan.model->layers - 1, plan.model->stage.of));
  line("hash covers", modelHashCovers(plan) + (plan.weightHashes.empty()
                                                   ? "; not the weights' values (compile --verify-weights)"
                                                   : model::cat("; the weights' values have ", weightsHash(plan))));
  line("device memory", absl::StrFormat("%s of %s allowed (%d of %d bytes)", formatBytes(plan.arenaBytes),
                                        formatBytes(plan.deviceMemory), plan.arenaBytes, plan.deviceMemory));
  line("host memory",
       absl::StrFormat("%s pinned (%d bytes)%s", formatBytes(plan.hostBytes), plan.hostBytes, unknownHostMemory(plan)));
  if (const std::string text = miniBatchesText(plan); !text.empty())
    line("mini-batches", text);
  line("KV cache", absl::StrFormat("%s, %d blocks of %d tokens a layer%s, context up to %d",
                                   model::encodingText(plan.kvEncoding), plan.kvBlocks, plan.blockTokens,
                                   plan.miniBatches == 1 ? "" : " and mini-batch", plan.maxContext));
  if (plan.actBlocks > 0)
    line("activations", actText(plan));
  for (uint32_t p = 0; p < plan.placements.size(); ++p)
    if (const std::string homes = kvHomesText(plan, p); !homes.empty()) {
      const std::string of = plan.placements.size() > 1 ? plan.placements[p].name + ": " : "";
      line("KV homes", of + homes);
      line("KV rows", of + kvRowsText(plan, p));
      if (const std::string cycle = kvCycleText(plan, p); !cycle.empty())
        line("KV cycle", of + cycle);
    }
  const bool alike = std::all_of(plan.placements.begin(), plan.placements.end(),
                                 [&](const plan::Placement &p) { return p.kvBlocks == plan.kvBlocks; });
  for (const plan::Placement &placement : plan.placements)
    line("offloaded",
         absl::StrFormat("%s: %s; start rule %s, %d slots%s", placement.name, describePlacement(plan, placement),
                         plan::startText(placement), placement.slots.size(),
                         alike ? std::string() : absl::StrFormat(", %d KV blocks a layer", placement.kvBlocks)));
  line("policy", describeGoal(plan));
  line("limited by", plan.limitingResource);
  line("reason", plan.reason);
  if (const std::string choices = choicesText(plan, all); !choices.empty())
    out += "\n" + choices;

  std::vector<std::vector<std::string>> table = {{"variant",   "tokens",  "seqs",  "context",    "placement",
                                                  "off",       "weights", "slots", "kv",         "activations",
                                                  "workspace", "peak",    "host",  "h2d/iter",   "d2h/iter",
                                                  "predicted", "compute", "link",  "max tokens", "limit"}};
  const bool onCpu = plan.attendsOnCpu() && plan.hardware.kind != model::DeviceKind::Host; // its time apart
  constexpr std::ptrdiff_t kBehindLink = 18;
  if (onCpu)
    table.front().insert(table.front().begin() + kBehindLink, "CPU");
  for (const VariantReport &r : reportVariants(plan)) {
    table.push_back({model::cat(r.index),
                     model::cat(r.newTokens),
                     model::cat(r.sequences),
                     model::cat(r.context),
                     r.placement,
                     model::cat(r.offloadedLayers),
                     formatBytes(r.deviceBytes.weights),
                     formatBytes(r.deviceBytes.slots),
                     formatBytes(r.deviceBytes.kv),
                     formatBytes(r.deviceBytes.activations),
                     formatBytes(r.deviceBytes.workspace),
                     formatBytes(r.deviceBytes.peak),
                     formatBytes(r.hostBytes),
                     formatBytes(r.linkBytes.h2d),
                     formatBytes(r.linkBytes.d2h),
                     formatNs(r.predictedNs),
                     formatNs(r.computeAloneNs),
                     formatNs(r.linkAloneNs),
                     model::cat(r.maxTokens),
                     r.limitingResource});
    if (onCpu)
      table.back().insert(table.back().begin() + kBehindLink, formatNs(r.cpuAloneNs));
  }
  out += "\n" + foldTable(table, all, "variants", kShowAll);
  if (!plan.transitions.empty()) {
    std::vector<std::vector<std::string>> moves = {{"transition", "from", "state", "to", "state", "h2d", "predicted"}};
    for (size_t t = 0; t < plan.transitions.size(); ++t) {
      const plan::Transition &transition = plan.transitions[t];
      const plan::Schedule &schedule = plan.schedules[transition.schedule];
      moves.push_back({model::cat(t), plan.placements[placementBefore(schedule)].name, model::cat(transition.fromState),
                       plan.placements[schedule.placement].name, model::cat(transition.toState),
                       formatBytes(plan::linkBytes(schedule).h2d), formatNs(transition.predictedNs)});
    }
    out += "\n" + foldTable(moves, all, "transitions", kShowAll);
  }
  return out;
}

// How rows get home, and how many bytes at the most, by class of the iteration; null where all blocks are on the
// device.
static Json kvWriteBackJson(const plan::Plan &plan, uint32_t placement) {
  Json json;
  for (const KvRows &rows : kvRowsOf(plan, placement))
    json[std::string(rows.iterationClass)] = {{"how", std::string(rows.writeBack)}, {"d2h_bytes", rows.d2hBytes}};
  return json;
}

std::string inspectJson(const plan::Plan &plan, const std::string &path) {
  const model::ModelSpec &model = plan.model;
  const Json weightEncoding = model.encodings.any() ? Json(model::weightEncodingText(model)) : Json(nullptr);
  Json json = {{"plan", path},
               {"plan_hash", plan::planHash(plan)},
               {"version", plan.version},
               {"compiler", plan.compilerVersion},
               {"model",
                {{"name", plan.model->name},
                 {"family", std::string(model::familyName(plan.model->family))},
                 {"layers", plan.model->layers},
                 {"dtype", std::string(model::dtypeName(plan.model->dtype))},
                 {"weight_encoding", weightEncoding},
                 {"weight_bytes", weightBytes(plan)},
                 {"hash", plan.modelHash},
                 {"hash_covers", modelHashCovers(plan)},
                 {"weights_hash", plan.weightHashes.empty() ? Json(nullptr) : Json(weightsHash(plan))},
                 {"path", plan.modelPath}}},
               {"hardware", plan.hardware.name},
               {"device_memory_bytes", plan.deviceMemory},
               {"budget_bytes", plan.deviceMemory}, // its name before
               {"arena_bytes", plan.arenaBytes},
               {"host_bytes", plan.hostBytes},
               {"activation_dtype", std::string(model::dtypeName(plan.activationDtype))},
               {"kv_dtype", model::encodingText(plan.kvEncoding)},
               {"block_tokens", plan.blockTokens},
               {"mini_batches", plan.miniBatches},
               {"attention", plan.attendsOnCpu() ? "cpu" : "device"}, // of rows that decode
               {"kv_blocks", plan.kvBlocks},
               {"act_blocks", plan.actBlocks},
               {"act_ratio", model::actRatioText(plan.actRatio)},
               {"act_layers_on_host", actLayersOnHost(plan)},
               {"max_context", plan.maxContext},
               {"policy", plan.policy.name},
               {"objective", objectiveJson(plan)},
               {"slowest_factor", plan.slowestPermille / 1000.0},
               {"limiting_resource", plan.limitingResource},
               {"reason", plan.reason}};
  Json placements = Json::array();
  for (uint32_t p = 0; p < plan.placements.size(); ++p) {
    const plan::Placement &placement = plan.placements[p];
    const plan::HomeBytes homes = plan::weightBytesByHome(plan, p);
    const plan::OffloadedWeights offloaded = plan::offloadedWeights(plan, placement);
    placements.push_back(
        {{"name", placement.name},
         {"interval", intervalJson(placement, offloaded.layers)},
         {"offloaded_layers", offloaded.layers},
         {"offloads_embedding", offloaded.embedding},
         {"offloads_head", offloaded.head},
         {"start_rule", plan::startText(placement)},
         {"slots", placement.slots.size()},
         {"freed_bytes", plan::freedBytes(plan, p)},
         {"kv_blocks", placement.kvBlocks},
         {"kv_blocks_on_device", plan::CacheMap(plan, placement).resident()},
         {"kv_bytes_by_home",
          {{"device", plan::kvBytesByHome(plan, p).device}, {"host", plan::kvBytesByHome(plan, p).host}}},
         {"kv_slot_bytes", plan::kvSlotBytes(plan, p)},
         {"kv_device_bytes", plan::kvDeviceBytes(plan, p)},
         {"kv_write_back", kvWriteBackJson(plan, p)},
         {"weight_bytes_by_home", {{"device", homes.device}, {"host", homes.host}}}});
  }
  json["placements"] = std::move(placements);
  json["choices"] = choicesJson(plan);
  Json variants = Json::array();
  for (const VariantReport &r : reportVariants(plan)) {
    const plan::Placement &placement = plan.placements[plan.variants[r.index].placement];
    variants.push_back({{"key",
                         {{"new_tokens", r.newTokens},
                          {"sequences", r.sequences},
                          {"context", r.context},
                          {"placement", placement.name},
                          {"kv_blocks", plan::kvBlocksOf(plan, plan.schedules[plan.variants[r.index].schedule])},
                          {"phase", plan.schedules[plan.variants[r.index].schedule].phase},
                          {"period", plan.schedules[plan.variants[r.index].schedule].period}}},
                        {"interval", intervalJson(placement, r.offloadedLayers)},
                        {"offloaded_layers", r.offloadedLayers},
                        {"device_bytes", deviceJson(r.deviceBytes)},
                        {"host_bytes", r.hostBytes},
                        {"h2d_bytes", r.linkBytes.h2d},
                        {"d2h_bytes", r.linkBytes.d2h},
                        {"predicted_iteration_ms", ms(r.predictedNs)},
                        {"compute_alone_ms", ms(r.computeAloneNs)},
                        {"link_alone_ms", ms(r.linkAloneNs)},
                        {"cpu_alone_ms", ms(r.cpuAloneNs)},
                        {"max_tokens", r.maxTokens},
                        {"limiting_resource", r.limitingResource}});
  }
  json["variants"] = std::move(variants);
  Json transitions = Json::array();
  for (const plan::Transition &t : plan.transitions)
    transitions.push_back({{"from_placement", placementBefore(plan.schedules[t.schedule])},
                           {"to_placement", plan.schedules[t.schedule].placement},
                           {"from_state", t.fromState},
                           {"to_state", t.toState},
                           {"h2d_bytes", plan::linkBytes(plan.schedules[t.schedule]).h2d},
                           {"predicted_ms", ms(t.predictedNs)}});
  json["transitions"] = std::move(transitions);
  // A name from a file may hold bytes that are no UTF-8: those are replaced, never thrown about.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

} // namespace headrace::tools
