// SPDX-License-Identifier: Apache-2.0
//
// What choosing a variant costs the host at every iteration, in a plan of 32 placements by 60 buckets (20 us).
//
//   ChooseIn        one iteration's choice, its size and placement different every time
//   Switch          what taking the other of two placements costs: choice, transition and launch in virtual time
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>

#include "compiler/Compile.h"
#include "runtime/core/MetaWriter.h"
#include "runtime/core/Runtime.h"
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

struct Loaded {
  Loaded() {
    compiler::CompileRequest request;
    request.model = must(model::openModel("opt-6.7b")).spec;
    request.modelHash = "0";
    request.hardware = must(model::openHardware("a10"));
    request.goal.batch = 128;
    request.goal.context = 64;
    request.goal.sloFactor = 2;
    request.policy.name = "headrace";
    request.policy.placements = 32;
    plan = must(compiler::compile(request));
    device = sim::makeSimDevice();
    runtime = must(core::Runtime::load(plan, *device, {}, nullptr, {}));
  }
  plan::Plan plan;
  std::unique_ptr<core::Device> device;
  std::unique_ptr<core::Runtime> runtime;
};
Loaded &loaded() {
  static Loaded one;
  return one;
}

void ChooseIn(benchmark::State &state) {
  Loaded &l = loaded();
  const auto placements = static_cast<uint32_t>(l.plan.placements.size());
  uint32_t i = 0;
  for (auto _ : state) {
    const int64_t sequences = 1 + i % 128;
    benchmark::DoNotOptimize(l.runtime->chooseIn(i % placements, sequences, sequences, 1 + i % 64));
    ++i;
  }
  state.counters["placements"] = placements;
  state.counters["variants"] = static_cast<double>(l.plan.variants.size());
}
BENCHMARK(ChooseIn);

void Switch(benchmark::State &state) {
  Loaded &l = loaded();
  const int32_t token = 1;
  const std::vector<int32_t> blocks{1};
  std::vector<core::SequenceRows> rows(1);
  rows[0].tokens = absl::MakeConstSpan(&token, 1);
  rows[0].blocks = blocks;
  rows[0].sample = true;
  uint32_t i = 0;
  for (auto _ : state) {
    const uint32_t variant = must(l.runtime->chooseIn(i++ % 2, 1, 1, 1));
    if (!core::writeMeta(l.plan.metaLayout, l.plan.blockTokens, rows, l.device->meta()).ok() ||
        !l.runtime->launch(variant).ok() || !l.runtime->awaitTokens().ok())
      std::exit(1);
  }
}
BENCHMARK(Switch);

} // namespace
} // namespace headrace
