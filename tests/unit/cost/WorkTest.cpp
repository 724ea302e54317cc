// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include <gtest/gtest.h>

#include "kernels/Kernels.h"
#include "runtime/cost/CostModel.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/cost/Models.h"

namespace headrace::cost {
namespace {

using kernels::Op;
using model::DType;
using model::UnitRole;

Work work(const model::ModelSpec &spec, Op op, UnitRole unit, Bucket bucket, bool direct = false,
          DType activation = DType::F32, model::Encoding kv = DType::F16) {
  return workOf(spec, {op, unit}, bucket, activation, kv, direct);
}

TEST(Work, LinearIsTwoFlopsAnElementAndRowAndReadsItsMatrixOnce) {
  // qkv: n = (2 + 2 x 1) x 16 = 64, k = 32, 8 rows: 2 x 64 x 32 x 8 = 32768 flops;
  // 64 x 32 x 2 = 4096 bytes of F16 weights, x 8 x 32 x 4 = 1024, y 8 x 64 x 4 = 2048.
  const Work w = work(smallLlama(), Op::Linear, UnitRole::Qkv, {8, 8, 16});
  EXPECT_EQ(w.flops, 32768u);
  EXPECT_EQ(w.deviceBytes, 4096u + 1024 + 2048);
  EXPECT_EQ(w.linkBytes, 0u);
}

TEST(Work, APackedMatrixIsReadPackedAndUnpacked) {
  // Groups of 32, 4 bits: 64 rows of one group of 4 + 16 bytes; a product and a sum for each of 64 x 32 weights.
  model::ModelSpec spec = smallLlama();
  spec.encodings[UnitRole::Qkv] = model::Encoding::groups(4, 32);
  const Work w = work(spec, Op::Linear, UnitRole::Qkv, {8, 8, 16});
  EXPECT_EQ(w.flops, 32768u + 4096);
  EXPECT_EQ(w.deviceBytes, 1280u + 1024 + 2048);
  EXPECT_EQ(work(spec, Op::Linear, UnitRole::Qkv, {8, 8, 16}, /*direct=*/true).linkBytes, 1280u);
  // In each pass, whatever its rows.
  EXPECT_EQ(work(spec, Op::Linear, UnitRole::Qkv, {1, 1, 16}).flops, 4096u + 4096);
  // Of others nothing changes.
  EXPECT_EQ(work(spec, Op::Linear, UnitRole::Up, {3, 1, 8}).flops, 24576u);
  // k and v of 10 rows: 32 of qkv's rows, 640 bytes.
  const Bucket bucket{.tokens = 1, .sequences = 1, .context = 16, .actRows = 10};
  const Work plain = work(smallLlama(), Op::RebuildKv, UnitRole::Qkv, bucket);
  const Work packed = work(spec, Op::RebuildKv, UnitRole::Qkv, bucket);
  EXPECT_EQ(packed.flops, plain.flops + 2 * 32 * 32);
  EXPECT_EQ(packed.deviceBytes, plain.deviceBytes - 32 * 32 * 2 + 640);
}

TEST(Work, APackedCacheIsWrittenPackedAndUnpackedAsItIsRead) {
  // One head of 16 of k and of v, but of 32: groups of 32 in 4 bits, 4 + 16 bytes; a token has 40, in F16 128.
  model::ModelSpec spec = smallLlama();
  spec.headDim = 32;
  const auto of = [&](Op op, Bucket bucket, model::Encoding kv, bool direct = false) {
    return work(spec, op, UnitRole::Qkv, bucket, direct, DType::F32, kv);
  };
  const auto q4 = model::Encoding::groups(4, 32);
  const Bucket prompts{8, 2, 16}, decode{2, 2, 16};
  // Eight rows: six operations for each of 64 values.
  EXPECT_EQ(of(Op::RopeAppend, prompts, q4).flops, of(Op::RopeAppend, prompts, DType::F16).flops + 6 * 8 * 64);
  EXPECT_EQ(of(Op::RopeAppend, prompts, q4).deviceBytes,
            of(Op::RopeAppend, prompts, DType::F16).deviceBytes - 8 * 128 + 8 * 40);
  EXPECT_EQ(of(Op::RopeAppend, prompts, q4, /*direct=*/true).linkBytes, 8u * 40);
  // Two contexts of 16: a product and a sum for each of 64 values, once for all rows.
  EXPECT_EQ(of(Op::Attention, decode, q4).flops, of(Op::Attention, decode, DType::F16).flops + 2 * 2 * 16 * 64);
  EXPECT_EQ(of(Op::Attention, prompts, q4).flops, of(Op::Attention, prompts, DType::F16).flops + 2 * 2 * 16 * 64);
  EXPECT_EQ(of(Op::Attention, decode, q4).deviceBytes,
            of(Op::Attention, decode, DType::F16).deviceBytes - 32 * 128 + 32 * 40);
  const Bucket acts{.tokens = 1, .sequences = 1, .context = 16, .actRows = 10};
  EXPECT_EQ(of(Op::RebuildKv, acts, q4).flops, of(Op::RebuildKv, acts, DType::F16).flops + 6 * 10 * 64);
  EXPECT_EQ(of(Op::RebuildKv, acts, q4).deviceBytes,
            of(Op::RebuildKv, acts, DType::F16).deviceBytes - 10 * 128 + 10 * 40);
  // Of what has no cache nothing changes.
  EXPECT_EQ(of(Op::Linear, prompts, q4).deviceBytes, of(Op::Linear, prompts, DType::F16).deviceBytes);
}

TEST(Work, BiasesOfQkvAndUpAreOfTheMatricesTypeThoseOfOutAndDownF32) {
  // OPT qkv: n = 3 x 32 = 96: 96 x 32 x 2 + 96 x 2 = 6336 bytes of weights; one row: x 128, y 384.
  EXPECT_EQ(work(smallOpt(), Op::Linear, UnitRole::Qkv, {1, 1, 1}).deviceBytes, 6336u + 128 + 384);
  // up: n = 64, k = 32: 64 x 32 x 2 + 64 x 2 = 4224; x 128, y 256.
  EXPECT_EQ(work(smallOpt(), Op::Linear, UnitRole::Up, {1, 1, 1}).deviceBytes, 4224u + 128 + 256);
  // out: n = k = 32: 32 x 32 x 2 + 32 x 4 = 2176; x 128, y 128 written and 128 read.
  EXPECT_EQ(work(smallOpt(), Op::Linear, UnitRole::Out, {1, 1, 1}).deviceBytes, 2176u + 128 + 128 + 128);
}

TEST(Work, OutAndDownReadTheResidualStreamToo) {
  // down: n = 32, k = 64, one row: weights 32 x 64 x 2 = 4096, x 256, y 128 written and 128 read.
  EXPECT_EQ(work(smallLlama(), Op::Linear, UnitRole::Down, {1, 1, 1}).deviceBytes, 4096u + 256 + 128 + 128);
  // out: k = 2 x 16.
  EXPECT_EQ(work(smallLlama(), Op::Linear, UnitRole::Out, {1, 1, 1}).deviceBytes, 2048u + 128 + 128 + 128);
}

TEST(Work, GatedUpHasBothMatrices) {
  // up: n = 2 x 64, k = 32: 2 x 128 x 32 x 3 rows.
  EXPECT_EQ(work(smallLlama(), Op::Linear, UnitRole::Up, {3, 1, 8}).flops, 24576u);
  EXPECT_EQ(work(smallOpt(), Op::Linear, UnitRole::Up, {3, 1, 8}).flops, 12288u);
}

TEST(Work, TheHeadWorksOnOneRowASequenceAndMakesF32Logits) {
  // 512 tokens of 2 sequences: 2 rows: 2 x 96 x 32 x 2 = 12288 flops; weights 96 x 32 x 2 = 6144,
  // F16 activations: x 2 x 32 x 2 = 128, logits 2 x 96 x 4 = 768.
  const Work w = work(smallLlama(), Op::Linear, UnitRole::Head, {512, 2, 256}, false, DType::F16);
  EXPECT_EQ(w.flops, 12288u);
  EXPECT_EQ(w.deviceBytes, 6144u + 128 + 768);
  EXPECT_EQ(work(smallLlama(), Op::Norm, UnitRole::Head, {512, 2, 256}).flops, 4u * 2 * 32);
}

TEST(Work, MatricesAreReadAsStoredWithPaddedRows) {
  model::ModelSpec s = smallLlama();
  s.vocab = 97; // stored as 112 rows
  EXPECT_EQ(work(s, Op::Linear, UnitRole::Head, {1, 1, 1}).deviceBytes, 112u * 32 * 2 + 32 * 4 + 97 * 4);
}

TEST(Work, DirectReadsGoOverTheLink) {
  const Work linear = work(smallLlama(), Op::Linear, UnitRole::Qkv, {8, 8, 16}, true);
  EXPECT_EQ(linear.linkBytes, 4096u);
  EXPECT_EQ(linear.deviceBytes, 1024u + 2048);
  // Embed reads only its rows: 8 x 32 x 2; OPT's positions as many again.
  EXPECT_EQ(work(smallLlama(), Op::Embed, UnitRole::Embedding, {8, 8, 16}, true).linkBytes, 512u);
  EXPECT_EQ(work(smallOpt(), Op::Embed, UnitRole::Embedding, {8, 8, 16}, true).linkBytes, 1024u);
  EXPECT_EQ(work(smallOpt(), Op::Embed, UnitRole::Embedding, {8, 8, 16}, true).deviceBytes, 1024u); // x, 8 x 32 x 4
}

TEST(Work, EmbedAddsLearnedPositions) {
  EXPECT_EQ(work(smallLlama(), Op::Embed, UnitRole::Embedding, {8, 8, 16}).flops, 0u);
  EXPECT_EQ(work(smallOpt(), Op::Embed, UnitRole::Embedding, {8, 8, 16}).flops, 256u);
  EXPECT_EQ(work(smallLlama(), Op::Embed, UnitRole::Embedding, {8, 8, 16}).deviceBytes, 512u + 1024);
}

TEST(Work, NormReadsAndWritesRowsAndItsVectors) {
  // 8 rows of 32: RMS 4 x 256 flops; 2 x 8 x 32 x 4 + 32 x 4.
  EXPECT_EQ(work(smallLlama(), Op::Norm, UnitRole::Qkv, {8, 8, 16}).flops, 1024u);
  EXPECT_EQ(work(smallLlama(), Op::Norm, UnitRole::Qkv, {8, 8, 16}).deviceBytes, 2048u + 128);
  EXPECT_EQ(work(smallOpt(), Op::Norm, UnitRole::Up, {8, 8, 16}).flops, 1792u);
  EXPECT_EQ(work(smallOpt(), Op::Norm, UnitRole::Up, {8, 8, 16}).deviceBytes, 2048u + 256);
}

TEST(Work, DecodeAttentionReadsTheWholeContext) {
  // 4 sequences, one row each, context 10: pairs 4 x 10; 4 flops x 32 q elements x 40 = 5120.
  // KV: 4 x 10 x 2 x 16 x 2 (F16) = 2560; q and out: 2 x 4 x 32 x 4 = 1024.
  const Work w = work(smallLlama(), Op::Attention, UnitRole::Qkv, {4, 4, 10});
  EXPECT_EQ(w.flops, 5120u);
  EXPECT_EQ(w.deviceBytes, 2560u + 1024);
  EXPECT_EQ(work(smallLlama(), Op::Attention, UnitRole::Qkv, {4, 4, 10}, false, DType::F32, DType::F32).deviceBytes,
            5120u + 1024);
}

TEST(Work, PrefillAttentionHasTheCausalTriangle) {
  // One sequence of 10 tokens from nothing: 1 + 2 + ... + 10 = 55 pairs.
  EXPECT_EQ(work(smallLlama(), Op::Attention, UnitRole::Qkv, {10, 1, 10}).flops, 4u * 32 * 55);
  // The last 4 of a context of 10: 7 + 8 + 9 + 10 = 34.
  EXPECT_EQ(work(smallLlama(), Op::Attention, UnitRole::Qkv, {4, 1, 10}).flops, 4u * 32 * 34);
  // Two sequences of 5 each: 2 x 15.
  EXPECT_EQ(work(smallLlama(), Op::Attention, UnitRole::Qkv, {10, 2, 5}).flops, 4u * 32 * 30);
}

TEST(Work, ABucketWithMoreTokensThanItsSequencesHoldIsPricedFull) {
  // 100 tokens in 2 sequences of at most 5: no more pairs than 2 x 15.
  EXPECT_EQ(work(smallLlama(), Op::Attention, UnitRole::Qkv, {100, 2, 5}).flops, 4u * 32 * 30);
  // More sequences than tokens: only those with a row read their context.
  EXPECT_EQ(work(smallLlama(), Op::Attention, UnitRole::Qkv, {2, 8, 10}).flops, 4u * 32 * 20);
}

TEST(Work, PrefillAndDecodeOfAsManyTokensDiffer) {
  const Work prefill = work(smallLlama(), Op::Attention, UnitRole::Qkv, {64, 1, 64});
  const Work decode = work(smallLlama(), Op::Attention, UnitRole::Qkv, {64, 64, 64});
  EXPECT_LT(prefill.flops, decode.flops);             // 2080 pairs against 4096
  EXPECT_LT(prefill.deviceBytes, decode.deviceBytes); // one context read against 64
}

TEST(Work, RopeAppendRotatesQueriesAndKeysAndWritesTheCache) {
  // T = 2: 3 x 2 x (32 + 16) flops; (2 x 48 + 16) x 4 x 2 rows read and rewritten, 2 x 2 x 16 x 2 to the cache.
  const Work w = work(smallLlama(), Op::RopeAppend, UnitRole::Qkv, {2, 2, 5});
  EXPECT_EQ(w.flops, 288u);
  EXPECT_EQ(w.deviceBytes, 896u + 128);
  // Norms of the heads: 4 x 2 x 48 flops and two weights of 8 floats more; the rows are read and rewritten once.
  model::ModelSpec normed = smallLlama();
  normed.qkNorm = true;
  const Work n = work(normed, Op::RopeAppend, UnitRole::Qkv, {2, 2, 5});
  EXPECT_EQ(n.flops, 288u + 384);
  EXPECT_EQ(n.deviceBytes, 896u + 128 + 2 * 4 * static_cast<uint64_t>(normed.headDim));
  const Work opt = work(smallOpt(), Op::RopeAppend, UnitRole::Qkv, {2, 2, 5});
  EXPECT_EQ(opt.flops, 0u);
  EXPECT_EQ(opt.deviceBytes, 2u * 2 * 32 * 4 + 2 * 2 * 32 * 2);
}

TEST(Work, ADirectAppendWritesItsRowsOverTheLinkAsWell) {
  // T = 25: 25 x 2 x 16 rows x 2 bytes = 1600; on the device it does what it did.
  const Work device = work(smallLlama(), Op::RopeAppend, UnitRole::Qkv, {25, 25, 5});
  const Work direct = work(smallLlama(), Op::RopeAppend, UnitRole::Qkv, {25, 25, 5}, true);
  EXPECT_EQ(device.linkBytes, 0u);
  EXPECT_EQ(direct.linkBytes, 1600u);
  EXPECT_TRUE(direct.toHost);
  EXPECT_EQ(direct.flops, device.flops);
  EXPECT_EQ(direct.deviceBytes, device.deviceBytes);
  EXPECT_FALSE(work(smallLlama(), Op::Embed, UnitRole::Embedding, {25, 25, 5}, true).toHost);
}

TEST(Work, ActivateGatherAndSample) {
  EXPECT_EQ(work(smallLlama(), Op::Activate, UnitRole::Up, {3, 1, 8}).flops, 5u * 3 * 64);
  EXPECT_EQ(work(smallLlama(), Op::Activate, UnitRole::Up, {3, 1, 8}).deviceBytes, 3u * 3 * 64 * 4);
  EXPECT_EQ(work(smallLlama(), Op::GatherRows, UnitRole::Head, {3, 2, 8}).deviceBytes, 2u * 2 * 32 * 4);
  EXPECT_EQ(work(smallLlama(), Op::Sample, UnitRole::Head, {3, 2, 8}).flops, 2u * 96);
  EXPECT_EQ(work(smallLlama(), Op::Sample, UnitRole::Head, {3, 2, 8}).deviceBytes, 4u * 2 * 96 + 16);
}

// Of each token, of the head or not: its id, its place, the id again, 4 bytes each.
TEST(Work, KeptIdsAreOfAllTokens) {
  const Work three = work(smallLlama(), Op::KeepIds, UnitRole::Head, {3, 2, 8});
  EXPECT_EQ(three.flops, 0u);
  EXPECT_EQ(three.deviceBytes, 3u * 12);
  EXPECT_EQ(three.linkBytes, 0u);
  const Rows noneSampled{.tokens = 9, .contexts = 9, .pairs = 45};
  const Work nine =
      workOf(smallLlama(), {Op::KeepIds, UnitRole::Head}, noneSampled, DType::F32, DType::F16, /*direct=*/false);
  EXPECT_EQ(nine.deviceBytes, 9u * 12);
}

// Three sequences: a row at context 10, three at 7, five at 5. 9 rows, contexts 22, pairs 10 + (5 + 6 + 7) + 15 = 43.
constexpr Rows kThree{.tokens = 9, .sampled = 2, .contexts = 22, .pairs = 43, .homeRows = 4};
Work workOfThree(Op op, UnitRole unit, bool direct = false) {
  return workOf(smallLlama(), {op, unit}, kThree, DType::F32, DType::F16, direct);
}

TEST(Work, AttentionFollowsEachSequencesContext) {
  const Work w = workOfThree(Op::Attention, UnitRole::Qkv);
  EXPECT_EQ(w.flops, 4u * 32 * 43);
  EXPECT_EQ(w.deviceBytes, 22u * 2 * 16 * 2 + 2 * 9 * 32 * 4);
}

TEST(Work, TheHeadFollowsSampledRowsAndTheRestAllRows) {
  EXPECT_EQ(workOfThree(Op::Linear, UnitRole::Qkv).flops, 2u * 64 * 32 * 9);
  EXPECT_EQ(workOfThree(Op::Linear, UnitRole::Head).flops, 2u * 96 * 32 * 2);
  EXPECT_EQ(workOfThree(Op::Norm, UnitRole::Up).flops, 4u * 9 * 32);
  EXPECT_EQ(workOfThree(Op::Norm, UnitRole::Head).flops, 4u * 2 * 32);
  EXPECT_EQ(workOfThree(Op::GatherRows, UnitRole::Qkv).deviceBytes, 8u * 2 * 32);
  EXPECT_EQ(workOfThree(Op::Sample, UnitRole::Qkv).flops, 2u * 96);
}

TEST(Work, ADirectAppendWritesTheRowsWithAHomeOverTheLink) {
  EXPECT_EQ(workOfThree(Op::RopeAppend, UnitRole::Qkv, true).linkBytes, 4u * 2 * 16 * 2);
  EXPECT_EQ(workOfThree(Op::RopeAppend, UnitRole::Qkv, true).deviceBytes,
            workOfThree(Op::RopeAppend, UnitRole::Qkv).deviceBytes);
}

TEST(Work, WithNothingSampledTheHeadDoesNothing) {
  const Rows rows{.tokens = 9, .contexts = 9, .pairs = 45};
  for (const OpSite &site : {OpSite{Op::Linear, UnitRole::Head}, OpSite{Op::Norm, UnitRole::Head},
                             OpSite{Op::GatherRows, UnitRole::Head}, OpSite{Op::Sample, UnitRole::Head}}) {
    const Work w = workOf(smallLlama(), site, rows, DType::F32, DType::F16, false);
    EXPECT_EQ(w.flops + w.deviceBytes + w.linkBytes, 0u); // its matrix is not read
  }
}

TEST(Work, ABucketIsRowsSpreadEvenlyAtTheLongestContext) {
  // 8 tokens of 4 sequences at 10: two rows each, 9 + 10 pairs.
  const Rows rows = rowsOf({8, 4, 10});
  EXPECT_EQ(rows.tokens, 8u);
  EXPECT_EQ(rows.sampled, 4u);
  EXPECT_EQ(rows.contexts, 40u);
  EXPECT_EQ(rows.pairs, 4u * 19);
  EXPECT_EQ(rows.homeRows, 8u);
}

// Of smallLlama, F32 activations, F16 cache and weights: hidden 32, 16 rows of k and 16 of v, rotated.
TEST(Work, RebuildingFollowsTheRowsOfActivationBlocks) {
  const Rows rows{.tokens = 9, .keptRows = 4, .actRows = 10};
  const auto of = [&](Op op) { return workOf(smallLlama(), {op, UnitRole::Qkv}, rows, DType::F32, DType::F16, false); };
  EXPECT_EQ(of(Op::ActAppend).deviceBytes, 2u * 4 * 32 * 4);
  EXPECT_EQ(of(Op::RebuildKv).flops, 10u * (2 * 32 * 32 + 3 * 16));
  EXPECT_EQ(of(Op::RebuildKv).deviceBytes, 10u * (3 * 32 * 4 + 2 * 32 * 4 + 32 * 2) + 32 * 32 * 2);
  const Work away = workOf(smallLlama(), {Op::ActAppend, UnitRole::Qkv}, rows, DType::F32, DType::F16, true);
  EXPECT_EQ(away.deviceBytes, 4u * 32 * 4);
  EXPECT_EQ(away.linkBytes, 4u * 32 * 4);
  EXPECT_TRUE(away.toHost);
  const Work none =
      workOf(smallLlama(), {Op::RebuildKv, UnitRole::Qkv}, Rows{.tokens = 9}, DType::F32, DType::F16, false);
  EXPECT_EQ(none.flops + none.deviceBytes, 0u); // its matrix is not read
  // A full bucket rebuilds all that its contexts have, and keeps all its rows.
  EXPECT_EQ(rowsOf({8, 4, 10, 48}).actRows, 48u);
  EXPECT_EQ(rowsOf({8, 4, 10, 48}).keptRows, 8u);
  EXPECT_EQ(rowsOf({8, 4, 10}).keptRows, 0u);
}

// Of smallLlama, F32 activations, F16 cache, 8 rows: 32 rows of q, 16 of k and of v, of which the cache has 64 bytes.
TEST(Work, AttentionOnTheCpuIsHalvesOfRopeAppendAndRowsOverTheLink) {
  const auto of = [](Op op, bool direct = false) { return work(smallLlama(), op, UnitRole::Qkv, {8, 8, 16}, direct); };
  EXPECT_EQ(of(Op::Rotate).flops, 8u * 3 * (32 + 16));
  EXPECT_EQ(of(Op::Rotate).deviceBytes, 8u * 2 * (32 + 16) * 4); // read and written
  EXPECT_EQ(of(Op::Append).flops, 0u);
  EXPECT_EQ(of(Op::Append).deviceBytes, 8u * (2 * 16 * 4 + 64));
  EXPECT_EQ(of(Op::FetchRows, /*direct=*/true).linkBytes, 8u * 32 * 4);
  EXPECT_EQ(of(Op::FetchRows, /*direct=*/true).deviceBytes, 8u * 32 * 4);
  EXPECT_FALSE(of(Op::FetchRows, /*direct=*/true).toHost);
}

TEST(Work, AmountsSaturateInsteadOfWrapping) {
  const int64_t huge = int64_t{1} << 62;
  const Work w = work(smallLlama(), Op::Attention, UnitRole::Qkv, {huge, huge, huge});
  EXPECT_EQ(w.flops, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(w.deviceBytes, std::numeric_limits<uint64_t>::max());
}

TEST(Work, NothingToDoIsNothing) { EXPECT_EQ(work(smallLlama(), Op::Attention, UnitRole::Qkv, {0, 0, 0}).flops, 0u); }

} // namespace
} // namespace headrace::cost
