// SPDX-License-Identifier: Apache-2.0
//
// Random small models and random splits of their weights and KV caches, from a seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <vector>

#include "compiler/Compile.h"
#include "tests/support/PackedCaches.h"
#include "tests/support/StatedPlacements.h"
#include "tests/support/TinyPlan.h"

namespace headrace::core {

class Draw {
public:
  explicit Draw(uint64_t seed) : generator_(seed) {}
  int64_t between(int64_t low, int64_t high) { // both included
    return low + static_cast<int64_t>(generator_() % static_cast<uint64_t>(high - low + 1));
  }
  bool oneIn(int64_t n) { return between(1, n) == 1; }
  template <typename T> T oneOf(std::initializer_list<T> values) {
    return values.begin()[between(0, static_cast<int64_t>(values.size()) - 1)];
  }

private:
  std::mt19937_64 generator_;
};

inline compiler::CompileRequest anyModel(Draw &draw, model::DeviceKind kind, int kvBits = 0) {
  compiler::CompileRequest request;
  model::ModelSpec spec = draw.oneIn(3) ? tinyOpt(draw.between(1, 5)) : tinyLlama(draw.between(1, 5));
  if (spec.family == model::Family::Llama)
    spec.kvHeads = draw.oneOf<int64_t>({1, 2, 4});
  spec.dtype = draw.oneOf({model::DType::F32, model::DType::F16, model::DType::BF16});
  request.model = spec;
  request.hardware = tinyPlan({.spec = tinyLlama(1), .kind = kind}).hardware;
  request.hardware.flopsF32 = request.hardware.flopsF16 = request.hardware.memoryBandwidth = 1e10;
  request.hardware.flopsEfficiency = request.hardware.memoryEfficiency = 0.5;
  request.goal.batch = draw.between(1, 4);
  request.goal.context = draw.between(12, 32);
  request.goal.blockTokens =
      draw.between(1, 6); // of blocks of three rows and the like no two begin at a multiple of 256
  std::vector<int64_t> rows{1, *request.goal.batch, draw.between(5, 12)};
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  request.buckets = {.newTokens = rows, .sequences = {*request.goal.batch}, .contexts = {*request.goal.context}};
  if (draw.oneIn(2))
    request.buckets.contexts.insert(request.buckets.contexts.begin(), *request.goal.context / 2);
  packCaches(request, kvBits);
  return request;
}

// With 1 to `most` blocks of KV on the device, and no weights away, an interval of the layers or some units in a ring.
inline compiler::Candidate anySplit(Draw &draw, const model::ModelSpec &spec, int64_t most) {
  compiler::Candidate candidate = compiler::stated(spec, {compiler::none()}).front();
  if (draw.oneIn(3)) {
    candidate = compiler::stated(spec, {compiler::interval(draw.between(1, spec.layers))}).front();
  } else if (draw.oneIn(2)) {
    const model::WeightLayout layout = model::layoutWeights(spec);
    std::vector<int32_t> units;
    uint64_t largest = 0;
    for (int32_t unit = 1; unit < layout.headUnit(); ++unit)
      if (draw.oneIn(3) || (units.empty() && unit + 1 == layout.headUnit())) {
        units.push_back(unit);
        largest = std::max(largest, layout.units[static_cast<size_t>(unit)].bytes);
      }
    candidate = compiler::placementOfUnits(units, largest * static_cast<uint64_t>(draw.between(2, 6)) / 2);
  }
  candidate.residency.wrap.around = draw.oneIn(2);
  candidate.residency.kv().setSlots(draw.between(0, 3));
  candidate.residency.setKvAway(spec.layers, draw.between(1, most));
  return candidate;
}

} // namespace headrace::core
