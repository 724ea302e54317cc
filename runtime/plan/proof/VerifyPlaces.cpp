// SPDX-License-Identifier: Apache-2.0
//
// What can be seen without playing the steps: which ranges stay what they are, that they keep apart, that all of them
// lie in the arena or in the host slab, and that every operand is in the memory its step may touch.
#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "runtime/plan/proof/ExtentIndex.h"
#include "runtime/plan/proof/VerifyParts.h"

namespace headrace::plan {
namespace {

struct Range {
  uint64_t begin = 0, end = 0;
  std::string what() const { return absl::StrCat("[", begin, ", ", end, ")"); }
};

// Homes on the device and slots of a placement, sorted by address; `slot` is kNone for a home, `buffer` for a slot and
// for the home of caches that are interleaved.
struct FixedRange : Range {
  uint32_t buffer = kNone;
  uint32_t slot = kNone;
};

// Blocks of caches that are split have one range (StructureHomes.cpp shows that they share it out among them).
std::vector<FixedRange> fixedRanges(const Plan &plan, const CacheHomes &caches, uint32_t index) {
  const Placement &placement = plan.placements[index];
  std::vector<FixedRange> out;
  if (caches.split() && caches.regionBytes(index) > 0)
    out.push_back({{caches.regionBegin(index), caches.regionBegin(index) + caches.regionBytes(index)}, kNone, kNone});
  for (const Extent &extent : placement.extents) {
    if (extent.space == Space::Device && !extent.interleaved)
      out.push_back({{extent.address, extent.address + extent.bytes}, extent.buffer, kNone});
  }
  for (uint32_t i = 0; i < placement.slots.size(); ++i)
    out.push_back({{placement.slots[i].address, placement.slots[i].address + placement.slots[i].bytes}, kNone, i});
  std::stable_sort(out.begin(), out.end(), [](const auto &a, const auto &b) { return a.begin < b.begin; });
  return out;
}

std::string nameOf(const Plan &plan, const FixedRange &range) {
  if (range.slot != kNone)
    return absl::StrCat("slot ", range.slot, " ", range.what());
  return absl::StrCat(range.buffer == kNone ? "the range of the caches" : plan.buffers[range.buffer].name, " ",
                      range.what());
}

// Ranges by address: of those that share no bytes, the one that holds a byte.
template <typename T> const T *rangeAt(const std::vector<T> &sorted, uint64_t address) {
  auto it = std::upper_bound(sorted.begin(), sorted.end(), address,
                             [](uint64_t at, const T &range) { return at < range.begin; });
  return it != sorted.begin() && address < std::prev(it)->end ? &*std::prev(it) : nullptr;
}

std::vector<FixedRange> only(std::vector<FixedRange> ranges, bool slots) {
  std::erase_if(ranges, [&](const FixedRange &range) { return (range.slot != kNone) != slots; });
  return ranges;
}

// Whether [address, address + bytes) lies in one of the slots; if not, says why.
bool liesInSlot(const std::vector<FixedRange> &slots, uint64_t address, uint64_t bytes, std::string *why) {
  const FixedRange *slot = rangeAt(slots, address);
  if (slot == nullptr)
    *why = absl::StrCat("begins at ", address, ", in no slot");
  else if (address + bytes > slot->end)
    *why = absl::StrCat("ends at ", address + bytes, ", beyond slot ", slot->slot, " ", slot->what());
  return why->empty();
}

constexpr uint64_t kHostSlab = uint64_t{1} << 60; // behind all addresses (PlanStructure.h)

// `addresses`: of caches and io in the placements seen so far; those in the host slab behind all others.
void verifyPlacement(const Plan &plan, const CacheHomes &caches, uint32_t index,
                     std::map<uint32_t, uint64_t> &addresses, Report &report) {
  const Placement &placement = plan.placements[index];
  const auto add = [&](Rule rule, auto &&...parts) {
    report.add(rule, kNone, kNone, absl::StrCat("placement ", placement.name, ": ", parts...));
  };
  const std::vector<FixedRange> fixed = fixedRanges(plan, caches, index);
  size_t furthest = 0; // of those before, the one that ends last
  for (size_t i = 0; i < fixed.size(); ++i) {
    if (i > 0 && fixed[i].begin < fixed[furthest].end)
      add(Rule::Overlap, nameOf(plan, fixed[furthest]), " and ", nameOf(plan, fixed[i]), " share bytes");
    if (fixed[i].end > fixed[furthest].end)
      furthest = i;
    if (fixed[i].end > plan.arenaBytes)
      add(Rule::OverBudget, nameOf(plan, fixed[i]), " ends beyond the arena of ", plan.arenaBytes, " bytes");
  }
  // Caches and what passes between host and device stay where they are, in every placement.
  for (const Extent &extent : placement.extents) {
    const Buffer &buffer = plan.buffers[extent.buffer];
    if (buffer.kind == BufferKind::Weight || (buffer.kind == BufferKind::Kv && caches.split()) ||
        buffer.kind == BufferKind::Residual) // its home is on the host (StructureHomes.cpp)
      continue;
    const bool act = buffer.kind == BufferKind::Act && extent.space == Space::Host && extent.direct;
    if ((extent.space != Space::Device && !act) || extent.bytes != buffer.bytes)
      add(Rule::Structure, buffer.name, " is not one run of bytes on the device");
    else if (const uint64_t at = extent.address + (act ? kHostSlab : 0),
             earlier = addresses.try_emplace(extent.buffer, at).first->second;
             at != earlier)
      add(Rule::Structure, buffer.name, " is at ", extent.address, act ? " in the host slab" : "",
          ", in an earlier placement it is at ", earlier % kHostSlab, earlier >= kHostSlab ? " in the host slab" : "");
  }
}

void verifyState(const Plan &plan, const CacheHomes &caches, uint32_t index, Report &report) {
  const State &state = plan.states[index];
  const std::vector<FixedRange> slots = only(fixedRanges(plan, caches, state.placement), true);
  for (const Content &content : state.contents) {
    const std::string name = absl::StrCat("state ", index, ": ", plan.buffers[content.buffer].name, " [",
                                          content.bufferOffset, ", ", content.bufferOffset + content.bytes, ")");
    std::string why;
    if (plan.buffers[content.buffer].kind == BufferKind::Kv && caches.split()) {
      const uint64_t begin = caches.residentBytes(state.placement), end = caches.bytes(state.placement);
      if (content.bufferOffset < begin || content.bufferOffset + content.bytes > end)
        why = absl::StrCat("is not of the bytes at home on the host, [", begin, ", ", end, ")");
    } else if (plan.buffers[content.buffer].kind == BufferKind::Residual) {
      why = "is a residual, of which nothing is kept between iterations";
    } else if (plan.buffers[content.buffer].kind != BufferKind::Weight) {
      why = "is not a weight, only weights are in slots";
    } else if (content.dirty) {
      why = "is dirty, expected of the blocks of a cache at home on the host only";
    }
    if (!why.empty())
      report.add(Rule::EntryExit, kNone, kNone, absl::StrCat(name, " ", why));
    else if (!liesInSlot(slots, content.address, content.bytes, &why))
      report.add(Rule::SlotTooSmall, kNone, kNone, absl::StrCat(name, " ", why));
  }
}

// The spaces and the homes of a step's operands.
class StepPlaces {
public:
  StepPlaces(const Plan &plan, const CacheHomes &caches, uint32_t schedule, Report &report)
      : plan_(plan), index_(schedule), schedule_(plan.schedules[schedule]),
        placement_(plan.placements[schedule_.placement]), caches_(caches), report_(report),
        homes_(only(fixedRanges(plan, caches, schedule_.placement), false)),
        slots_(only(fixedRanges(plan, caches, schedule_.placement), true)), extents_(plan, placement_) {
    if (schedule_.fromPlacement != kNone)
      before_.emplace(plan, plan.placements[schedule_.fromPlacement]);
  }

