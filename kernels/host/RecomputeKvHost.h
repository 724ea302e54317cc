// SPDX-License-Identifier: Apache-2.0
//
// Op::RecomputeKv on the host: the steps that make k and v of new tokens, linear and rope_append, over the rows of
// activation blocks, in the same order of additions: the same bits.
#pragma once

#include "kernels/host/HostEntry.h"
#include "kernels/host/LinearHost.h"
#include "kernels/host/RopeAppendHost.h"

namespace headrace::kernels {

struct RecomputeShape {
  static constexpr int64_t kRows = 192; // LinearShape::kRowBlock: all panels of the operand are read once for so many

  // The workspace: rows gathered from blocks, k and v of them, the product's own.
  static int64_t floats(int64_t rows, int64_t columns) { return (rows * columns + 15) / 16 * 16; }
  static uint64_t workspaceBytes(int64_t rows, int64_t n, int64_t hidden) {
    return static_cast<uint64_t>(floats(rows, hidden) + floats(rows, n)) * sizeof(float) +
           LinearShape::workspaceBytes(rows, n, hidden);
  }
};

template <typename V> class RecomputeKv {
public:
  static void run(const void *opaque) { RecomputeKv(*static_cast<const RecomputeKvArgs *>(opaque)).run(); }

private:
  const RecomputeKvArgs &args;
  const int32_t *const blocks, *const positions, *const tokens;

  explicit RecomputeKv(const RecomputeKvArgs &a)
      : args(a), blocks(a.meta->array<int32_t>(a.meta->actBlock)),
        positions(a.meta->array<int32_t>(a.meta->actPosition)), tokens(a.meta->array<int32_t>(a.meta->actTokens)) {}

  // A token of an activation block.
  struct Row {
    int32_t block, line, position;
  };

  void run() {
    const int64_t most = recomputeRows(Backend::Host, args.capacity);
    float *x = static_cast<float *>(args.workspace), *y = x + RecomputeShape::floats(most, args.hidden);
    float *scratch = y + RecomputeShape::floats(most, args.n());
    Row rows[RecomputeShape::kRows];
    int32_t count = 0;
    for (int64_t i = 0; i < args.meta->numActBlocks; ++i)
      for (int32_t line = 0; line < tokens[i]; ++line) {
        rows[count] = {blocks[i], line, positions[i] + line};
        copyElems(x, count * args.hidden, args.act, (blocks[i] * args.blockTokens + line) * args.hidden, args.hidden,
                  Elem::F32);
        if (++count < most)
          continue;
        make(rows, count, x, y, scratch);
        count = 0;
      }
    if (count > 0)
      make(rows, count, x, y, scratch);
  }

  void make(const Row *rows, int32_t count, const float *x, float *y, float *scratch) const {
    LinearArgs product{};
    product.count = &count, product.x = x, product.w = args.w, product.bias = args.bias, product.y = y;
    product.workspace = scratch;
    product.n = args.n(), product.k = args.hidden, product.capacity = count;
    product.elem = args.elem, product.order = args.order, product.biasElem = args.biasElem;
    product.epilogue = Epilogue::None, product.activation = product.result = Elem::F32;
    Linear<V>::run(&product);
    for (int32_t r = 0; r < count; ++r) {
      float *keys = y + r * args.n() + args.lead;
      rotateHeads<V>(keys, args.kvHeads, args.headDim,
                     args.headNorms == nullptr ? nullptr : args.headNorms + args.headDim, args.eps,
                     args.inverseFrequencies, rows[r].position);
      const int64_t plane = args.blockTokens * args.headDim;
      const int64_t start = rows[r].block * 2 * args.kvHeads * plane + rows[r].line * args.headDim;
      for (int64_t p = 0; p < 2 * args.kvHeads; ++p)
        appendRow<V>(keys + p * args.headDim, args.kv, start + p * plane, args.headDim, args.kvElem);
    }
  }
};

template <typename V> struct HostEntry<V, RecomputeKvArgs> { static constexpr HostKernel kRun = RecomputeKv<V>::run; };

} // namespace headrace::kernels
