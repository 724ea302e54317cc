// SPDX-License-Identifier: Apache-2.0
//
// rebuild_kv: keys and values of whole activation blocks, at 2048 inputs and 16 heads of 128 (4096 outputs), F32
// activations, a learned position's model. `share`: of the linear of the same rows, inputs and outputs.
#include <numeric>

#include "bench/kernels/Bounds.h"
#include "kernels/Kernels.h"

namespace headrace::bench {
namespace {

constexpr int64_t kWidth = 2048, kKvHeads = 16, kHead = 128, kMade = 2 * kKvHeads * kHead, kTokens = 16;

void BM_RebuildKv(benchmark::State &state) {
  using namespace kernels;
  const auto elem = static_cast<Elem>(state.range(0));
  const int64_t rows = state.range(1), blocks = rows / kTokens;
  const Buffer weights(kMade * kWidth * (elem == Elem::F32 ? 4 : 2));
  if (elem == Elem::F32)
    fillFloats(weights.as<float>(), kMade * kWidth);
  else
    fillHalves(weights.as<uint16_t>(), kMade * kWidth, elem == Elem::BF16);
  const Buffer act(rows * kWidth * 4), made(rows * kMade * 4), kv(rows * kMade * 4);
  fillFloats(act.as<float>(), rows * kWidth);

  const Buffer linearSpace(linearWorkspaceBytes(Backend::Host, rows, kMade, kWidth) + 1);
  const auto count = static_cast<int32_t>(rows);
  LinearArgs linear{};
  linear.count = &count, linear.x = act.as<float>(), linear.w = weights.as<void>(), linear.y = made.as<float>();
  linear.workspace = linearSpace.as<void>(), linear.n = kMade, linear.k = kWidth, linear.capacity = rows;
  linear.elem = elem, linear.order = kHostOrder;

  const MetaLayout layout{.maxTokens = 1, .maxSequences = 1, .maxBlocksPerSequence = 1, .maxActBlocks = blocks};
  std::vector<uint64_t> memory(metaBytes(layout) / 8);
  auto *meta = reinterpret_cast<IterationMeta *>(memory.data());
  initMeta(layout, meta);
  meta->numActBlocks = static_cast<int32_t>(blocks);
  meta->numActRows = count;
  for (int32_t b = 0; b < blocks; ++b) {
    meta->array<int32_t>(meta->actBlock)[b] = b;
    meta->array<int32_t>(meta->actPosition)[b] = b * static_cast<int32_t>(kTokens);
    meta->array<int32_t>(meta->actTokens)[b] = static_cast<int32_t>(kTokens);
  }
  RebuildKvArgs args{};
  args.meta = meta, args.act = act.as<void>(), args.w = weights.as<void>(), args.kv = kv.as<void>();
  args.hidden = kWidth, args.kvHeads = kKvHeads, args.headDim = kHead, args.blockTokens = kTokens;
  args.capacity = rows, args.eps = 1e-5f, args.elem = elem, args.order = kHostOrder, args.kvElem = Elem::F32;
  const Buffer space(static_cast<int64_t>(rebuildWorkspaceBytes(Backend::Host, rows, args.n(), kWidth, 4)) + 1);
  args.workspace = space.as<void>();
  inTurns(
      state, [&] { hostKernel(Op::Linear)(&linear); }, [&] { hostKernel(Op::RebuildKv)(&args); });
  state.SetLabel(elem == Elem::F32 ? "F32" : "BF16");
}
BENCHMARK(BM_RebuildKv)
    ->ArgNames({"elem", "rows"})
    ->ArgsProduct({{0, 2}, {192, 1920}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->MinTime(2);

} // namespace
} // namespace headrace::bench
