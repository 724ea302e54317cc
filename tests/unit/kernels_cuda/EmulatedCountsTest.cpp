// SPDX-License-Identifier: Apache-2.0
//
// How much of a launch works, and what it reads: counted by the emulator.
#include "tests/unit/kernels_cuda/Emulator.h"

#include "tests/unit/kernels_cuda/PagedText.h"

namespace headrace::kernels {
namespace {

// A row of qkv of BF16, appended to a cache of one block.
emulator::Counts ropeAppendCounts(int64_t heads, int64_t kvHeads, int64_t headDim, bool rotated, bool normed) {
  const int64_t blockTokens = 4, elements = kvBlockElements(kvHeads, blockTokens, headDim);
  TestMeta hostMeta({{2, 1, {0}}}, blockTokens);
  DeviceMeta meta(hostMeta);
  DeviceStored qkv(Elem::BF16, randomFloats((heads + 2 * kvHeads) * headDim, 7)), kv(Elem::BF16, elements, 99.0f);
  DeviceArray<float> frequencies(Floats(headDim / 2, 0.25f)), weights(Floats(2 * headDim, 1.5f));
  RopeAppendArgs args{};
  args.meta = meta.get(), args.qkv = qkv.data(), args.kv = kv.data(), args.segments = oneRun(1, elements);
  args.inverseFrequencies = rotated ? frequencies.get() : nullptr;
  args.headNorms = normed ? weights.get() : nullptr, args.eps = 1e-5f;
  args.heads = heads, args.kvHeads = kvHeads, args.headDim = headDim, args.blockTokens = blockTokens;
  args.kvElem = args.activation = Elem::BF16;
  emulator::counts = {};
  runOp(Op::RopeAppend, args, {1, 1, 64});
  return emulator::counts;
}

TEST(EmulatedCounts, EveryThreadOfRopeAppendHasSixteenElements) {
  struct Case {
    const char *model;
    int64_t heads, kvHeads, headDim;
    bool rotated, normed;
    uint64_t threads, active; // sixteen elements a thread, blocks of whole warps
  };
  for (const Case &c : {Case{"llama-3.1-8b", 32, 8, 128, true, false, 384, 384}, // 48 vectors of 8 threads
                        {"tinyllama-1.1b", 32, 4, 64, true, false, 160, 160},    // 40 of 4
                        {"opt-6.7b", 32, 32, 128, false, false, 512, 512},       // 64 of k and v
                        {"qwen3-8b", 32, 8, 128, true, true, 384, 384},
                        {"head size 80", 32, 32, 80, true, false, 512, 480}, // 96 of 5, in two blocks
                        {"head size 96", 32, 2, 96, true, false, 224, 216}}) {
    SCOPED_TRACE(c.model);
    const emulator::Counts counts = ropeAppendCounts(c.heads, c.kvHeads, c.headDim, c.rotated, c.normed);
    EXPECT_EQ(counts.threads, c.threads);
    EXPECT_EQ(counts.active, c.active);
  }
}

// OPT has positions of its own: its q is neither rotated nor normalised, and k and v are a copy.
TEST(EmulatedCounts, RopeAppendReadsAndWritesWhatItChanges) {
  const uint64_t vector = 128 * 2;
  const emulator::Counts plain = ropeAppendCounts(32, 32, 128, false, false);
  EXPECT_EQ(plain.bytesLoaded, 64 * vector);
  EXPECT_EQ(plain.bytesStored, 64 * vector);
  const emulator::Counts rotated = ropeAppendCounts(32, 8, 128, true, false);
  EXPECT_EQ(rotated.bytesLoaded, 48 * vector);
  EXPECT_EQ(rotated.bytesStored, (40 + 16) * vector); // q and k in place, k and v to the cache
  const emulator::Counts normed = ropeAppendCounts(32, 8, 128, true, true);
  EXPECT_EQ(normed.bytesLoaded, (40 + 48) * vector); // the sums of squares first
}

// A prompt's 64 rows beside one that decodes at 4,096 tokens: what the longest block brings is a split's keys and
// values, not the context's, 4,096 x 2 x 256 bytes.
TEST(EmulatedCounts, NoBlockWalksTheContextOfARowThatDecodes) {
  const AttentionCase c{4, 1, 128, 16, Elem::BF16, Elem::BF16};
  const PagedText prompt(c, 64, 1), text(c, 4096, 2);
  emulator::counts = {};
  runAttention(c, {{&prompt, 0, 64}, {&text, 4095, 1}}, {128, 2, 4096});
  EXPECT_EQ(emulator::counts.mostCopied, 512u * 2 * 256);
}

// A decoding row's longest block over a packed cache: 512 tokens of k and v, 64 bytes of codes of 4 bits and two
// groups' words each, where elements of 16 bits are 262,144 bytes.
TEST(EmulatedCounts, PackedCachesAreBroughtPacked) {
  const int64_t headDim = 128, blockTokens = 16, context = 4096, blocks = context / blockTokens;
  const Packing packing{4, 64};
  const int64_t units = kvBlockUnits(packing, 1, blockTokens, headDim);
  std::vector<int32_t> table;
  for (int64_t b = 0; b < blocks; ++b)
    table.push_back(static_cast<int32_t>(b));
  TestMeta hostMeta({{context - 1, 1, table}}, blockTokens, blocks);
  DeviceMeta meta(hostMeta);
  DeviceStored qkv(Elem::BF16, randomFloats(6 * headDim, 7)), out(Elem::BF16, 4 * headDim, 0.0f);
  DeviceArray<uint8_t> cache(static_cast<size_t>(blocks * units), uint8_t{0}),
      workspace(attentionWorkspaceBytes(Backend::Cuda, 1, 4, headDim, context), uint8_t{0});
  AttentionArgs args{};
  args.meta = meta.get(), args.qkv = qkv.data(), args.kv = cache.get(), args.segments = oneRun(blocks, units);
  args.out = out.data(), args.workspace = workspace.get(), args.arrivals = oneArrivals().get();
  args.heads = 4, args.kvHeads = 1, args.headDim = headDim, args.blockTokens = blockTokens, args.maxContext = context;
  args.scale = 0.1f, args.activation = Elem::BF16, args.kvPacking = packing;
  emulator::counts = {};
  runOp(Op::Attention, args, {1, 1, context});
  EXPECT_EQ(emulator::counts.mostCopied, 512u * 2 * (64 + 2 * 4));
}

// 64 columns of y from 512 of x: four blocks, whose eight warps have 64 columns each. Of W a group's 32 bytes of codes
// come once and its word to the four lanes that share it, x once a block.
TEST(EmulatedCounts, APackedProductReadsCodesOnce) {
  const int64_t n = 64, k = 512;
  const Packing packing{4, 64};
  const PackedMatrix matrix(n, k, packing, 4, Order::RowMajor);
  DeviceArray<uint8_t> w(matrix.bytes);
  for (const int64_t rows : {1, 8}) {
    DeviceStored x(Elem::BF16, randomFloats(static_cast<size_t>(rows * k), 1)),
        y(Elem::F32, static_cast<size_t>(rows * n), 0.0f);
    DeviceArray<int32_t> count(1, static_cast<int32_t>(rows));
    LinearArgs args{};
    args.count = count.get(), args.x = x.data(), args.w = w.get(), args.y = y.data(), args.n = n, args.k = k;
    args.capacity = 8, args.order = Order::RowMajor, args.activation = Elem::BF16, args.packing = packing;
    args.result = args.biasElem = Elem::F32;
    emulator::counts = {};
    runKernel(cudaLaunch(args), args);
    EXPECT_EQ(emulator::counts.bytesLoaded, static_cast<uint64_t>(n * k / 64 * (32 + 4 * 4) + rows * k * 2 * 4));
    EXPECT_EQ(emulator::counts.bytesStored, static_cast<uint64_t>(rows * n * 4));
    EXPECT_EQ(emulator::counts.threads, 4u * 256);
    EXPECT_EQ(emulator::counts.active, 4u * 256);
  }
}

} // namespace
} // namespace headrace::kernels
