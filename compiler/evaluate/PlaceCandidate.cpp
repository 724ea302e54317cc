// SPDX-License-Identifier: Apache-2.0
#include "compiler/evaluate/PlaceCandidate.h"

#include "absl/strings/str_cat.h"
#include "compiler/evaluate/PlanWrapAround.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

using algorithms::MovableKind;

absl::StatusOr<PlacedIteration> placeIteration(const Iterations &iterations, const PlacedCandidate &placedIn,
                                               const IterationOf &of, algorithms::Residency &residency) {
  const Steps &steps = iterations.steps(of.iterationClass);
  const Homes homes = homesOf(placedIn, iterations.target(), of);
  ASSIGN_OR_RETURN(moved, movablesOf(steps, homes));
  RETURN_IF_ERROR(decideCut(
      of.iterationClass, !moved.moved.empty(),
      [&] { return planWrapAround(steps, homes, iterations.buckets(of.iterationClass), iterations.prices()); },
      residency));
  PlacedIteration placed;
  placed.of = of;
  const bool decode = of.iterationClass == plan::IterationClass::Decode;
  placed.plan = algorithms::planIteration(moved, residency,
                                          {.cut = decode ? residency.wrap.decode : residency.wrap.mixed,
                                           .back = writeBackOf(homes),
                                           .bringsTails = homes.bringsTails,
                                           .phase = of.phase,
                                           .period = of.period});
  if (!placed.plan.error.empty())
    return absl::InvalidArgumentError(absl::StrCat("the iteration ", placed.plan.error));
  placed.moved = std::move(moved);
  placed.program = programOf(steps, homes, placed.moved, placed.plan);
  placed.waits = algorithms::waitsOf(placed.program);
  std::vector<algorithms::LaneStep> laneSteps;
  for (uint32_t op = 0; op < placed.program.ops.size(); ++op)
    if (placed.program.ops[op].isStep())
      laneSteps.push_back({op, placed.program.ops[op].lane});
  placed.order = algorithms::orderLanes(laneSteps, placed.waits);
  placed.direct = directSteps(steps, homes);
  return placed;
}

void layOut(const Iterations &iterations, PlacedCandidate &placed) {
  const Steps &steps = iterations.steps(placed.iterations.front().of.iterationClass);
  const Target &target = iterations.target();
  const algorithms::Residency &residency = placed.candidate->residency;
  const CacheBlocks blocks = cacheBlocksOf(homesOf(placed, target, placed.iterations.front().of));
  std::vector<uint64_t> belowBytes, slotBytes, homeBytes;
  const auto below = [&](const auto &bytesHere) {
    for (size_t i = 0; i < steps.buffers.size(); ++i)
      if (const uint64_t bytes = bytesHere(steps.buffers[i]); bytes > 0)
        placed.below.push_back({static_cast<BufferIndex>(i), bytes});
  };
  // What rows are appended to comes before KV: in each placement it is where it is in the others, which may have fewer
  // KV blocks on the device.
  below([](const StepBuffer &of) { return of.kind == StepBuffer::Kind::Io ? of.bytes : 0; });
  below([&](const StepBuffer &of) {
    const bool appended = of.isMovable() && of.traits().written == algorithms::Written::Appended;
    return appended && !of.is(MovableKind::Kv) && !residency.isAway(of.of) ? of.bytes : 0;
  });
  const size_t firstCache = placed.below.size();
  const bool interleaved = placed.host->kv.interleaved;
  below([&](const StepBuffer &of) {
    if (!of.is(MovableKind::Kv))
      return uint64_t{0};
    const bool part = blocks.resident < blocks.here || blocks.here < target.kvBlocks || interleaved;
    return part ? static_cast<uint64_t>(blocks.resident) * target.kvBlockBytes : of.bytes;
  });
  const size_t caches = placed.below.size() - firstCache;
  for (size_t i = 0; i < placed.below.size() && !(interleaved && i == firstCache); ++i)
    belowBytes.push_back(model::alignUp(placed.below[i].bytes));
  if (interleaved && caches > 0) // in one range, block by block
    belowBytes.push_back(model::alignUp(caches * placed.below[firstCache].bytes));
  for (size_t i = 0; i < steps.buffers.size(); ++i)
    if (const StepBuffer &of = steps.buffers[i]; of.unit >= 0 && !residency.isAway(of.of)) {
      homeBytes.push_back(model::alignUp(of.bytes));
      placed.homes.units.emplace_back(static_cast<size_t>(of.unit), homeBytes.back());
    }
  std::vector<algorithms::ArenaIteration> arenas;
  for (const PlacedIteration &iteration : placed.iterations) {
    arenas.push_back(algorithms::livesOf(iteration.program, iteration.order.clocks));
    // One that brings no tails lacks their slots, the last.
    if (const std::vector<uint64_t> &slots = iteration.moved.slots.slotBytes; slots.size() > placed.slotBytes.size())
      placed.slotBytes = slots;
  }
  for (const uint64_t bytes : placed.slotBytes)
    slotBytes.push_back(model::alignUp(bytes));
  placed.arena = algorithms::layOutArena(belowBytes, arenas, slotBytes, homeBytes);
  for (size_t i = 0; i < placed.below.size(); ++i)
    placed.below[i].address = interleaved && i > firstCache
                                  ? placed.below[firstCache].address + (i - firstCache) * target.kvBlockBytes
                                  : placed.arena.below[i];
  if (caches > 0) {
    placed.cachesBegin = placed.below[firstCache].address;
    placed.cachesEnd = placed.arena.below.back() + belowBytes.back();
  }
  placed.homes.arenaBytes = placed.arena.top;
  placed.homeAddress = placed.arena.persistent;
}

} // namespace

