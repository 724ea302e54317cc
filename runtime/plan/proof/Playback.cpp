// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/proof/Playback.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/plan/structure/PlanStructure.h"

namespace headrace::plan {
namespace {

// A plan that cuts memory into so many pieces that looking at them takes minutes is no plan a compiler makes.
constexpr uint64_t kMaxVisits = uint64_t{1} << 27;
// Behind all addresses (PlanStructure.h): interleaved caches, one after another; behind them the host slab.
constexpr uint64_t kCaches = uint64_t{1} << 60, kSlab = uint64_t{1} << 61;
static_assert(kCaches > 4 * kMaxBytes);

Clock noStep() {
  Clock clock;
  clock.fill(-1);
  return clock;
}

} // namespace

Playback::Playback(const Plan &plan, const CacheHomes &caches, uint32_t schedule, const Clocks &clocks)
    : plan_(plan), caches_(caches), index_(schedule), schedule_(plan.schedules[schedule]),
      placement_(plan.placements[schedule_.placement]), clocks_(clocks), extents_(plan, placement_),
      written_(2 * schedule_.locals.size(), false) {}

void Playback::run(Report *report) {
  report_ = report;
  enter();
  const auto steps = static_cast<uint32_t>(schedule_.steps.size());
  for (uint32_t step = 0; step < steps && !(report_ && report_->full()); ++step) {
    const Step &s = schedule_.steps[step];
    const Operand *begin = schedule_.operands.data() + s.firstOperand, *end = begin + s.operandCount;
    // A step reads what was there before it, then writes.
    staleRead_.clear();
    for (const Operand *operand = begin; operand != end; ++operand)
      if (operand->access != Access::Write && operand->arg != Arg::Workspace && isTracked(*operand))
        read(step, *operand);
    for (const Operand *operand = begin; operand != end; ++operand)
      if (operand->access != Access::Read && isTracked(*operand))
        write(step, *operand);
    if (const Operand *destination = copied(s))
      spoilCopy(*destination);
    else if (s.kind == StepKind::Compute)
      spoilCopies(step);
    if (memory_.visits() > kMaxVisits) {
      if (report_)
        report_->add(Rule::Structure, index_, step,
                     absl::StrCat("memory is cut into more pieces than can be checked in reasonable time (",
                                  memory_.visits(), " seen so far)"));
      return;
    }
  }
  leave();
}

// Where a step puts what it has found elsewhere of the same buffer; null: it makes what it writes.
const Operand *Playback::copied(const Step &step) const {
  const Operand *begin = schedule_.operands.data() + step.firstOperand, *end = begin + step.operandCount;
  if (step.kind == StepKind::Copy)
    return end - 1;
  if (step.kind != StepKind::Compute || step.op != kernels::Op::FetchRows)
    return nullptr;
  const Operand *const y = std::find_if(begin, end, [](const Operand &o) { return o.arg == Arg::Y; });
  return y == end ? nullptr : y;
}

uint32_t Playback::newLife(uint64_t bytes, int32_t writer) {
  lives_.push_back({bytes, writer, noStep(), false});
  return static_cast<uint32_t>(lives_.size() - 1);
}

void Playback::enter() {
  const bool leaves = schedule_.fromPlacement != kNone; // one placement for another
  const Placement &before = leaves ? plan_.placements[schedule_.fromPlacement] : placement_;
  const bool staged =
      std::any_of(schedule_.locals.begin(), schedule_.locals.end(), [](const Local &l) { return l.staged(); });
  const bool written = caches_.split() || plan_.residualsLeave() || plan_.actBlocks > 0;
  places_.resize(staged ? plan_.buffers.size() + schedule_.locals.size() : written ? plan_.buffers.size() : 0);
  for (const Extent &e : before.extents)
    if (isActOnHost(e.buffer) || isReceived(e.buffer) ||
        (e.space == Space::Device && (leaves || plan_.buffers[e.buffer].kind != BufferKind::Weight))) {
      const uint64_t base = trackedBase(e.buffer, e.space, e.bufferOffset, e.address, e.interleaved);
      addPlace(e.buffer, base);
      memory_.assign(base + e.bufferOffset, {base + e.bufferOffset + e.bytes, e.buffer, base, -1, -1, kNone, noStep()});
    }
  enterMirrors();
  for (const Content &c : plan_.states[schedule_.entryState].contents) {
    addPlace(c.buffer, c.address - c.bufferOffset);
    memory_.assign(c.address,
                   {c.address + c.bytes, c.buffer, c.address - c.bufferOffset, -1, -1, newLife(c.bytes, -1), noStep()});
    if (c.dirty)
      enterBehind(c);
  }
}

uint64_t Playback::trackedBase(uint32_t buffer, Space space, uint64_t offset, uint64_t address,
                               bool interleaved) const {
  if (interleaved)
    return kCaches + plan_.cacheNumber(plan_.buffers[buffer]) * caches_.mostResidentBytes();
  return (space == Space::Host ? kSlab : 0) + address - offset;
}

std::string Playback::placeOf(uint64_t tracked) const {
  if (tracked >= kSlab)
    return absl::StrCat("at ", tracked - kSlab, " in the host slab");
  return tracked >= kCaches ? "at home" : absl::StrCat("at ", tracked);
}

bool Playback::isWeight(const Operand &operand) const {
  return operand.buffer < plan_.buffers.size() && plan_.buffers[operand.buffer].kind == BufferKind::Weight;
}

void Playback::need(uint32_t from, uint32_t to, EdgeKind kind) {
  for (auto it = needs_.rbegin(); it != needs_.rend() && it->to == to; ++it)
    if (it->kind == kind && clocks_.lane(it->from) == clocks_.lane(from)) {
      it->from = std::max(it->from, from);
      return;
    }
  needs_.push_back({from, to, kind});
}

std::string Playback::contentOf(const HeldRange *node, uint64_t begin, uint64_t end) const {
  if (!node || node->buffer == kNone)
    return "nothing";
  return describe(plan_, schedule_, node->buffer, begin - node->base, end - begin);
}

// A read found something else than it names in [begin, end).
void Playback::found(uint32_t step, const Operand &operand, uint64_t begin, uint64_t end, const HeldRange *node) {
  if (!report_)
    return;
  const uint64_t offset = begin - trackedBase(operand);
  const std::string wanted =
      absl::StrCat("reads ", describe(plan_, schedule_, operand.buffer, offset, end - begin), " ", placeOf(begin));
  const bool touched = node && node->writer >= 0;
  const std::string there = absl::StrCat("but finds ", contentOf(node, begin, end),
                                         touched ? absl::StrCat(", written by step ", node->writer) : "");
  Rule rule = Rule::UseAfterRelease;
  if (operand.buffer >= plan_.buffers.size()) {
    if (written_[writtenAt(operand)])
      rule = Rule::Overlap;
  } else if (!touched && std::any_of(placement_.slots.begin(), placement_.slots.end(), [&](const Slot &slot) {
               return begin >= slot.address && begin - slot.address < slot.bytes;
             })) {
    rule = Rule::EntryExit;
  }
  report_->add(rule, index_, step, absl::StrCat(wanted, ", ", there));
}

void Playback::read(uint32_t step, const Operand &operand) {
  if (isWeight(operand) && extents_.atHome(operand))
    return;
  const uint64_t base = trackedBase(operand), at = base + operand.bufferOffset;
  bool reported = false, unordered = false; // one of a kind for an operand
  std::vector<std::pair<uint64_t, uint64_t>> unknown;
  memory_.visit(at, at + operand.bytes, [&](uint64_t begin, uint64_t end, HeldRange *node) {
    if (!node || !node->holds(operand.buffer, base)) {
      if (!reported)
        found(step, operand, begin, end, node);
      reported = true;
    } else if (node->stale >= 0) {
      readStale(step, operand, begin, end, *node);
    }
    if (!node) {
      unknown.emplace_back(begin, end);
      return;
    }
    if (node->writer >= 0) {
      const auto writer = static_cast<uint32_t>(node->writer);
      if (clocks_.lane(writer) != clocks_.lane(step))
        need(writer, step, EdgeKind::Raw);
      if (!clocks_.ordered(writer, step) && report_ && !std::exchange(unordered, true))
        report_->add(Rule::ReadBeforeReady, index_, step,
                     absl::StrCat("reads ", describe(plan_, schedule_, operand.buffer, begin - base, end - begin), " ",
                                  placeOf(begin), ", and may start before step ", writer, " of lane ",
                                  laneName(schedule_.steps[writer].lane), " has written it"));
    }
    node->readers[clocks_.lane(step)] = static_cast<int32_t>(step);
    if (node->life != kNone)
      lives_[node->life].readers[clocks_.lane(step)] = static_cast<int32_t>(step);
  });
  // What is read though nothing is there must not be written meanwhile either.
  for (const auto &[begin, end] : unknown) {
    HeldRange node{end, kNone, 0, -1, -1, kNone, noStep()};
    node.readers[clocks_.lane(step)] = static_cast<int32_t>(step);
    memory_.assign(begin, node);
  }
}

void Playback::write(uint32_t step, const Operand &operand) {
  const uint64_t base = trackedBase(operand), at = base + operand.bufferOffset;
  bool unordered = false;
  const auto after = [&](int32_t before, EdgeKind kind, uint64_t begin, const HeldRange &node) {
    const auto from = static_cast<uint32_t>(before);
    if (clocks_.lane(from) == clocks_.lane(step))
      return; // before it in the lane, or the step itself
    need(from, step, kind);
    if (clocks_.ordered(from, step) || !report_ || std::exchange(unordered, true))
      return;
    report_->add(
        Rule::OverwriteLive, index_, step,
        absl::StrCat("writes ", describe(plan_, schedule_, operand.buffer, operand.bufferOffset, operand.bytes), " ",
                     placeOf(at), ", and may start before step ", from, " of lane ",
                     laneName(schedule_.steps[from].lane), " has ", kind == EdgeKind::War ? "read " : "written ",
                     contentOf(&node, begin, node.end), " there"));
  };
  memory_.visit(at, at + operand.bytes, [&](uint64_t begin, uint64_t, HeldRange *node) {
    if (!node)
      return;
    bool read = false;
    for (const int32_t reader : node->readers)
      if (reader >= 0) {
        read = true;
        after(reader, EdgeKind::War, begin, *node);
      }
    // With a reader in between, the writer before it comes before this step if both are ordered with the reader.
    if (node->writer >= 0 && !read)
      after(node->writer, EdgeKind::Waw, begin, *node);
  });
  if (updates(step, operand)) {
    update(step, operand);
    return;
  }
  const bool transient = operand.buffer >= plan_.buffers.size();
  const bool fills =
      !transient && operand.space == Space::Device && // a slot
      (isResidual(operand.buffer) || (schedule_.steps[step].kind == StepKind::Copy && !extents_.atHome(operand)));
  if (transient)
    written_[writtenAt(operand)] = true;
  addPlace(operand.buffer, base);
  const HeldRange node{at + operand.bytes,
                       operand.buffer,
                       base,
                       static_cast<int32_t>(step),
                       -1,
                       fills ? newLife(operand.bytes, static_cast<int32_t>(step)) : kNone,
                       noStep()};
  if (schedule_.steps[step].dirtyOnly)
    writeRun(operand, base, node);
  else
    memory_.assign(at, node);
}

// Where the homes of another placement are left behind: the first bytes of this one's extent are at home.
void Playback::leaveHome(const Extent &e, uint64_t bytes) {
  const uint64_t base = trackedBase(e.buffer, e.space, e.bufferOffset, e.address, e.interleaved);
  const uint64_t at = base + e.bufferOffset;
  bool reported = false;
  memory_.visit(at, at + bytes, [&](uint64_t begin, uint64_t end, HeldRange *node) {
    if (!report_ || reported)
      return;
    if (node && node->holds(e.buffer, base)) {
      if (node->stale >= 0)
        leaveStale("leaves ", begin, end, *node);
      reported = node->stale >= 0;
      return;
    }
    reported = true;
    report_->add(Rule::EntryExit, index_, kNone,
                 absl::StrCat("placement ", placement_.name, " has ",
                              describe(plan_, schedule_, e.buffer, begin - base, end - begin), " at home",
                              e.interleaved ? "" : absl::StrCat(" at ", begin), ", where the transition leaves ",
                              contentOf(node, begin, end)));
  });
}

void Playback::leave() {
  if (schedule_.fromPlacement != kNone)
    for (const Extent &e : placement_.extents) {
      if (e.space == Space::Device && plan_.buffers[e.buffer].kind == BufferKind::Weight)
        leaveHome(e, e.bytes);
      else if (e.interleaved) // as far as there were blocks before
        leaveHome(e, std::min(e.bytes, caches_.bytes(schedule_.fromPlacement)));
    }
  leaveCaches();
  for (const Content &c : plan_.states[schedule_.exitState].contents) {
    bool reported = false;
    memory_.visit(c.address, c.address + c.bytes, [&](uint64_t begin, uint64_t end, HeldRange *node) {
      const bool holds = node && node->holds(c.buffer, c.address - c.bufferOffset);
      if (holds && node->life != kNone)
        lives_[node->life].atExit = true;
      if ((holds && node->stale < 0) || !report_ || std::exchange(reported, true))
        return;
      if (holds) {
        leaveStale("its exit state has ", begin, end, *node);
        return;
      }
      const uint64_t offset = c.bufferOffset + (begin - c.address);
      report_->add(Rule::EntryExit, index_, kNone,
                   absl::StrCat("its exit state has ", describe(plan_, schedule_, c.buffer, offset, end - begin),
                                " at ", begin, ", where it leaves ", contentOf(node, begin, end)));
    });
  }
}

} // namespace headrace::plan
