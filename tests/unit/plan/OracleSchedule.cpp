// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "absl/types/span.h"
#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/plan/Oracle.h"
#include "tests/unit/plan/OracleMemory.h"

namespace headrace::plan::test {
namespace {

struct Conflict {
  uint32_t from, to;
  EdgeKind kind;
  auto operator<=>(const Conflict &) const = default;
};

class ScheduleOracle {
public:
  ScheduleOracle(const Plan &plan, uint32_t index, std::set<Rule> &rules)
      : plan_(plan), s_(plan.schedules[index]), placement_(plan.placements[s_.placement]),
        before_(plan.placements[s_.fromPlacement == kNone ? s_.placement : s_.fromPlacement]), caches_(cachesOf(plan)),
        rules_(rules) {
    uint64_t end = plan.arenaBytes;
    const auto reach = [&](const auto &range, bool interleaved) {
      end = std::max(end, endOf(plan, range, interleaved));
    };
    for (const Extent &e : placement_.extents)
      reach(e, e.interleaved);
    for (const Extent &e : before_.extents)
      reach(e, e.interleaved);
    for (const Slot &slot : placement_.slots)
      end = std::max(end, slot.address + slot.bytes);
    for (const Operand &o : s_.operands)
      reach(o, o.interleaved);
    for (const Content &c : plan.states[s_.entryState].contents)
      reach(c, false);
    for (const Content &c : plan.states[s_.exitState].contents)
      reach(c, false);
    for (const auto &[buffer, byte0] : caches_.byte0)
      end = std::max(end, byte0 + plan.buffers[buffer].bytes);
    host_ = end / kGranule + 1;
    memory_.resize(2 * host_);
    writtenHere_.resize(memory_.size());
    for (const Buffer &b : plan.buffers)
      latest_.emplace_back(b.bytes / kGranule);
    for (const Local &l : s_.locals)
      latest_.emplace_back(l.buffer.bytes / kGranule);
  }

  void run() {
    places();
    contents();
    order();
    edges();
  }

private:
  void places() {
    std::vector<char> home(memory_.size()), blocks(memory_.size()); // blocks: homes of interleaved caches
    for (const Extent &e : placement_.extents)
      if (e.space == Space::Device)
        forEachGranule(plan_, e, e.interleaved, [&](uint64_t granule, const What &) {
          home[granule] = 1;
          blocks[granule] |= static_cast<char>(e.interleaved);
        });
    const auto apartFromCaches = [&](const auto &range) { // among the blocks of caches
      for (Granules g(range.address, range.bytes); g.first < g.last; ++g.first)
        if (blocks[g.first])
          rules_.insert(Rule::Overlap);
    };
    for (const Operand &o : s_.operands)
      if (o.space == Space::Device && !o.interleaved && o.access != Access::Read)
        apartFromCaches(o);
    for (const uint32_t state : {s_.exitState, changes() ? s_.exitState : s_.entryState})
      for (const Content &c : plan_.states[state].contents)
        apartFromCaches(c);
    for (const Local &l : s_.locals) {
      if (l.address == kNowhere)
        continue; // of the slab: Oracle.cpp
      if (l.address + l.buffer.bytes > plan_.arenaBytes)
        rules_.insert(Rule::OverBudget);
      for (Granules g(l.address, l.buffer.bytes); g.first < g.last && g.first < home.size(); ++g.first)
        if (home[g.first])
          rules_.insert(Rule::Overlap);
    }
    for (const Space space : {Space::Device, Space::Host})
      transientsApart(space);
    for (const Step &step : s_.steps) {
      const std::vector<Operand> operands(s_.operands.begin() + step.firstOperand,
                                          s_.operands.begin() + step.firstOperand + step.operandCount);
      for (const Operand &o : operands)
        if (o.space == Space::Device && endOf(plan_, o, o.interleaved) > plan_.arenaBytes)
          rules_.insert(Rule::OverBudget);
      if (step.kind == StepKind::Copy)
        copy(step, operands[0], operands[1]);
      else
        compute(step, operands);
      for (size_t a = 0; a < operands.size(); ++a)
        for (size_t b = a + 1; b < operands.size(); ++b)
          within(operands[a], operands[b]);
    }
  }

