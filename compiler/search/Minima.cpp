// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/Minima.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/search/FewestUnits.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

// All units of layers, and the head's where it is away, through a ring that holds the largest of them.
Candidate smallestRing(Space &space, const Coordinates &at, bool embedding, bool head) {
  const model::WeightLayout &layout = space.layout(at);
  const bool tied = space.request().model->tiedEmbeddings;
  std::vector<int32_t> units;
  uint64_t ring = 0;
  for (size_t unit = 0; unit < layout.units.size(); ++unit) {
    const auto index = static_cast<int32_t>(unit);
    const bool isTable = index == layout.embeddingUnit();
    if (layout.units[unit].layer < 0 && !(isTable ? embedding : head))
      continue;
    units.push_back(index);
    if (!isTable || tied)
      ring = std::max(ring, model::alignUp(layout.units[unit].bytes));
  }
  return placementOfUnits(units, ring);
}

// What takes the least is at one end or the other of each coordinate. `everyCount`: and all numbers of layers between,
// where it is the host that decides how many.
std::vector<Coordinates> corners(Space &space, bool everyCount) {
  const Space::Free &free = space.free();
  const int64_t layers = space.request().model->layers;
  std::vector<Coordinates> corners = space.origins();
  const auto either = [&](bool may, auto &&change) {
    const size_t before = corners.size();
    for (size_t i = 0; may && i < before; ++i) {
      Coordinates other = corners[i];
      change(other);
      corners.push_back(other);
    }
  };
  either(free.layers, [&](Coordinates &c) { c.layers = layers; });
  either(free.embedding, [](Coordinates &c) { c.embedding = true; });
  either(free.head, [](Coordinates &c) { c.head = true; });
  either(free.slots, [](Coordinates &c) { c.slots = 1; });
  either(true, [](Coordinates &c) { c.wraps = false; });
  either(free.act, [](Coordinates &c) { c.actParts = kActParts; });
  either(free.act && free.actAway, [&](Coordinates &c) { c.actAway = c.actParts > 0 ? layers : 0; });
  if (free.layers && free.slots && space.origin().miniBatches == 1)
    for (size_t i = 0, n = corners.size(); i < n; ++i)
      if (corners[i].layers == layers && corners[i].slots == 1 && corners[i].miniBatches == 1 &&
          space.exists(corners[i])) {
        Coordinates ring = corners[i];
        Candidate units = smallestRing(space, ring, ring.embedding, ring.head);
        units.residency.wrap.around = ring.wraps;
        ring.listed = space.list(std::move(units));
        corners.push_back(ring);
      }
  for (size_t i = 0, n = everyCount && free.layers ? corners.size() : 0; i < n; ++i)
    if (const Coordinates corner = corners[i];
        corner.layers == layers && !corner.wraps && corner.actParts == 0 && (corner.slots == 1 || !free.slots))
      for (int64_t count = 1; count < layers; ++count) {
        corners.push_back(corner);
        corners.back().layers = count;
      }
  return corners;
}

// Single units away, all KV as stated or on the device; of an encoding that is allowed, with or without the table and
// the head.
struct UnitsAway {
  Coordinates at;
  Candidate candidate;
};
struct WayOfUnits {
  Coordinates origin;
  bool embedding = false, head = false;
};

// None: single units may not be away.
std::vector<WayOfUnits> waysOfUnits(Space &space) {
  const Space::Free &free = space.free();
  std::vector<WayOfUnits> ways;
  for (const Coordinates &origin : space.origins()) {
    if (!free.layers || !free.slots || origin.miniBatches > 1 || !space.exists(origin))
      continue;
    for (const bool embedding : {origin.embedding, free.embedding})
      for (const bool head : {false, free.head})
        if (std::none_of(ways.begin(), ways.end(), [&](const WayOfUnits &way) {
              return way.origin == origin && way.embedding == embedding && way.head == head;
            }))
          ways.push_back({origin, embedding, head});
  }
  return ways;
}

// The fewest bytes of units that free so many of the device.
std::optional<UnitsAway> unitsAway(Space &space, const WayOfUnits &way, uint64_t freed) {
  const model::WeightLayout &layout = space.layout(way.origin);
  std::optional<Candidate> units = fewestUnits(layout, way.head, freed);
  if (!units)
    return std::nullopt;
  if (way.embedding) {
    std::vector<int32_t> away = units->residency.weightsAway();
    away.insert(away.begin(), layout.embeddingUnit());
    units->residency.setWeightsAway(away);
  }
  UnitsAway found{way.origin, {}};
  found.at.listed = space.list(*std::move(units));
  const Target &target = space.target(found.at);
  found.candidate = space.candidate(found.at, target.kvResident.value_or(target.kvBlocks));
  return found;
}

// The largest number in [0, beyond) that holds, where smaller ones do; none: not even 0.
template <class Holds> std::optional<int64_t> mostThat(int64_t beyond, Holds &&holds) {
  int64_t fit = -1;
  while (beyond - fit > 1) {
    const int64_t middle = fit + (beyond - fit) / 2;
    (holds(middle) ? fit : beyond) = middle;
  }
  return fit < 0 ? std::nullopt : std::optional(fit);
}

// With that many blocks of each cache on the device or, if the host has no room for the others, with more.
Candidate withHostsRoom(Space &space, const Coordinates &at, int64_t resident) {
  const int64_t all = space.target(at).kvBlocks;
  const auto beyond = [&](int64_t blocks) { return space.beyondHost(at, space.candidate(at, blocks)); };
  if (space.target(at).kvResident || beyond(resident) == 0)
    return space.candidate(at, resident);
  const std::optional<int64_t> tooFew = mostThat(all, [&](int64_t blocks) { return beyond(blocks) > 0; });
  return space.candidate(at, std::max(resident, tooFew.value_or(-1) + 1));
}

} // namespace

