// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/WeightLayout.h"

#include <utility>

#include "runtime/base/Text.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::model {
namespace {

// Names of one layer's tensors in a checkpoint, behind "<prefix>layers.N.".
struct LayerNames {
  std::string_view attentionNorm, out, mlpNorm, gate, up, down;
};
constexpr LayerNames kOptNames = {"self_attn_layer_norm", "self_attn.out_proj", "final_layer_norm", "", "fc1", "fc2"};
constexpr LayerNames kLlamaNames = {"input_layernorm", "self_attn.o_proj", "post_attention_layernorm",
                                    "mlp.gate_proj",   "mlp.up_proj",      "mlp.down_proj"};

class UnitBuilder {
public:
  UnitBuilder(const ModelSpec &spec, std::string name, UnitRole role, int64_t layer) : spec_(spec) {
    unit_.name = std::move(name);
    unit_.role = role;
    unit_.layer = static_cast<int32_t>(layer);
    unit_.modelLayer = static_cast<int32_t>(layer < 0 ? layer : spec.stage.first + layer);
  }

  struct Source {
    std::string name;
    int64_t rows;
  };

  UnitBuilder &matrix(TensorRole role, const std::vector<Source> &sources, int64_t cols, bool linearOperand) {
    add(role, sources, cols, spec_.dtype, spec_.encodings[unit_.role].value_or(Encoding(spec_.dtype)), linearOperand);
    return *this;
  }
  UnitBuilder &vector(TensorRole role, const std::vector<Source> &sources, DType dtype = DType::F32) {
    add(role, sources, 1, dtype, Encoding(dtype), false);
    return *this;
  }
  // The normalisation `name`: its weight, and for LayerNorm its bias.
  UnitBuilder &norm(const std::string &name) {
    vector(TensorRole::NormWeight, {{name + ".weight", spec_.hidden}});
    if (spec_.norm == NormKind::LayerNorm)
      vector(TensorRole::NormBias, {{name + ".bias", spec_.hidden}});
    return *this;
  }
  // The linear op whose operand stacks `modules` along rows.
  UnitBuilder &linear(const std::vector<Source> &modules, int64_t cols, bool bias) {
    const auto suffixed = [&](std::string_view suffix) {
      std::vector<Source> sources = modules;
      for (Source &source : sources)
        source.name += suffix;
      return sources;
    };
    matrix(TensorRole::Matrix, suffixed(".weight"), cols, true);
    if (bias)
      vector(TensorRole::Bias, suffixed(".bias"), biasType(unit_.role, spec_.dtype));
    return *this;
  }
  // The norms of each head of q and of k.
  UnitBuilder &headNorms(const std::string &q, const std::string &k) {
    vector(TensorRole::HeadNorms, {{q + ".weight", spec_.headDim}, {k + ".weight", spec_.headDim}});
    return *this;
  }
  Unit build() { return std::move(unit_); }

private:
  void add(TensorRole role, const std::vector<Source> &sources, int64_t cols, DType dtype, const Encoding &encoding,
           bool linearOperand) {
    Tensor tensor;
    tensor.role = role;
    for (const Source &source : sources) {
      tensor.sources.push_back(source.name);
      tensor.sourceRows.push_back(source.rows);
      tensor.rows += source.rows;
    }
    tensor.paddedRows = static_cast<int64_t>(alignUp(static_cast<uint64_t>(tensor.rows), kPanelRows));
    tensor.cols = cols;
    tensor.dtype = dtype;
    tensor.encoding = encoding;
    tensor.linearOperand = linearOperand;
    tensor.offset = unit_.bytes;
    tensor.bytes = encoding.bytes(tensor.paddedRows, cols);
    unit_.bytes = alignUp(tensor.offset + tensor.bytes);
    unit_.tensors.push_back(std::move(tensor));
  }

