// SPDX-License-Identifier: Apache-2.0
//
// Models and hardware with round numbers.
#pragma once

#include "runtime/job/Hardware.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::cost {

// hidden 32, 2 heads of 16, 1 kv head, MLP 64, vocab 96, F16, RMSNorm, rotary, gated.
inline model::ModelSpec smallLlama() {
  model::ModelSpec s;
  s.name = "small";
  s.layers = 2;
  s.hidden = 32;
  s.heads = 2;
  s.kvHeads = 1;
  s.headDim = 16;
  s.intermediate = 64;
  s.vocab = 96;
  s.maxPositions = 64;
  s.rope.enabled = true;
  return s;
}

// The same sizes the OPT way: LayerNorm, biases, learned positions, ReLU, as many kv heads as heads.
inline model::ModelSpec smallOpt() {
  model::ModelSpec s = smallLlama();
  s.family = model::Family::Opt;
  s.kvHeads = 2;
  s.norm = model::NormKind::LayerNorm;
  s.activation = model::Activation::Relu;
  s.qkvBias = s.outBias = s.mlpBias = true;
  s.rope.enabled = false;
  s.learnedPositions = true;
  s.positionOffset = 2;
  s.tiedEmbeddings = true;
  return s;
}

// One flop, one byte of memory, one byte of link a second; nothing else costs.
inline model::Hardware oneAPerSecond() {
  model::Hardware h;
  h.name = "one";
  h.flopsF32 = h.flopsF16 = h.memoryBandwidth = h.h2dBandwidth = h.d2hBandwidth = 1;
  h.duplexBandwidth = 2;
  h.flopsEfficiency = h.memoryEfficiency = h.linkEfficiency = 1;
  return h;
}

} // namespace headrace::cost