  void locals() {
    for (const Local &local : schedule_.locals) {
      if (local.address == kNowhere)
        continue; // the slab's are looked at with it (VerifyHost.cpp)
      const Range range{local.address, local.address + local.buffer.bytes};
      if (range.end > plan_.arenaBytes)
        add(Rule::OverBudget, kNone, local.buffer.name, " ", range.what(), " ends beyond the arena of ",
            plan_.arenaBytes, " bytes");
      if (const FixedRange *home = homeWithin(range))
        add(Rule::Overlap, kNone, local.buffer.name, " ", range.what(), " shares bytes with ", nameOf(plan_, *home));
    }
  }

  // Transients whose lives in a space, from first use to last, meet at a step share no bytes there.
  void lives(Space space) {
    constexpr uint32_t kUnused = kNone;
    std::vector<std::pair<uint32_t, uint32_t>> life(schedule_.locals.size(), {kUnused, 0});
    for (uint32_t number = 0; number < schedule_.steps.size(); ++number) {
      const Step &step = schedule_.steps[number];
      for (uint32_t i = step.firstOperand; i < step.firstOperand + step.operandCount; ++i)
        if (const auto &[buffer, of] = std::pair(schedule_.operands[i].buffer, schedule_.operands[i].space);
            buffer >= plan_.buffers.size() && of == space) {
          auto &[first, last] = life[buffer - plan_.buffers.size()];
          first = std::min(first, number);
          last = number;
        }
    }
    std::vector<std::tuple<uint32_t, bool, uint32_t>> events; // step, ends, local: at one step, beginnings come first
    for (uint32_t l = 0; l < life.size(); ++l)
      if (life[l].first != kUnused) {
        events.emplace_back(life[l].first, false, l);
        events.emplace_back(life[l].second, true, l);
      }
    std::sort(events.begin(), events.end());
    std::map<uint64_t, uint32_t> live; // by address; disjoint
    for (const auto &[number, ends, l] : events) {
      const Local &local = schedule_.locals[l];
      const auto rangeOf = [space](const Local &of) { return Range{of.in(space), of.in(space) + of.buffer.bytes}; };
      const Range own = rangeOf(local);
      if (ends) {
        if (const auto it = live.find(own.begin); it != live.end() && it->second == l)
          live.erase(it);
        continue;
      }
      const auto clashes = [&, step = number](uint32_t other) {
        const Range range = rangeOf(schedule_.locals[other]);
        if (range.end <= own.begin || own.end <= range.begin)
          return false;
        add(Rule::Overlap, step, local.buffer.name, " ", own.what(), " shares bytes with ",
            schedule_.locals[other].buffer.name, " ", range.what(), ", which is in use until step ",
            life[other].second);
        return true;
      };
      const auto after = live.lower_bound(own.begin);
      const bool clash = (after != live.end() && clashes(after->second)) ||
                         (after != live.begin() && clashes(std::prev(after)->second));
      if (!clash)
        live.emplace(own.begin, l);
    }
  }

