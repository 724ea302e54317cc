// SPDX-License-Identifier: Apache-2.0
//
// Traces of requests: a file says when each came, and how long its prompt and output were. The first record tells which
// of these formats it is:
//
//   ours      {"arrival_s": 0.25, "prompt_tokens": 12, "output_tokens": 7}     JSON, an object a line
//             {"arrival_s": 0.5, "prompt_ids": [5, 6, 7], "output_tokens": 7}
//   Mooncake  {"timestamp": 250, "input_length": 12, "output_length": 7, "hash_ids": [0, 1]}     milliseconds
//   Bailian   {"chat_id": 3, "parent_chat_id": -1, "timestamp": 0.25, "input_length": 12, "output_length": 7, "turn":
//   1}
//             seconds; chat_id, parent_chat_id or turn tell Qwen-Bailian's traces from Mooncake's
//   Azure     TIMESTAMP,ContextTokens,GeneratedTokens     then lines "2023-11-16 18:15:46.6805900,12,7"
//
// A trace begins at its earliest arrival, wherever its clock stands then: times count from it. Other keys of a JSON
// object are ignored, hash_ids too: prefixes are not shared. Rows of zero tokens, in or out, which others' traces have,
// are dropped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/serve/traffic/Traffic.h"

namespace headrace::serve {

enum class TraceFormat : uint8_t { Headrace, Mooncake, Bailian, Azure };
// What the trace's times are: "arrival_s in seconds".
std::string_view traceClockText(TraceFormat format);

struct Trace {
  TraceFormat format = TraceFormat::Headrace;
  std::vector<TrafficRequest> requests; // in order of arrival; of equal ones, of the file
  std::vector<int64_t> lines;           // of the file, one a request
  int64_t beginNs = 0;                  // of the earliest request, as the file has it; of dates 0
  int64_t dropped = 0;                  // rows of zero tokens
  std::vector<std::string> warnings;    // each begins with the file: times that were not in order, dropped rows
};

// The first `most` records (0: all), with a warning where one of the next 1000 comes before one of them.
// InvalidArgument or NotFound, beginning with the file and where it has one the line
// ("trace.jsonl: line 7: ..."): what is no such file, broken JSON, missing keys, negative times, lengths below 1
// (of others' below 0), milliseconds that are not whole, ids below 0, no records, lines of more than 16 MiB. Blank
// lines are skipped. kDataLoss for a file that becomes shorter as it is read.
absl::StatusOr<Trace> readTrace(const std::string &path, int64_t most = 0);
absl::StatusOr<Trace> parseTrace(std::string_view text, std::string_view name, int64_t most = 0);

} // namespace headrace::serve
