// SPDX-License-Identifier: Apache-2.0
//
// What `headrace bench serve` says: traffic on one engine, once or at several rates.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/serve/traffic/Metrics.h"
#include "runtime/serve/traffic/Traffic.h"
#include "tools/report/TtftHeld.h"

namespace headrace::tools {

// A latency that is reported; the names are those of --percentile-metrics.
struct ServeMetric {
  std::string_view name, title; // "ttft", "TTFT"
  serve::LatencySummary serve::TrafficMetrics::*of;
  std::optional<std::chrono::nanoseconds> serve::GoodputObjectives::*objective; // null: it has none
};
absl::Span<const ServeMetric> serveMetrics(); // in the order of reports

std::string rateText(double requestRate); // "1 request/s", "2.5 requests/s", "inf requests/s"

// Requests that were refused, or failed, for the same reason but for its numbers.
struct ServeRefusal {
  uint64_t count = 0;
  bool started = false; // failed
  std::string first;    // why the first of them was
};
// The most frequent first.
std::vector<ServeRefusal> refusalsOf(const std::vector<serve::RequestTimes> &requests);

// What came of one rate.
struct ServeRun {
  double requestRate = 0; // /s; infinite: all at once; 0: at the times of a trace
  serve::TrafficMetrics metrics;
  serve::TrafficResult result; // its itlNs may be gone, they are in the metrics
};

struct ServeReport {
  std::string model, hardware, device;
  std::string plan;               // the file; empty: compiled for the traffic
  std::string compiled, planHash; // by which flags of `headrace compile`; empty: from a file
  std::string offloaded;
  std::string placement; // the name of the one that all ran in; empty: chosen for each iteration
  int64_t context = 0, kvBlocks = 0, blockTokens = 0;
  bool kvBesideOffloaded = false; // as large as the memory that weights leave, of which some are offloaded
  // Of the engine.
  std::string scheduler = "vllm", prefill;
  int64_t maxNumSeqs = 0, maxNumBatchedTokens = 0; // tokens: of a mini-batch
  uint32_t miniBatches = 1;
  size_t microBatches = 1; // over stages
  uint64_t swapBytes = 0;  // asked for
  // Of the traffic.
  std::string dataset;                        // "random", "sharegpt", "alpaca", "trace"
  std::string lengths;                        // in words: "1024 tokens in, 128 out", "sharegpt lengths", "trace.jsonl"
  int64_t numPrompts = 0, maxConcurrency = 0; // 0: no limit
  int64_t leftOut = 0;                        // draws of a fit that were longer than the context
  std::string traceClock;                     // what a trace's times are, "arrival_s in seconds"; empty: no trace
  int64_t traceDropped = 0;                   // rows of zero tokens
  double traceBeginS = 0;                     // where a trace's own clock stood at its first request
  double burstiness = 1;
  uint64_t seed = 0;

  std::vector<double> percentiles;
  std::vector<ServeMetric> metrics; // that are shown
  serve::GoodputObjectives goodput;
  std::optional<std::chrono::nanoseconds> ttft; // that placements were chosen for
  bool detailed = false;                        // each request in the JSON
  std::vector<ServeRun> runs;
  absl::Status error; // why it fails: no request was served, or one with wrong numbers

  // From arrival, of requests that were served.
  TtftHeld heldOf(const ServeRun &run) const;
  // How many requests of the context's length the KV cache holds.
  double kvRequests() const;
  std::string text(bool all) const;
  std::string json() const;
  // Requests over time; of several rates percentiles against them.
  std::string svg() const;
  std::string trafficText(double requestRate) const; // "1000 requests, sharegpt lengths, 10 requests/s"
};

} // namespace headrace::tools