Homes homesOf(const PlacedCandidate &placed, const Target &target, const IterationOf &of) {
  return {placed.candidate, &target, of.iterationClass, of.kvBlocks == 0, placed.host->kv.mirror};
}

namespace {

template <class Which>
absl::StatusOr<PlacedCandidate> move(const Iterations &iterations, const Candidate &candidate, const HostLayout &host,
                                     Which &&which) {
  if (const std::string contradiction = algorithms::contradictionIn(candidate.residency); !contradiction.empty())
    return absl::InvalidArgumentError(absl::StrCat("placement '", candidate.name, "': ", contradiction));
  PlacedCandidate placed;
  placed.candidate = &candidate;
  placed.host = &host;
  // Where the circle is cut is decided apart for iterations that bring tails and for those that bring none.
  algorithms::Residency residency = candidate.residency, withoutTails = candidate.residency;
  for (const IterationOf &of : iterations.of(candidate)) {
    if (!which(of))
      continue;
    absl::StatusOr<PlacedIteration> next =
        placeIteration(iterations, placed, of, of.kvBlocks == 0 ? residency : withoutTails);
    if (!next.ok())
      return absl::Status(next.status().code(),
                          absl::StrCat("placement '", candidate.name, "': ", next.status().message()));
    placed.iterations.push_back(*std::move(next));
  }
  return placed;
}

} // namespace

absl::StatusOr<PlacedCandidate> placeCandidate(const Iterations &iterations, const Candidate &candidate,
                                               const HostLayout &host) {
  ASSIGN_OR_RETURN(placed, move(iterations, candidate, host, [](const IterationOf &) { return true; }));
  layOut(iterations, placed);
  return placed;
}

absl::StatusOr<PlacedCandidate> moveCandidate(const Iterations &iterations, const Candidate &candidate,
                                              const HostLayout &host,
                                              absl::FunctionRef<bool(const IterationOf &)> asked) {
  // A cut that both classes have a say in is decided by both.
  const bool both = candidate.residency.wrap.oneCut || candidate.residency.cycles();
  const auto other = [](IterationOf of) {
    of.iterationClass =
        of.iterationClass == plan::IterationClass::Decode ? plan::IterationClass::Mixed : plan::IterationClass::Decode;
    return of;
  };
  ASSIGN_OR_RETURN(placed, move(iterations, candidate, host,
                                [&](const IterationOf &of) { return asked(of) || (both && asked(other(of))); }));
  std::erase_if(placed.iterations, [&](const PlacedIteration &of) { return !asked(of.of); });
  size_t slots = 0;
  for (const PlacedIteration &iteration : placed.iterations)
    slots = std::max(slots, iteration.moved.slots.slotBytes.size());
  placed.arena.slots.resize(slots, 0);
  return placed;
}

uint64_t placeHomesTogether(const std::vector<PlacedCandidate *> &placements) {
  if (placements.size() < 2)
    return placements.front()->arenaBytes();
  std::vector<DeviceHomes> homes;
  homes.reserve(placements.size());
  for (const PlacedCandidate *placed : placements)
    homes.push_back(placed->homes);
  const HomesTogether together = placeTogether(homes);
  for (size_t p = 0; p < placements.size(); ++p) {
    placements[p]->homes.arenaBytes = together.arenaBytes[p];
    for (size_t i = 0; i < homes[p].units.size(); ++i)
      placements[p]->homeAddress[i] = together.address[homes[p].units[i].first];
  }
  return together.largest;
}

} // namespace headrace::compiler
