// SPDX-License-Identifier: Apache-2.0
//
// What an iteration takes of the host in Runtime and CudaDevice alone: no engine, and a stand-in of CUDA's runtime that
// returns at once. 32 layers, 256 sequences that decode, 128 blocks a sequence; widths do not matter here. Bound: 10 us
// at p50 (`p50_us`), with p99 beside; `fill_us` of them is the iteration's data.
//
//   resident   nothing is away
//   weights    every fourth layer's weights are brought, sizes fixed
//   kv         tails of KV are brought, and their sizes change with every iteration
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "compiler/Compile.h"
#include "runtime/core/MetaWriter.h"
#include "runtime/core/Runtime.h"
#include "runtime/cuda/CudaDevice.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightSource.h"
#include "tests/support/SourceDir.h"
#include "tests/unit/cuda/stand_in/StandIn.h"

namespace headrace {
namespace {

constexpr int64_t kSequences = 256, kContext = 2048, kTokens = 65536; // the latter: of all KV

template <typename T> T must(absl::StatusOr<T> made) {
  if (!made.ok()) {
    std::fprintf(stderr, "bench_launch: %s\n", std::string(made.status().message()).c_str());
    std::exit(1);
  }
  return *std::move(made);
}
void must(const absl::Status &status) {
  if (!status.ok())
    (void)must(absl::StatusOr<int>(status));
}

int64_t nowNs() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

enum class Away { Nothing, Weights, Kv };

plan::Plan planWith(Away away) {
  compiler::CompileRequest request;
  request.model = must(model::openModel(sourceDir() + "/examples/models/opt-6.7b.toml")).spec;
  request.model->hidden = 64;
  request.model->heads = request.model->kvHeads = 1;
  request.model->headDim = 64;
  request.model->intermediate = 64;
  request.model->vocab = 512;
  request.hardware = must(model::openHardware(sourceDir() + "/examples/hardware/h200.toml"));
  request.goal.batch = kSequences;
  request.goal.context = kContext;
  request.goal.kvTokens = kTokens;
  request.buckets = {.newTokens = {kSequences}, .sequences = {kSequences}, .contexts = {kContext}};
  if (away == Away::Weights)
    request.policy.interval = 4;
  if (away == Away::Kv) // 2,048 of 4,097 blocks of 4 KiB of each layer stay, two slots hold the others of one
    request.goal.kvDeviceMemory = uint64_t{32 * 2048 + 2 * 2049} << 12;
  return must(compiler::compile(request));
}

void iterations(benchmark::State &state, Away away) {
  ::setenv("HEADRACE_CUDA_LIBRARIES", HEADRACE_STAND_IN_LIBRARIES, 1);
  const plan::Plan plan = planWith(away);
  const auto device = must(cuda::makeCudaDevice({}));
  const auto weights = model::syntheticWeights(1);
  const auto runtime = must(core::Runtime::load(plan, *device, {}, weights.get(), {}));
  stand_in::setInstant(true);
  const std::vector<int32_t> token{-1};
  const int64_t each = kContext / plan.blockTokens;
  std::vector<int32_t> blocks(static_cast<size_t>(kSequences * each));
  for (size_t i = 0; i < blocks.size(); ++i)
    blocks[i] = static_cast<int32_t>(std::min<int64_t>(static_cast<int64_t>(i) + 1, plan.kvBlocks - 1));
  core::KvBlocks &pool = runtime->kvBlocks();
  const int64_t few = kTokens / 2, many = few + kTokens / 8; // tokens in use, by turns
  std::vector<int32_t> taken;
  must(pool.grow(taken, many));
  std::vector<core::SequenceRows> rows;
  for (int64_t s = 0; s < kSequences; ++s)
    rows.push_back(
        {.tokens = token,
         .firstPosition = kContext / 2,
         .blocks = absl::MakeConstSpan(blocks).subspan(static_cast<size_t>(s * each), static_cast<size_t>(each)),
         .sample = true,
         .requestSlot = static_cast<int32_t>(s)});
  const uint64_t before = device->counters().sizesSet;
  std::vector<int64_t> all, fills;
  all.reserve(1 << 22);
  fills.reserve(1 << 22);
  for (auto _ : state) {
    if (all.size() % 2 == 0)
      pool.shrink(taken, few);
    else
      must(pool.grow(taken, many));
    const int64_t start = nowNs();
    must(core::writeMeta(plan.metaLayout, plan.blockTokens, rows, device->meta()));
    const int64_t filled = nowNs();
    must(runtime->launch(must(runtime->choose(kSequences, kSequences, kContext / 2 + 1))));
    (void)must(runtime->awaitTokens());
    all.push_back(nowNs() - start);
    fills.push_back(filled - start);
  }
  stand_in::setInstant(false);
  const auto at = [](std::vector<int64_t> &ns, size_t percent) {
    const size_t index = ns.size() * percent / 100;
    std::nth_element(ns.begin(), ns.begin() + static_cast<std::ptrdiff_t>(index), ns.end());
    return static_cast<double>(ns[index]) * 1e-3;
  };
  state.counters["p50_us"] = at(all, 50);
  state.counters["p99_us"] = at(all, 99);
  state.counters["fill_us"] = at(fills, 50);
  state.counters["sizes"] = static_cast<double>(device->counters().sizesSet - before) / static_cast<double>(all.size());
  state.counters["nodes"] = static_cast<double>(must(cuda::graphCosts(*device)).nodes);
}

BENCHMARK_CAPTURE(iterations, resident, Away::Nothing)->Name("launch/resident");
BENCHMARK_CAPTURE(iterations, weights, Away::Weights)->Name("launch/weights");
BENCHMARK_CAPTURE(iterations, kv, Away::Kv)->Name("launch/kv");

} // namespace
} // namespace headrace
