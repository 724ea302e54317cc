// SPDX-License-Identifier: Apache-2.0
//
// Continuous batching on one runtime, or on a model's stages (Executor.h): sequences join and leave at the edge of any
// iteration. What runs next is the Scheduler's (Scheduler.h); this is the mechanism: sequences, KV blocks, the
// iteration buffer, launches, tokens.
//
//   any thread:        submit(request) -> id, cancel(id), shutdown()
//   one, the engine's: step() again and again -> onToken, onIteration, onEnd
//
//   step: take in what was submitted or cancelled -> join -> compose -> launch    (while fewer than `depth` in flight)
//         or read the oldest iteration in flight                                  (else, or with nothing to launch)
//
// Two iterations are in flight, so the host learns of a stop token when the next iteration, with a row of that
// sequence, is launched already: that row is thrown away, and the sequence's blocks go back once it has been read. A
// sequence that is known to end with an iteration has no row in the next.
//
// Who drives several devices at a time takes its edges one by one, with a placement and a budget for each:
//
//   launch(edge) -> read() -> launch(edge) -> ...
//
// Where a decoding sequence has no block, and nothing is in flight whose end may bring one, the youngest is preempted:
// its blocks go back, it waits before all others, and its prompt and the tokens that it has are prefilled anew
// (recompute). Or what its blocks hold goes to swap memory beside iterations, and comes back the same way when there is
// room again (swap, EngineSwap.cpp). A row does not depend on the batch it is in, so a request's tokens are those of
// the request alone.
//
// A static batch (Scheduler.h) is the comparison. A prompt is padded behind its last token, where causal attention
// does not look: its padding is computed, and overwritten by the rows that decode. A sequence that has ended keeps its
// seat, its blocks and a row in every iteration until the last of its batch has ended; the row is thrown away.
//
// A plan may pass each layer for several mini-batches (plan::Plan::miniBatches): each has running sequences, request
// slots and KV blocks of its own, and is composed by itself. A sequence joins the one with the most room, and stays in
// it until it ends or is preempted; all wait in one queue.
//
// Over stages as many micro-batches take turns, each with sequences, seats and request slots of its own, and with one
// iteration in flight, composed once its last tokens were read:
//
//   stage 0   [ a ][ b ][ a ][ b ]
//   stage 1        [ a ][ b ][ a ]
//
// They share the KV blocks: who loses its own is the youngest of all, once nothing is in flight. Nothing is swapped or
// compacted there, the expansion is not adapted, and no step is named that made wrong numbers.
//
// step() allocates nothing, joins and leaves included, but where logits are kept or numbers are wrong; what a request
// needs is taken by submit(), on its caller's thread, once for as many requests as were ever known at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/core/MetaWriter.h"
#include "runtime/core/Runtime.h"
#include "runtime/plan/value/PlacementTable.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "runtime/serve/engine/EngineBounds.h"
#include "runtime/serve/engine/Executor.h"
#include "runtime/serve/engine/Expansion.h"
#include "runtime/serve/engine/KeepLogits.h"
#include "runtime/serve/engine/PaddedRows.h"
#include "runtime/serve/engine/Scheduler.h"
#include "runtime/serve/engine/SwapPrice.h"
#include "runtime/serve/engine/SwapSpace.h"

