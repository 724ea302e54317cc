// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/cuda/Generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "runtime/core/MetaWriter.h"
#include "runtime/core/Runtime.h"

namespace headrace::cuda {

using core::tinyLlama;
using core::tinyOpt;
using core::tinyPlan;
using core::TinyPlanOptions;

plan::Plan planFor(model::DeviceKind kind, TinyPlanOptions options) {
  options.kind = kind;
  plan::Plan plan = tinyPlan(options);
  if (kind == model::DeviceKind::Cuda)
    plan.activationDtype = plan.kvDtype = options.spec.dtype;
  return plan;
}

Outcome generate(core::Device &device, const plan::Plan &plan, bool oneByOne) {
  Outcome outcome;
  const auto weights = model::syntheticWeights(7);
  auto runtime = core::Runtime::load(plan, device, {}, weights.get(), {});
  EXPECT_TRUE(runtime.ok()) << runtime.status();
  if (!runtime.ok())
    return outcome;
  const std::vector<int32_t> prompt{3, 1, 4, 1, 5, 9, 2};
  const std::vector<int32_t> blocks{1, 2, 3, 4, 5};
  const auto read = [&] {
    const auto tokens = (*runtime)->awaitTokens();
    EXPECT_TRUE(tokens.ok() && tokens->size() == 1) << tokens.status();
    outcome.tokens.push_back(tokens.ok() && !tokens->empty() ? tokens->front() : 0);
  };
  uint32_t variant = 1;
  for (int i = 0; i < kIterations; ++i) {
    if (oneByOne && i > 0)
      read(); // before the next launch, which is given what it was
    const std::vector<int32_t> sampledBefore{oneByOne && i > 0 ? outcome.tokens.back() : -1};
    const core::SequenceRows rows{.tokens = i == 0 ? prompt : sampledBefore,
                                  .firstPosition = i == 0 ? 0 : 6 + i,
                                  .blocks = blocks,
                                  .sample = true};
    const absl::Status written = core::writeMeta(plan.metaLayout, plan.blockTokens, {&rows, 1}, device.meta());
    EXPECT_TRUE(written.ok()) << written;
    const absl::Status launched = (*runtime)->launch(variant);
    EXPECT_TRUE(launched.ok()) << launched;
    variant = 0;
    if (i > 0 && !oneByOne)
      read(); // of the launch before, behind which this one is in flight
  }
  read();
  for (const plan::Local &local : plan.schedules[0].locals)
    if (local.buffer.name == "logits") {
      outcome.logits.resize(static_cast<size_t>(plan.model->vocab));
      const absl::Status read = device.readDevice(
          local.address, {reinterpret_cast<std::byte *>(outcome.logits.data()), outcome.logits.size() * sizeof(float)});
      EXPECT_TRUE(read.ok()) << read;
    }
  return outcome;
}

bool sameBits(const std::vector<float> &a, const std::vector<float> &b) {
  return a.size() == b.size() && !a.empty() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

double largestDifference(const std::vector<float> &a, const std::vector<float> &b) {
  EXPECT_EQ(a.size(), b.size());
  double most = a.empty() ? INFINITY : 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    most = std::max(most,
                    std::isfinite(a[i]) ? std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])) : INFINITY);
  return most;
}

std::vector<model::ModelSpec> models() {
  std::vector<model::ModelSpec> specs;
  for (model::DType dtype : {model::DType::F32, model::DType::F16, model::DType::BF16})
    for (model::ModelSpec spec : {tinyLlama(4), tinyOpt(4)}) {
      spec.dtype = dtype;
      specs.push_back(spec);
    }
  for (const auto &[dtype, headDim] : {std::pair(model::DType::F16, 64), std::pair(model::DType::BF16, 128)}) {
    model::ModelSpec spec = tinyLlama(4);
    spec.name = "tiny-llama-heads-" + std::to_string(headDim);
    spec.dtype = dtype;
    spec.headDim = headDim;
    specs.push_back(spec);
  }
  return specs;
}

} // namespace headrace::cuda