  void transientsApart(Space space) {
    std::vector<std::set<uint32_t>> uses(s_.locals.size());
    for (uint32_t i = 0; i < s_.steps.size(); ++i)
      for (uint32_t k = s_.steps[i].firstOperand; k < s_.steps[i].firstOperand + s_.steps[i].operandCount; ++k)
        if (s_.operands[k].buffer >= plan_.buffers.size() && s_.operands[k].space == space)
          uses[s_.operands[k].buffer - plan_.buffers.size()].insert(i);
    const auto begin = [&](size_t l) { return space == Space::Host ? s_.locals[l].hostAddress : s_.locals[l].address; };
    for (size_t a = 0; a < uses.size(); ++a)
      for (size_t b = a + 1; b < uses.size(); ++b) {
        if (uses[a].empty() || uses[b].empty())
          continue;
        const bool apart =
            begin(a) + s_.locals[a].buffer.bytes <= begin(b) || begin(b) + s_.locals[b].buffer.bytes <= begin(a);
        if (!apart && *uses[a].begin() <= *uses[b].rbegin() && *uses[b].begin() <= *uses[a].rbegin())
          rules_.insert(Rule::Overlap);
      }
  }

  bool atHome(const Operand &o) const { return atHome(o, placement_); }
  bool atHome(const Operand &o, const Placement &placement) const {
    return std::any_of(placement.extents.begin(), placement.extents.end(), [&](const Extent &e) {
      const uint64_t blocks = e.interleaved ? o.bufferOffset / plan_.kvBlockBytes() : 0;
      return e.buffer == o.buffer && e.space == o.space && e.bufferOffset <= o.bufferOffset &&
             o.bufferOffset + o.bytes <= e.bufferOffset + e.bytes && o.interleaved == e.interleaved &&
             o.address + e.bufferOffset ==
                 e.address + o.bufferOffset + blocks * (plan_.kvStride() - plan_.kvBlockBytes());
    });
  }
  // In the slab, where blocks have their home that are on the device in this placement, or not.
  bool inMirror(const Operand &o) const {
    const auto at = caches_.byte0.find(o.buffer);
    return at != caches_.byte0.end() && o.space == Space::Host && o.address == at->second + o.bufferOffset &&
           o.bufferOffset >= static_cast<uint64_t>(caches_.mirroredFrom) * plan_.kvBlockBytes() &&
           o.bufferOffset + o.bytes <= static_cast<uint64_t>(caches_.mirroredTo) * plan_.kvBlockBytes();
  }
  bool isCache(uint32_t buffer) const {
    return caches_.byBlocks && buffer < plan_.buffers.size() && plan_.buffers[buffer].kind == BufferKind::Kv;
  }
  bool isActOnHost(uint32_t buffer) const { return actsOnHost(plan_, placement_, buffer); }
  // Another stage's rows are there when an iteration starts.
  bool isReceived(uint32_t buffer) const {
    return isResidual(plan_, buffer) && plan_.model->stage.first > 0 && s_.iterationClass != IterationClass::Transition;
  }
  // Written by steps, and in more than one place.
  bool hasCopies(uint32_t buffer) const {
    return isCache(buffer) || isResidual(plan_, buffer) || isActOnHost(buffer) || isStaged(plan_, s_, buffer);
  }
  // Of the host's memory, what steps write.
  bool isWrittenOnHost(uint32_t buffer) const {
    return hasCopies(buffer) || buffer >= plan_.buffers.size() || isMeta(plan_, buffer);
  }

