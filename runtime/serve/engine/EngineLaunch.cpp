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
  return inFlight() < options_.depth && !inFlight_[oldest_ % kInFlight].keepsLogits &&
         (!options_.logits || std::none_of(running_.begin(), running_.end(), keeps));
}

absl::Status Engine::join() {
  views_.clear();
  if (isStatic() && running_.empty() && inFlight() > 0)
    return absl::OkStatus(); // a batch is formed of all blocks
  if (running_.empty() && inFlight() > 0 && !waiting_.empty() &&
      !(takeOver(waiting_.front()) && scheduler_.hasRoom(waiting_.front().view(), blocks_.freeBlocks())))
    return absl::OkStatus();
  for (const Sequence &sequence : running_)
    views_.push_back(sequence.view());
  while (!waiting_.empty() && takeOver(waiting_.front()) && mayComeBack(waiting_.front()) &&
         scheduler_.mayJoin(views_, waiting_.front().view(), blocks_.freeBlocks())) {
    Sequence &sequence = waiting_.front();
    sequence.joined = true;
    sequence.slot = freeSlots_.back();
    freeSlots_.pop_back();
    running_.splice(running_.end(), waiting_, sequence.self);
    if (sequence.away == Away::Swapped)
      RETURN_IF_ERROR(bringBack(sequence));
    views_.push_back(sequence.view());
  }
  if (isStatic())
    padBatch();
  return absl::OkStatus();
}

// Before its first iteration: every prompt becomes as long as the longest.
void Engine::padBatch() {
  int64_t longest = 0;
  for (const SequenceView &one : views_) {
    if (one.rows > 0)
      return;
    longest = std::max(longest, one.prefill);
  }
  size_t i = 0;
  for (Sequence &sequence : running_) {
    sequence.padding += longest - sequence.prefill;
    sequence.prefill = views_[i++].prefill = longest;
  }
}

// Composes the next iteration. False: the end of what is in flight may give the blocks that are missing.
bool Engine::composed(const EngineEdge &edge) {
  SchedulerLimits limits = limits_;
  limits.prefill = edge.prefill;
  const int64_t most = budgets_[edge.placement];
  do
    Scheduler(limits).compose(views_, edge.budget == 0 ? most : std::min(edge.budget, most), blocks_.freeBlocks(),
                              composition_, comingBlocks());
  while ((composition_.preempted > 0 || (composition_.tokens == 0 && !swapping())) && takeBackFromWaiting());
  return inFlight() == 0 || (composition_.preempted == 0 && composition_.tokens > 0);
}

absl::StatusOr<bool> Engine::launchNext() {
  RETURN_IF_ERROR(join());
  if (running_.empty() || !mayLaunch()) // one that joined keeps logits
    return false;
  EngineEdge edge{.placement = runtime_.placement(), .prefill = options_.prefill};
  if (!composed(edge))
    return false;
  if (options_.placementOf && composition_.tokens > 0) {
    edge.placement = options_.placementOf(
        {{composition_.tokens, composition_.sequences, composition_.context}, composition_.prefill});
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
    counters_.placementsNotTaken += entered != chosen && composition_.tokens > 0;
    return launched;
  }
  cutToBucket(edge);
  return launchComposed(edge);
}

void Engine::cutToBucket(EngineEdge edge) {
  if (!composition_.prefill || edge.prefill != Prefill::Chunked || isStatic())
    return;
  edge.budget = padded_.cut(edge.placement, {composition_.tokens, composition_.sequences, composition_.context});
  if (edge.budget < composition_.tokens)
    composed(edge);
}

absl::StatusOr<bool> Engine::launchAt(const EngineEdge &edge) {
  takeIn();
  RETURN_IF_ERROR(pollSwaps());
  if (!mayLaunch())
    return false;
  RETURN_IF_ERROR(join());
  if (running_.empty() || !mayLaunch() || !composed(edge))
    return false;
  if (swapsHinder(edge.placement))
    return settleSwaps();
  return launchComposed(edge);
}

