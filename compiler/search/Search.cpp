// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/Search.h"

#include <algorithm>
#include <utility>

#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

// Of each generator, that a search goes on from: of a shallow model more where prompts have a say, as what is best for
// these and what is best for decoding lie further apart.
constexpr size_t kBeginnings = 6, kShallowBeginnings = 8;
constexpr int64_t kMostSlots = 8;

// Coordinates one step away, in an order that does not change: those of the coordinate that matters most first.
std::vector<Coordinates> stepsFrom(const Coordinates &at, int64_t step, const Space &space) {
  const Space::Free &free = space.free();
  const int64_t layers = space.request().model->layers;
  std::vector<Coordinates> steps;
  if (at.listed > 0) // as it is
    return steps;
  const auto add = [&](auto &&change) {
    Coordinates other = at;
    change(other);
    if (!(other == at))
      steps.push_back(other);
  };
  const auto along = [&](int64_t Coordinates::*of, int64_t by, int64_t least, int64_t most) {
    add([&](Coordinates &c) { c.*of = std::clamp(c.*of + by, least, most); });
    add([&](Coordinates &c) { c.*of = std::clamp(c.*of - by, least, most); });
  };
  if (free.layers)
    along(&Coordinates::layers, step, 0, layers);
  if (free.act)
    for (int64_t by = free.actStep; by < kActParts / 2; by *= 4)
      along(&Coordinates::actParts, by, 0, kActParts);
  if (space.actsMayLeave(at))
    along(&Coordinates::actAway, step, 0, layers);
  if (free.chunk) {
    add([](Coordinates &c) { c.chunk *= 2; });
    add([](Coordinates &c) { c.chunk = std::max(kLargestChunk, c.chunk / 2); });
  }
  if (step > 1)
    return steps;
  if (free.weightEncodings > 1)
    along(&Coordinates::weightEncoding, 1, 0, free.weightEncodings - 1);
  if (free.kvEncodings > 1)
    along(&Coordinates::kvEncoding, 1, 0, free.kvEncodings - 1);
  if (free.attention)
    add([](Coordinates &c) { c.attendsOnCpu = !c.attendsOnCpu; });
  if (free.embedding)
    add([](Coordinates &c) { c.embedding = !c.embedding; });
  if (free.head)
    add([](Coordinates &c) { c.head = !c.head; });
  if (free.slots && at.layers > 0)
    along(&Coordinates::slots, 1, 1, kMostSlots);
  if (at.layers > 0)
    add([](Coordinates &c) { c.wraps = !c.wraps; });
  if (free.kvSlots)
    along(&Coordinates::kvSlots, 1, algorithms::kKvSlots, kMostSlots);
  if (free.writeBack) {
    add([](Coordinates &c) { c.decodeDirty = !c.decodeDirty; });
    add([](Coordinates &c) { c.mixedDirty = !c.mixedDirty; });
    if (space.request().policy.kvPlaces) // what stays over iterations goes home less often
      add([](Coordinates &c) { c.allBack = !c.allBack; });
  }
  if (free.miniBatches) {
    add([&](Coordinates &c) { c.miniBatches = space.nextMiniBatches(c.miniBatches, 1); });
    add([&](Coordinates &c) { c.miniBatches = space.nextMiniBatches(c.miniBatches, -1); });
  }
  return steps;
}

// The first of these that is better; null: none is.
const Scored *firstBetter(Space &space, const Scored &than, const std::vector<Coordinates> &steps, const Holds &holds) {
  for (const Coordinates &next : steps)
    if (holds(next))
      if (const Scored *const scored = space.scoreIfBetter(next, than);
          scored != nullptr && space.isBetter(*scored, than))
        return scored;
  return nullptr;
}

// Two steps at once: what gives up memory along one coordinate takes it along another.
const Scored *firstBetterPair(Space &space, const Scored &than, const Holds &holds) {
  for (const Coordinates &next : stepsFrom(than.at, 1, space))
    if (const Scored *const scored = firstBetter(space, than, stepsFrom(next, 1, space), holds))
      return scored;
  return nullptr;
}

} // namespace

const Scored *climb(Space &space, const Scored *from, const Holds &holds) {
  int64_t step = 1;
  while (step * 4 < space.request().model->layers)
    step *= 2;
  for (; step > 0; step /= 2)
    while (const Scored *const better = firstBetter(space, *from, stepsFrom(from->at, step, space), holds))
      from = better;
  return from;
}

namespace {

const Scored *bestOf(Space &space, const Generator &generator, const std::vector<Coordinates> &seeds) {
  const Scored *best = nullptr;
  const bool more = space.free().chunk && space.request().model->layers <= kShallow;
  const size_t beginnings = more ? kShallowBeginnings : kBeginnings;
  std::vector<const Scored *> begin; // the best of the seeds, of equals the first
  const auto isBetter = [&](const Scored *a, const Scored *b) { return space.isBetter(*a, *b); };
  for (const Coordinates &seed : seeds) {
    const Scored *const scored =
        begin.size() < beginnings ? space.score(seed) : space.scoreIfBetter(seed, *begin.back());
    if (scored == nullptr)
      continue;
    begin.insert(std::upper_bound(begin.begin(), begin.end(), scored, isBetter), scored);
    if (begin.size() > beginnings)
      begin.pop_back();
  }
  for (const Scored *const from : begin)
    if (const Scored *const found = climb(space, from, generator.holds);
        best == nullptr || space.isBetter(*found, *best))
      best = found;
  // Where memory is preferred each choice is played several times, and of a deep model a step is little.
  const bool pairs = !space.prefersMemory() || space.request().model->layers <= kShallow;
  while (best != nullptr && pairs) {
    const Scored *const better = firstBetterPair(space, *best, generator.holds);
    if (better == nullptr)
      break;
    best = climb(space, better, generator.holds);
  }
  return best == nullptr || best->overBytes > 0 ? nullptr : best;
}

} // namespace

std::optional<Searched> search(Space &space, const std::vector<const Generator *> &generators) {
  Searched searched;
  const Scored *best = nullptr;
  std::vector<const Scored *> found;
  for (const Generator *generator : generators) {
    const std::vector<Coordinates> seeds = space.beginnings(generator->name, generator->seeds);
    if (seeds.empty())
      continue; // the space has nothing of it
    const Scored *const of = bestOf(space, *generator, seeds);
    searched.of.push_back({generator->name, of == nullptr ? std::nullopt : std::optional(*of)});
    if (of != nullptr)
      found.push_back(of);
    if (of != nullptr && (best == nullptr || space.isBetter(*of, *best)))
      best = of;
  }
  searched.evaluated = space.evaluated();
  if (best == nullptr)
    return std::nullopt;
  best = space.plainest(*best);
  searched.best = *best;
  const Scored *runnerUp = nullptr;
  for (const Scored *of : found)
    if (of->late <= best->late && !of->candidate.samePlacement(best->candidate) &&
        (runnerUp == nullptr || space.isBetter(*of, *runnerUp)))
      runnerUp = of;
  if (runnerUp != nullptr)
    searched.runnerUp = *runnerUp;
  return searched;
}

} // namespace headrace::compiler
