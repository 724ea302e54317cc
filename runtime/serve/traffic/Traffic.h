// SPDX-License-Identifier: Apache-2.0
//
// Traffic on an engine: requests that come at their times, on the device's clock, real or virtual, and what became of
// each.
//
//   arrival         start          first token                          last token
//      |-- queueing --|-- prefill ----|-- ITL --|-- ITL --| ... -- ITL --|
//      |------------ TTFT ------------|--- TPOT: the mean of its ITLs ---|
//      |---------------------- end-to-end latency -----------------------|
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/serve/engine/Engine.h"
#include "runtime/serve/engine/Executor.h"

namespace headrace::serve {

// What comes. Requests stand in order of arrival.
struct TrafficRequest {
  int64_t arrivalNs = 0;       // from the start of runTraffic(); 0 of all: at once (an infinite rate)
  std::vector<int32_t> prompt; // empty: so many ids are made up when it comes:
  int64_t promptTokens = 0;
  int64_t outputTokens = 1; // at most; exactly so many where end ids are ignored

  int64_t tokensOfPrompt() const { return prompt.empty() ? promptTokens : static_cast<int64_t>(prompt.size()); }
};

// The ids that stand for the text of request `request`, each in [0, vocab): the same for the same seed.
void makeUpPrompt(int64_t tokens, int64_t vocab, uint64_t seed, uint64_t request, std::vector<int32_t> &out);

// What became of it. Times count from the start of runTraffic(); -1: it did not come that far.
struct RequestTimes {
  int64_t arrivalNs = 0;     // as asked for, or when maxConcurrency let it in, as `vllm bench serve` counts
  int64_t startNs = -1;      // the launch of the first iteration with rows of it
  int64_t firstTokenNs = -1; // visible
  int64_t lastTokenNs = -1;
  int64_t promptTokens = 0, outputTokens = 0; // outputTokens: that it got
  uint32_t preemptions = 0;
  EndReason reason = EndReason::Length; // Failed: see `why`
  absl::Status why;                     // of Failed, and of those that were refused, which have no startNs

  bool completed() const { return why.ok() && lastTokenNs >= 0; }
  int64_t queueingNs() const { return startNs - arrivalNs; }
  int64_t ttftNs() const { return firstTokenNs - arrivalNs; }
  int64_t latencyNs() const { return lastTokenNs - arrivalNs; } // end to end
  // Mean gap between its tokens after the first; 0 of one token.
  double tpotNs() const {
    return outputTokens < 2 ? 0
                            : static_cast<double>(lastTokenNs - firstTokenNs) / static_cast<double>(outputTokens - 1);
  }
};

// What the engine had over time: of each the most that it was at any moment from `ns` on, before the next sample.
struct EngineSample {
  int64_t ns = 0;       // from the start, a multiple of the interval
  int64_t kvBlocks = 0; // in use, of TrafficResult::kvBlocks
  uint32_t running = 0; // requests with a seat in the iteration that runs (Engine::seated())
  uint32_t waiting = 0; // the others that have come, those that were preempted among them
};

struct TrafficOptions {
  EngineOptions engine; // its onToken and onEnd are runTraffic()'s own
  Sampling sampling;    // of request r: with seed + r
  std::vector<int32_t> stopTokens;
  uint64_t promptSeed = 0;     // of prompts that are made up
  int64_t maxConcurrency = 0;  // requests that are in the engine at a time; the others wait outside. 0: all
  int64_t sampleEveryNs = 0;   // EngineSample; 0: none
  bool keepTokenTimes = false; // TrafficResult::itlNs
  std::function<void(size_t request, const EngineToken &)> onToken; // once visible
};

inline constexpr size_t kMostSamples = 1 << 16;

struct TrafficResult {
  std::vector<RequestTimes> requests; // one each, in their order
  std::vector<int64_t> itlNs;         // every gap between two tokens of a request, in any order
  std::vector<EngineSample> samples;  // at most kMostSamples
  int64_t sampleEveryNs = 0;          // between them: what was asked for, doubled as often as there were too many
  EngineCounters engine;
  core::DeviceCounters device; // of this call
  int64_t kvBlocks = 0;        // that may be in use
  int64_t peakKvBlocks = 0;    // that were
  int64_t durationNs = 0;      // from the start to the last token, on the device's clock
};

// Submits each request at its time and steps the engine until all have ended; where nothing runs, the device's clock
// goes on to the next arrival. A request joins at the first edge of an iteration at or after its arrival, an edge being
// a launch: with two iterations in flight that is up to one iteration before the device begins it, so what is left of
// the iteration that runs then counts as prefill, not as queueing. A request that checkRequest() refuses is not
// submitted, and says why. InvalidArgument for requests out of order of arrival, or before 0; of options,
// Engine::create()'s.
absl::StatusOr<TrafficResult> runTraffic(const Executor &on, absl::Span<const TrafficRequest> requests,
                                         const TrafficOptions &options);

} // namespace headrace::serve