  void step(uint32_t number) {
    const Step &step = schedule_.steps[number];
    for (uint32_t i = step.firstOperand; i < step.firstOperand + step.operandCount; ++i) {
      const Operand &operand = schedule_.operands[i];
      if (operand.space == Space::Device && !operand.interleaved && // which is at home
          operand.address + operand.bytes > plan_.arenaBytes)
        add(Rule::OverBudget, number, describe(operand), " ends at ", operand.address + operand.bytes,
            ", beyond the arena of ", plan_.arenaBytes, " bytes");
    }
    if (step.kind == StepKind::Copy)
      copy(number, schedule_.operands[step.firstOperand], schedule_.operands[step.firstOperand + 1]);
    else
      compute(number);
    sharedWithin(number);
  }

private:
  template <typename... Parts> void add(Rule rule, uint32_t step, const Parts &...parts) {
    report_.add(rule, index_, step, absl::StrCat(parts...));
  }
  std::string describe(const Operand &operand) const {
    return absl::StrCat(argName(operand.arg), " ",
                        plan::describe(plan_, schedule_, operand.buffer, operand.bufferOffset, operand.bytes));
  }

  // A home on the device that the range shares a byte with: the last that begins before the range's end.
  const FixedRange *homeWithin(const Range &range) const {
    auto it = std::lower_bound(homes_.begin(), homes_.end(), range.end,
                               [](const FixedRange &home, uint64_t end) { return home.begin < end; });
    return it != homes_.begin() && std::prev(it)->end > range.begin ? &*std::prev(it) : nullptr;
  }

  // The operand names bytes of its buffer's home, one run, in the operand's space.
  bool atHome(const Operand &operand) const { return extents_.atHome(operand); }

