// SPDX-License-Identifier: Apache-2.0
//
// Plans made by hand for models of a few kilobytes, for tests below the compiler: any set of offloaded layers, per-unit
// copies into layer-sized slots, with or without wrap-around, a decode and a mixed variant.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::core {

// hidden 64, 4 heads of 16, intermediate 96, vocabulary 150: no multiple of 16 rows in the head.
model::ModelSpec tinyLlama(int64_t layers); // 2 kv heads, RMSNorm, rotary, gated
model::ModelSpec tinyOpt(int64_t layers);   // biases, LayerNorm, learned positions, ReLU, tied head

struct TinyPlanOptions {
  model::ModelSpec spec = tinyLlama(4);
  std::vector<int64_t> offloaded; // layers, ascending
  bool offloadEmbedding = false;  // read directly from host memory (not for tied models)
  bool wrap = false;              // the tail of an iteration copies the first offloaded layer for the next
  int64_t slots = 2;              // at most; made to divide the number of offloaded layers where wrap asks for it
  int64_t batch = 3;
  int64_t promptTokens = 7; // the mixed variant's bucket of new tokens
  int64_t context = 40;
  int64_t blockTokens = 4;
  int64_t mirroredFrom =
      0; // KV blocks from this one on are written to the host as well, where they have no extent; 0: none
  model::DeviceKind kind = model::DeviceKind::Host; // whose workspaces
};

// One placement; variant 0 decodes, variant 1 is mixed. With wrap, transition 0 leads from the empty state to their
// common entry state.
plan::Plan tinyPlan(const TinyPlanOptions &options);

} // namespace headrace::core