namespace headrace::serve {

struct EngineRequest {
  std::vector<int32_t> prompt;
  int64_t maxNewTokens = 16;
  Sampling sampling;
  std::vector<int32_t> stopTokens; // it ends when it samples one of these
  bool keepLogits = false;         // needs EngineOptions::logits; while it runs one iteration is in flight
  // Its KV blocks stay when it has ended, until releaseBlocks(). Not with activation blocks: these are enough for as
  // many sequences as run.
  bool keepBlocks = false;
  // One with keepBlocks that has ended, whose blocks become this request's: as far as this prompt is what that one's
  // prompt and tokens were, nothing is computed again. 0, or one whose blocks were released: none. While it waits for a
  // seat who runs may need its blocks, and gets them.
  uint64_t continues = 0;
};

// A token, once it is visible.
struct EngineToken {
  uint64_t request = 0;
  int32_t token = 0;
  int64_t visibleNs = 0;          // on the device's clock
  absl::Span<const float> logits; // vocab of them where they are kept, valid in the callback
};

struct EngineEnd {
  uint64_t request = 0;
  EndReason reason = EndReason::Length;
  int64_t ns = 0;       // on the device's clock
  int64_t startNs = -1; // of the launch of the first iteration with rows of it; -1: there was none
  uint32_t preemptions = 0;
  int64_t reusedTokens = 0; // of the prompt, that were in the blocks it took over
  // Of Failed, beginning with the position: Aborted for logits that are not finite, ResourceExhausted where the
  // placement has too few KV blocks for this request alone.
  absl::Status why;
};

// Rows of one request in an iteration.
struct EngineRows {
  uint64_t request = 0;
  int64_t firstPosition = 0, count = 0;
  bool sample = false; // the last of them samples a token
};

// An iteration, once its tokens were read and told.
struct EngineIteration {
  uint64_t number = 0;                 // the executor's count, from 1
  uint32_t variant = 0, placement = 0; // of stages the last one's variant, and the first one's placement
  int64_t launchNs = 0, visibleNs = 0;
  int64_t tokens = 0, sequences = 0; // new rows, and whose
  bool prefill = false;              // it has rows of prompts
  absl::Span<const EngineRows> rows; // with EngineOptions::tellRows; valid in the callback
};

// What an iteration is launched with.
struct EngineEdge {
  uint32_t placement = 0; // of the plan
  int64_t budget = 0;     // new rows of a mini-batch, where it has rows of prompts; 0: all that the engine would take
  Prefill prefill = Prefill::Chunked;
};

struct EngineOptions {
  int64_t maxNumSeqs = 0; // with rows in one iteration; 0: the plan's batch
  // New rows of a mini-batch that has rows of prompts; 0: the largest mixed bucket, which in any case holds them.
  int64_t maxNumBatchedTokens = 0;
  double watermark = 0.01; // share of the KV blocks that a joining sequence leaves free
  Prefill prefill = Prefill::Chunked;
  Batching batching = Batching::Continuous;
  size_t depth = 2; // iterations in flight, 1 or 2; over stages one of each micro-batch
  // Swap needs swapBytes; Auto without, or with activation blocks, is Recompute. Static batches recompute. The bytes
  // are the device's swap memory (core::Device::reserveSwap), whole blocks of them, which the engine has to itself.
  Preemption preemption = Preemption::Auto;
  uint64_t swapBytes = 0;
  // Of a plan that leaves it to who runs it (Goal::expansion auto): as many KV blocks serve as compute does not wait
  // for (Expansion.h). False: all of them, as in static batches.
  bool adaptsExpansion = true;
  ExpansionTuning expansion; // how
  bool logits = false;       // requests may keep them
  bool tellRows = false;     // EngineIteration::rows
  // Which placement the next iteration runs in; null: the runtime's. A change costs the plan's transition. One with
  // fewer KV blocks than those in use is not taken, and counted: the iteration runs where the runtime is.
  std::function<uint32_t(const ComposedIteration &)> placementOf;
  // Called by step(); they may call submit(), cancel() and shutdown().
  std::function<void(const EngineToken &)> onToken;
  std::function<void(const EngineEnd &)> onEnd;
  std::function<void(const EngineIteration &)> onIteration;
  // Called behind each launch, with what it was written: the buffers of its mini-batches lie from `first` on. Not over
  // stages.
  std::function<void(uint32_t variant, const kernels::IterationMeta &first)> onLaunch;
};

struct EngineCounters {
  uint64_t iterations = 0, prefillIterations = 0;
  uint64_t preemptions = 0;
  uint64_t thrownAwayRows = 0;     // of sequences that had ended when their iteration was read
  uint64_t placementsNotTaken = 0; // iterations, for KV blocks in use that the placement has not
  uint64_t paddedRows = 0;         // launched behind prompts that are shorter than the longest of their static batch
  // Where the engine adapts the expansion: KV blocks of a mini-batch that may be in use, and how often they became more
  // and fewer; blocksOffered 0: it does not.
  int64_t blocksOffered = 0;
  // KV blocks that were moved into lower ones, and what that took over the link; the least that iterations could have
  // brought, of the blocks in use at home on the host no others.
  uint64_t compactedBlocks = 0, compactionBytes = 0, leastBroughtBytes = 0;
  uint64_t expansionsGrown = 0, expansionsShrunk = 0;
  // Sequences whose blocks went to swap memory, and came back; the bytes of these over the link.
  uint64_t swapsOut = 0, swapsIn = 0, swapOutBytes = 0, swapInBytes = 0;
  // Preemptions that were recomputed with swap memory there: it was full, that was cheaper, or (counted as they wait)
  // their blocks could not be had again.
  uint64_t swapFallbacks = 0;
};

// Refuses options out of range, and over stages what they have not, by name.
absl::Status checkEngineOptions(const Executor &on, const EngineOptions &options);

// Refuses by name, as checkPrompts() does (BatchEngine.h): an empty prompt, ids outside the vocabulary, no new tokens,
// sampling out of range, more than the plan's context or than all its KV blocks hold.
absl::Status checkRequest(const plan::Plan &plan, const EngineRequest &request);

class Engine {
public:
  // checkEngineOptions()'s refusals. What it runs on outlives the engine, and is its own until then but for hops
  // between steps.
  static absl::StatusOr<std::unique_ptr<Engine>> create(const Executor &on, EngineOptions options);
  // Waits for what is in flight and gives every block back; nothing is told of requests that had not ended.
  ~Engine();
  Engine(const Engine &) = delete;
  Engine &operator=(const Engine &) = delete;

