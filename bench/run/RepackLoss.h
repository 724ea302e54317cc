// SPDX-License-Identifier: Apache-2.0
//
// What continuous batching loses by leaving blocks where they were first put, against packing them anew in every
// iteration as HybridServe does, in virtual time: the same requests, iteration by iteration (RepackedDevice.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "bench/run/RepackedDevice.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/Plan.h"
#include "runtime/serve/engine/Engine.h"

namespace headrace::bench {

// Of the time that packing anew would take; where it is more, they are to be packed.
inline constexpr double kMostRepackLoss = 0.03;

// How many tokens prompts and outputs have.
enum class TokensOf : uint8_t {
  Uniform, // prompts up to 3/4 of the context, outputs up to 1/4, from a token on, all alike likely
  ShareGpt // as fitted to it
};

struct RepackLoad {
  std::string_view name;
  TokensOf lengths = TokensOf::Uniform;
  int64_t requests = 256;
  // Requests/s by what is served where all come at once; 0: they do.
  double rate = 0;
  double burstiness = 1; // of their arrival (runtime/serve/traffic/Arrivals.h)
};
// As they were set down before anything was measured.
absl::Span<const RepackLoad> repackLoads();

// Four mini-batches on an RTX 4090, weights, keys and values, and activations on the host. No share: as the compiler
// chooses it.
absl::StatusOr<plan::Plan> repackPlan(model::ModelSpec spec, int64_t batch, int64_t context,
                                      std::optional<model::ActRatio> share = std::nullopt);

struct RepackRun {
  RepackSums sums;
  serve::EngineCounters engine;
  double seconds = 0; // from the first request to the last token
  double byteLoss() const;
  double loss() const;      // of the time: as launched by the shorter of packed and spread, less 1
  double lanesLoss() const; // the same of the lanes alone
};
// `servedPerSecond`: what `rate` counts by.
absl::StatusOr<RepackRun> playRepack(const plan::Plan &plan, const RepackLoad &load, double servedPerSecond,
                                     uint64_t seed);

} // namespace headrace::bench
