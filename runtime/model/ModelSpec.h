// SPDX-License-Identifier: Apache-2.0
//
// What a decoder-only language model is, as far as a plan needs to know: sizes, options that change the
// arithmetic, and the element type of its checkpoint. Nothing here says where a byte lives.
//
//   tokens -> embed -> [ norm -> qkv -> (norm of each head of q and k) -> rotate+append -> attention -> out
//                        -> norm -> up -> act -> down ] x layers
//          -> gather last rows -> norm -> head -> sample
//
// A ModelSpec comes from a Hugging Face folder (HfConfig.h) or from a shape in TOML (JobFile.h), and is always
// `validate`d by the reader that made it: code that receives one may rely on the invariants below.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "runtime/base/DType.h"
#include "runtime/model/Family.h"
#include "runtime/model/WeightEncodings.h"

namespace headrace::model {

enum class NormKind : uint8_t { LayerNorm = 0, RmsNorm = 1 };
// Relu and Gelu act on fc1's output; SiluGate is silu(gate) * up.
enum class Activation : uint8_t { Relu = 0, Gelu = 1, GeluTanh = 2, SiluGate = 3 };
enum class RopeScalingKind : uint8_t { None = 0, Linear = 1, Llama3 = 2 };
std::string_view normName(NormKind kind);               // "layernorm", "rmsnorm"
std::string_view activationName(Activation activation); // "relu", "gelu", "gelu_tanh", "silu_gate"
std::string_view ropeScalingName(RopeScalingKind kind); // "none", "linear", "llama3"
std::optional<NormKind> normFromName(std::string_view name);
std::optional<Activation> activationFromName(std::string_view name);
std::optional<RopeScalingKind> ropeScalingFromName(std::string_view name);

// Rotary position embedding. The inverse frequency of pair j (of headDim / 2) is theta^(-2j / headDim), then scaled.
struct Rope {
  bool enabled = false;
  double theta = 10000.0;
  RopeScalingKind scaling = RopeScalingKind::None;
  double factor = 1.0; // Linear and Llama3
  // Llama3 only: wavelengths above originalMaxPositions / lowFreqFactor are divided by factor, those below
  // originalMaxPositions / highFreqFactor are kept, between them the two are blended.
  double lowFreqFactor = 1.0;
  double highFreqFactor = 4.0;
  int64_t originalMaxPositions = 8192;
};

// Of a spec that is a part of a model, a stage: its layers are those from `first` on of a model of `of` layers. The
// first stage alone embeds, the last alone has a head.
struct Stage {
  int64_t first = 0, of = 0; // of 0: the spec is a whole model
  bool tied = false;         // the model's head is its embedding table: the last stage then has a copy of its own
  bool operator==(const Stage &) const = default;
};

struct ModelSpec {
  std::string name; // the folder's or shape's name; printed, never parsed
  Family family = Family::Llama;
  int64_t layers = 0;       // decoder layers, >= 1
  int64_t hidden = 0;       // width of the residual stream
  int64_t heads = 0;        // query heads
  int64_t kvHeads = 0;      // key/value heads; divides heads
  int64_t headDim = 0;      // even where rope is enabled; heads * headDim need not equal hidden
  int64_t intermediate = 0; // width of the MLP
  int64_t vocab = 0;
  int64_t maxPositions = 0; // longest context the model was made for
  // Tokens that some layer sees at most, itself included, where they are fewer than maxPositions. Longer contexts are
  // refused, so within the others every layer sees all. Of no plan: the plan's context is within it.
  std::optional<int64_t> window;
  NormKind norm = NormKind::RmsNorm;
  double normEps = 1e-5;
  Activation activation = Activation::SiluGate;
  bool qkvBias = false;
  bool outBias = false;
  bool mlpBias = false;
  bool qkNorm = false; // RMSNorm with normEps of each head of q and of k, before rotation; one weight for all heads
  Rope rope;
  bool learnedPositions = false; // OPT; the table has maxPositions + positionOffset rows
  int64_t positionOffset = 0;    // OPT: 2
  bool tiedEmbeddings = false;   // the head's matrix is the embedding table
  DType dtype = DType::F16;      // of the checkpoint's matrices
  WeightEncodings encodings;     // in which linear operands are held; a checkpoint says nothing of them
  Stage stage;

  bool isStage() const { return stage.of > 0; }
  bool embeds() const { return stage.first == 0; }
  bool tiesHead() const { return tiedEmbeddings || stage.tied; } // a stage has its rows as a unit of its own
  bool hasHead() const { return !isStage() || stage.first + layers == stage.of; }

  int64_t longestContext() const { return window.value_or(maxPositions); }
  int64_t qRows() const { return heads * headDim; }
  int64_t kvRows() const { return kvHeads * headDim; }
  int64_t qkvRows() const { return qRows() + 2 * kvRows(); }
  bool gated() const { return activation == Activation::SiluGate; }
  int64_t upRows() const { return gated() ? 2 * intermediate : intermediate; }
};

// Bounds that every validated spec keeps, so that code behind the readers may multiply: a dimension (also qkvRows() and
// upRows()) fits 31 bits, a product of two 62, all weights together 53 bits of bytes (exact in a double).
inline constexpr int64_t kMaxDimension = (int64_t{1} << 31) - 1;
inline constexpr int64_t kMaxLayers = 2000; // a plan of so many compiles in seconds, and takes most of a GB
inline constexpr uint64_t kMaxWeightBytes = uint64_t{1} << 53;

// What longestContext() is, for messages: "the 2048 positions of opt-6.7b", or the window of so many tokens.
std::string longestContextText(const ModelSpec &spec);

// Refuses sizes that are not positive, products that overflow, heads that kvHeads does not divide, and so on
// (kInvalidArgument). `where` (a file) begins every message; the message names the key as a shape's TOML spells it, its
// value and what was expected.
absl::Status validate(const ModelSpec &spec, std::string_view where);

// Layers [first, first + layers) of a whole model; all of them: the model. wholeOf() gives the model of any of its
// stages.
ModelSpec stageOf(const ModelSpec &whole, int64_t first, int64_t layers);
ModelSpec wholeOf(const ModelSpec &stage);

} // namespace headrace::model
