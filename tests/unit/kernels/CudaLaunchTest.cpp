// SPDX-License-Identifier: Apache-2.0
//
// Which CUDA kernel an op takes, and its grid, block and shared memory.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/AttentionTiles.h"
#include "kernels/CudaKernels.h"
#include "kernels/CudaWorkspace.h"

namespace headrace::kernels {
namespace {

std::vector<uint32_t> gridOf(const CudaLaunch &launch) { return {launch.grid, launch.grid + 3}; }
using Grid = std::vector<uint32_t>;

AttentionArgs attentionArgs(int64_t heads, int64_t kvHeads, int64_t headDim, Elem elem) {
  AttentionArgs args{};
  args.heads = heads, args.kvHeads = kvHeads, args.headDim = headDim, args.blockTokens = 16, args.maxContext = 4096;
  args.activation = args.kvElem = elem;
  return args;
}

TEST(CudaLaunch, DecodeHasABlockForEverySplitKeyHeadAndRow) {
  // Context 4096: 8 splits of 512.
  const AttentionArgs args = attentionArgs(32, 8, 128, Elem::BF16);
  const CudaLaunch launch = cudaLaunch(Op::Attention, &args, {16, 16, 4096}, nullptr);
  EXPECT_STREQ(launch.kernel, "attention_decode_bf16_128");
  EXPECT_EQ(gridOf(launch), (Grid{8, 8, 16}));
  EXPECT_EQ(launch.block[0], 128u);
  EXPECT_EQ(launch.sharedBytes, 4u * 2 * 32 * (128 * 2 + 16)); // warps x stages x rows of k and v x padded row
  // 40 query heads of one key head are three tiles of 16.
  const AttentionArgs wide = attentionArgs(40, 1, 64, Elem::F16);
  EXPECT_EQ(gridOf(cudaLaunch(Op::Attention, &wide, {2, 2, 100}, nullptr)), (Grid{8, 3, 2}));
  EXPECT_STREQ(cudaLaunch(Op::Attention, &wide, {2, 2, 100}, nullptr).kernel, "attention_decode_f16_64");
}

TEST(CudaLaunch, MixedIterationsHaveTilesOfQueries) {
  // 256 tokens x 4 heads a group / 64 queries + 8 sequences = 24 tiles; too few for tiles of 128.
  const AttentionArgs args = attentionArgs(32, 8, 128, Elem::F16);
  const CudaLaunch small = cudaLaunch(Op::Attention, &args, {256, 8, 4096}, nullptr);
  EXPECT_STREQ(small.kernel, "attention_prefill_f16_128_m64");
  // Behind them 8 sequences x 8 splits of 4096 tokens, should each have one row: 64 blocks are three planes of 24.
  EXPECT_EQ(gridOf(small), (Grid{24, 8, 4}));
  EXPECT_EQ(small.sharedBytes, 4u * 2 * 32 * 272); // which need more than (64 + 2 x 64) x 272
  EXPECT_EQ(gridOf(cudaLaunch(Op::Attention, &args, {256, 8, 512}, nullptr)), (Grid{24, 8, 2})); // one split
  // 4096 x 4 / 128 + 8 = 136 tiles of 128.
  const CudaLaunch large = cudaLaunch(Op::Attention, &args, {4096, 8, 4096}, nullptr);
  EXPECT_STREQ(large.kernel, "attention_prefill_f16_128_m128");
  EXPECT_EQ(gridOf(large), (Grid{136, 8, 2}));
  EXPECT_EQ(large.sharedBytes, (128u + 2 * 64) * 272);
  const AttentionArgs odd = attentionArgs(32, 32, 80, Elem::BF16);
  EXPECT_STREQ(cudaLaunch(Op::Attention, &odd, {4096, 8, 4096}, nullptr).kernel, "attention_prefill_bf16_80_m64");
}

TEST(CudaLaunch, EverythingElseTakesThePlainAttention) {
  AttentionArgs args = attentionArgs(4, 2, 64, Elem::F32);
  for (const CudaShape &shape : {CudaShape{8, 8, 512}, CudaShape{20, 3, 512}}) {
    const CudaLaunch launch = cudaLaunch(Op::Attention, &args, shape, nullptr);
    EXPECT_STREQ(launch.kernel, "attention_any_f32_f32");
    EXPECT_EQ(gridOf(launch), (Grid{static_cast<uint32_t>(shape.tokens), 4, 1}));
  }
  args.activation = Elem::BF16, args.kvElem = Elem::F16;
  EXPECT_STREQ(cudaLaunch(Op::Attention, &args, {8, 8, 512}, nullptr).kernel, "attention_any_bf16_f16");
  args = attentionArgs(4, 2, 72, Elem::BF16);
  EXPECT_STREQ(cudaLaunch(Op::Attention, &args, {8, 8, 512}, nullptr).kernel, "attention_any_bf16_bf16");
}

TEST(CudaLaunch, MoreDecodingHeadsThanArrivalWordsGoThePrefillWay) {
  const AttentionArgs args = attentionArgs(128, 128, 64, Elem::F16);
  EXPECT_STREQ(cudaLaunch(Op::Attention, &args, {512, 512, 64}, nullptr).kernel, "attention_decode_f16_64");
  const CudaLaunch more = cudaLaunch(Op::Attention, &args, {513, 513, 64}, nullptr);
  EXPECT_STREQ(more.kernel, "attention_prefill_f16_64_m128");
  EXPECT_EQ(more.grid[2], 1u);
}

TEST(CudaLaunch, RefusalsSayWhatIsSupported) {
  auto why = [](Op op, const auto &args) {
    const char *reason = nullptr;
    EXPECT_EQ(cudaLaunch(op, &args, {8, 8, 512}, &reason).kernel, nullptr);
    return std::string(reason != nullptr ? reason : "");
  };
  EXPECT_EQ(why(Op::Attention, attentionArgs(4, 2, 257, Elem::F32)), "attention takes head sizes up to 256");
  EXPECT_EQ(why(Op::Attention, attentionArgs(4, 3, 64, Elem::F32)),
            "attention needs query heads in equal groups, one a key head");
  EXPECT_EQ(why(Op::Attention, attentionArgs(4, 0, 64, Elem::F32)),
            "attention needs query heads in equal groups, one a key head");
  AttentionArgs blockless = attentionArgs(4, 2, 64, Elem::F32);
  blockless.blockTokens = 0;
  EXPECT_EQ(why(Op::Attention, blockless), "attention needs KV blocks of one token at least");
  AttentionArgs far = attentionArgs(4, 2, 64, Elem::F16); // 2^36 elements are as many as 32 bits count in sixteens
  far.segments.end = int64_t{1} << 36;
  EXPECT_NE(cudaLaunch(Op::Attention, &far, {8, 8, 512}, nullptr).kernel, nullptr);
  const std::string kFar =
      "attention with tensor cores takes a KV cache whose first and last byte are at most 128 GiB apart";
  far.segments.end += 16;
  EXPECT_EQ(why(Op::Attention, far), kFar);
  EXPECT_EQ(cudaRefusal(Op::Attention, &far, kFar.c_str()), kFar + ": a layer's spans 137438953504 bytes");
  EXPECT_EQ(cudaRefusal(Op::Attention, &far, "as it is"), "as it is");
  far = attentionArgs(4, 2, 64, Elem::F16);
  far.segments.tail = 24;
  EXPECT_EQ(why(Op::Attention, far),
            "attention with tensor cores takes a KV cache of blocks at multiples of 16 elements");
  EXPECT_EQ(why(Op::Attention, attentionArgs(4, 2, 64, static_cast<Elem>(9))), "element types are F32, F16 and BF16");
  EXPECT_EQ(why(Op::Linear, LinearArgs{}), "linear is a library call");
  EXPECT_EQ(why(Op::Append, AppendArgs{}), "append is the CPU's");
  FetchRowsArgs fetch{};
  fetch.activation = static_cast<Elem>(9);
  EXPECT_EQ(why(Op::FetchRows, fetch), "element types are F32, F16 and BF16");
  EXPECT_EQ(why(static_cast<Op>(kOpCount), LinearArgs{}), "unknown op");
  SampleArgs sample{};
  sample.vocab = (1 << 18) + 1;
  EXPECT_EQ(why(Op::Sample, sample), "sample takes vocabularies of 1 to 262144 tokens");
  RopeAppendArgs rope{};
  rope.headDim = 12290, rope.heads = rope.kvHeads = 1;
  const std::string kHeadSizes = "rope_append and rotate take head sizes from 1 to 12288, with norms to 12287";
  EXPECT_EQ(why(Op::RopeAppend, rope), kHeadSizes);
  rope.headDim = 0;
  EXPECT_EQ(why(Op::RopeAppend, rope), kHeadSizes);
  const float weight = 1;
  rope.headDim = 12288, rope.headNorms = &weight;
  EXPECT_EQ(why(Op::RopeAppend, rope), kHeadSizes);
  rope.headNorms = nullptr;
  RotateArgs rotate{};
  rotate.headDim = 12290, rotate.heads = rotate.kvHeads = 1;
  EXPECT_EQ(why(Op::Rotate, rotate), kHeadSizes);
  BiasActivateArgs bias{};
  bias.result = static_cast<Elem>(9);
  EXPECT_EQ(cudaLaunch(bias).kernel, nullptr);
}

TEST(CudaLaunch, RowsAndElementsAreTakenInTurnBeyondAFullDevice) {
  NormArgs norm{};
  const KeepIdsArgs ids{};
  EXPECT_STREQ(cudaLaunch(Op::KeepIds, &ids, {64, 8, 512}, nullptr).kernel, "keep_ids");
  EXPECT_EQ(gridOf(cudaLaunch(Op::KeepIds, &ids, {64, 8, 512}, nullptr)), (Grid{1, 1, 1}));
  EXPECT_EQ(gridOf(cudaLaunch(Op::KeepIds, &ids, {257, 8, 512}, nullptr)), (Grid{2, 1, 1}));
  EXPECT_EQ(gridOf(cudaLaunch(Op::KeepIds, &ids, {int64_t{1} << 30, 8, 512}, nullptr)), (Grid{4096, 1, 1}));
  norm.hidden = 4096, norm.activation = Elem::BF16;
  EXPECT_STREQ(cudaLaunch(Op::Norm, &norm, {64, 8, 512}, nullptr).kernel, "norm_bf16");
  EXPECT_EQ(gridOf(cudaLaunch(Op::Norm, &norm, {64, 8, 512}, nullptr)), (Grid{64, 1, 1}));
  EXPECT_EQ(gridOf(cudaLaunch(Op::Norm, &norm, {100000, 8, 512}, nullptr)), (Grid{4096, 1, 1}));
  // A row's sum depends on the number of threads: on hidden, never on the bucket.
  EXPECT_EQ(cudaLaunch(Op::Norm, &norm, {1, 1, 512}, nullptr).block[0],
            cudaLaunch(Op::Norm, &norm, {4096, 8, 512}, nullptr).block[0]);
  ActivateArgs activate{};
  activate.intermediate = 11008, activate.activation = Elem::F16;
  // 16 x 11008 / (8 x 256) = 86 blocks.
  EXPECT_EQ(gridOf(cudaLaunch(Op::Activate, &activate, {16, 16, 512}, nullptr)), (Grid{86, 1, 1}));
  EXPECT_EQ(gridOf(cudaLaunch(Op::Activate, &activate, {100000, 16, 512}, nullptr)), (Grid{8192, 1, 1}));
  RopeAppendArgs rope{};
  rope.heads = 32, rope.kvHeads = 8, rope.headDim = 128, rope.activation = rope.kvElem = Elem::BF16;
  const float weights[256] = {};
  rope.inverseFrequencies = weights;
  const CudaLaunch launch = cudaLaunch(Op::RopeAppend, &rope, {16, 16, 512}, nullptr);
  EXPECT_STREQ(launch.kernel, "rope_append_bf16_bf16");
  EXPECT_EQ(gridOf(launch), (Grid{16, 2, 1})); // 48 heads of q, k and v, of 8 threads each: 384, 192 a block
  EXPECT_EQ(launch.block[0], 192u);
  EXPECT_EQ(launch.sharedBytes, 128u * 4); // 64 cosines and 64 sines
  rope.headNorms = weights;
  const CudaLaunch normed = cudaLaunch(Op::RopeAppend, &rope, {16, 16, 512}, nullptr);
  EXPECT_EQ(gridOf(normed), (Grid{16, 2, 1}));
  EXPECT_EQ(normed.sharedBytes, (128u + 24) * 4); // and a factor for each of a block's heads
  rope.headNorms = rope.inverseFrequencies = nullptr;
  EXPECT_EQ(gridOf(cudaLaunch(Op::RopeAppend, &rope, {100000, 8, 512}, nullptr)), (Grid{4096, 1, 1})); // k and v alone
  rope.heads = 1 << 20, rope.inverseFrequencies = weights;
  EXPECT_EQ(gridOf(cudaLaunch(Op::RopeAppend, &rope, {1, 1, 512}, nullptr)), (Grid{1, 32769, 1}));
  rope.kvHeads = 1 << 21;
  EXPECT_EQ(gridOf(cudaLaunch(Op::RopeAppend, &rope, {1, 1, 512}, nullptr)), (Grid{1, 65535, 1}));
}

TEST(CudaLaunch, SampleAndPublishHaveABlockASequenceAndOne) {
  SampleArgs sample{};
  sample.vocab = 128256;
  const CudaLaunch launch = cudaLaunch(Op::Sample, &sample, {64, 16, 512}, nullptr);
  EXPECT_STREQ(launch.kernel, "sample");
  EXPECT_EQ(gridOf(launch), (Grid{16, 1, 1}));
  EXPECT_EQ(launch.block[0], 1024u);
  PublishArgs publish{};
  publish.maxSequences = 33;
  EXPECT_EQ(cudaLaunch(publish).block[0], 64u);
  publish.maxSequences = 100000;
  EXPECT_EQ(cudaLaunch(publish).block[0], 256u);
  EXPECT_EQ(gridOf(cudaLaunch(publish)), (Grid{1, 1, 1}));
}

// 2^31 = 32768 x 65536.
TEST(CudaLaunch, ProductsOfTwoToTheThirtyOneElementsAreRefused) {
  EXPECT_EQ(productRefusal(8, 65536, 32767), "");
  EXPECT_EQ(productRefusal(8, 65536, 32768),
            "a product of m 8 n 65536 k 32768: its W [65536, 32768] has 2147483648 elements, expected fewer than 2^31");
  EXPECT_EQ(productRefusal(65536, 8, 32768),
            "a product of m 65536 n 8 k 32768: its x [65536, 32768] has 2147483648 elements, expected fewer than 2^31");
  EXPECT_EQ(productRefusal(65536, 32768, 8),
            "a product of m 65536 n 32768 k 8: its y [65536, 32768] has 2147483648 elements, expected fewer than 2^31");
  EXPECT_EQ(
      productRefusal(1, int64_t{1} << 40, int64_t{1} << 30),
      "a product of m 1 n 1099511627776 k 1073741824: its W [1099511627776, 1073741824] has 2^63 or more elements, "
      "expected fewer than 2^31");
}

// A part of W is what the library is given: of 65,536 rows of 32,768 elements 512 at a time, in 32 MiB.
TEST(CudaLaunch, OfPackedWeightsAPartIsCounted) {
  LinearArgs args{};
  args.capacity = 8, args.n = 65536, args.k = 32768, args.activation = Elem::BF16;
  EXPECT_NE(productRefusal(args), "");
  args.packing = {4, 32};
  EXPECT_EQ(productRefusal(args), "");
  EXPECT_EQ(CudaWorkspace::unpackedRows(65536, 32768, 2), 512);
  EXPECT_EQ(CudaWorkspace::unpackedBytes(65536, 32768, 2), uint64_t{32} << 20);
  args.capacity = 65536; // y
  EXPECT_NE(productRefusal(args), "");
}

// Parts are about as large, of whole tiles; the workspace holds one, and never shrinks.
TEST(CudaLaunch, PartsOfPackedWeightsFitTheirWorkspace) {
  for (const int64_t element : {2, 4})
    for (const int64_t k : {32, 4096, 5120, 14336, 28672, 1 << 19}) {
      uint64_t before = 0;
      for (const int64_t n : {1, 100, 128, 1000, 4096, 5120, 6144, 28672, 152064}) {
        const int64_t rows = CudaWorkspace::unpackedRows(n, k, element);
        const uint64_t bytes = CudaWorkspace::unpackedBytes(n, k, element);
        EXPECT_LE(static_cast<uint64_t>(rows * k * element), bytes) << n << " " << k;
        EXPECT_TRUE(rows == n || rows % 128 == 0) << n << " " << k;
        EXPECT_TRUE(bytes <= CudaWorkspace::kUnpackedBytes || rows <= 128) << n << " " << k;
        EXPECT_GE(bytes, before);
        before = bytes;
      }
    }
  // A down of 4,096 rows of 14,336 elements: 1,170 fit 32 MiB, nine tiles of 128 are 1,152, so that four parts of
  // 1,024.
  EXPECT_EQ(CudaWorkspace::unpackedRows(4096, 14336, 2), 1024);
}

TEST(CudaLaunch, PackedCachesHaveKernelsOfTheirOwn) {
  const CudaShape decode{.tokens = 4, .sequences = 4, .context = 64},
      mixed{.tokens = 64, .sequences = 4, .context = 64};
  const char *why = nullptr;
  RopeAppendArgs rope{};
  rope.heads = 4, rope.kvHeads = 2, rope.headDim = 64, rope.blockTokens = 16, rope.activation = Elem::BF16;
  rope.kvPacking = {4, 64};
  const CudaLaunch append = cudaLaunch(Op::RopeAppend, &rope, decode, &why);
  EXPECT_STREQ(append.kernel, "rope_append_bf16_packed");
  EXPECT_EQ(append.sharedBytes, (4 * 64 + 64) * sizeof(float)); // k and v of two heads; cosines and sines
  AttentionArgs args = attentionArgs(4, 2, 64, Elem::BF16);
  args.kvElem = Elem::F32, args.kvPacking = {8, 64}, args.segments = oneRun(8, 16 * 64);
  // A warp's two stages of k and v, 16 rows of 64 + 16 bytes each, and one of 16 rows of 144: 4 x 2 x (2 x 1280 +
  // 2304).
  const CudaLaunch one = cudaLaunch(Op::Attention, &args, decode, &why);
  EXPECT_STREQ(one.kernel, "attention_decode_bf16_64_packed");
  EXPECT_EQ(one.sharedBytes, 38912u);
  EXPECT_STREQ(cudaLaunch(Op::Attention, &args, mixed, &why).kernel, "attention_prefill_bf16_64_m64_packed");
  for (const auto &[headDim, group, name] : {std::tuple{96, 32, "attention_decode_bf16_96_packed"},
                                             {128, 64, "attention_decode_bf16_128_packed"},
                                             {128, 32, "attention_any_bf16_packed"}, // not the largest group
                                             {32, 32, "attention_any_bf16_packed"},
                                             {256, 64, "attention_any_bf16_packed"}}) {
    args.headDim = headDim, args.kvPacking = {4, group};
    EXPECT_STREQ(cudaLaunch(Op::Attention, &args, decode, &why).kernel, name);
  }
  args.headDim = 128, args.kvPacking = {4, 64}, args.segments.stride += 8; // no multiple of 16 bytes
  EXPECT_STREQ(cudaLaunch(Op::Attention, &args, decode, &why).kernel, "attention_any_bf16_packed");
  args.activation = Elem::F32;
  EXPECT_STREQ(cudaLaunch(Op::Attention, &args, decode, &why).kernel, "attention_any_f32_packed");
  // Heads of no whole groups, and no such codes.
  for (const auto &[headDim, packing] : {std::pair{80, Packing{4, 64}}, {64, Packing{4, 128}}, {64, Packing{3, 64}}}) {
    args.headDim = rope.headDim = headDim, args.kvPacking = rope.kvPacking = packing;
    EXPECT_EQ(cudaLaunch(Op::Attention, &args, decode, &why).kernel, nullptr);
    EXPECT_EQ(cudaLaunch(Op::RopeAppend, &rope, decode, &why).kernel, nullptr);
    EXPECT_STREQ(why, "packed KV caches have heads of whole groups of 32 or 64, in codes of 4 or 8 bits");
  }
}

// 16 columns of y a block; eight warps' sums of 8 x 16.
TEST(CudaLaunch, AFewRowsOfPackedWeightsAreOneKernel) {
  LinearArgs args{};
  args.capacity = 8, args.n = 100, args.k = 64, args.activation = Elem::F16, args.packing = {8, 64};
  const CudaLaunch launch = cudaLaunch(args);
  EXPECT_STREQ(launch.kernel, "linear_packed_f16_q8");
  EXPECT_EQ(gridOf(launch), (Grid{7, 1, 1}));
  EXPECT_EQ(launch.block[0], 256u);
  EXPECT_EQ(launch.sharedBytes, 8u * 8 * 16 * 4);
  args.activation = Elem::BF16, args.packing = {4, 32};
  EXPECT_STREQ(cudaLaunch(args).kernel, "linear_packed_bf16_q4");
  args.capacity = 9;
  EXPECT_EQ(cudaLaunch(args).kernel, nullptr);
  args.capacity = 8, args.activation = Elem::F32; // which tensor cores do not take whole
  EXPECT_EQ(cudaLaunch(args).kernel, nullptr);
  args.activation = Elem::BF16, args.packing = {};
  EXPECT_EQ(cudaLaunch(args).kernel, nullptr);
  // And its workspace: none, as much as a part of W and the library take, the library's alone.
  EXPECT_EQ(linearWorkspaceBytes(Backend::Cuda, 8, 4096, 4096, 2), 0u);
  EXPECT_EQ(linearWorkspaceBytes(Backend::Cuda, 9, 4096, 4096, 2), uint64_t{64} << 20);
  EXPECT_EQ(linearWorkspaceBytes(Backend::Cuda, 8, 1024, 4096, 4), uint64_t{48} << 20);
  EXPECT_EQ(linearWorkspaceBytes(Backend::Cuda, 8, 4096, 4096), uint64_t{32} << 20);
}

} // namespace
} // namespace headrace::kernels
