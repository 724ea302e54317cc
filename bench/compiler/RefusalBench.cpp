// SPDX-License-Identifier: Apache-2.0
//
// How long it takes to say what would do where an objective cannot be met: the search runs for objective after
// objective. CPU time, as medians: other programs on the machine change it least.
//
//   Refusal/89Layers     a llama of 89 layers with slow copies, at a TPOT far below the least (1 s)
//   Refusal/Random       100 random models, devices and budgets, each refused 1 ns below its least TPOT (median 0.3 s);
//                        counters: median, p90 and max in ms
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>

#include "compiler/Compile.h"
#include "runtime/base/Units.h"
#include "runtime/model/ModelSpec.h"
#include "tests/support/RandomRequests.h"

namespace headrace::compiler {
namespace {

[[noreturn]] void fail(const std::string &text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  std::exit(1);
}

double cpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// The text of a refusal; empty where the goal is met.
std::string refusalOf(const CompileRequest &request) {
  const absl::StatusOr<plan::Plan> plan = compile(request);
  if (plan.ok())
    return "";
  if (!absl::IsResourceExhausted(plan.status()))
    fail(plan.status().ToString());
  return std::string(plan.status().message());
}

// The number or duration behind `text` in a refusal; none where it is not said.
std::optional<uint64_t> after(const std::string &refusal, const std::string &text, bool duration) {
  const size_t at = refusal.find(text);
  if (at == std::string::npos)
    return std::nullopt;
  const std::string rest = refusal.substr(at + text.size(), refusal.find(' ', at + text.size()) - at - text.size());
  if (!duration)
    return std::stoull(rest);
  const auto seconds = model::parseSeconds(rest, "refusal");
  if (!seconds.ok())
    fail(seconds.status().ToString());
  return static_cast<uint64_t>(*seconds * 1e9 + 0.5);
}

CompileRequest slowCopies() {
  CompileRequest r;
  r.model->name = "89 layers";
  r.model->family = model::Family::Llama;
  r.model->layers = 89;
  r.model->hidden = 1536;
  r.model->heads = 24;
  r.model->kvHeads = 8;
  r.model->headDim = 64;
  r.model->intermediate = 3840;
  r.model->vocab = 151936;
  r.model->maxPositions = 8192;
  r.model->rope.enabled = true;
  r.model->dtype = model::DType::F16;
  r.modelHash = "0123";
  model::Hardware &h = r.hardware;
  h.name = "slow copies";
  h.memoryBytes = 4'000'000'000'000;
  h.hostMemoryBytes = 8'000'000'000'000;
  h.flopsF32 = 4.65038e12;
  h.flopsF16 = 37.20307e12;
  h.memoryBandwidth = 424.6815e9;
  h.h2dBandwidth = h.d2hBandwidth = 155.49814e9;
  h.duplexBandwidth = 248.79702e9;
  h.copyLatency = 20e-6;
  h.launchOverhead = 5e-6;
  h.flopsEfficiency = 0.8855;
  h.memoryEfficiency = 0.6334;
  h.linkEfficiency = 0.8556;
  r.goal.batch = 4;
  r.goal.context = 128;
  r.goal.deviceMemory = 1'120'008'553;
  r.goal.tpot = std::chrono::nanoseconds(22'189'139);
  r.buckets = {.newTokens = {4}, .sequences = {4}, .contexts = {128}};
  r.policy.name = "headrace";
  return r;
}

void given(benchmark::State &state) {
  const CompileRequest request = slowCopies();
  for (auto _ : state)
    if (refusalOf(request).empty())
      fail("the case is not refused");
}
BENCHMARK(given)->Name("Refusal/89Layers")->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime();

void random(benchmark::State &state) {
  std::mt19937_64 generator(1);
  std::vector<double> ms;
  for (auto _ : state)
    while (ms.size() < 100) {
      CompileRequest request = randomRequest(generator, /*decode=*/true);
      request.policy.name = "headrace";
      // Memory between the least there is and what everything takes.
      request.goal.tpot = std::chrono::nanoseconds(1);
      const uint64_t all = *after(refusalOf(request), "the minimum TPOT is ", true);
      request.goal.deviceMemory = 1;
      const std::optional<uint64_t> least = after(refusalOf(request), "the minimum is ", false);
      request.goal.deviceMemory = uint64_t{1} << 42;
      request.goal.tpot = std::chrono::nanoseconds(all);
      const absl::StatusOr<plan::Plan> resident = compile(request);
      if (!least || !resident.ok())
        continue;
      const uint64_t most = resident->arenaBytes;
      const double share = std::uniform_real_distribution<double>(0, 1)(generator);
      request.goal.deviceMemory =
          *least + static_cast<uint64_t>(share * static_cast<double>(most - std::min(most, *least)));
      request.goal.tpot = std::chrono::nanoseconds(1);
      const std::optional<uint64_t> tpot = after(refusalOf(request), "the minimum TPOT is ", true);
      if (!tpot)
        continue;
      request.goal.tpot = std::chrono::nanoseconds(*tpot - 1);
      const double before = cpuSeconds();
      if (refusalOf(request).empty())
        fail("met 1 ns below the least TPOT");
      ms.push_back((cpuSeconds() - before) * 1e3);
    }
  std::sort(ms.begin(), ms.end());
  state.counters["median_ms"] = ms[ms.size() / 2];
  state.counters["p90_ms"] = ms[ms.size() * 9 / 10];
  state.counters["max_ms"] = ms.back();
}
BENCHMARK(random)->Name("Refusal/Random")->Unit(benchmark::kMillisecond)->Iterations(1)->MeasureProcessCPUTime();

} // namespace
} // namespace headrace::compiler
