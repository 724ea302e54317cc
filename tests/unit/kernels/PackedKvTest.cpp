// SPDX-License-Identifier: Apache-2.0
//
// Packed caches: what rope_append packs is what runtime/base/Encoding.h defines, group by group, and attention over it
// is, bit for bit, attention over an F32 cache that holds the unpacked values.
#include <cmath>
#include <functional>

#include <rapidcheck/gtest.h>

#include "kernels/host/AttentionChunksHost.h"
#include "runtime/base/Encoding.h"
#include "runtime/base/HalfFloat.h"
#include "tests/unit/kernels/KernelTest.h"

namespace headrace::kernels {
namespace {

struct Heads {
  int64_t heads = 4, kvHeads = 2, headDim = 64, blockTokens = 4;
  Packing packing = {4, 64};
  int64_t rowLength() const { return (heads + 2 * kvHeads) * headDim; }
  int64_t groups() const { return headDim / packing.group; }
  int64_t units() const { return kvBlockUnits(packing, kvHeads, blockTokens, headDim); }
  int64_t elements() const { return kvBlockElements(kvHeads, blockTokens, headDim); }
};
const std::vector<Heads> kHeads = {{4, 2, 64, 4, {4, 64}},
                                   {4, 2, 64, 16, {8, 64}},
                                   {3, 1, 96, 5, {8, 32}},
                                   {2, 2, 32, 1, {4, 32}},
                                   {5, 1, 128, 16, {4, 64}}};

// One group as docs/encodings.md has it, where it has codes.
struct GroupOf {
  std::vector<uint8_t> codes;
  uint16_t scale = 0, min = 0x7e00; // none
};
GroupOf groupOf(const float *x, const Packing &of) {
  GroupOf out;
  out.codes.resize(static_cast<size_t>(of.group));
  if (const auto scale = model::quantiseGroup({x, static_cast<size_t>(of.group)}, of.codeBits, out.codes.data()))
    out.scale = scale->scale, out.min = scale->min;
  else
    std::fill(out.codes.begin(), out.codes.end(), uint8_t{0});
  return out;
}

// A block of NaN bytes, 0xff, with some rows: by the definition, byte by byte.
class BlockOf {
public:
  explicit BlockOf(const Heads &h) : h_(h), bytes_(static_cast<size_t>(h.units()), 0xff) {}
  void set(int64_t plane, int64_t line, const float *x) {
    const int64_t rows = 2 * h_.kvHeads * h_.blockTokens, row = plane * h_.blockTokens + line;
    const int64_t rowCodes = h_.headDim * h_.packing.codeBits / 8;
    for (int64_t g = 0; g < h_.groups(); ++g) {
      const GroupOf group = groupOf(x + g * h_.packing.group, h_.packing);
      uint8_t *scales = bytes_.data() + rows * rowCodes + (row * h_.groups() + g) * 4;
      std::memcpy(scales, &group.scale, 2);
      std::memcpy(scales + 2, &group.min, 2);
      for (int64_t i = 0; i < h_.packing.group; ++i) {
        const int64_t d = g * h_.packing.group + i;
        uint8_t *codes = bytes_.data() + row * rowCodes;
        if (h_.packing.codeBits == 8) {
          codes[d] = group.codes[static_cast<size_t>(i)];
        } else {
          uint8_t &pair = codes[d / 16 * 8 + d % 8];
          pair = static_cast<uint8_t>(d % 16 < 8 ? (pair & 0xf0) | group.codes[static_cast<size_t>(i)]
                                                 : (pair & 0x0f) | group.codes[static_cast<size_t>(i)] << 4);
        }
      }
    }
  }
  const std::vector<uint8_t> &bytes() const { return bytes_; }

private:
  const Heads &h_;
  std::vector<uint8_t> bytes_;
};

// A cache of so many blocks that rope_append has written rows to; the others are 0xff.
struct Appended {
  Floats qkv;
  std::vector<uint8_t> bytes;
};
Appended append(HostIsa isa, const Heads &h, TestMeta &meta, const Floats &qkv, const KvSegments &segments,
                void *home = nullptr, int64_t homeFirst = 0, int64_t homeEnd = 0, int64_t homeStride = 0) {
  Appended out{qkv, std::vector<uint8_t>(static_cast<size_t>(segments.end), 0xff)};
  RopeAppendArgs args{};
  args.meta = meta.get(), args.qkv = out.qkv.data(), args.kv = out.bytes.data(), args.segments = segments;
  args.heads = h.heads, args.kvHeads = h.kvHeads, args.headDim = h.headDim, args.blockTokens = h.blockTokens;
  args.home = home, args.homeFirst = homeFirst, args.homeEnd = homeEnd, args.homeStride = homeStride;
  args.kvPacking = h.packing;
  runKernel(Op::RopeAppend, isa, &args);
  return out;
}

// Of a group: ordinary values, one value, zeros of both signs, a range that no F16 scale has, the largest magnitudes,
// ties.
Floats kindsOfValues(const Heads &h, int64_t rows, uint64_t seed) {
  Floats out = randomFloats(static_cast<size_t>(rows * h.rowLength()), seed);
  for (size_t g = 0; g < out.size() / 32; ++g)
    for (size_t i = 0; i < 32; ++i) {
      float &x = out[g * 32 + i];
      switch (g % 8) {
      case 1:
        x = 0.3f;
        break;
      case 2:
        x = i % 2 == 0 ? 0.0f : -0.0f;
        break;
      case 3:
        x = 1e-9f * x;
        break;
      case 4:
        x = 65504.0f * (i == 5 ? 1.0f : i == 9 ? -1.0f : x);
        break;
      case 5:
        x = static_cast<float>(i % 31) / 2 - 3;
        break;
      default:
        break;
      }
    }
  return out;
}

HEADRACE_ON_EACH_ISA(PackedKvTest);

TEST(PackedKvBlock, IsAsLargeAsTheEncodingSays) {
  for (const Heads &h : kHeads)
    EXPECT_EQ(
        static_cast<uint64_t>(h.units()),
        model::Encoding::groups(h.packing.codeBits, h.packing.group).bytes(2 * h.kvHeads * h.blockTokens, h.headDim));
  // 2 x 8 heads x 16 tokens of 128 in 4 bits: 256 rows of 64 bytes, then of 8.
  const PackedKvBlock block({4, 64}, 8, 16, 128);
  EXPECT_EQ(block.codes(17), 17 * 64);
  EXPECT_EQ(block.scales(17), 256 * 64 + 17 * 8);
  EXPECT_EQ(block.bytes(), 256 * 72);
}

TEST_P(PackedKvTest, EachGroupIsPackedAsItIsDefinedAndNothingElseIsWritten) {
  for (const Heads &h : kHeads) {
    TestMeta meta({{2, 5, std::vector<int32_t>(8, 0)}}, h.blockTokens);
    const std::vector<TestSlot> slots = {{3, 0}, {1, 0}, {3, h.blockTokens - 1}, {2, h.blockTokens / 2}, {0, 0}};
    for (size_t t = 0; t < slots.size(); ++t)
      meta.ints(meta->kvSlot)[t] = static_cast<int32_t>(slots[t].block * h.blockTokens + slots[t].row);
    for (const KvSegments &segments : {oneRun(4, h.units()), splitRun(4, h.units(), 2, 3, false)}) {
      const Floats qkv = kindsOfValues(h, 5, 9);
      const Appended cache = append(GetParam(), h, meta, qkv, segments);
      std::vector<BlockOf> blocks(4, BlockOf(h));
      for (size_t t = 0; t < slots.size(); ++t)
        for (int64_t plane = 0; plane < 2 * h.kvHeads; ++plane)
          blocks[static_cast<size_t>(slots[t].block)].set(
              plane, slots[t].row, &qkv[t * static_cast<size_t>(h.rowLength()) + (h.heads + plane) * h.headDim]);
      std::vector<uint8_t> expected(cache.bytes.size(), 0xff);
      for (int64_t b = 0; b < 4; ++b)
        std::copy(blocks[b].bytes().begin(), blocks[b].bytes().end(), expected.begin() + segments.of(b));
      if (h.blockTokens == 1) // rows of block 3 are one: the last writes it
        continue;
      EXPECT_EQ(cache.bytes, expected) << "bits " << h.packing.codeBits << ", heads of " << h.headDim;
    }
  }
}

TEST_P(PackedKvTest, AppendPacksAsRopeAppendDoes) {
  for (const Heads &h : kHeads) {
    TestMeta meta({{2, 5, std::vector<int32_t>(8, 1)}}, h.blockTokens, 8);
    const KvSegments segments = splitRun(4, h.units(), 2, 3, false);
    const Floats qkv = kindsOfValues(h, 5, 9);
    std::vector<uint8_t> found(static_cast<size_t>(segments.end), 0xff);
    AppendArgs args{};
    args.meta = meta.get(), args.qkv = qkv.data(), args.kv = found.data(), args.segments = segments;
    args.heads = h.heads, args.kvHeads = h.kvHeads, args.headDim = h.headDim, args.blockTokens = h.blockTokens;
    args.kvPacking = h.packing;
    runKernel(Op::Append, GetParam(), &args);
    EXPECT_EQ(found, append(GetParam(), h, meta, qkv, segments).bytes);
    // Rows of a CUDA plan: those of F32 that hold the same values.
    for (const Elem activation : {Elem::F16, Elem::BF16}) {
      const Stored rows(activation, qkv);
      Floats values(rows.size());
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = rows.value(i);
      std::fill(found.begin(), found.end(), uint8_t{0xff});
      args.qkv = rows.bytes.data(), args.activation = activation;
      runKernel(Op::Append, GetParam(), &args);
      EXPECT_EQ(found, append(GetParam(), h, meta, values, segments).bytes) << int(activation);
    }
  }
}

TEST_P(PackedKvTest, WhatHasNoCodeMakesItsGroupNoNumberAndNoOther) {
  for (const float wrong : {kNan, INFINITY, -INFINITY, 65505.0f, -7e4f}) {
    const Heads h{.packing = {8, 32}};
    TestMeta meta({{0, 1, {1}}}, h.blockTokens);
    Floats qkv = randomFloats(static_cast<size_t>(h.rowLength()), 5);
    const int64_t plane = 3, d = 40; // v of head 1, its second group
    qkv[static_cast<size_t>((h.heads + plane) * h.headDim + d)] = wrong;
    const Appended cache = append(GetParam(), h, meta, qkv, oneRun(2, h.units()));
    const PackedKvBlock block(h.packing, h.kvHeads, h.blockTokens, h.headDim);
    for (int64_t p = 0; p < 2 * h.kvHeads; ++p)
      for (int64_t g = 0; g < h.groups(); ++g) {
        uint16_t both[2];
        std::memcpy(both, &cache.bytes[static_cast<size_t>(block.bytes() + block.scales(p * h.blockTokens) + 4 * g)],
                    4);
        EXPECT_EQ(std::isnan(model::f16ToF32(both[1])), p == plane && g == 1) << wrong;
        EXPECT_FALSE(std::isnan(model::f16ToF32(both[0])));
      }
    // It is what a search for a wrong number finds: by the group's first column.
    RopeAppendArgs args{};
    args.meta = meta.get(), args.qkv = qkv.data(), args.segments = oneRun(2, h.units());
    args.heads = h.heads, args.kvHeads = h.kvHeads, args.headDim = h.headDim, args.blockTokens = h.blockTokens;
    args.kv = const_cast<uint8_t *>(cache.bytes.data()), args.kvPacking = h.packing;
    std::vector<int64_t> found;
    args.results([&](const void *base, int64_t first, int64_t count, Elem elem, int64_t, int64_t column) {
      for (int64_t i = 0; i < count && base == args.kv; ++i) {
        EXPECT_EQ(elem, Elem::F16);
        if (std::isnan(model::f16ToF32(static_cast<const uint16_t *>(base)[first + i])))
          found.push_back(column + i);
      }
    });
    EXPECT_EQ(found, std::vector<int64_t>{(h.heads + plane) * h.headDim + 32});
  }
}

TEST_P(PackedKvTest, TheHomeHasTheRowsOfItsBlocksAsTheCacheHasThem) {
  for (const Heads &h : kHeads) {
    TestMeta meta({{0, 2 * h.blockTokens, {3, 1}}, {0, 1, {2}}}, h.blockTokens);
    const Floats qkv = kindsOfValues(h, 2 * h.blockTokens + 1, 4);
    const KvSegments segments = splitRun(4, h.units(), 2, 3, true);
    for (int64_t first = 0; first < 4; ++first)
      for (int64_t end = first; end <= 4; ++end) {
        const int64_t stride = h.units() + 8;
        std::vector<uint8_t> home(static_cast<size_t>(4 * stride), 0xff);
        const Appended cache = append(GetParam(), h, meta, qkv, segments, home.data(), first, end, stride);
        std::vector<uint8_t> expected(home.size(), 0xff);
        for (int64_t b = first; b < end; ++b) // rows that nothing wrote are 0xff in both
          std::copy_n(cache.bytes.begin() + segments.of(b), h.units(), expected.begin() + (b - first) * stride);
        ASSERT_EQ(home, expected) << "blocks " << first << " to " << end;
      }
  }
}

// A text's tokens in a packed cache, and in one of F32 that holds the unpacked values; queries of any rows.
class Twins {
public:
  Twins(HostIsa isa, const Heads &h, const std::vector<int64_t> &lengths, uint64_t seed) : isa_(isa), h_(h) {
    int64_t blocks = 1;
    for (const int64_t length : lengths) {
      tables_.emplace_back();
      for (int64_t b = 0; b * h.blockTokens < length; ++b)
        tables_.back().push_back(static_cast<int32_t>(blocks++));
    }
    std::vector<int32_t> order(static_cast<size_t>(blocks - 1));
    std::iota(order.begin(), order.end(), 1);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
    for (std::vector<int32_t> &table : tables_)
      for (int32_t &block : table)
        block = order[static_cast<size_t>(block - 1)];
    std::vector<TestSequence> sequences;
    for (size_t s = 0; s < lengths.size(); ++s)
      sequences.push_back({0, lengths[s], tables_[s]});
    TestMeta meta(sequences, h.blockTokens, blocks);
    segments_ = splitRun(blocks, h.units(), blocks / 2, 2, seed % 2 == 0);
    packed_ =
        append(isa, h, meta, randomFloats(static_cast<size_t>(meta->numTokens * h.rowLength()), seed), segments_).bytes;
    plainSegments_ = oneRun(blocks, h.elements());
    plain_.assign(static_cast<size_t>(plainSegments_.end), kNan);
    unpackAll(blocks);
  }

