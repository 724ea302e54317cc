// SPDX-License-Identifier: Apache-2.0
//
// Plays iterations of one cell as a server does: the next is launched before the tokens of this one are read, and an
// iteration's time is the gap between two iterations' tokens. Any device: on that of virtual time it takes none.
//
//   launch 1   launch 2   read 1   launch 3   read 2   ...        two in flight, but while a token is read
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/figures/Cells.h"
#include "runtime/core/MetaWriter.h"
#include "runtime/core/Runtime.h"

namespace headrace::bench {

struct PlayLimits {
  int warmUp = 3;     // iterations that do not count: the first changes the placement, the next fills slots
  int most = 20;      // iterations, or
  double seconds = 3; // on the device's clock, warm-up included, whichever comes first; at least two
  int inFlight = 2;   // 1: tokens are read before the next launch
};

struct Played {
  std::vector<double> ms;                 // gaps between tokens
  std::vector<double> chooseUs, launchUs; // host time of each
  uint32_t variant = 0;
  uint64_t h2dBytes = 0, d2hBytes = 0; // of an iteration
};

// The rows of a cell: fixed ids, the runtime's lowest free blocks in a scattered order, which it gets back.
class CellRows {
public:
  static absl::StatusOr<std::unique_ptr<CellRows>> take(core::Runtime &runtime, const Cell &cell);
  CellRows(const CellRows &) = delete;
  CellRows &operator=(const CellRows &) = delete;
  ~CellRows() { runtime_.kvBlocks().release(blocks_); }
  absl::Span<const core::SequenceRows> rows() const { return rows_; }

private:
  explicit CellRows(core::Runtime &runtime) : runtime_(runtime) {}
  core::Runtime &runtime_;
  std::vector<int32_t> ids_, blocks_;
  std::vector<core::SequenceRows> rows_;
};

// `each`, if set, is called after each counted iteration's tokens; what it takes is not counted only where one
// iteration is in flight and `each` waits for nothing else.
absl::StatusOr<Played> play(core::Runtime &runtime, uint32_t placement, const Cell &cell, const PlayLimits &limits,
                            const std::function<absl::Status()> &each = {});

} // namespace headrace::bench
