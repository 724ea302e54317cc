// SPDX-License-Identifier: Apache-2.0
//
// Op::RebuildKv on the host: the steps that make k and v of new tokens, linear and rope_append, over the rows of
// activation blocks, in the same order of additions: the same bits.
#pragma once

#include "kernels/host/HostEntry.h"
#include "kernels/host/LinearHost.h"
#include "kernels/host/RopeAppendHost.h"

namespace headrace::kernels {

struct RebuildShape {
  static constexpr int64_t kRows = LinearShape::kRowBlock; // all panels of the operand are read once for so many

  // The workspace: rows gathered from blocks, k and v of them, the product's own.
  static int64_t floats(int64_t rows, int64_t columns) { return (rows * columns + 15) / 16 * 16; }
  static uint64_t workspaceBytes(int64_t rows, int64_t n, int64_t hidden) {
    return static_cast<uint64_t>(floats(rows, hidden) + floats(rows, n)) * sizeof(float) +
           LinearShape::workspaceBytes(rows, n, hidden);
  }
};

// Windows of rows, so that the workspace does not grow with the context; in each, one behind the other, the rows are
// gathered, multiplied, and rotated and written: three phases, by rows, as Linear has them, by rows.
template <typename V> class RebuildKv {
public:
  static HostWork work(const void *opaque, const HostTeam &team) {
    const RebuildKv op(*static_cast<const RebuildKvArgs *>(opaque));
    HostWork work;
    work.team = team;
    work.phases = 3 * ((op.rows + op.most - 1) / op.most);
    work.ns = op.rows * op.rowNs();
    return work;
  }
  static int64_t units(const void *opaque, const HostWork &work, int64_t phase) {
    const RebuildKv op(*static_cast<const RebuildKvArgs *>(opaque));
    const int32_t count = op.rowsOf(phase / 3);
    if (phase % 3 != 1)
      return op.byRows(count, phase % 3, work.team).units;
    const LinearArgs product = op.product(&count);
    return Linear<V>::work(&product, work.team).units;
  }
  static void run(const void *opaque, const HostWork &work, int64_t phase, int64_t unit, float *scratch) {
    const RebuildKv op(*static_cast<const RebuildKvArgs *>(opaque));
    const int32_t count = op.rowsOf(phase / 3);
    if (phase % 3 == 1) {
      const LinearArgs product = op.product(&count);
      return Linear<V>::run(&product, Linear<V>::work(&product, work.team), 0, unit, scratch);
    }
    const HostUnits::Run run = HostUnits::run(op.byRows(count, phase % 3, work.team), unit, count);
    phase % 3 == 0 ? op.gather(phase / 3, run) : op.write(phase / 3, run);
  }

private:
  const RebuildKvArgs &args;
  const int32_t *const blocks, *const positions, *const tokens;
  const int64_t most; // rows of a window; 1 where there is room for none
  int64_t rows = 0;
  float *const x, *const y; // of a window: gathered rows, their k and v

  explicit RebuildKv(const RebuildKvArgs &a)
      : args(a), blocks(a.meta->array<int32_t>(a.meta->actBlock)),
        positions(a.meta->array<int32_t>(a.meta->actPosition)), tokens(a.meta->array<int32_t>(a.meta->actTokens)),
        most(a.capacity > 0 ? rebuildRows(Backend::Host, a.capacity) : 1), x(static_cast<float *>(a.workspace)),
        y(x + RebuildShape::floats(most, a.hidden)) {
    for (int64_t i = 0; i < args.meta->numActBlocks; ++i)
      rows += tokens[i];
  }

  int32_t rowsOf(int64_t window) const {
    return static_cast<int32_t>(rows - window * most < most ? rows - window * most : most);
  }
  int64_t rowNs() const { return args.n() * args.hidden / 24 + 1; }
  HostWork byRows(int64_t count, int64_t step, const HostTeam &team) const {
    return HostUnits::of(count, step == 0 ? args.hidden / 8 : args.headDim * 10 + args.n() / 2, team);
  }

  // Calls f(row in the window, block, line, position) for rows of a window.
  template <typename F> void eachRow(int64_t window, const HostUnits::Run &run, F f) const {
    int64_t row = -window * most; // in the window
    for (int64_t i = 0; i < args.meta->numActBlocks && row < run.end; row += tokens[i], ++i)
      for (int64_t line = row < run.first ? run.first - row : 0; line < tokens[i] && row + line < run.end; ++line)
        f(row + line, blocks[i], line, positions[i] + static_cast<int32_t>(line));
  }

  void gather(int64_t window, const HostUnits::Run &run) const {
    eachRow(window, run, [this](int64_t row, int64_t block, int64_t line, int32_t) {
      copyElems(x, row * args.hidden, args.act, (block * args.blockTokens + line) * args.hidden, args.hidden,
                Elem::F32);
    });
  }

  LinearArgs product(const int32_t *count) const {
    LinearArgs product{};
    product.count = count, product.x = x, product.w = args.w, product.bias = args.bias, product.y = y;
    product.workspace = y + RebuildShape::floats(most, args.n());
    product.n = args.n(), product.k = args.hidden, product.capacity = *count;
    product.elem = args.elem, product.order = args.order, product.biasElem = args.biasElem;
    product.packing = args.packing;
    product.epilogue = Epilogue::None, product.activation = product.result = Elem::F32;
    return product;
  }

  void write(int64_t window, const HostUnits::Run &run) const {
    eachRow(window, run, [this](int64_t row, int64_t block, int64_t line, int32_t position) {
      float *keys = y + row * args.n() + args.lead;
      rotateHeads<V>(keys, args.kvHeads, args.headDim,
                     args.headNorms == nullptr ? nullptr : args.headNorms + args.headDim, args.eps,
                     args.inverseFrequencies, position);
      KvRows<V>{2 * args.kvHeads, args.headDim, args.blockTokens, args.kvElem, args.kvPacking}.append(
          keys, args.kv, block * kvBlockUnits(args.kvPacking, args.kvHeads, args.blockTokens, args.headDim), line);
    });
  }
};

template <typename V> struct HostEntry<V, RebuildKvArgs> {
  static constexpr HostKernel kKernel = {RebuildKv<V>::work, RebuildKv<V>::units, RebuildKv<V>::run};
};

} // namespace headrace::kernels