  void copy(const Step &step, const Operand &from, const Operand &to) {
    const bool back = step.lane == Lane::D2H && from.space == Space::Device && to.space == Space::Host;
    const bool there = step.lane == Lane::H2D && from.space == Space::Host && to.space == Space::Device;
    if ((back || there) && (isResidual(plan_, to.buffer) || isAct(plan_, to.buffer)) &&
        s_.iterationClass == IterationClass::Transition)
      rules_.insert(Rule::HostRange); // nothing of it is there, or may stay in a slot
    if (back) {
      if (isMeta(plan_, to.buffer) && to.address != plan_.metaOnHost + to.bufferOffset)
        rules_.insert(Rule::HostRange);
      if (to.buffer < plan_.buffers.size() && !isMeta(plan_, to.buffer))
        evict(from, to);
      return;
    }
    if (!there) {
      rules_.insert(Rule::CopyOrder);
      return;
    }
    if (!atHome(from) && !atHome(from, before_))
      rules_.insert(Rule::HostRange);
    const bool moves = isCache(to.buffer) || plan_.buffers[to.buffer].kind == BufferKind::Weight;
    const bool newHome = changes() && moves && atHome(to);
    if (!newHome && !inOneSlot(to))
      rules_.insert(Rule::SlotTooSmall);
  }
  // The way home of a tail or a residual. What is on the device has no other home, weights are not written, rows of
  // activation blocks are written to the home at once, and a change of placement begins with homes that are current.
  void evict(const Operand &from, const Operand &to) {
    if (!(isCache(to.buffer) || isResidual(plan_, to.buffer)) || changes() || !atHome(to))
      rules_.insert(Rule::HostRange);
    if (!inOneSlot(from))
      rules_.insert(Rule::SlotTooSmall);
  }
  bool inOneSlot(const Operand &o) const {
    return std::any_of(placement_.slots.begin(), placement_.slots.end(), [&](const Slot &slot) {
      return slot.address <= o.address && endOf(plan_, o, o.interleaved) <= slot.address + slot.bytes;
    });
  }

  void compute(const Step &step, const std::vector<Operand> &operands) {
    const bool cpu = step.lane == Lane::Cpu; // OracleCpu.cpp
    if (step.lane != Lane::Compute && !cpu)
      rules_.insert(Rule::Structure);
    for (const Operand &o : operands) {
      const bool persistent = o.buffer < plan_.buffers.size();
      const bool weight = persistent && plan_.buffers[o.buffer].kind == BufferKind::Weight;
      const bool partOfCache = isCache(o.buffer) && (o.arg == Arg::KvTail || o.arg == Arg::KvHome);
      if (o.access != Access::Read && isResidual(plan_, o.buffer)) {
        if (o.space == Space::Device && !inOneSlot(o))
          rules_.insert(Rule::SlotTooSmall);
      } else if (o.access != Access::Read && persistent && (weight || !(partOfCache || atHome(o))))
        rules_.insert(Rule::Structure);
      if (o.space == Space::Device)
        continue;
      if (isCache(o.buffer) && o.space == Space::Host && !inMirror(o))
        rules_.insert(Rule::HostRange);
      if (step.kind == StepKind::Publish && isResidual(plan_, o.buffer)) { // the host reads it
        if (!atHome(o))
          rules_.insert(Rule::HostRange);
        continue;
      }
      if (!step.direct && !cpu) {
        rules_.insert(Rule::WrongSpace);
        continue;
      }
      if (!persistent || (cpu && isMeta(plan_, o.buffer)))
        continue;
      if (!isCache(o.buffer) && !atHome(o)) {
        rules_.insert(Rule::HostRange);
        continue;
      }
      for (const Extent &e : placement_.extents)
        if (e.buffer == o.buffer && e.space == Space::Host && e.bufferOffset <= o.bufferOffset &&
            o.bufferOffset < e.bufferOffset + e.bytes && !e.direct)
          rules_.insert(Rule::WrongSpace);
    }
  }

