// SPDX-License-Identifier: Apache-2.0
//
// Tokens and logits of small plans on any device, for tests that compare devices and ways to build graphs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/core/Device.h"
#include "runtime/core/Runtime.h"
#include "tests/support/TinyPlan.h"

namespace headrace::cuda {

inline constexpr int kIterations = 8;

// For a GPU: activations and cache of the weights' type.
plan::Plan planFor(model::DeviceKind kind, core::TinyPlanOptions options);

struct Outcome {
  std::vector<int32_t> tokens;
  std::vector<float> logits; // of the last iteration's one row
};

// A prompt of seven tokens, then one row of the same sequence an iteration, each launched before the token of the one
// before it was read. Fails the test where the device does.
// With `oneByOne` each launch is awaited and its token given to the next; else two are in flight, and the token stays
// on the device.
Outcome generate(core::Device &device, const plan::Plan &plan, bool oneByOne = false);

// The same an iteration at a time: several side by side.
class Generation {
public:
  Generation(core::Device &device, const plan::Plan &plan, bool oneByOne = false);
  void next();
  Outcome end(); // of what was launched

private:
  void read();

  core::Device &device_;
  const plan::Plan &plan_;
  const bool oneByOne_;
  std::unique_ptr<core::Runtime> runtime_; // null where loading failed
  int launched_ = 0;
  Outcome outcome_;
};

bool sameBits(const std::vector<float> &a, const std::vector<float> &b); // and not empty
// Infinite where a value is not finite, or there is none.
double largestDifference(const std::vector<float> &a, const std::vector<float> &b);

// Both families in F32, F16 and BF16, with heads of 16; and with those of tensor-core kernels, F16 of 64 and BF16 of
// 128.
std::vector<model::ModelSpec> models();

} // namespace headrace::cuda
