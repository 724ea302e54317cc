// SPDX-License-Identifier: Apache-2.0
#include "bench/figures/Cells.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "runtime/job/JobFile.h"
#include "runtime/model/ModelSpec.h"
#include "tests/support/SourceDir.h"

namespace headrace::bench {
namespace {

using testing::ElementsAre;

constexpr uint64_t kGiB = uint64_t{1} << 30;

model::ModelSpec spec(const std::string &name) {
  const auto opened = model::openModel(sourceDir() + "/examples/models/" + name + ".toml");
  EXPECT_TRUE(opened.ok()) << opened.status();
  return opened->spec;
}

std::vector<std::string> names(const std::vector<Cell> &cells) {
  std::vector<std::string> out;
  for (const Cell &cell : cells)
    out.push_back(cell.name);
  return out;
}

TEST(Cells, WhatTellsMostComesFirst) {
  EXPECT_THAT(names(cellsOf(spec("llama-3.1-8b"))),
              ElementsAre("decode 32 at 256", "prefill 1024", "decode 1 at 256", "decode 128 at 256",
                          "decode 32 at 2048", "prefill 4096", "decode 1 at 2048", "decode 128 at 2048"));
}

TEST(Cells, APrefillBeyondAModelsPositionsIsOfSeveralSequences) {
  const std::vector<Cell> cells = cellsOf(spec("opt-6.7b"));
  EXPECT_EQ(cells[5].name, "prefill 4096 as 2 x 2048");
  EXPECT_EQ(cells[5].sequences, 2);
  EXPECT_EQ(cells[5].tokens, 2048);
  EXPECT_EQ(cells[5].context, 2048);
}

// 128 x 2048 tokens x 32 layers x (K and V) x 4096 x 2 bytes = 2^7+11+5+1+12+1 = 2^37 = 128 GiB; 12.4 GiB of weights.
TEST(Cells, BytesOfCaches) {
  const model::ModelSpec opt = spec("opt-6.7b");
  const Cell largest = cellsOf(opt).back();
  EXPECT_EQ(kvBytes(opt, largest, 16), 128 * kGiB);
  EXPECT_NEAR(static_cast<double>(weightBytes(opt)) / static_cast<double>(kGiB), 12.4, 0.05);
  Cell part = largest;
  part.sequences = 1;
  part.context = 17; // two blocks
  EXPECT_EQ(kvBytes(opt, part, 16), 128 * kGiB / (128 * 2048) * 32);
}

TEST(Cells, TheLargestNumberThatFits) {
  for (const int64_t most : {0, 1, 2, 7, 128})
    for (int64_t fits = 0; fits <= most + 1; ++fits)
      EXPECT_EQ(largestThatFits(most, [&](int64_t n) { return n <= fits; }), std::min(most, fits)) << most;
}

// A sequence of 2048 takes 1 GiB. Of 120 GiB weights leave 107.6, 7 GiB of others 100.6: 100 sequences.
TEST(Cells, WhereACacheDoesNotFitTheLargestBatchThatDoes) {
  const model::ModelSpec opt = spec("opt-6.7b");
  const std::vector<Cell> cells = fitted(cellsOf(opt), opt, 120 * kGiB, 7 * kGiB, 16);
  EXPECT_EQ(cells.back().sequences, 100);
  EXPECT_EQ(cells.back().asked, 128);
  EXPECT_EQ(cells.back().name, "decode 128 at 2048");
  EXPECT_EQ(cells[3].sequences, 128); // at 256: 16 GiB
  for (const Cell &cell : fitted(cellsOf(opt), opt, 10 * kGiB, 0, 16))
    EXPECT_EQ(cell.sequences, 0);
}

TEST(Rounds, EveryModelIsMeasuredAtEveryIntervalAfterWhatTellsMost) {
  std::set<std::string> seen;
  for (const Round &round : rounds()) {
    EXPECT_EQ(round.intervals.front(), 0) << round.model; // what the others are held against
    EXPECT_EQ(seen.insert(round.model).second, round.core || round.intervals.size() == 7) << round.model;
  }
  EXPECT_THAT(seen, ElementsAre("llama-3.1-8b", "opt-13b", "opt-30b", "opt-6.7b", "qwen1.5-7b"));
  EXPECT_EQ(rounds()[0].model, "opt-6.7b");
  EXPECT_THAT(rounds()[0].intervals, testing::UnorderedElementsAre(0, 1, 2, 3, 4, 8, 16));
  EXPECT_EQ(figureName("opt-6.7b", cellsOf(spec("opt-6.7b"))[0], 4), "opt-6.7b, decode 32 at 256, interval 4");
  EXPECT_EQ(placementName(0), "resident");
}

} // namespace
} // namespace headrace::bench
