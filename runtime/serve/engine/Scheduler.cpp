// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/engine/Scheduler.h"

#include <algorithm>

namespace headrace::serve {

// A composition in the making.
struct Scheduler::Pass {
  absl::Span<const SequenceView> running; // but those preempted
  int64_t budget = 0, free = 0;
  Composition &out;
  int64_t coming = 0; // blocks

  void add(size_t i, int64_t rows, int64_t blocks) {
    free -= blocks;
    out.rows[i] = rows;
    out.tokens += rows;
    ++out.sequences;
    out.context = std::max(out.context, running[i].rows + rows);
  }
  void preemptYoungest() { // which has no rows yet: rows are given from the oldest on
    (running.back().moving ? coming : free) += running.back().blocks;
    running.remove_suffix(1);
    ++out.preempted;
  }
};

void Composition::clear(size_t ofSequences) {
  rows.assign(ofSequences, 0);
  tokens = sequences = context = 0;
  prefill = false;
  preempted = 0;
}

bool Scheduler::mayJoin(absl::Span<const SequenceView> running, const SequenceView &head, int64_t freeBlocks) const {
  if (static_cast<int64_t>(running.size()) >= limits_.maxNumSeqs)
    return false;
  if (running.empty())
    return true;
  if (limits_.batching == Batching::Static)
    return mayJoinBatch(running, head, freeBlocks);
  int64_t left = freeBlocks - std::max<int64_t>(0, blocksFor(head.nextEnd()) - head.blocks);
  // One that comes back with its rows leaves the others the blocks of their next ones: it was preempted for these.
  const bool comesBack = head.rows > 0 && head.blocks == 0;
  for (const SequenceView &one : running)
    left -= std::max<int64_t>(0, blocksFor(comesBack ? one.nextEnd() : one.prefill) - one.blocks);
  return left >= limits_.watermarkBlocks;
}

bool Scheduler::mayJoinBatch(absl::Span<const SequenceView> batch, const SequenceView &head, int64_t freeBlocks) const {
  int64_t prompt = head.prefill, output = head.output;
  for (const SequenceView &one : batch) {
    if (one.rows > 0)
      return false;
    prompt = std::max(prompt, one.prefill);
    output = std::max(output, one.output);
  }
  const auto sequences = static_cast<int64_t>(batch.size()) + 1;
  return prompt + output <= limits_.context && sequences * blocksFor(prompt + output) <= freeBlocks;
}

// Where no prompt has more than a row left, an iteration of all sequences is one of decode. A static batch decodes in
// step: once all of its prompts are there.
bool Scheduler::decodesWait(absl::Span<const SequenceView> running) const {
  const bool inStep = limits_.batching == Batching::Static;
  return (inStep || limits_.prefill != Prefill::Chunked) &&
         std::any_of(running.begin(), running.end(),
                     [&](const SequenceView &s) { return !s.moving && s.prefill - s.rows > (inStep ? 0 : 1); });
}

void Scheduler::addDecodes(Pass &pass) const {
  for (size_t i = 0; i < pass.running.size(); ++i) {
    const SequenceView &one = pass.running[i];
    if (!one.decodes() || one.moving)
      continue;
    const int64_t blocks = std::max<int64_t>(0, blocksFor(one.rows + 1) - one.blocks);
    while (blocks > 0 && blocks > pass.free && blocks > pass.coming && pass.running.size() > i + 1)
      pass.preemptYoungest();
    if (blocks == 0 || blocks <= pass.free) {
      pass.add(i, 1, blocks);
      continue;
    }
    if (blocks <= pass.coming) { // it waits for them
      pass.coming -= blocks;
      continue;
    }
    if (i > 0) // it is the youngest itself
      pass.preemptYoungest();
    return;
  }
}

void Scheduler::addPrompts(Pass &pass) const {
  for (size_t i = 0; i < pass.running.size(); ++i) {
    const SequenceView &one = pass.running[i];
    if (one.decodes() || one.moving)
      continue;
    const int64_t left = one.prefill - one.rows;
    int64_t rows = pass.budget == 0 ? 1 : std::min(left, pass.budget - pass.out.tokens);
    if (limits_.prefill == Prefill::Whole && rows < left && pass.out.tokens > 0 && pass.budget > 0)
      return;
    rows = std::min(rows, (one.blocks + std::max<int64_t>(0, pass.free)) * limits_.blockTokens - one.rows);
    if (rows <= 0)
      return;
    pass.add(i, rows, std::max<int64_t>(0, blocksFor(one.rows + rows) - one.blocks));
    pass.out.prefill = true;
  }
}

void Scheduler::compose(absl::Span<const SequenceView> running, int64_t budget, int64_t freeBlocks, Composition &out,
                        int64_t comingBlocks) const {
  out.clear(running.size());
  const auto moves = [](const SequenceView &one) { return one.moving; };
  Pass pass{running, budget, freeBlocks, out, comingBlocks};
  for (;;) {
    if (!decodesWait(pass.running))
      addDecodes(pass);
    addPrompts(pass);
    if (out.tokens > 0 || pass.running.size() <= 1)
      return;
    if (comingBlocks > 0 || std::any_of(running.begin(), running.end(), moves))
      return; // for what comes, also of one that was preempted on its way back
    pass.preemptYoungest();
  }
}

} // namespace headrace::serve
