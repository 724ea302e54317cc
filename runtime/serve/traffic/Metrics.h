// SPDX-License-Identifier: Apache-2.0
//
// What is reported of traffic, under the names and by the formulas of `vllm bench serve`:
//
//   request throughput   completed / duration                     TTFT   first token - arrival
//   output throughput    tokens of completed requests / duration  TPOT   (last - first token) / (tokens - 1)
//   total throughput     with their prompts' tokens               ITL    every gap between two tokens of a request
//   goodput              completed within all objectives /        E2EL   last token - arrival
//                        duration                                 queueing   start - arrival
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/serve/traffic/Traffic.h"

namespace headrace::serve {

// Of --goodput; none: not asked for.
struct GoodputObjectives {
  std::optional<std::chrono::nanoseconds> ttft, tpot, e2el; // above zero
  bool any() const { return ttft || tpot || e2el; }
};

// "ttft:200" "tpot:50ms" "e2el:5s", each at most once, above zero; as vLLM's, a bare number is milliseconds.
// InvalidArgument naming the word.
absl::StatusOr<GoodputObjectives> parseGoodput(absl::Span<const std::string> words);
// "50,99,99.9", each from 0 to 100. InvalidArgument naming the word.
absl::StatusOr<std::vector<double>> parsePercentiles(std::string_view text);

struct MetricsOptions {
  std::vector<double> percentiles = {50, 99};
  GoodputObjectives goodput;
};

// Of values in ns. All zero where there are none.
struct LatencySummary {
  uint64_t count = 0;
  double meanMs = 0, medianMs = 0, stdMs = 0, maxMs = 0; // std: of the values as the whole population
  std::vector<double> percentilesMs;                     // in the order of MetricsOptions::percentiles
};

struct TrafficMetrics {
  uint64_t requests = 0;
  uint64_t completed = 0, refused = 0, failed = 0; // refused: before they ran
  double durationS = 0;
  int64_t inputTokens = 0, outputTokens = 0; // of those completed
  double requestThroughput = 0;              // /s, as all below
  double requestGoodput = 0;                 // where objectives were asked for
  double outputThroughput = 0, totalThroughput = 0;
  // Of requests completed; TPOT of those with two tokens or more; ITL where TrafficOptions::keepTokenTimes was set.
  LatencySummary ttft, tpot, itl, e2el, queueing;
  uint64_t preemptions = 0;       // in all
  uint64_t preemptedRequests = 0; // that had one or more
  int64_t peakKvBlocks = 0, kvBlocks = 0;
  uint64_t peakConcurrency = 0; // requests between arrival and last token at a time
  // Of traffic that comes over time. Waiting: completed requests that had come but not started as the last one came.
  double offeredRate = 0; // /s: requests behind the first, over the time to the last arrival; 0: all came at once
  uint64_t waitingAtLastArrival = 0;
  // Whether the queue grew as long as requests came: a quarter of them waited in the end, and two at least.
  bool overloaded() const {
    return offeredRate > 0 && waitingAtLastArrival >= 2 && 4 * waitingAtLastArrival >= completed;
  }
};

TrafficMetrics summarize(const TrafficResult &result, const MetricsOptions &options);

// Percentiles of values, interpolated between neighbours as numpy.percentile does. Reorders them.
LatencySummary summarizeNs(std::vector<int64_t> values, absl::Span<const double> percentiles);

} // namespace headrace::serve
