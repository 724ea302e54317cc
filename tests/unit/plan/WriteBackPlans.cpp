// SPDX-License-Identifier: Apache-2.0
#include <numeric>
#include <random>

#include "runtime/model/ModelSpec.h"
#include "tests/unit/plan/MakePlan.h"

namespace headrace::plan::test {
namespace {

using model::StartRule;

// Two sequences of 32 tokens: 1 + 2 x 2 = 5 blocks of 2 x 16 rows x 16 tokens x 4 bytes = 2048 bytes a layer.
LimitOptions limitsOf(KeepHome keepHome) {
  LimitOptions limits;
  limits.context = 32;
  limits.keepHome = keepHome;
  return limits;
}
LimitOptions mixed(KeepHome keepHome) {
  LimitOptions limits = limitsOf(keepHome);
  limits.iterationClass = IterationClass::Mixed;
  limits.tokens = 16;
  limits.buckets = {8, 16};
  return limits;
}
PlacementOptions ring(KeepHome keepHome, int64_t blocksOnDevice, int slots) {
  PlacementOptions p;
  p.name = "ring";
  p.limits = {limitsOf(keepHome)};
  p.blocksOnDevice = blocksOnDevice;
  p.allBlocksAway = blocksOnDevice == 0;
  p.ringSlots = slots;
  return p;
}
// Around the ring: after `period` iterations each tail is where it was.
PlacementOptions cycle(KeepHome keepHome, int64_t blocksOnDevice, int slots, int64_t layers, int carried,
                       int dirty = 0) {
  PlacementOptions p = ring(keepHome, blocksOnDevice, slots);
  p.name = "cycle";
  p.period = static_cast<uint32_t>(slots / std::gcd(static_cast<int64_t>(slots), layers));
  p.carriedTails = carried;
  p.dirtyTails = dirty;
  return p;
}
PlanOptions interleaved(model::ModelSpec model, std::vector<PlacementOptions> placements) {
  PlanOptions options{std::move(model), std::move(placements)};
  options.switches = options.placements.size() > 1;
  options.interleaved = true;
  return options;
}

void addEvicts(std::vector<NamedOptions> &out) {
  out.push_back({"evict all, one slot", interleaved(tinyLlama(3), {ring(KeepHome::EvictAll, 1, 1)})});
  out.push_back({"evict dirty, two slots", interleaved(tinyLlama(4), {ring(KeepHome::EvictDirty, 2, 2)})});
  out.push_back({"evict all that there is, late", interleaved(tinyOpt(3), {ring(KeepHome::EvictFixed, 3, 2)})});
  out.back().options.placements[0].limits[0].evictAfter = 4;
  PlacementOptions parts = ring(KeepHome::EvictDirty, 1, 2);
  parts.tailsInParts = true;
  parts.carriedTails = 1;
  out.push_back({"evict dirty in two parts, a carried tail", interleaved(tinyQwen3(3), {parts})});
  PlacementOptions byClass = ring(KeepHome::EvictDirty, 2, 2);
  byClass.limits.push_back(mixed(KeepHome::EvictAll));
  out.push_back({"evict dirty in decode, all in mixed", interleaved(tinyLlama(3), {byClass})});
  PlacementOptions some = ring(KeepHome::EvictAll, 2, 2);
  some.limits[0].mirrorsEven = true;
  some.limits[0].evictAfter = 2;
  some.layers = {1};
  some.limits[0].cutUnits = 1;
  some.limits[0].cutBytes = 512;
  out.push_back({"every second layer evicts, beside weights", interleaved(tinyLlama(4), {some})});
  PlacementOptions more = ring(KeepHome::EvictDirty, 3, 2), less = ring(KeepHome::EvictAll, 1, 1);
  more.name = "more";
  less.name = "less";
  LimitOptions without = limitsOf(KeepHome::EvictAll);
  without.withoutTail = true;
  more.limits.push_back(without);
  out.push_back({"evicts beside mirrored blocks, two splits", interleaved(tinyLlama(3), {more, less})});
}

void addAway(std::vector<NamedOptions> &out) {
  out.push_back({"no block on the device, mirrored", interleaved(tinyLlama(3), {ring(KeepHome::Mirror, 0, 2)})});
  out.push_back({"no block on the device, evict dirty", interleaved(tinyLlama(3), {ring(KeepHome::EvictDirty, 0, 2)})});
  PlacementOptions away = ring(KeepHome::EvictAll, 0, 2), some = ring(KeepHome::EvictDirty, 2, 2),
                   all = ring(KeepHome::Mirror, 5, 1);
  away.name = "away";
  some.name = "some";
  all.name = "all";
  all.layers = {1};
  out.push_back({"no block, some and all on the device", interleaved(tinyLlama(3), {away, some, all})});
  PlacementOptions cycles = cycle(KeepHome::EvictDirty, 0, 2, 3, 1);
  cycles.layers = {0, 2};
  cycles.limits[0].cutUnits = 2;
  out.push_back({"no block on the device, a cycle beside weights", interleaved(tinyLlama(3), {cycles})});
}

void addDirty(std::vector<NamedOptions> &out) {
  // Four layers in two slots: where the last tail was, it is again.
  PlacementOptions last = ring(KeepHome::EvictAll, 2, 2);
  last.dirtyTails = 1;
  out.push_back({"the last tail is written back later", interleaved(tinyLlama(4), {last})});
  PlacementOptions stays = ring(KeepHome::EvictAll, 1, 3);
  stays.carriedTails = stays.dirtyTails = 3;
  stays.limits.push_back(limitsOf(KeepHome::EvictAll));
  stays.limits.back().withoutTail = true;
  out.push_back({"all tails stay, and none is written back", interleaved(tinyLlama(3), {stays})});
  stays.dirtyTails = 2;
  stays.limits.back() = mixed(KeepHome::Mirror);
  out.push_back({"all tails stay, two ahead of their homes", interleaved(tinyLlama(3), {stays})});
  PlacementOptions goes = cycle(KeepHome::EvictAll, 2, 2, 3, 1, 1);
  stays.limits.pop_back();
  stays.name = "stays";
  out.push_back({"tails ahead in two placements", interleaved(tinyLlama(3), {stays, goes})});
  PlacementOptions byClass = cycle(KeepHome::EvictDirty, 2, 2, 3, 1, 1);
  byClass.limits.push_back(mixed(KeepHome::EvictAll));
  out.push_back({"two phases, two classes, a tail ahead", interleaved(tinyLlama(3), {byClass})});
}

void addCycles(std::vector<NamedOptions> &out) {
  out.push_back({"two phases, mirrored", interleaved(tinyLlama(3), {cycle(KeepHome::Mirror, 2, 2, 3, 1)})});
  PlacementOptions three = cycle(KeepHome::EvictDirty, 1, 3, 4, 2);
  three.limits[0].evictAfter = 1;
  out.push_back({"three phases, evict dirty", interleaved(tinyLlama(4), {three})});
  out.push_back(
      {"four phases, two tails ahead", interleaved(tinyLlama(3), {cycle(KeepHome::EvictAll, 2, 4, 3, 1, 2)})});
  out.push_back({"five phases, mirrored", interleaved(tinyLlama(2), {cycle(KeepHome::Mirror, 3, 5, 2, 2)})});
  out.push_back({"eight phases, evict dirty and a tail ahead",
                 interleaved(tinyLlama(3), {cycle(KeepHome::EvictDirty, 2, 8, 3, 2, 1)})});
  PlacementOptions decode = cycle(KeepHome::EvictDirty, 2, 2, 3, 1);
  decode.limits.push_back(mixed(KeepHome::EvictAll));
  decode.limits.back().noCycle = true;
  out.push_back({"two phases of decode, one of mixed", interleaved(tinyLlama(3), {decode})});
  PlacementOptions few = cycle(KeepHome::EvictDirty, 1, 2, 3, 1, 1), many = ring(KeepHome::EvictFixed, 3, 2);
  few.name = "few";
  few.limits.push_back(limitsOf(KeepHome::EvictDirty));
  few.limits.back().withoutTail = true;
  many.name = "many";
  out.push_back({"a cycle, without the tail, and another split", interleaved(tinyLlama(3), {few, many})});
}

// As many slots as there are, less than layers. Of 4 layers in 3 slots two tails come in an iteration, and each is as
// the other; 6 in 4: two, after four iterations; 6 in 5: one, four; 5 in 3: three, nine. With one of the slots empty: 4
// in 3: three, after three iterations; 6 in 4: three, two; 6 in 5: two, ten.
PlacementOptions places(KeepHome keepHome, int64_t blocksOnDevice, int slots, bool spare = false) {
  PlacementOptions p = ring(keepHome, blocksOnDevice, slots);
  p.name = "places";
  p.cycles = true;
  p.spare = spare;
  return p;
}
void addPlaces(std::vector<NamedOptions> &out) {
  PlacementOptions late = places(KeepHome::EvictAll, 1, 3);
  late.limits[0].evictAfter = 3;
  late.limits.push_back(mixed(KeepHome::EvictAll));
  out.push_back({"four tails in three slots, evict all", interleaved(tinyLlama(4), {late})});
  out.push_back({"six tails in four slots, mirrored", interleaved(tinyLlama(6), {places(KeepHome::Mirror, 3, 4)})});
  out.push_back({"six tails in five slots, evict all", interleaved(tinyLlama(6), {places(KeepHome::EvictAll, 2, 5)})});
  out.push_back({"six tails in four slots, one of them empty, evict all",
                 interleaved(tinyLlama(6), {places(KeepHome::EvictAll, 1, 4, /*spare=*/true)})});
  out.push_back({"four tails in three slots, one of them empty, evict dirty",
                 interleaved(tinyLlama(4), {places(KeepHome::EvictDirty, 2, 3, /*spare=*/true)})});
  out.push_back({"six tails in five slots, one of them empty, mirrored",
                 interleaved(tinyLlama(6), {places(KeepHome::Mirror, 1, 5, /*spare=*/true)})});
  PlacementOptions away = places(KeepHome::EvictDirty, 0, 3);
  away.layers = {1};
  out.push_back({"five tails in three slots, evict dirty", interleaved(tinyLlama(5), {away})});
  PlacementOptions some = places(KeepHome::EvictFixed, 1, 2), other = ring(KeepHome::EvictDirty, 2, 2);
  some.limits[0].mirrorsEven = true;
  some.limits.push_back(limitsOf(KeepHome::Mirror));
  some.limits.back().withoutTail = true;
  other.name = "ring";
  out.push_back({"three tails in two slots, two splits", interleaved(tinyLlama(3), {some, other})});
}

} // namespace

std::vector<NamedOptions> writeBackPlans() {
  std::vector<NamedOptions> out;
  addEvicts(out);
  addAway(out);
  addDirty(out);
  addCycles(out);
  addPlaces(out);
  return out;
}

NamedOptions randomSplitPlan(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  const auto coin = [&] { return below(2) == 0; };
  const int64_t layers = 2 + below(4);
  const auto placement = [&](int64_t resident) {
    const auto slots = static_cast<int>(1 + below(6));
    const auto keepHome = [&] { return static_cast<KeepHome>(below(4)); };
    PlacementOptions p = coin() ? cycle(keepHome(), resident, slots, layers, 0) : ring(keepHome(), resident, slots);
    const auto most = static_cast<int>(std::min<int64_t>(layers, slots));
    if (layers % slots == 0 && below(4) == 0) // each phase like the other
      p.period = 2;
    if (p.period > 1 || layers % slots == 0) { // no tail is both carried and ahead
      p.carriedTails = static_cast<int>(below(most + 1));
      p.dirtyTails = static_cast<int>(below(most - p.carriedTails + 1));
    } else if (slots >= layers) { // those that are ahead stay
      p.carriedTails = static_cast<int>(coin() ? layers : below(layers + 1));
      p.dirtyTails = p.carriedTails == layers ? static_cast<int>(below(layers + 1)) : 0;
    } else {
      p.carriedTails = static_cast<int>(below(slots + 1));
    }
    // Not of five layers, whose cycles are long.
    if (p.cycles = slots >= 2 && slots < layers && layers < 5 && coin(); p.cycles)
      p.carriedTails = p.dirtyTails = 0;
    p.spare = p.cycles && slots >= 3 && coin();
    p.tailsInParts = below(4) == 0;
    p.resizable = below(4) != 0;
    if (coin()) {
      for (int64_t layer = 0; layer < layers; ++layer)
        if (coin())
          p.layers.push_back(layer);
      if (!p.layers.empty() && below(3) == 0)
        p.rule = StartRule::Paper;
      else if (!p.layers.empty())
        p.limits[0].cutUnits = static_cast<int>(below(3));
    }
    if (below(3) == 0) {
      p.limits.push_back(mixed(p.cycles ? p.limits[0].keepHome : keepHome()));
      p.limits[1].cutUnits = p.limits[0].cutUnits;
      p.limits[1].noCycle = p.period > 1 && p.dirtyTails == 0 && !p.cycles && coin();
    }
    for (LimitOptions &limits : p.limits) {
      limits.mirrorsEven = below(4) == 0 && (!p.cycles || p.limits.size() == 1);
      limits.evictAfter = static_cast<int>(below(6));
    }
    if (resident > 0 && below(4) == 0) {
      p.limits.push_back(p.limits[0]);
      p.limits.back().withoutTail = true;
    }
    return p;
  };
  std::vector<PlacementOptions> placements = {placement(below(5))};
  if (below(3) == 0)
    placements.push_back(placement(below(5)));
  for (size_t i = 0; i < placements.size(); ++i)
    placements[i].name += " " + std::to_string(i);
  PlanOptions options = interleaved(coin() ? tinyLlama(layers) : tinyQwen3(layers), std::move(placements));
  options.lastLayerFirst = coin();
  return {"random " + std::to_string(seed), std::move(options)};
}

} // namespace headrace::plan::test
