// SPDX-License-Identifier: Apache-2.0
//
// The engine's way from sequences to a launched iteration.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/serve/engine/Engine.h"

namespace headrace::serve {

// Logits that are kept are read before anything overwrites them: a later iteration, or a hop between two steps.
bool Engine::mayLaunch() const {
  const auto keeps = [](const Sequence &sequence) { return sequence.keepLogits; };
  if (inFlight() == 0)
    return true;
  if (swapsOnHost())
    return false;
  return std::any_of(underWay_.begin(), underWay_.end(), [&](size_t of) { return of < depth_; }) &&
         !oldestInFlight().keepsLogits &&
         (!options_.logits || std::none_of(miniBatches_.begin(), miniBatches_.end(), [&](const MiniBatch &one) {
           return std::any_of(one.running.begin(), one.running.end(), keeps);
         }));
}

// The next micro-batch that may launch, and has sequences. False: there is none.
bool Engine::takeTurn() {
  for (size_t i = 0; i < underWay_.size(); ++i, turn_ = (turn_ + 1) % underWay_.size())
    if (underWay_[turn_] < depth_ &&
        std::any_of(turn().begin(), turn().end(), [](const MiniBatch &one) { return !one.running.empty(); }))
      return true;
  return false;
}

// Where a sequence that waits would join: where its blocks are, if it has any; else in the micro-batch in which the
// fewest run, so that each stage has work; there where the most blocks are free; then where the fewest run.
Engine::MiniBatch &Engine::roomiest(const Sequence &sequence) {
  if (!sequence.blocks.empty())
    return miniBatches_[sequence.miniBatch];
  const auto runBeside = [this](const MiniBatch &one) { // in its micro-batch
    const size_t first = static_cast<size_t>(&one - miniBatches_.data()) / plan_.miniBatches * plan_.miniBatches;
    size_t count = 0;
    for (size_t i = first; i < first + plan_.miniBatches; ++i)
      count += miniBatches_[i].running.size();
    return count;
  };
  MiniBatch *best = &miniBatches_.front();
  for (MiniBatch &one : miniBatches_) {
    if (one.freeSlots.empty() != best->freeSlots.empty()) {
      best = best->freeSlots.empty() ? &one : best;
      continue;
    }
    if (const size_t here = runBeside(one), there = runBeside(*best); here != there) {
      best = here < there ? &one : best;
      continue;
    }
    const int64_t free = one.blocks->freeBlocks(), most = best->blocks->freeBlocks();
    if (free > most || (free == most && one.running.size() < best->running.size()))
      best = &one;
  }
  return *best;
}

absl::Status Engine::join() {
  for (MiniBatch &one : miniBatches_) {
    one.views.clear();
    for (const Sequence &sequence : one.running)
      one.views.push_back(sequence.view());
  }
  if (isStatic() && running() == 0 && inFlight() > 0)
    return absl::OkStatus(); // a batch is formed of all blocks
  for (bool joined = true; joined && !waiting_.empty();) {
    ASSIGN_OR_RETURN(one, joinOne());
    joined = one;
  }
  if (isStatic())
    for (MiniBatch &one : miniBatches_)
      padBatch(one);
  return absl::OkStatus();
}

// The first that waits, if it may.
absl::StatusOr<bool> Engine::joinOne() {
  Sequence &sequence = waiting_.front();
  if (static_cast<int64_t>(running()) >= maxNumSeqs_ || !takeOver(sequence))
    return false;
  MiniBatch &into = roomiest(sequence);
  if (into.freeSlots.empty())
    return false;
  const int64_t free = freeFor(into);
  // Where nothing runs it may always try; but what is in flight, or runs in another micro-batch, may give blocks back.
  if (into.running.empty() && (inFlight() > 0 || anyRunsBeside(into)) && !scheduler_.hasRoom(sequence.view(), free))
    return false;
  if (!mayComeBack(sequence, into) || !scheduler_.mayJoin(into.views, sequence.view(), free))
    return false;
  sequence.joined = true;
  sequence.seatedFrom = newest_;
  sequence.miniBatch = static_cast<uint32_t>(&into - miniBatches_.data());
  sequence.slot = into.freeSlots.back();
  into.freeSlots.pop_back();
  into.running.splice(into.running.end(), waiting_, sequence.self);
  if (sequence.away == Away::Swapped)
    RETURN_IF_ERROR(bringBack(sequence));
  into.views.push_back(sequence.view());
  return true;
}

// Free blocks without those that prompts which run in other micro-batches have yet to take.
int64_t Engine::freeFor(const MiniBatch &into) const {
  int64_t free = into.blocks->freeBlocks();
  for (const MiniBatch &other : miniBatches_)
    if (&other != &into && other.number == into.number)
      for (const SequenceView &one : other.views)
        free -= std::max<int64_t>(0, into.blocks->blocksFor(one.prefill) - one.blocks);
  return free;
}

// In another micro-batch, with the same blocks.
bool Engine::anyRunsBeside(const MiniBatch &one) const {
  return std::any_of(miniBatches_.begin(), miniBatches_.end(), [&](const MiniBatch &other) {
    return &other != &one && other.number == one.number && !other.running.empty();
  });
}

// Before its first iteration: every prompt becomes as long as the longest.
void Engine::padBatch(MiniBatch &of) {
  int64_t longest = 0;
  for (const SequenceView &one : of.views) {
    if (one.rows > 0)
      return;
    longest = std::max(longest, one.prefill);
  }
  size_t i = 0;
  for (Sequence &sequence : of.running) {
    sequence.padding += longest - sequence.prefill;
    sequence.prefill = of.views[i++].prefill = longest;
  }
}

// Composes the next iteration, each mini-batch by itself. False: the end of what is in flight may give the blocks that
// are missing.
bool Engine::composed(const EngineEdge &edge) {
  SchedulerLimits limits = limits_;
  limits.prefill = edge.prefill;
  const int64_t most = budgets_[edge.placement], budget = edge.budget == 0 ? most : std::min(edge.budget, most);
  bool wants = false; // blocks that it has not got
  for (MiniBatch &one : turn()) {
    Composition &made = one.composition;
    if (isOver(one)) { // others are not: no rows beyond what it has room for
      made.clear(one.running.size());
      continue;
    }
    do {
      const auto first = std::count_if(one.running.begin(), one.running.end(),
                                       [](const Sequence &sequence) { return sequence.blocks.empty(); });
      Scheduler(limits).compose(one.views, budget, one.blocks->freeBlocks(first), made, comingBlocks(one.number));
    } while (!one.running.empty() && (made.preempted > 0 || (made.tokens == 0 && !swapping())) &&
             takeBackFromWaiting(one));
    wants |= made.preempted > 0 || stuck(one);
  }
  return inFlight() == 0 || (!wants && composedTogether().tokens > 0);
}

// It runs, and nothing that is under way would let it go on.
bool Engine::stuck(const MiniBatch &one) const {
  const auto moves = [&](const Sequence *sequence) { return &miniBatches_[sequence->miniBatch] == &one; };
  return !one.running.empty() && !isOver(one) && one.composition.tokens == 0 && one.composition.preempted == 0 &&
         std::none_of(moving_.begin(), moving_.end(), moves);
}

Engine::ComposedTogether Engine::composedTogether() const {
  ComposedTogether all{{{0, 0, 0, true}, false}, 0};
  for (const MiniBatch &one : turn()) {
    const Composition &made = one.composition;
    all.oneRowEach &= made.oneRowEach();
    all.tokens = std::max(all.tokens, made.tokens);
    all.sequences = std::max(all.sequences, made.sequences);
    all.context = std::max(all.context, made.context);
    all.prefill |= made.prefill;
    all.preempted += made.preempted;
  }
  return all;
}

absl::StatusOr<bool> Engine::launchNext() {
  RETURN_IF_ERROR(join());
  if (!takeTurn() || !mayLaunch()) // one that joined keeps logits
    return false;
  if (wantsCompaction()) {
    if (inFlight() > 0)
      return false;
    RETURN_IF_ERROR(compact());
  }
  EngineEdge edge{.placement = runtime_.placement(), .prefill = options_.prefill};
  if (!composed(edge))
    return false;
  const bool byBlocks = !options_.placementOf && !byBlocks_.empty();
  if (const ComposedTogether all = composedTogether(); (options_.placementOf || byBlocks) && all.tokens > 0) {
    edge.placement = byBlocks ? placementForBlocks() : options_.placementOf(all);
    if (edge.placement >= plan_.placements.size())
      return absl::InvalidArgumentError(
          absl::StrCat("placement ", edge.placement, " asked for, the plan has ", plan_.placements.size()));
    const uint32_t chosen = edge.placement;
    if (swapsHinder(chosen))
      return settleSwaps();
    ASSIGN_OR_RETURN(entered, enterForItsBlocks(chosen));
    edge.placement = entered;
    if (!composed(edge))
      return false;
    cutToBucket(edge);
    ASSIGN_OR_RETURN(launched, launchComposed(edge));
    counters_.placementsNotTaken += entered != chosen && composedTogether().tokens > 0;
    return launched;
  }
  cutToBucket(edge);
  return launchComposed(edge);
}

void Engine::cutToBucket(EngineEdge edge) {
  const ComposedTogether all = composedTogether();
  if (!all.prefill || edge.prefill != Prefill::Chunked || isStatic())
    return;
  edge.budget = padded_.cut(edge.placement, all);
  if (edge.budget < all.tokens)
    composed(edge);
}

absl::StatusOr<bool> Engine::launchAt(const EngineEdge &edge) {
  takeIn();
  RETURN_IF_ERROR(pollSwaps());
  if (!mayLaunch())
    return false;
  RETURN_IF_ERROR(join());
  if (!takeTurn() || !mayLaunch() || !composed(edge))
    return false;
  if (swapsHinder(edge.placement))
    return settleSwaps();
  return launchComposed(edge);
}

absl::StatusOr<bool> Engine::launchComposed(const EngineEdge &edge) {
  for (MiniBatch &one : turn()) {
    ASSIGN_OR_RETURN(elsewhere, preemptedElsewhere(one));
    if (elsewhere)
      return true; // composed again
  }
  bool failed = false;
  for (MiniBatch &one : turn())
    if (stuck(one)) {
      if (!offerMore(one))
        failOldest(one);
      failed = true;
    }
  if (failed)
    return true;
  const ComposedTogether all = composedTogether();
  if (all.tokens == 0 && all.preempted == 0) {
    RETURN_IF_ERROR(awaitSwap());
    return true;
  }
  bool swapped = false;
  if (all.preempted > 0)
    for (MiniBatch &one : turn()) {
      ASSIGN_OR_RETURN(away, preempt(one));
      swapped |= away;
    }
  if (swapped || all.tokens == 0)
    return true; // blocks are not free yet, or those of all that were preempted are needed: composed again
  RETURN_IF_ERROR(launchIn(edge.placement));
  return true;
}

// Before a change of placement what is swapped has arrived: where blocks lie is the placement's.
bool Engine::swapsHinder(uint32_t placement) const { return placement != runtime_.placement() && swapping(); }

// False: once nothing is in flight. True: who may run is another matter now, and composed again.
absl::StatusOr<bool> Engine::settleSwaps() {
  if (inFlight() > 0)
    return false;
  RETURN_IF_ERROR(finishSwaps());
  return true;
}

// A placement with another number of KV blocks is entered before blocks are taken, so that they are its own. Returns
// where the runtime is then: blocks in use may forbid the way.
absl::StatusOr<uint32_t> Engine::enterForItsBlocks(uint32_t placement) {
  if (plan_.placements[placement].kvBlocks == miniBatches_.front().blocks->limit())
    return placement;
  while (runtime_.placement() != placement)
    if (const absl::StatusOr<core::Hop> hop = runtime_.takeHop(placement); !hop.ok()) {
      if (hop.status().code() != absl::StatusCode::kFailedPrecondition)
        return hop.status();
      break;
    }
  return runtime_.placement();
}

// Whether one of them was swapped.
absl::StatusOr<bool> Engine::preempt(MiniBatch &of) {
  bool swapped = false;
  for (size_t i = 0; i < of.composition.preempted; ++i) {
    ASSIGN_OR_RETURN(away, preempt(of, of.running.back()));
    swapped |= away;
  }
  return swapped;
}

// Whether it was swapped.
absl::StatusOr<bool> Engine::preempt(MiniBatch &of, Sequence &sequence) {
  if (sequence.ended) { // it kept its seat
    leave(sequence);
    settle(sequence);
    return false;
  }
  counters_.preemptions += sequence.rows > 0;
  sequence.preemptions += sequence.rows > 0;
  ASSIGN_OR_RETURN(away, swapOut(sequence));
  if (!away) {
    of.blocks->release(sequence.blocks);
    sequence.prefill = static_cast<int64_t>(sequence.ids.size());
    sequence.rows = sequence.padding = 0;
  }
  of.freeSlots.push_back(sequence.slot);
  sequence.slot = -1;
  sequence.joined = false;
  waiting_.splice(waiting_.begin(), of.running, sequence.self);
  return away;
}

// Where one lacks blocks that other micro-batches have, with nothing in flight: the youngest of all that has some gives
// them up. False: that is one of its own, beside older ones of its own, or no other has any.
absl::StatusOr<bool> Engine::preemptedElsewhere(MiniBatch &one) {
  if (one.composition.preempted == 0 && !stuck(one))
    return false;
  MiniBatch *holder = nullptr;
  Sequence *youngest = nullptr; // elsewhere
  for (MiniBatch &other : miniBatches_)
    if (&other != &one && other.number == one.number)
      for (Sequence &sequence : other.running)
        if (!sequence.blocks.empty() && (youngest == nullptr || sequence.id > youngest->id)) {
          holder = &other;
          youngest = &sequence;
        }
  if (youngest == nullptr)
    return false;
  if (youngest->id > one.running.back().id) {
    RETURN_IF_ERROR(preempt(*holder, *youngest).status());
    return true;
  }
  if (one.composition.preempted > 0)
    return false;
  RETURN_IF_ERROR(preempt(one, one.running.back()).status());
  turn_ = (turn_ + 1) % underWay_.size(); // the others have one
  return true;
}

// It has all the blocks that nobody else in flight has, and needs one more.
void Engine::failOldest(MiniBatch &of) {
  Sequence &sequence = of.running.front();
  if (sequence.ended) { // it kept its seat
    leave(sequence);
    settle(sequence);
    return;
  }
  end(sequence, EndReason::Failed, device_.nowNs(),
      absl::ResourceExhaustedError(absl::StrCat("position ", sequence.rows, ": the request has ",
                                                sequence.blocks.size(), " KV blocks and needs one more, placement '",
                                                plan_.placements[runtime_.placement()].name, "' has ",
                                                of.blocks->limit() - 1)));
}

absl::Status Engine::launchIn(uint32_t placement) {
  InFlight &next = inFlight_[newest_ % inFlight_.size()];
  next.rows.clear();
  next.keepsLogits = false;
  next.microBatch = turn_;
  int64_t tokens = 0, sequences = 0;
  const absl::Span<absl::Span<const core::SequenceRows>> rowsOf =
      absl::MakeSpan(rows_).subspan(turn_ * plan_.miniBatches, plan_.miniBatches);
  for (MiniBatch &one : turn()) {
    const Composition &made = one.composition;
    one.rows.clear();
    for (const bool prompts : {false, true}) { // decoding sequences first
      size_t i = 0;
      for (Sequence &sequence : one.running) {
        if (i == made.rows.size())
          break;
        const int64_t rows = made.rows[i++];
        if (rows == 0 || prompts == sequence.view().decodes())
          continue;
        RETURN_IF_ERROR(one.blocks->grow(sequence.blocks, sequence.rows + rows));
        addRows(one, sequence, rows, next);
      }
    }
    rowsOf[one.number] = one.rows;
    tokens += made.tokens;
    sequences += made.sequences;
  }
  const ComposedTogether all = composedTogether();
  ASSIGN_OR_RETURN(launched, on_.launch(placement, all, rowsOf));
  if (options_.onLaunch)
    options_.onLaunch(launched.variant, *launched.meta);
  next.launched = {.number = launched.number,
                   .variant = launched.variant,
                   .placement = placement,
                   .launchNs = launched.ns,
                   .tokens = tokens,
                   .sequences = sequences,
                   .prefill = all.prefill};
  ++newest_;
  ++underWay_[turn_];
  turn_ = (turn_ + 1) % underWay_.size();
  if (compacts_[placement] && (all.prefill || !plan_.attendsOnCpu())) // each brings all of its tails
    for (const MiniBatch &one : miniBatches_)
      counters_.leastBroughtBytes +=
          static_cast<uint64_t>(plan_.model->layers) *
          (static_cast<uint64_t>(std::max<int64_t>(0, one.blocks->kvUsed() + 1 - resident())) * plan_.kvBlockBytes() +
           (runtime_.caches().actsOnHost() ? static_cast<uint64_t>(one.blocks->actUsed()) * plan_.actBlockBytes() : 0));
  ++counters_.iterations;
  counters_.prefillIterations += all.prefill;
  for (const Rows &rows : next.rows) {
    if (rows.sequence->startNs < 0)
      rows.sequence->startNs = launched.ns;
    if (!isStatic() && rows.sequence->sampled == rows.sequence->maxNewTokens)
      leave(*rows.sequence);
  }
  leaveTogether();
  return absl::OkStatus();
}

void Engine::addRows(MiniBatch &of, Sequence &sequence, int64_t count, InFlight &iteration) {
  absl::Span<const int32_t> ids;
  const int64_t known = sequence.prefill - sequence.padding, after = sequence.rows + count;
  const bool sample = after >= known && (sequence.rows < known || sequence.view().decodes());
  int64_t padding = 0; // of these rows
  if (sequence.rows < sequence.prefill) {
    const int64_t first = std::min(sequence.rows, known), last = std::min(after, known);
    ids = absl::MakeConstSpan(sequence.ids).subspan(static_cast<size_t>(first), static_cast<size_t>(last - first));
    padding = count - (last - first);
  } else { // the token sampled last, or where the device keeps it
    sequence.decodeId = sequence.read() == sequence.sampled ? sequence.ids.back() : -1 - sequence.slot;
    ids = {&sequence.decodeId, 1};
  }
  of.rows.push_back({.tokens = ids,
                     .padding = padding,
                     .firstPosition = sequence.rows,
                     .blocks = sequence.blocks,
                     .sample = sample,
                     .requestSlot = sequence.slot,
                     .temperature = sequence.sampling.temperature,
                     .topP = sequence.sampling.topP,
                     .seed = sequence.sampling.seed,
                     .topK = static_cast<int32_t>(std::min<int64_t>(sequence.sampling.topK, plan_.model->vocab)),
                     .minP = sequence.sampling.minP,
                     .repetition = sequence.sampling.repetitionPenalty,
                     .presence = sequence.sampling.presencePenalty,
                     .frequency = sequence.sampling.frequencyPenalty,
                     .promptTokens = sequence.promptTokens});
  iteration.rows.push_back({&sequence, of.number, sequence.rows, count - padding, sample});
  iteration.keepsLogits |= sample && sequence.keepLogits;
  counters_.paddedRows += static_cast<uint64_t>(padding);
  sequence.rows = after;
  if (sequence.padding > 0 && after == sequence.prefill) { // decodes overwrite the padding
    sequence.rows = sequence.prefill = known;
    sequence.padding = 0;
  }
  sequence.sampled += sample;
  ++sequence.inFlight;
}

} // namespace headrace::serve
