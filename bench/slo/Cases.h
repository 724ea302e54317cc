// SPDX-License-Identifier: Apache-2.0
//
// What bench_slo measures: random (model, link, phase, batch, context, factor) cases over a few small synthetic models.
//
//   links   each model is run over kLinks links, paced so that a layer is copied for 0.5 to 40 times as long as it
//           computes for one sequence; a case takes one of those at which its own layer has a ratio of 0.5 to 14
//   factor  SLO / resident iteration, 1.02 to 4, even in its logarithm
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "runtime/model/ModelSpec.h"

namespace headrace::bench {

inline constexpr size_t kLinks = 5;
inline constexpr double kLeastRatio = 0.5, kMostRatio = 14, kMostLinkRatio = 40;
inline constexpr double kLeastFactor = 1.02, kMostFactor = 4;
inline constexpr int64_t kMostBatch = 32;
inline constexpr int64_t kLeastContext = 32, kMostContext = 512, kLeastPrefill = 8, kMostPrefill = 64; // tokens
inline constexpr double kPrefillShare = 0.3; // of the draws; longer prompts take too long for a case
// Of an iteration: others are drawn anew. Of 600 iterations six may be disturbed, however long they take: the shorter
// they are, the fewer disturbances fall into them.
inline constexpr double kLeastResidentMs = 1.5, kMostResidentMs = 6, kMostSloMs = 14;

// OPT, Llama and Qwen2, 8 to 24 layers, F32 and BF16.
std::vector<model::ModelSpec> caseModels();

struct Case {
  size_t number = 0; // in the order in which they are drawn
  size_t model = 0, link = 0;
  bool prefill = false;
  int64_t batch = 1, context = 1;
  double factor = 1;
  bool selectN = false; // else headrace

  int64_t tokens() const { return prefill ? batch * context : batch; }
};

// What a case's times are expected to be; a layer's transfer over its compute.
struct Expected {
  double residentNs = 0, ratio = 0;
};

// `count` of one model, sorted by link. `expect` prices a case.
std::vector<Case> drawCases(size_t model, size_t count, std::mt19937_64 &random,
                            const std::function<Expected(const Case &)> &expect);

// Bytes/s of each link; `layerBytes` are copied while a layer that takes `layerNs` computes. Drawn one in each of
// kLinks equal parts of the ratios' logarithms; none faster than `fastest`.
std::vector<double> drawLinks(uint64_t layerBytes, double layerNs, double fastest, std::mt19937_64 &random);

} // namespace headrace::bench