  // Ids count from 1. checkRequest()'s refusals; FailedPrecondition after shutdown(), and while the request that this
  // one continues has not ended.
  absl::StatusOr<uint64_t> submit(EngineRequest request);
  // The request ends at the next edge of an iteration. NotFound for an id that was not submitted or has ended.
  absl::Status cancel(uint64_t id);
  void shutdown(); // no more requests are taken; those that were run on

  // False: there is nothing to do. Over stages it waits for tokens until this moment of the group's clock at most, for
  // who has a request then that a stage may begin with. After an error only the destructor may follow.
  absl::StatusOr<bool> step(int64_t untilNs = core::kForeverNs);

  // For the engine's thread, in place of step(). launch() takes in what was submitted or cancelled and launches the
  // next iteration at this edge, after the transition that leads to its placement; false: as many as may be are in
  // flight, or there is nothing to launch. read() waits for the tokens of the oldest one in flight; FailedPrecondition:
  // there is none. After an error, but that one, only the destructor may follow.
  absl::StatusOr<bool> launch(const EngineEdge &edge);
  absl::Status read();
  void takeIn();                 // alone: blocks of what was cancelled are free then
  uint64_t oldestNumber() const; // in flight, as awaitTokens() counts; 0: none

  // For the engine's thread: joins at once a sequence whose prompt another runtime has prefilled, with the token that
  // was sampled there and at least one more to come. Blocks for the prompt are taken (blocksOf()), and the caller
  // brings what they hold before the next launch. ResourceExhausted: no seat is free, or too few blocks.
  absl::StatusOr<uint64_t> submitPrefilled(EngineRequest request, int32_t firstToken);
  // The same with blocks that the caller has taken from the pool, as many as the prompt needs, and filled: they are the
  // sequence's then, and `blocks` is empty. Of a plan with several mini-batches: of the first one.
  absl::StatusOr<uint64_t> submitPrefilled(EngineRequest request, int32_t firstToken, std::vector<int32_t> &blocks);
  // KV blocks in the order of positions: position p is in block p / blockTokens. None of a request that is not known.
  absl::Span<const int32_t> blocksOf(uint64_t id) const;
  uint32_t miniBatchOf(uint64_t id) const; // whose blocks they are
  // Of a request with keepBlocks that has ended.
  void releaseBlocks(uint64_t id);
  // Whether blocks are on their way to swap memory or back; and waits for them. Before a hop between two steps: where
  // blocks lie is the placement's.
  bool swapping() const { return !moving_.empty(); }
  absl::Status finishSwaps();

