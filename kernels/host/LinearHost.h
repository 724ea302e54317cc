// SPDX-License-Identifier: Apache-2.0
//
// Op::Linear on the host. One order of additions for every number of rows, so that a row's bits never depend on the
// batch:
//
//   y = ((b0 + b1) + b2) + ...
//
// where bj is the sum over k in [j kBlock, (j + 1) kBlock), ascending from zero, each term one fused multiply-add; then
// + bias, epilogue, + residual.
//
// Two ways through the same sums. Up to 6 rows: the weights are streamed once, panel after panel, converted in
// registers (decode: memory-bound). More: rows in blocks of 192, columns in groups of 16 panels; x is packed once a
// group and K-block, so that it stays in the L2 cache while a panel's block, converted to F32 by the first tile of rows
// that uses it, stays near L1 for the others (Goto and van de Geijn, 2008).
//
// A packed operand is unpacked to F32 beside the tiles that use it, in registers for up to 6 rows, else a few panels'
// block at a time: the same sums as over a matrix of the unpacked values.
//
// Units: runs of panels for few rows; blocks of rows x groups of panels for more, a block's groups one behind the
// other. For a team the groups become narrower until there are some for each thread.
#pragma once

#include <cstring>

#include "kernels/host/HostEntry.h"
#include "kernels/host/MicroKernel.h"
#include "kernels/host/UnpackHost.h"

namespace headrace::kernels {

struct LinearShape {
  static constexpr int64_t kBlock = 256;        // K-block: part of what the result is, see above
  static constexpr int64_t kRowBlock = 192;     // a multiple of Line::kRows
  static constexpr int64_t kGroupColumns = 256; // a multiple of kPanelColumns

