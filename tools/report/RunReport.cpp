// SPDX-License-Identifier: Apache-2.0
#include "tools/report/RunReport.h"

#include <algorithm>
#include <numeric>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/Text.h"
#include "runtime/plan/PlanFile.h"
#include "tools/report/Format.h"
#include "tools/report/InspectReport.h"
#include "tools/report/TtftHeld.h"

namespace headrace::tools {
namespace {

using Json = nlohmann::ordered_json;

double ms(int64_t ns) { return static_cast<double>(ns) / 1e6; }

Json comparedJson(const Compared &c) {
  if (c.iterations == 0)
    return nullptr;
  return {{"iterations", c.iterations},
          {"predicted_ms", c.predictedMs},
          {"measured_ms", c.measuredMs},
          {"ratio", c.ratio()}};
}

Json homesJson(const plan::HomeBytes &homes) { return {{"device", homes.device}, {"host", homes.host}}; }

// Tokens a second of all prompts, from the start to the last token: new ones, and with those of the prompts.
struct Throughput {
  double output = 0, total = 0;
};
Throughput throughputOf(const RunReport &report) {
  size_t made = 0;
  for (const std::vector<int32_t> &tokens : report.result.tokens)
    made += tokens.size();
  const auto output = static_cast<double>(made);
  const auto prompts =
      static_cast<double>(std::accumulate(report.promptTokens.begin(), report.promptTokens.end(), int64_t{0}));
  const double seconds = static_cast<double>(report.result.durationNs) / 1e9;
  return seconds > 0 ? Throughput{output / seconds, (output + prompts) / seconds} : Throughput{};
}

std::string comparedText(const char *name, const Compared &c, double transitionsMs = 0) {
  if (c.iterations == 0)
    return "";
  const std::string way =
      transitionsMs > 0 ? absl::StrFormat(", with %.3f ms of transitions in all", transitionsMs) : "";
  return absl::StrFormat("%-16s predicted %.3f ms, measured %.3f ms (%.2f x) over %d iteration%s%s\n", name,
                         c.predictedMs, c.measuredMs, c.ratio(), c.iterations, c.iterations == 1 ? "" : "s", way);
}

// From the start of the run, at which all prompts come.
TtftHeld heldOf(const plan::Plan &plan, const serve::GenerateResult &result) {
  TtftHeld held(plan.goal.ttft);
  for (const int64_t ns : result.firstTokenNs)
    held.add(ns);
  return held;
}

} // namespace

std::string runText(const plan::Plan &plan, uint32_t placement, const RunReport &report) {
  const serve::GenerateResult &r = report.result;
  std::string out;
  for (size_t p = 0; p < r.tokens.size(); ++p)
    if (report.texts.empty())
      absl::StrAppendFormat(&out, "tokens %-9d %s\n", p, absl::StrJoin(r.tokens[p], ","));
    else
      absl::StrAppendFormat(&out, "prompt %-9d %d tokens, %d new ones, ended by %s\n", p, report.promptTokens[p],
                            r.tokens[p].size(),
                            r.ends[p] == serve::EndReason::Stop        ? "itself"
                            : r.ends[p] == serve::EndReason::Cancelled ? "an interrupt"
                                                                       : report.lengthIs);
  if (const auto cut = std::count(r.ends.begin(), r.ends.end(), serve::EndReason::Cancelled); cut > 0)
    absl::StrAppendFormat(&out, "%-16s %d of %d replies are what there was by then\n", "interrupted", cut,
                          r.ends.size());
  if (report.madeUp)
    absl::StrAppendFormat(&out, "%-16s made up: the %s device computes nothing\n", "", report.device);
  const auto line = [&](const char *name, const std::string &value) {
    absl::StrAppendFormat(&out, "%-16s %s\n", name, value);
  };
  const int64_t priced = plan.hardware.threads;
  line("device", report.madeUp || report.threads == priced ? report.device
                                                           : model::cat(report.device, "; the plan is priced for ",
                                                                        priced, priced == 1 ? " thread" : " threads"));
  line("offloaded", describePlacement(plan, plan.placements[placement]));
  const std::string held = heldOf(plan, r).text();
  line("TTFT", absl::StrFormat("%.3f ms%s%s", r.ttftMs, held.empty() ? "" : "; ", held));
  line("TPOT", r.tpotMs > 0 ? absl::StrFormat("%.3f ms", r.tpotMs) : "none: a token each");
  const Throughput throughput = throughputOf(report);
  line("throughput",
       formatRate(throughput.output) + " output tokens/s, " + formatRate(throughput.total) + " tokens/s in all");
  line("iterations", model::cat(r.iterations, ", ", r.prefillIterations, " of them with prompts; ", report.transitions,
                                " transitions, ", report.missingVariants, " missing variants"));
  const std::string swaps = r.swapsOut + r.swapFallbacks > 0
                                ? model::cat(" (", r.swapsOut, " swapped, ", formatBytes(r.swapOutBytes), " out and ",
                                             formatBytes(r.swapInBytes), " in)")
                                : "";
  line("scheduler", model::cat(r.preemptions, " preemptions", swaps, ", ", r.thrownAwayRows, " rows thrown away",
                               r.paddedRows > 0 ? model::cat(", ", r.paddedRows, " of padding") : "",
                               r.placementsNotTaken > 0
                                   ? model::cat(", ", r.placementsNotTaken,
                                                " iterations in another placement than the one chosen, for KV blocks "
                                                "in use that it has not")
                                   : ""));
  if (report.leftOutVariants > 0)
    line("left out", model::cat(report.leftOutVariants, " of ", plan.variants.size(),
                                " variants, for --graph-memory or --graph-seconds; larger ones ran in their place"));
  const Compared prefill = report.times.prefill(), decode = report.times.decode(), changes = report.times.changes();
  out += comparedText("prefill", prefill) + comparedText("changes", changes, report.times.transitionsMs()) +
         comparedText("decode", decode) + report.times.gapsText();
  line("device memory", formatBytes(r.counters.peakDeviceBytes) + " at most");
  line("moved", formatBytes(r.counters.h2dBytes) + " to the device, " + formatBytes(r.counters.d2hBytes) + " back");
  line(
      "stalls",
      absl::StrFormat("%.3f ms of compute waiting for copies", ms(r.counters.stallNs)) +
          (r.counters.cpuWaitNs > 0 ? absl::StrFormat(", %.3f ms waiting for the CPU", ms(r.counters.cpuWaitNs)) : ""));
  return out + findingsText(report.findings);
}

nlohmann::ordered_json repliesJson(const serve::GenerateResult &r, bool madeUp,
                                   const std::vector<int64_t> &promptTokens) {
  Json tokens = Json::array();
  for (const std::vector<int32_t> &one : r.tokens)
    tokens.push_back(one);
  Json first = Json::array();
  for (size_t p = 0; p < r.tokens.size(); ++p)
    first.push_back(r.tokens[p].empty() ? Json(nullptr) : Json(ms(r.firstTokenNs[p])));
  Json ends = Json::array();
  for (const serve::EndReason end : r.ends)
    ends.push_back(end == serve::EndReason::Stop        ? "stop"
                   : end == serve::EndReason::Cancelled ? "cancelled"
                                                        : "length");
  return {{"tokens", std::move(tokens)},
          {"tokens_made_up", madeUp},
          {"prompt_tokens", promptTokens},
          {"finish_reasons", std::move(ends)},
          {"ttft_ms", r.ttftMs},
          {"tpot_ms", r.tpotMs},
          {"first_token_ms", std::move(first)},
          {"duration_ms", ms(r.durationNs)}};
}

std::string runJson(const plan::Plan &plan, uint32_t placement, const core::Manifest &manifest,
                    const RunReport &report) {
  const serve::GenerateResult &r = report.result;
  const Compared decode = report.times.decode();
  const Throughput throughput = throughputOf(report);
  Json json = {{"plan", report.planPath},
               {"plan_hash", plan::planHash(plan)},
               {"device", report.device},
               {"threads", report.threads},
               {"ttft_held", heldOf(plan, r).json()},
               {"output_tokens_per_second", throughput.output},
               {"total_tokens_per_second", throughput.total},
               {"predicted_tpot_ms", decode.iterations == 0 ? Json(nullptr) : Json(decode.predictedMs)},
               {"measured_over_predicted", decode.iterations == 0 ? Json(nullptr) : Json(decode.ratio())},
               {"prefill", comparedJson(report.times.prefill())},
               {"changes", comparedJson(report.times.changes())},
               {"decode", comparedJson(decode)},
               {"gaps", report.times.gapsJson()},
               {"peak_device_bytes", r.counters.peakDeviceBytes},
               {"host_bytes", r.counters.hostBytes},
               {"h2d_bytes", r.counters.h2dBytes},
               {"d2h_bytes", r.counters.d2hBytes},
               {"stall_ms", ms(r.counters.stallNs)},
               {"cpu_wait_ms", ms(r.counters.cpuWaitNs)},
               {"offloaded_layers", plan::offloadedWeights(plan, plan.placements[placement]).layers},
               {"placement", plan.placements[placement].name},
               {"iterations", r.iterations},
               {"prefill_iterations", r.prefillIterations},
               {"preemptions", r.preemptions},
               {"swaps_out", r.swapsOut},
               {"swaps_in", r.swapsIn},
               {"swap_out_bytes", r.swapOutBytes},
               {"swap_in_bytes", r.swapInBytes},
               {"swap_fallbacks", r.swapFallbacks},
               {"thrown_away_rows", r.thrownAwayRows},
               {"padded_rows", r.paddedRows},
               {"placements_not_taken", r.placementsNotTaken},
               {"transitions", report.transitions},
               {"missing_variants", report.missingVariants},
               {"left_out_variants", report.leftOutVariants},
               {"manifest",
                {{"planned", homesJson(manifest.planned)},
                 {"loaded", homesJson(manifest.loaded)},
                 {"kv", homesJson(manifest.kv)},
                 {"device_arena_bytes", manifest.deviceArenaBytes},
                 {"host_slab_bytes", manifest.hostSlabBytes}}}};
  json.update(repliesJson(r, report.madeUp, report.promptTokens));
  if (!report.texts.empty())
    json["texts"] = report.texts;
  addFindings(report.findings, json);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

} // namespace headrace::tools
