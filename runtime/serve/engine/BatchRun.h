// SPDX-License-Identifier: Apache-2.0
//
// A batch of prompts on one runtime, advanced one iteration at a time, so that whoever calls it may choose the
// placement of every iteration and serve other devices in between. A Fleet (Fleet.h) runs one on each device of a bus.
//
//   begin(request) -> { launchNext(placement) | readOldest() } until done() -> takeResult() -> end()
//
// Decoding sequences get a row each; what is left of the largest bucket goes to prompts, in the order of the request. A
// composed iteration needs the tokens sampled by the one before it. Where nothing on the host depends on what they are
// (no stop tokens, no logits to keep), the rows name them as "what request slot r sampled last", and the next iteration
// may be launched before these are read: depth() says how many may be in flight.
//
// begin() takes all memory that the iterations use: launchNext() and readOldest() allocate nothing, but where logits
// are kept.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/core/MetaWriter.h"
#include "runtime/core/Runtime.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "runtime/serve/engine/KeepLogits.h"
#include "runtime/serve/engine/KvBlocks.h"

namespace headrace::serve {

// One sequence's part of a launched iteration.
struct ComposedRows {
  uint32_t sequence = 0;     // into the request's prompts
  int64_t firstPosition = 0; // of its first row
  int64_t rows = 0;
  bool sample = false; // its last row samples a token
};

// A launched iteration. Spans are valid until two launches later.
struct LaunchedIteration {
  uint64_t number = 0; // the runtime's count, from 1
  uint32_t variant = 0;
  uint32_t placement = 0;
  int64_t launchNs = 0; // on the device's clock
  bool prefill = false; // it has rows of prompts
  absl::Span<const ComposedRows> rows;
};

// What was read of one iteration. The span is valid until the next call.
struct ReadToken {
  uint32_t sequence = 0;
  int32_t token = 0;
  int64_t gapNs = -1; // since the token of the sequence before this one; -1 for its first
};
struct ReadIteration {
  uint64_t number = 0;
  uint32_t variant = 0;
  int64_t visibleNs = 0; // of its tokens, on the device's clock
  absl::Span<const ReadToken> tokens;
};

class BatchRun {
public:
  // The runtime outlives the run.
  explicit BatchRun(core::Runtime &runtime);

  // Takes a request, which must live until end(): checkRequest()'s refusals. FailedPrecondition while another one runs.
  absl::Status begin(const GenerateRequest &request);
  // The same for a request whose prompts another runtime has prefilled: blocks for the prompts are taken at once
  // (blocksOf()) and the caller brings what they hold; `firstTokens`, one a prompt, were sampled there.
  absl::Status beginPrefilled(const GenerateRequest &request, absl::Span<const int32_t> firstTokens);

  // Composes and launches the next iteration in this placement (of the plan), after the transition that leads there.
  // False: depth() are in flight, or nothing is left to launch. After a failure only end() may follow.
  absl::StatusOr<bool> launchNext(uint32_t placement);
  // What the next iteration would be composed of in this placement; no tokens if there is nothing left to launch.
  plan::IterationSize nextSize(uint32_t placement) const;
  // Waits for the tokens of the oldest iteration in flight. FailedPrecondition if there is none. Aborted if a prompt's
  // logits are not finite, naming the first such prompt, the position of the token that they are for, and on the host
  // device the first step that wrote such a number, found by a second pass over that prompt. No token of that iteration
  // is read then, and only end() may follow.
  absl::Status readOldest();

  size_t inFlight() const { return newest_ - oldest_; }
  size_t depth() const { return depth_; } // most iterations in flight that this request allows
  uint64_t oldestNumber() const;          // in flight, as awaitTokens() counts; 0: none
  bool done() const;                      // every sequence has its tokens
  bool prefilled() const;                 // every prompt has its first token
  bool active() const { return request_ != nullptr; }
  bool launched() const { return newest_ != 0; } // since begin()
  const LaunchedIteration &lastLaunched() const { return lastLaunched_; }
  const ReadIteration &lastRead() const { return lastRead_; }
  const std::vector<std::vector<int32_t>> &tokens() const { return result_.tokens; }

  // KV blocks of a sequence in the order of positions: position p is in block p / blockTokens. Those of a sequence that
  // has ended are given back, unless keepBlocks(true) was said before: then by end().
  absl::Span<const int32_t> blocksOf(size_t sequence) const { return sequences_[sequence].blocks; }
  void keepBlocks(bool keep) { keepBlocks_ = keep; }
  KvBlocks &kvBlocks() { return blocks_; }

  // Result so far; its times count from begin().
  GenerateResult takeResult();
  // Waits for the tokens of what is in flight, gives back every block and forgets the request; after a failure too. The
  // device may still copy what the next iteration needs.
  absl::Status end();

private:
  static constexpr size_t kInFlight = 2;

  struct Sequence {
    const std::vector<int32_t> *prompt = nullptr;
    int64_t rows = 0;     // launched, prompt and decode
    int64_t sampled = 0;  // tokens whose iteration was launched
    bool stopped = false; // it sampled a stop token
    int64_t lastTokenNs = 0;
    std::vector<int32_t> blocks;

    int64_t promptLeft() const { return std::max<int64_t>(0, static_cast<int64_t>(prompt->size()) - rows); }
  };
  // A launched iteration whose tokens are not yet read.
  struct InFlight {
    LaunchedIteration launched;
    std::vector<ComposedRows> rows;
    std::vector<uint32_t> sampledOf; // sequences, in the order of their tokens
  };

  absl::Status prepare(const GenerateRequest &request);
  int64_t mixedTokens(uint32_t placement) const { return mixedTokens_[placement]; }
  bool ended(const Sequence &s) const { return s.stopped || s.sampled == request_->maxNewTokens; }
  bool promptsOnly() const; // the next iteration has no decoding sequences
  absl::Span<const int32_t> nextInput(size_t s);
  // Rows of a sequence in the next iteration, which has `tokens` so far: of its prompt, or the one that it decodes.
  int64_t rowsOf(const Sequence &sequence, bool prompts, bool promptsOnly, int64_t tokens, int64_t most) const;
  absl::Status addRows(size_t s, absl::Span<const int32_t> ids, InFlight &iteration, int64_t &tokens, int64_t &context);
  void accept(size_t s, int32_t token, int64_t visibleNs);
  absl::Status wrongLogits(const InFlight &iteration, absl::Span<const int32_t> tokens);
  absl::Status awaitRest();

  core::Runtime &runtime_;
  const plan::Plan &plan_;
  core::Device &device_;
  KvBlocks &blocks_;                 // the runtime's
  std::vector<int64_t> mixedTokens_; // a placement's largest bucket that takes several rows a sequence
  const GenerateRequest *request_ = nullptr;
  size_t depth_ = kInFlight;
  bool keepBlocks_ = false;

  std::vector<Sequence> sequences_;
  std::vector<core::SequenceRows> rows_; // of the iteration being composed
  std::vector<int32_t> decodeIds_;       // one a sequence
  std::array<InFlight, kInFlight> inFlight_;
  size_t newest_ = 0, oldest_ = 0; // launched, read
  KeptLogits logits_;
  LaunchedIteration lastLaunched_;
  ReadIteration lastRead_;
  std::vector<ReadToken> readTokens_;

  GenerateResult result_;
  core::DeviceCounters before_;
  int64_t startNs_ = 0, lastVisibleNs_ = 0, gapNs_ = 0, gaps_ = 0;
};

} // namespace headrace::serve
