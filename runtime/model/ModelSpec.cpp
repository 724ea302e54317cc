// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/ModelSpec.h"

#include <cmath>
#include <utility>

#include "absl/types/span.h"
#include "runtime/base/BoxedImpl.h"
#include "runtime/base/EnumNames.h"
#include "runtime/base/Names.h"
#include "runtime/base/Text.h"

namespace headrace::model {
namespace {

constexpr std::pair<NormKind, std::string_view> kNorms[] = {{NormKind::LayerNorm, "layernorm"},
                                                            {NormKind::RmsNorm, "rmsnorm"}};
constexpr std::pair<Activation, std::string_view> kActivations[] = {{Activation::Relu, "relu"},
                                                                    {Activation::Gelu, "gelu"},
                                                                    {Activation::GeluTanh, "gelu_tanh"},
                                                                    {Activation::SiluGate, "silu_gate"}};
constexpr std::pair<RopeScalingKind, std::string_view> kRopeScalings[] = {
    {RopeScalingKind::None, "none"}, {RopeScalingKind::Linear, "linear"}, {RopeScalingKind::Llama3, "llama3"}};

// Collects the first refusal, so that the checks below read as a list.
class Checks {
public:
  explicit Checks(std::string_view where) : where_(where) {}

  void require(bool holds, std::string_view key, const absl::AlphaNum &value, std::string_view expected) {
    if (!holds && status_.ok())
      status_ = absl::InvalidArgumentError(cat(where_, ": ", key, " = ", value, ": expected ", expected));
  }
  void range(std::string_view key, int64_t value, int64_t least, int64_t most) {
    require(value >= least && value <= most, key, value, cat("an integer from ", least, " to ", most));
  }
  void size(std::string_view key, int64_t value) { range(key, value, 1, kMaxDimension); }
  bool ok() const { return status_.ok(); }
  absl::Status status() const { return status_; }

private:
  std::string_view where_;
  absl::Status status_;
};

void checkRope(const Rope &rope, int64_t headDim, Checks &checks) {
  checks.require(headDim % 2 == 0, "head_dim", headDim, "an even number: rotary embedding turns pairs of elements");
  checks.require(std::isfinite(rope.theta) && rope.theta > 0, "rope_theta", rope.theta, "a positive finite number");
  if (rope.scaling == RopeScalingKind::None)
    return;
  checks.require(std::isfinite(rope.factor) && rope.factor >= 1, "rope_scaling.factor", rope.factor,
                 "a finite number of at least 1");
  if (rope.scaling != RopeScalingKind::Llama3)
    return;
  checks.require(std::isfinite(rope.lowFreqFactor) && rope.lowFreqFactor > 0, "rope_scaling.low_freq_factor",
                 rope.lowFreqFactor, "a positive finite number");
  checks.require(std::isfinite(rope.highFreqFactor) && rope.highFreqFactor > rope.lowFreqFactor,
                 "rope_scaling.high_freq_factor", rope.highFreqFactor,
                 cat("a finite number above low_freq_factor = ", rope.lowFreqFactor));
  checks.size("rope_scaling.original_max_positions", rope.originalMaxPositions);
}

// Bytes of all matrices, packed or not at most these; the factors are at most 2^31 each and there are at most 2,000
// layers: below 2^80.
unsigned __int128 matrixBytes(const ModelSpec &spec) {
  using Wide = unsigned __int128;
  const auto wide = [](int64_t n) { return static_cast<Wide>(n); };
  const Wide layer = wide(spec.qkvRows()) * wide(spec.hidden) + wide(spec.hidden) * wide(spec.qRows()) +
                     wide(spec.upRows()) * wide(spec.hidden) + wide(spec.hidden) * wide(spec.intermediate);
  const Wide table = wide(spec.vocab) * wide(spec.hidden);
  const Wide positions =
      spec.learnedPositions ? wide(spec.maxPositions + spec.positionOffset) * wide(spec.hidden) : Wide{0};
  return (layer * wide(spec.layers) + table * (spec.tiedEmbeddings ? 1u : 2u) + positions) * dtypeBytes(spec.dtype);
}

} // namespace

std::string_view normName(NormKind kind) { return nameOf<NormKind>(kNorms, kind); }
std::optional<NormKind> normFromName(std::string_view name) { return fromName<NormKind>(kNorms, name); }
std::string_view activationName(Activation activation) { return nameOf<Activation>(kActivations, activation); }
std::optional<Activation> activationFromName(std::string_view name) { return fromName<Activation>(kActivations, name); }
std::string_view ropeScalingName(RopeScalingKind kind) { return nameOf<RopeScalingKind>(kRopeScalings, kind); }
std::optional<RopeScalingKind> ropeScalingFromName(std::string_view name) {
  return fromName<RopeScalingKind>(kRopeScalings, name);
}

std::string longestContextText(const ModelSpec &spec) {
  return spec.window ? cat("the sliding window of ", spec.name, ", ", *spec.window,
                           " tokens (attention that does not see all of its context is not supported)")
                     : cat("the ", spec.maxPositions, " positions of ", spec.name);
}

absl::Status validate(const ModelSpec &spec, std::string_view where) {
  Checks checks(where);
  checks.require(isName(spec.name), "name", cat("\"", escaped(spec.name, 80), "\""), kNameExpected);
  checks.range("layers", spec.layers, 1, kMaxLayers);
  checks.size("hidden", spec.hidden);
  checks.size("heads", spec.heads);
  checks.size("kv_heads", spec.kvHeads);
  checks.size("head_dim", spec.headDim);
  checks.size("intermediate", spec.intermediate);
  checks.size("vocab", spec.vocab);
  checks.size("max_positions", spec.maxPositions);
  if (spec.isStage() || spec.stage.first != 0 || spec.stage.tied) {
    checks.range("stage_of_layers", spec.stage.of, 2, kMaxLayers);
    checks.range("stage_first_layer", spec.stage.first, 0, spec.stage.of - spec.layers);
    checks.require(spec.layers < spec.stage.of, "layers", spec.layers,
                   cat("fewer than stage_of_layers = ", spec.stage.of));
    checks.require(!spec.tiedEmbeddings, "tied_embeddings", "true", "false of a stage, which has stage_tied_head");
  }
  if (!checks.ok()) // what follows divides and multiplies
    return checks.status();

  checks.require(spec.heads % spec.kvHeads == 0, "kv_heads", spec.kvHeads, cat("a divisor of heads = ", spec.heads));
  // heads * headDim is below 2^62, so neither product nor sum overflows.
  checks.require(spec.qRows() <= kMaxDimension / 3, "heads x head_dim", spec.qRows(),
                 cat("at most ", kMaxDimension / 3));
  checks.require(spec.upRows() <= kMaxDimension, "intermediate", spec.intermediate,
                 cat("at most ", kMaxDimension / 2, " with a gate"));
  checks.require(std::isfinite(spec.normEps) && spec.normEps > 0 && spec.normEps < 1, "norm_eps", spec.normEps,
                 "a number above 0 and below 1");
  checks.require(
      spec.gated() != (spec.family == Family::Opt), "activation", std::string(activationName(spec.activation)),
      spec.gated() ? "relu, gelu or gelu_tanh in family opt" : cat("silu_gate in family ", familyName(spec.family)));
  checks.require(!(spec.rope.enabled && spec.learnedPositions), "learned_positions", "true",
                 "false in a model with rotary embedding");
  checks.range("position_offset", spec.positionOffset, 0, kMaxDimension - spec.maxPositions);
  checks.require(spec.learnedPositions || spec.positionOffset == 0, "position_offset", spec.positionOffset,
                 "0 in a model without learned positions");
  if (spec.rope.enabled)
    checkRope(spec.rope, spec.headDim, checks);
  if (!checks.ok())
    return checks.status();

  if (const std::string expected = weightEncodingRefusal(spec); !expected.empty())
    return absl::InvalidArgumentError(
        cat(where, ": weight_encoding = ", weightEncodingText(spec), ": expected ", expected));
  if (matrixBytes(spec) > kMaxWeightBytes)
    return absl::InvalidArgumentError(cat(where, ": layers = ", spec.layers, ", hidden = ", spec.hidden,
                                          ", intermediate = ", spec.intermediate, ", vocab = ", spec.vocab,
                                          ": expected weights of at most ", kMaxWeightBytes, " bytes in all"));
  return absl::OkStatus();
}

ModelSpec stageOf(const ModelSpec &whole, int64_t first, int64_t layers) {
  ModelSpec stage = whole;
  if (layers == whole.layers)
    return stage;
  stage.stage = {.first = first, .of = whole.layers, .tied = whole.tiedEmbeddings};
  stage.layers = layers;
  stage.tiedEmbeddings = false;
  return stage;
}

ModelSpec wholeOf(const ModelSpec &stage) {
  ModelSpec whole = stage;
  if (!stage.isStage())
    return whole;
  whole.layers = stage.stage.of;
  whole.tiedEmbeddings = stage.stage.tied;
  whole.stage = {};
  return whole;
}

template class Boxed<ModelSpec>;

} // namespace headrace::model