  // The workspace: packed x, then the sums of one row block and column group.
  // Floats between packed rows: odd in units of cache lines for full blocks, so that rows fall into different sets.
  static int64_t packedStride(int64_t k) { return (k < kBlock ? k : kBlock) + 16; }
  static int64_t rowsPacked(int64_t capacity) { return capacity < kRowBlock ? capacity : kRowBlock; }
  static int64_t groupColumns(int64_t n) {
    const int64_t padded = (n + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
    return padded < kGroupColumns ? padded : kGroupColumns;
  }
  static uint64_t workspaceBytes(int64_t capacity, int64_t n, int64_t k) {
    if (capacity <= kTileRows)
      return 0;
    return static_cast<uint64_t>(rowsPacked(capacity)) * static_cast<uint64_t>(packedStride(k) + groupColumns(n)) *
           sizeof(float);
  }
};

template <typename V> class Linear {
  using Shape = LinearShape;
  static constexpr int64_t kColumns = kPanelColumns;

public:
  static HostWork work(const void *opaque, const HostTeam &team) {
    return Linear(*static_cast<const LinearArgs *>(opaque)).work(team);
  }
  static void run(const void *opaque, const HostWork &work, int64_t, int64_t unit, float *scratch) {
    Linear(*static_cast<const LinearArgs *>(opaque)).run(work, unit, scratch);
  }

private:
  const LinearArgs &args;
  const int64_t rows, panels;

  bool packed() const { return args.packing.codeBits != 0; }

  explicit Linear(const LinearArgs &a) : args(a), rows(*a.count), panels((a.n + kColumns - 1) / kColumns) {}

  // cut[0]: panels a unit (few rows), a group.
  HostWork work(const HostTeam &team) const {
    if (rows <= 0)
      return HostUnits::of(0, 0, team);
    const int64_t few = packed() ? 2 : elemBytes(args.elem);
    const int64_t panelNs = args.k * kColumns / 24 * (rows <= kTileRows ? few : rows) + 1;
    if (rows <= kTileRows && args.order == Order::Panel16)
      return HostUnits::of(panels, panelNs, team, rows == 1 ? 2 : 1);
    HostWork work;
    work.team = team;
    work.ns = panels * panelNs;
    const int64_t blocks = (rows + Shape::kRowBlock - 1) / Shape::kRowBlock;
    int64_t group = Shape::groupColumns(args.n) / kColumns;
    if (team.threads > 1)
      while (group > 1 && blocks * ((panels + group - 1) / group) < 4 * team.threads &&
             panelNs / blocks * (group / 2) >= team.unitNs)
        group = (group + 1) / 2;
    work.cut[0] = group;
    work.units = blocks * ((panels + group - 1) / group);
    return work;
  }

  void run(const HostWork &work, int64_t unit, float *scratch) {
    if (rows <= kTileRows && args.order == Order::Panel16) {
      const HostUnits::Run run = HostUnits::run(work, unit, panels);
      if (packed())
        return args.packing.codeBits == 4 ? streamRows<PanelPacked<4>>(run.first, run.end)
                                          : streamRows<PanelPacked<8>>(run.first, run.end);
      switch (args.elem) {
      case Elem::F32:
        return streamRows<PanelF32<V>>(run.first, run.end);
      case Elem::F16:
        return streamRows<PanelF16<V>>(run.first, run.end);
      case Elem::BF16:
        return streamRows<PanelBf16<V>>(run.first, run.end);
      }
    }
    const int64_t groups = (panels + work.cut[0] - 1) / work.cut[0];
    const Block block{unit / groups * Shape::kRowBlock, unit % groups * work.cut[0], work.cut[0]};
    if (rows <= kTileRows)
      return rowMajorFewRows(block);
    float *workspace = scratch != nullptr ? scratch : static_cast<float *>(args.workspace);
    if (args.order == Order::RowMajor || packed())
      return multiplyBlock<PanelF32<V>>(block, workspace);
    switch (args.elem) {
    case Elem::F32:
      return multiplyBlock<PanelF32<V>>(block, workspace);
    case Elem::F16:
      return multiplyBlock<PanelF16<V>>(block, workspace);
    case Elem::BF16:
      return multiplyBlock<PanelBf16<V>>(block, workspace);
    }
  }

  // ---- up to 6 rows

  // One page: the processor's own prefetching stops at the end of each, and panels of a narrow operand are a few pages.
  static constexpr int64_t kPrefetchBytes = 4096;

  // A packed operand, for streamRows.
  template <int kBits> struct PanelPacked { static constexpr int kCodeBits = kBits; };
  template <typename W> static constexpr bool kIsPacked = requires { W::kCodeBits; };

  template <typename W, int R = kTileRows> void streamRows(int64_t panel, int64_t end) {
    if constexpr (R > 1)
      if (rows < R)
        return streamRows<W, R - 1>(panel, end);
    stream<W, R, kIsPacked<W> ? Line<V>::packedPanels(R) : Line<V>::panels(R)>(panel, end);
  }

  template <typename W, int R, int P> void stream(int64_t panel, int64_t end) {
    for (; panel + P <= end; panel += P)
      if constexpr (kIsPacked<W>)
        streamPacked<W::kCodeBits, R, P>(panel);
      else
        streamElements<W, R, P>(panel);
    if constexpr (P > 1)
      stream<W, R, P / 2>(panel, end);
  }

  // Groups of a packed panel from column k on.
  const uint8_t *packedBlock(int64_t panel, int64_t k) const {
    return static_cast<const uint8_t *>(args.w) + PackedPanel::bytes(args.packing, panel * args.k + k);
  }

  template <int kBits, int R, int P> void streamPacked(int64_t panel) {
    alignas(64) float sums[R * P * kColumns];
    const int64_t group = args.packing.group, groupBytes = PackedPanel::groupBytes(args.packing),
                  panelBytes = PackedPanel::bytes(args.packing, args.k);
    const uint8_t *at = packedBlock(panel, 0), *end = at + panelBytes;
    for (int64_t k = 0; k < args.k; k += Shape::kBlock) {
      Tile<V, R, P> tile;
      tile.clear();
      for (int64_t from = k, to = k + blockLength(k); from < to; from += group, at += groupBytes) {
        // The last groups of a panel ask for the panels used next.
        const int64_t ahead = kPrefetchBytes + (at + groupBytes + kPrefetchBytes > end ? (P - 1) * panelBytes : 0);
        multiplyPacked<kBits>(tile, static_cast<const float *>(args.x) + from, args.k, at, panelBytes, group, ahead);
      }
      tile.template store<PanelF32<V>>(sums, P * kColumns, k > 0);
    }
    for (int64_t r = 0; r < R; ++r)
      finish(r, panel * kColumns, P * kColumns, sums + r * P * kColumns);
  }

  template <typename W, int R, int P> void streamElements(int64_t panel) {
    alignas(64) float sums[R * P * kColumns];
    constexpr int64_t kLineBytes = kColumns * static_cast<int64_t>(sizeof(typename W::Element));
    const auto *w = static_cast<const typename W::Element *>(args.w) + panel * args.k * kColumns;
    // Lines of a panel that ask for others of it; the last ones ask for the panels used next.
    const int64_t within = args.k - least(args.k, kPrefetchBytes / kLineBytes);
    for (int64_t k = 0; k < args.k; k += Shape::kBlock) {
      Tile<V, R, P> tile;
      tile.clear();
      const auto part = [&](int64_t from, int64_t count, int64_t panelsAhead) {
        const auto *block = w + from * kColumns;
        tile.template multiply<W, true>(
            static_cast<const float *>(args.x) + from, args.k, block, args.k * kColumns, kColumns, count,
            {reinterpret_cast<const char *>(block) + kPrefetchBytes + panelsAhead * args.k * kLineBytes, kLineBytes,
             args.k * kLineBytes});
      };
      const int64_t length = blockLength(k), first = P == 1 ? length : least(length, within > k ? within - k : 0);
      part(k, first, 0);
      if (P > 1)
        part(k + first, length - first, P - 1);
      tile.template store<W>(sums, P * kColumns, k > 0);
    }
    for (int64_t r = 0; r < R; ++r)
      finish(r, panel * kColumns, P * kColumns, sums + r * P * kColumns);
  }

  // ---- more than 6 rows, and any number with a row-major operand

  // A block of rows from `row` on, times a group of panels from `panel` on.
  struct Block {
    int64_t row, panel, panels;
  };

  void rowMajorFewRows(const Block &block) {
    alignas(64) float workspace[kTileRows * (Shape::kBlock + 16 + Shape::kGroupColumns)];
    multiplyBlock<PanelF32<V>>(block, workspace);
  }

  template <typename W> void multiplyBlock(const Block &block, float *workspace) {
    constexpr int P = Line<V>::kPanels;
    alignas(64) float f32Block[P * Shape::kBlock * kColumns];
    const int64_t packedStride = Shape::packedStride(args.k), sumStride = block.panels * kColumns;
    const int64_t row = block.row, rowsHere = least(Shape::kRowBlock, rows - row);
    const int64_t group = block.panel, panelsHere = least(block.panels, panels - group);
    float *packed = workspace, *sums = workspace + least(Shape::kRowBlock, rows) * packedStride;
    for (int64_t k = 0; k < args.k; k += Shape::kBlock) {
      const int64_t length = blockLength(k);
      for (int64_t r = 0; r < rowsHere; ++r)
        __builtin_memcpy(packed + r * packedStride, static_cast<const float *>(args.x) + (row + r) * args.k + k,
                         static_cast<size_t>(length) * sizeof(float));
      const PackedRows x{packed, packedStride, rowsHere, length};
      int64_t p = 0;
      for (; p + P <= panelsHere; p += P)
        multiplyPanels<W, P>(x, group, panelsHere, p, k, f32Block, {sums + p * kColumns, sumStride, k > 0});
      for (; p < panelsHere; ++p)
        multiplyPanels<W, 1>(x, group, panelsHere, p, k, f32Block, {sums + p * kColumns, sumStride, k > 0});
    }
    for (int64_t r = 0; r < rowsHere; ++r)
      finish(row + r, group * kColumns, panelsHere * kColumns, sums + r * sumStride);
  }

  template <typename W> const typename W::Element *blockOf(int64_t panel, int64_t k) const {
    return static_cast<const typename W::Element *>(args.w) + (panel * args.k + k) * kColumns;
  }
  // The block used after those before (group + p, k); past the operand's end it is only asked for, never read.
  template <typename W> const typename W::Element *nextBlock(int64_t group, int64_t count, int64_t p, int64_t k) const {
    if (p < count)
      return blockOf<W>(group + p, k);
    return k + Shape::kBlock < args.k ? blockOf<W>(group, k + Shape::kBlock) : blockOf<W>(group + count, 0);
  }

  // The same of the i-th of the panels that are used next.
  const uint8_t *nextPacked(int64_t group, int64_t count, int64_t p, int64_t i, int64_t k) const {
    if (p + i < count)
      return packedBlock(group + p + i, k);
    return k + Shape::kBlock < args.k ? packedBlock(group + i, k + Shape::kBlock) : packedBlock(group + count + i, 0);
  }

  struct PackedRows {
    const float *values;
    int64_t stride, count, length; // rows, and elements of each
  };
  // Blocks of panels: elements from panel to panel, and from line to line.
  template <typename W> struct PanelLines {
    const typename W::Element *values;
    int64_t panelStride, step;
  };
  struct SumRows {
    float *values;
    int64_t stride;
    bool add;
  };

  // Panels p ... of a group, P of them, columns k ...
  template <typename W, int P>
  void multiplyPanels(const PackedRows &x, int64_t group, int64_t count, int64_t p, int64_t k, float *f32Block,
                      const SumRows &out) {
    if (args.order == Order::RowMajor || packed()) {
      for (int64_t i = 0; i < P; ++i) {
        float *const block = f32Block + i * Shape::kBlock * kColumns;
        if (packed())
          Unpack<V>::columns(args.packing, packedBlock(group + p + i, k), blockLength(k),
                             nextPacked(group, count, p + P, i, k), block);
        else
          transposeBlock(group + p + i, k, block);
      }
      return multiplyRows<PanelF32<V>, P>(x, {f32Block, Shape::kBlock * kColumns, kColumns}, nullptr, nullptr, out);
    }
    multiplyRows<W, P>(x, {blockOf<W>(group + p, k), args.k * kColumns, kColumns}, nextBlock<W>(group, count, p + P, k),
                       f32Block, out);
  }

  // All rows of x, in tiles of almost equal height, times one block of each of P panels. The first tile converts them;
  // the first few ask for `next` ones, a share each.
  template <typename W, int P>
  static void multiplyRows(const PackedRows &x, const PanelLines<W> &w, const typename W::Element *next, float *kept,
                           const SumRows &out) {
    constexpr bool kConvert = sizeof(typename W::Element) != sizeof(float);
    constexpr int kMost = Line<V>::kRows;
    using Later = PanelKept<V, W>;
    const int64_t tiles = (x.count + kMost - 1) / kMost, asking = next == nullptr ? 0 : least(tiles, 4);
    const int64_t lineBytes = kColumns * static_cast<int64_t>(sizeof(typename W::Element));
    PanelLines<Later> later;
    if constexpr (kConvert)
      later = {kept, kColumns, P * kColumns};
    else
      later = {w.values, w.panelStride, w.step};
    Ahead ahead{reinterpret_cast<const char *>(next), asking > 0 ? lineBytes / asking : 0,
                w.panelStride * static_cast<int64_t>(sizeof(typename W::Element))};
    for (int64_t i = 0, row = 0; i < tiles; ++i) {
      const int64_t height = (x.count - row + tiles - i - 1) / (tiles - i);
      const PackedRows rows{x.values + row * x.stride, x.stride, height, x.length};
      const SumRows sums{out.values + row * out.stride, out.stride, out.add};
      if (kConvert && i == 0)
        multiplyTile<W, P, true, kConvert>(rows, w, ahead, kept, sums);
      else if (i < asking)
        multiplyTile<Later, P, true, false>(rows, later, ahead, nullptr, sums);
      else
        multiplyTile<Later, P, false, false>(rows, later, ahead, nullptr, sums);
      row += height;
      ahead.at += ahead.step * x.length;
    }
  }

  template <typename W, int P, bool kAhead, bool kKeep, int R = Line<V>::kRows>
  static void multiplyTile(const PackedRows &x, const PanelLines<W> &w, const Ahead &ahead, float *keep,
                           const SumRows &out) {
    if constexpr (R > 1)
      if (x.count < R)
        return multiplyTile<W, P, kAhead, kKeep, R - 1>(x, w, ahead, keep, out);
    Tile<V, R, P> tile;
    tile.clear();
    tile.template multiply<W, kAhead, kKeep>(x.values, x.stride, w.values, w.panelStride, w.step, x.length, ahead,
                                             keep);
    tile.template store<W>(out.values, out.stride, out.add);
  }

  // Columns k ... of a row-major operand's 16 rows, as an F32 block of a panel.
  void transposeBlock(int64_t panel, int64_t k, float *block) const {
    const int64_t length = blockLength(k);
    for (int64_t half = 0; half < kColumns; half += V::kLanes) {
      const int64_t firstRow = (panel * kColumns + half) * args.k + k;
      int64_t i = 0;
      for (; i + V::kLanes <= length; i += V::kLanes) {
        V lines[V::kLanes];
        HEADRACE_UNROLL
        for (int j = 0; j < V::kLanes; ++j)
          lines[j] = loadElems<V>(args.w, firstRow + j * args.k + i, args.elem);
        V::transpose(lines);
        HEADRACE_UNROLL
        for (int j = 0; j < V::kLanes; ++j)
          lines[j].store(block + (i + j) * kColumns + half);
      }
      for (; i < length; ++i)
        for (int64_t j = 0; j < V::kLanes; ++j)
          block[i * kColumns + half + j] = loadElem(args.w, firstRow + j * args.k + i, args.elem);
    }
  }

  // ---- what follows the sum

  // y[row, first ...) from `columns` sums, of which those below n count.
  void finish(int64_t row, int64_t first, int64_t columns, const float *sums) const {
    columns = least(columns, args.n - first);
    float *y = static_cast<float *>(args.y) + row * args.n + first;
    const float *residual = args.residual != nullptr ? args.residual + row * args.n + first : nullptr;
    for (int64_t i = 0; i < columns; i += V::kLanes) {
      const int64_t rest = least(V::kLanes, columns - i);
      V v = V::loadPartial(sums + i, rest);
      if (args.bias != nullptr)
        v = v + biasOf(first + i, rest);
      v = apply(v);
      if (residual != nullptr)
        v = V::loadPartial(residual + i, rest) + v;
      v.storePartial(y + i, rest);
    }
  }

  // A bias of 16 bits ends with a whole panel.
  V biasOf(int64_t at, int64_t count) const {
    if (args.biasElem == Elem::F32)
      return V::loadPartial(static_cast<const float *>(args.bias) + at, count);
    return loadElems<V>(args.bias, at, args.biasElem);
  }

  V apply(V v) const {
    switch (args.epilogue) {
    case Epilogue::None:
      return v;
    case Epilogue::Relu:
      return V::max(V::zero(), v); // NaN stays NaN
    case Epilogue::Gelu:
      return perLane(v, gelu);
    case Epilogue::GeluTanh:
      return perLane(v, geluTanh);
    }
    return v;
  }

  template <typename F> static V perLane(V v, F f) {
    float lanes[V::kLanes];
    v.store(lanes);
    for (float &lane : lanes)
      lane = f(lane);
    return V::load(lanes);
  }
  static float gelu(float x) { return 0.5f * x * (1.0f + __builtin_erff(x * 0.70710678118654752f)); }
  static float geluTanh(float x) {
    return 0.5f * x * (1.0f + __builtin_tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
  }

  int64_t blockLength(int64_t k) const { return least(Shape::kBlock, args.k - k); }
  static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
};

template <typename V> struct HostEntry<V, LinearArgs> {
  static constexpr HostKernel kKernel = {Linear<V>::work, sameUnits, Linear<V>::run};
};

} // namespace headrace::kernels
