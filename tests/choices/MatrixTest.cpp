// SPDX-License-Identifier: Apache-2.0
//
// The matrix: rows x models x devices. All cells with HEADRACE_LONG, else the share that `drawn` says, and with
// HEADRACE_SEED a few cells more, other ones for each number.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/choices/Cell.h"
#include "tests/support/LongRun.h"

namespace headrace::choices {
namespace {

// What a row is made of: mechanisms, what crosses the link either way, and whether a run changes placement.
std::set<std::string> partsOf(const Row &row) {
  std::set<std::string> parts;
  for (const model::Mechanism mechanism : mechanismsOf(row))
    parts.insert(absl::StrCat(static_cast<int>(mechanism)));
  const auto add = [&](const char *way, std::string_view words) {
    for (const absl::string_view word :
         absl::StrSplit(absl::string_view(words.data(), words.size()), ' ', absl::SkipEmpty()))
      parts.insert(absl::StrCat(way, " ", word));
  };
  add("in", row.in);
  add("out", row.out);
  if (row.choices.find(" | ") != std::string_view::npos)
    parts.insert("change");
  return parts;
}

// A few rows that have all that any have: each part, or, by twos, each two that stand in one row. One by one the row
// that has the most that is missing, the first of several.
std::vector<size_t> coveringRows(bool byTwos) {
  std::vector<std::set<std::pair<std::string, std::string>>> of;
  for (const Row &row : rows()) {
    const std::set<std::string> parts = partsOf(row);
    of.emplace_back();
    for (const std::string &a : parts)
      for (const std::string &b : parts)
        if (byTwos ? a <= b : a == b)
          of.back().insert({a, b});
  }
  std::vector<size_t> out;
  for (;;) {
    const auto most =
        std::max_element(of.begin(), of.end(), [](const auto &a, const auto &b) { return a.size() < b.size(); });
    if (most->empty())
      return out;
    out.push_back(static_cast<size_t>(most - of.begin()));
    const auto taken = *most;
    for (auto &each : of)
      for (const auto &two : taken)
        each.erase(two);
  }
}

// Of row i each device has another model: number i + the device's, round and round. Of emulated CUDA, where a cell
// takes as long as a hundred others, a few rows in which all parts of rows meet by twos, and with packed caches fewer,
// in which each is.
bool drawn(size_t row, size_t model, size_t models, On on) {
  static const std::vector<size_t> byTwos = coveringRows(true), each = coveringRows(false);
  size_t number = row;
  if (isEmulated(on)) {
    const std::vector<size_t> &of = on == On::EmulatedCuda ? byTwos : each;
    const auto at = std::find(of.begin(), of.end(), row);
    if (at == of.end())
      return false;
    number = static_cast<size_t>(at - of.begin());
  }
  return (number + static_cast<size_t>(on)) % models == model;
}

std::vector<Cell> cells() {
  constexpr size_t kMore = 6;
  std::vector<Cell> out, others;
  for (size_t r = 0; r < rows().size(); ++r) {
    const std::vector<Model> models = modelsOf(rows()[r]);
    for (size_t m = 0; m < models.size(); ++m)
      for (const On on : kDevices)
        (longRun() || drawn(r, m, models.size(), on) ? out : others).push_back({&rows()[r], models[m], on});
  }
  if (const std::optional<uint64_t> seed = seedOfRun(); seed && !longRun()) {
    std::shuffle(others.begin(), others.end(), std::mt19937_64(*seed));
    out.insert(out.end(), others.begin(), others.begin() + kMore);
  }
  return out;
}

// Every two parts of rows that stand in one do on emulated CUDA.
TEST(Share, HasOnEmulatedCudaAllThatMeets) {
  std::set<std::pair<std::string, std::string>> all, run;
  std::set<std::string> parts, packed;
  const std::vector<Cell> share = cells();
  for (const Row &row : rows()) {
    const std::set<std::string> own = partsOf(row);
    const auto runs = [&](On on) {
      return std::any_of(share.begin(), share.end(),
                         [&](const Cell &cell) { return cell.row == &row && cell.on == on; });
    };
    parts.insert(own.begin(), own.end());
    if (runs(On::EmulatedPackedKv))
      packed.insert(own.begin(), own.end());
    for (const std::string &a : own)
      for (const std::string &b : own) {
        all.insert({a, b});
        if (runs(On::EmulatedCuda))
          run.insert({a, b});
      }
  }
  EXPECT_GT(all.size(), 200u);
  EXPECT_EQ(run, all);
  EXPECT_EQ(packed, parts);
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
