// SPDX-License-Identifier: Apache-2.0
//
// The ops that are small beside Linear and Attention, at LLaMA-7B's sizes; their share of an iteration shows here.
#include <cstring>

#include "bench/kernels/Bounds.h"
#include "kernels/Kernels.h"

namespace headrace::bench {
namespace {

using namespace kernels;

constexpr int64_t kRows = 64, kHidden = 4096, kIntermediate = 11008, kVocab = 128256;

void BM_Norm(benchmark::State &state) {
  const int32_t count = kRows;
  Buffer x(kRows * kHidden * 4), y(kRows * kHidden * 4), weight(kHidden * 4);
  fillFloats(x.as<float>(), kRows * kHidden);
  fillFloats(weight.as<float>(), kHidden);
  NormArgs args{
      &count,  x.as<float>(), weight.as<float>(), state.range(0) ? weight.as<float>() : nullptr, y.as<float>(),
      kHidden, 1e-5f,         Elem::F32};
  for (auto _ : state)
    hostKernel(Op::Norm)(&args);
  state.SetItemsProcessed(state.iterations() * kRows * kHidden);
}
BENCHMARK(BM_Norm)->ArgName("layer_norm")->Arg(0)->Arg(1)->Unit(benchmark::kMicrosecond);

void BM_Activate(benchmark::State &state) {
  const int32_t count = kRows;
  Buffer gateUp(kRows * 2 * kIntermediate * 4), y(kRows * kIntermediate * 4);
  fillFloats(gateUp.as<float>(), kRows * 2 * kIntermediate);
  ActivateArgs args{&count, gateUp.as<float>(), y.as<float>(), kIntermediate, Elem::F32};
  for (auto _ : state)
    hostKernel(Op::Activate)(&args);
  state.SetItemsProcessed(state.iterations() * kRows * kIntermediate);
}
BENCHMARK(BM_Activate)->Unit(benchmark::kMicrosecond);

void BM_RopeAppend(benchmark::State &state) {
  constexpr int64_t kHeads = 32, kHeadDim = 128, kBlock = 16;
  Buffer qkv(kRows * 3 * kHeads * kHeadDim * 4), kv((kRows / kBlock + 1) * 2 * kHeads * kBlock * kHeadDim * 2),
      frequencies(kHeadDim * 2);
  std::vector<uint64_t> memory(metaBytes({kRows, 1, 8}) / 8);
  auto *meta = reinterpret_cast<IterationMeta *>(memory.data());
  initMeta({kRows, 1, 8}, meta);
  meta->numTokens = kRows;
  for (int32_t t = 0; t < kRows; ++t) {
    meta->array<int32_t>(meta->positions)[t] = 1000 + t;
    meta->array<int32_t>(meta->kvSlot)[t] = kBlock + t;
  }
  fillFloats(frequencies.as<float>(), kHeadDim / 2);
  fillFloats(qkv.as<float>(), kRows * 3 * kHeads * kHeadDim);
  const RopeAppendArgs args{.meta = meta,
                            .qkv = qkv.as<float>(),
                            .inverseFrequencies = frequencies.as<float>(),
                            .kv = kv.as<void>(),
                            .segments = oneRun(kRows / kBlock + 1, kvBlockElements(kHeads, kBlock, kHeadDim)),
                            .heads = kHeads,
                            .kvHeads = kHeads,
                            .headDim = kHeadDim,
                            .blockTokens = kBlock,
                            .kvElem = Elem::BF16,
                            .activation = Elem::F32};
  for (auto _ : state)
    hostKernel(Op::RopeAppend)(&args);
  state.SetItemsProcessed(state.iterations() * kRows);
}
BENCHMARK(BM_RopeAppend)->Unit(benchmark::kMicrosecond);

constexpr int64_t kHistory = 4096; // tokens before the sampled one

void BM_Sample(benchmark::State &state) {
  std::vector<uint64_t> memory(metaBytes({1, 1, 1}) / 8);
  auto *meta = reinterpret_cast<IterationMeta *>(memory.data());
  initMeta({1, 1, 1}, meta);
  meta->numSampled = 1;
  meta->array<float>(meta->temperature)[0] = state.range(0) == 0 ? 0.0f : 0.8f;
  meta->array<float>(meta->topP)[0] = state.range(0) == 2 || state.range(0) == 5 ? 0.95f : 1.0f;
  meta->array<int32_t>(meta->topK)[0] = state.range(0) == 3 || state.range(0) == 5 ? 40 : 0;
  meta->array<float>(meta->minP)[0] = state.range(0) == 5 ? 0.05f : 0.0f;
  meta->array<float>(meta->repetition)[0] = state.range(0) >= 4 ? 1.1f : 1.0f;
  meta->array<int32_t>(meta->samplePosition)[0] = kHistory;
  Buffer logits(kVocab * 4), workspace(sampleWorkspaceBytes(Backend::Host, 1, kVocab));
  fillFloats(logits.as<float>(), kVocab);
  int32_t sampled = 0, output = 0;
  std::vector<int32_t> history(kHistory + 1);
  for (int64_t i = 0; i < kHistory; ++i)
    history[static_cast<size_t>(i)] = static_cast<int32_t>(i * 37 % kVocab);
  const SampleArgs args{.meta = meta,
                        .logits = logits.as<float>(),
                        .history = history.data(),
                        .sampled = &sampled,
                        .output = &output,
                        .workspace = workspace.as<void>(),
                        .vocab = kVocab,
                        .blockTokens = kHistory};
  for (auto _ : state)
    hostKernel(Op::Sample)(&args);
  static const char *const kLabels[] = {"greedy",
                                        "temperature",
                                        "temperature and top-p",
                                        "temperature and top-k",
                                        "penalties and temperature",
                                        "penalties, temperature, min-p, top-k and top-p"};
  state.SetLabel(kLabels[state.range(0)]);
}
BENCHMARK(BM_Sample)->ArgName("kind")->DenseRange(0, 5)->Unit(benchmark::kMicrosecond);

} // namespace
} // namespace headrace::bench
