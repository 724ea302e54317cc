// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bitset>
#include <map>
#include <numeric>
#include <optional>

#include "absl/types/span.h"
#include "tests/unit/plan/Oracle.h"
#include "tests/unit/plan/OracleMemory.h"

namespace headrace::plan::test {
namespace {

constexpr size_t kMaxSteps = 512;
using StepSet = std::bitset<kMaxSteps>;

struct Conflict {
  uint32_t from, to;
  EdgeKind kind;
  auto operator<=>(const Conflict &) const = default;
};

// Who comes before a step, whatever the durations: the closure of lane order and of the edges but one.
std::vector<StepSet> ancestors(const Schedule &s, size_t without = SIZE_MAX) {
  std::vector<StepSet> before(s.steps.size());
  for (size_t to = 0; to < s.steps.size(); ++to) {
    for (size_t from = 0; from < to; ++from)
      if (s.steps[from].lane == s.steps[to].lane)
        before[to].set(from);
    for (size_t e = 0; e < s.edges.size(); ++e)
      if (e != without && s.edges[e].to == to)
        before[to].set(s.edges[e].from);
    const StepSet direct = before[to];
    for (size_t from = 0; from < to; ++from)
      if (direct[from])
        before[to] |= before[from];
  }
  return before;
}

class ScheduleOracle {
public:
  ScheduleOracle(const Plan &plan, uint32_t index, std::set<Rule> &rules)
      : plan_(plan), s_(plan.schedules[index]), placement_(plan.placements[s_.placement]),
        before_(plan.placements[s_.fromPlacement == kNone ? s_.placement : s_.fromPlacement]), rules_(rules) {
    uint64_t end = plan.arenaBytes;
    const auto reach = [&](uint64_t address, uint64_t bytes) { end = std::max(end, address + bytes); };
    for (const Extent &e : placement_.extents)
      reach(e.address, e.bytes);
    for (const Extent &e : before_.extents)
      reach(e.address, e.bytes);
    for (const Operand &o : s_.operands)
      reach(o.address, o.bytes);
    for (const Content &c : plan.states[s_.entryState].contents)
      reach(c.address, c.bytes);
    for (const Content &c : plan.states[s_.exitState].contents)
      reach(c.address, c.bytes);
    memory_.resize(end / kGranule + 1);
    writtenHere_.resize(memory_.size());
  }

