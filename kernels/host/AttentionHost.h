// SPDX-License-Identifier: Apache-2.0
//
// Op::Attention on the host: softmax(scale q k^T) v over a paged cache, one definition for prefill and decode.
//
// The context is cut at multiples of kChunk positions. For each chunk that a query reaches, in order:
//   scores   q . k summed over the head's dimensions in ascending order, times scale
//   m'       the larger of m and the chunk's largest score
//   p        exp(score - m'), c = exp(m - m')
//   l        l c + sum of p (eight partial sums, joined in a fixed tree)
//   o        o c + (sum of p v over the chunk's tokens in ascending order)
// and the result is o / l (Milakov and Gimelshein 2018, Dao et al. 2022). What a query computes depends on its own q
// and on tokens 0 .. position only: rows of other queries, the block table and the split into iterations leave its bits
// alone. Queries and results are F32, or the 16-bit type of a CUDA plan's rows: then q is widened first and o / l
// rounded once. Tokens after `position` are never multiplied, so whatever unused rows of the cache hold cannot leak
// into a result.
//
// Work is shared where queries share a cache: up to kQueries of them (rows of one sequence x heads of one group) go
// through a chunk together, whose keys are transposed once into panels of 16 tokens. A few that reach the same tokens
// read the cache where it lies (AttentionDirectHost.h). A chunk of a packed cache is unpacked first, and then is as one
// of an F32 cache: the same bits as of a cache that holds the unpacked values.
//
// Units: sequence x key head x so many queries. Where a team has more threads than these keep busy, queries are fewer;
// in decoding, where that cannot be, chunks are units (AttentionChunksHost.h).
#pragma once

#include "kernels/host/AttentionChunksHost.h"
#include "kernels/host/AttentionDirectHost.h"
#include "kernels/host/ChunkSoftmax.h"
#include "kernels/host/HostEntry.h"
#include "kernels/host/KeyBlock.h"
#include "kernels/host/MicroKernel.h"
#include "kernels/host/PackKvHost.h"
#include "kernels/host/Rows.h"

namespace headrace::kernels {

struct AttentionShape {
  static constexpr int64_t kChunk = AttentionChunksShape::kChunk;
  static constexpr int64_t kQueries = 48;    // a multiple of kTileRows
  static constexpr int64_t kFewQueries = 12; // likewise: with fewer, transposing keys would be most of the work
  static constexpr int64_t kDirect = 12;     // queries at most that read the cache where it lies