  bool share(const Operand &a, const Operand &b) const {
    std::set<uint64_t> of;
    forEachGranule(plan_, a, a.interleaved, [&](uint64_t granule, const What &) { of.insert(granule); });
    bool found = false;
    forEachGranule(plan_, b, b.interleaved, [&](uint64_t granule, const What &) { found |= of.contains(granule); });
    return found;
  }
  void within(const Operand &a, const Operand &b) {
    const bool apart = a.space != b.space || endOf(plan_, a, a.interleaved) <= b.address ||
                       endOf(plan_, b, b.interleaved) <= a.address || !share(a, b);
    const bool readOnly = a.access == Access::Read && b.access == Access::Read;
    if (apart || readOnly)
      return;
    const bool inPlace = std::set<Arg>{a.arg, b.arg} == std::set<Arg>{Arg::Residual, Arg::Y} && a.buffer == b.buffer &&
                         a.bufferOffset == b.bufferOffset && a.address == b.address;
    if (!inPlace)
      rules_.insert(Rule::Overlap);
  }

  // Device memory first, then the host's, of which all but weights is looked at: these are never written there.
  template <typename Range, typename F> void granules(const Range &r, Space space, bool interleaved, F f) const {
    forEachGranule(plan_, r, interleaved,
                   [&](uint64_t granule, const What &what) { f(granule + (space == Space::Host ? host_ : 0), what); });
  }
  template <typename Range> void put(const Range &r, Space space, bool interleaved, bool exists = true) {
    granules(r, space, interleaved, [&](uint64_t i, const What &what) {
      if (exists)
        memory_[i] = {what, 0};
    });
  }

  bool inSlot(uint64_t granule) const {
    return std::any_of(placement_.slots.begin(), placement_.slots.end(), [&](const Slot &slot) {
      return slot.address / kGranule <= granule && granule < (slot.address + slot.bytes) / kGranule;
    });
  }

  bool changes() const { return &before_ != &placement_; }

  // The homes of mirrored blocks below a number, one operand a layer.
  std::vector<Operand> mirror(int64_t below) const {
    std::vector<Operand> out;
    const uint64_t block = plan_.kvBlockBytes();
    for (const auto &[buffer, byte0] : caches_.byte0)
      if (caches_.mirrored && below > caches_.mirroredFrom) {
        const uint64_t from = static_cast<uint64_t>(caches_.mirroredFrom) * block;
        out.push_back({buffer, Space::Host, Access::Read, Arg::KvHome, from,
                       static_cast<uint64_t>(below) * block - from, byte0 + from});
      }
    return out;
  }

