// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/plan/SplitCachePlan.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/plan/PlanParts.h"

namespace headrace::plan::test {
namespace {

void interleaveHome(const Plan &plan, const Placement &placement, Extent &extent) {
  const Buffer &buffer = plan.buffers[extent.buffer];
  if (buffer.kind != BufferKind::Kv)
    return;
  extent.interleaved = true;
  extent.bytes = static_cast<uint64_t>(placement.kvBlocks) * plan.kvBlockBytes();
  extent.address = static_cast<uint64_t>(buffer.layer) * plan.kvBlockBytes();
}

} // namespace

void interleave(Plan &plan, const std::vector<int64_t> &blocks) {
  for (size_t p = 0; p < plan.placements.size(); ++p) {
    plan.placements[p].kvBlocks = blocks[p];
    for (Extent &extent : plan.placements[p].extents)
      interleaveHome(plan, plan.placements[p], extent);
  }
  for (Schedule &schedule : plan.schedules)
    for (Operand &operand : schedule.operands)
      if (operand.arg == Arg::Kv) {
        const Extent &home = plan.placements[schedule.placement].extents[operand.buffer];
        operand.interleaved = true;
        operand.bytes = home.bytes;
        operand.address = home.address;
      }
}

namespace {

constexpr int64_t kSlots = 2;

class Splitter {
public:
  Splitter(Plan &plan, const SplitOptions &options) : plan_(plan), options_(options), slab_(plan.hostBytes) {
    most_ = *std::max_element(options.blocks.begin(), options.blocks.end());
    fewest_ = most_;
    for (size_t p = 0; p < plan.placements.size(); ++p)
      if (options.resident[p] < options.blocks[p])
        fewest_ = std::min(fewest_, options.resident[p]);
    plan_.hostBytes += static_cast<uint64_t>(plan_.model->layers) * size(fewest_, most_);
  }

  void run() {
    const auto iterations = static_cast<uint32_t>(plan_.schedules.size());
    interleave(plan_, options_.resident);
    const uint64_t arena = plan_.arenaBytes;
    for (uint32_t p = 0; p < plan_.placements.size(); ++p)
      place(p, arena);
    plan_.deviceMemory = plan_.hardware.memoryBytes = plan_.arenaBytes;
    for (uint32_t s = 0; s < iterations; ++s)
      rebuild(s);
    for (uint32_t from = 0; from < plan_.placements.size(); ++from)
      for (uint32_t to = 0; to < plan_.placements.size(); ++to)
        addSwitch(from, to);
    if (options_.carry)
      addEntry();
  }

private:
  uint64_t size(int64_t begin, int64_t end) const { return static_cast<uint64_t>(end - begin) * plan_.kvBlockBytes(); }
  // Where a block at home on the host lies in the slab.
  uint64_t home(int64_t layer, int64_t block) const {
    return slab_ + static_cast<uint64_t>(layer) * size(fewest_, most_) + size(fewest_, block);
  }
  bool hasTail(uint32_t p) const { return options_.resident[p] < options_.blocks[p]; }

  void place(uint32_t p, uint64_t arena) {
    Placement &placement = plan_.placements[p];
    placement.kvBlocks = options_.blocks[p];
    if (!hasTail(p))
      return;
    const int64_t resident = options_.resident[p];
    const uint64_t bytes = size(resident, placement.kvBlocks);
    std::vector<Extent> extents;
    for (const Extent &extent : placement.extents) {
      extents.push_back(extent);
      if (const Buffer &buffer = plan_.buffers[extent.buffer]; buffer.kind == BufferKind::Kv)
        extents.push_back({extent.buffer, Space::Host, true, size(0, resident), bytes, home(buffer.layer, resident)});
    }
    placement.extents = std::move(extents);
    for (uint64_t slot = 0; slot < kSlots; ++slot)
      placement.slots.push_back({arena + slot * bytes, bytes});
    plan_.arenaBytes = std::max(plan_.arenaBytes, arena + kSlots * bytes);
  }

  Operand source(int64_t layer, int64_t begin, int64_t end) const {
    return {plan_.kvBuffer(layer), Space::Host,      Access::Read,      Arg::Source,
            size(0, begin),        size(begin, end), home(layer, begin)};
  }
  void addCopy(Schedule &s, Operand from, uint64_t address, bool interleaved) {
    Step step;
    step.kind = StepKind::Copy;
    step.lane = Lane::H2D;
    step.part = Part::Movement;
    step.layer = plan_.buffers[from.buffer].layer;
    step.resizable = true;
    step.linkBytes = from.bytes;
    Operand to = from;
    to.space = Space::Device;
    to.access = Access::Write;
    to.arg = Arg::Destination;
    to.address = address;
    to.interleaved = interleaved;
    addStep(s, step, {from, to});
  }
  Operand tail(const Schedule &s, Arg arg, Access access, int64_t layer) const {
    Operand o = source(layer, options_.resident[s.placement], options_.blocks[s.placement]);
    o.space = Space::Device;
    o.access = access;
    o.arg = arg;
    o.address = plan_.placements[s.placement].slots[static_cast<size_t>(layer % kSlots)].address;
    return o;
  }
  void addTailCopy(Schedule &s, int64_t layer) {
    addCopy(s, source(layer, options_.resident[s.placement], options_.blocks[s.placement]),
            tail(s, Arg::KvTail, Access::Read, layer).address, false);
  }

