// SPDX-License-Identifier: Apache-2.0
//
// Which CUDA kernel an op takes, and its launch. Plain C++: it is compiled and tested where no CUDA is.
#include "kernels/AttentionSizes.h"
#include "kernels/AttentionTiles.h"
#include "kernels/CudaGrid.h"
#include "kernels/CudaKernels.h"

#include <string_view>

namespace headrace::kernels {
namespace {

// Rows and elements beyond these blocks are taken in turn: enough to fill any GPU several times.
constexpr int64_t kMostRowBlocks = 4096, kMostElementBlocks = 8192;
constexpr int64_t kMostGridYz = 65535, kMostGridX = 2147483647;

constexpr int64_t atLeastOne(int64_t n) { return n > 1 ? n : 1; }
constexpr int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t divideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool valid(Elem elem) { return elem == Elem::F32 || elem == Elem::F16 || elem == Elem::BF16; }
bool valid16(Elem elem) { return elem == Elem::F16 || elem == Elem::BF16; }

// One of three names, by element type.
const char *pick(Elem elem, const char *f32, const char *f16, const char *bf16) {
  return elem == Elem::F32 ? f32 : elem == Elem::F16 ? f16 : bf16;
}

CudaLaunch launch(const char *kernel, int64_t x, int64_t y, int64_t z, int64_t threads, int64_t sharedBytes) {
  CudaLaunch result;
  result.kernel = kernel;
  result.grid[0] = static_cast<uint32_t>(x);
  result.grid[1] = static_cast<uint32_t>(y);
  result.grid[2] = static_cast<uint32_t>(z);
  result.block[0] = static_cast<uint32_t>(threads);
  result.sharedBytes = static_cast<uint32_t>(sharedBytes);
  return result;
}

CudaLaunch refuse(const char **why, const char *reason) {
  if (why != nullptr)
    *why = reason;
  return {};
}

constexpr const char *kKvGroups = "packed KV caches have heads of whole groups of 32 or 64, in codes of 4 or 8 bits";
// Which of four names: of three element types, then packed.
int cacheIndex(Elem elem, const Packing &packing) { return packing.codeBits != 0 ? 3 : static_cast<int>(elem); }
bool groupsDivide(const Packing &packing, int64_t headDim) {
  return (packing.codeBits == 4 || packing.codeBits == 8) && (packing.group == 32 || packing.group == 64) &&
         headDim % packing.group == 0;
}
constexpr const char *kElems = "element types are F32, F16 and BF16";

CudaLaunch rows(const char *kernel, int64_t count, int64_t threads, int64_t sharedBytes) {
  return launch(kernel, least(atLeastOne(count), kMostRowBlocks), 1, 1, threads, sharedBytes);
}

// Elements in groups of eight, a group a thread.
CudaLaunch elements(const char *kernel, int64_t count) {
  return launch(kernel, least(atLeastOne(divideUp(count, 8 * 256)), kMostElementBlocks), 1, 1, 256, 0);
}

CudaLaunch norm(const NormArgs &args, const CudaShape &shape, const char **why) {
  if (!valid(args.activation))
    return refuse(why, kElems);
  // Depends on `hidden` only: the order of a row's sum does.
  const int64_t threads = args.hidden <= 1024 ? 128 : args.hidden <= 8192 ? 256 : 512;
  return rows(pick(args.activation, "norm_f32", "norm_f16", "norm_bf16"), shape.tokens, threads, 32 * sizeof(float));
}

constexpr int64_t kRopeThreads = 256; // at most
constexpr const char *kHeadSizes = "rope_append and rotate take head sizes from 1 to 12288, with norms to 12287";

// Vectors of rows, to be normalised where `normed`, and staged as F32 where `staged`.
CudaLaunch ropeRows(const char *kernel, int64_t headDim, const RopePlanes &planes, bool normed, bool staged,
                    const CudaShape &shape, const char **why) {
  if (headDim < 1)
    return refuse(why, kHeadSizes);
  // Sixteen elements a thread, or a pair of them; as few blocks a row as have a thread for each, evenly filled.
  const int64_t half = headDim / 2, parts = half > 0 && half % 8 == 0 ? half / 8 : headDim - half;
  const int64_t blocks =
      atLeastOne(least(divideUp(planes.count * parts, kRopeThreads), least(planes.count, kMostGridYz)));
  const int64_t mine = planes.perBlock(blocks), threads = least(divideUp(mine * parts, 32) * 32, kRopeThreads);
  const int64_t factors = normed ? mine : 0; // one a vector of a block
  const int64_t sharedBytes =
      ((staged ? mine * headDim : 0) + half * 2 + factors) * static_cast<int64_t>(sizeof(float));
  if (sharedBytes > 48 * 1024)
    return refuse(why, kHeadSizes);
  return launch(kernel, least(atLeastOne(shape.tokens), kMostRowBlocks), blocks, 1, threads, sharedBytes);
}

CudaLaunch ropeAppend(const RopeAppendArgs &args, const CudaShape &shape, const char **why) {
  static constexpr const char *kNames[3][4] = {
      {"rope_append_f32_f32", "rope_append_f32_f16", "rope_append_f32_bf16", "rope_append_f32_packed"},
      {"rope_append_f16_f32", "rope_append_f16_f16", "rope_append_f16_bf16", "rope_append_f16_packed"},
      {"rope_append_bf16_f32", "rope_append_bf16_f16", "rope_append_bf16_bf16", "rope_append_bf16_packed"}};
  if (!valid(args.activation) || !valid(args.kvElem))
    return refuse(why, kElems);
  const bool packed = args.kvPacking.codeBits != 0;
  if (packed && args.headDim > 0 && !groupsDivide(args.kvPacking, args.headDim))
    return refuse(why, kKvGroups);
  return ropeRows(kNames[static_cast<int>(args.activation)][cacheIndex(args.kvElem, args.kvPacking)], args.headDim,
                  ropePlanes(args), args.headNorms != nullptr, packed, shape, why);
}

CudaLaunch rotate(const RotateArgs &args, const CudaShape &shape, const char **why) {
  if (!valid(args.activation))
    return refuse(why, kElems);
  return ropeRows(pick(args.activation, "rotate_f32", "rotate_f16", "rotate_bf16"), args.headDim, ropePlanes(args),
                  args.headNorms != nullptr, /*staged=*/false, shape, why);
}

constexpr const char *kDecodeNames[2][4] = {
    {"attention_decode_f16_64", "attention_decode_f16_80", "attention_decode_f16_96", "attention_decode_f16_128"},
    {"attention_decode_bf16_64", "attention_decode_bf16_80", "attention_decode_bf16_96", "attention_decode_bf16_128"}};
constexpr const char *kPrefillNames[2][4][2] = {
    {{"attention_prefill_f16_64_m64", "attention_prefill_f16_64_m128"},
     {"attention_prefill_f16_80_m64", nullptr},
     {"attention_prefill_f16_96_m64", nullptr},
     {"attention_prefill_f16_128_m64", "attention_prefill_f16_128_m128"}},
    {{"attention_prefill_bf16_64_m64", "attention_prefill_bf16_64_m128"},
     {"attention_prefill_bf16_80_m64", nullptr},
     {"attention_prefill_bf16_96_m64", nullptr},
     {"attention_prefill_bf16_128_m64", "attention_prefill_bf16_128_m128"}}};
// Of packed caches, whose heads are whole groups: none of 80.
constexpr const char *kPackedDecodeNames[2][4] = {
    {"attention_decode_f16_64_packed", nullptr, "attention_decode_f16_96_packed", "attention_decode_f16_128_packed"},
    {"attention_decode_bf16_64_packed", nullptr, "attention_decode_bf16_96_packed",
     "attention_decode_bf16_128_packed"}};
constexpr const char *kPackedPrefillNames[2][4] = {
    {"attention_prefill_f16_64_m64_packed", nullptr, "attention_prefill_f16_96_m64_packed",
     "attention_prefill_f16_128_m64_packed"},
    {"attention_prefill_bf16_64_m64_packed", nullptr, "attention_prefill_bf16_96_m64_packed",
     "attention_prefill_bf16_128_m64_packed"}};
constexpr const char *kAnyNames[3][4] = {
    {"attention_any_f32_f32", "attention_any_f32_f16", "attention_any_f32_bf16", "attention_any_f32_packed"},
    {"attention_any_f16_f32", "attention_any_f16_f16", "attention_any_f16_bf16", "attention_any_f16_packed"},
    {"attention_any_bf16_f32", "attention_any_bf16_f16", "attention_any_bf16_bf16", "attention_any_bf16_packed"}};

// Tiles of 128 queries read the cache half as often as tiles of 64; they pay where they still fill the device.
constexpr int64_t kTilesForLarge = 256;

constexpr const char *kFarSpan =
    "attention with tensor cores takes a KV cache whose first and last byte are at most 128 GiB apart";

CudaLaunch attention(const AttentionArgs &args, const CudaShape &shape, const char **why) {
  if (!valid(args.activation) || !valid(args.kvElem))
    return refuse(why, kElems);
  if (args.kvHeads < 1 || args.heads < 1 || args.heads % args.kvHeads != 0)
    return refuse(why, "attention needs query heads in equal groups, one a key head");
  if (args.headDim < 1 || args.headDim > kAnyAttentionDim)
    return refuse(why, "attention takes head sizes up to 256");
  if (args.blockTokens < 1)
    return refuse(why, "attention needs KV blocks of one token at least");
  const int64_t group = args.heads / args.kvHeads, tokens = atLeastOne(shape.tokens);
  const int size = tensorCoreHead(args.headDim), elem = args.activation == Elem::F16 ? 0 : 1;
  if (args.kvPacking.codeBits != 0 && !groupsDivide(args.kvPacking, args.headDim))
    return refuse(why, kKvGroups);
  const bool packed = args.kvPacking.codeBits != 0;
  // Units are 16 bytes of a packed cache: where they do not count it, the kernel for any size does.
  const bool tensorCores = size >= 0 && valid16(args.activation) &&
                           (packed ? args.kvPacking.group == packedGroup(args.headDim) && countsInUnits(args.segments)
                                   : args.kvElem == args.activation);
  if (tensorCores && !packed && !countsInUnits(args.segments))
    return refuse(why, args.segments.end > kCacheUnit << 32
                           ? kFarSpan
                           : "attention with tensor cores takes a KV cache of blocks at multiples of 16 elements");
  const int64_t decodeBytes =
      packed ? DecodeTiles::packedSharedBytes(args.headDim) : DecodeTiles::sharedBytes(args.headDim);
  if (tensorCores && shape.decode()) {
    const int64_t y = args.kvHeads * headTiles(group), splits = atLeastOne(CudaWorkspace::splits(args.maxContext));
    if (tokens <= kMostGridYz && y <= kMostGridYz && tokens * y <= CudaWorkspace::kArrivals)
      return launch((packed ? kPackedDecodeNames : kDecodeNames)[elem][size], splits, y, tokens,
                    DecodeTiles::kWarps * 32, decodeBytes);
  }
  if (tensorCores && args.kvHeads <= kMostGridYz) {
    const bool large = !packed && kPrefillNames[elem][size][1] != nullptr &&
                       tokens * group / PrefillTiles::queries(2) * args.kvHeads >= kTilesForLarge;
    const int rowTiles = large ? 2 : 1;
    const int64_t tiles =
        queryTiles(tokens, atLeastOne(shape.sequences), group, int64_t{PrefillTiles::queries(rowTiles)});
    if (tiles <= kMostGridX) {
      // Planes of blocks for sequences of one row, where there are words to count their arrivals in.
      const int64_t sequences = atLeastOne(shape.sequences), headBlocks = headTiles(group);
      const int64_t context = shape.context > 0 ? least(shape.context, args.maxContext) : args.maxContext;
      const int64_t planes = divideUp(sequences * headBlocks * atLeastOne(CudaWorkspace::splits(context)), tiles);
      const bool split = sequences * args.kvHeads * headBlocks <= CudaWorkspace::kArrivals && planes < kMostGridYz;
      const int64_t rows = decodeBytes, prompts = packed ? PrefillTiles::packedSharedBytes(args.headDim, rowTiles)
                                                         : PrefillTiles::sharedBytes(args.headDim, rowTiles);
      static_assert(PrefillTiles::kWarps == DecodeTiles::kWarps);
      return launch(packed ? kPackedPrefillNames[elem][size] : kPrefillNames[elem][size][rowTiles - 1], tiles,
                    args.kvHeads, split ? 1 + planes : 1, PrefillTiles::kWarps * 32,
                    split && rows > prompts ? rows : prompts);
    }
  }
  if (args.heads > kMostGridYz)
    return refuse(why, "attention takes at most 65535 heads");
  return launch(kAnyNames[static_cast<int>(args.activation)][cacheIndex(args.kvElem, args.kvPacking)], tokens,
                args.heads, 1, kAnyAttentionChunk,
                (kAnyAttentionDim + kAnyAttentionChunk + 32) * static_cast<int64_t>(sizeof(float)));
}

} // namespace

std::string cudaRefusal(Op op, const void *args, const char *why) {
  if (op != Op::Attention || std::string_view(why) != kFarSpan)
    return why;
  const auto &a = *static_cast<const AttentionArgs *>(args);
  return std::string(why) + ": a layer's spans " + std::to_string(a.segments.end * 2) + " bytes"; // of 16 bits
}

namespace {

// Of W so many rows at a time.
std::string productRefusal(int64_t m, int64_t n, int64_t k, int64_t partRows) {
  struct Matrix {
    const char *name;
    int64_t rows, cols;
  };
  for (const Matrix &one : {Matrix{"x", m, k}, Matrix{"W", partRows, k}, Matrix{"y", m, n}}) {
    int64_t elements = 0;
    const bool over = __builtin_mul_overflow(one.rows, one.cols, &elements);
    if (over || elements >= int64_t{1} << 31)
      return "a product of m " + std::to_string(m) + " n " + std::to_string(n) + " k " + std::to_string(k) + ": its " +
             one.name + " [" + std::to_string(one.rows) + ", " + std::to_string(one.cols) + "] has " +
             (over ? "2^63 or more" : std::to_string(elements)) + " elements, expected fewer than 2^31";
  }
  return "";
}

} // namespace

std::string productRefusal(int64_t m, int64_t n, int64_t k) { return productRefusal(m, n, k, n); }

std::string productRefusal(const LinearArgs &args) {
  const int64_t partRows = args.packing.codeBits == 0
                               ? args.n
                               : CudaWorkspace::unpackedRows(args.n, args.k, args.activation == Elem::F32 ? 4 : 2);
  return productRefusal(args.capacity, args.n, args.k, partRows);
}

CudaLaunch cudaLaunch(Op op, const void *args, const CudaShape &shape, const char **why) {
  if (why != nullptr)
    *why = nullptr;
  switch (op) {
  case Op::Embed: {
    const auto &a = *static_cast<const EmbedArgs *>(args);
    if (!valid(a.elem))
      return refuse(why, kElems);
    return rows(pick(a.elem, "embed_f32", "embed_f16", "embed_bf16"), shape.tokens, 256, 0);
  }
  case Op::Norm:
    return norm(*static_cast<const NormArgs *>(args), shape, why);
  case Op::Linear:
    return refuse(why, "linear is a library call");
  case Op::RopeAppend:
    return ropeAppend(*static_cast<const RopeAppendArgs *>(args), shape, why);
  case Op::Attention:
    return attention(*static_cast<const AttentionArgs *>(args), shape, why);
  case Op::Activate: {
    const auto &a = *static_cast<const ActivateArgs *>(args);
    if (!valid(a.activation))
      return refuse(why, kElems);
    return elements(pick(a.activation, "activate_f32", "activate_f16", "activate_bf16"), shape.tokens * a.intermediate);
  }
  case Op::GatherRows:
    return rows("gather_rows", shape.sequences, 256, 0);
  case Op::Sample: {
    const auto &a = *static_cast<const SampleArgs *>(args);
    if (a.vocab < 1 || a.vocab > int64_t{1} << 18)
      return refuse(why, "sample takes vocabularies of 1 to 262144 tokens");
    if (shape.sequences > kMostGridX)
      return refuse(why, "sample takes at most 2147483647 sequences");
    return launch("sample", atLeastOne(shape.sequences), 1, 1, kSampleThreads, sizeof(SampleShared));
  }
  case Op::ActAppend: {
    const auto &a = *static_cast<const ActAppendArgs *>(args);
    if (!valid(a.activation))
      return refuse(why, kElems);
    return rows("act_append", shape.tokens, 256, 0);
  }
  case Op::RebuildKv:
    return refuse(why, "rebuild_kv is several launches");
  case Op::Rotate:
    return rotate(*static_cast<const RotateArgs *>(args), shape, why);
  case Op::Append:
    return refuse(why, "append is the CPU's");
  case Op::FetchRows: {
    const auto &a = *static_cast<const FetchRowsArgs *>(args);
    if (!valid(a.activation))
      return refuse(why, kElems);
    return elements("fetch_rows", shape.tokens * a.columns);
  }
  case Op::KeepIds:
    return rows("keep_ids", divideUp(shape.tokens, 256), 256, 0);
  }
  return refuse(why, "unknown op");
}

RebuildCalls rebuildCalls(const RebuildKvArgs &args, int64_t firstRow) {
  const int64_t most = rebuildRows(Backend::Cuda, args.capacity);
  const int64_t rowsHere = least(most, args.capacity - firstRow);
  const int64_t bytes = args.activation == Elem::F32 ? 4 : 2;
  auto *workspace = static_cast<char *>(args.workspace);
  char *product = workspace + CudaWorkspace::rebuildProduct(most, args.hidden, bytes);
  RebuildCalls calls{};
  calls.gather = {.meta = args.meta,
                  .act = args.act,
                  .x = workspace,
                  .hidden = args.hidden,
                  .blockTokens = args.blockTokens,
                  .firstRow = firstRow,
                  .rows = rowsHere,
                  .activation = args.activation};
  calls.product = {.count = &args.meta->numActRows,
                   .x = workspace,
                   .w = args.w,
                   .bias = args.bias,
                   .residual = nullptr,
                   .y = product,
                   .workspace = workspace + CudaWorkspace::rebuildScratch(most, args.n(), args.hidden, bytes),
                   .n = args.n(),
                   .k = args.hidden,
                   .capacity = rowsHere,
                   .elem = args.elem,
                   .order = args.order,
                   .epilogue = Epilogue::None,
                   .activation = args.activation,
                   .result = args.activation,
                   .biasElem = args.biasElem,
                   .packing = args.packing};
  calls.append = {
      .rope = {.meta = args.meta,
               .qkv = product,
               .inverseFrequencies = args.inverseFrequencies,
               .headNorms = args.headNorms,
               .kv = args.kv,
               .segments = {.act = 0,
                            .actStride = kvBlockUnits(args.kvPacking, args.kvHeads, args.blockTokens, args.headDim),
                            .firstAct = 0},
               .home = nullptr,
               .homeFirst = 0,
               .homeEnd = 0,
               .homeStride = 0,
               .heads = 0,
               .kvHeads = args.kvHeads,
               .headDim = args.headDim,
               .blockTokens = args.blockTokens,
               .eps = args.eps,
               .kvElem = args.kvElem,
               .activation = args.activation,
               .kvPacking = args.kvPacking},
      .lead = args.lead,
      .firstRow = firstRow,
      .rows = rowsHere};
  return calls;
}

CudaLaunch cudaLaunch(const GatherActArgs &args) { return rows("gather_act", args.rows, 256, 0); }

CudaLaunch cudaLaunch(const AppendActArgs &args, const char **why) {
  static constexpr const char *kNames[3][4] = {
      {"append_act_f32_f32", "append_act_f32_f16", "append_act_f32_bf16", "append_act_f32_packed"},
      {"append_act_f16_f32", "append_act_f16_f16", "append_act_f16_bf16", "append_act_f16_packed"},
      {"append_act_bf16_f32", "append_act_bf16_f16", "append_act_bf16_bf16", "append_act_bf16_packed"}};
  CudaLaunch launch = ropeAppend(args.rope, {.tokens = args.rows}, why);
  if (launch.kernel != nullptr)
    launch.kernel = kNames[static_cast<int>(args.rope.activation)][cacheIndex(args.rope.kvElem, args.rope.kvPacking)];
  return launch;
}

CudaLaunch cudaLaunch(const BiasActivateArgs &args) {
  if (!valid(args.result))
    return {};
  return elements(pick(args.result, "bias_activate_f32", "bias_activate_f16", "bias_activate_bf16"),
                  args.capacity * args.n);
}

CudaLaunch cudaLaunch(const UnpackArgs &args) {
  if (!valid(args.activation))
    return {};
  return elements(pick(args.activation, "unpack_f32", "unpack_f16", "unpack_bf16"), args.rows * args.k);
}

CudaLaunch cudaLaunch(const LinearArgs &args) {
  static constexpr const char *kNames[2][2] = {{"linear_packed_f16_q4", "linear_packed_f16_q8"},
                                               {"linear_packed_bf16_q4", "linear_packed_bf16_q8"}};
  if (args.packing.codeBits == 0 || !valid16(args.activation) ||
      !CudaWorkspace::unpacksOnTheWay(args.capacity, sizeof(uint16_t)))
    return {};
  return launch(kNames[args.activation == Elem::F16 ? 0 : 1][args.packing.codeBits == 4 ? 0 : 1],
                divideUp(args.n, kPackedProductColumns), 1, 1, kPackedProductWarps * 32,
                kPackedProductWarps * CudaWorkspace::kPackedProductRows * kPackedProductColumns * sizeof(float));
}

CudaLaunch cudaLaunch(const PublishArgs &args) {
  const int64_t threads = least(divideUp(atLeastOne(args.maxSequences), 32) * 32, 256);
  return launch("publish", 1, 1, 1, threads, 0);
}

} // namespace headrace::kernels
