// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "tools/commands/ExitCode.h"
#include "tools/report/ServeReport.h"
#include "tools/timeline/TrafficSvg.h"

namespace headrace::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kSamples = 200; // of KV use over time, at most

double ms(int64_t ns) { return static_cast<double>(ns) / 1e6; }
double seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }
Json milliseconds(const std::optional<std::chrono::nanoseconds> &time) {
  return time ? Json(static_cast<double>(time->count()) / 1e6) : Json(nullptr);
}
Json textOrNull(const std::string &text) { return text.empty() ? Json(nullptr) : Json(text); }

Json latencyJson(const serve::LatencySummary &of, const std::vector<double> &percentiles) {
  if (of.count == 0)
    return nullptr;
  Json json = {{"count", of.count}, {"mean", of.meanMs}, {"median", of.medianMs}, {"std", of.stdMs}, {"max", of.maxMs}};
  for (size_t p = 0; p < percentiles.size(); ++p)
    json[absl::StrFormat("p%g", percentiles[p])] = of.percentilesMs[p];
  return json;
}

Json samplesJson(const serve::TrafficResult &result) {
  Json json = {
      {"seconds", Json::array()}, {"kv_blocks", Json::array()}, {"running", Json::array()}, {"waiting", Json::array()}};
  for (const serve::EngineSample &sample : thinned(result.samples, kSamples)) {
    json["seconds"].push_back(seconds(sample.ns));
    json["kv_blocks"].push_back(sample.kvBlocks);
    json["running"].push_back(sample.running);
    json["waiting"].push_back(sample.waiting);
  }
  return json;
}

Json errorJson(const absl::Status &error) {
  return {{"message", std::string(error.message())}, {"exit_status", exitCodeOf(error)}};
}

Json requestJson(const serve::RequestTimes &r) {
  const auto known = [](bool there, double value) { return there ? Json(value) : Json(nullptr); };
  return {{"arrival_s", seconds(r.arrivalNs)},
          {"prompt_tokens", r.promptTokens},
          {"output_tokens", r.outputTokens},
          {"queueing_ms", known(r.startNs >= 0, ms(r.queueingNs()))},
          {"ttft_ms", known(r.firstTokenNs >= 0, ms(r.ttftNs()))},
          {"tpot_ms", known(r.completed() && r.outputTokens > 1, r.tpotNs() / 1e6)},
          {"e2el_ms", known(r.completed(), ms(r.latencyNs()))},
          {"preemptions", r.preemptions},
          {"error", r.why.ok() ? Json(nullptr) : Json(std::string(r.why.message()))}};
}

Json runJson(const ServeReport &report, const ServeRun &run) {
  const serve::TrafficMetrics &m = run.metrics;
  Json json = {{"request_rate_per_second", run.requestRate == 0          ? Json(nullptr)
                                           : std::isinf(run.requestRate) ? Json("inf")
                                                                         : Json(run.requestRate)},
               {"requests", m.requests},
               {"completed", m.completed},
               {"refused", m.refused},
               {"failed", m.failed},
               {"refusals", Json::array()},
               {"duration_s", m.durationS},
               {"input_tokens", m.inputTokens},
               {"output_tokens", m.outputTokens},
               {"requests_per_second", m.requestThroughput},
               {"output_tokens_per_second", m.outputThroughput},
               {"total_tokens_per_second", m.totalThroughput},
               {"goodput_requests_per_second", report.goodput.any() ? Json(m.requestGoodput) : Json(nullptr)}};
  for (const ServeRefusal &refusal : refusalsOf(run.result.requests))
    json["refusals"].push_back({{"count", refusal.count}, {"started", refusal.started}, {"first", refusal.first}});
  json["ttft_held"] = report.heldOf(run).json();
  for (const ServeMetric &metric : report.metrics)
    json[std::string(metric.name) + "_ms"] = latencyJson(m.*metric.of, report.percentiles);
  const serve::EngineCounters &engine = run.result.engine;
  const core::DeviceCounters &device = run.result.device;
  json.update({{"overloaded", m.overloaded()},
               {"waiting_at_last_arrival", m.waitingAtLastArrival},
               {"peak_concurrency", m.peakConcurrency},
               {"kv_blocks", m.kvBlocks},
               {"peak_kv_blocks", m.peakKvBlocks},
               {"preemptions", m.preemptions},
               {"preempted_requests", m.preemptedRequests},
               {"blocks_offered", engine.blocksOffered},
               {"expansions_grown", engine.expansionsGrown},
               {"expansions_shrunk", engine.expansionsShrunk},
               {"least_brought_bytes", engine.leastBroughtBytes},
               {"compacted_blocks", engine.compactedBlocks},
               {"compaction_bytes", engine.compactionBytes},
               {"swaps_out", engine.swapsOut},
               {"swaps_in", engine.swapsIn},
               {"swap_out_bytes", engine.swapOutBytes},
               {"swap_in_bytes", engine.swapInBytes},
               {"swap_fallbacks", engine.swapFallbacks},
               {"iterations", engine.iterations},
               {"prefill_iterations", engine.prefillIterations},
               {"thrown_away_rows", engine.thrownAwayRows},
               {"padded_rows", engine.paddedRows},
               {"h2d_bytes", device.h2dBytes},
               {"d2h_bytes", device.d2hBytes},
               {"stall_ms", ms(device.stallNs)},
               {"over_time", samplesJson(run.result)}});
  if (report.detailed) {
    json["each"] = Json::array();
    for (const serve::RequestTimes &request : run.result.requests)
      json["each"].push_back(requestJson(request));
  }
  return json;
}

} // namespace

std::string ServeReport::json() const {
  Json json = {{"format", "headrace-bench"},
               {"command", "bench serve"},
               {"model", model},
               {"hardware", hardware},
               {"device", device},
               {"plan", textOrNull(plan)},
               {"plan_hash", planHash},
               {"compiled", compiled.empty() ? Json(nullptr) : Json("headrace compile " + compiled)},
               {"offloaded", offloaded},
               {"placement", textOrNull(placement)},
               {"context", context},
               {"kv_blocks", kvBlocks},
               {"block_tokens", blockTokens},
               {"kv_requests", kvRequests()},
               {"scheduler", scheduler},
               {"prefill", prefill},
               {"max_num_seqs", maxNumSeqs},
               {"micro_batches", microBatches},
               {"max_num_batched_tokens", maxNumBatchedTokens},
               {"swap_space_bytes", swapBytes},
               {"dataset", dataset},
               {"lengths", lengths},
               {"num_prompts", numPrompts},
               {"draws_left_out", leftOut},
               {"trace_clock", dataset == "trace" ? Json(traceClock) : Json(nullptr)},
               {"trace_rows_dropped", dataset == "trace" ? Json(traceDropped) : Json(nullptr)},
               {"trace_begin_s", dataset == "trace" ? Json(traceBeginS) : Json(nullptr)},
               {"max_concurrency", maxConcurrency > 0 ? Json(maxConcurrency) : Json(nullptr)},
               {"burstiness", std::isinf(burstiness) ? Json("inf") : Json(burstiness)},
               {"seed", seed},
               {"goodput",
                {{"ttft_ms", milliseconds(goodput.ttft)},
                 {"tpot_ms", milliseconds(goodput.tpot)},
                 {"e2el_ms", milliseconds(goodput.e2el)}}},
               {"results", Json::array()}};
  for (const ServeRun &run : runs)
    json["results"].push_back(runJson(*this, run));
  if (!error.ok())
    json["error"] = errorJson(error);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

} // namespace headrace::tools
