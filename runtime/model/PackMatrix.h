// SPDX-License-Identifier: Apache-2.0
//
// Copies rows of a matrix into one of the orders that WeightLayout.h describes. Elements are moved, never looked at:
// two bytes or four each.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::model {

// Sixteen rows of `cols` elements, each contiguous at its own address in any alignment (a null row is all zeros), as
// element (r, c) at target + (c * 16 + r) * elementBytes. elementBytes is 2 or 4.
void packPanel(const std::byte *const (&rows)[kPanelRows], int64_t cols, uint64_t elementBytes, std::byte *target);

} // namespace headrace::model
