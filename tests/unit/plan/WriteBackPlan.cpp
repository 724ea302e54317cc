// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/plan/WriteBackPlan.h"

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/BlockRuns.h"
#include "tests/unit/plan/PlanParts.h"

namespace headrace::plan::test {
namespace {

// What of two accesses, the first to come before the second, orders them; none where they touch no common byte.
std::optional<EdgeKind> conflict(const Operand &before, const Operand &after) {
  if (before.interleaved || after.interleaved || before.space != after.space ||
      before.address + before.bytes <= after.address || after.address + after.bytes <= before.address)
    return std::nullopt;
  if (before.access != Access::Read)
    return after.access == Access::Write ? EdgeKind::Waw : EdgeKind::Raw;
  return after.access == Access::Read ? std::nullopt : std::optional(EdgeKind::War);
}

} // namespace

void orderSteps(Schedule &s) {
  const auto steps = static_cast<uint32_t>(s.steps.size());
  std::vector<std::vector<uint32_t>> next(steps); // in the lane, and by conflicts
  std::vector<Edge> edges;
  for (uint32_t to = 0; to < steps; ++to)
    for (uint32_t from = to; from-- > 0;) {
      const Step &a = s.steps[from], &b = s.steps[to];
      std::optional<EdgeKind> kind;
      for (uint32_t i = a.firstOperand; i < a.firstOperand + a.operandCount; ++i)
        for (uint32_t k = b.firstOperand; k < b.firstOperand + b.operandCount; ++k)
          if (const std::optional<EdgeKind> found = conflict(s.operands[i], s.operands[k]))
            kind = kind ? std::min(*kind, *found) : *found;
      if (a.lane == b.lane || kind)
        next[from].push_back(to);
      if (a.lane != b.lane && kind)
        edges.push_back({from, to, *kind});
    }
  // By way of others, from the last step to the first.
  std::vector<std::vector<bool>> reaches(steps, std::vector<bool>(steps, false));
  for (uint32_t from = steps; from-- > 0;)
    for (const uint32_t to : next[from]) {
      reaches[from][to] = true;
      for (uint32_t further = to; further < steps; ++further)
        if (reaches[to][further])
          reaches[from][further] = true;
    }
  s.edges.clear();
  for (const Edge &edge : edges)
    if (std::none_of(next[edge.from].begin(), next[edge.from].end(),
                     [&](uint32_t between) { return between != edge.to && reaches[between][edge.to]; }))
      s.edges.push_back(edge);
  std::sort(s.edges.begin(), s.edges.end(),
            [](const Edge &a, const Edge &b) { return std::pair(a.to, a.from) < std::pair(b.to, b.from); });
}

namespace {

class TailMover {
public:
  TailMover(Plan &plan, const std::vector<Tails> &placements)
      : plan_(plan), all_(placements), slab_(plan.hostBytes), arena_(plan.arenaBytes), states_(placements.size()) {
    for (const Tails &tails : placements) {
      most_ = std::max(most_, tails.blocks);
      if (tails.resident < tails.blocks)
        fewest_ = std::min(fewest_.value_or(tails.resident), tails.resident);
    }
    if (fewest_)
      plan_.hostBytes += static_cast<uint64_t>(plan_.model->layers) * size(*fewest_, most_);
  }

