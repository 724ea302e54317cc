// SPDX-License-Identifier: Apache-2.0
//
// What an iteration costs the host that plays it: the sim device's calls of one (meta, launch, awaitTokens; two in
// flight), for OPT-13B on h100 with everything resident, decoding sequences whose contexts grow; by the bucket and by
// what runs (core::Pricing), the latter at most 5 us. `offloaded`: the same with every fourth layer in host memory.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>

#include "compiler/Compile.h"
#include "runtime/core/MetaWriter.h"
#include "runtime/core/Runtime.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/sim/SimDevice.h"

namespace headrace {
namespace {

template <class T> T must(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(value);
}

constexpr int64_t kContext = 2048;

const plan::Plan &planOf(bool offloaded) {
  const auto compiled = [](const char *policy) {
    compiler::CompileRequest request;
    request.model = must(model::openModel("opt-13b")).spec;
    request.modelHash = "0";
    request.hardware = must(model::openHardware("h100"));
    request.goal.batch = 64;
    request.goal.context = kContext;
    request.goal.kvTokens = 50000;
    request.policy.name = policy;
    if (request.policy.name == "interval")
      request.policy.interval = 4;
    return must(compiler::compile(request));
  };
  static const plan::Plan resident = compiled("none");
  static const plan::Plan every4 = compiled("interval");
  return offloaded ? every4 : resident;
}

void iteration(benchmark::State &state, core::Pricing pricing, bool offloaded) {
  const plan::Plan &plan = planOf(offloaded);
  const auto sequences = static_cast<size_t>(state.range(0));
  const auto device = sim::makeSimDevice();
  const auto runtime = must(core::Runtime::load(plan, *device, {.pricing = pricing}, nullptr, {}));
  const uint32_t variant =
      must(runtime->choose(static_cast<int64_t>(sequences), static_cast<int64_t>(sequences), 1000));
  if (!runtime->enter(variant).ok() || !device->drain().ok())
    std::exit(1);
  const auto graph = must(device->build({.index = variant}));
  if (!device->upload(*graph).ok())
    std::exit(1);
  // Both staging copies are whole from the start, so that none of the time is the caller's; contexts alone grow.
  const int32_t token = 1;
  const std::vector<int32_t> blocks(static_cast<size_t>(kContext / plan.blockTokens), 1);
  std::vector<core::SequenceRows> rows(sequences);
  for (size_t s = 0; s < sequences; ++s)
    rows[s] = {.tokens = absl::MakeConstSpan(&token, 1),
               .firstPosition = static_cast<int64_t>(100 + 10 * s),
               .blocks = blocks,
               .sample = true,
               .requestSlot = static_cast<int32_t>(s)};
  uint64_t launched = 0;
  const int64_t start = device->nowNs();
  const auto launch = [&](bool whole) {
    kernels::IterationMeta *meta = device->meta();
    if (whole && !core::writeMeta(plan.metaLayout, plan.blockTokens, rows, meta).ok())
      std::exit(1);
    int32_t *contexts = meta->array<int32_t>(meta->contextLength);
    contexts[0] = 1 + static_cast<int32_t>(launched % 1000);
    if (!device->launch(*graph).ok())
      std::exit(1);
    ++launched;
  };
  launch(true);
  launch(true);
  for (auto _ : state) {
    if (!device->awaitTokens(launched - 1).ok())
      std::exit(1);
    launch(false);
  }
  if (!device->drain().ok())
    std::exit(1);
  state.counters["steps"] = static_cast<double>(plan.schedules[plan.variants[variant].schedule].steps.size());
  state.counters["virtual_ms"] = static_cast<double>(device->nowNs() - start) * 1e-6 / static_cast<double>(launched);
}

void byBucket(benchmark::State &state) { iteration(state, core::Pricing::Bucket, false); }
void byRows(benchmark::State &state) { iteration(state, core::Pricing::Rows, false); }
void byRowsOffloaded(benchmark::State &state) { iteration(state, core::Pricing::Rows, true); }

BENCHMARK(byBucket)->Name("iteration/bucket")->Arg(1)->Arg(16)->Arg(64);
BENCHMARK(byRows)->Name("iteration/rows")->Arg(1)->Arg(16)->Arg(64);
BENCHMARK(byRowsOffloaded)->Name("iteration/rows/offloaded")->Arg(1)->Arg(16)->Arg(64);

} // namespace
} // namespace headrace
