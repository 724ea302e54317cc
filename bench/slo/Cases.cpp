// SPDX-License-Identifier: Apache-2.0
#include "bench/slo/Cases.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace headrace::bench {
namespace {

using model::DType;
using model::Family;

constexpr int kMostDraws = 100000;

model::ModelSpec shape(const char *name, Family family, int64_t layers, int64_t hidden, int64_t heads, int64_t kvHeads,
                       int64_t intermediate, DType dtype) {
  model::ModelSpec spec{.name = name, .family = family, .layers = layers, .hidden = hidden};
  spec.heads = heads;
  spec.kvHeads = kvHeads;
  spec.headDim = hidden / heads;
  spec.intermediate = intermediate;
  spec.vocab = 2048;
  spec.maxPositions = 1024;
  spec.dtype = dtype;
  if (family == Family::Opt) {
    spec.norm = model::NormKind::LayerNorm;
    spec.activation = model::Activation::Relu;
    spec.qkvBias = spec.outBias = spec.mlpBias = true;
    spec.learnedPositions = spec.tiedEmbeddings = true;
    spec.positionOffset = 2;
  } else {
    spec.rope.enabled = true;
    spec.qkvBias = family == Family::Qwen2;
  }
  return spec;
}

// The same on every standard library, unlike std::uniform_real_distribution.
double unit(std::mt19937_64 &random) { return static_cast<double>(random() >> 11u) * 0x1p-53; }
int64_t whole(std::mt19937_64 &random, int64_t least, int64_t most) {
  return least + static_cast<int64_t>(unit(random) * static_cast<double>(most - least + 1));
}
// Even in the logarithm; `share` from 0 to 1.
double between(double least, double most, double share) { return least * std::pow(most / least, share); }

} // namespace

std::vector<model::ModelSpec> caseModels() {
  return {shape("opt-12x192-f32", Family::Opt, 12, 192, 3, 3, 768, DType::F32),
          shape("opt-24x192-bf16", Family::Opt, 24, 192, 3, 3, 768, DType::BF16),
          shape("llama-8x256-f32", Family::Llama, 8, 256, 4, 1, 704, DType::F32),
          shape("llama-16x256-bf16", Family::Llama, 16, 256, 4, 4, 704, DType::BF16),
          shape("qwen2-10x256-f32", Family::Qwen2, 10, 256, 4, 2, 768, DType::F32),
          shape("qwen2-20x256-bf16", Family::Qwen2, 20, 256, 4, 2, 768, DType::BF16)};
}

std::vector<Case> drawCases(size_t model, size_t count, std::mt19937_64 &random,
                            const std::function<Expected(const Case &)> &expect) {
  std::vector<Case> cases;
  for (int draw = 0; cases.size() < count; ++draw) {
    if (draw == kMostDraws) {
      std::fprintf(stderr, "bench_slo: no case of model %zu is within the bounds\n", model);
      std::exit(1);
    }
    Case c;
    c.model = model;
    c.link = static_cast<size_t>(whole(random, 0, kLinks - 1));
    c.prefill = unit(random) < kPrefillShare;
    c.batch = c.prefill ? 1 : whole(random, 1, kMostBatch);
    c.context = c.prefill ? whole(random, kLeastPrefill, kMostPrefill) : whole(random, kLeastContext, kMostContext);
    c.factor = between(kLeastFactor, kMostFactor, unit(random));
    c.selectN = unit(random) < 0.5;
    const Expected expected = expect(c);
    const double ms = expected.residentNs * 1e-6;
    if (expected.ratio < kLeastRatio || expected.ratio > kMostRatio || ms < kLeastResidentMs || ms > kMostResidentMs ||
        ms * c.factor > kMostSloMs)
      continue;
    cases.push_back(c);
  }
  std::stable_sort(cases.begin(), cases.end(), [](const Case &a, const Case &b) { return a.link < b.link; });
  return cases;
}

std::vector<double> drawLinks(uint64_t layerBytes, double layerNs, double fastest, std::mt19937_64 &random) {
  std::vector<double> links;
  for (size_t i = 0; i < kLinks; ++i) {
    const double ratio =
        between(kLeastRatio, kMostLinkRatio, (static_cast<double>(i) + unit(random)) / static_cast<double>(kLinks));
    links.push_back(std::min(fastest, static_cast<double>(layerBytes) / (ratio * layerNs) * 1e9));
  }
  return links;
}

} // namespace headrace::bench
