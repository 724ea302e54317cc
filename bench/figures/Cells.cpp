// SPDX-License-Identifier: Apache-2.0
#include "bench/figures/Cells.h"

#include <algorithm>

#include "runtime/base/DType.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::bench {
namespace {

Cell decode(int64_t sequences, int64_t context, bool core) {
  return {
      "decode " + std::to_string(sequences) + " at " + std::to_string(context), sequences, 1, context, sequences, core};
}

Cell prefill(const model::ModelSpec &spec, int64_t tokens, bool core) {
  const int64_t each = std::min(tokens, spec.maxPositions), sequences = std::max<int64_t>(1, tokens / each);
  const std::string of = sequences == 1 ? "" : " as " + std::to_string(sequences) + " x " + std::to_string(each);
  return {"prefill " + std::to_string(tokens) + of, sequences, each, each, sequences, core};
}

} // namespace

std::vector<Cell> cellsOf(const model::ModelSpec &spec) {
  std::vector<Cell> cells = {decode(32, 256, true),   prefill(spec, 1024, true), decode(1, 256, true),
                             decode(128, 256, false), decode(32, 2048, false),   prefill(spec, 4096, false),
                             decode(1, 2048, false),  decode(128, 2048, false)};
  cells.erase(std::remove_if(cells.begin(), cells.end(), [&](const Cell &c) { return c.context > spec.maxPositions; }),
              cells.end());
  return cells;
}

std::string placementName(int64_t interval) {
  return interval == 0 ? "resident" : "interval " + std::to_string(interval);
}

const std::vector<Round> &rounds() {
  static const std::vector<int64_t> all = {0, 4, 2, 1, 8, 16, 3}, three = {0, 8, 4, 2};
  static const std::vector<Round> list = {
      {"opt-6.7b", all, false}, {"llama-3.1-8b", all, false}, {"opt-13b", three, true},     {"qwen1.5-7b", three, true},
      {"opt-30b", three, true}, {"opt-13b", three, false},    {"qwen1.5-7b", three, false}, {"opt-30b", three, false}};
  return list;
}

std::string figureName(const std::string &model, const Cell &cell, int64_t interval) {
  return model + ", " + cell.name + ", " + placementName(interval);
}

uint64_t kvBytes(const model::ModelSpec &spec, const Cell &cell, int64_t blockTokens) {
  const int64_t tokens = (cell.context + blockTokens - 1) / blockTokens * blockTokens;
  return static_cast<uint64_t>(cell.sequences * tokens * spec.layers * 2 * spec.kvRows()) *
         model::dtypeBytes(spec.dtype);
}

uint64_t weightBytes(const model::ModelSpec &spec) { return model::layoutWeights(spec).totalBytes(); }

int64_t largestThatFits(int64_t most, const std::function<bool(int64_t)> &fits) {
  int64_t good = 0, bad = most + 1; // good fits, bad does not
  if (most > 0 && fits(most))
    return most;
  bad = most;
  while (bad - good > 1) {
    const int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

std::vector<Cell> fitted(std::vector<Cell> cells, const model::ModelSpec &spec, uint64_t memory, uint64_t other,
                         int64_t blockTokens) {
  const uint64_t taken = weightBytes(spec) + other;
  for (Cell &cell : cells)
    cell.sequences = largestThatFits(cell.sequences, [&](int64_t sequences) {
      Cell smaller = cell;
      smaller.sequences = sequences;
      return taken + kvBytes(spec, smaller, blockTokens) <= memory;
    });
  return cells;
}

} // namespace headrace::bench