  void copy(uint32_t number, const Operand &from, const Operand &to) {
    const Lane lane = schedule_.steps[number].lane;
    const bool in = from.space == Space::Host && to.space == Space::Device;
    const bool out = from.space == Space::Device && to.space == Space::Host;
    if (!(in && toDevice(lane)) && !(out && toHost(lane))) {
      add(Rule::CopyOrder, number, "a copy from ", spaceName(from.space), " to ", spaceName(to.space), " in lane ",
          laneName(lane));
      return;
    }
    if (from.buffer < plan_.buffers.size() && (isResidual(from.buffer) || isAct(from.buffer)) &&
        schedule_.iterationClass == IterationClass::Transition)
      add(Rule::HostRange, number, describe(to), " is copied by a transition, expected in iterations only");
    if (out) {
      if (isMeta(to))
        metaOnHost(number, to);
      if (to.buffer < plan_.buffers.size() && !isMeta(to)) // a transient goes to its own range (PlanStructure)
        copyBack(number, from, to);
      return;
    }
    // Between placements, what has a new home comes from the old one, and goes to the new.
    if (!atHome(from) && !(before_ && before_->atHome(from)))
      add(Rule::HostRange, number, describe(from), " is not at ", from.address, " in the host slab as one run");
    std::string why;
    if (before_ && atHome(to) && (plan_.buffers[to.buffer].kind == BufferKind::Weight || to.interleaved))
      return;
    if (!liesInSlot(slots_, to.address, to.bytes, &why))
      add(Rule::SlotTooSmall, number, describe(to), " ", why);
  }

  bool isMeta(const Operand &o) const {
    return o.buffer < plan_.buffers.size() && plan_.buffers[o.buffer].kind == BufferKind::Io &&
           static_cast<Io>(plan_.buffers[o.buffer].index) == Io::Meta;
  }
  // The iteration buffer of the cpu lane.
  void metaOnHost(uint32_t number, const Operand &operand) {
    if (plan_.metaOnHost == kNowhere || operand.address != plan_.metaOnHost + operand.bufferOffset)
      add(Rule::HostRange, number, describe(operand), " is not at ", operand.address, " in the host slab");
  }
  bool isResidual(uint32_t buffer) const { return plan_.buffers[buffer].kind == BufferKind::Residual; }
  bool isAct(uint32_t buffer) const { return plan_.buffers[buffer].kind == BufferKind::Act; }

  // What is written of a cache's tail in a slot goes back to its home. A change of placement finds it there. A residual
  // goes there to make room.
  void copyBack(uint32_t number, const Operand &from, const Operand &to) {
    std::string why;
    const bool residual = isResidual(to.buffer);
    if (!residual && (plan_.buffers[to.buffer].kind != BufferKind::Kv || !caches_.split()))
      add(Rule::HostRange, number, describe(to), " is written to the host, where only read-only weights have homes");
    else if (before_ && !residual)
      add(Rule::HostRange, number, describe(to), " is written to the host by a change of placement");
    else if (!atHome(to))
      add(Rule::HostRange, number, describe(to), " is not at ", to.address, " in the host slab as one run");
    else if (!liesInSlot(slots_, from.address, from.bytes, &why))
      add(Rule::SlotTooSmall, number, describe(from), " ", why);
  }

  // What writes the blocks of a cache that are at home on the host: to where they are on the device, and to the home.
  // And what writes a residual: to a slot, on the device.
  void written(uint32_t number, const Operand &operand) {
    std::string why;
    if (operand.arg == Arg::KvTail) {
      if (!liesInSlot(slots_, operand.address, operand.bytes, &why))
        add(Rule::SlotTooSmall, number, describe(operand), " ", why);
    } else if (operand.arg == Arg::KvHome) {
      if (!mirrored(operand))
        add(Rule::HostRange, number, describe(operand), " is not at ", operand.address, " in the host slab");
    } else if (isResidual(operand.buffer)) {
      if (operand.space == Space::Device && !liesInSlot(slots_, operand.address, operand.bytes, &why))
        add(Rule::SlotTooSmall, number, describe(operand), " ", why);
    } else if (plan_.buffers[operand.buffer].kind == BufferKind::Weight) {
      add(Rule::Structure, number, describe(operand), " is written, weights are read-only");
    } else if (!atHome(operand)) {
      add(Rule::Structure, number, describe(operand), " is written at ", operand.address, ", not at its home");
    }
  }

  // The home that a cache has in the host slab in some placement.
  bool mirrored(const Operand &operand) const {
    return caches_.mirrors() && plan_.buffers[operand.buffer].kind == BufferKind::Kv &&
           operand.bufferOffset >= caches_.mirrorBegin() &&
           operand.bufferOffset + operand.bytes <= caches_.mirrorEnd() &&
           operand.address - operand.bufferOffset == caches_.slabBase(operand.buffer);
  }