  void rebuild(uint32_t index) {
    const Schedule old = std::move(plan_.schedules[index]);
    Schedule s = old;
    s.steps.clear();
    s.operands.clear();
    const int64_t layers = plan_.model->layers, used = s.kvBlocks > 0 ? s.kvBlocks : options_.blocks[s.placement];
    const bool brings = used > options_.resident[s.placement], carry = options_.carry && s.placement == 0 && brings;
    std::vector<uint32_t> copy(static_cast<size_t>(layers), kNone);
    const auto bring = [&](int64_t layer) {
      copy[static_cast<size_t>(layer)] = static_cast<uint32_t>(s.steps.size());
      addTailCopy(s, layer);
    };
    for (int64_t layer = carry ? 1 : 0; brings && layer < std::min(layers, kSlots); ++layer)
      bring(layer);
    for (Step step : old.steps) {
      const auto first = old.operands.begin() + step.firstOperand;
      std::vector<Operand> operands(first, first + step.operandCount);
      const auto number = static_cast<uint32_t>(s.steps.size());
      const bool append = step.op == kernels::Op::RopeAppend, attends = step.op == kernels::Op::Attention;
      if (append && brings)
        operands.push_back(tail(s, Arg::KvTail, Access::ReadWrite, step.layer));
      if (append && used > fewest_) {
        Operand o = source(step.layer, fewest_, used);
        o.access = Access::ReadWrite;
        o.arg = Arg::KvHome;
        operands.push_back(o);
        step.direct = true;
        step.linkBytes += 1024;
      }
      if (attends && brings)
        operands.push_back(tail(s, Arg::KvTail, Access::Read, step.layer));
      if (append && brings && copy[static_cast<size_t>(step.layer)] != kNone)
        s.edges.push_back({copy[static_cast<size_t>(step.layer)], number, EdgeKind::Raw});
      addStep(s, step, operands);
      if (!attends || !brings)
        continue;
      const int64_t next = step.layer + kSlots;
      if (next >= layers && !(carry && step.layer == layers - kSlots))
        continue;
      s.edges.push_back({number, number + 1, EdgeKind::War});
      if (next < layers)
        bring(next);
      else
        addTailCopy(s, 0); // of the next iteration
    }
    if (carry) {
      const Operand o = tail(s, Arg::KvTail, Access::Read, 0);
      plan_.states.push_back({s.placement, {{o.buffer, o.bufferOffset, o.bytes, o.address}}});
      s.entryState = s.exitState = static_cast<uint32_t>(plan_.states.size() - 1);
    }
    for (Variant &v : plan_.variants)
      if (v.schedule == index) {
        v.durationsNs.clear();
        for (const Step &step : s.steps)
          v.durationsNs.push_back(step.lane == Lane::Compute ? 500 : 100 + step.linkBytes / 8);
        std::tie(v.predictedNs, v.computeAloneNs, v.linkAloneNs) = times(s, v.durationsNs);
      }
    plan_.schedules[index] = std::move(s);
  }

  // To the homes on the device that `to` has, and `from` on the host.
  void addSwitch(uint32_t from, uint32_t to) {
    Schedule s;
    s.name = plan_.placements[from].name + " to " + plan_.placements[to].name;
    s.placement = to;
    s.fromPlacement = from;
    s.iterationClass = IterationClass::Transition;
    const int64_t begin = options_.resident[from], end = std::min(options_.resident[to], options_.blocks[from]);
    for (int64_t layer = 0; layer < plan_.model->layers && begin < end; ++layer)
      addCopy(s, source(layer, begin, end),
              static_cast<uint64_t>(begin) * plan_.kvStride() + static_cast<uint64_t>(layer) * plan_.kvBlockBytes(),
              true);
    if (!s.steps.empty())
      addTransition(plan_, std::move(s), 0, 0);
  }

  void addEntry() {
    Schedule s;
    s.name = "to the state that is carried";
    s.iterationClass = IterationClass::Transition;
    s.exitState = static_cast<uint32_t>(plan_.states.size() - 1);
    addTailCopy(s, 0);
    addTransition(plan_, std::move(s), 0, static_cast<uint32_t>(plan_.states.size() - 1));
  }

  Plan &plan_;
  const SplitOptions &options_;
  const uint64_t slab_; // where the caches' homes begin
  int64_t most_ = 0;    // blocks of any placement
  int64_t fewest_ = 0;  // resident, of placements with a tail
};

} // namespace

void split(Plan &plan, const SplitOptions &options) { Splitter(plan, options).run(); }

} // namespace headrace::plan::test
