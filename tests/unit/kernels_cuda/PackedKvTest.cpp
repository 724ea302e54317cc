// SPDX-License-Identifier: Apache-2.0
//
// Packed caches on CUDA: what rope_append packs are the host's bytes, and attention over it is, bit for bit, attention
// over an F32 cache that holds the unpacked values.
#include <cmath>
#include <string_view>

#include "kernels/AttentionSizes.h"
#include "kernels/AttentionTiles.h"
#include "tests/unit/kernels_cuda/PagedText.h"

namespace headrace::kernels {
namespace {

struct PackedHeads {
  int64_t heads, kvHeads, headDim, blockTokens;
  Packing packing;
  int64_t rowLength() const { return (heads + 2 * kvHeads) * headDim; }
  int64_t units() const { return kvBlockUnits(packing, kvHeads, blockTokens, headDim); }
};
std::ostream &operator<<(std::ostream &out, const PackedHeads &h) {
  return out << "heads " << h.heads << "/" << h.kvHeads << " of " << h.headDim << ", blocks of " << h.blockTokens
             << ", " << h.packing.codeBits << " bits in groups of " << h.packing.group;
}
const std::vector<PackedHeads> kPackedHeads = {{4, 2, 64, 4, {4, 64}},   {4, 2, 64, 16, {8, 64}},
                                               {3, 1, 96, 5, {8, 32}},   {2, 2, 32, 1, {4, 32}},
                                               {5, 1, 128, 16, {4, 64}}, {2, 1, 256, 3, {8, 64}}};

// Of a group: ordinary values, one value, zeros of both signs, a range that no F16 scale has, large magnitudes, ties,
// and three that have no code.
Floats kindsOf(size_t count, uint64_t seed) {
  Floats out = randomFloats(count, seed);
  for (size_t g = 0; g < out.size() / 32; ++g)
    for (size_t i = 0; i < 32; ++i) {
      float &x = out[g * 32 + i];
      switch (g % 11) {
      case 1:
        x = 0.3125f;
        break;
      case 2:
        x = i % 2 == 0 ? 0.0f : -0.0f;
        break;
      case 3:
        x = 1e-7f * x;
        break;
      case 4:
        x = 65280.0f * (i == 5 ? 1.0f : i == 9 ? -1.0f : x); // BF16 has it
        break;
      case 5:
        x = static_cast<float>(i % 31) / 2 - 3;
        break;
      case 6:
        x = i == 7 ? kNan : x;
        break;
      case 7:
        x = i == 31 ? -INFINITY : x;
        break;
      case 8:
        x = i == 0 ? 7e4f : x;
        break;
      default:
        break;
      }
    }
  return out;
}

// What the host's kernel appends to a cache of 0xff, and to its home.
struct HostAppended {
  std::vector<uint8_t> cache, home;
};
HostAppended appendOnHost(const PackedHeads &h, TestMeta &meta, Floats qkv, const KvSegments &segments,
                          int64_t homeFirst, int64_t homeEnd, int64_t homeStride) {
  HostAppended out{std::vector<uint8_t>(static_cast<size_t>(segments.end), 0xff),
                   std::vector<uint8_t>(static_cast<size_t>(8 * homeStride), 0xff)};
  RopeAppendArgs args{};
  args.meta = meta.get(), args.qkv = qkv.data(), args.kv = out.cache.data(), args.segments = segments;
  args.home = out.home.data(), args.homeFirst = homeFirst, args.homeEnd = homeEnd, args.homeStride = homeStride;
  args.heads = h.heads, args.kvHeads = h.kvHeads, args.headDim = h.headDim, args.blockTokens = h.blockTokens;
  args.kvPacking = h.packing;
  hostKernel(Op::RopeAppend)(&args);
  return out;
}

TEST(CudaPackedKv, RowsHaveTheHostsBytesAndNothingElseIsWritten) {
  int turn = 0;
  for (const Elem activation : kAllElems)
    for (const PackedHeads &h : kPackedHeads)
      for (const bool changed : {false, true}) { // rotated and normalised
        SCOPED_TRACE(testing::Message() << h << ", type " << int(activation) << (changed ? ", rotated" : ""));
        if (changed && activation != Elem::F32) // whose values before they are rounded nobody sees
          continue;
        TestMeta hostMeta({{2, 3, {3, 1, 5, 6, 4}}, {0, 1, {2}}}, h.blockTokens);
        DeviceMeta meta(hostMeta);
        const KvSegments segments =
            turn % 2 == 0 ? oneRun(7, h.units()) : splitRun(7, h.units(), 2 + turn % 3, 2, turn % 4 == 1);
        ++turn;
        const int64_t stride = h.units() + 8, homeFirst = turn % 3, homeEnd = 6;
        DeviceStored qkv(activation, kindsOf(static_cast<size_t>(4 * h.rowLength()), 7));
        DeviceArray<uint8_t> cache(static_cast<size_t>(segments.end), uint8_t{0xff}),
            home(static_cast<size_t>(8 * stride), uint8_t{0xff});
        DeviceArray<float> frequencies(Floats(static_cast<size_t>(h.headDim / 2), 0.25f)),
            weights(randomFloats(static_cast<size_t>(2 * h.headDim), 11));
        RopeAppendArgs args{};
        args.meta = meta.get(), args.qkv = qkv.data(), args.kv = cache.get(), args.segments = segments;
        args.home = home.get(), args.homeFirst = homeFirst, args.homeEnd = homeEnd, args.homeStride = stride;
        args.inverseFrequencies = changed ? frequencies.get() : nullptr;
        args.headNorms = changed ? weights.get() : nullptr, args.eps = 1e-5f;
        args.heads = h.heads, args.kvHeads = h.kvHeads, args.headDim = h.headDim, args.blockTokens = h.blockTokens;
        args.activation = activation, args.kvPacking = h.packing;
        runOpInTurn(Op::RopeAppend, args, {6, 3, 64}, static_cast<uint64_t>(turn));
        // As they lie in qkv now, rotated ones too.
        const HostAppended expected = appendOnHost(h, hostMeta, qkv.values(), segments, homeFirst, homeEnd, stride);
        ASSERT_EQ(cache.values(), expected.cache);
        ASSERT_EQ(home.values(), expected.home);
      }
}

// Rows of activation blocks, as the last part of rebuild_kv has them: those of the block's earlier tokens alone.
TEST(CudaPackedKv, RebuiltRowsHaveTheHostsBytesToo) {
  for (const PackedHeads &h : {PackedHeads{0, 2, 64, 4, {4, 64}}, PackedHeads{0, 3, 96, 4, {8, 32}}}) {
    SCOPED_TRACE(h);
    // Blocks 10 and 11 are activation blocks 0 and 1: all four tokens of the one, two of the other.
    TestMeta hostMeta({{6, 1, {11, 10}}}, h.blockTokens, 64, {10, 4});
    DeviceMeta meta(hostMeta);
    const Floats values = randomFloats(static_cast<size_t>(8 * h.rowLength()), 3);
    DeviceStored qkv(Elem::F16, values);
    const KvSegments segments = oneRun(4, h.units());
    DeviceArray<uint8_t> cache(static_cast<size_t>(segments.end), uint8_t{0xff});
    AppendActArgs args{};
    args.rope.meta = meta.get(), args.rope.qkv = qkv.data(), args.rope.kv = cache.get();
    args.rope.segments = {.act = 0, .actStride = h.units(), .firstAct = 0};
    args.rope.kvHeads = h.kvHeads, args.rope.headDim = h.headDim, args.rope.blockTokens = h.blockTokens;
    args.rope.activation = Elem::F16, args.rope.kvPacking = h.packing;
    args.rows = 8;
    const char *why = nullptr;
    const CudaLaunch launch = cudaLaunch(args, &why);
    ASSERT_NE(launch.kernel, nullptr) << why;
    runKernel(launch, args, 3);
    // The host's rope_append of the same rows: row r of block 11 - 10, then of block 0.
    TestMeta slots({{0, 4, {1}}, {0, 2, {0}}}, h.blockTokens);
    Floats rows = qkv.values();
    rows.resize(static_cast<size_t>(6 * h.rowLength()));
    EXPECT_EQ(cache.values(), appendOnHost(h, slots, rows, segments, 0, 0, 0).cache);
  }
}

// Element by element, from where bytes are; what nothing wrote is NaN.
Floats unpackedCache(const PackedHeads &h, const std::vector<uint8_t> &cache, int64_t blocks) {
  const int64_t rows = 2 * h.kvHeads * h.blockTokens, rowCodes = h.headDim * h.packing.codeBits / 8;
  const int64_t groups = h.headDim / h.packing.group;
  Floats out;
  for (int64_t b = 0; b < blocks; ++b)
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t d = 0; d < h.headDim; ++d) {
        const uint8_t *block = cache.data() + b * h.units(), *codes = block + row * rowCodes;
        uint16_t scale[2];
        std::memcpy(scale, block + rows * rowCodes + (row * groups + d / h.packing.group) * 4, 4);
        const int pair = codes[d / 16 * 8 + d % 8];
        const int code = h.packing.codeBits == 8 ? codes[d] : d % 16 < 8 ? pair & 15 : pair >> 4;
        out.push_back(static_cast<float>(code) * floatFromF16(scale[0]) + floatFromF16(scale[1]));
      }
  return out;
}

// The kernel for any size, of types and sizes that tensor cores do not take.
TEST(CudaPackedKv, AttentionHasTheBitsOfACacheThatHoldsTheUnpackedValues) {
  for (const Elem activation : kAllElems)
    for (const PackedHeads &h : kPackedHeads) {
      if (activation != Elem::F32 && tensorCoreHead(h.headDim) >= 0 && h.units() % kCacheUnit == 0)
        continue;
      SCOPED_TRACE(testing::Message() << h << ", type " << int(activation));
      const int64_t length = 140, blocks = (length + h.blockTokens - 1) / h.blockTokens + 1;
      std::vector<int32_t> table;
      for (int64_t b = blocks - 1; b > 0; --b)
        table.push_back(static_cast<int32_t>(b));
      TestMeta whole({{0, length, table}}, h.blockTokens, blocks);
      const std::vector<uint8_t> packed =
          appendOnHost(h, whole, randomFloats(static_cast<size_t>(length * h.rowLength()), 5),
                       oneRun(blocks, h.units()), 0, 0, 0)
              .cache;
      // The last row, and three.
      for (const int64_t rows : {1, 3}) {
        TestMeta hostMeta({{length - rows, rows, table}}, h.blockTokens, blocks);
        DeviceMeta meta(hostMeta);
        DeviceStored qkv(activation, randomFloats(static_cast<size_t>(rows * h.rowLength()), 8));
        const auto attend = [&](const void *kv, const KvSegments &segments, const Packing &packing) {
          DeviceStored out(activation, static_cast<size_t>(rows * h.heads * h.headDim), 7.0f);
          AttentionArgs args{};
          args.meta = meta.get(), args.qkv = qkv.data(), args.kv = kv, args.segments = segments, args.out = out.data();
          args.heads = h.heads, args.kvHeads = h.kvHeads, args.headDim = h.headDim, args.blockTokens = h.blockTokens;
          args.maxContext = 256, args.scale = 1 / std::sqrt(static_cast<float>(h.headDim)), args.kvElem = Elem::F32;
          args.activation = activation, args.kvPacking = packing;
          runOp(Op::Attention, args, {rows, 1, 256}, 2);
          return out.raw();
        };
        DeviceArray<uint8_t> cache(packed);
        DeviceArray<float> values(unpackedCache(h, packed, blocks));
        const KvSegments plain = oneRun(blocks, kvBlockElements(h.kvHeads, h.blockTokens, h.headDim));
        const std::vector<uint8_t> twin = attend(values.get(), plain, {});
        ASSERT_EQ(attend(cache.get(), oneRun(blocks, h.units()), h.packing), twin);
        Stored result;
        result.elem = activation, result.bytes = twin;
        for (size_t i = 0; i < result.size(); ++i)
          ASSERT_TRUE(std::isfinite(result.value(i)));
      }
    }
}

// Texts of several lengths in one packed cache, and in one of elements of `activation` that are its values, rounded.
struct PackedTexts {
  PackedHeads h;
  Elem activation;
  std::vector<int64_t> lengths;
  std::vector<std::vector<int32_t>> tables;
  int64_t blocks = 1;
  std::vector<uint8_t> packed;
  Stored values;

