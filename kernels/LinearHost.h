// SPDX-License-Identifier: Apache-2.0
//
// Op::Linear on the host. One order of additions for every number of rows, so that a row's bits never depend on the
// batch:
//
//   y = ((b0 + b1) + b2) + ...   where bj is the sum over k in [j kBlock, (j + 1) kBlock), ascending from zero, each
//   term
//                                one fused multiply-add; then + bias, epilogue, + residual.
//
// Three ways through the same sums:
//   rows <= 6    the weights are streamed once, panel after panel, and converted in registers (decode: memory-bound)
//   rows <= 24   a block of a panel is converted to F32 once (16 KiB, on the stack) and used for each tile of up to 6
//   rows more         rows in blocks of 192, columns in groups of 16 panels; x is packed once a group and K-block, so
//   that it
//                stays in the L2 cache while each panel's block stays in L1 (Goto and van de Geijn, 2008)
#pragma once

#include <cstring>

#include "kernels/MicroKernel.h"

namespace headrace::kernels {

struct LinearShape {
  static constexpr int64_t kBlock = 256; // K-block: part of what the result is, see above
  static constexpr int64_t kRowsWithoutPacking = 24;
  static constexpr int64_t kRowBlock = 192;     // a multiple of kTileRows
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
    if (capacity <= kRowsWithoutPacking)
      return 0;
    return static_cast<uint64_t>(rowsPacked(capacity)) * static_cast<uint64_t>(packedStride(k) + groupColumns(n)) *
           sizeof(float);
  }
};

