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

} // namespace
} // namespace headrace::kernels