  const ModelSpec &spec_;
  Unit unit_;
};

void addLayer(const ModelSpec &spec, const std::string &prefix, int64_t layer, std::vector<Unit> &units) {
  const LayerNames &names = spec.family == Family::Opt ? kOptNames : kLlamaNames;
  const std::string unitPrefix = cat("layers.", layer, ".");
  const std::string at = cat(prefix, "layers.", spec.stage.first + layer, ".");
  const auto checkpoint = [&](std::string_view name) { return cat(at, name); };

  UnitBuilder qkv(spec, unitPrefix + "qkv", UnitRole::Qkv, layer);
  qkv.norm(checkpoint(names.attentionNorm))
      .linear({{checkpoint("self_attn.q_proj"), spec.qRows()},
               {checkpoint("self_attn.k_proj"), spec.kvRows()},
               {checkpoint("self_attn.v_proj"), spec.kvRows()}},
              spec.hidden, spec.qkvBias);
  if (spec.qkNorm)
    qkv.headNorms(checkpoint("self_attn.q_norm"), checkpoint("self_attn.k_norm"));
  units.push_back(qkv.build());
  units.push_back(UnitBuilder(spec, unitPrefix + "out", UnitRole::Out, layer)
                      .linear({{checkpoint(names.out), spec.hidden}}, spec.qRows(), spec.outBias)
                      .build());
  std::vector<UnitBuilder::Source> up;
  if (spec.gated())
    up.push_back({checkpoint(names.gate), spec.intermediate});
  up.push_back({checkpoint(names.up), spec.intermediate});
  units.push_back(UnitBuilder(spec, unitPrefix + "up", UnitRole::Up, layer)
                      .norm(checkpoint(names.mlpNorm))
                      .linear(up, spec.hidden, spec.mlpBias)
                      .build());
  units.push_back(UnitBuilder(spec, unitPrefix + "down", UnitRole::Down, layer)
                      .linear({{checkpoint(names.down), spec.hidden}}, spec.intermediate, spec.mlpBias)
                      .build());
}

} // namespace

const Tensor *Unit::find(TensorRole wanted) const {
  for (const Tensor &tensor : tensors)
    if (tensor.role == wanted)
      return &tensor;
  return nullptr;
}

uint64_t WeightLayout::totalBytes() const {
  uint64_t bytes = 0;
  for (const Unit &unit : units)
    bytes += unit.bytes;
  return bytes;
}

uint64_t WeightLayout::layerBytes(int64_t layer) const {
  const auto first = static_cast<size_t>(layerUnit(layer, UnitRole::Qkv));
  uint64_t bytes = 0;
  for (size_t unit = first; unit < first + kUnitsPerLayer; ++unit)
    bytes += units[unit].bytes;
  return bytes;
}

WeightLayout layoutWeights(const ModelSpec &spec) {
  const bool opt = spec.family == Family::Opt;
  const std::string prefix = opt ? "model.decoder." : "model.";
  WeightLayout layout;
  layout.units.reserve(static_cast<size_t>(unitCount(spec.layers)));

  const UnitBuilder::Source table = {prefix + "embed_tokens", spec.vocab};
  UnitBuilder embedding(spec, "embedding", UnitRole::Embedding, -1);
  if (spec.embeds())
    embedding.matrix(TensorRole::TokenTable, {{table.name + ".weight", table.rows}}, spec.hidden, spec.tiedEmbeddings);
  if (spec.embeds() && spec.learnedPositions)
    embedding.matrix(TensorRole::PositionTable,
                     {{prefix + "embed_positions.weight", spec.maxPositions + spec.positionOffset}}, spec.hidden,
                     false);
  layout.units.push_back(embedding.build());

  for (int64_t layer = 0; layer < spec.layers; ++layer)
    addLayer(spec, prefix, layer, layout.units);

  UnitBuilder head(spec, "head", UnitRole::Head, -1);
  if (spec.hasHead())
    head.norm(prefix + (opt ? "final_layer_norm" : "norm"));
  if (spec.hasHead() && !spec.tiedEmbeddings)
    head.linear({spec.stage.tied ? table : UnitBuilder::Source{"lm_head", spec.vocab}}, spec.hidden, false);
  layout.units.push_back(head.build());
  return layout;
}

uint64_t parameterCount(const WeightLayout &layout) {
  uint64_t count = 0;
  for (const Unit &unit : layout.units)
    for (const Tensor &tensor : unit.tensors)
      count += static_cast<uint64_t>(tensor.rows) * static_cast<uint64_t>(tensor.cols);
  return count;
}

} // namespace headrace::model
