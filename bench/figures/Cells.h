// SPDX-License-Identifier: Apache-2.0
//
// Which iterations of which models are measured, and in which order: what tells most comes first, so that a run that
// ends early has it.
//
//   round 1, 2   OPT-6.7B, Llama-3.1-8B: every cell at six intervals
//   round 3 ...  three further models at three intervals, three cells first
//
// A round loads its model once, as one plan with a placement for each interval, and does cell by cell: first with
// everything resident, which is what the other placements are held against.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace headrace::model {
struct ModelSpec;
}

namespace headrace::bench {

struct Cell {
  std::string name;                               // "decode 32 at 256": what was asked for
  int64_t sequences = 0, tokens = 0, context = 0; // new tokens of each sequence; tokens in its cache once they are in
  int64_t asked = 0;                              // sequences; fewer are measured where their caches do not fit
  bool core = false;                              // of a model's first round
};

// Decode of 1, 32 and 128 sequences at contexts of 256 and 2,048, prefill of 1,024 and of 4,096 tokens; where a model
// has fewer positions, the prefill is of several sequences as long as it has.
std::vector<Cell> cellsOf(const model::ModelSpec &spec);

// 0 is everything resident.
std::string placementName(int64_t interval); // "resident", "interval 4"

struct Round {
  std::string model;
  std::vector<int64_t> intervals; // with 0 first
  bool core = false;              // only cells that are
};
const std::vector<Round> &rounds();

std::string figureName(const std::string &model, const Cell &cell, int64_t interval);

// Of the caches of so many sequences, whole blocks each, and of the weights.
uint64_t kvBytes(const model::ModelSpec &spec, const Cell &cell, int64_t blockTokens);
uint64_t weightBytes(const model::ModelSpec &spec);

// The largest number from 1 to `most` that fits, 0 if none does. What fits fits with less as well.
int64_t largestThatFits(int64_t most, const std::function<bool(int64_t)> &fits);

// Cells with as many of their sequences as fit `memory` beside the weights and `other` bytes, by their caches; of no
// sequences where not one does.
std::vector<Cell> fitted(std::vector<Cell> cells, const model::ModelSpec &spec, uint64_t memory, uint64_t other,
                         int64_t blockTokens);

} // namespace headrace::bench