  // Of each text the last `rows` rows, over the packed cache or the other one.
  Floats attend(const std::vector<int64_t> &lengths, const std::vector<int64_t> &rows, bool packed, uint64_t seed,
                int64_t window = AttentionChunksShape::kWindow) {
    std::vector<TestSequence> sequences;
    for (size_t s = 0; s < lengths.size(); ++s)
      sequences.push_back({lengths[s] - rows[s], rows[s], tables_[s]});
    TestMeta meta(sequences, h_.blockTokens, plainSegments_.end / h_.elements());
    Floats qkv = randomFloats(static_cast<size_t>(meta->numTokens * h_.rowLength()), seed);
    Floats out(static_cast<size_t>(meta->numTokens * h_.heads * h_.headDim), kNan);
    Floats workspace(attentionWorkspaceBytes(Backend::Host, 1, h_.heads, h_.headDim, 1) / sizeof(float), kNan);
    AttentionArgs args{};
    args.meta = meta.get(), args.qkv = qkv.data(), args.out = out.data(), args.workspace = workspace.data();
    args.kv = packed ? static_cast<const void *>(packed_.data()) : plain_.data();
    args.segments = packed ? segments_ : plainSegments_;
    args.heads = h_.heads, args.kvHeads = h_.kvHeads, args.headDim = h_.headDim, args.blockTokens = h_.blockTokens;
    args.maxContext = 1 << 20, args.scale = 1 / std::sqrt(static_cast<float>(h_.headDim)), args.kvElem = Elem::F32;
    args.kvPacking = packed ? h_.packing : Packing{};
    runKernel(Op::Attention, isa_, &args, workspace.size() * sizeof(float),
              AttentionChunksShape::bytes(window, h_.heads / h_.kvHeads, h_.headDim));
    return out;
  }
  // Bytes of a token's row.
  uint8_t *scalesOf(int64_t text, int64_t token, int64_t plane) {
    const PackedKvBlock block(h_.packing, h_.kvHeads, h_.blockTokens, h_.headDim);
    const int32_t number = tables_[static_cast<size_t>(text)][static_cast<size_t>(token / h_.blockTokens)];
    return &packed_[static_cast<size_t>(segments_.of(number) +
                                        block.scales(plane * h_.blockTokens + token % h_.blockTokens))];
  }

private:
  // One by one, from where bytes are; what nothing wrote stays NaN.
  void unpackAll(int64_t blocks) {
    const int64_t rows = 2 * h_.kvHeads * h_.blockTokens, rowCodes = h_.headDim * h_.packing.codeBits / 8;
    for (int64_t b = 0; b < blocks; ++b)
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t d = 0; d < h_.headDim; ++d) {
          const uint8_t *block = packed_.data() + segments_.of(b), *codes = block + row * rowCodes;
          model::GroupScale scale;
          std::memcpy(&scale, block + rows * rowCodes + (row * h_.groups() + d / h_.packing.group) * 4, 4);
          const uint32_t pair = codes[d / 16 * 8 + d % 8];
          plain_[static_cast<size_t>(plainSegments_.of(b) + row * h_.headDim + d)] =
              model::unpackedValue(h_.packing.codeBits == 8 ? codes[d]
                                   : d % 16 < 8             ? pair & 15
                                                            : pair >> 4,
                                   scale);
        }
  }