  void contents() {
    for (const Extent &e : before_.extents)
      if (e.space == Space::Device || isActOnHost(e.buffer) || isReceived(e.buffer))
        put(e, e.space, e.interleaved);
    for (const Content &c : plan_.states[s_.entryState].contents)
      put(c, Space::Device, false);
    for (const Operand &o : mirror(before_.kvBlocks))
      put(o, o.space, false);
    aheadOnEntry();
    for (uint32_t number = 0; number < s_.steps.size(); ++number) {
      const Step &step = s_.steps[number];
      for (const bool writes : {false, true})
        for (uint32_t k = step.firstOperand; k < step.firstOperand + step.operandCount; ++k) {
          const Operand &o = s_.operands[k];
          const bool reads = o.access != Access::Write && o.arg != Arg::Workspace;
          const bool tracked = o.space == Space::Device || isWrittenOnHost(o.buffer);
          if (tracked && (writes ? o.access != Access::Read : reads))
            access(number, o, writes);
          else if (writes && o.access != Access::Read && hasCopies(o.buffer)) // what is elsewhere has not been written
            forEachGranule(plan_, o, false,
                           [&](uint64_t, const What &what) { latest_[what.buffer][what.granule] = number + 1; });
        }
    }
    atTheEnd();
  }
  // The home of what is dirty is stale from the start.
  void aheadOnEntry() {
    for (const Content &c : plan_.states[s_.entryState].contents) {
      if (!c.dirty || !isCache(c.buffer))
        continue;
      granules(c, Space::Device, false, [&](uint64_t i, const What &what) {
        memory_[i] = {what, kBefore};
        latest_[what.buffer][what.granule] = kBefore;
        behind_.insert({what.buffer, what.granule});
      });
    }
  }
  void access(uint32_t number, const Operand &o, bool writes) {
    const Step &step = s_.steps[number];
    const bool copies = hasCopies(o.buffer);
    granules(o, o.space, o.interleaved, [&](uint64_t i, const What &what) {
      if (accesses_.empty() || accesses_.back().second != StepAccess{number, writes} ||
          accesses_.back().first.last != i)
        accesses_.push_back({Granules(i * kGranule, 0), {number, writes}});
      ++accesses_.back().first.last;
      if (!writes) {
        find(o, i, what, copies);
        return;
      }
      writtenHere_[i] = 1;
      uint32_t version = 0;
      const bool brings = step.kind == StepKind::Compute && step.op == kernels::Op::FetchRows;
      if (copies && (step.kind == StepKind::Copy || brings)) {
        version = readVersion_[what.granule];
        const bool home = o.space == Space::Host;
        // What this schedule has not written is left as it is, where it is at all.
        if (home && step.dirtyOnly && memory_[i].what == what &&
            (version == 0 || version == kBefore || behind_.contains({o.buffer, what.granule})))
          return;
        if (home)
          behind_.erase({o.buffer, what.granule});
      } else if (copies) {
        version = number + 1;
        latest_[o.buffer][what.granule] = version;
      }
      memory_[i] = {what, version};
    });
    if (writes)
      writtenLocals_.insert({o.buffer, o.space});
  }
  // What a read meets. copies: of a buffer that has them.
  void find(const Operand &o, uint64_t i, const What &what, bool copies) {
    const bool there = memory_[i].what == what;
    if (copies) {
      const uint32_t latest = latest_[o.buffer][what.granule];
      readVersion_[what.granule] = there ? memory_[i].version : latest; // what was not there is said once
      if (there && memory_[i].version != latest)
        rules_.insert(Rule::StaleCopy);
    }
    if (there)
      return;
    if (o.buffer >= plan_.buffers.size())
      rules_.insert(writtenLocals_.contains({o.buffer, o.space}) ? Rule::Overlap : Rule::UseAfterRelease);
    else
      rules_.insert(!writtenHere_[i] && inSlot(i) ? Rule::EntryExit : Rule::UseAfterRelease);
  }
  void atTheEnd() {
    const auto left = [&](const auto &range, bool interleaved) {
      granules(range, Space::Device, interleaved, [&](uint64_t i, const What &what) {
        if (memory_[i].what != what)
          rules_.insert(Rule::EntryExit);
        else if (hasCopies(what.buffer) && memory_[i].version != latest_[what.buffer][what.granule])
          rules_.insert(Rule::StaleCopy);
      });
    };
    for (const Content &c : plan_.states[s_.exitState].contents)
      left(c, false);
    for (Extent e : placement_.extents) {
      if (!changes() || e.space != Space::Device)
        continue;
      if (isCache(e.buffer)) // of the blocks that exist in both
        e.bytes = std::min(e.bytes, static_cast<uint64_t>(before_.kvBlocks) * plan_.kvBlockBytes());
      else if (plan_.buffers[e.buffer].kind != BufferKind::Weight)
        continue;
      left(e, e.interleaved);
    }
    std::set<std::pair<uint32_t, uint64_t>> ahead; // of their homes, as the exit state says
    for (const Content &c : plan_.states[s_.exitState].contents)
      if (c.dirty)
        granules(c, Space::Device, false, [&](uint64_t, const What &what) {
          ahead.insert({what.buffer, what.granule});
        });
    for (const Operand &o : mirror(std::min(placement_.kvBlocks, before_.kvBlocks)))
      granules(o, o.space, false, [&](uint64_t i, const What &what) {
        if (ahead.contains({what.buffer, what.granule}))
          return;
        if (memory_[i].what != what || memory_[i].version != latest_[o.buffer][what.granule])
          rules_.insert(Rule::StaleCopy);
      });
  }