  // For the engine's thread.
  size_t inFlight() const { return newest_ - oldest_; }
  size_t running() const;
  // Requests with a seat in the oldest iteration in flight, which is the one that runs; with nothing in flight, with a
  // seat. To their last token, so at most maxNumSeqs(): who joined behind that iteration is not among them yet.
  size_t seated() const;
  size_t waiting() const { return waiting_.size(); } // of those taken in
  const EngineCounters &counters() const { return counters_; }
  int64_t maxNumSeqs() const { return maxNumSeqs_; }

private:
  // Where what a sequence's blocks hold is.
  enum class Away : uint8_t {
    No,      // in its blocks
    Out,     // on its way to swap memory: it has its blocks still, and waits
    Swapped, // in swap memory: it has no blocks, and waits
    In,      // on its way back, into new blocks: it has a seat, and no rows yet
    GivenUp  // the same, but it was preempted again: it waits, and its new blocks go back
  };
  struct Sequence {
    uint64_t id = 0;
    std::vector<int32_t> ids; // the prompt, then the tokens read
    int64_t promptTokens = 0, maxNewTokens = 0;
    Sampling sampling;
    std::vector<int32_t> stopTokens;
    bool keepLogits = false, keepBlocks = false;
    uint64_t continues = 0; // until its blocks were taken over
    int64_t reused = 0;     // tokens in them

    int64_t prefill = 0; // rows that are brought before it decodes: ids, then `padding`
    int64_t padding = 0;
    int64_t rows = 0;       // launched
    int64_t sampled = 0;    // tokens whose iteration was launched
    uint32_t inFlight = 0;  // iterations in flight that have rows of it, or hold it for a report
    int32_t slot = -1;      // request slot, while it runs
    uint32_t miniBatch = 0; // of miniBatches_, while it runs, or has blocks
    int32_t decodeId = 0;
    bool joined = false;   // no: it waits
    size_t seatedFrom = 0; // the launch, counted as newest_, that it joined for
    bool ended = false;
    int64_t startNs = -1; // of its first launch
    uint32_t preemptions = 0;
    std::vector<int32_t> blocks;
    Away away = Away::No;
    std::vector<int32_t> swapSlots; // one a block, unless away is No
    uint64_t swapTicket = 0;        // of its copies beside launches; 0: they have ended
    uint64_t swapCursor = 0;        // of what moves within host memory
    std::list<Sequence>::iterator self;

    int64_t read() const { return static_cast<int64_t>(ids.size()) - promptTokens; }
    SequenceView view() const {
      return {prefill, rows, static_cast<int64_t>(blocks.size()), maxNewTokens - read(), away == Away::In};
    }
    bool moves() const { return away != Away::No && away != Away::Swapped; }
  };
  using Sequences = std::list<Sequence>;
  struct Rows {
    Sequence *sequence = nullptr;
    uint32_t miniBatch = 0;
    int64_t firstPosition = 0, count = 0;
    bool sample = false;
  };
  struct MiniBatch {                  // of a micro-batch
    uint32_t number = 0;              // of the plan
    core::KvBlocks *blocks = nullptr; // the runtime's, of this number
    Sequences running;                // by arrival
    std::vector<int32_t> freeSlots;
    // Of the iteration being composed.
    std::vector<SequenceView> views;
    Composition composition;
    std::vector<core::SequenceRows> rows;
  };
  // Of all mini-batches what a variant is chosen by, the largest of each figure; `preempted` are all.
  struct ComposedTogether : ComposedIteration {
    size_t preempted = 0;
  };
  // A launched iteration whose tokens are not yet read.
  struct InFlight {
    EngineIteration launched;
    size_t microBatch = 0;
    std::vector<Rows> rows; // tokens come in this order
    bool keepsLogits = false;
  };
  // A sequence whose logits are not finite.
  struct Wrong {
    Sequence *sequence = nullptr;
    int64_t position = 0;
    uint32_t placement = 0;
    size_t others = 0; // in the same iteration
    int64_t ns = 0;
  };