  void run() {
    for (uint32_t p = 0; p < all_.size(); ++p)
      place(p);
    plan_.deviceMemory = plan_.hardware.memoryBytes = plan_.arenaBytes;
    const std::vector<Variant> variants = std::move(plan_.variants);
    plan_.variants.clear();
    std::vector<uint32_t> seen(all_.size(), 0); // schedules of each placement
    for (uint32_t s = 0, count = static_cast<uint32_t>(plan_.schedules.size()); s < count; ++s) {
      const uint32_t p = plan_.schedules[s].placement, number = seen[p]++;
      const std::vector<bool> &without = all_[p].withoutTail;
      rebuild(s, number < without.size() && without[number], variants);
    }
    std::stable_sort(plan_.variants.begin(), plan_.variants.end(), [&](const Variant &a, const Variant &b) {
      const auto key = [&](const Variant &v) {
        const Schedule &s = plan_.schedules[v.schedule];
        return std::tuple(v.placement, v.newTokens, v.sequences, v.context, kvBlocksOf(plan_, s), s.phase);
      };
      return key(a) < key(b);
    });
    for (uint32_t p = 0; p < all_.size(); ++p)
      for (uint32_t phase = 0; phase < all_[p].phases.size(); ++phase)
        addTransitions(p, phase);
    for (uint32_t from = 0; from < all_.size(); ++from)
      for (uint32_t to = 0; to < all_.size(); ++to)
        addChange(from, to);
  }

private:
  uint64_t size(int64_t begin, int64_t end) const { return static_cast<uint64_t>(end - begin) * plan_.kvBlockBytes(); }
  // Blocks of a layer's cache in the slab.
  Operand home(int32_t layer, int64_t begin, int64_t end) const {
    Operand o;
    o.buffer = plan_.kvBuffer(layer);
    o.space = Space::Host;
    o.bufferOffset = size(0, begin);
    o.bytes = size(begin, end);
    o.address = slab_ + static_cast<uint64_t>(layer) * size(*fewest_, most_) + size(*fewest_, begin);
    return o;
  }
  Operand inSlot(uint32_t p, int32_t layer, uint32_t slot) const {
    Operand o = home(layer, all_[p].resident, all_[p].blocks);
    o.space = Space::Device;
    o.address = plan_.placements[p].slots[slot].address;
    return o;
  }
  Operand resident(int32_t layer, int64_t begin, int64_t end) const {
    Operand o;
    o.buffer = plan_.kvBuffer(layer);
    o.bufferOffset = size(0, begin);
    o.bytes = size(begin, end);
    o.address = static_cast<uint64_t>(begin) * plan_.kvStride() + static_cast<uint64_t>(layer) * plan_.kvBlockBytes();
    o.interleaved = true;
    return o;
  }

  void place(uint32_t p) {
    const Tails &tails = all_[p];
    Placement &placement = plan_.placements[p];
    placement.kvBlocks = tails.blocks;
    std::vector<Extent> extents;
    for (const Extent &extent : placement.extents) {
      const Buffer &buffer = plan_.buffers[extent.buffer];
      if (buffer.kind != BufferKind::Kv) {
        extents.push_back(extent);
        continue;
      }
      if (tails.resident > 0) {
        const Operand o = resident(buffer.layer, 0, tails.resident);
        extents.push_back({extent.buffer, o.space, false, 0, o.bytes, o.address, true});
      }
      if (tails.resident < tails.blocks) {
        const Operand o = home(buffer.layer, tails.resident, tails.blocks);
        extents.push_back({extent.buffer, o.space, true, o.bufferOffset, o.bytes, o.address});
      }
    }
    placement.extents = std::move(extents);
    const uint64_t bytes = size(tails.resident, tails.blocks);
    for (uint64_t slot = 0; slot < tails.slots; ++slot)
      placement.slots.push_back({arena_ + slot * bytes, bytes});
    plan_.arenaBytes = std::max(plan_.arenaBytes, arena_ + tails.slots * bytes);
    for (const Phase &phase : tails.phases) {
      State state{p, {}};
      for (const CarriedTail &carried : phase.entry) {
        const Operand o = inSlot(p, carried.layer, carried.slot);
        state.contents.push_back({o.buffer, o.bufferOffset, o.bytes, o.address, carried.dirty});
      }
      if (!state.contents.empty())
        plan_.states.push_back(state);
      states_[p].push_back(state.contents.empty() ? 0 : static_cast<uint32_t>(plan_.states.size() - 1));
    }
  }
  // What the phase of a placement is entered with.
  uint32_t entryOf(uint32_t p, size_t phase) const { return states_[p][phase % states_[p].size()]; }

  void addMove(Schedule &s, const TailMove &move) const {
    Step step;
    step.kind = StepKind::Copy;
    step.lane = move.out ? Lane::D2H : Lane::H2D;
    step.part = Part::Movement;
    step.layer = move.layer;
    step.resizable = true;
    step.dirtyOnly = move.dirtyOnly;
    Operand from = home(move.layer, all_[s.placement].resident, all_[s.placement].blocks);
    Operand to = inSlot(s.placement, move.layer, move.slot);
    if (move.out)
      std::swap(from, to);
    from.arg = Arg::Source;
    to.arg = Arg::Destination;
    to.access = Access::Write;
    step.linkBytes = from.bytes;
    addStep(s, step, {from, to});
  }

