// SPDX-License-Identifier: Apache-2.0
//
// How long compiling takes at the largest scale: Llama-3.1-405B's shape on an H100, eager, lowering to verified plan.
// One is of a smaller model, as it says.
//
//   DecodeVariant      one placement, one schedule, one variant
//   ManyVariants       8 placements (intervals 1 to 8) x 8 batches x 4 contexts = 256 variants
//   Layers/N           one decode variant of N layers: growth should be linear
//   ChooseForBudget    nothing stated but the device's memory: candidates are searched, then one is compiled
//   LoadAndVerify      the file of ManyVariants' plan: read, parse, verify
//   MiniBatches/M      one decode variant of M mini-batches, and the same with three quarters of KV on the host
//   Split...           the same with three quarters of the KV blocks at home on the host: beside each variant one that
//                      brings none of them (2 and 512 variants)
//   ChooseMiniBatches/M
//                      OPT-30B on an RTX 4090, 64 sequences of 1,024 tokens in M mini-batches: candidates are searched,
//                      weights and KV on the host as far as it takes, then the variants of all buckets are compiled
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "compiler/Compile.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/PlanFile.h"
#include "tests/support/SourceDir.h"
#include "tests/support/StatedPlacements.h"

namespace headrace::compiler {
namespace {

[[noreturn]] void fail(const absl::Status &status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

CompileRequest onDevice(const std::string &modelName, const std::string &hardwareName) {
  const std::string examples = sourceDir() + "/examples/";
  const auto model = model::openModel(examples + "models/" + modelName + ".toml");
  const auto hardware = model::openHardware(examples + "hardware/" + hardwareName + ".toml");
  if (!model.ok())
    fail(model.status());
  if (!hardware.ok())
    fail(hardware.status());
  CompileRequest request;
  request.model = model->spec;
  request.hardware = *hardware;
  return request;
}

CompileRequest llama405b() {
  CompileRequest request = onDevice("llama-3.1-405b", "h100");
  request.hardware.hostMemoryBytes = uint64_t{1} << 42; // beyond any machine: only the compiler is measured
  request.goal.deviceMemory = uint64_t{1} << 42;
  request.policy.interval = 2;
  request.policy.offloadEmbedding = request.policy.offloadHead = model::AutoOnOff::Off;
  request.buckets.newTokens = {1}; // none beyond decoding
  request.buckets.sequences = {8};
  request.buckets.contexts = {4096};
  return request;
}

CompileRequest manyVariants() {
  CompileRequest request = llama405b();
  std::vector<model::Policy> policies;
  for (int64_t i = 1; i <= 8; ++i)
    policies.push_back(compiler::interval(i));
  request.placements = compiler::stated(request.model, policies);
  request.buckets.sequences = {1, 2, 4, 8, 16, 32, 64, 128};
  request.buckets.contexts = {512, 1024, 2048, 4096};
  return request;
}

CompileRequest split(CompileRequest request, const std::vector<model::Policy> &policies) {
  request.placements = compiler::stated(request.model, policies);
  const int64_t blocks = request.buckets.sequences.back() * request.buckets.contexts.back() / 16; // of 16 tokens
  for (Candidate &candidate : request.placements)
    candidate.residency.setKvAway(request.model->layers, blocks / 4);
  return request;
}
CompileRequest splitVariant() { return split(llama405b(), {compiler::interval(2)}); }
CompileRequest splitVariants() {
  std::vector<model::Policy> policies;
  for (int64_t i = 1; i <= 8; ++i)
    policies.push_back(compiler::interval(i));
  return split(manyVariants(), policies);
}

plan::Plan compiled(const CompileRequest &request) {
  absl::StatusOr<plan::Plan> plan = compile(request);
  if (!plan.ok())
    fail(plan.status());
  return *std::move(plan);
}

void compileFor(benchmark::State &state, const CompileRequest &request) {
  size_t variants = 0, steps = 0;
  for (auto _ : state) {
    const plan::Plan plan = compiled(request);
    variants = plan.variants.size();
    steps = plan.schedules[0].steps.size();
  }
  state.counters["variants"] = static_cast<double>(variants);
  state.counters["steps"] = static_cast<double>(steps);
}

void DecodeVariant(benchmark::State &state) { compileFor(state, llama405b()); }
BENCHMARK(DecodeVariant)->Unit(benchmark::kMillisecond);

// Of 8 sequences each.
CompileRequest miniBatches(int64_t count, bool tails) {
  CompileRequest request = llama405b();
  request.goal.miniBatches = count;
  request.goal.batch = 8 * count;
  return tails ? split(request, {compiler::interval(2)}) : request;
}
void MiniBatches(benchmark::State &state) { compileFor(state, miniBatches(state.range(0), false)); }
BENCHMARK(MiniBatches)->Arg(1)->Arg(2)->Arg(4)->Arg(8)->Arg(32)->Unit(benchmark::kMillisecond);
void SplitMiniBatches(benchmark::State &state) { compileFor(state, miniBatches(state.range(0), true)); }
BENCHMARK(SplitMiniBatches)->RangeMultiplier(2)->Range(1, 8)->Unit(benchmark::kMillisecond);

void ChooseMiniBatches(benchmark::State &state) {
  CompileRequest request = onDevice("opt-30b", "rtx4090-hybridserve");
  request.goal.batch = 64;
  request.goal.miniBatches = state.range(0);
  request.goal.context = 1024;
  compileFor(state, request);
}
BENCHMARK(ChooseMiniBatches)->Arg(1)->Arg(8)->Arg(32)->Unit(benchmark::kMillisecond);

void ManyVariants(benchmark::State &state) { compileFor(state, manyVariants()); }
BENCHMARK(ManyVariants)->Unit(benchmark::kMillisecond);

void SplitVariant(benchmark::State &state) { compileFor(state, splitVariant()); }
BENCHMARK(SplitVariant)->Unit(benchmark::kMillisecond);

void SplitVariants(benchmark::State &state) { compileFor(state, splitVariants()); }
BENCHMARK(SplitVariants)->Unit(benchmark::kMillisecond);

void Layers(benchmark::State &state) {
  CompileRequest request = llama405b();
  request.model->layers = state.range(0);
  compileFor(state, request);
  state.SetComplexityN(state.range(0));
}
BENCHMARK(Layers)->RangeMultiplier(2)->Range(16, 512)->Unit(benchmark::kMillisecond)->Complexity(benchmark::oN);

void ChooseForBudget(benchmark::State &state) {
  CompileRequest request = llama405b();
  request.goal.deviceMemory.reset(); // 80 GB for a model of 812 GB
  request.policy = {};
  compileFor(state, request);
}
BENCHMARK(ChooseForBudget)->Unit(benchmark::kMillisecond);

void loadAndVerify(benchmark::State &state, const CompileRequest &request) {
  const std::string path = "/tmp/headrace-bench-" + std::to_string(std::rand()) + ".plan";
  if (absl::Status status = plan::writePlan(compiled(request), path); !status.ok())
    fail(status);
  for (auto _ : state) {
    const auto plan = plan::readPlan(path);
    if (!plan.ok())
      fail(plan.status());
    benchmark::DoNotOptimize(plan->variants.data());
  }
  std::remove(path.c_str());
}

void LoadAndVerify(benchmark::State &state) { loadAndVerify(state, manyVariants()); }
BENCHMARK(LoadAndVerify)->Unit(benchmark::kMillisecond);

void MiniBatchesLoadAndVerify(benchmark::State &state) { loadAndVerify(state, miniBatches(4, true)); }
BENCHMARK(MiniBatchesLoadAndVerify)->Unit(benchmark::kMillisecond);

void SplitLoadAndVerify(benchmark::State &state) { loadAndVerify(state, splitVariants()); }
BENCHMARK(SplitLoadAndVerify)->Unit(benchmark::kMillisecond);

} // namespace
} // namespace headrace::compiler
