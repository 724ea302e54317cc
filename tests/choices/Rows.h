// SPDX-License-Identifier: Apache-2.0
//
// The rows of the matrix: placements as text, with the goal that they are of. They are Rows.cpp, a line each; models
// and devices are the columns (Cell.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/types/span.h"

namespace headrace::choices {

// Of models of five layers: units 1-4 are layer 0's, ..., 17-20 layer 4's, 0 the embedding, 21 the head.
inline constexpr int64_t kLayers = 5;

struct Goal {
  int64_t batch = 3; // sequences, of all mini-batches
  int64_t context = 40;
  int64_t blockTokens = 4;
  // Room for so many tokens is asked for, and caches grow beyond where placements leave memory; unset: what the batch
  // has use for.
  std::optional<int64_t> growsFrom = {};
};

// Of which models a row is. What a tied model's head reads is its embedding: there is no unit of the head.
enum class Heads : uint8_t { Any, Own, Tied };

struct Row {
  std::string_view name;
  // What crosses the link, in iterations and in changes between placements; more than that, or less, is a finding:
  //
  //   in    weights kv acts residuals   copies        table       rows of the embedding, read where they are
  //                                                   attended    rows that the CPU has attended for
  //   out   kv residuals                copies        rows acts   appended to the host by the step that makes them
  //         qkv meta                    copies for attention on the CPU: rows, and where they go
  std::string_view in, out;
  // A choice (compiler/choice/Choice.h), or several with " | " between: of a placement each, which the run goes round.
  std::string_view choices;
  Goal goal = {};
  Heads heads = Heads::Any;
};

absl::Span<const Row> rows();

} // namespace headrace::choices