  static int64_t paddedDim(int64_t headDim) { return (headDim + kPanelColumns - 1) / kPanelColumns * kPanelColumns; }
  // Floats: queries, outputs | keys, values of a chunk | scores | products of one tile.
  static int64_t workspaceFloats(int64_t headDim) {
    return (2 * kQueries + 2 * kChunk + kTileRows) * paddedDim(headDim) + kQueries * kChunk;
  }
};

template <typename V> class Attention {
  using Shape = AttentionShape;
  using Panel = PanelF32<V>;
  using Part = typename PackedRows<V>::Part;
  static constexpr int64_t kChunk = Shape::kChunk;

public:
  static HostWork work(const void *opaque, const HostTeam &team) {
    return workOf(*static_cast<const AttentionArgs *>(opaque), team);
  }
  static int64_t units(const void *opaque, const HostWork &work, int64_t phase) {
    return byChunks(work) ? Chunks(*static_cast<const AttentionArgs *>(opaque), work).units(phase) : work.units;
  }
  static void run(const void *opaque, const HostWork &work, int64_t phase, int64_t unit, float *scratch) {
    const auto &args = *static_cast<const AttentionArgs *>(opaque);
    float *const workspace = scratch != nullptr ? scratch : static_cast<float *>(args.workspace);
    if (byChunks(work))
      return Chunks(args, work).run(phase, unit, workspace);
    Attention(args, workspace).run(work, unit);
  }

private:
  using Chunks = AttentionChunks<V>;

  const AttentionArgs &args;
  const int64_t headDim, dim; // dim: headDim rounded up to whole panels
  const int64_t group;        // query heads that share a key head
  float *queries;             // [kQueries][dim]
  float *outputs;             // [kQueries][dim]
  float *keys;                // [kChunk / 16][headDim][16]
  float *values;              // [kChunk][dim]
  float *scores;              // [kQueries][kChunk]
  float *products;            // [kTileRows][dim]
  float largest[Shape::kQueries], total[Shape::kQueries], correction[Shape::kQueries];
  int64_t reach[Shape::kQueries]; // tokens a query attends to: its position + 1

  Attention(const AttentionArgs &a, float *workspace)
      : args(a), headDim(a.headDim), dim(Shape::paddedDim(a.headDim)), group(a.heads / a.kvHeads) {
    queries = workspace;
    outputs = queries + Shape::kQueries * dim;
    keys = outputs + Shape::kQueries * dim;
    values = keys + kChunk * dim;
    scores = values + kChunk * dim;
    products = scores + Shape::kQueries * kChunk;
  }

  // cut[0]: items a unit; cut[1]: queries an item, 0: chunks are the units. An item: queries of a sequence and key
  // head.
  static bool byChunks(const HostWork &work) { return work.cut[1] == 0; }
  static int64_t itemsOf(const AttentionArgs &args, int64_t queries) {
    const IterationMeta &meta = *args.meta;
    const int32_t *queryStart = meta.array<int32_t>(meta.queryStart);
    const int64_t group = args.heads / args.kvHeads;
    int64_t items = 0;
    for (int64_t s = 0; s < meta.numSequences; ++s)
      items += ((queryStart[s + 1] - queryStart[s]) * group + queries - 1) / queries;
    return items * args.kvHeads;
  }

  static HostWork workOf(const AttentionArgs &args, const HostTeam &team) {
    int64_t queries = Shape::kQueries, items = itemsOf(args, queries);
    HostWork work;
    if (team.threads > 1) {
      if (Chunks::cut(args, team, work))
        return work;
      // A key row is read once for all heads of its group.
      const int64_t group = args.heads / args.kvHeads;
      const int64_t fewest = group > Shape::kFewQueries ? queries : Shape::kFewQueries;
      for (; items < 4 * team.threads && queries > fewest; items = itemsOf(args, queries))
        queries /= 2;
    }
    const int64_t ns = team.threads > 1 ? Chunks::nsOf(args) : 0;
    work = HostUnits::of(items, items > 0 ? ns / items + 1 : 0, team);
    work.cut[1] = queries;
    return work;
  }

  void run(const HostWork &work, int64_t unit) {
    const IterationMeta &meta = *args.meta;
    const int32_t *queryStart = meta.array<int32_t>(meta.queryStart);
    const int64_t queryCount = work.cut[1];
    int64_t item = unit * work.cut[0], rest = work.cut[0];
    for (int64_t s = 0; s < meta.numSequences && rest > 0; ++s) {
      const int64_t count = (queryStart[s + 1] - queryStart[s]) * group;
      const int64_t ofHead = (count + queryCount - 1) / queryCount;
      const int32_t *blocks = meta.array<int32_t>(meta.blockTable) + s * meta.tableStride;
      for (; item < args.kvHeads * ofHead && rest > 0; ++item, --rest) {
        const int64_t first = item % ofHead * queryCount;
        attend(blocks, item / ofHead, queryStart[s], first, least(queryCount, count - first));
      }
      item -= args.kvHeads * ofHead;
    }
  }

  // Queries [first, first + count) of one sequence and key head; query i is row i / group, head i % group of the group.
  void attend(const int32_t *blocks, int64_t kvHead, int64_t firstRow, int64_t first, int64_t count) {
    const int32_t *positions = args.meta->array<int32_t>(args.meta->positions);
    const int64_t rowLength = (args.heads + 2 * args.kvHeads) * headDim;
    int64_t end = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = firstRow + (first + i) / group, head = kvHead * group + (first + i) % group;
      loadRow<V>(args.qkv, row * rowLength + head * headDim, headDim, args.activation, queries + i * dim);
      __builtin_memset(outputs + i * dim, 0, static_cast<size_t>(dim) * sizeof(float));
      largest[i] = -__builtin_inff();
      total[i] = 0.0f;
      reach[i] = positions[row] + 1;
      end = reach[i] > end ? reach[i] : end;
    }
    bool direct = count <= Shape::kDirect && headDim % V::kLanes == 0;
    for (int64_t i = 0; i < count; ++i)
      direct = direct && reach[i] == end;
    direct ? attendDirect(blocks, kvHead, count, end) : attendPanels(blocks, kvHead, count, end);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = firstRow + (first + i) / group, head = kvHead * group + (first + i) % group;
      const V divisor = V::set(total[i]);
      for (int64_t d = 0; d < dim; d += V::kLanes)
        (V::load(outputs + i * dim + d) / divisor).store(outputs + i * dim + d);
      storeRow<V>(outputs + i * dim, args.out, (row * args.heads + head) * headDim, headDim, args.activation);
    }
  }

  void attendPanels(const int32_t *blocks, int64_t kvHead, int64_t count, int64_t end) {
    for (int64_t start = 0; start < end; start += kChunk) {
      loadChunk(blocks, kvHead, start, end);
      forTiles(count, [&](int64_t i, auto height) { scoreTile<decltype(height)::value>(i, start); });
      for (int64_t i = 0; i < count; ++i)
        if (reach[i] > start)
          softmax(i, least(kChunk, reach[i] - start));
      forTiles(count, [&](int64_t i, auto height) { outputTile<decltype(height)::value>(i, start); });
    }
  }

  // Queries that all reach `end`.
  void attendDirect(const int32_t *blocks, int64_t kvHead, int64_t count, int64_t end) {
    switch (packed() ? Elem::F32 : args.kvElem) {
    case Elem::F32:
      return attendDirect<Elem::F32>(blocks, kvHead, count, end);
    case Elem::F16:
      return attendDirect<Elem::F16>(blocks, kvHead, count, end);
    case Elem::BF16:
      return attendDirect<Elem::BF16>(blocks, kvHead, count, end);
    }
  }
  template <Elem kElem> void attendDirect(const int32_t *blocks, int64_t kvHead, int64_t count, int64_t end) {
    using Direct = AttentionDirect<V, kElem>;
    const void *const kv = packed() ? keys : args.kv; // unpacked: keys, and when these were used values
    const int64_t toValues = packed() ? 0 : args.kvHeads * args.blockTokens * headDim;
    int64_t both[2][kChunk] = {}, *rows = both[0], *next = both[1]; // of this chunk and of the next one
    fillRows(blocks, kvHead, 0, least(kChunk, end), rows);
    for (int64_t start = 0; start < end; start += kChunk) {
      const int64_t tokens = least(kChunk, end - start), after = start + kChunk;
      // What follows the last chunk: the first one of the next head.
      const int64_t nextHead = after < end ? kvHead : (kvHead + 1) % args.kvHeads, nextStart = after < end ? after : 0;
      const Part keyPart{blocks, kvHead, start, tokens}, valuePart{blocks, args.kvHeads + kvHead, start, tokens};
      if (packed())
        PackedRows<V>(args).unpack(keyPart, valuePart, keys, dim);
      else
        fillRows(blocks, nextHead, nextStart, least(kChunk, end - nextStart), next);
      Direct::forTiles(count, [&](int64_t i, auto height) {
        Direct::template scores<decltype(height)::value>(kv, rows, {packed() ? nullptr : rows, toValues}, tokens,
                                                         queries + i * dim, dim, headDim, scores + i * kChunk, kChunk);
      });
      for (int64_t i = 0; i < count; ++i)
        softmax(i, tokens);
      if (packed())
        PackedRows<V>(args).unpack(valuePart, {blocks, nextHead, nextStart, least(kChunk, end - nextStart)}, keys, dim);
      Direct::forTiles(count, [&](int64_t i, auto height) {
        Direct::template outputs<decltype(height)::value>(kv, rows, {packed() ? nullptr : next, 0}, toValues, tokens,
                                                          scores + i * kChunk, kChunk, headDim, correction + i,
                                                          outputs + i * dim, dim);
      });
      if (!packed())
        swap(rows, next);
    }
  }

  void fillRows(const int32_t *blocks, int64_t kvHead, int64_t start, int64_t count, int64_t *rows) const {
    for (int64_t t = 0; t < count; ++t)
      rows[t] = packed() ? t * dim : keyRow(blocks, kvHead, start + t);
  }
  bool packed() const { return args.kvPacking.codeBits != 0; }
  // Not std::swap, whose code would be compiled for AVX2 here (HostAvx2.cpp).
  static void swap(int64_t *&a, int64_t *&b) {
    int64_t *const was = a;
    a = b, b = was;
  }

  // ---- one chunk of the cache

  // Element index of token t's row of k; v's is kvHeads planes further.
  int64_t keyRow(const int32_t *blocks, int64_t kvHead, int64_t t) const {
    return args.segments.of(blocks[t / args.blockTokens]) +
           (kvHead * args.blockTokens + t % args.blockTokens) * headDim;
  }

  // Fills `keys` and `values`. In panels of keys the last token stands in for those that follow it in a block.
  void loadChunk(const int32_t *blocks, int64_t kvHead, int64_t start, int64_t end) {
    switch (packed() ? Elem::F32 : args.kvElem) {
    case Elem::F32:
      return loadChunk<Elem::F32>(blocks, kvHead, start, end);
    case Elem::F16:
      return loadChunk<Elem::F16>(blocks, kvHead, start, end);
    case Elem::BF16:
      return loadChunk<Elem::BF16>(blocks, kvHead, start, end);
    }
  }
  template <Elem kElem> void loadChunk(const int32_t *blocks, int64_t kvHead, int64_t start, int64_t end) {
    using Wide = typename Line<V>::Wide;
    const int64_t tokens = least(kChunk, end - start), after = start + tokens;
    int64_t rows[kChunk];
    fillRows(blocks, kvHead, start, tokens, rows);
    if (packed()) {
      const Part keyPart{blocks, kvHead, start, tokens}, valuePart{blocks, args.kvHeads + kvHead, start, tokens};
      PackedRows<V>(args).unpack(keyPart, valuePart, values, dim); // until they are panels
      transposeKeys<kElem>(values, rows, tokens);
      return PackedRows<V>(args).unpack(valuePart, {blocks, kvHead, after, least(kChunk, end - after)}, values, dim);
    }
    transposeKeys<kElem>(args.kv, rows, tokens);
    const int64_t toValues = args.kvHeads * args.blockTokens * headDim;
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t row = rows[t] + toValues;
      float *out = values + t * dim;
      int64_t d = 0;
      for (; d + Wide::kLanes <= headDim; d += Wide::kLanes)
        loadElems<Wide>(args.kv, row + d, kElem).store(out + d);
      for (; d + V::kLanes <= headDim; d += V::kLanes)
        loadElems<V>(args.kv, row + d, kElem).store(out + d);
      for (; d < dim; ++d)
        out[d] = d < headDim ? loadElem(args.kv, row + d, kElem) : 0.0f;
    }
  }

  template <Elem kElem> void transposeKeys(const void *kv, int64_t (&rows)[kChunk], int64_t tokens) {
    for (int64_t t = tokens; t % kPanelColumns != 0; ++t)
      rows[t] = rows[tokens - 1];
    if (headDim % KeyBlock<V, kElem>::kDims == 0)
      transposeKeys<KeyBlock<V, kElem>, kElem>(kv, rows, tokens);
    else
      transposeKeys<NarrowKeyBlock<V, kElem>, kElem>(kv, rows, tokens);
  }
  template <typename Block, Elem kElem> void transposeKeys(const void *kv, const int64_t *rows, int64_t tokens) {
    for (int64_t t = 0; t < tokens; t += Block::kTokens) {
      float *panel = keys + t / kPanelColumns * headDim * kPanelColumns + t % kPanelColumns;
      int64_t d = 0;
      for (; d + Block::kDims <= headDim; d += Block::kDims) {
        typename Block::Lanes lines[Block::kDims];
        Block::load(kv, rows + t, d, lines);
        HEADRACE_UNROLL
        for (int j = 0; j < Block::kDims; ++j)
          lines[j].store(panel + (d + j) * kPanelColumns);
      }
      for (; d < headDim; ++d)
        for (int64_t j = 0; j < Block::kTokens; ++j)
          panel[d * kPanelColumns + j] = loadElem(kv, rows[t + j] + d, kElem);
    }
  }

  // ---- queries [i, i + R) and the chunk from `start` on

  template <int R> void scoreTile(int64_t i, int64_t start) {
    constexpr int P = Line<V>::panels(R) < 4 ? Line<V>::panels(R) : 4;
    int64_t tokens = 0;
    for (int r = 0; r < R; ++r)
      tokens = tokens > reach[i + r] - start ? tokens : reach[i + r] - start;
    tokens = least(kChunk, tokens);
    const int64_t panels = (tokens + kPanelColumns - 1) / kPanelColumns, panelLength = headDim * kPanelColumns;
    int64_t p = 0;
    for (; p + P <= panels; p += P)
      scorePanels<R, P>(i, p, panelLength);
    for (; p < panels; ++p)
      scorePanels<R, 1>(i, p, panelLength);
  }

  template <int R, int P> void scorePanels(int64_t i, int64_t p, int64_t panelLength) {
    Tile<V, R, P> tile;
    tile.clear();
    tile.template multiply<Panel>(queries + i * dim, dim, keys + p * panelLength, panelLength, kPanelColumns, headDim);
    tile.template store<Panel>(scores + i * kChunk + p * kPanelColumns, kChunk, false);
  }

  // Scores of query i become p; tokens: how many of the chunk it reaches, at least one.
  void softmax(int64_t i, int64_t tokens) {
    using Softmax = ChunkSoftmax<V>;
    float *row = scores + i * kChunk;
    const float newLargest = Softmax::larger(largest[i], Softmax::scale(row, tokens, args.scale));
    const float sum = Softmax::weigh(row, tokens, newLargest);
    correction[i] = Softmax::correction(largest[i], newLargest);
    total[i] = total[i] * correction[i] + sum;
    largest[i] = newLargest;
  }

  template <int R> void outputTile(int64_t i, int64_t start) {
    constexpr int P = Line<V>::panels(R) < 4 ? Line<V>::panels(R) : 4;
    // Tokens that every query of the tile reaches go together, the few that only some reach follow row by row.
    int64_t tokens[R], common = kChunk;
    for (int r = 0; r < R; ++r) {
      tokens[r] = least(kChunk, reach[i + r] - start);
      tokens[r] = tokens[r] > 0 ? tokens[r] : 0;
      common = least(common, tokens[r]);
    }
    int64_t d = 0;
    for (; d + P * kPanelColumns <= dim; d += P * kPanelColumns)
      multiplyValues<R, P>(i, d, tokens, common);
    for (; d < dim; d += kPanelColumns)
      multiplyValues<R, 1>(i, d, tokens, common);
    for (int r = 0; r < R; ++r) {
      if (tokens[r] == 0)
        continue;
      const V factor = V::set(correction[i + r]);
      float *out = outputs + (i + r) * dim;
      for (d = 0; d < dim; d += V::kLanes)
        V::fma(V::load(out + d), factor, V::load(products + r * dim + d)).store(out + d);
    }
  }

  template <int R, int P> void multiplyValues(int64_t i, int64_t d, const int64_t (&tokens)[R], int64_t common) {
    Tile<V, R, P> tile;
    tile.clear();
    tile.template multiply<Panel>(scores + i * kChunk, kChunk, values + d, kPanelColumns, dim, common);
    tile.template store<Panel>(products + d, dim, false);
    for (int r = 0; r < R; ++r) {
      if (tokens[r] == common)
        continue;
      Tile<V, 1, P> rest;
      rest.template load<Panel>(products + r * dim + d);
      rest.template multiply<Panel>(scores + (i + r) * kChunk + common, kChunk, values + common * dim + d,
                                    kPanelColumns, dim, tokens[r] - common);
      rest.template store<Panel>(products + r * dim + d, dim, false);
    }
  }

  // Calls f(first, integral constant) for tiles of up to kRows of `count` queries.
  template <int R> struct Height { static constexpr int value = R; };
  template <int kRows = kTileRows, typename F> static void forTiles(int64_t count, F f) {
    int64_t i = 0;
    for (; i + kRows <= count; i += kRows)
      f(i, Height<kRows>());
    lowerTile<kRows - 1>(i, count - i, f);
  }
  template <int R, typename F> static void lowerTile(int64_t i, int64_t count, F &f) {
    if constexpr (R > 0) {
      if (count == R)
        f(i, Height<R>());
      else
        lowerTile<R - 1>(i, count, f);
    }
  }

  static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
};

template <typename V> struct HostEntry<V, AttentionArgs> {
  static constexpr HostKernel kKernel = {Attention<V>::work, Attention<V>::units, Attention<V>::run};
};

} // namespace headrace::kernels
