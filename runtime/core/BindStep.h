// SPDX-License-Identifier: Apache-2.0
//
// From a plan's compute step to the kernel's struct of arguments: done once, when a graph is built.
//
// plan/proof/VerifySizes.cpp says which operands each op has. An operand's address is that of its first byte; a tensor
// is found inside it by the weight layout. Which unit a Norm or Linear belongs to follows from the buffer of its
// weights; the final norm and the head work on sampled rows (meta->numSampled), all others on the iteration's
// (meta->numTokens).
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/Kernels.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::model {
struct Rope;
}

namespace headrace::core {

// Where the spaces of a plan begin in this process (or on this device).
struct Bases {
  std::byte *device = nullptr;
  std::byte *host = nullptr;
};

template <typename None, typename... Args> using VariantOf = std::variant<Args...>;
// A kernel's arguments, of any op; std::visit gives the struct's address to the entry.
#define HEADRACE_OP(name, value, text) , kernels::name##Args
using KernelArgs = VariantOf<void HEADRACE_OPS(HEADRACE_OP)>;
#undef HEADRACE_OP
struct BoundStep {
  kernels::Op op;
  KernelArgs args;
  const void *argsPointer() const;
};

// Constants that kernels read beside the arena (scaled inverse frequencies); one a plan, outlives the bound steps.
class BindContext {
public:
  // `deviceFrequencies`: where the device keeps its own copy of inverseFrequencies(); null where kernels read this one.
  // `arrivals`: AttentionArgs has them.
  BindContext(const plan::Plan &plan, kernels::Order order, const float *deviceFrequencies = nullptr,
              uint32_t *arrivals = nullptr);
  // Refuses a step whose operands do not fit its op, or whose sizes do not fit the model, by name.
  absl::StatusOr<BoundStep> bind(const plan::Schedule &schedule, uint32_t step, const plan::Variant &variant,
                                 const Bases &bases) const;
  const model::WeightLayout &layout() const { return layout_; }

private:
  const plan::Plan &plan_;
  kernels::Order order_;
  model::WeightLayout layout_;
  std::vector<float> inverseFrequencies_;
  const float *deviceFrequencies_;
  uint32_t *arrivals_;
};

// headDim / 2 inverse frequencies with the model's scaling applied (Hugging Face's definitions of "linear" and
// "llama3").
std::vector<float> inverseFrequencies(const model::Rope &rope, int64_t headDim);

} // namespace headrace::core
