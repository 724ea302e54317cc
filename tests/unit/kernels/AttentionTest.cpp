// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>

#include <functional>

#include "kernels/host/AttentionChunksHost.h"
#include "tests/unit/kernels/KernelTest.h"
#include "tests/unit/kernels/Reference.h"

namespace headrace::kernels {
namespace {

struct Shape {
  int64_t heads = 4, kvHeads = 2, headDim = 20, blockTokens = 16;
  Elem kvElem = Elem::F32, activation = Elem::F32;
  int64_t rowLength() const { return (heads + 2 * kvHeads) * headDim; }
  int64_t blockElements() const { return kvBlockElements(kvHeads, blockTokens, headDim); }
};

// One sequence's queries, keys and values for positions 0 .. length - 1.
struct Text {
  int64_t length;
  Floats q;    // [length, heads, headDim]
  Stored k, v; // [length, kvHeads, headDim]
  Text(const Shape &s, int64_t n, uint64_t seed)
      : length(n), q(randomFloats(n * s.heads * s.headDim, seed)),
        k(s.kvElem, randomFloats(n * s.kvHeads * s.headDim, seed + 1)),
        v(s.kvElem, randomFloats(n * s.kvHeads * s.headDim, seed + 2)) {
    for (float &x : q)
      x *= 4; // scores of several units: attention far from uniform
  }
};

// A paged cache of NaNs, scratch block and blocks of nobody included.
class Cache {
public:
  Cache(const Shape &s, int64_t blocks) : Cache(s, blocks, oneRun(blocks, s.blockElements())) {}
  Cache(const Shape &s, int64_t blocks, const KvSegments &where)
      : segments(where), shape(s), stored(s.kvElem, where.end) {
    for (size_t i = 0; i < stored.size(); ++i)
      stored.set(i, kNan);
    for (int64_t b = 1; b < blocks; ++b)
      unused.push_back(static_cast<int32_t>(b));
  }
  // Takes blocks, in an order that `seed` shuffles, and writes the first `length` tokens.
  std::vector<int32_t> add(const Text &text, int64_t length, uint64_t seed) {
    std::shuffle(unused.begin(), unused.end(), std::mt19937_64(seed));
    std::vector<int32_t> blocks;
    for (int64_t t = 0; t < length; ++t) {
      if (t % shape.blockTokens == 0) {
        blocks.push_back(unused.back());
        unused.pop_back();
      }
      for (int64_t h = 0; h < shape.kvHeads; ++h)
        for (int64_t d = 0; d < shape.headDim; ++d) {
          const int64_t from = (t * shape.kvHeads + h) * shape.headDim + d;
          stored.set(at(blocks.back(), 0, h, t % shape.blockTokens, d), text.k.value(from));
          stored.set(at(blocks.back(), 1, h, t % shape.blockTokens, d), text.v.value(from));
        }
    }
    return blocks;
  }
  void *data() { return stored.data(); }