absl::StatusOr<bool> Engine::launchComposed(const EngineEdge &edge) {
  if (composition_.tokens == 0) {
    if (!swapping()) {
      failOldest();
      return true;
    }
    RETURN_IF_ERROR(awaitSwap());
    return true;
  }
  ASSIGN_OR_RETURN(swapped, preempt());
  if (swapped)
    return true; // its blocks are not free yet: composed again
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
  if (plan_.placements[placement].kvBlocks == blocks_.limit())
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
absl::StatusOr<bool> Engine::preempt() {
  bool swapped = false;
  for (size_t i = 0; i < composition_.preempted; ++i) {
    Sequence &sequence = running_.back();
    if (sequence.ended) { // it kept its seat
      leave(sequence);
      settle(sequence);
      continue;
    }
    counters_.preemptions += sequence.rows > 0;
    sequence.preemptions += sequence.rows > 0;
    ASSIGN_OR_RETURN(away, swapOut(sequence));
    swapped |= away;
    if (!away) {
      blocks_.release(sequence.blocks);
      sequence.prefill = static_cast<int64_t>(sequence.ids.size());
      sequence.rows = sequence.padding = 0;
    }
    freeSlots_.push_back(sequence.slot);
    sequence.slot = -1;
    sequence.joined = false;
    waiting_.splice(waiting_.begin(), running_, sequence.self);
  }
  return swapped;
}

// It has all the blocks that nobody else in flight has, and needs one more.
void Engine::failOldest() {
  Sequence &sequence = running_.front();
  if (sequence.ended) { // it kept its seat
    leave(sequence);
    settle(sequence);
    return;
  }
  end(sequence, EndReason::Failed, device_.nowNs(),
      absl::ResourceExhaustedError(absl::StrCat("position ", sequence.rows, ": the request has ",
                                                sequence.blocks.size(), " KV blocks and needs one more, placement '",
                                                plan_.placements[runtime_.placement()].name, "' has ",
                                                blocks_.limit() - 1)));
}

absl::Status Engine::launchIn(uint32_t placement) {
  rows_.clear();
  InFlight &next = inFlight_[newest_ % kInFlight];
  next.rows.clear();
  next.keepsLogits = false;
  for (const bool prompts : {false, true}) { // decoding sequences first
    size_t i = 0;
    for (Sequence &sequence : running_) {
      if (const int64_t rows = composition_.rows[i++]; rows > 0 && prompts != sequence.view().decodes())
        RETURN_IF_ERROR(addRows(sequence, rows, next));
      if (i == composition_.rows.size())
        break;
    }
  }
  ASSIGN_OR_RETURN(variant,
                   runtime_.chooseIn(placement, composition_.tokens, composition_.sequences, composition_.context));
  RETURN_IF_ERROR(core::writeMeta(plan_.metaLayout, plan_.blockTokens, rows_, device_.meta()));
  const int64_t launchNs = device_.nowNs();
  RETURN_IF_ERROR(runtime_.launch(variant));
  next.launched = {.number = runtime_.launched(),
                   .variant = variant,
                   .placement = placement,
                   .launchNs = launchNs,
                   .tokens = composition_.tokens,
                   .sequences = composition_.sequences,
                   .prefill = composition_.prefill};
  ++newest_;
  ++counters_.iterations;
  counters_.prefillIterations += composition_.prefill;
  for (const Rows &rows : next.rows) {
    if (rows.sequence->startNs < 0)
      rows.sequence->startNs = launchNs;
    if (!isStatic() && rows.sequence->sampled == rows.sequence->maxNewTokens)
      leave(*rows.sequence);
  }
  leaveTogether();
  return absl::OkStatus();
}

absl::Status Engine::addRows(Sequence &sequence, int64_t count, InFlight &iteration) {
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
  RETURN_IF_ERROR(blocks_.grow(sequence.blocks, after));
  rows_.push_back({.tokens = ids,
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
  iteration.rows.push_back({&sequence, sequence.rows, count - padding, sample});
  iteration.keepsLogits |= sample && sequence.keepLogits;
  counters_.paddedRows += static_cast<uint64_t>(padding);
  sequence.rows = after;
  if (sequence.padding > 0 && after == sequence.prefill) { // decodes overwrite the padding
    sequence.rows = sequence.prefill = known;
    sequence.padding = 0;
  }
  sequence.sampled += sample;
  ++sequence.inFlight;
  return absl::OkStatus();
}

} // namespace headrace::serve
