// SPDX-License-Identifier: Apache-2.0
//
// The matrix: rows x models x devices. All cells with HEADRACE_LONG, else the share that `drawn` says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/choices/Cell.h"
#include "tests/support/LongRun.h"

namespace headrace::choices {
namespace {

// Of row i each device has another model: number i + the device's, round and round. Of emulated CUDA, where a cell
// takes as long as a hundred others, one row in sixteen, and other ones with packed caches.
constexpr size_t kEmulatedOneIn = 16;
bool drawn(size_t row, size_t model, size_t models, On on) {
  const bool emulated = isEmulated(on);
  if (emulated && row % kEmulatedOneIn != (on == On::EmulatedCuda ? 0 : kEmulatedOneIn / 2))
    return false;
  return ((emulated ? row / kEmulatedOneIn : row) + static_cast<size_t>(on)) % models == model;
}

std::vector<Cell> cells() {
  std::vector<Cell> out;
  for (size_t r = 0; r < rows().size(); ++r) {
    const std::vector<Model> models = modelsOf(rows()[r]);
    for (size_t m = 0; m < models.size(); ++m)
      for (const On on : kDevices)
        if (runsOn(rows()[r], on) && (longRun() || drawn(r, m, models.size(), on)))
          out.push_back({&rows()[r], models[m], on});
  }
  return out;
}

class Matrix : public testing::TestWithParam<Cell> {};

TEST_P(Matrix, TokensLogitsAndBytesAreAsPlanned) {
  EXPECT_THAT(findingsIn(GetParam()), testing::IsEmpty())
      << "of " << GetParam().row->choices << "\nas " << GetParam().row->name << " of tests/choices/Rows.cpp says";
}

INSTANTIATE_TEST_SUITE_P(Choices, Matrix, testing::ValuesIn(cells()),
                         [](const auto &info) { return nameOf(info.param); });

} // namespace
} // namespace headrace::choices