  Engine(const Executor &on, EngineOptions options, int64_t maxNumSeqs, const SchedulerLimits &limits,
         uint64_t swapBytes);
  absl::StatusOr<bool> advance(int64_t untilNs);
  absl::StatusOr<uint64_t> enlist(EngineRequest request, Sequences &into);
  absl::Status refuses(const EngineRequest &request) const;
  bool isLive(uint64_t id) const; // with mutex_ held
  const Sequence *find(uint64_t id) const;
  void cancelNow(uint64_t id);
  bool isStatic() const { return limits_.batching == Batching::Static; }

  // Launching (EngineLaunch.cpp).
  bool mayLaunch() const;
  bool takeTurn();
  absl::Span<MiniBatch> turn() {
    return absl::MakeSpan(miniBatches_).subspan(turn_ * plan_.miniBatches, plan_.miniBatches);
  }
  absl::Span<const MiniBatch> turn() const {
    return absl::MakeConstSpan(miniBatches_).subspan(turn_ * plan_.miniBatches, plan_.miniBatches);
  }
  InFlight &oldestInFlight() { return inFlight_[oldest_ % inFlight_.size()]; }
  const InFlight &oldestInFlight() const { return inFlight_[oldest_ % inFlight_.size()]; }
  absl::StatusOr<bool> launchNext();
  absl::StatusOr<bool> launchAt(const EngineEdge &edge);
  absl::StatusOr<bool> launchComposed(const EngineEdge &edge);
  absl::Status join();
  MiniBatch &roomiest(const Sequence &sequence);
  absl::StatusOr<bool> joinOne();
  int64_t freeFor(const MiniBatch &into) const;
  bool anyRunsBeside(const MiniBatch &one) const;
  absl::StatusOr<bool> preemptedElsewhere(MiniBatch &one);
  core::KvBlocks &poolOf(const Sequence &sequence) { return *miniBatches_[sequence.miniBatch].blocks; }
  const core::KvBlocks &poolOf(const Sequence &sequence) const { return *miniBatches_[sequence.miniBatch].blocks; }
  uint32_t numberOf(const Sequence &sequence) const { return miniBatches_[sequence.miniBatch].number; } // of the plan
  bool takeOver(Sequence &sequence);
  void takeOverNow(Sequence &sequence);
  bool takeBackFromWaiting(const MiniBatch &of);
  void padBatch(MiniBatch &of);
  bool composed(const EngineEdge &edge);
  void cutToBucket(EngineEdge edge);
  absl::StatusOr<uint32_t> enterForItsBlocks(uint32_t placement);
  bool swapsHinder(uint32_t placement) const;
  absl::StatusOr<bool> settleSwaps();
  bool stuck(const MiniBatch &one) const;
  ComposedTogether composedTogether() const;
  absl::StatusOr<bool> preempt(MiniBatch &of);
  absl::StatusOr<bool> preempt(MiniBatch &of, Sequence &sequence);
  void failOldest(MiniBatch &of);
  absl::Status launchIn(uint32_t placement);
  void addRows(MiniBatch &of, Sequence &sequence, int64_t count, InFlight &iteration);