  void rebuild(uint32_t index, bool withoutTail, const std::vector<Variant> &variants) {
    const Schedule old = plan_.schedules[index];
    const Tails &tails = all_[old.placement];
    const bool brings = !withoutTail && tails.resident < tails.blocks;
    const auto period = static_cast<uint32_t>(brings ? tails.phases.size() : 1);
    for (uint32_t phase = 0; phase < period; ++phase) {
      Schedule s = old;
      s.phase = phase;
      s.period = period;
      s.kvBlocks = withoutTail ? tails.resident : 0;
      if (period > 1)
        s.name += ", phase " + std::to_string(phase) + " of " + std::to_string(period);
      if (brings) {
        s.entryState = entryOf(s.placement, phase);
        s.exitState = entryOf(s.placement, phase + 1);
      }
      build(s, old, brings ? &tails.phases[phase] : nullptr);
      const uint32_t at = phase == 0 ? index : static_cast<uint32_t>(plan_.schedules.size());
      for (Variant v : variants)
        if (v.schedule == index) {
          v.schedule = at;
          setTimes(s, v);
          plan_.variants.push_back(std::move(v));
        }
      if (phase == 0)
        plan_.schedules[at] = std::move(s);
      else
        plan_.schedules.push_back(std::move(s));
    }
  }

  // The steps of `old` with what is moved in a phase; without one the schedule uses what is resident.
  void build(Schedule &s, const Schedule &old, const Phase *phase) const {
    const Tails &tails = all_[s.placement];
    const int64_t used = phase ? tails.blocks : tails.resident;
    std::vector<uint32_t> slotOf(static_cast<size_t>(plan_.model->layers), 0);
    s.steps.clear();
    s.operands.clear();
    const auto moves = [&](int32_t after) {
      if (phase)
        for (const TailMove &move : phase->moves)
          if (move.after == after) {
            slotOf[static_cast<size_t>(move.layer)] = move.slot;
            addMove(s, move);
          }
    };
    if (phase)
      for (const CarriedTail &carried : phase->entry)
        slotOf[static_cast<size_t>(carried.layer)] = carried.slot;
    moves(-1);
    for (Step step : old.steps) {
      const bool append = step.kind == StepKind::Compute && step.op == kernels::Op::RopeAppend;
      const bool attends = step.kind == StepKind::Compute && step.op == kernels::Op::Attention;
      std::vector<Operand> operands;
      for (uint32_t i = step.firstOperand; i < step.firstOperand + step.operandCount; ++i)
        operands.push_back(old.operands[i]);
      if (append || attends)
        std::erase_if(operands, [](const Operand &o) { return o.arg == Arg::Kv; });
      const auto add = [&](Operand o, Arg arg, Access access) {
        o.arg = arg;
        o.access = access;
        operands.push_back(o);
      };
      const Access access = append ? Access::ReadWrite : Access::Read;
      if ((append || attends) && tails.resident > 0)
        add(resident(step.layer, 0, tails.resident), Arg::Kv, access);
      if ((append || attends) && phase)
        add(inSlot(s.placement, step.layer, slotOf[static_cast<size_t>(step.layer)]), Arg::KvTail, access);
      const int64_t end = tails.mirror ? used : tails.resident;
      if (append && fewest_ && *fewest_ < end) {
        add(home(step.layer, *fewest_, end), Arg::KvHome, access);
        step.direct = true;
        step.linkBytes += 1024;
      }
      addStep(s, step, operands);
      if (attends)
        moves(step.layer);
    }
    orderSteps(s);
  }

  static void setTimes(const Schedule &s, Variant &v) {
    v.durationsNs.clear();
    uint64_t back = 0;
    for (const Step &step : s.steps) {
      v.durationsNs.push_back(step.lane == Lane::Compute ? 500 : 100 + step.linkBytes / 8);
      back += step.lane == Lane::D2H ? v.durationsNs.back() : 0;
    }
    std::tie(v.predictedNs, v.computeAloneNs, v.linkAloneNs) = times(s, v.durationsNs);
    v.linkAloneNs = std::max(v.linkAloneNs, back);
  }

