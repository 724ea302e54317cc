// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/plan/MakePlan.h"

#include "runtime/model/ModelSpec.h"

namespace headrace::plan::test {
namespace {

model::ModelSpec tinyModel(int64_t layers) {
  model::ModelSpec m;
  m.name = "tiny";
  m.layers = layers;
  m.hidden = 32;
  m.heads = 2;
  m.kvHeads = 1;
  m.headDim = 16;
  m.intermediate = 48;
  m.vocab = 96;
  m.maxPositions = 64;
  m.dtype = model::DType::F32;
  return m;
}

} // namespace

model::ModelSpec tinyLlama(int64_t layers) {
  model::ModelSpec m = tinyModel(layers);
  m.rope.enabled = true;
  return m;
}

model::ModelSpec tinyOpt(int64_t layers) {
  model::ModelSpec m = tinyModel(layers);
  m.family = model::Family::Opt;
  m.kvHeads = m.heads;
  m.norm = model::NormKind::LayerNorm;
  m.activation = model::Activation::Relu;
  m.qkvBias = m.outBias = m.mlpBias = true;
  m.learnedPositions = true;
  m.positionOffset = 2;
  return m;
}

model::ModelSpec tinyQwen3(int64_t layers) {
  model::ModelSpec m = tinyLlama(layers);
  m.family = model::Family::Qwen3;
  m.qkNorm = true;
  return m;
}

std::vector<NamedOptions> variedPlans() {
  using model::StartRule;
  const auto cut = [](int units, uint64_t bytes) {
    LimitOptions limits;
    limits.cutUnits = units;
    limits.cutBytes = bytes;
    return limits;
  };
  const auto eager = [&](std::vector<int64_t> layers, LimitOptions limits) {
    return PlacementOptions{.name = "eager", .layers = std::move(layers), .limits = {limits}};
  };
  const auto paper = [&](std::vector<int64_t> layers) {
    return PlacementOptions{.name = "paper", .layers = std::move(layers), .rule = StartRule::Paper};
  };
  std::vector<NamedOptions> out;
  out.push_back({"resident", {tinyLlama(2), {eager({}, {})}}});
  out.push_back({"one layer, cut in a unit", {tinyLlama(3), {eager({1}, cut(1, 512))}}});
  out.push_back({"two layers, cut at a unit", {tinyLlama(4), {eager({1, 3}, cut(2, 0))}}});
  out.push_back({"three layers in three slots", {tinyLlama(4), {eager({0, 1, 3}, cut(2, 1024))}}});
  out.push_back({"all layers, no wrap-around", {tinyLlama(4), {eager({0, 1, 2, 3}, {})}}});
  out.push_back({"opt, cut in the second layer", {tinyOpt(4), {eager({0, 1, 2, 3}, cut(5, 768))}}});
  out.push_back({"norms of heads, cut in a unit", {tinyQwen3(3), {eager({0, 2}, cut(1, 512))}}});
  out.push_back({"paper, interval 2", {tinyLlama(6), {paper({1, 3, 5})}}});
  out.push_back({"paper, interval 1", {tinyOpt(4), {paper({0, 1, 2, 3})}}});
  PlacementOptions logits = paper({1});
  logits.logitsInSlot = true;
  out.push_back({"paper, logits in the slot", {tinyLlama(3), {logits}}});
  PlacementOptions ends = eager({1}, cut(1, 256));
  ends.offloadEmbedding = ends.offloadHead = true;
  out.push_back({"embedding read in place, head in a slot", {tinyOpt(2), {ends}}});
  PlacementOptions mixedToo = eager({1, 3}, cut(1, 512));
  mixedToo.limits.push_back({IterationClass::Mixed, 16, 2, 16, 3, 256, {8, 16}});
  PlacementOptions other = eager({}, {});
  other.name = "none";
  out.push_back({"two classes and two placements", {tinyLlama(4), {mixedToo, other}}});
  PlacementOptions none = eager({}, {}), some = eager({1, 3}, cut(1, 512)), most = paper({0, 1, 3});
  none.name = "none";
  out.push_back({"three placements with transitions between them", {tinyLlama(4), {none, some, most}, true}});
  return out;
}

} // namespace headrace::plan::test