  // Steps of the cpu lane use the host's memory alone; of other lanes the device's, or, where they are direct, both.
  void compute(uint32_t number) {
    const Step &step = schedule_.steps[number];
    const bool onCpu = traitsOf(step.lane).engine == Engine::HostThreads;
    const bool attends =
        step.kind == StepKind::Compute && (step.op == kernels::Op::Append || step.op == kernels::Op::Attention);
    const bool appends = step.kind == StepKind::Compute && step.op == kernels::Op::Append; // no device's kernel does
    if (!computes(step.lane) || (onCpu ? !attends || step.direct : appends))
      add(Rule::Structure, number, "a compute step in lane ", laneName(step.lane));
    for (uint32_t i = step.firstOperand; i < step.firstOperand + step.operandCount; ++i) {
      const Operand &operand = schedule_.operands[i];
      if (operand.access != Access::Read && operand.buffer < plan_.buffers.size())
        written(number, operand);
      if (operand.space == Space::Device) {
        if (onCpu)
          add(Rule::WrongSpace, number, describe(operand), " is in device memory and the step is of lane ",
              laneName(step.lane));
        continue;
      }
      if (step.kind == StepKind::Publish && operand.buffer < plan_.buffers.size() && isResidual(operand.buffer)) {
        if (!atHome(operand)) // where the host reads it
          add(Rule::HostRange, number, describe(operand), " is not at ", operand.address,
              " in the host slab as one run");
        continue;
      }
      if (!step.direct && !onCpu)
        add(Rule::WrongSpace, number, describe(operand), " is in host memory and the step is not direct");
      else if (operand.buffer >= plan_.buffers.size())
        continue; // it has one range there
      else if (onCpu && isMeta(operand))
        metaOnHost(number, operand);
      else if (operand.arg == Arg::KvHome) {
        if (operand.access == Access::Read && !mirrored(operand)) // else written() has seen to it
          add(Rule::HostRange, number, describe(operand), " is not at ", operand.address, " in the host slab");
      } else if (!atHome(operand))
        add(Rule::HostRange, number, describe(operand), " is not at ", operand.address, " in the host slab as one run");
      else if (!extents_.of(operand).direct)
        add(Rule::WrongSpace, number, describe(operand), " is read in place, but its extent is not marked direct");
    }
  }

  // Two operands of one step share bytes only if both are read, or if the residual is the very range of y.
  void sharedWithin(uint32_t number) {
    const Step &step = schedule_.steps[number];
    const Operand *begin = schedule_.operands.data() + step.firstOperand;
    for (const Operand *a = begin; a != begin + step.operandCount; ++a)
      for (const Operand *b = begin; b != a; ++b) {
        if (a->interleaved || b->interleaved)
          continue; // one is at home, where no other lies
        if (a->space != b->space || a->address + a->bytes <= b->address || b->address + b->bytes <= a->address)
          continue;
        if (a->access == Access::Read && b->access == Access::Read)
          continue;
        const bool inPlace =
            a->buffer == b->buffer && a->address == b->address && a->bufferOffset == b->bufferOffset &&
            ((a->arg == Arg::Residual && b->arg == Arg::Y) || (a->arg == Arg::Y && b->arg == Arg::Residual));
        if (!inPlace)
          add(Rule::Overlap, number, describe(*b), " and ", describe(*a), " share bytes");
      }
  }

  static const char *spaceName(Space space) { return space == Space::Device ? "device" : "host"; }

  const Plan &plan_;
  const uint32_t index_;
  const Schedule &schedule_;
  const Placement &placement_;
  const CacheHomes &caches_;
  Report &report_;
  const std::vector<FixedRange> homes_, slots_;
  const ExtentIndex extents_;
  std::optional<ExtentIndex> before_; // of the placement that a transition leaves
};

} // namespace

void verifyPlaces(const Plan &plan, const CacheHomes &caches, Report &report) {
  if (plan.arenaBytes > plan.deviceMemory)
    report.add(Rule::OverBudget, kNone, kNone,
               absl::StrCat("arena_bytes is ", plan.arenaBytes, ", device_memory is ", plan.deviceMemory));
  std::map<uint32_t, uint64_t> addresses;
  for (uint32_t i = 0; i < plan.placements.size(); ++i)
    verifyPlacement(plan, caches, i, addresses, report);
  verifyHostSlab(plan, caches, report);
  for (uint32_t i = 0; i < plan.states.size() && !report.full(); ++i)
    verifyState(plan, caches, i, report);
}

void verifyPlaces(const Plan &plan, const CacheHomes &caches, uint32_t schedule, Report &report) {
  StepPlaces places(plan, caches, schedule, report);
  places.locals();
  places.lives(Space::Device);
  places.lives(Space::Host);
  for (uint32_t step = 0; step < plan.schedules[schedule].steps.size() && !report.full(); ++step)
    places.step(step);
}

} // namespace headrace::plan
