// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/compiler/Requests.h"

#include "absl/strings/str_cat.h"
#include "runtime/model/ModelSpec.h"
#include "tests/support/SourceDir.h"
#include "tests/support/TinyPlan.h"
#include "gtest/gtest.h"

namespace headrace::compiler {

namespace {

// Larger in what a compiler counts than what a device runs.
model::ModelSpec widened(model::ModelSpec spec, const char *name) {
  spec.name = absl::StrCat(name, spec.layers);
  spec.vocab = 256;
  spec.maxPositions = 512;
  return spec;
}

} // namespace

model::ModelSpec tinyLlama(int64_t layers) { return widened(core::tinyLlama(layers), "tiny-llama-"); }

model::ModelSpec tinyOpt(int64_t layers) {
  model::ModelSpec spec = widened(core::tinyOpt(layers), "tiny-opt-");
  spec.intermediate = 256;
  spec.dtype = model::DType::F32;
  return spec;
}

model::ModelSpec tinyQwen(int64_t layers, bool tied) {
  model::ModelSpec spec = tinyLlama(layers);
  spec.name = absl::StrCat("tiny-qwen2-", layers);
  spec.family = model::Family::Qwen2;
  spec.qkvBias = true;
  spec.tiedEmbeddings = tied;
  spec.dtype = model::DType::BF16;
  return spec;
}

model::ModelSpec tinyQwen3(int64_t layers) {
  model::ModelSpec spec = tinyLlama(layers);
  spec.name = absl::StrCat("tiny-qwen3-", layers);
  spec.family = model::Family::Qwen3;
  spec.qkNorm = true;
  return spec;
}

model::Hardware roundHardware() {
  model::Hardware h;
  h.name = "round";
  h.kind = model::DeviceKind::Host;
  h.memoryBytes = uint64_t{1} << 30;
  h.hostMemoryBytes = uint64_t{1} << 34;
  h.flopsF32 = h.flopsF16 = 100e9;
  h.memoryBandwidth = 10e9;
  h.h2dBandwidth = h.d2hBandwidth = 1e9;
  h.duplexBandwidth = 2e9;
  h.flopsEfficiency = h.memoryEfficiency = h.linkEfficiency = 1;
  return h;
}

CompileRequest request(const model::ModelSpec &spec) {
  CompileRequest request;
  request.model = spec;
  request.modelHash = "0123";
  request.hardware = roundHardware();
  request.goal.batch = 2;
  request.goal.context = 64;
  return request;
}

CompileRequest longRequest() {
  model::ModelSpec spec = tinyLlama(2);
  spec.maxPositions = 4096;
  CompileRequest r = request(spec);
  r.goal.batch = 2;
  r.goal.context = 4096;
  return r;
}

CompileRequest shipped(const std::string &model, const std::string &hardware, int64_t batch, int64_t context) {
  CompileRequest request;
  const std::string examples = absl::StrCat(sourceDir(), "/examples/");
  auto source = model::openModel(absl::StrCat(examples, "models/", model, ".toml"));
  EXPECT_TRUE(source.ok()) << source.status();
  auto device = model::openHardware(absl::StrCat(examples, "hardware/", hardware, ".toml"));
  EXPECT_TRUE(device.ok()) << device.status();
  request.model = source->spec;
  request.hardware = *device;
  request.goal.batch = batch;
  request.goal.context = context;
  return request;
}

} // namespace headrace::compiler
