// SPDX-License-Identifier: Apache-2.0
//
// KV blocks that come to a sequence from elsewhere, or stay when it has ended.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/serve/engine/Engine.h"

namespace headrace::serve {

absl::StatusOr<uint64_t> Engine::submitPrefilled(EngineRequest request, int32_t firstToken) {
  std::vector<int32_t> none;
  return submitPrefilled(std::move(request), firstToken, none);
}

absl::StatusOr<uint64_t> Engine::submitPrefilled(EngineRequest request, int32_t firstToken,
                                                 std::vector<int32_t> &blocks) {
  RETURN_IF_ERROR(refuses(request));
  if (request.maxNewTokens < 2)
    return absl::InvalidArgumentError(
        "a prompt that was prefilled elsewhere with no more tokens to come, expected at least one");
  const auto tokens = static_cast<int64_t>(request.prompt.size());
  MiniBatch &into = blocks.empty() ? roomiest(Sequence()) : miniBatches_.front();
  const int64_t wanted = into.blocks->blocksFor(tokens);
  if (!blocks.empty() && static_cast<int64_t>(blocks.size()) != wanted)
    return absl::InvalidArgumentError(
        absl::StrCat(blocks.size(), " KV blocks hold the prompt, expected ", wanted, " for its ", tokens, " tokens"));
  if (into.freeSlots.empty() || (blocks.empty() && wanted > into.blocks->freeBlocks()))
    return absl::ResourceExhaustedError(absl::StrCat("no room to join: ", into.freeSlots.size(), " of ",
                                                     limits_.maxNumSeqs, " seats and ", into.blocks->freeBlocks(),
                                                     " KV blocks are free, ", wanted, " wanted"));
  ASSIGN_OR_RETURN(id, enlist(std::move(request), into.running));
  Sequence &sequence = into.running.back();
  sequence.miniBatch = static_cast<uint32_t>(&into - miniBatches_.data());
  sequence.blocks.assign(blocks.begin(), blocks.end());
  blocks.clear();
  RETURN_IF_ERROR(into.blocks->grow(sequence.blocks, tokens)); // nothing, where they were given
  sequence.rows = tokens;
  sequence.sampled = 1;
  sequence.ids.push_back(firstToken);
  sequence.joined = true;
  sequence.seatedFrom = newest_;
  sequence.slot = into.freeSlots.back();
  into.freeSlots.pop_back();
  return id;
}

const Engine::Sequence *Engine::find(uint64_t id) const {
  const auto findIn = [&](const Sequences &sequences) -> const Sequence * {
    const auto at = std::find_if(sequences.begin(), sequences.end(), [&](const Sequence &s) { return s.id == id; });
    return at == sequences.end() ? nullptr : &*at;
  };
  for (const MiniBatch &one : miniBatches_)
    if (const Sequence *sequence = findIn(one.running))
      return sequence;
  const Sequence *leaving = findIn(leaving_);
  return leaving != nullptr ? leaving : findIn(kept_);
}

uint32_t Engine::miniBatchOf(uint64_t id) const {
  const Sequence *sequence = find(id);
  return sequence == nullptr ? 0 : numberOf(*sequence);
}

absl::Span<const int32_t> Engine::blocksOf(uint64_t id) const {
  const Sequence *sequence = find(id);
  return sequence == nullptr ? absl::Span<const int32_t>() : absl::MakeConstSpan(sequence->blocks);
}

void Engine::releaseBlocks(uint64_t id) {
  for (Sequence &sequence : kept_)
    if (sequence.id == id) {
      poolOf(sequence).release(sequence.blocks);
      return done_.splice(done_.end(), kept_, sequence.self);
    }
}

// False: what it continues has rows in flight, which write to the blocks.
bool Engine::takeOver(Sequence &sequence) {
  if (sequence.continues == 0)
    return true;
  const auto isIt = [id = sequence.continues](const Sequence &other) { return other.id == id; };
  if (std::any_of(leaving_.begin(), leaving_.end(), isIt))
    return false;
  sequence.continues = 0;
  const auto kept = std::find_if(kept_.begin(), kept_.end(), isIt);
  if (kept == kept_.end())
    return true;
  // Of its rows those whose ids are known; and a row at least is computed, to sample from.
  const int64_t rows = std::min(kept->rows, static_cast<int64_t>(kept->ids.size()));
  const int64_t most = std::min(rows, static_cast<int64_t>(sequence.ids.size()) - 1);
  const auto differs = std::mismatch(kept->ids.begin(), kept->ids.begin() + most, sequence.ids.begin()).first;
  sequence.rows = sequence.reused = differs - kept->ids.begin();
  poolOf(*kept).shrink(kept->blocks, sequence.reused);
  sequence.miniBatch = kept->miniBatch;
  sequence.blocks.swap(kept->blocks);
  done_.splice(done_.end(), kept_, kept);
  return true;
}

// As it ends while it waits: the blocks are its own even so; those with rows in flight go back after these.
void Engine::takeOverNow(Sequence &sequence) {
  if (takeOver(sequence))
    return;
  for (Sequence &other : leaving_)
    if (other.id == sequence.continues)
      other.keepBlocks = false;
}

// Who runs comes first: a conversation that waits is computed anew.
bool Engine::takeBackFromWaiting(const MiniBatch &of) {
  bool any = false;
  for (Sequence &sequence : waiting_) {
    if (sequence.away != Away::No || numberOf(sequence) != of.number) // it was preempted, or its blocks are no help
      continue;
    any |= !sequence.blocks.empty();
    of.blocks->release(sequence.blocks);
    sequence.rows = sequence.reused = 0;
  }
  return any;
}

} // namespace headrace::serve
