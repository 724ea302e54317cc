// SPDX-License-Identifier: Apache-2.0
//
// Packs a checkpoint's elements in groups (docs/encodings.md), in one of the orders that WeightLayout.h describes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/model/WeightLayout.h"

namespace headrace::model {

// As many as this processor's vectors have.
int packedRowsAtATime();

// Sixteen rows of `cols` elements, a whole number of groups, each row contiguous at its own address in any alignment (a
// null row is all zeros), as `encoding` at target, in Panel16 as one panel, in RowMajor with rows `rowBytes` apart.
// False, and what is written is of no use, if one of them is NaN, infinite or beyond kLargestPacked. A panel's rows are
// packed side by side, so many in a vector: 4, 8 or 16, whose bits are the same.
bool packGroups(const std::byte *const (&rows)[kPanelRows], int64_t cols, DType dtype, const Encoding &encoding,
                MatrixOrder order, std::byte *target, uint64_t rowBytes, int rowsAtATime = packedRowsAtATime());

} // namespace headrace::model
