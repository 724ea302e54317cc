// SPDX-License-Identifier: Apache-2.0
//
// Attention with heads of 128. BM_AttentionDecode: share of the read bandwidth over the cache it reads; the blocks lie
// in a shuffled order. BM_AttentionPrefill: share of the sgemm peak, counting 4 flops a query, visible token and
// dimension.
#include <numeric>
#include <random>

#include "bench/kernels/Bounds.h"
#include "kernels/Kernels.h"

namespace headrace::bench {
namespace {

using kernels::Elem;

constexpr int64_t kHeadDim = 128, kBlockTokens = 16;

struct Call {
  std::vector<uint64_t> metaMemory;
  Buffer kv, qkv, out, workspace;
  kernels::AttentionArgs args{};
  uint64_t cacheBytes;

  // `sequences` of `context` tokens, of which the last `rows` are new.
  Call(int64_t sequences, int64_t context, int64_t rows, int64_t heads, int64_t kvHeads, Elem elem)
      : kv((sequences * blocksOf(context) + 1) * blockBytes(kvHeads, elem)),
        qkv(sequences * rows * (heads + 2 * kvHeads) * kHeadDim * 4), out(sequences * rows * heads * kHeadDim * 4),
        workspace(kernels::attentionWorkspaceBytes(kernels::Backend::Host, sequences, heads, kHeadDim, context)),
        cacheBytes(sequences * blocksOf(context) * blockBytes(kvHeads, elem)) {
    if (elem == Elem::F32)
      fillFloats(kv.as<float>(), kv.bytes() / 4);
    else
      fillHalves(kv.as<uint16_t>(), kv.bytes() / 2, elem == Elem::BF16);
    fillFloats(qkv.as<float>(), qkv.bytes() / 4);
    const int64_t blocks = blocksOf(context);
    const kernels::MetaLayout layout{sequences * rows, sequences, blocks};
    metaMemory.resize(kernels::metaBytes(layout) / 8);
    auto *m = reinterpret_cast<kernels::IterationMeta *>(metaMemory.data());
    kernels::initMeta(layout, m);
    m->numSequences = static_cast<int32_t>(sequences);
    m->numTokens = static_cast<int32_t>(sequences * rows);
    std::vector<int32_t> order(sequences * blocks);
    std::iota(order.begin(), order.end(), 1);
    std::shuffle(order.begin(), order.end(), std::mt19937(1));
    std::copy(order.begin(), order.end(), m->array<int32_t>(m->blockTable));
    for (int64_t s = 0; s <= sequences; ++s)
      m->array<int32_t>(m->queryStart)[s] = static_cast<int32_t>(s * rows);
    for (int64_t t = 0; t < sequences * rows; ++t)
      m->array<int32_t>(m->positions)[t] = static_cast<int32_t>(context - rows + t % rows);
    args.meta = m, args.qkv = qkv.as<float>(), args.kv = kv.as<void>(), args.out = out.as<float>();
    args.segments = kernels::oneRun(sequences * blocks + 1, kernels::kvBlockElements(kvHeads, kBlockTokens, kHeadDim));
    args.workspace = workspace.as<void>(), args.heads = heads, args.kvHeads = kvHeads, args.headDim = kHeadDim;
    args.blockTokens = kBlockTokens, args.maxContext = context, args.scale = 0.0883883f, args.kvElem = elem;
  }
  void run() const { kernels::hostKernel(kernels::Op::Attention)(&args); }
  static int64_t blocksOf(int64_t context) { return (context + kBlockTokens - 1) / kBlockTokens; }
  static int64_t blockBytes(int64_t kvHeads, Elem elem) {
    return 2 * kvHeads * kBlockTokens * kHeadDim * (elem == Elem::F32 ? 4 : 2);
  }
};

void BM_AttentionDecode(benchmark::State &state) {
  const Elem elem = static_cast<Elem>(state.range(0));
  const int64_t group = state.range(1), kvHeads = 8;
  const Call call(8, elem == Elem::F32 ? 2048 : 4096, 1, group * kvHeads, kvHeads, elem);
  inTurns(
      state, [&] { readMemory(call.kv.as<void>(), call.cacheBytes); }, [&] { call.run(); });
  state.counters["read_GB/s"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * static_cast<double>(call.cacheBytes) / 1e9,
                         benchmark::Counter::kIsRate);
}
BENCHMARK(BM_AttentionDecode)
    ->ArgNames({"elem", "group"})
    ->ArgsProduct({{0, 1, 2}, {1, 4, 8}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->MinTime(0.3);

void BM_AttentionPrefill(benchmark::State &state) {
  const int64_t tokens = state.range(0), group = state.range(1), kvHeads = 4;
  const Call call(1, tokens, tokens, group * kvHeads, kvHeads, Elem::BF16);
  const double flops =
      4.0 * static_cast<double>(group * kvHeads * kHeadDim) * 0.5 * static_cast<double>(tokens * (tokens + 1));
  static const double peak = sgemmPeakFlops();
  double total = 0;
  for (auto _ : state) {
    const double time = timeOf([&] { call.run(); });
    state.SetIterationTime(time);
    total += time;
  }
  const double rate = flops * static_cast<double>(state.iterations()) / total;
  state.counters["GFLOP/s"] = rate / 1e9;
  state.counters["share"] = rate / peak;
}
BENCHMARK(BM_AttentionPrefill)
    ->ArgNames({"tokens", "group"})
    ->ArgsProduct({{128, 512, 2048}, {1, 4}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->MinTime(0.3);

} // namespace
} // namespace headrace::bench
