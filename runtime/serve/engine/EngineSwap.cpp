// SPDX-License-Identifier: Apache-2.0
//
// Preemption by swapping: what a sequence's blocks hold goes to swap memory and comes back beside iterations.
//
//   runs | out: waits, its blocks are nobody's yet | swapped: waits, no blocks | in: a seat and new blocks | runs on
//
// Blocks go back to the pool once the copy out has ended; who needs them meanwhile waits, and the others go on. Blocks
// at home on the host are moved within host memory, a portion at an edge at which nothing is in flight: copies of a
// launch may read and write what lies beside them there.
#include <algorithm>
#include <limits>

#include "runtime/base/StatusMacros.h"
#include "runtime/serve/engine/Engine.h"

namespace headrace::serve {
namespace {

constexpr uint64_t kPortion = uint64_t{16} << 20; // bytes within host memory at an edge: some milliseconds

} // namespace

SwapSpace::Move Engine::moveOf(const Sequence &sequence) const {
  return {&runtime_.caches(), numberOf(sequence), sequence.away != Away::Out, sequence.blocks, sequence.swapSlots};
}

bool Engine::onHostLeft(const Sequence &sequence) const {
  return sequence.swapCursor < swap_.hostEnd(moveOf(sequence));
}

bool Engine::swapsOnHost() const {
  return std::any_of(moving_.begin(), moving_.end(), [this](const Sequence *one) { return onHostLeft(*one); });
}

// Of blocks that are in nobody's way to be free.
int64_t Engine::comingBlocks(uint32_t miniBatch) const {
  int64_t blocks = 0;
  for (const Sequence *one : moving_)
    if (one->miniBatch == miniBatch &&
        (one->away == Away::GivenUp || (one->ended ? !one->keepBlocks : one->away == Away::Out)))
      blocks += static_cast<int64_t>(one->blocks.size());
  return blocks;
}

// Whether a sequence that is preempted goes to swap memory. Nothing is in flight.
absl::StatusOr<bool> Engine::swapOut(Sequence &sequence) {
  if (sequence.away == Away::In) { // what is being brought is there still
    sequence.away = Away::GivenUp;
    sequence.swapCursor = swap_.hostEnd(moveOf(sequence));
    return true;
  }
  if (swap_.slots() == 0 || sequence.rows == 0)
    return false;
  poolOf(sequence).shrink(sequence.blocks, sequence.rows);
  const uint32_t placement = runtime_.placement();
  const uint64_t bytes = swap_.linkBytes({&runtime_.caches(), numberOf(sequence), false, sequence.blocks, {}});
  if ((options_.preemption == Preemption::Auto &&
       !swapPrice_.pays(placement, sequence.rows, budgets_[placement], bytes)) ||
      !swap_.take(static_cast<int64_t>(sequence.blocks.size()), sequence.swapSlots)) {
    ++counters_.swapFallbacks;
    return false;
  }
  sequence.away = Away::Out;
  ++counters_.swapsOut;
  counters_.swapOutBytes += bytes;
  RETURN_IF_ERROR(startMove(sequence));
  return true;
}

// Whether blocks are there for a sequence that waits. Where nobody has any to give, one that is away is computed anew.
bool Engine::mayComeBack(Sequence &sequence, MiniBatch &into) {
  if (sequence.away != Away::Swapped)
    return sequence.away == Away::No;
  const int64_t blocks = into.blocks->blocksFor(sequence.rows + 1);
  if (blocks <= into.blocks->freeBlocks())
    return true;
  if (!into.running.empty() || swapping() || inFlight() > 0)
    return false;
  takeBackFromWaiting(into);
  if (blocks <= into.blocks->freeBlocks())
    return true;
  swap_.giveBack(sequence.swapSlots);
  sequence.away = Away::No;
  sequence.prefill = static_cast<int64_t>(sequence.ids.size());
  sequence.rows = 0;
  ++counters_.swapFallbacks;
  return true;
}

absl::Status Engine::bringBack(Sequence &sequence) {
  RETURN_IF_ERROR(poolOf(sequence).grow(sequence.blocks, sequence.rows));
  sequence.away = Away::In;
  ++counters_.swapsIn;
  counters_.swapInBytes += swap_.linkBytes(moveOf(sequence));
  return startMove(sequence);
}

absl::Status Engine::startMove(Sequence &sequence) {
  const SwapSpace::Move move = moveOf(sequence);
  sequence.swapCursor = swap_.movesOnHost(move) ? 0 : swap_.hostEnd(move);
  ASSIGN_OR_RETURN(ticket, swap_.copyBeside(move, runtime_.mover()));
  sequence.swapTicket = ticket;
  moving_.push_back(&sequence);
  return absl::OkStatus();
}

// Ends the moves that are over.
absl::Status Engine::pollSwaps() {
  if (!swapping())
    return absl::OkStatus();
  if (inFlight() == 0)
    RETURN_IF_ERROR(moveOnHost(kPortion));
  for (size_t i = 0; i < moving_.size();) {
    Sequence &sequence = *moving_[i];
    if (sequence.swapTicket != 0) {
      ASSIGN_OR_RETURN(over, device_.copied(sequence.swapTicket));
      sequence.swapTicket = over ? 0 : sequence.swapTicket;
    }
    if (sequence.swapTicket != 0 || onHostLeft(sequence)) {
      ++i;
      continue;
    }
    moving_.erase(moving_.begin() + static_cast<std::ptrdiff_t>(i));
    finishMove(sequence);
  }
  return absl::OkStatus();
}

// About so many bytes, with nothing in flight.
absl::Status Engine::moveOnHost(uint64_t bytes) {
  if (!swapsOnHost())
    return absl::OkStatus();
  RETURN_IF_ERROR(runtime_.flushKv());
  RETURN_IF_ERROR(device_.drain());
  bool written = false;
  for (Sequence *one : moving_) {
    if (!onHostLeft(*one) || bytes == 0)
      continue;
    const SwapSpace::Move move = moveOf(*one);
    written |= move.toBlocks;
    if (device_.holdsData())
      bytes -= std::min(bytes, swap_.moveOnHost(move, runtime_.mover(), device_.swapMemory(), bytes, one->swapCursor));
    else
      one->swapCursor = swap_.hostEnd(move); // within the host nothing takes virtual time
  }
  if (written)
    runtime_.kvWritten();
  return absl::OkStatus();
}

// The first of them, with nothing in flight.
absl::Status Engine::awaitSwap() {
  if (moving_.front()->swapTicket != 0)
    RETURN_IF_ERROR(device_.awaitCopied(moving_.front()->swapTicket));
  return pollSwaps();
}

absl::Status Engine::finishSwaps() {
  if (!swapping())
    return absl::OkStatus();
  if (inFlight() > 0 && swapsOnHost())
    return absl::FailedPreconditionError(
        "swapped blocks are moved within host memory: expected no iteration in flight");
  RETURN_IF_ERROR(moveOnHost(std::numeric_limits<uint64_t>::max()));
  for (Sequence *one : moving_)
    if (one->swapTicket != 0)
      RETURN_IF_ERROR(device_.awaitCopied(one->swapTicket));
  return pollSwaps();
}

void Engine::finishMove(Sequence &sequence) {
  if (sequence.away == Away::GivenUp || (sequence.away == Away::Out && !sequence.ended)) {
    poolOf(sequence).release(sequence.blocks);
    sequence.away = Away::Swapped;
  } else {
    swap_.giveBack(sequence.swapSlots);
    sequence.away = Away::No;
  }
  if (sequence.ended)
    settle(sequence);
}

} // namespace headrace::serve
