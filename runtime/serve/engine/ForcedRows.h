// SPDX-License-Identifier: Apache-2.0
//
// The logits of every position of a prompt, whatever they would sample: teacher forcing. Of a prompt's rows an engine
// samples the last only; here each is a sequence of its own, of one row, and all of them have the prompt's blocks:
//
//   ids  a b c d e f     iteration 1   a | b | c     at positions 0, 1, 2
//                        iteration 2   d | e | f     at 3, 4, 5
//
// A layer appends the keys and values of all rows before any of them attends, and a row attends to no position behind
// its own: so a row is what it is in a prompt that is computed whole, to the bit where rows do not depend on their
// batch (the host). What it costs: each row reads the cache by itself, which a prompt's tiles read once for many rows.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/core/Runtime.h"
#include "runtime/serve/engine/KeepLogits.h"

namespace headrace::serve {

class ForcedRows {
public:
  // Of a runtime that nobody else launches on meanwhile; it outlives this object. Refuses a device without data, and a
  // plan of several mini-batches, by name.
  static absl::StatusOr<ForcedRows> create(core::Runtime &runtime);
  ForcedRows(ForcedRows &&other) noexcept;
  ~ForcedRows();

  int64_t mostRows() const; // of a call: the plan's batch
  // Appends the logits of the next `count` rows of `ids`, vocab of them each, to `out`; those before them are in the
  // cache. Aborted, with the position and the first step that made them, where they are not finite.
  absl::Status next(absl::Span<const int32_t> ids, int64_t count, std::vector<float> &out);
  int64_t rows() const { return rows_; } // of this prompt, so far
  void restart();                        // with another prompt

private:
  explicit ForcedRows(core::Runtime &runtime) : runtime_(&runtime) {}

  core::Runtime *runtime_; // null: moved from
  KeptLogits kept_;
  std::vector<int32_t> blocks_;
  int64_t rows_ = 0;
};

} // namespace headrace::serve