  // Swapping (EngineSwap.cpp).
  absl::StatusOr<bool> swapOut(Sequence &sequence);
  bool mayComeBack(Sequence &sequence, MiniBatch &into);
  absl::Status bringBack(Sequence &sequence);
  absl::Status startMove(Sequence &sequence);
  SwapSpace::Move moveOf(const Sequence &sequence) const;
  bool onHostLeft(const Sequence &sequence) const;
  bool swapsOnHost() const;
  int64_t comingBlocks(uint32_t miniBatch) const;
  absl::Status pollSwaps();
  absl::Status moveOnHost(uint64_t bytes);
  absl::Status awaitSwap();
  void finishMove(Sequence &sequence);

  // Compaction (EngineCompaction.cpp).
  int64_t resident() const { return runtime_.caches().resident(); }
  int64_t apart(const MiniBatch &of, bool act) const;
  bool wantsCompaction() const;
  absl::Status compact();
  int32_t *highestBlock(MiniBatch &of, bool act);

  // Expansion (EngineExpansion.cpp).
  void beginExpansion();
  uint32_t placementForBlocks() const;
  void adapt(const EngineIteration &iteration);
  bool offerMore(const MiniBatch &of);

  // Reading.
  absl::Status readOldest();
  absl::Status readOne();
  absl::Status accept(Sequence &sequence, int32_t token, size_t index, const EngineIteration &iteration);
  void reportWrong();
  void end(Sequence &sequence, EndReason reason, int64_t ns, absl::Status why = absl::OkStatus());
  void leave(Sequence &sequence);
  bool isOver(const MiniBatch &of) const;
  void leaveTogether();
  void settle(Sequence &sequence);

  const Executor on_;
  core::Runtime &runtime_; // of stages the first
  const plan::Plan &plan_;
  core::Device &device_;
  const EngineOptions options_;
  const int64_t maxNumSeqs_;     // of all mini-batches
  const SchedulerLimits limits_; // of one
  const Scheduler scheduler_;
  // Of an iteration with prompts, by placement: the rows that the largest bucket holds, and the new ones among them; 0:
  // there are no mixed variants.
  std::vector<int64_t> mostRows_, budgets_;
  std::vector<bool> compacts_; // by placement: whether blocks may be moved together
  const PaddedRows padded_;
  KeptLogits logits_;
  SwapSpace swap_;
  const SwapPrice swapPrice_;
  std::unique_ptr<Expansion> expansion_; // null: it does not adapt
  std::vector<uint32_t> byBlocks_; // placements whose blocks are its levels, by these; empty: any number of blocks
  struct Counted {                 // of the device, as the last iteration was read
    uint64_t h2dBytes = 0, d2hBytes = 0;
    int64_t stallNs = 0, endNs = 0;
  };
  Counted counted_;
  std::vector<Sequence *> moving_; // on their way to swap memory or back, in the order they began
  EngineCounters counters_;
  absl::Status broken_;

  std::vector<MiniBatch> miniBatches_;                     // of all micro-batches, one behind the other
  size_t turn_ = 0;                                        // the micro-batch that is composed
  const size_t depth_;                                     // iterations of a micro-batch in flight, at most
  std::vector<size_t> underWay_;                           // of each micro-batch
  Sequences waiting_;                                      // by arrival; all that run are older
  Sequences leaving_;                                      // have no more rows to launch, and some in flight
  Sequences kept_;                                         // have ended, and keep their blocks
  Sequences done_;                                         // to be given back at the next edge
  std::vector<uint64_t> cancelled_;                        // taken in
  std::vector<absl::Span<const core::SequenceRows>> rows_; // of each micro-batch's last iteration, as miniBatches_
  std::vector<EngineRows> told_;
  std::vector<InFlight> inFlight_; // a ring
  size_t newest_ = 0, oldest_ = 0; // launched, read
  std::vector<Wrong> wrong_;
  std::vector<float> keptRow_;

  std::mutex mutex_; // of what follows
  Sequences inbox_, free_;
  std::vector<uint64_t> cancels_;
  std::vector<uint64_t> live_; // submitted and not ended, ascending: from liveFrom_ on
  size_t liveFrom_ = 0;
  uint64_t nextId_ = 1;
  bool closed_ = false;
};

} // namespace headrace::serve
