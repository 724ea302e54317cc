// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/cuda/Generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "runtime/core/MetaWriter.h"

namespace headrace::cuda {

using core::tinyLlama;
using core::tinyOpt;
using core::tinyPlan;
using core::TinyPlanOptions;

plan::Plan planFor(model::DeviceKind kind, TinyPlanOptions options) {
  options.kind = kind;
  plan::Plan plan = tinyPlan(options);
  if (kind == model::DeviceKind::Cuda)
    plan.kvEncoding = plan.activationDtype = options.spec.dtype;
  return plan;
}

Generation::Generation(core::Device &device, const plan::Plan &plan, bool oneByOne)
    : device_(device), plan_(plan), oneByOne_(oneByOne) {
  const auto weights = model::syntheticWeights(7);
  auto runtime = core::Runtime::load(plan, device, {}, weights.get(), {});
  EXPECT_TRUE(runtime.ok()) << runtime.status();
  if (runtime.ok())
    runtime_ = *std::move(runtime);
}

void Generation::read() {
  const auto tokens = runtime_->awaitTokens();
  EXPECT_TRUE(tokens.ok() && tokens->size() == 1) << tokens.status();
  outcome_.tokens.push_back(tokens.ok() && !tokens->empty() ? tokens->front() : 0);
}

void Generation::next() {
  if (runtime_ == nullptr)
    return;
  static const std::vector<int32_t> kPrompt{3, 1, 4, 1, 5, 9, 2}, kBlocks{1, 2, 3, 4, 5};
  const int i = launched_++;
  if (oneByOne_ && i > 0)
    read(); // before the next launch, which is given what it was
  const std::vector<int32_t> sampledBefore{oneByOne_ && i > 0 ? outcome_.tokens.back() : -1};
  const core::SequenceRows rows{.tokens = i == 0 ? kPrompt : sampledBefore,
                                .firstPosition = i == 0 ? 0 : 6 + i,
                                .blocks = kBlocks,
                                .sample = true};
  const absl::Status written = core::writeMeta(plan_.metaLayout, plan_.blockTokens, {&rows, 1}, device_.meta());
  EXPECT_TRUE(written.ok()) << written;
  const absl::Status launched = runtime_->launch(i == 0 ? 1 : 0);
  EXPECT_TRUE(launched.ok()) << launched;
  if (i > 0 && !oneByOne_)
    read(); // of the launch before, behind which this one is in flight
}

Outcome Generation::end() {
  if (runtime_ == nullptr)
    return outcome_;
  read();
  for (const plan::Local &local : plan_.schedules[0].locals)
    if (local.buffer.name == "logits") {
      outcome_.logits.resize(static_cast<size_t>(plan_.model->vocab));
      const absl::Status read =
          device_.readDevice(local.address, {reinterpret_cast<std::byte *>(outcome_.logits.data()),
                                             outcome_.logits.size() * sizeof(float)});
      EXPECT_TRUE(read.ok()) << read;
    }
  return outcome_;
}

Outcome generate(core::Device &device, const plan::Plan &plan, bool oneByOne) {
  Generation generation(device, plan, oneByOne);
  for (int i = 0; i < kIterations; ++i)
    generation.next();
  return generation.end();
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
