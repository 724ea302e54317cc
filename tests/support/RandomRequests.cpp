// SPDX-License-Identifier: Apache-2.0
#include "tests/support/RandomRequests.h"

#include "runtime/model/ModelSpec.h"

#include <algorithm>
#include <cmath>

namespace headrace::compiler {

CompileRequest randomRequest(std::mt19937_64 &generator, bool decode) {
  const auto between = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(generator);
  };
  const auto evenly = [&](double low, double high) { // over orders of magnitude
    return std::exp(std::uniform_real_distribution<double>(std::log(low), std::log(high))(generator));
  };
  CompileRequest request;
  model::ModelSpec &spec = *request.model;
  spec.name = "random";
  spec.family = model::Family::Llama;
  spec.layers = between(2, 90);
  spec.headDim = 64 * between(1, 2);
  spec.kvHeads = int64_t{1} << between(0, 3);
  const int64_t group =
      std::clamp(static_cast<int64_t>(evenly(256, 8192)) / (spec.headDim * spec.kvHeads), int64_t{1}, int64_t{64});
  spec.heads = spec.kvHeads * group;
  spec.hidden = std::max<int64_t>(256, spec.heads * spec.headDim);
  spec.intermediate = spec.hidden * between(4, 16) / 4;
  spec.vocab = 1000 * between(8, 152);
  spec.maxPositions = 8192;
  spec.rope.enabled = true;
  spec.tiedEmbeddings = between(0, 1) == 0;
  spec.dtype = model::DType::F16;
  request.modelHash = "0123";

  model::Hardware &device = request.hardware;
  device.name = "random";
  device.kind = model::DeviceKind::Cuda;
  device.memoryBytes = device.hostMemoryBytes = uint64_t{1} << 43;
  device.flopsF16 = evenly(20e12, 400e12);
  device.flopsF32 = device.flopsF16 / 8;
  device.memoryBandwidth = evenly(200e9, 3000e9);
  device.h2dBandwidth = device.d2hBandwidth = evenly(4e9, 200e9);
  device.duplexBandwidth = 1.6 * device.h2dBandwidth;
  device.copyLatency = 1e-6 * static_cast<double>(between(0, 3) == 0 ? 0 : between(1, 20));
  device.launchOverhead = 1e-6 * static_cast<double>(between(0, 5));
  device.flopsEfficiency = 0.7;
  device.memoryEfficiency = 0.6;
  device.linkEfficiency = 0.9;

  request.goal.deviceMemory = uint64_t{1} << 42;
  const int64_t sequences = int64_t{1} << between(0, 6), context = int64_t{64} << between(0, 5);
  request.goal.batch = sequences;
  request.goal.context = context;
  request.buckets = {
      .newTokens = {decode ? sequences : sequences * 16}, .sequences = {sequences}, .contexts = {context}};
  return request;
}

} // namespace headrace::compiler
