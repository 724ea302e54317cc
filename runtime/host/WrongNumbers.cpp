// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/WrongNumbers.h"

#include "kernels/host/VecMath.h"

namespace headrace::host {
namespace {

using core::WrongNumber;
using Found = std::optional<WrongNumber>;

// One row of `columns` elements from element `first` of an array.
Found inRow(const void *base, int64_t first, int64_t columns, kernels::Elem elem, int64_t row) {
  for (int64_t c = 0; c < columns; ++c)
    if (const float value = kernels::loadElem(base, first + c, elem); value - value != 0.0f)
      return WrongNumber{.row = row, .column = c, .value = value};
  return std::nullopt;
}

Found inRows(const void *base, int64_t rows, int64_t columns, kernels::Elem elem) {
  for (int64_t r = 0; r < rows; ++r)
    if (const Found found = inRow(base, r * columns, columns, elem, r))
      return found;
  return std::nullopt;
}

Found in(const kernels::EmbedArgs &a) { return inRows(a.x, a.meta->numTokens, a.hidden, kernels::Elem::F32); }
Found in(const kernels::NormArgs &a) { return inRows(a.y, *a.count, a.hidden, a.activation); }
Found in(const kernels::LinearArgs &a) { return inRows(a.y, *a.count, a.n, a.result); }
Found in(const kernels::AttentionArgs &a) {
  return inRows(a.out, a.meta->numTokens, a.heads * a.headDim, a.activation);
}
Found in(const kernels::ActivateArgs &a) { return inRows(a.y, *a.count, a.intermediate, a.activation); }
Found in(const kernels::GatherRowsArgs &a) { return inRows(a.y, a.meta->numSampled, a.hidden, kernels::Elem::F32); }
Found in(const kernels::SampleArgs &) { return std::nullopt; }

// q and k as they were rotated, then k and v as the cache has them: its type may hold less than theirs.
Found in(const kernels::RopeAppendArgs &a) {
  const kernels::IterationMeta &meta = *a.meta;
  if (const Found found = inRows(a.qkv, meta.numTokens, (a.heads + 2 * a.kvHeads) * a.headDim, a.activation))
    return found;
  const auto *slots = meta.array<int32_t>(meta.kvSlot);
  for (int64_t row = 0; row < meta.numTokens; ++row)
    for (int64_t part = 0; part < 2; ++part)
      for (int64_t head = 0; head < a.kvHeads; ++head) {
        const int64_t block = slots[row] / a.blockTokens, at = slots[row] % a.blockTokens;
        const int64_t first = (((block * 2 + part) * a.kvHeads + head) * a.blockTokens + at) * a.headDim;
        if (Found found = inRow(a.kv, first, a.headDim, a.kvElem, row)) {
          found->column += (a.heads + part * a.kvHeads + head) * a.headDim; // as in qkv
          return found;
        }
      }
  return std::nullopt;
}

} // namespace

std::optional<WrongNumber> firstWrongNumber(const core::KernelArgs &args) {
  return std::visit([](const auto &a) { return in(a); }, args);
}

} // namespace headrace::host
