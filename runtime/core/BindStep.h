// SPDX-License-Identifier: Apache-2.0
//
// From a plan's compute step to the kernel's struct of arguments: done once, when a graph is built.
//
// Operands of each op (in any order; [ ] optional; an operand may cover more bytes than its op needs, never fewer):
//
//   Embed       Meta Table [Positions] Sampled Y          Table and Positions: ranges of the embedding unit that cover
//                                                         the tensors; Space::Host only where the step is `direct`
//   Norm        Meta X NormWeights Y                      NormWeights covers NormWeight and, with LayerNorm, NormBias
//   Linear      Meta X Weight [Bias] [Residual] Y [Workspace]   Weight covers Matrix (tied head: TokenTable). The
//                                                         residual is in place where Y is ReadWrite or Residual == Y
//   RopeAppend  Meta X (ReadWrite: q and k are rotated in place; tagged Y is accepted) Kv
//   Attention   Meta X Kv Y [Workspace]
//   Activate    Meta X Y
//   GatherRows  Meta X Y
//   Sample      Meta X Sampled Output [Workspace]
//   (Publish    Meta Output: bound by the device itself)
//
// Meta, Sampled and Output that are not among the operands are taken from the homes of the plan's io buffers. Which unit a
// Norm or Linear belongs to follows from the buffer of its weights; final norm and head work on sampled rows.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/Kernels.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/plan/Plan.h"

namespace headrace::core {

// Where the spaces of a plan begin in this process (or on this device).
struct Bases {
  std::byte *device = nullptr;
  std::byte *host = nullptr;
};

// A kernel's arguments; std::visit gives the struct's address to the entry.
using KernelArgs = std::variant<kernels::EmbedArgs, kernels::NormArgs, kernels::LinearArgs, kernels::RopeAppendArgs,
                                kernels::AttentionArgs, kernels::ActivateArgs, kernels::GatherRowsArgs, kernels::SampleArgs>;
struct BoundStep {
  kernels::Op op;
  KernelArgs args;
  const void *argsPointer() const;
};

// Constants that kernels read beside the arena (scaled inverse frequencies); one a plan, outlives the bound steps.
class BindContext {
public:
  BindContext(const plan::Plan &plan, kernels::Order order);
  // Refuses a step whose operands do not fit its op, or whose sizes do not fit the model, by name.
  absl::StatusOr<BoundStep> bind(const plan::Schedule &schedule, uint32_t step, const plan::Variant &variant,
                                 const Bases &bases) const;
  const model::WeightLayout &layout() const { return layout_; }

private:
  const plan::Plan &plan_;
  kernels::Order order_;
  model::WeightLayout layout_;
  std::vector<float> inverseFrequencies_;
};

// headDim / 2 inverse frequencies with the model's scaling applied (Hugging Face's definitions of "linear" and "llama3").
std::vector<float> inverseFrequencies(const model::Rope &rope, int64_t headDim);

} // namespace headrace::core