  const KvSegments segments;

private:
  size_t at(int64_t block, int64_t kOrV, int64_t head, int64_t row, int64_t d) const {
    return segments.of(block) + ((kOrV * shape.kvHeads + head) * shape.blockTokens + row) * shape.headDim + d;
  }
  Shape shape;
  Stored stored;
  std::vector<int32_t> unused;
};

// A part of an iteration: positions [start, start + rows) of a text whose cache holds exactly start + rows tokens.
struct Part {
  const Text *text;
  int64_t start, rows;
};

// The rows' outputs, part after part.
// window: chunks that a team has room for at a time.
using Layout = std::function<KvSegments(int64_t blocks, int64_t blockElements)>;
Floats run(HostIsa isa, const Shape &s, const std::vector<Part> &parts, uint64_t seed = 1,
           const Layout &layout = oneRun, int64_t window = AttentionChunksShape::kWindow) {
  int64_t blocks = 3;
  for (const Part &p : parts)
    blocks += (p.start + p.rows + s.blockTokens - 1) / s.blockTokens;
  Cache cache(s, blocks, layout(blocks, s.blockElements()));
  std::vector<TestSequence> sequences;
  for (const Part &p : parts)
    sequences.push_back({p.start, p.rows, cache.add(*p.text, p.start + p.rows, seed++)});
  TestMeta meta(sequences, s.blockTokens, blocks);
  Stored qkv(s.activation, Floats(meta->numTokens * s.rowLength(), kNan)); // k and v come from the cache
  int64_t row = 0;
  for (const Part &p : parts)
    for (int64_t t = p.start; t < p.start + p.rows; ++t, ++row)
      for (int64_t i = 0; i < s.heads * s.headDim; ++i)
        qkv.set(row * s.rowLength() + i, p.text->q[t * s.heads * s.headDim + i]);
  Stored out(s.activation, Floats(row * s.heads * s.headDim, kNan));
  const int64_t maxContext = blocks * s.blockTokens;
  Floats workspace(attentionWorkspaceBytes(Backend::Host, row, s.heads, s.headDim, maxContext) / sizeof(float), kNan);
  AttentionArgs args{};
  args.meta = meta.get(), args.qkv = qkv.data(), args.kv = cache.data(), args.out = out.data();
  args.segments = cache.segments;
  args.workspace = workspace.data();
  args.heads = s.heads, args.kvHeads = s.kvHeads, args.headDim = s.headDim, args.blockTokens = s.blockTokens;
  args.maxContext = maxContext, args.scale = 1 / std::sqrt(static_cast<float>(s.headDim)), args.kvElem = s.kvElem;
  args.activation = s.activation;
  runKernel(Op::Attention, isa, &args, workspace.size() * sizeof(float),
            AttentionChunksShape::bytes(window, s.heads / s.kvHeads, s.headDim));
  Floats values(out.size());
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = out.value(i);
  return values;
}

void expectMatchesReference(const Shape &s, const Text &text, int64_t start, int64_t rows, const float *out) {
  for (int64_t t = start; t < start + rows; ++t)
    for (int64_t head = 0; head < s.heads; ++head, out += s.headDim) {
      const int64_t kvHead = head / (s.heads / s.kvHeads);
      reference::Values q, keys, values;
      for (int64_t d = 0; d < s.headDim; ++d)
        q.push_back(text.q[(t * s.heads + head) * s.headDim + d]);
      for (int64_t j = 0; j <= t; ++j)
        for (int64_t d = 0; d < s.headDim; ++d) {
          keys.push_back(text.k.value((j * s.kvHeads + kvHead) * s.headDim + d));
          values.push_back(text.v.value((j * s.kvHeads + kvHead) * s.headDim + d));
        }
      const reference::Values expected =
          reference::attention(q, keys, values, t + 1, 1 / std::sqrt(static_cast<double>(s.headDim)));
      for (int64_t d = 0; d < s.headDim; ++d)
        ASSERT_NEAR(out[d], expected[d], 3e-6) << "position " << t << " head " << head << " element " << d;
    }
}

HEADRACE_ON_EACH_ISA(AttentionTest);

TEST_P(AttentionTest, PrefillMatchesTheReferenceForEveryCacheTypeAndOddSize) {
  for (Elem elem : kAllElems)
    for (Shape s :
         {Shape{4, 2, 20, 16}, Shape{3, 3, 7, 5}, Shape{8, 1, 33, 16}, Shape{2, 2, 64, 32}, Shape{7, 1, 1, 1}}) {
      s.kvElem = elem;
      for (int64_t length : {1, 9, 70, 150}) {
        SCOPED_TRACE(testing::Message() << "elem " << int(elem) << " heads " << s.heads << "/" << s.kvHeads << " dim "
                                        << s.headDim << " length " << length);
        const Text text(s, length, 11);
        const Floats out = run(GetParam(), s, {{&text, 0, length}});
        expectMatchesReference(s, text, 0, length, out.data());
        if (HasFatalFailure())
          return;
      }
    }
}

TEST_P(AttentionTest, DecodeMatchesTheReferenceAtEveryContextLengthAroundTheChunks) {
  for (Elem elem : kAllElems) {
    Shape s{6, 2, 24, 16, elem};
    const Text text(s, 200, 3);
    for (int64_t position : {0, 1, 7, 8, 15, 16, 62, 63, 64, 65, 127, 128, 199}) {
      const Floats out = run(GetParam(), s, {{&text, position, 1}});
      expectMatchesReference(s, text, position, 1, out.data());
      if (HasFatalFailure())
        return;
    }
  }
}

TEST_P(AttentionTest, OneTokenOfContextReturnsItsValue) {
  Shape s{2, 1, 3, 4};
  Text text(s, 1, 9);
  const Floats out = run(GetParam(), s, {{&text, 0, 1}});
  for (int64_t i = 0; i < 6; ++i)
    EXPECT_EQ(out[i], text.v.value(i % 3)); // softmax over one score is 1
}

TEST_P(AttentionTest, EqualScoresAverageTheValues) {
  // Keys are equal, so every probability is 1 / 4; the values 1 2 3 6 average to 12 / 4 = 3.
  Shape s{1, 1, 1, 4};
  Text text(s, 4, 9);
  for (int i = 0; i < 4; ++i)
    text.k.set(i, 0.5f), text.v.set(i, Floats{1, 2, 3, 6}[i]);
  EXPECT_EQ(run(GetParam(), s, {{&text, 3, 1}})[0], 3.0f);
}

TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  // Scores 200 * 1 and 200 * 2: exp(400) is beyond F32, the difference is what counts: p = (e^-200, 1).
  Shape s{1, 1, 1, 4};
  Text text(s, 2, 9);
  text.q = {0, 200};
  text.k.set(0, 1), text.k.set(1, 2), text.v.set(0, 100), text.v.set(1, 5);
  EXPECT_EQ(run(GetParam(), s, {{&text, 1, 1}})[0], 5.0f);
}

TEST_P(AttentionTest, LaterTokensOfTheSamePrefillCannotLeak) {
  // Infinities and NaNs at position 40 on: rows before it keep their bits, rows from it on see them.
  Shape s{2, 2, 16, 16};
  const Text clean(s, 100, 5);
  Text dirty = clean;
  for (int64_t i = 40 * 2 * 16; i < 41 * 2 * 16; ++i)
    dirty.k.set(i, kNan), dirty.v.set(i, INFINITY);
  const Floats a = run(GetParam(), s, {{&clean, 0, 100}}), b = run(GetParam(), s, {{&dirty, 0, 100}});
  EXPECT_TRUE(sameBits(a.data(), b.data(), 40 * 2 * 16));
  for (size_t i = 40 * 2 * 16; i < b.size(); ++i)
    EXPECT_TRUE(std::isnan(b[i]));
}

TEST_P(AttentionTest, RowsThatBelongToNoSequenceAreLeftAlone) {
  Shape s{1, 1, 4, 4};
  const Text text(s, 3, 2);
  Cache cache(s, 3);
  TestMeta meta({{0, 3, cache.add(text, 3, 1)}}, s.blockTokens);
  Floats qkv(5 * s.rowLength(), kNan), out(5 * 4, 7.0f);
  for (int64_t t = 0; t < 3; ++t)
    std::copy_n(text.q.begin() + t * 4, 4, qkv.begin() + t * s.rowLength());
  meta->numTokens = 5; // two padded rows
  Floats workspace(attentionWorkspaceBytes(Backend::Host, 5, 1, 4, 16) / sizeof(float), kNan);
  AttentionArgs args{};
  args.meta = meta.get(), args.qkv = qkv.data(), args.kv = cache.data(), args.out = out.data();
  args.segments = cache.segments;
  args.workspace = workspace.data(), args.heads = args.kvHeads = 1, args.headDim = 4, args.blockTokens = 4;
  args.maxContext = 16, args.scale = 0.5f;
  call(Op::Attention, &args);
  for (int i = 0; i < 12; ++i)
    EXPECT_FALSE(std::isnan(out[i]));
  for (int i = 12; i < 20; ++i)
    EXPECT_EQ(out[i], 7.0f);
}

TEST_P(AttentionTest, ChunkedPrefillEqualsWholePrefillBitForBit) {
  Shape s{4, 2, 20, 16, Elem::BF16};
  const Text text(s, 150, 21);
  const Floats whole = run(GetParam(), s, {{&text, 0, 150}});
  for (int64_t chunk : {1, 2, 7, 16, 64, 100})
    for (int64_t start = 0; start < 150; start += chunk) {
      const int64_t rows = std::min<int64_t>(chunk, 150 - start);
      const Floats part = run(GetParam(), s, {{&text, start, rows}}, 100 + start);
      ASSERT_TRUE(sameBits(part.data(), whole.data() + start * 4 * 20, part.size()))
          << "chunks of " << chunk << " at " << start;
    }
}

// Rows of a CUDA plan: what is computed is F32's, of the values that q holds, and is rounded once.
TEST_P(AttentionTest, RowsOfSixteenBitsHaveTheRoundedResultOfTheSameQueries) {
  for (const Elem activation : {Elem::F16, Elem::BF16})
    for (const Elem elem : kAllElems)
      for (const int64_t headDim : {20, 64}) {
        Shape s{6, 2, headDim, 16, elem};
        Text a(s, 150, 4), b(s, 90, 5);
        for (Text *text : {&a, &b})
          for (float &x : text->q)
            x = Stored(activation, Floats{x}).value(0);
        const std::vector<Part> parts = {{&a, 3, 147}, {&b, 89, 1}, {&a, 149, 1}};
        const Floats wide = run(GetParam(), s, parts);
        s.activation = activation;
        const Floats narrow = run(GetParam(), s, parts);
        const Stored rounded(activation, wide);
        for (size_t i = 0; i < wide.size(); ++i)
          ASSERT_EQ(narrow[i], rounded.value(i)) << "type " << int(activation) << ", element " << i;
      }
}

// A decoding row reads the cache where it lies, rows of a prompt go through panels: the same sums in the same order.
TEST_P(AttentionTest, DecodingEqualsPrefillBitForBitForEveryGroupAndCacheType) {
  for (Elem elem : kAllElems)
    for (int64_t group : {1, 2, 3, 4, 5, 8, 12, 13})
      for (int64_t headDim : {8, 64, 72, 128}) {
        const Shape s{2 * group, 2, headDim, 16, elem};
        const Text text(s, 140, 31);
        const Floats whole = run(GetParam(), s, {{&text, 0, 140}});
        for (int64_t position : {0, 6, 7, 8, 15, 31, 32, 40, 63, 64, 71, 127, 139}) {
          const Floats row = run(GetParam(), s, {{&text, position, 1}}, 50 + position);
          ASSERT_TRUE(sameBits(row.data(), whole.data() + position * s.heads * headDim, row.size()))
              << "elem " << int(elem) << " group " << group << " dim " << headDim << " position " << position;
        }
      }
}

RC_GTEST_PROP(AttentionProperty, ARowAloneEqualsTheRowInEveryMixedBatch, ()) {
  const auto isa = *rc::gen::elementOf(testedIsas());
  Shape s;
  s.kvHeads = *rc::gen::inRange<int64_t>(1, 4);
  s.heads = s.kvHeads * *rc::gen::inRange<int64_t>(1, 5);
  s.headDim = *rc::gen::inRange<int64_t>(1, 40);
  s.blockTokens = *rc::gen::element<int64_t>(1, 5, 16, 32);
  s.kvElem = *rc::gen::elementOf(kAllElems);
  std::vector<Text> texts;
  const int64_t count = *rc::gen::inRange<int64_t>(1, 6);
  for (int64_t i = 0; i < count; ++i)
    texts.emplace_back(s, *rc::gen::inRange<int64_t>(1, 140), *rc::gen::arbitrary<uint32_t>());
  std::vector<Part> parts;
  for (const Text &text : texts) {
    const int64_t start = *rc::gen::inRange<int64_t>(0, text.length);
    const bool decode = *rc::gen::arbitrary<bool>();
    parts.push_back({&text, start, decode ? 1 : *rc::gen::inRange<int64_t>(1, text.length - start + 1)});
  }
  const Floats batch = run(isa, s, parts, *rc::gen::arbitrary<uint32_t>());
  const float *out = batch.data();
  for (const Part &p : parts) {
    const int64_t row = *rc::gen::inRange<int64_t>(0, p.rows), width = s.heads * s.headDim;
    const Floats alone = run(isa, s, {{p.text, p.start + row, 1}}, *rc::gen::arbitrary<uint32_t>());
    RC_ASSERT(sameBits(alone.data(), out + row * width, alone.size()));
    out += p.rows * width;
  }
}

// Prompts and decoding rows; rows that decode alone go through windows of chunks, several of a context.
RC_GTEST_PROP(AttentionProperty, AnyCutInAnyOrderGivesTheSameBits, ()) {
  const auto isa = *rc::gen::elementOf(testedIsas());
  Shape s;
  s.kvHeads = *rc::gen::inRange<int64_t>(1, 4);
  s.heads = s.kvHeads * *rc::gen::element<int64_t>(1, 2, 3, 4, 7, 13, 50);
  s.headDim = *rc::gen::element<int64_t>(8, 16, 40, 64, 7);
  s.blockTokens = *rc::gen::element<int64_t>(5, 16);
  s.kvElem = *rc::gen::elementOf(kAllElems);
  s.activation = *rc::gen::elementOf(kAllElems);
  const uint64_t seed = *rc::gen::arbitrary<uint32_t>();
  const bool decode = *rc::gen::element(true, true, false);
  std::vector<Text> texts;
  for (int64_t i = *rc::gen::inRange<int64_t>(1, 4); i > 0; --i)
    texts.emplace_back(s, *rc::gen::inRange<int64_t>(1, decode ? 900 : 200), seed + i);
  std::vector<Part> parts;
  for (const Text &text : texts) {
    const int64_t rows = decode ? 1 : *rc::gen::inRange<int64_t>(1, text.length + 1);
    parts.push_back({&text, text.length - rows, rows});
  }
  const int64_t window = *rc::gen::element<int64_t>(4, 5, 7, AttentionChunksShape::kWindow);
  RC_ASSERT(sameInTeams([&] { return bitsOf(run(isa, s, parts, seed, oneRun, window)); }, seed));
}

// So that the property above speaks of chunks.
TEST(AttentionCut, ChunksAreTheUnitsOfFewRowsThatDecodeAndOfNothingElse) {
  const auto unitsOf = [](int64_t rows, int64_t sequences, int64_t kvHeads, int threads) {
    TestMeta meta(std::vector<TestSequence>(sequences, {2000 - rows, rows, std::vector<int32_t>(2000 / 16, 1)}), 16,
                  2000 / 16);
    std::vector<float> shared(AttentionChunksShape::sharedBytes(2, 64) / sizeof(float));
    AttentionArgs args{};
    args.meta = meta.get(), args.heads = 2 * kvHeads, args.kvHeads = kvHeads, args.headDim = 64, args.blockTokens = 16;
    const HostKernel kernel = hostKernel(Op::Attention);
    const HostWork work =
        kernel.work(&args, {.threads = threads, .shared = shared.data(), .sharedBytes = shared.size() * sizeof(float)});
    return std::pair(work.phases, kernel.units(&args, work, 0));
  };
  EXPECT_EQ(unitsOf(1, 1, 1, 4), std::pair(int64_t{3}, int64_t{32})); // 2000 positions: 32 chunks
  EXPECT_EQ(unitsOf(1, 1, 3, 2).first, 3);                            // 96 chunks; of heads two and one
  EXPECT_EQ(unitsOf(1, 1, 4, 2), std::pair(int64_t{1}, int64_t{4}));  // two heads each
  EXPECT_EQ(unitsOf(1, 9, 2, 4), std::pair(int64_t{1}, int64_t{18}));
  EXPECT_EQ(unitsOf(60, 1, 1, 2), std::pair(int64_t{1}, int64_t{10})); // 120 queries: 12 each
  EXPECT_EQ(unitsOf(1, 1, 1, 1), std::pair(int64_t{1}, int64_t{1}));
}

// The size of the cache's blocks is no part of the result either.
TEST_P(AttentionTest, BlockSizeDoesNotChangeABit) {
  Floats first;
  for (int64_t blockTokens : {1, 3, 16, 64, 128}) {
    Shape s{4, 2, 16, blockTokens};
    const Text text(s, 90, 8);
    const Floats out = run(GetParam(), s, {{&text, 0, 90}});
    if (first.empty())
      first = out;
    EXPECT_TRUE(sameBits(out.data(), first.data(), out.size())) << blockTokens;
  }
}

// Nor is where the blocks lie: apart from each other up to any block, the rest elsewhere.
TEST_P(AttentionTest, ASplitCacheDoesNotChangeABit) {
  for (Elem elem : kAllElems) {
    const Shape s{4, 2, 20, 16, elem};
    const Text long_(s, 90, 8), short_(s, 30, 9);
    const std::vector<Part> parts = {{&long_, 89, 1}, {&short_, 3, 27}, {&long_, 0, 90}};
    const Floats whole = run(GetParam(), s, parts);
    for (int64_t split : {0, 1, 2, 7, 16, 17})
      for (int64_t gap : {1, 3})
        for (bool tailFirst : {false, true}) {
          const Floats out = run(GetParam(), s, parts, 1, [&](int64_t blocks, int64_t elements) {
            return splitRun(blocks, elements, split, gap, tailFirst);
          });
          EXPECT_TRUE(sameBits(out.data(), whole.data(), out.size()))
              << "elem " << int(elem) << ", split " << split << ", gap " << gap << ", tail first " << tailFirst;
        }
  }
}

TEST(AttentionPaths, PortableAndAvx2AgreeWithinRounding) {
  if (!isaSupported(HostIsa::Avx2))
    GTEST_SKIP() << "this machine has one path only";
  Shape s{8, 2, 64, 16, Elem::F16};
  const Text text(s, 130, 4);
  const Floats a = run(HostIsa::Portable, s, {{&text, 0, 130}}), b = run(HostIsa::Avx2, s, {{&text, 0, 130}});
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(a[i], b[i], 3e-6);
}

// Prompts, single tokens, and both; heads of whole vectors and others.
TEST(AttentionPaths, Avx512GivesTheBitsOfAvx2) {
  if (!isaSupported(HostIsa::Avx512))
    GTEST_SKIP() << "this machine has no AVX-512";
  for (const Elem elem : kAllElems)
    for (const int64_t headDim : {20, 64}) {
      const Shape s{6, 2, headDim, 16, elem};
      const Text a(s, 200, 4), b(s, 90, 5);
      const std::vector<Part> parts = {{&a, 0, 200}, {&b, 89, 1}, {&b, 80, 2}, {&a, 199, 1}};
      const Floats wide = run(HostIsa::Avx512, s, parts), narrow = run(HostIsa::Avx2, s, parts);
      EXPECT_TRUE(sameBits(wide.data(), narrow.data(), wide.size()))
          << "elem " << int(elem) << ", heads of " << headDim;
    }
}

} // namespace
} // namespace headrace::kernels
