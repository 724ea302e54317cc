// SPDX-License-Identifier: Apache-2.0
//
// The traffic of `headrace bench serve`, from its flags: how long requests are, and when they come.
//
//   ServeTraffic::open(flags)    refuses what flags alone tell, reads a trace
//   draw(context)                lengths, once it is known what a plan holds
//   at(rate)                     the same requests at each rate
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/serve/traffic/Lengths.h"
#include "runtime/serve/traffic/Traffic.h"
#include "tools/commands/Commands.h"

namespace headrace::tools {

std::string_view datasetName(Dataset dataset); // "random", ...

class ServeTraffic {
public:
  static absl::StatusOr<ServeTraffic> open(const TrafficFlags &flags);

  // Lengths that fit the context, of a trace as they are, of random ones the goal's where no flag says them. Refuses a
  // trace's ids that are none of the vocabulary.
  absl::Status draw(const model::Goal &goal, int64_t context, int64_t vocab);
  // Behind draw().
  int64_t count() const { return static_cast<int64_t>(requests_.size()); }
  int64_t longest() const { return longest_; }                  // prompt and output together
  int64_t longestPrompt() const { return longestPrompt_; }      // of any
  int64_t outputTokens() const { return outputTokens_; }        // of all
  serve::RequestLengths meanLengths(int64_t context) const;     // of those that it holds, in whole tokens
  std::string lengthsText() const;                              // "1024 tokens in, 128 out", "sharegpt lengths"
  int64_t leftOut() const { return leftOut_; }                  // draws longer than the context, of a fit
  const std::string &traceClock() const { return traceClock_; } // serve::traceClockText(); empty: no trace
  int64_t traceDropped() const { return traceDropped_; }        // rows of zero tokens
  double traceBeginS() const { return traceBeginS_; }           // of its earliest request, on the trace's own clock

  // Requests/s, ascending; 0: at the times of the trace. One or more.
  const std::vector<double> &rates() const { return rates_; }
  absl::StatusOr<std::vector<serve::TrafficRequest>> at(double rate) const;

private:
  explicit ServeTraffic(const TrafficFlags &flags) : flags_(flags) {}
  absl::Status readRates();
  absl::Status checkBurstiness() const;
  absl::Status readTraceFile();
  absl::Status checkIds(int64_t vocab) const;

  TrafficFlags flags_;
  std::vector<double> rates_;
  std::vector<serve::TrafficRequest> requests_; // at the times of a trace
  std::vector<int64_t> lines_;                  // of a trace, one a request
  std::string traceClock_;
  int64_t traceDropped_ = 0;
  double traceBeginS_ = 0;
  int64_t context_ = 0; // that lengths were drawn for
  int64_t leftOut_ = 0;
  int64_t longest_ = 0, longestPrompt_ = 0, outputTokens_ = 0;
};

} // namespace headrace::tools
