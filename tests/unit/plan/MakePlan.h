// SPDX-License-Identifier: Apache-2.0
//
// Plans for tests, put together by hand: a small model, chosen layers offloaded, copies where the rule has them. Plain
// and slow on purpose; shares no code with the compiler or the verifier.
//
//   arena   | kv.0 .. | meta sampled output | x h qkv attn up act rows rowsNormed logits workspace | weights | slots |
#pragma once

#include <string>
#include <vector>

#include "runtime/model/ModelSpec.h"
#include "runtime/plan/Plan.h"

namespace headrace::plan::test {

// The limits of one schedule, and where wrap-around is cut: the first `cutUnits` offloaded units, in order of use, and
// the first `cutBytes` of the one behind them are on the device when an iteration starts. (Paper: nothing is.)
struct LimitOptions {
  IterationClass iterationClass = IterationClass::Decode;
  int64_t tokens = 4, sequences = 2, context = 16;
  int cutUnits = 0;
  uint64_t cutBytes = 0;
  std::vector<int64_t> buckets = {4}; // new tokens of the variants made from it, ascending
};

struct PlacementOptions {
  std::string name = "test";
  std::vector<int64_t> layers; // offloaded
  model::StartRule rule = model::StartRule::Eager;
  bool offloadEmbedding = false; // read in place; needs a model whose head is not tied
  bool offloadHead = false;      // in a slot of its own
  bool logitsInSlot = false;     // paper: the logits take the bytes of the first slot
  std::vector<LimitOptions> limits = {LimitOptions{}};
};

struct PlanOptions {
  model::ModelSpec model;
  std::vector<PlacementOptions> placements;
  // A unit has one home address in all placements, slots lie where a placement has no homes, and transitions lead from
  // each placement to each other that has more at home.
  bool switches = false;
};

// A decoder of `layers` layers, 32 wide: Llama's ops (RMSNorm, gated MLP, rotary positions, no biases).
model::ModelSpec tinyLlama(int64_t layers);
// OPT's ops: LayerNorm, learned positions, ReLU, biases.
model::ModelSpec tinyOpt(int64_t layers);
// The same as tinyLlama, with norms of q's and k's heads.
model::ModelSpec tinyQwen3(int64_t layers);

Plan makePlan(const PlanOptions &options);

// A spread of small plans that between them have: one and two slots, three where two do not go round, both rules, a cut
// inside a unit, a cut at a unit's edge, none, direct embedding, offloaded head, transients in a slot, two classes with
// different cuts and transitions between them, two placements, three with transitions between them, two families.
struct NamedOptions {
  std::string name;
  PlanOptions options;
};
std::vector<NamedOptions> variedPlans();

} // namespace headrace::plan::test