  void order() {
    // Neighbours in the history of some granule: what an edge must be for.
    std::vector<size_t> begin(memory_.size() + 1);
    for (const auto &[g, access] : accesses_)
      for (uint64_t i = g.first; i < g.last; ++i)
        ++begin[i + 1];
    std::partial_sum(begin.begin(), begin.end(), begin.begin());
    std::vector<StepAccess> history(begin.back());
    std::vector<size_t> at = begin;
    for (const auto &[g, access] : accesses_)
      for (uint64_t i = g.first; i < g.last; ++i)
        history[at[i]++] = access;
    absl::Span<const StepAccess> last;
    for (size_t granule = 0; granule < memory_.size(); ++granule) {
      const auto accesses = absl::MakeConstSpan(history).subspan(begin[granule], begin[granule + 1] - begin[granule]);
      if (accesses == last)
        continue; // says nothing new
      last = accesses;
      for (size_t j = 0; j < accesses.size(); ++j) {
        bool readBetween = false;
        for (size_t i = j; i-- > 0;) {
          const auto &[from, fromWrites] = accesses[i];
          const auto &[to, toWrites] = accesses[j];
          if (fromWrites && !(toWrites && readBetween))
            add(from, to, toWrites ? EdgeKind::Waw : EdgeKind::Raw);
          else if (!fromWrites && toWrites)
            add(from, to, EdgeKind::War);
          if (fromWrites)
            break;
          readBetween = true;
        }
      }
    }
    const std::vector<StepSet> before = ancestors(s_);
    for (const Conflict &c : conflicts_)
      if (!before[c.to][c.from])
        rules_.insert(c.kind == EdgeKind::Raw ? Rule::ReadBeforeReady : Rule::OverwriteLive);
  }
  void add(uint32_t from, uint32_t to, EdgeKind kind) {
    if (s_.steps[from].lane != s_.steps[to].lane)
      conflicts_.insert({from, to, kind});
  }

  void edges() {
    const std::vector<StepSet> before = ancestors(s_);
    for (size_t e = 0; e < s_.edges.size(); ++e) {
      if (s_.edges[e].kind == EdgeKind::Pacing)
        continue;
      const std::vector<StepSet> without = ancestors(s_, e);
      if (std::none_of(conflicts_.begin(), conflicts_.end(), [&](const Conflict &c) {
            return c.kind == s_.edges[e].kind && !without[c.to][c.from] && before[c.to][c.from];
          }))
        rules_.insert(Rule::RedundantEdge);
    }
  }

  const Plan &plan_;
  const Schedule &s_;
  const Placement &placement_, &before_; // the same but in a transition between placements
  const Caches caches_;
  std::set<Rule> &rules_;
  // A granule of a cache, a residual or activation blocks on the host has a version: 0 at the start, kBefore where it
  // is ahead of its home then, else the number of the step that wrote it last, from 1 on. A copy holds the version it
  // was given; only the latest is current.
  static constexpr uint32_t kBefore = 0xffffffff;
  struct Cell {
    What what;
    uint32_t version = 0;
  };
  uint64_t host_ = 0; // where the host's granules begin
  std::vector<Cell> memory_;
  std::vector<std::vector<uint32_t>> latest_; // by buffer and granule
  std::map<uint64_t, uint32_t> readVersion_;  // by granule: what the step's source had
  // By buffer and granule: homes that what was written before this schedule has not reached.
  std::set<std::pair<uint32_t, uint64_t>> behind_;
  std::vector<char> writtenHere_;
  std::set<std::pair<uint32_t, Space>> writtenLocals_;
  using StepAccess = std::pair<uint32_t, bool>; // step, writes
  std::vector<std::pair<Granules, StepAccess>> accesses_;
  std::set<Conflict> conflicts_;
};

} // namespace

void addBrokenRules(const Plan &plan, uint32_t schedule, std::set<Rule> &rules) {
  ScheduleOracle(plan, schedule, rules).run();
}

} // namespace headrace::plan::test
