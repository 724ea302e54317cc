// SPDX-License-Identifier: Apache-2.0
#include "tools/report/Format.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace headrace::tools {
namespace {

std::vector<std::vector<std::string>> rows(int count) {
  std::vector<std::vector<std::string>> table = {{"row", "value"}};
  for (int i = 1; i <= count; ++i)
    table.push_back({absl::StrCat("r", i), absl::StrCat(i)});
  return table;
}

// Rounded to three digits 1023.5 KiB would be 1024: it is a MiB. So of every unit, and of what has one or no digit
// behind the point.
TEST(Format, AUnitEndsWhereItsDigitsWouldBeTheNextOne) {
  EXPECT_EQ(formatBytes(1023), "1023 B");
  EXPECT_EQ(formatBytes(1024), "1.00 KiB");
  EXPECT_EQ(formatBytes(1023 * 1024 + 511), "1023 KiB");
  EXPECT_EQ(formatBytes(1023 * 1024 + 512), "1.00 MiB");
  EXPECT_EQ(formatBytes((1 << 20) - 1), "1.00 MiB");
  EXPECT_EQ(formatBytes((uint64_t{1} << 40) - 1), "1.00 TiB");
  EXPECT_EQ(formatNs(999), "999 ns");
  EXPECT_EQ(formatNs(1000), "1.00 us");
  EXPECT_EQ(formatNs(999'499), "999 us");
  EXPECT_EQ(formatNs(999'500), "1.00 ms");
  EXPECT_EQ(formatNs(9'994), "9.99 us");
  EXPECT_EQ(formatNs(9'996), "10.0 us");
  EXPECT_EQ(formatNs(99'940), "99.9 us");
  EXPECT_EQ(formatNs(99'960), "100 us");
  EXPECT_EQ(formatNs(5'000'000'000'000), "5000 s"); // there is no larger one
  EXPECT_EQ(formatCount(999), "999");
  EXPECT_EQ(formatCount(999.6), "1.00 k");
  EXPECT_EQ(formatCount(1.5e6), "1.50 M");
}

TEST(FoldTable, ShowsTwentyFourRowsWhole) {
  EXPECT_EQ(foldTable(rows(24), false, "rows", "how"), formatTable(rows(24)));
  EXPECT_EQ(foldTable(rows(0), false, "rows", "how"), formatTable(rows(0)));
  EXPECT_EQ(foldTable({}, false, "rows", "how"), "");
}

TEST(FoldTable, OfMoreTheFirstAndTheLastAndHowManyAreLeftOut) {
  const std::vector<std::string> lines = absl::StrSplit(foldTable(rows(85), false, "variants", "--all"), '\n');
  ASSERT_EQ(lines.size(), 1u + 12 + 1 + 4 + 1); // header, first, fold, last, and nothing behind the last newline
  EXPECT_EQ(lines[0], "row  value");
  EXPECT_EQ(lines[1], "r1       1");
  EXPECT_EQ(lines[12], "r12     12");
  EXPECT_EQ(lines[13], "... 69 more variants: --all"); // 85 - 12 - 4
  EXPECT_EQ(lines[14], "r82     82");
  EXPECT_EQ(lines[17], "r85     85");
  EXPECT_EQ(foldTable(rows(85), true, "variants", "--all"), formatTable(rows(85)));
}

TEST(FoldLines, DoesTheSameToLines) {
  std::vector<std::string> lines;
  std::string whole;
  for (int i = 1; i <= 25; ++i) {
    lines.push_back(absl::StrCat("l", i, "\n"));
    whole += lines.back();
  }
  EXPECT_EQ(foldLines(lines, true, "lines", "how"), whole);
  EXPECT_EQ(foldLines(lines, false, "lines", "how"),
            "l1\nl2\nl3\nl4\nl5\nl6\nl7\nl8\nl9\nl10\nl11\nl12\n... 9 more lines: how\nl22\nl23\nl24\nl25\n");
  lines.pop_back();
  EXPECT_EQ(foldLines(lines, false, "lines", "how"), whole.substr(0, whole.size() - 4));
}

TEST(FormatRate, HasThreeDigits) {
  const std::pair<double, const char *> cases[] = {{0, "0"},          {0.0538, "0.0538"},  {0.5, "0.500"},
                                                   {5.38, "5.38"},    {24.53, "24.5"},     {641.87, "642"},
                                                   {999.6, "1.00 k"}, {1236.56, "1.24 k"}, {2.5e6, "2.50 M"}};
  for (const auto &[amount, text] : cases)
    EXPECT_EQ(formatRate(amount), text);
}

TEST(WrapLines, GoOnBelowTheirValue) {
  constexpr const char *kText = "why     one two three four five six seven\nname    short\n";
  EXPECT_EQ(wrapLines(kText, 30), "why     one two three four\n        five six seven\nname    short\n");
  EXPECT_EQ(wrapLines(kText, 41), kText); // the line's length
  EXPECT_EQ(wrapLines(kText, 40), "why     one two three four five six\n        seven\nname    short\n");
  EXPECT_EQ(wrapLines(kText, 0), kText);
  EXPECT_EQ(wrapLines("why     a-word-that-is-longer-than-a-line is\n", 30),
            "why     a-word-that-is-longer-than-a-line\n        is\n");
}

TEST(WrapLines, OtherTextGoesOnBelowItself) {
  EXPECT_EQ(wrapLines("Text that has no name in front of it and is long\n", 30),
            "Text that has no name in front\nof it and is long\n");
  // A name that fills its column has one blank behind it.
  EXPECT_EQ(wrapLines("decode         2 tokens\nprefill, mixed 32 tokens of 2 sequences: 825 ms\n", 40),
            "decode         2 tokens\nprefill, mixed 32 tokens of 2 sequences:\n               825 ms\n");
}

TEST(WrapLines, CommandsStay) {
  for (const char *text : {"as flags  headrace compile opt-6.7b --hardware a10 --batch 8\n", "\n\n", ""})
    EXPECT_EQ(wrapLines(text, 30), text);
}

// The first two columns name a row: none of them is there twice.
TEST(WrapLines, ATableGoesOnBelowItselfWithTheColumnsThatNameItsRows) {
  constexpr const char *kTable = "prefill\n"
                                 "policy    batch  TTFT p50    device      host\n"
                                 "none         16    165.58  13.1 GiB       0 B\n"
                                 "headrace     16    247.89  7.84 GiB  5.50 GiB\n"
                                 "... 3 more rows: --all shows them\n"
                                 "none        128    133.44  17.9 GiB\n"
                                 "\n"
                                 "decode\n";
  EXPECT_EQ(wrapLines(kTable, 45), kTable);
  EXPECT_EQ(wrapLines(kTable, 44), "prefill\n"
                                   "policy    batch  TTFT p50    device\n"
                                   "none         16    165.58  13.1 GiB\n"
                                   "headrace     16    247.89  7.84 GiB\n"
                                   "... 3 more rows: --all shows them\n"
                                   "none        128    133.44  17.9 GiB\n"
                                   "\n"
                                   "policy    batch      host\n"
                                   "none         16       0 B\n"
                                   "headrace     16  5.50 GiB\n"
                                   "... 3 more rows: --all shows them\n"
                                   "none        128\n"
                                   "\n"
                                   "decode\n");
  // A column of text that is wider than the terminal.
  EXPECT_EQ(wrapLines("at    a  b  swaps that begin\n"
                      "1 us  x  y  one into place 0, two out of place 1\n",
                      30),
            "at    a  b\n1 us  x  y\n\nat    swaps that begin\n1 us  one into place 0, two\n      out of place 1\n");
}

} // namespace
} // namespace headrace::tools