  PackedTexts(const PackedHeads &heads, Elem type, const std::vector<int64_t> &of)
      : h(heads), activation(type), lengths(of) {
    std::vector<TestSequence> whole;
    for (const int64_t length : lengths) {
      tables.emplace_back();
      for (int64_t b = 0; b * h.blockTokens < length; ++b)
        tables.back().insert(tables.back().begin(), static_cast<int32_t>(blocks++));
      whole.push_back({0, length, tables.back()});
    }
    TestMeta meta(whole, h.blockTokens, blocks);
    packed = appendOnHost(h, meta, randomFloats(static_cast<size_t>(meta->numTokens * h.rowLength()), 5),
                          oneRun(blocks, h.units()), 0, 0, 0)
                 .cache;
    values = Stored(activation, unpackedCache(h, packed, blocks));
  }

  // Of each text the last `rows` rows, in a bucket of `shape`, over the one cache or the other.
  std::vector<uint8_t> attend(const std::vector<int64_t> &rows, const CudaShape &shape, bool ofPacked) const {
    std::vector<TestSequence> sequences;
    for (size_t s = 0; s < lengths.size(); ++s)
      sequences.push_back({lengths[s] - rows[s], rows[s], tables[s]});
    TestMeta hostMeta(sequences, h.blockTokens, blocks);
    DeviceMeta meta(hostMeta);
    DeviceStored qkv(activation, randomFloats(static_cast<size_t>(shape.tokens * h.rowLength()), 8)),
        out(activation, static_cast<size_t>(shape.tokens * h.heads * h.headDim), 7.0f);
    DeviceArray<uint8_t> cache(ofPacked ? packed : values.bytes),
        workspace(attentionWorkspaceBytes(Backend::Cuda, shape.sequences, h.heads, h.headDim, shape.context),
                  uint8_t{0xff});
    AttentionArgs args{};
    args.meta = meta.get(), args.qkv = qkv.data(), args.kv = cache.get(), args.out = out.data();
    args.segments = oneRun(blocks, ofPacked ? h.units() : kvBlockElements(h.kvHeads, h.blockTokens, h.headDim));
    args.workspace = workspace.get(), args.arrivals = oneArrivals().get();
    args.heads = h.heads, args.kvHeads = h.kvHeads, args.headDim = h.headDim, args.blockTokens = h.blockTokens;
    args.maxContext = shape.context, args.scale = 4 / std::sqrt(static_cast<float>(h.headDim));
    args.kvElem = args.activation = activation;
    args.kvPacking = ofPacked ? h.packing : Packing{};
    const char *why = nullptr;
    const CudaLaunch launch = cudaLaunch(Op::Attention, &args, shape, &why);
    EXPECT_EQ(std::string_view(launch.kernel).find("attention_any"), std::string_view::npos) << launch.kernel;
    EXPECT_EQ(std::string_view(launch.kernel).ends_with("_packed"), ofPacked) << launch.kernel;
    runKernel(launch, args, 2);
    return out.raw();
  }
};

// Rows that decode, of one split and of two; prompts, chunks and rows that decode beside them.
TEST(CudaPackedKv, TensorCoresHaveTheBitsOfElementsThatAreTheValuesRounded) {
  for (const Elem activation : {Elem::F16, Elem::BF16})
    for (const PackedHeads &h : {PackedHeads{4, 2, 64, 16, {4, 64}},
                                 {4, 2, 64, 8, {8, 64}},
                                 {7, 1, 96, 16, {8, 32}},
                                 {3, 3, 96, 32, {4, 32}},
                                 {8, 2, 128, 16, {4, 64}},
                                 {20, 1, 128, 16, {8, 64}}}) {
      SCOPED_TRACE(testing::Message() << h << ", type " << int(activation));
      const PackedTexts texts(h, activation, {1, 15, 16, 65, 530});
      const std::vector<int64_t> decode(5, 1), mixed = {1, 15, 1, 33, 1};
      for (const auto &[rows, shape] :
           {std::pair{decode, CudaShape{6, 6, 600}}, std::pair{mixed, CudaShape{64, 5, 600}}}) {
        const std::vector<uint8_t> of = texts.attend(rows, shape, true);
        ASSERT_EQ(of, texts.attend(rows, shape, false)) << (rows == decode ? "decode" : "mixed");
        Stored result;
        result.elem = activation, result.bytes = of;
        for (size_t i = 0; i < static_cast<size_t>((rows == decode ? 5 : 51) * h.heads * h.headDim); ++i)
          ASSERT_TRUE(std::isfinite(result.value(i)));
      }
    }
}

// Of keys, and of values alone.
TEST(CudaPackedKv, ANumberThatIsNoneReachesTheResult) {
  const PackedHeads h{4, 2, 64, 16, {8, 64}};
  TestMeta whole({{0, 20, {1, 2}}}, h.blockTokens);
  for (const int64_t plane : {int64_t{0}, h.kvHeads}) { // k, v of the first head
    Floats rows = randomFloats(static_cast<size_t>(20 * h.rowLength()), 5);
    rows[static_cast<size_t>(3 * h.rowLength() + (h.heads + plane) * h.headDim + 9)] = 7e4f;
    DeviceArray<uint8_t> cache(appendOnHost(h, whole, rows, oneRun(3, h.units()), 0, 0, 0).cache);
    TestMeta hostMeta({{19, 1, {1, 2}}}, h.blockTokens);
    DeviceMeta meta(hostMeta);
    DeviceStored qkv(Elem::F16, randomFloats(static_cast<size_t>(h.rowLength()), 8)),
        out(Elem::F16, static_cast<size_t>(h.heads * h.headDim), 7.0f);
    AttentionArgs args{};
    args.meta = meta.get(), args.qkv = qkv.data(), args.kv = cache.get(), args.out = out.data();
    args.segments = oneRun(3, h.units()), args.heads = h.heads, args.kvHeads = h.kvHeads, args.headDim = h.headDim;
    args.blockTokens = h.blockTokens, args.maxContext = 64, args.scale = 0.125f, args.activation = Elem::F16;
    args.kvPacking = h.packing;
    runOp(Op::Attention, args, {1, 1, 64});
    const Floats values = out.values();
    for (int64_t head = 0; head < h.heads; ++head)
      EXPECT_EQ(std::isnan(values[static_cast<size_t>(head * h.headDim)]), head < 2) << "plane " << plane;
  }
}

} // namespace
} // namespace headrace::kernels
