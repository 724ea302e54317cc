// SPDX-License-Identifier: Apache-2.0
//
// Attention of decoding by chunks, for a team that sequences and key heads alone would not keep busy. The operations
// are those of AttentionHost.h in the same order: what a chunk adds to a query's sums needs of the chunks before it
// their largest scores only.
//
//   chunks, one behind the other:   | s0 head 0: 0 1 2 ... | s0 head 1: 0 1 2 ... | s1 head 0: 0 1 ... |
//   windows of them, so that what is kept does not grow with contexts; in each
//     scores   of a chunk, scaled, and the largest                                     units: chunks
//     weights  from the largest up to this chunk: p, their sum, the sum of p v         units: chunks
//     sums     l and o, chunk after chunk                                              units: queries
//
// Of a query whose chunks go on in the next window, o, l and the largest score wait in `carried`: of one key head at
// most, and two of them take turns, since a window may end one and begin another.
#pragma once

#include "kernels/host/AttentionDirectHost.h"
#include "kernels/host/ChunkSoftmax.h"
#include "kernels/host/HostUnits.h"
#include "kernels/host/PackKvHost.h"
#include "kernels/host/Rows.h"

namespace headrace::kernels {

struct AttentionChunksShape {
  static constexpr int64_t kChunk = 64;   // positions; part of what the result is (AttentionHost.h)
  static constexpr int64_t kWindow = 256; // chunks at most
  static constexpr uint64_t kMostBytes = uint64_t{2} << 20;

