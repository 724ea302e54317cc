// SPDX-License-Identifier: Apache-2.0
//
// Copies a checkpoint's elements into one of the orders that WeightLayout.h describes, and says whether all of them are
// finite: a look at the exponents of what passes through the registers anyway.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::model {

// Sixteen rows of `cols` elements, each contiguous at its own address in any alignment (a null row is all zeros), as
// element (r, c) at target + (c * 16 + r) * dtypeBytes(dtype). False if one of them is NaN or infinite.
bool packPanel(const std::byte *const (&rows)[kPanelRows], int64_t cols, DType dtype, std::byte *target);

// The same for elements that keep their order; no alignment is needed.
bool copyElements(absl::Span<const std::byte> elements, DType dtype, std::byte *target);

// How many of these elements are NaN or infinite, and the index of the first.
struct NotFinite {
  uint64_t count = 0;
  size_t first = 0;
};
NotFinite findNotFinite(absl::Span<const std::byte> elements, DType dtype);

} // namespace headrace::model