  const HostIsa isa_;
  const Heads h_;
  std::vector<std::vector<int32_t>> tables_;
  KvSegments segments_, plainSegments_;
  std::vector<uint8_t> packed_;
  Floats plain_;
};

TEST_P(PackedKvTest, AttentionHasTheBitsOfACacheThatHoldsTheUnpackedValues) {
  for (const Heads &h : kHeads) {
    const std::vector<int64_t> lengths = {150, 1, 70, 64};
    Twins twins(GetParam(), h, lengths, 3);
    // Decoding alone; a prompt whole, beside rows that decode; chunks of prompts.
    for (const std::vector<int64_t> &rows :
         {std::vector<int64_t>{1, 1, 1, 1}, std::vector<int64_t>{150, 1, 1, 64}, std::vector<int64_t>{7, 1, 30, 2}}) {
      const Floats packed = twins.attend(lengths, rows, true, 8), plain = twins.attend(lengths, rows, false, 8);
      ASSERT_TRUE(sameBits(packed.data(), plain.data(), packed.size()))
          << "bits " << h.packing.codeBits << ", heads of " << h.headDim << ", rows " << rows[0];
      for (const float value : packed)
        ASSERT_FALSE(std::isnan(value));
    }
  }
}

TEST_P(PackedKvTest, ANumberThatIsNoneReachesTheResultFromKeysAndFromValuesAlone) {
  for (const Heads &h : kHeads)
    for (const int64_t plane : {int64_t{0}, h.kvHeads}) // k, v of the first head
      for (const int64_t rows : {1, 60}) {
        Twins twins(GetParam(), h, {100}, 4);
        const uint16_t none = 0x7e00;
        std::memcpy(twins.scalesOf(0, 20, plane) + 2, &none, 2);
        const Floats out = twins.attend({100}, {rows}, true, 6);
        const int64_t group = h.heads / h.kvHeads;
        for (int64_t row = 0; row < rows; ++row)
          for (int64_t head = 0; head < h.heads; ++head) {
            const float *at = out.data() + (row * h.heads + head) * h.headDim;
            // Of values, the columns of the group; of keys, all.
            EXPECT_EQ(std::isnan(at[0]), head < group) << "plane " << plane << ", row " << row << ", head " << head;
          }
      }
}

RC_GTEST_PROP(PackedKvProperty, AnyCutInAnyOrderGivesTheBitsOfTheTwin, ()) {
  const auto isa = *rc::gen::elementOf(testedIsas());
  Heads h;
  h.kvHeads = *rc::gen::inRange<int64_t>(1, 4);
  h.heads = h.kvHeads * *rc::gen::element<int64_t>(1, 2, 3, 7, 13);
  h.headDim = *rc::gen::element<int64_t>(32, 64, 96, 128);
  h.blockTokens = *rc::gen::element<int64_t>(1, 5, 16);
  h.packing = {*rc::gen::element(4, 8), h.headDim % 64 == 0 ? 64 : 32};
  const uint64_t seed = *rc::gen::arbitrary<uint32_t>();
  const bool decode = *rc::gen::element(true, true, false);
  std::vector<int64_t> lengths, rows;
  for (int64_t i = *rc::gen::inRange<int64_t>(1, 4); i > 0; --i) {
    lengths.push_back(*rc::gen::inRange<int64_t>(1, decode ? 700 : 150));
    rows.push_back(decode ? 1 : *rc::gen::inRange<int64_t>(1, lengths.back() + 1));
  }
  const int64_t window = *rc::gen::element<int64_t>(4, 7, AttentionChunksShape::kWindow);
  Twins twins(isa, h, lengths, seed);
  const auto plain = bitsOf(twins.attend(lengths, rows, false, seed));
  RC_ASSERT(bitsOf(twins.attend(lengths, rows, true, seed)) == plain);
  RC_ASSERT(sameInTeams([&] { return bitsOf(twins.attend(lengths, rows, true, seed, window)) == plain; }, seed));
}

} // namespace
} // namespace headrace::kernels
