// SPDX-License-Identifier: Apache-2.0
//
// How long prompts and outputs are, in tokens.
//
//   random     uniform around a length, as `vllm bench serve --dataset-name random`
//   sharegpt,  log-normal, fitted to published statistics of these data sets (sources in Lengths.cpp);
//   alpaca     what does not fit is dropped and another drawn, as vLLM does with ShareGPT's samples
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/serve/traffic/Traffic.h"

namespace headrace::serve {

struct RequestLengths {
  int64_t prompt = 0, output = 0; // tokens, at least 1
};

// Each length is uniform from floor(n (1 - ratio)) to ceil(n (1 + ratio)), at least 1.
struct RandomLengths {
  int64_t input = 1024, output = 128;
  double rangeRatio = 0; // 0 or more and less than 1
};

// `count` of them. InvalidArgument, naming what was found, for lengths below 1, a ratio out of range, and where a
// prompt and its output may be longer than `context` (of the plan) together.
absl::StatusOr<std::vector<RequestLengths>> randomLengths(const RandomLengths &lengths, int64_t context, int64_t count,
                                                          uint64_t seed);

// exp(mu + sigma x normal), rounded.
struct LogNormal {
  double mu = 0, sigma = 0;
};

struct LengthFit {
  std::string_view name;
  LogNormal prompt, output;
  int64_t leastTokens = 1; // of prompt and of output: shorter ones are dropped
  int64_t mostPrompt = 0;  // longer ones are dropped,
  int64_t mostTotal = 0;   // and those that are with their output
  // What those kept are like: the published means.
  double meanPrompt = 0, meanOutput = 0;
};

const LengthFit *findLengthFit(std::string_view name); // "sharegpt", "alpaca"; null: not known

// `count` of them; those that are longer than `context` together with their output are dropped too, and counted in
// `leftOut` where it is not null: what is left is shorter than the means say. InvalidArgument where the context keeps
// fewer than about 1 in 1000.
absl::StatusOr<std::vector<RequestLengths>> fittedLengths(const LengthFit &fit, int64_t context, int64_t count,
                                                          uint64_t seed, int64_t *leftOut = nullptr);

// Requests of these lengths at these times, of as many; their prompts are made up when they come.
std::vector<TrafficRequest> makeRequests(absl::Span<const int64_t> arrivalsNs,
                                         absl::Span<const RequestLengths> lengths);

} // namespace headrace::serve