std::optional<LeastChoice> leastDevice(Space &space, std::optional<bool> onCpu) {
  const model::Hardware &hardware = space.request().hardware;
  const auto layers = static_cast<uint64_t>(space.request().model->layers);
  const bool hostDecides =
      space.request().goal.kvHostMemory ||
      hardware.hostLimit() < space.layout(space.origin()).totalBytes() + space.target(space.origin()).kvBytes * layers;
  std::optional<LeastChoice> found;
  const auto consider = [&](const Coordinates &at, const Candidate &candidate) {
    if ((onCpu && at.attendsOnCpu != *onCpu) || space.beyondHost(at, candidate) > 0 ||
        (found && space.held(at, candidate).bytes >= found->deviceBytes))
      return;
    const uint64_t bytes = space.packed(at, candidate);
    if (bytes != UINT64_MAX && (!found || bytes < found->deviceBytes))
      found = LeastChoice{at, candidate, bytes, space.hostBytes(at, candidate)};
  };
  for (const Coordinates &at : corners(space, hostDecides)) {
    if (!space.exists(at))
      continue;
    const Target &target = space.target(at);
    if (space.free().kv && target.kvBlocks > 1)
      consider(at, withHostsRoom(space, at, 0));
    consider(at, space.candidate(at, target.kvResident.value_or(target.kvBlocks)));
  }
  if (hostDecides)
    for (const WayOfUnits &way : waysOfUnits(space)) { // the most that the host has room for
      uint64_t fits = 0, beyond = space.layout(way.origin).totalBytes();
      std::optional<UnitsAway> most;
      while (beyond - fits > model::kAlign) {
        const uint64_t middle = fits + (beyond - fits) / 2;
        std::optional<UnitsAway> units = unitsAway(space, way, middle);
        const bool held = units && space.beyondHost(units->at, units->candidate) == 0;
        (held ? fits : beyond) = middle;
        if (held)
          most = std::move(units);
      }
      if (most)
        consider(most->at, most->candidate);
    }
  if (!found || !space.free().writeBack || !found->candidate.residency.firstKvBlockAway())
    return found;
  // How tails are written back takes no memory, but has a say in where the circle is cut, and so in what shares memory.
  const LeastChoice best = *found;
  for (const bool wraps : {false, true})
    for (int ways = 0; ways < 4; ++ways) {
      Coordinates at = best.at;
      at.wraps = wraps;
      at.decodeDirty = ways % 2 == 1;
      at.mixedDirty = ways / 2 == 1;
      consider(at, space.candidate(at, *best.candidate.residency.firstKvBlockAway()));
    }
  return found;
}

namespace {

// Of each way to have the table and the head the fewest bytes of the host with which the device holds the rest.
std::optional<LeastChoice> leastHostOfUnits(Space &space) {
  std::optional<LeastChoice> least;
  for (const WayOfUnits &way : waysOfUnits(space)) {
    const auto holds = [&](uint64_t freed) -> std::optional<LeastChoice> {
      const std::optional<UnitsAway> units = unitsAway(space, way, freed);
      if (!units || !space.deviceHolds(units->at, units->candidate, /*exactly=*/true))
        return std::nullopt;
      return LeastChoice{units->at, units->candidate, space.packed(units->at, units->candidate),
                         space.hostBytes(units->at, units->candidate)};
    };
    const Target &target = space.target(way.origin);
    const uint64_t bytes =
        space.need(way.origin, space.candidate(way.origin, target.kvResident.value_or(target.kvBlocks))).bytes;
    uint64_t tooFew = 0, fits = bytes - std::min(bytes, target.deviceMemory) + 1;
    std::optional<LeastChoice> found = holds(fits);
    while (found && fits - tooFew > model::kAlign) {
      const uint64_t middle = tooFew + (fits - tooFew) / 2;
      std::optional<LeastChoice> fewer = holds(middle);
      (fewer ? fits : tooFew) = middle;
      if (fewer)
        found = std::move(fewer);
    }
    if (found && (!least || found->hostBytes < least->hostBytes))
      least = std::move(found);
  }
  return least;
}

} // namespace

std::optional<LeastChoice> leastHost(Space &space) {
  std::optional<LeastChoice> least = leastHostOfUnits(space);
  for (const Coordinates &at : corners(space, /*everyCount=*/true)) {
    if (!space.exists(at))
      continue;
    const Target &target = space.target(at);
    const auto consider = [&](const Candidate &candidate) {
      if (const uint64_t bytes = space.hostBytes(at, candidate); !least || bytes < least->hostBytes)
        least = LeastChoice{at, candidate, space.packed(at, candidate), bytes};
    };
    const Candidate whole = space.candidate(at, target.kvResident.value_or(target.kvBlocks));
    if (least && space.hostBytes(at, whole) >= least->hostBytes)
      continue;
    if (space.deviceHolds(at, whole, /*exactly=*/true)) {
      consider(whole);
      continue;
    }
    if (!space.free().kv || target.kvBlocks < 2)
      continue;
    // At best, as if transients took nothing; then exactly.
    const std::optional<int64_t> most = mostThat(target.kvBlocks, [&](int64_t blocks) {
      return space.held(at, space.candidate(at, blocks)).bytes <= target.deviceMemory;
    });
    if (!most || (least && space.hostBytes(at, space.candidate(at, *most)) >= least->hostBytes))
      continue;
    if (const std::optional<int64_t> fit = mostThat(*most + 1, [&](int64_t blocks) {
          return space.deviceHolds(at, space.candidate(at, blocks), /*exactly=*/true);
        }))
      consider(space.candidate(at, *fit));
  }
  return least;
}

} // namespace headrace::compiler