  void run() {
    places();
    contents();
    order();
    edges();
  }

private:
  void places() {
    std::vector<bool> home(memory_.size());
    for (const Extent &e : placement_.extents)
      if (e.space == Space::Device)
        for (Granules g(e.address, e.bytes); g.first < g.last; ++g.first)
          home[g.first] = true;
    for (const Local &l : s_.locals) {
      if (l.address + l.buffer.bytes > plan_.arenaBytes)
        rules_.insert(Rule::OverBudget);
      for (Granules g(l.address, l.buffer.bytes); g.first < g.last && g.first < home.size(); ++g.first)
        if (home[g.first])
          rules_.insert(Rule::Overlap);
    }
    std::vector<std::set<uint32_t>> uses(s_.locals.size());
    for (uint32_t i = 0; i < s_.steps.size(); ++i)
      for (uint32_t k = s_.steps[i].firstOperand; k < s_.steps[i].firstOperand + s_.steps[i].operandCount; ++k)
        if (s_.operands[k].buffer >= plan_.buffers.size())
          uses[s_.operands[k].buffer - plan_.buffers.size()].insert(i);
    for (size_t a = 0; a < uses.size(); ++a)
      for (size_t b = a + 1; b < uses.size(); ++b) {
        const Local &la = s_.locals[a], &lb = s_.locals[b];
        const bool apart = la.address + la.buffer.bytes <= lb.address || lb.address + lb.buffer.bytes <= la.address;
        if (!apart && !uses[a].empty() && !uses[b].empty() && *uses[a].begin() <= *uses[b].rbegin() &&
            *uses[b].begin() <= *uses[a].rbegin())
          rules_.insert(Rule::Overlap);
      }
    for (const Step &step : s_.steps) {
      const std::vector<Operand> operands(s_.operands.begin() + step.firstOperand,
                                          s_.operands.begin() + step.firstOperand + step.operandCount);
      for (const Operand &o : operands)
        if (o.space == Space::Device && o.address + o.bytes > plan_.arenaBytes)
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

  bool atHome(const Operand &o) const { return atHome(o, placement_); }
  static bool atHome(const Operand &o, const Placement &placement) {
    return std::any_of(placement.extents.begin(), placement.extents.end(), [&](const Extent &e) {
      return e.buffer == o.buffer && e.space == o.space && e.bufferOffset <= o.bufferOffset &&
             o.bufferOffset + o.bytes <= e.bufferOffset + e.bytes &&
             o.address + e.bufferOffset == e.address + o.bufferOffset;
    });
  }

  void copy(const Step &step, const Operand &from, const Operand &to) {
    if (step.lane == Lane::D2H && from.space == Space::Device && to.space == Space::Host) {
      rules_.insert(Rule::HostRange); // weights in host memory are read-only
      return;
    }
    if (step.lane != Lane::H2D || from.space != Space::Host || to.space != Space::Device) {
      rules_.insert(Rule::CopyOrder);
      return;
    }
    if (!atHome(from) && !atHome(from, before_))
      rules_.insert(Rule::HostRange);
    const bool newHome = changes() && plan_.buffers[to.buffer].kind == BufferKind::Weight && atHome(to);
    if (!newHome && std::none_of(placement_.slots.begin(), placement_.slots.end(), [&](const Slot &slot) {
          return slot.address <= to.address && to.address + to.bytes <= slot.address + slot.bytes;
        }))
      rules_.insert(Rule::SlotTooSmall);
  }

  void compute(const Step &step, const std::vector<Operand> &operands) {
    if (step.lane != Lane::Compute)
      rules_.insert(Rule::Structure);
    for (const Operand &o : operands) {
      const bool persistent = o.buffer < plan_.buffers.size();
      const bool weight = persistent && plan_.buffers[o.buffer].kind == BufferKind::Weight;
      if (o.access != Access::Read && persistent && (weight || !atHome(o)))
        rules_.insert(Rule::Structure);
      if (o.space == Space::Device)
        continue;
      if (o.space == Space::Disk || !step.direct) {
        rules_.insert(Rule::WrongSpace);
        continue;
      }
      if (!atHome(o)) {
        rules_.insert(Rule::HostRange);
        continue;
      }
      for (const Extent &e : placement_.extents)
        if (e.buffer == o.buffer && e.bufferOffset <= o.bufferOffset && o.bufferOffset < e.bufferOffset + e.bytes &&
            !e.direct)
          rules_.insert(Rule::WrongSpace);
    }
  }

  void within(const Operand &a, const Operand &b) {
    const bool apart = a.space != b.space || a.address + a.bytes <= b.address || b.address + b.bytes <= a.address;
    const bool readOnly = a.access == Access::Read && b.access == Access::Read;
    if (apart || readOnly)
      return;
    const bool inPlace = std::set<Arg>{a.arg, b.arg} == std::set<Arg>{Arg::Residual, Arg::Y} && a.buffer == b.buffer &&
                         a.bufferOffset == b.bufferOffset && a.address == b.address;
    if (!inPlace)
      rules_.insert(Rule::Overlap);
  }

  void put(uint32_t buffer, uint64_t offset, uint64_t bytes, uint64_t address) {
    const Granules g(address, bytes);
    for (uint64_t i = g.first; i < g.last; ++i)
      memory_[i] = {buffer, offset / kGranule + (i - g.first)};
  }

  bool inSlot(uint64_t granule) const {
    return std::any_of(placement_.slots.begin(), placement_.slots.end(), [&](const Slot &slot) {
      return slot.address / kGranule <= granule && granule < (slot.address + slot.bytes) / kGranule;
    });
  }

  bool changes() const { return &before_ != &placement_; }

  void contents() {
    for (const Extent &e : before_.extents)
      if (e.space == Space::Device)
        put(e.buffer, e.bufferOffset, e.bytes, e.address);
    for (const Content &c : plan_.states[s_.entryState].contents)
      put(c.buffer, c.bufferOffset, c.bytes, c.address);
    std::set<uint32_t> writtenLocals;
    for (uint32_t number = 0; number < s_.steps.size(); ++number) {
      const Step &step = s_.steps[number];
      for (const bool writes : {false, true})
        for (uint32_t k = step.firstOperand; k < step.firstOperand + step.operandCount; ++k) {
          const Operand &o = s_.operands[k];
          const bool read = o.access != Access::Write && o.arg != Arg::Workspace;
          if (o.space != Space::Device || !(writes ? o.access != Access::Read : read))
            continue;
          const Granules g(o.address, o.bytes);
          accesses_.push_back({g, {number, writes}});
          for (uint64_t i = g.first; i < g.last; ++i) {
            if (!writes && memory_[i] != What{o.buffer, o.bufferOffset / kGranule + (i - g.first)}) {
              if (o.buffer >= plan_.buffers.size())
                rules_.insert(writtenLocals.contains(o.buffer) ? Rule::Overlap : Rule::UseAfterRelease);
              else
                rules_.insert(!writtenHere_[i] && inSlot(i) ? Rule::EntryExit : Rule::UseAfterRelease);
            }
            if (writes)
              writtenHere_[i] = true;
          }
          if (writes) {
            put(o.buffer, o.bufferOffset, o.bytes, o.address);
            writtenLocals.insert(o.buffer);
          }
        }
    }
    std::vector<Content> left = plan_.states[s_.exitState].contents;
    for (const Extent &e : placement_.extents)
      if (changes() && e.space == Space::Device && plan_.buffers[e.buffer].kind == BufferKind::Weight)
        left.push_back({e.buffer, e.bufferOffset, e.bytes, e.address});
    for (const Content &c : left) {
      const Granules g(c.address, c.bytes);
      for (uint64_t i = g.first; i < g.last; ++i)
        if (memory_[i] != What{c.buffer, c.bufferOffset / kGranule + (i - g.first)})
          rules_.insert(Rule::EntryExit);
    }
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
  std::set<Rule> &rules_;
  std::vector<What> memory_;
  std::vector<bool> writtenHere_;
  using StepAccess = std::pair<uint32_t, bool>; // step, writes
  std::vector<std::pair<Granules, StepAccess>> accesses_;
  std::set<Conflict> conflicts_;
};

} // namespace

void addBrokenRules(const Plan &plan, uint32_t schedule, std::set<Rule> &rules) {
  ScheduleOracle(plan, schedule, rules).run();
}

uint64_t liveBytesByBruteForce(const Plan &plan, uint32_t index) {
  const Schedule &s = plan.schedules[index];
  const Placement &placement = plan.placements[s.placement];
  const std::vector<StepSet> before = ancestors(s);
  uint64_t homes = 0, largest = 0;
  for (const Extent &e : placement.extents)
    homes += e.space == Space::Device ? e.bytes : 0;
  // Contents of slots: their ranges, who writes them (none: there on entry), who reads them until the next write.
  struct Held {
    Content content;
    std::optional<uint32_t> writer;
    std::set<uint32_t> readers;
    bool atExit = false, replaced = false;
  };
  std::vector<Held> held;
  for (const Content &c : plan.states[s.entryState].contents)
    held.push_back({c});
  const auto meets = [](const auto &a, const auto &b) {
    return a.address < b.address + b.bytes && b.address < a.address + a.bytes;
  };
  for (uint32_t i = 0; i < s.steps.size(); ++i)
    for (uint32_t k = s.steps[i].firstOperand; k < s.steps[i].firstOperand + s.steps[i].operandCount; ++k) {
      const Operand &o = s.operands[k];
      if (o.space != Space::Device)
        continue;
      for (Held &h : held)
        if (!h.replaced && meets(h.content, o)) {
          if (o.access == Access::Read)
            h.readers.insert(i);
          else
            h.replaced = true;
        }
      const bool home = std::any_of(placement.extents.begin(), placement.extents.end(), [&](const Extent &e) {
        return e.buffer == o.buffer && e.space == o.space && e.address == o.address;
      });
      if (s.steps[i].kind == StepKind::Copy && o.access == Access::Write && !home)
        held.push_back({{o.buffer, o.bufferOffset, o.bytes, o.address}, i});
    }
  for (Held &h : held)
    for (const Content &c : plan.states[s.exitState].contents)
      h.atExit |= !h.replaced && meets(h.content, c);
  // At each compute step, and after the last.
  std::vector<uint32_t> points;
  for (uint32_t i = 0; i < s.steps.size(); ++i)
    if (s.steps[i].lane == Lane::Compute)
      points.push_back(i);
  for (size_t p = 0; p <= points.size(); ++p) {
    uint64_t sum = homes;
    for (const Held &h : held) {
      // The copy may have begun: all the compute steps that it waits for come before this one.
      bool begun = true;
      for (size_t q = p; q < points.size(); ++q)
        begun &= !h.writer || !before[*h.writer][points[q]];
      bool wanted = h.atExit;
      for (const uint32_t reader : h.readers)
        wanted |= p < points.size() && reader >= points[p];
      // Nobody's: it takes its place when it may begin.
      bool nobodys = h.readers.empty() && !h.atExit;
      if (nobodys)
        for (size_t q = 0; q < p; ++q) {
          bool earlier = true;
          for (size_t r = q; r < points.size(); ++r)
            earlier &= !h.writer || !before[*h.writer][points[r]];
          nobodys &= !earlier;
        }
      sum += begun && (wanted || nobodys) ? h.content.bytes : 0;
    }
    for (uint32_t l = 0; l < s.locals.size(); ++l) {
      bool from = false, to = false;
      for (size_t q = 0; q < points.size(); ++q)
        for (uint32_t k = s.steps[points[q]].firstOperand;
             k < s.steps[points[q]].firstOperand + s.steps[points[q]].operandCount; ++k)
          if (s.operands[k].buffer == plan.buffers.size() + l) {
            from |= q <= p;
            to |= q >= p;
          }
      sum += from && to ? s.locals[l].buffer.bytes : 0;
    }
    largest = std::max(largest, sum);
  }
  return largest;
}

} // namespace headrace::plan::test
