// SPDX-License-Identifier: Apache-2.0
//
// A model, a machine and a setting with round numbers.
//
//   weights of a layer    1000 elements of 2 bytes
//   K and V of a token    2 x 10 elements x 2 bytes x 4 sequences = 160 bytes
//   hidden states         10 elements x 2 bytes x 4 sequences     = 80 bytes a token
//   contexts of decode    3 + 1, 3 + 2 tokens
#pragma once

#include "runtime/cost/lm_offload/ClosedForm.h"

namespace headrace::cost {

inline OffloadModel roundModel() {
  return {.layers = 2,
          .hidden = 10,
          .qRows = 10,
          .kvRows = 10,
          .layerWeights = 1000,
          .outsideWeights = 100,
          .longestContext = 64,
          .elementBytes = 2};
}

inline OffloadMachine roundMachine() {
  return {.h2dBandwidth = 100,
          .d2hBandwidth = 50,
          .duplexBandwidth = 150,
          .deviceFlops = 1000,
          .deviceBandwidth = 2000,
          .devicePacking = 400,
          .cpuAttention = 40,
          .cpuPackedAttention = 0,
          .load = 0,
          .deviceBytes = 10'000,
          .hostBytes = 10'000};
}

// Half of the weights, all of KV and hidden states on the host.
inline OffloadSetting roundSetting() {
  OffloadSetting setting;
  setting.block = 4;
  setting.miniBatches = 2;
  setting.prompt = 3;
  setting.output = 3;
  setting.percent = {50, 50, 0, 100, 0, 100};
  return setting;
}

// 36 of 128 bytes: 64 codes of 4 bits and two F16 numbers for 64 F16 elements.
inline constexpr double kPacked = 0.28125;
inline const model::Encoding kQ4 = model::Encoding::groups(4);

} // namespace headrace::cost
