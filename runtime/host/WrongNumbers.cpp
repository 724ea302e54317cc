// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/WrongNumbers.h"

#include "kernels/host/VecMath.h"

namespace headrace::host {
std::optional<core::WrongNumber> firstWrongNumber(const core::KernelArgs &args) {
  std::optional<core::WrongNumber> found;
  const auto look = [&](const void *base, int64_t first, int64_t elements, kernels::Elem elem, int64_t row,
                        int64_t column) {
    for (int64_t i = 0; i < elements && !found; ++i)
      if (const float value = kernels::loadElem(base, first + i, elem); value - value != 0.0f)
        found = core::WrongNumber{.row = row, .column = column + i, .value = value};
  };
  std::visit([&](const auto &a) { a.results(look); }, args);
  return found;
}

} // namespace headrace::host