  // In floats, of whole cache lines: what a chunk leaves, and what one window carries to the next.
  static HEADRACE_INLINE int64_t lines(int64_t floats) { return (floats + 15) / 16 * 16; }
  static HEADRACE_INLINE int64_t kept(int64_t group, int64_t headDim) { return lines(group * (kChunk + headDim + 4)); }
  static HEADRACE_INLINE int64_t carried(int64_t group, int64_t headDim) { return lines(group * (headDim + 2)); }
  static HEADRACE_INLINE uint64_t bytes(int64_t chunks, int64_t group, int64_t headDim) {
    return static_cast<uint64_t>(chunks * kept(group, headDim) + 2 * carried(group, headDim)) * sizeof(float);
  }
  // A window's, or as many chunks as kMostBytes hold.
  static HEADRACE_INLINE uint64_t sharedBytes(int64_t group, int64_t headDim) {
    const uint64_t all = bytes(kWindow, group, headDim);
    return all < kMostBytes ? all : kMostBytes;
  }
};

template <typename V> class AttentionChunks {
  using Shape = AttentionChunksShape;
  using Softmax = ChunkSoftmax<V>;
  static constexpr int64_t kChunk = Shape::kChunk;

public:
  AttentionChunks(const AttentionArgs &a, const HostWork &work)
      : args(a), headDim(a.headDim), group(a.heads / a.kvHeads), perUnit(work.cut[0]), window(work.cut[2]),
        all(work.cut[3]), kept(Shape::kept(group, headDim)), shared(work.team.shared) {}

  // About what one thread takes, of any rows.
  static int64_t nsOf(const AttentionArgs &args) {
    const IterationMeta &meta = *args.meta;
    const int32_t *queryStart = meta.array<int32_t>(meta.queryStart);
    const int32_t *positions = meta.array<int32_t>(meta.positions);
    int64_t ns = 0;
    for (int64_t s = 0; s < meta.numSequences; ++s)
      if (const int64_t rows = queryStart[s + 1] - queryStart[s]; rows > 0)
        ns += (positions[queryStart[s + 1] - 1] + 1) * tokenNs16(args, rows) / 16;
    return ns * args.kvHeads;
  }

  // False where chunks are not to be the units: rows of prompts, heads that are not whole vectors, too little memory
  // (of the team, or for queries that are no F32), or no gain over sequences and key heads. Else cut[0]: chunks a unit;
  // cut[1] 0; cut[2]: a window; cut[3]: all.
  static bool cut(const AttentionArgs &args, const HostTeam &team, HostWork &work) {
    const IterationMeta &meta = *args.meta;
    const int32_t *queryStart = meta.array<int32_t>(meta.queryStart);
    const int64_t items = meta.numSequences * args.kvHeads, group = args.heads / args.kvHeads;
    if (items == 0 || items >= 4 * team.threads || args.headDim % V::kLanes != 0 ||
        (args.activation != Elem::F32 && group > kMostWidened))
      return false;
    int64_t chunks = 0, longest = 0;
    for (int64_t s = 0; s < meta.numSequences; ++s) {
      if (queryStart[s + 1] - queryStart[s] != 1)
        return false;
      const int64_t its = chunksOf(args, s);
      chunks += its * args.kvHeads;
      longest = its > longest ? its : longest;
    }
    const int64_t room =
        static_cast<int64_t>(team.sharedBytes / sizeof(float)) - 2 * Shape::carried(group, args.headDim);
    const int64_t fit = room / Shape::kept(group, args.headDim);
    const int64_t window = fit < Shape::kWindow ? fit : Shape::kWindow;
    if (window < 4)
      return false;
    const int64_t chunkNs = kChunk * tokenNs16(args, 1) / 16 + 1;
    const int64_t windows = (chunks + window - 1) / window, rounds = (items + team.threads - 1) / team.threads;
    const int64_t evenNs = rounds * chunks * chunkNs / items, longestNs = longest * chunkNs;
    const int64_t byItemsNs = evenNs > longestNs ? evenNs : longestNs;
    if (chunks * chunkNs / team.threads + windows * 3 * team.unitNs >= byItemsNs)
      return false;
    work = HostUnits::of(least(window, chunks), chunkNs, team);
    work.phases = 3 * windows;
    work.ns = chunks * chunkNs;
    work.cut[1] = 0;
    work.cut[2] = window;
    work.cut[3] = chunks;
    return true;
  }

  int64_t units(int64_t phase) const {
    const int64_t first = phase / 3 * window, count = least(window, all - first);
    if (phase % 3 < 2)
      return (count + perUnit - 1) / perUnit;
    return (at(first + count - 1).item - at(first).item + 1) * group;
  }

  // scratch: room for a chunk's rows, and behind these for kMostWidened queries.
  void run(int64_t phase, int64_t unit, float *scratch) {
    const int64_t first = phase / 3 * window, end = least(first + window, all);
    if (phase % 3 == 2)
      return sums(phase / 3, first, end, unit);
    const int64_t from = first + unit * perUnit, to = least(from + perUnit, end);
    switch (packed() ? Elem::F32 : args.kvElem) {
    case Elem::F32:
      return chunks<Elem::F32>(phase, first, from, to, scratch);
    case Elem::F16:
      return chunks<Elem::F16>(phase, first, from, to, scratch);
    case Elem::BF16:
      return chunks<Elem::BF16>(phase, first, from, to, scratch);
    }
  }

private:
  // A chunk: that many of a sequence and key head.
  struct Place {
    int64_t item, sequence, head, chunk, chunks;
  };
  // What it leaves, of each query of its group.
  struct Kept {
    float *scores, *products;                  // [group][kChunk], [group][headDim]
    float *largest, *now, *total, *correction; // `now`: the largest of all chunks up to this one
  };
  struct Carried {
    float *largest, *total, *products; // [group], [group], [group][headDim]
  };
  static constexpr int64_t kMostWidened = 64; // queries that are no F32

  const AttentionArgs &args;
  const int64_t headDim, group, perUnit, window, all, kept;
  float *const shared;

  // Sixteenths of a ns a token and key head: keys and values are read, and multiplied for each query of the group.
  static int64_t tokenNs16(const AttentionArgs &args, int64_t rows) {
    const int64_t reading = args.kvPacking.codeBits != 0 ? 4 : elemBytes(args.kvElem); // unpacking, as an F32
    return 2 * args.headDim * (reading + rows * (args.heads / args.kvHeads)) * 16 / 20;
  }
  static int64_t contextOf(const AttentionArgs &args, int64_t sequence) {
    const IterationMeta &meta = *args.meta;
    return meta.array<int32_t>(meta.positions)[meta.array<int32_t>(meta.queryStart)[sequence]] + 1;
  }
  static int64_t chunksOf(const AttentionArgs &args, int64_t sequence) {
    return (contextOf(args, sequence) + kChunk - 1) / kChunk;
  }
  static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

  Place at(int64_t slot) const {
    for (int64_t s = 0;; ++s) {
      const int64_t chunks = chunksOf(args, s);
      if (slot < chunks * args.kvHeads)
        return {s * args.kvHeads + slot / chunks, s, slot / chunks, slot % chunks, chunks};
      slot -= chunks * args.kvHeads;
    }
  }
  Kept keptOf(int64_t inWindow) const {
    float *scores = shared + inWindow * kept, *products = scores + group * kChunk;
    float *largest = products + group * headDim;
    return {scores, products, largest, largest + group, largest + 2 * group, largest + 3 * group};
  }
  Carried carriedTo(int64_t windowIndex) const {
    float *largest = shared + window * kept + windowIndex % 2 * Shape::carried(group, headDim);
    return {largest, largest + group, largest + 2 * group};
  }

  int64_t tokensOf(const Place &place) const {
    return least(kChunk, contextOf(args, place.sequence) - place.chunk * kChunk);
  }
  bool packed() const { return args.kvPacking.codeBits != 0; }
  const int32_t *blocksOf(const Place &place) const {
    const IterationMeta &meta = *args.meta;
    return meta.array<int32_t>(meta.blockTable) + place.sequence * meta.tableStride;
  }
  // A chunk's keys, or values, of a packed cache, one row behind the other.
  typename PackedRows<V>::Part partOf(const Place &place, bool values) const {
    return {blocksOf(place), (values ? args.kvHeads : 0) + place.head, place.chunk * kChunk, tokensOf(place)};
  }
  // Element indices of a chunk's rows of keys; of a packed cache, once they are unpacked.
  void fillRows(const Place &place, int64_t *rows) const {
    const int32_t *blocks = blocksOf(place);
    const int64_t start = place.chunk * kChunk, tokens = tokensOf(place);
    for (int64_t i = 0; i < tokens; ++i) {
      const int64_t t = start + i;
      rows[i] = packed() ? i * headDim
                         : args.segments.of(blocks[t / args.blockTokens]) +
                               (place.head * args.blockTokens + t % args.blockTokens) * headDim;
    }
  }

  // Scores, or weights, of the chunks [from, to) of the window that begins at `first`.
  template <Elem kElem> void chunks(int64_t phase, int64_t first, int64_t from, int64_t to, float *scratch) {
    const bool scores = phase % 3 == 0;
    int64_t both[2][kChunk] = {}, *rows = both[0], *next = both[1];
    Place place = at(from);
    fillRows(place, rows);
    const void *const kv = packed() ? scratch : args.kv;
    const int64_t toValues = packed() ? 0 : args.kvHeads * args.blockTokens * headDim;
    for (int64_t slot = from; slot < to; ++slot) {
      Place after = place;
      if (slot + 1 < to)
        after = at(slot + 1);
      fillRows(after, next);
      if (packed())
        PackedRows<V>(args).unpack(partOf(place, !scores), partOf(after, !scores), scratch, headDim);
      const int64_t *const asked = packed() ? nullptr : next;
      scores ? scoreChunk<kElem>(kv, place, rows, asked, keptOf(slot - first), scratch + kChunk * headDim)
             : weighChunk<kElem>(kv, toValues, phase / 3, place, rows, asked, slot - first, slot > from);
      place = after;
      int64_t *const was = rows;
      rows = next, next = was;
    }
  }

  template <Elem kElem>
  void scoreChunk(const void *kv, const Place &place, const int64_t *rows, const int64_t *next, const Kept &out,
                  float *widened) const {
    using Direct = AttentionDirect<V, kElem>;
    const int64_t tokens = tokensOf(place), row = args.meta->array<int32_t>(args.meta->queryStart)[place.sequence];
    const int64_t first = (row * (args.heads + 2 * args.kvHeads) + place.head * group) * headDim;
    const float *q = static_cast<const float *>(args.qkv) + first;
    if (args.activation != Elem::F32) {
      loadRow<V>(args.qkv, first, group * headDim, args.activation, widened);
      q = widened;
    }
    Direct::forTiles(group, [&](int64_t i, auto height) {
      Direct::template scores<decltype(height)::value>(kv, rows, {next, 0}, tokens, q + i * headDim, headDim, headDim,
                                                       out.scores + i * kChunk, kChunk);
    });
    for (int64_t i = 0; i < group; ++i)
      out.largest[i] = Softmax::scale(out.scores + i * kChunk, tokens, args.scale);
  }

  // `follows`: this unit has done the chunk before.
  template <Elem kElem>
  void weighChunk(const void *kv, int64_t toValues, int64_t windowIndex, const Place &place, const int64_t *rows,
                  const int64_t *next, int64_t inWindow, bool follows) const {
    using Direct = AttentionDirect<V, kElem>;
    const int64_t tokens = tokensOf(place);
    const Kept out = keptOf(inWindow);
    const bool carried = inWindow < place.chunk; // its first chunks were in windows before
    const int64_t begin = carried ? 0 : inWindow - place.chunk;
    for (int64_t i = 0; i < group; ++i) {
      float before;
      if (follows && place.chunk > 0) {
        before = keptOf(inWindow - 1).now[i];
      } else {
        before = carried ? carriedTo(windowIndex).largest[i] : -__builtin_inff();
        for (int64_t slot = begin; slot < inWindow; ++slot)
          before = Softmax::larger(before, keptOf(slot).largest[i]);
      }
      out.now[i] = Softmax::larger(before, out.largest[i]);
      out.total[i] = Softmax::weigh(out.scores + i * kChunk, tokens, out.now[i]);
      out.correction[i] = Softmax::correction(before, out.now[i]);
    }
    Direct::forTiles(group, [&](int64_t i, auto height) {
      Direct::template outputs<decltype(height)::value, false>(kv, rows, {next, toValues}, toValues, tokens,
                                                               out.scores + i * kChunk, kChunk, headDim, nullptr,
                                                               out.products + i * headDim, headDim);
    });
  }

  // One query of one key head: what of its chunks is in the window [first, end).
  void sums(int64_t windowIndex, int64_t first, int64_t end, int64_t unit) const {
    const int64_t item = at(first).item + unit / group, i = unit % group;
    const int64_t sequence = item / args.kvHeads, head = item % args.kvHeads;
    int64_t start = 0;
    for (int64_t s = 0; s < sequence; ++s)
      start += chunksOf(args, s) * args.kvHeads;
    const int64_t chunks = chunksOf(args, sequence);
    start += head * chunks;
    const bool begun = start < first, ends = start + chunks <= end;
    const int64_t from = (begun ? first : start) - first, to = least(start + chunks, end) - first;
    float total = begun ? carriedTo(windowIndex).total[i] : 0.0f;
    for (int64_t slot = from; slot < to; ++slot) {
      const Kept chunk = keptOf(slot);
      total = total * chunk.correction[i] + chunk.total[i];
    }
    const int64_t row = args.meta->array<int32_t>(args.meta->queryStart)[sequence];
    const Carried next = carriedTo(windowIndex + 1);
    const float *before = begun ? carriedTo(windowIndex).products + i * headDim : nullptr;
    float *const after = ends ? nullptr : next.products + i * headDim;
    const int64_t out = (row * args.heads + head * group + i) * headDim;
    constexpr int64_t kTogether = 4 * V::kLanes;
    int64_t d = 0;
    for (; d + kTogether <= headDim; d += kTogether)
      fold<4>(i, d, from, to, before, after, total, out);
    for (; d < headDim; d += V::kLanes)
      fold<1>(i, d, from, to, before, after, total, out);
    if (!ends) {
      next.total[i] = total;
      next.largest[i] = keptOf(to - 1).now[i];
    }
  }

  // Columns from d on: from `before`, null: nothing; to `after`, null: to the result's row, from element `out` on.
  template <int P>
  void fold(int64_t i, int64_t d, int64_t from, int64_t to, const float *before, float *after, float total,
            int64_t out) const {
    V o[P];
    for (int p = 0; p < P; ++p)
      o[p] = before != nullptr ? V::load(before + d + p * V::kLanes) : V::zero();
    for (int64_t slot = from; slot < to; ++slot) {
      const Kept chunk = keptOf(slot);
      const V correction = V::set(chunk.correction[i]);
      const float *products = chunk.products + i * headDim + d;
      HEADRACE_UNROLL
      for (int p = 0; p < P; ++p)
        o[p] = V::fma(o[p], correction, V::load(products + p * V::kLanes));
    }
    for (int p = 0; p < P; ++p)
      if (const int64_t at = d + p * V::kLanes; after != nullptr)
        o[p].store(after + at);
      else
        storeElems(o[p] / V::set(total), args.out, out + at, args.activation);
  }
};

} // namespace headrace::kernels
