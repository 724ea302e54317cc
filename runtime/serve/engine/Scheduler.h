// SPDX-License-Identifier: Apache-2.0
//
// Who is in the next iteration: policy on plain values, without a runtime. The engine (Engine.h) shows what it knows of
// its sequences, in order of arrival, and does what comes back.
//
//   running   | decode  decode  prompt (9 rows left)  prompt (4 rows left) |    waiting | head ...
//   a budget  |   1       1       9                     1                  |    of 12 rows; the head joins when a
//   of 12     |                                                            |    seat and its blocks are free
//
// First come, first served: those that run are older than those that wait, and who loses its blocks is the youngest.
//
// Static batching, for comparison: those that wait form a batch when nothing runs, nobody joins it, and all leave
// together. KV blocks are kept for every sequence up to the longest prompt and the longest output of its batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace headrace::serve {

// How prompts are brought in beside those that decode.
enum class Prefill : uint8_t {
  Chunked,  // decodes first, what is left of the budget to prompts, cut to fit
  Separate, // cut to fit, and decodes wait while a prompt has more than a row left
  Whole,    // the same, and a prompt is not cut (but one that no iteration holds)
};

enum class Batching : uint8_t {
  Continuous, // sequences join and leave at the edge of any iteration (vLLM)
  Static, // batch after batch, prompts padded to the longest: all prompts, then decodes until the last ends (FlexGen)
};

// What becomes of a preempted sequence.
enum class Preemption : uint8_t {
  Recompute, // its tokens are prefilled anew
  Swap,      // what its blocks hold is kept in swap memory; where that is full, recomputed
  Auto       // as is cheaper by the plan's prices (SwapPrice.h)
};

struct SchedulerLimits {
  int64_t maxNumSeqs = 1;
  int64_t blockTokens = 1;     // of a KV block
  int64_t watermarkBlocks = 0; // kept free when a sequence joins others
  Prefill prefill = Prefill::Chunked;
  Batching batching = Batching::Continuous;
  int64_t context = 0; // of the longest sequence that a static batch may hold
};

// What there is to know of a sequence.
struct SequenceView {
  int64_t prefill = 0; // tokens of its prompt, and those that it had when it was preempted: known rows to bring
  int64_t rows = 0;    // launched, of those and of decoding
  int64_t blocks = 0;  // that it has
  int64_t output = 0;  // tokens that it may still get, which a static batch keeps blocks for
  bool moving = false; // its blocks are being brought back: it has no rows yet

  bool decodes() const { return rows >= prefill; }
  int64_t nextEnd() const { return decodes() ? rows + 1 : prefill; } // tokens that it needs blocks for as it joins
};

// The next iteration.
struct Composition {
  std::vector<int64_t> rows;                      // one a running sequence: its new rows, 0: it waits
  int64_t tokens = 0, sequences = 0, context = 0; // the new rows, whose, and the longest of these
  bool prefill = false;                           // it has rows of prompts
  size_t preempted = 0;                           // so many of the running ones, the last, give their blocks up first

  bool oneRowEach() const { return tokens == sequences; }
  void clear(size_t sequences); // nobody has rows; allocates nothing where there is capacity
};

class Scheduler {
public:
  explicit Scheduler(const SchedulerLimits &limits) : limits_(limits) {}

  // Whether the first that waits joins those that run: a seat is free, and so are the blocks of its prompt beside those
  // that running prompts have yet to take, and the watermark. A static batch takes it before its first iteration, where
  // with all padded the context holds it and the blocks. Where nothing runs it may always try.
  bool mayJoin(absl::Span<const SequenceView> running, const SequenceView &head, int64_t freeBlocks) const;

  // The same where nothing runs and iterations are in flight whose ends give blocks back: it may wait for them.
  bool hasRoom(const SequenceView &head, int64_t freeBlocks) const {
    return freeBlocks - (blocksFor(head.nextEnd()) - head.blocks) >= limits_.watermarkBlocks;
  }

  // Composes an iteration of at most `budget` new rows where it has rows of prompts; 0: prompts are brought one row at
  // a time, as decodes are. Where a decode has no block, or nothing at all could run, the youngest are preempted. No
  // tokens: the oldest alone has no block to go on with. `comingBlocks` will be free by themselves: who can do with
  // them waits, and where nothing else can run there are no tokens either. Below 0 `freeBlocks` are so many too many in
  // use: who needs none goes on. Allocates nothing where `out` has the capacity.
  void compose(absl::Span<const SequenceView> running, int64_t budget, int64_t freeBlocks, Composition &out,
               int64_t comingBlocks = 0) const;

private:
  struct Pass;
  bool mayJoinBatch(absl::Span<const SequenceView> batch, const SequenceView &head, int64_t freeBlocks) const;
  int64_t blocksFor(int64_t tokens) const { return (tokens + limits_.blockTokens - 1) / limits_.blockTokens; }
  bool decodesWait(absl::Span<const SequenceView> running) const;
  void addDecodes(Pass &pass) const;
  void addPrompts(Pass &pass) const;

  const SchedulerLimits limits_;
};

} // namespace headrace::serve
