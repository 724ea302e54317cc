// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/plan/PlacementBuilder.h"

#include <algorithm>
#include <numeric>

namespace headrace::plan::test {

// Iteration by iteration, until one begins as another has begun.
void PlacementBuilder::chooseRounds() {
  if (!options_.cycles)
    return;
  const int64_t layers = cacheCount();
  std::vector<int64_t> held(static_cast<size_t>(options_.ringSlots));
  std::iota(held.begin(), held.end(), 0);
  if (options_.spare)
    held.back() = -1;
  std::vector<bool> used(held.size());
  for (;;) {
    const auto first = std::find_if(rounds_.begin(), rounds_.end(),
                                    [&](const Round &round) { return round.layers == held && round.used == used; });
    if (first != rounds_.end()) {
      rounds_.erase(rounds_.begin(), first);
      return;
    }
    Round round{held, used, {}, {}};
    for (int64_t layer = 0; layer < layers; ++layer) {
      const auto slot = static_cast<size_t>(std::find(held.begin(), held.end(), layer) - held.begin());
      round.slotOf.push_back(slot);
      used[slot] = true;
      const int64_t in = (layer + 2) % layers;
      if (std::find(held.begin(), held.end(), in) != held.end())
        continue;
      round.moves.push_back({layer, in});
      const auto empty = options_.spare ? std::find(held.begin(), held.end(), -1) - held.begin() : slot;
      held[slot] = -1;
      used[slot] = false;
      held[static_cast<size_t>(empty)] = in;
    }
    rounds_.push_back(std::move(round));
  }
}

// A tail is ahead of its home while it stays where rows have been written to it that go back as a whole.
void PlacementBuilder::addPlaces(State &entry, State &exit) {
  const uint64_t block = plan_.kvBlockBytes();
  const uint64_t begin = static_cast<uint64_t>(resident()) * block, end = static_cast<uint64_t>(inUse()) * block;
  const int steps = static_cast<int>(computes_.size());
  const bool dirtyOnly = limits_->keepHome == KeepHome::EvictDirty;
  const auto contents = [&](const Round &round, State &state) {
    for (size_t slot = 0; slot < round.layers.size(); ++slot)
      if (round.layers[slot] >= 0)
        state.contents.push_back({bufferOf(round.layers[slot]), begin, end - begin,
                                  placement().slots[slots_ + slot].address,
                                  round.used[slot] && !dirtyOnly && evicts(round.layers[slot])});
    std::sort(state.contents.begin(), state.contents.end(),
              [](const Content &a, const Content &b) { return a.address < b.address; });
  };
  contents(rounds_[phase_], entry);
  contents(rounds_[otherPhase(true)], exit);
  const auto addEvict = [&](int64_t layer) {
    const int append = firstReader(bufferOf(layer));
    addEvicts(layer, tailAddress(phase_, layer), append, std::min(append + limits_->evictAfter, steps - 1), dirtyOnly);
  };
  for (int64_t layer = 0; dirtyOnly && layer < cacheCount(); ++layer)
    if (evicts(layer))
      addEvict(layer);
  for (const Round::Move &move : rounds_[phase_].moves) {
    if (!dirtyOnly && evicts(move.out))
      addEvict(move.out);
    const uint32_t in = bufferOf(move.in);
    PlannedCopy copy = part(in, begin, end - begin, kNever);
    const bool now = move.in > move.out; // else for the next iteration
    copy.address = tailAddress(now ? phase_ : otherPhase(true), move.in) + begin;
    copy.neededBy = firstReader(in) + (now ? 0 : steps);
    copy.after = freeFrom(copy, now ? firstReader(in) : steps);
    copies_.push_back(copy);
  }
  sortCopiesByUse();
}

} // namespace headrace::plan::test