template <typename V> class Linear {
  using Shape = LinearShape;
  static constexpr int64_t kColumns = kPanelColumns;

public:
  static void run(const void *opaque) { Linear(*static_cast<const LinearArgs *>(opaque)).run(); }

private:
  const LinearArgs &args;
  const int64_t rows, panels;

  explicit Linear(const LinearArgs &a) : args(a), rows(*a.count), panels((a.n + kColumns - 1) / kColumns) {}

  void run() {
    if (rows <= 0)
      return;
    if (rows <= kTileRows && args.order == Order::Panel16) {
      switch (args.elem) {
      case Elem::F32:
        return streamRows<PanelF32<V>>();
      case Elem::F16:
        return streamRows<PanelF16<V>>();
      case Elem::BF16:
        return streamRows<PanelBf16<V>>();
      }
    }
    rows <= Shape::kRowsWithoutPacking ? fewRows() : manyRows();
  }

  // ---- up to 6 rows

  template <typename W> void streamRows() {
    switch (rows) {
    case 1:
      return stream<W, 1, 4>();
    case 2:
      return stream<W, 2, 2>();
    case 3:
      return stream<W, 3, 2>();
    case 4:
      return stream<W, 4, 1>();
    case 5:
      return stream<W, 5, 1>();
    default:
      return stream<W, 6, 1>();
    }
  }

  template <typename W, int R, int P> void stream() {
    int64_t panel = 0;
    for (; panel + P <= panels; panel += P)
      streamPanels<W, R, P>(panel);
    for (; panel < panels; ++panel)
      streamPanels<W, R, 1>(panel);
  }

  template <typename W, int R, int P> void streamPanels(int64_t panel) {
    constexpr int kPrefetch = 1024;
    alignas(64) float sums[R * P * kColumns];
    const auto *w = static_cast<const typename W::Element *>(args.w) + panel * args.k * kColumns;
    for (int64_t k = 0; k < args.k; k += Shape::kBlock) {
      Tile<V, R, P> tile;
      tile.clear();
      tile.template multiply<W, kPrefetch>(args.x + k, args.k, w + k * kColumns, args.k * kColumns, kColumns,
                                           blockLength(k));
      tile.template store<W>(sums, P * kColumns, k > 0);
    }
    for (int64_t r = 0; r < R; ++r)
      finish(r, panel * kColumns, P * kColumns, sums + r * P * kColumns);
  }

  // ---- more rows: F32 blocks of one panel

  void fewRows() {
    alignas(64) float block[Shape::kBlock * kColumns];
    alignas(64) float sums[Shape::kRowsWithoutPacking * kColumns];
    for (int64_t panel = 0; panel < panels; ++panel) {
      for (int64_t k = 0; k < args.k; k += Shape::kBlock)
        multiplyRows(args.x + k, args.k, panelBlock(panel, k, block), blockLength(k), rows, sums, kColumns, k > 0);
      for (int64_t r = 0; r < rows; ++r)
        finish(r, panel * kColumns, kColumns, sums + r * kColumns);
    }
  }

  void manyRows() {
    alignas(64) float block[Shape::kBlock * kColumns];
    float *packed = static_cast<float *>(args.workspace);
    const int64_t packedStride = Shape::packedStride(args.k);
    float *sums = packed + Shape::rowsPacked(args.capacity) * packedStride;
    const int64_t groupPanels = Shape::groupColumns(args.n) / kColumns, stride = groupPanels * kColumns;
    for (int64_t row = 0; row < rows; row += Shape::kRowBlock) {
      const int64_t rowsHere = least(Shape::kRowBlock, rows - row);
      for (int64_t group = 0; group < panels; group += groupPanels) {
        const int64_t panelsHere = least(groupPanels, panels - group);
        for (int64_t k = 0; k < args.k; k += Shape::kBlock) {
          const int64_t length = blockLength(k);
          for (int64_t r = 0; r < rowsHere; ++r)
            std::memcpy(packed + r * packedStride, args.x + (row + r) * args.k + k,
                        static_cast<size_t>(length) * sizeof(float));
          for (int64_t p = 0; p < panelsHere; ++p)
            multiplyRows(packed, packedStride, panelBlock(group + p, k, block), length, rowsHere, sums + p * kColumns,
                         stride, k > 0);
        }
        for (int64_t r = 0; r < rowsHere; ++r)
          finish(row + r, group * kColumns, panelsHere * kColumns, sums + r * stride);
      }
    }
  }

  // `count` rows of x in tiles of almost equal height times one F32 block of a panel.
  static void multiplyRows(const float *x, int64_t xStride, const float *w, int64_t length, int64_t count, float *sums,
                           int64_t stride, bool add) {
    const int64_t tiles = (count + kTileRows - 1) / kTileRows;
    for (int64_t i = 0, row = 0; i < tiles; ++i) {
      const int64_t height = (count - row + tiles - i - 1) / (tiles - i);
      const float *xRow = x + row * xStride;
      float *out = sums + row * stride;
      switch (height) {
      case 1:
        multiplyTile<1>(xRow, xStride, w, length, out, stride, add);
        break;
      case 2:
        multiplyTile<2>(xRow, xStride, w, length, out, stride, add);
        break;
      case 3:
        multiplyTile<3>(xRow, xStride, w, length, out, stride, add);
        break;
      case 4:
        multiplyTile<4>(xRow, xStride, w, length, out, stride, add);
        break;
      case 5:
        multiplyTile<5>(xRow, xStride, w, length, out, stride, add);
        break;
      default:
        multiplyTile<6>(xRow, xStride, w, length, out, stride, add);
        break;
      }
      row += height;
    }
  }

  template <int R>
  static void multiplyTile(const float *x, int64_t xStride, const float *w, int64_t length, float *out, int64_t stride,
                           bool add) {
    Tile<V, R, 1> tile;
    tile.clear();
    tile.template multiply<PanelF32<V>>(x, xStride, w, 0, kColumns, length);
    tile.template store<PanelF32<V>>(out, stride, add);
  }

  // The F32 values of columns k... of a panel: in place where the operand is stored so, else in `buffer`.
  const float *panelBlock(int64_t panel, int64_t k, float *buffer) const {
    const int64_t length = blockLength(k);
    if (args.order == Order::Panel16) {
      const int64_t start = (panel * args.k + k) * kColumns;
      if (args.elem == Elem::F32)
        return static_cast<const float *>(args.w) + start;
      for (int64_t i = 0; i < length * kColumns; i += V::kLanes)
        loadElems<V>(args.w, start + i, args.elem).store(buffer + i);
      return buffer;
    }
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
          lines[j].store(buffer + (i + j) * kColumns + half);
      }
      for (; i < length; ++i)
        for (int64_t j = 0; j < V::kLanes; ++j)
          buffer[i * kColumns + half + j] = loadElem(args.w, firstRow + j * args.k + i, args.elem);
    }
    return buffer;
  }

  // ---- what follows the sum

  // y[row, first ...) from `columns` sums, of which those below n count.
  void finish(int64_t row, int64_t first, int64_t columns, const float *sums) const {
    columns = least(columns, args.n - first);
    float *y = args.y + row * args.n + first;
    const float *bias = args.bias != nullptr ? args.bias + first : nullptr;
    const float *residual = args.residual != nullptr ? args.residual + row * args.n + first : nullptr;
    for (int64_t i = 0; i < columns; i += V::kLanes) {
      const int64_t rest = least(V::kLanes, columns - i);
      V v = V::loadPartial(sums + i, rest);
      if (bias != nullptr)
        v = v + V::loadPartial(bias + i, rest);
      v = apply(v);
      if (residual != nullptr)
        v = V::loadPartial(residual + i, rest) + v;
      v.storePartial(y + i, rest);
    }
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

} // namespace headrace::kernels
