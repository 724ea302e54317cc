// SPDX-License-Identifier: Apache-2.0
//
// All that a search may vary of a placement, as one value: it prints, parses and compares, and nothing of it is decided
// elsewhere. What a goal leaves open is resolved from it (Resolve.h); the placements of a plan differ by `kvBlocks` and
// by weights and caches of `residency`, and have all else alike.
//
// As text, in any order, none twice; what stands as it is by default is left out:
//
//   mini-batches=4                  each layer is passed for so many parts of the batch; default 1
//   attention=cpu                   rows that decode attend on the CPU; default on the device
//   act-ratio=1/3                   of each sequence's blocks so many keep activations; default none
//   kv-blocks=150                   blocks of each cache, the scratch block included; default as many as the goal has
//   new-tokens=1,8 sequences=8 contexts=256,2048
//                                   sizes of the buckets, ascending; default the goal's
//   largest-chunk=8192              where new-tokens does not say: new tokens of an iteration with prompts at most;
//                                   default 2048
//   weight-encoding=q4 kv-dtype=q8  how weights and keys and values are held; default as the model and the goal say
//   weights=0,4-7 start=eager ...   the residency (passes/algorithms/Residency.h)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "compiler/choice/Encodings.h"
#include "passes/algorithms/Residency.h"
#include "runtime/job/JobFile.h"

namespace headrace::compiler {

// Longer prompts are prefilled in several iterations, so that activations stay small beside weights and decodes do not
// wait long.
inline constexpr int64_t kLargestChunk = 2048;

struct Choice {
  int64_t miniBatches = 1;
  bool attendsOnCpu = false; // iterations that decode: to caches that are wholly at home on the host
  model::ActRatio actRatio;  // not auto
  int64_t kvBlocks = 0;      // of each cache, the scratch block included; 0: as many as the goal has
  model::Buckets buckets;    // an empty list: the goal's default
  int64_t largestChunk = kLargestChunk;
  Encodings encodings;
  algorithms::Residency residency;

  bool operator==(const Choice &) const = default;
};

std::string toText(const Choice &choice);
// What is wrong with the text in `error`, where there is no value.
std::optional<Choice> choiceFromText(std::string_view text, std::string &error);

// What contradicts itself whatever the model; empty: nothing does.
std::string contradictionIn(const Choice &choice);

} // namespace headrace::compiler
