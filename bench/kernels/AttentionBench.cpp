// SPDX-License-Identifier: Apache-2.0
//
// Attention with heads of 128. BM_AttentionDecode: share of the read bandwidth over the cache it reads; the blocks lie
// in a shuffled order. BM_AttentionPrefill: share of the sgemm peak, counting 4 flops a query, visible token and
// dimension. BM_AttentionPacked: decode over a BF16 cache, one of 8 bits and one of 4 in turns, each with heads of 128
// and a context of 4,096: how many times as fast as BF16, the least times of all rounds.
#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <numeric>
#include <random>

#include "bench/kernels/Bounds.h"
#include "kernels/Kernels.h"

namespace headrace::bench {
namespace {

using kernels::Elem;

constexpr int64_t kHeadDim = 128, kBlockTokens = 16, kKvGroup = 64;

struct Call {
  std::vector<uint64_t> metaMemory;
  Buffer kv, qkv, out, workspace;
  kernels::AttentionArgs args{};
  uint64_t cacheBytes;

  // `sequences` of `context` tokens, of which the last `rows` are new; codeBits: of a packed cache, 0: elements.
  Call(int64_t sequences, int64_t context, int64_t rows, int64_t heads, int64_t kvHeads, Elem elem, int codeBits = 0)
      : kv((sequences * blocksOf(context) + 1) * blockBytes(kvHeads, elem, codeBits)),
        qkv(sequences * rows * (heads + 2 * kvHeads) * kHeadDim * 4), out(sequences * rows * heads * kHeadDim * 4),
        workspace(kernels::attentionWorkspaceBytes(kernels::Backend::Host, sequences, heads, kHeadDim, context)),
        cacheBytes(sequences * blocksOf(context) * blockBytes(kvHeads, elem, codeBits)) {
    if (codeBits > 0)
      fillPacked(sequences * blocksOf(context) + 1, kvHeads, codeBits);
    else if (elem == Elem::F32)
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
    args.segments = kernels::oneRun(sequences * blocks + 1,
                                    kernels::kvBlockUnits(packing(codeBits), kvHeads, kBlockTokens, kHeadDim));
    args.kvPacking = packing(codeBits);
    args.workspace = workspace.as<void>(), args.heads = heads, args.kvHeads = kvHeads, args.headDim = kHeadDim;
    args.blockTokens = kBlockTokens, args.maxContext = context, args.scale = 0.0883883f, args.kvElem = elem;
  }
  // Any codes, each group from -0.5 in steps of a 16th of what there are codes for.
  void fillPacked(int64_t blocks, int64_t kvHeads, int codeBits) {
    std::mt19937 random(2);
    std::generate_n(kv.as<uint32_t>(), kv.bytes() / 4, [&] { return static_cast<uint32_t>(random()); });
    const kernels::PackedKvBlock block(packing(codeBits), kvHeads, kBlockTokens, kHeadDim);
    const uint16_t header[2] = {static_cast<uint16_t>(codeBits == 4 ? 0x2c00 : 0x1c00), 0xb800}; // 2^-4, 2^-8; -0.5
    for (int64_t b = 0; b < blocks; ++b)
      for (int64_t row = 0; row < 2 * kvHeads * kBlockTokens; ++row)
        for (int64_t g = 0; g < kHeadDim / kKvGroup; ++g)
          std::memcpy(kv.as<uint8_t>() + b * block.bytes() + block.scales(row) + g * kernels::kPackedKvHeader, header,
                      sizeof header);
  }
  void run() const { kernels::hostKernel(kernels::Op::Attention)(&args); }
  static int64_t blocksOf(int64_t context) { return (context + kBlockTokens - 1) / kBlockTokens; }
  static kernels::Packing packing(int codeBits) { return {static_cast<uint8_t>(codeBits), kKvGroup}; }
  static int64_t blockBytes(int64_t kvHeads, Elem elem, int codeBits) {
    if (codeBits > 0)
      return kernels::PackedKvBlock(packing(codeBits), kvHeads, kBlockTokens, kHeadDim).bytes();
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

void BM_AttentionPacked(benchmark::State &state) {
  const int64_t group = state.range(0), rows = state.range(1), kvHeads = 8;
  constexpr std::array kBits = {0, 8, 4};
  std::array<std::unique_ptr<Call>, 3> calls;
  for (size_t i = 0; i < kBits.size(); ++i)
    calls[i] = std::make_unique<Call>(rows == 1 ? 8 : 1, 4096, rows, group * kvHeads, kvHeads, Elem::BF16, kBits[i]);
  std::array<double, 3> least;
  least.fill(std::numeric_limits<double>::infinity());
  for (const auto &call : calls)
    call->run();
  for (auto _ : state) {
    double all = 0;
    for (size_t i = 0; i < calls.size(); ++i) {
      const double time = timeOf([&] { calls[i]->run(); });
      least[i] = std::min(least[i], time);
      all += time;
    }
    state.SetIterationTime(all);
  }
  state.counters["bf16_ms"] = least[0] * 1e3;
  state.counters["q8_x"] = least[0] / least[1];
  state.counters["q4_x"] = least[0] / least[2];
}
BENCHMARK(BM_AttentionPacked)
    ->ArgNames({"group", "rows"})
    ->ArgsProduct({{1, 4, 8}, {1}})
    ->Args({4, 128})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->Iterations(15);

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
