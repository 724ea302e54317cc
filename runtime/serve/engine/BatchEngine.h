// SPDX-License-Identifier: Apache-2.0
//
// Generates tokens for prompts of different lengths: chunked prefill and decode in mixed iterations, paged KV blocks,
// one variant an iteration. It is an engine (Engine.h) whose requests all come at once; those that find no seat or no
// KV blocks wait their turn.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/plan/value/PlacementTable.h"
#include "runtime/serve/engine/Executor.h"
#include "runtime/serve/engine/Scheduler.h"

namespace headrace::serve {

// How the next token is taken (kernels/Kernels.h, SampleArgs): penalties on the logits, then temperature, min-p, top-k,
// top-p.
struct Sampling {
  float temperature = 0; // 0: greedy
  float topP = 1;
  uint64_t seed = 0;           // of request r: seed + r
  int64_t topK = 0;            // 0: all
  float minP = 0;              // of the likeliest token's probability
  float repetitionPenalty = 1; // of tokens of the prompt and of generated ones
  float presencePenalty = 0;   // of generated tokens, once each
  float frequencyPenalty = 0;  // of generated tokens, as often as they are there

  bool penalises() const { return repetitionPenalty != 1 || presencePenalty != 0 || frequencyPenalty != 0; }
};

enum class EndReason : uint8_t { Stop, Length, Cancelled, Failed };

// An iteration of a batch, once its tokens were read.
struct IterationSeen {
  uint32_t variant = 0;
  int64_t ns = 0;       // from launch, or the tokens before them, to visible tokens
  bool prefill = false; // it has rows of prompts; after the last such one all iterations decode
  // The longest since a sequence's token before, -1 if there is none: of sequences that had one in the iteration
  // before, and of those that waited for others' prompts meanwhile.
  int64_t gapNs = -1, waitedNs = -1;
};

// An iteration that is about to be launched.
struct ComposedIteration : plan::IterationSize {
  bool prefill = false; // it has rows of prompts
};

struct GenerateRequest {
  std::vector<std::vector<int32_t>> prompts;
  int64_t maxNewTokens = 16;
  Sampling sampling;
  std::vector<int32_t> stopTokens; // a sequence ends when it samples one of these
  bool keepLogits = false;
  bool separatePrefill = false; // no mixed iterations: all prompts first, then decode
  bool chunkedPrefill = true;   // no: the same, and prompts are not cut
  Batching batching = Batching::Continuous;
  int64_t maxNumSeqs = 0, maxNumBatchedTokens = 0; // as EngineOptions'
  Preemption preemption = Preemption::Auto;
  uint64_t swapBytes = 0; // as EngineOptions'
  // Waits until every launch has ended. Else the device may still copy what the next iteration needs, as in between
  // two iterations, and the next call begins behind that.
  bool drain = true;
  // Which placement the next iteration runs in; null: the runtime's. A change costs the plan's transition.
  std::function<uint32_t(const ComposedIteration &)> placementOf;
  std::function<void(const IterationSeen &)> onIteration;                              // called after each
  std::function<void(uint32_t variant, const kernels::IterationMeta &first)> onLaunch; // as EngineOptions'
  // Called with each token as it comes. No: the prompt's reply ends with it, as with a stop token.
  std::function<bool(size_t prompt, int32_t token)> onToken;
  std::function<bool(size_t prompt)> onEnd; // its last token was told. Yes: the reply has ended by itself (Stop)
  // Asked before each step. Yes: every reply is over as far as it is (Cancelled), those that have not begun too.
  std::function<bool()> isInterrupted;
};

struct GenerateResult {
  std::vector<std::vector<int32_t>> tokens; // per prompt, new ones only
  std::vector<EndReason> ends;              // per prompt: Stop, Length or Cancelled
  std::vector<std::vector<float>> logits;   // per prompt: new tokens x vocab, if kept
  std::vector<int64_t> firstTokenNs;        // per prompt, from the start of generate(); 0: it has no token
  int64_t durationNs = 0;                   // from there to the last token
  double ttftMs = 0;                        // mean over prompts with tokens
  double tpotMs = 0;                        // mean gap between a prompt's tokens after the first
  uint64_t iterations = 0, prefillIterations = 0;
  uint64_t preemptions = 0, thrownAwayRows = 0, paddedRows = 0, placementsNotTaken = 0; // as EngineCounters'
  uint64_t swapsOut = 0, swapsIn = 0, swapOutBytes = 0, swapInBytes = 0, swapFallbacks = 0;
  core::DeviceCounters counters; // of this call
};

// What a plan takes at most, which is known before it is made.
struct RequestBounds {
  int64_t vocab = 0;
  int64_t sequences = 0; // at once
  int64_t context = 0;   // of a prompt with its new tokens
};

// As below, but for KV blocks.
absl::Status checkPrompts(const RequestBounds &bounds, const GenerateRequest &request);
// Refuses, before anything runs and by name: no prompts, an empty prompt, ids outside the vocabulary, a prompt that
// with its new tokens is longer than the plan's context, or needs more KV blocks than the plan has.
// With a placement: than that one has.
absl::Status checkPrompts(const plan::Plan &plan, const GenerateRequest &request, uint32_t placement = plan::kNone);
// The same for prompts that all run at once (of a fleet's request): no more of them than the plan's batch, and all in
// its blocks.
absl::Status checkRequest(const plan::Plan &plan, const GenerateRequest &request);
// Aborted, naming the first such prompt and position, where logits are not finite; on the host device also the first
// step that wrote such a number, found by a second pass over that prompt. Every block is given back then too.
// checkPrompts()'s refusals, with the placement that the runtime has where the request does not choose any and it is
// one;
// those of Engine::create(). ResourceExhausted where a placement that was chosen has too few KV blocks for a prompt
// alone.
absl::StatusOr<GenerateResult> generate(const Executor &on, const GenerateRequest &request);

} // namespace headrace::serve