  void addTransitions(uint32_t p, uint32_t phase) {
    const uint32_t state = entryOf(p, phase);
    if (state == 0)
      return;
    for (const bool out : {false, true}) {
      Schedule s;
      s.name = out ? "written back" : "brought";
      s.placement = p;
      s.iterationClass = IterationClass::Transition;
      (out ? s.entryState : s.exitState) = state;
      for (const CarriedTail &carried : all_[p].phases[phase].entry)
        if (!out || carried.dirty)
          addMove(s, {.out = out, .layer = carried.layer, .slot = carried.slot});
      if (!s.steps.empty())
        addTransition(plan_, std::move(s), out ? state : 0, out ? 0 : state);
    }
  }

  // To the homes on the device that `to` has, and `from` on the host.
  void addChange(uint32_t from, uint32_t to) {
    Schedule s;
    s.name = plan_.placements[from].name + " to " + plan_.placements[to].name;
    s.placement = to;
    s.fromPlacement = from;
    s.iterationClass = IterationClass::Transition;
    const int64_t begin = all_[from].resident, end = std::min(all_[to].resident, all_[from].blocks);
    for (int32_t layer = 0; layer < plan_.model->layers && begin < end; ++layer) {
      const Operand source = home(layer, begin, end), at = resident(layer, begin, end);
      PlannedCopy copy{source.buffer, source.bufferOffset, source.bytes, at.address, source.address};
      copy.resizable = copy.interleaved = true;
      addCopy(plan_, s, copy);
    }
    if (!s.steps.empty())
      addTransition(plan_, std::move(s), 0, 0);
  }

  Plan &plan_;
  const std::vector<Tails> &all_;
  const uint64_t slab_, arena_;               // where the caches' homes begin, and where the slots do
  int64_t most_ = 0;                          // blocks of any placement
  std::optional<int64_t> fewest_;             // resident, of placements with a tail
  std::vector<std::vector<uint32_t>> states_; // by placement and phase: what it is entered with
};

} // namespace

void moveTails(Plan &plan, const std::vector<Tails> &placements) { TailMover(plan, placements).run(); }

Phase inTurns(int32_t layers, uint32_t slots, WriteBack how) {
  Phase phase;
  const auto slotOf = [&](int32_t layer) { return static_cast<uint32_t>(layer) % slots; };
  const auto ahead = static_cast<int32_t>(slots);
  for (int32_t layer = 0; layer < std::min(layers, ahead); ++layer)
    phase.moves.push_back({-1, false, layer, slotOf(layer)});
  for (int32_t layer = 0; layer < layers; ++layer) {
    if (how != WriteBack::Mirror)
      phase.moves.push_back({layer, true, layer, slotOf(layer), how == WriteBack::Dirty});
    if (layer + ahead < layers)
      phase.moves.push_back({layer, false, layer + ahead, slotOf(layer)});
  }
  return phase;
}

std::vector<Phase> staying(WriteBack how) {
  const TailMove bring0{-1, false, 0, 0}, bring2{0, false, 2, 0}, next0{2, false, 0, 0};
  if (how == WriteBack::All)
    return {
        {{{0, 0}, {1, 1, true}}, {{0, true, 0, 0}, bring2}},
        {{{2, 0, true}, {1, 1, true}}, {{-1, true, 2, 0}, bring0, {0, true, 0, 0}, bring2, {2, true, 2, 0}, next0}}};
  std::vector<Phase> phases = {{{{0, 0}, {1, 1}}, {}}, {{{2, 0}, {1, 1}}, {bring0}}};
  for (size_t phase = 0; phase < 2; ++phase)
    for (int32_t layer = 0; layer < 3; ++layer) {
      if (how == WriteBack::Dirty)
        phases[phase].moves.push_back({layer, true, layer, layer == 1 ? 1u : 0u, true});
      if (layer == 0)
        phases[phase].moves.push_back(bring2);
      if (layer == 2 && phase == 1)
        phases[phase].moves.push_back(next0);
    }
  return phases;
}

} // namespace headrace::plan::test
